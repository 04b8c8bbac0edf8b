"""The card of a set of pairs: what it holds, counted, for programs and for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from habitus.data.about import ABOUT
from habitus.data.cards import UNKNOWN, by_number, cell, count, table
from habitus.data.cards import non_commercial as licences_non_commercial
from habitus.pairs.mix_card import MixTable, mix_text
from habitus.pairs.reading import pairs_digest
from habitus.pairs.sources import Found
from habitus.pairs.splits import Leakage, leakage
from habitus.types import Frozen, PreferencePair

FEW_GROUPS = 100
"""Below so many groups a country's accuracy from one test part is too noisy to compare."""

_PRISM_LIMITS = (
    "Ratings are single persons' of models' answers; few people stand for a country.",
    "Responses are from models of 2023; pairs of one turn are not independent.",
)
_SURVEY_LIMITS = (
    "A pair says which of two answers more people of a country gave, not what everyone prefers.",
    "Prompts name no country: only the pair's country tells whose preference it is.",
    "Many questions share a stem and differ in what they ask about; such questions may stand on "
    "both sides of a split.",
)


class CountryCount(Frozen):
    """How much one country has."""

    pairs: int
    """Pairs."""
    groups: int
    """People or questions."""
    train: int
    """Pairs of the training part."""
    test: int
    """Pairs of the test part."""
    test_groups: int
    """People or questions of the test part."""


class PairsCard(Frozen):
    """`card.json` of a pairs folder. It names no path of the machine it was made on."""

    digest: str
    """Digest of the pairs, as `pairs_digest`."""
    format: str
    """What the source was read as."""
    source: str
    """Name of the file or folder, or of the bundled benchmark."""
    source_sha256: str
    """Digest of the file; of a folder, of its files' names and digests."""
    options: dict[str, Any]
    """The options that the pairs were made with."""
    habitus: str
    """Version of Habitus that made them."""
    licences: dict[str, int]
    """Licence, an SPDX identifier or "unknown", to the number of pairs."""
    non_commercial: Literal["yes", "no", "unknown"]
    """Whether any licence forbids commercial use; "unknown" when a licence is."""
    n_pairs: int
    """Pairs."""
    n_groups: int
    """People or questions: what is split, and what intervals are clustered by."""
    n_annotators: int
    """People; 0 where preferences are a country's."""
    countries: dict[str, CountryCount]
    """Country to its counts."""
    languages: dict[str, int]
    """BCP 47 tag to the number of pairs."""
    cultures: dict[str, int]
    """Culture to the number of pairs."""
    sources: dict[str, int]
    """Data set to the number of pairs."""
    splits: dict[str, int]
    """Part to the number of pairs."""
    folds: dict[str, int]
    """Fold to the number of pairs."""
    longer_chosen: float
    """Accuracy of always taking the longer response, equals counted half: what length alone
    gives away."""
    leakage: Leakage
    """What stands on both sides of a split."""
    dropped: dict[str, int]
    """Why rows, responses or pairs of the source could not be used, and how many."""
    left_out: dict[str, int]
    """Which option left pairs out, and how many."""
    notes: tuple[str, ...] = ()
    """What was noticed."""
    mix: MixTable | None = None
    """What a mix is made of; None where the pairs are of one source."""


def make_card(
    pairs: Sequence[PreferencePair],
    options: Mapping[str, Any],
    found: Found,
    left_out: dict[str, int],
    version: str,
) -> PairsCard:
    """Count what a card tells of pairs, at least one.

    Args:
        pairs: The pairs, with part and fold.
        options: The options that they were made with.
        found: What was read.
        left_out: Which option left pairs out, and how many.
        version: Version of Habitus.
    """
    licences = count(pair.licence for pair in pairs)
    leaks = leakage(pairs)
    splits = count(pair.split for pair in pairs)
    notes = list(found.notes)
    if options["test_share"] and len(splits) < 2:
        notes.append(f"all pairs are in the {next(iter(splits))} part: there are too few groups")
    if leaks.test_pairs_affected:
        notes.append(
            f"{leaks.test_pairs_affected:,} test pairs have a prompt that stands in the training "
            "part too"
        )
    return PairsCard(
        digest=pairs_digest(pairs),
        format=found.format,
        source=found.name,
        source_sha256=found.sha256,
        options=dict(options),
        habitus=version,
        licences=licences,
        non_commercial=licences_non_commercial(licences),
        n_pairs=len(pairs),
        n_groups=len({pair.group for pair in pairs}),
        n_annotators=len({pair.annotator for pair in pairs if pair.annotator}),
        countries=_countries(pairs),
        languages=count(pair.language for pair in pairs),
        cultures=count(pair.culture for pair in pairs),
        sources=count(pair.source for pair in pairs),
        splits=splits,
        folds=by_number(Counter(pair.fold for pair in pairs if pair.fold is not None)),
        longer_chosen=round(sum(map(_longer, pairs)) / len(pairs), 4),
        leakage=leaks,
        dropped=found.dropped,
        left_out=left_out,
        notes=tuple(notes),
    )


def _countries(pairs: Iterable[PreferencePair]) -> dict[str, CountryCount]:
    by_country: dict[str, list[PreferencePair]] = defaultdict(list)
    for pair in pairs:
        by_country[pair.country or UNKNOWN].append(pair)
    counts = {
        name: CountryCount(
            pairs=len(own),
            groups=len({pair.group for pair in own}),
            train=sum(pair.split == "train" for pair in own),
            test=sum(pair.split == "test" for pair in own),
            test_groups=len({pair.group for pair in own if pair.split == "test"}),
        )
        for name, own in by_country.items()
    }
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1].pairs, entry[0])))


def _longer(pair: PreferencePair) -> float:
    chosen, rejected = len(pair.chosen), len(pair.rejected)
    return 0.5 if chosen == rejected else float(chosen > rejected)


def card_text(card: PairsCard) -> str:
    """Return `card.md`: the card for people."""
    about = ABOUT.get(card.format)
    title = f"{about.title} ({about.paper})" if about else card.source
    parts = [
        f"# Preference pairs from {cell(title)}",
        f"{card.n_pairs:,} pairs of {card.n_groups:,} groups (people or questions), read as "
        f"{card.format}. Train on them by the path of this folder: "
        f"`habitus train {'locals' if card.mix else 'scpo'} --pairs FOLDER`.",
        _licences(card),
        *(mix_text(card.mix) if card.mix else ()),
        _countries_table(card),
        *_tables(card),
        _leakage(card),
        "## Not used\n\n" + _table(("reason", "rows, responses or pairs"), card.dropped),
        "## Left out by options\n\n" + _table(("reason", "pairs"), card.left_out),
        "## Limits\n\n" + "\n".join(f"- {line}" for line in _limits(card)),
        _origin(card),
    ]
    return "\n\n".join(parts) + "\n"


def _licences(card: PairsCard) -> str:
    told = {
        "yes": "Non-commercial use only. A model trained on these pairs is non-commercial, too.",
        "no": "No licence here forbids commercial use.",
        "unknown": "Whether commercial use is allowed is not known: ask the source.",
    }
    lines = [f"- {cell(name)}: {n:,} pairs" for name, n in card.licences.items()]
    return "\n".join(["## Licence", "", *lines, "", told[card.non_commercial]])


def _countries_table(card: PairsCard) -> str:
    lines = [
        "## By country",
        "",
        "| country | pairs | groups | train | test | test groups |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {cell(name)} | {n.pairs:,} | {n.groups:,} | {n.train:,} | {n.test:,} "
        f"| {n.test_groups:,} |"
        for name, n in card.countries.items()
    ]
    return "\n".join(lines)


def _tables(card: PairsCard) -> list[str]:
    named = (
        ("part", card.splits),
        ("fold", card.folds),
        ("language", card.languages),
        ("culture", card.cultures),
        ("source", card.sources),
    )
    return [
        f"## By {name}\n\n" + _table((name, "pairs"), counts)
        for name, counts in named
        if set(counts) != {UNKNOWN}
    ]


def _leakage(card: PairsCard) -> str:
    rows = {
        "groups in both parts": card.leakage.groups_in_both,
        "near-identical prompts in both parts": card.leakage.prompts_in_both,
        "test pairs with such a prompt": card.leakage.test_pairs_affected,
        "groups in several folds": card.leakage.groups_in_several_folds,
        "near-identical prompts in several folds": card.leakage.prompts_in_several_folds,
        "pairs with such a prompt": card.leakage.fold_pairs_affected,
    }
    return (
        "## Leakage\n\nNear-identical: equal but for case, spacing and punctuation.\n\n"
        + _table(("what", "count"), rows)
    )


def _limits(card: PairsCard) -> list[str]:
    """Return the source's limits, and those that the figures show."""
    lines: list[str] = []
    if card.mix is None:
        lines += _format_limits(card.format)
    else:
        of: dict[str, list[str]] = defaultdict(list)
        for one in card.mix.sources:
            for line in _format_limits(one.format):
                of[line].append(cell(one.name))
        lines += [f"{', '.join(names)}: {line}" for line, names in of.items()]
    few = [name for name, n in card.countries.items() if 0 < n.test_groups < FEW_GROUPS]
    if few:
        lines.append(
            f"{len(few)} of {len(card.countries)} countries have fewer than {FEW_GROUPS} groups in "
            "the test part: compare models by cross-validation over the folds, with intervals "
            "clustered by group."
        )
    if abs(card.longer_chosen - 0.5) > 0.1:
        lines.append(
            f"Length gives preferences away: the longer response is chosen in "
            f"{card.longer_chosen:.1%}. Compare a model with that."
        )
    return lines or ["None is known; whether the pairs show what you need is for you to check."]


def _format_limits(name: str) -> tuple[str, ...]:
    own = {"prism": _PRISM_LIMITS, "globalopinionqa": _SURVEY_LIMITS}.get(name, ())
    about = ABOUT.get(name)
    if about is None:
        return own
    harm = ("Contains text that offends or harms; keep it out of logs.",) if about.harmful else ()
    return (*own, *about.limits, *harm)


def _origin(card: PairsCard) -> str:
    rows = {
        "source": card.source,
        "sha256 of the source": card.source_sha256,
        "read as": card.format,
        **{
            name.replace("_", " "): ", ".join(value) if isinstance(value, list) else value
            for name, value in card.options.items()
            if value not in (None, [])
        },
        "Habitus": card.habitus,
        "digest of the pairs": card.digest,
    }
    notes = "".join(f"\n- {cell(note)}" for note in card.notes)
    return "## Origin\n\n" + _table(("what", "value"), rows) + (f"\n{notes}" if notes else "")


def _table(head: tuple[str, str], rows: Mapping[str, Any]) -> str:
    if not rows:
        return "Nothing."
    shown = {
        key: f"{value:,}" if isinstance(value, int) else str(value) for key, value in rows.items()
    }
    return table(*head, shown)
