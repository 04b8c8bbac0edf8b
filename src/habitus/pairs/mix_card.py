"""What a card tells of a mix: what was asked for, what there was, and what is in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from habitus.data.cards import cell as text_cell
from habitus.pairs.drawing import Cell
from habitus.types import Frozen, PreferencePair

MOST_ROWS = 12
"""Rows of a source in the table of countries; the others are summed up."""


class MixCount(Frozen):
    """One share: asked for, there, and drawn."""

    source: str
    """Name of the source in the mix file."""
    name: str | None = None
    """Country, culture or language that the share is of; None for the whole source."""
    share: float
    """Share of all pairs."""
    asked_train: int
    """Training pairs asked for."""
    there_train: int
    """Training pairs that could be drawn."""
    train: int
    """Training pairs drawn."""
    asked_test: int
    """Test pairs asked for."""
    there_test: int
    """Test pairs that could be drawn."""
    test: int
    """Test pairs drawn."""
    repeated: int = 0
    """How many of the training pairs are there for another time."""

    @classmethod
    def of(cls, cell: Cell) -> MixCount:
        """Count what was drawn from a cell."""
        train, test = cell.drawn[False], cell.drawn[True]
        return cls(
            source=cell.source,
            name=cell.name,
            share=round(cell.share, 6),
            asked_train=train.wanted,
            there_train=train.there,
            train=len(train.pairs),
            asked_test=test.wanted,
            there_test=test.there,
            test=len(test.pairs),
            repeated=train.repeated,
        )


class MixedSource(Frozen):
    """One source of a mix."""

    name: str
    """Name in the mix file."""
    format: str
    """What it was read as."""
    source: str
    """Name of the file or folder, or of the bundled benchmark."""
    sha256: str
    """Digest of it."""
    licences: dict[str, int]
    """Licence to the number of pairs in the mix."""
    non_commercial: Literal["yes", "no", "unknown"]
    """Whether any of its licences forbids commercial use."""
    dropped: dict[str, int]
    """Why rows, responses or pairs of it could not be used, and how many."""
    left_out: dict[str, int]
    """Why pairs of it could not be drawn, and how many."""


class Composition(Frozen):
    """How many pairs of a source have one culture, country and language."""

    source: str
    """Name in the mix file."""
    culture: str | None
    """Culture, where it is told."""
    country: str | None
    """Country, where it is told."""
    language: str | None
    """Language, where it is told."""
    train: int
    """Training pairs."""
    test: int
    """Test pairs."""


class MixTable(Frozen):
    """What a mix is made of."""

    sources: tuple[MixedSource, ...]
    """The sources, in the order of the file."""
    counts: tuple[MixCount, ...]
    """The shares."""
    composition: tuple[Composition, ...]
    """What the pairs are, by source, culture, country and language; the largest first."""
    joined_groups: int
    """Groups of questions that went into another one because they share a prompt."""
    moved_pairs: int
    """Pairs that could be drawn and changed their part by that."""


def composition(pairs: Iterable[PreferencePair]) -> tuple[Composition, ...]:
    """Count pairs by source, culture, country and language; ids begin with the source's name."""
    counts: dict[tuple[str, str | None, str | None, str | None], Counter[str]]
    counts = defaultdict(Counter)
    for pair in pairs:
        source = pair.id.partition(":")[0]
        counts[source, pair.culture, pair.country, pair.language][pair.split or ""] += 1
    order = {name: index for index, (name, *_) in enumerate(counts)}
    found = [
        Composition(
            source=source,
            culture=culture,
            country=country,
            language=language,
            train=n["train"],
            test=n["test"],
        )
        for (source, culture, country, language), n in counts.items()
    ]
    return tuple(
        sorted(
            found,
            key=lambda one: (
                order[one.source],
                -one.train - one.test,
                one.country or "",
                one.culture or "",
                one.language or "",
            ),
        )
    )


def mix_text(mix: MixTable) -> list[str]:
    """Return the card's sections about a mix, in Markdown."""
    return [_counts(mix.counts), _sources(mix), _composition(mix.composition)]


def _counts(counts: Sequence[MixCount]) -> str:
    lines = [
        "## Asked and got",
        "",
        "There: pairs that could be drawn, after exclusions and repeats.",
        "",
        "| source | of | share | train: asked | there | got | test: asked | there | got |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {text_cell(n.source)} | {text_cell(n.name or 'all')} | {n.share:.1%} "
        f"| {n.asked_train:,} | {n.there_train:,} | {n.train:,}"
        f"{f' ({n.repeated:,} repeated)' if n.repeated else ''} "
        f"| {n.asked_test:,} | {n.there_test:,} | {n.test:,} |"
        for n in counts
    ]
    sums = [
        sum(getattr(n, name) for n in counts)
        for name in ("asked_train", "there_train", "train", "asked_test", "there_test", "test")
    ]
    lines.append(f"| all | | 100.0% | {' | '.join(f'{n:,}' for n in sums)} |")
    short = [n for n in counts if n.there_train < n.asked_train or n.there_test < n.asked_test]
    told = ", ".join(f"{n.source}{f' ({n.name})' if n.name else ''}" for n in short)
    lines += ["", f"Ran short: {text_cell(told)}." if short else "Nothing ran short."]
    return "\n".join(lines)


def _sources(mix: MixTable) -> str:
    lines = [
        "## Sources",
        "",
        "| source | data | read as | licence | non-commercial | not used | left out |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in mix.sources:
        left = [
            "; ".join(f"{n:,} {why}" for why, n in w.items()) for w in (one.dropped, one.left_out)
        ]
        licences = ", ".join(one.licences)
        cells = (one.name, one.source, one.format, licences, one.non_commercial, *left)
        lines.append(f"| {' | '.join(map(text_cell, cells))} |")
    lines += [
        "",
        f"Groups joined to another one with the same prompt: {mix.joined_groups:,}; pairs that "
        f"changed their part by that: {mix.moved_pairs:,}.",
    ]
    return "\n".join(lines)


def _composition(rows: Sequence[Composition]) -> str:
    lines = [
        "## By source, culture, country and language",
        "",
        "| source | culture | country | language | train | test |",
        "|---|---|---|---|---:|---:|",
    ]
    by_source: dict[str, list[Composition]] = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row)
    for source, own in by_source.items():
        lines += [
            f"| {' | '.join(text_cell(one or '') for one in (source, n.culture, n.country, n.language))} "
            f"| {n.train:,} | {n.test:,} |"
            for n in own[:MOST_ROWS]
        ]
        if rest := own[MOST_ROWS:]:
            train, test = sum(n.train for n in rest), sum(n.test for n in rest)
            lines.append(
                f"| {text_cell(source)} | {len(rest)} more: see card.json | | | {train:,} | {test:,} |"
            )
    return "\n".join(lines)
