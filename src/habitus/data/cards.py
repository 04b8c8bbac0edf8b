"""Cards of imported benchmarks: what the items are, counted, for programs and for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from habitus.data.about import ABOUT
from habitus.types import Frozen, Item, benchmark_digest

UNKNOWN = "unknown"
"""What is counted where an item does not say."""

_COMMERCIAL = re.compile(
    r"(CC0|CC-BY(-SA|-ND)?-\d.*|MIT|Apache-2\.0|BSD-.*|ODC-By-1\.0|ODbL-1\.0|PDDL-1\.0|CDLA-.*"
    r"|GFDL-.*|GPL-.*|LGPL-.*|AGPL-.*|MPL-.*|ISC|Unlicense)(-\d.*)?",
    re.IGNORECASE,
)
_NON_COMMERCIAL = re.compile(r"(?<![A-Z])NC(?![A-Z])|non-?\s?commercial", re.IGNORECASE)


class ImportCard(Frozen):
    """`card.json` of an imported benchmark. It names no path of the machine it was made on."""

    name: str
    """Name of the benchmark."""
    version: str
    """Digest of the items' content: equal imports have equal versions."""
    licences: dict[str, int]
    """Licence, an SPDX identifier or "unknown", to the number of items."""
    non_commercial: Literal["yes", "no", "unknown"]
    """Whether any item's licence forbids commercial use; "unknown" when a licence is."""
    n_items: int
    """How many items there are."""
    n_clusters: int
    """How many parents they come from: what intervals are clustered by."""
    format: str
    """Format of the source."""
    source: str
    """Name of the file or folder, or of the bundled benchmark."""
    source_sha256: str
    """Digest of the file; of a folder, of its files' names and digests."""
    seed: int
    """Seed of whatever was drawn."""
    limit: int | None = None
    """How many items were asked for, where not all."""
    habitus: str
    """Version of Habitus that imported it."""
    cultures: dict[str, int]
    """Culture to the number of items."""
    countries: dict[str, int]
    """Country to the number of items."""
    languages: dict[str, int]
    """BCP 47 tag to the number of items."""
    domains: dict[str, int]
    """Domain to the number of items."""
    candidates: dict[str, int]
    """Number of candidates to the number of items."""
    authors: dict[str, int]
    """Who wrote the text, to the number of items."""
    human_validated: int
    """How many items people of the culture have checked."""
    chance: float
    """Accuracy of a random pick."""
    longest: float
    """Accuracy of always taking the longest candidate: what length alone gives away."""
    shortest: float
    """Accuracy of always taking the shortest candidate."""
    skipped: dict[str, int]
    """Reason to the number of rows left out."""
    notes: tuple[str, ...] = ()
    """What was noticed while the source was read."""
    harmful: bool = False
    """True when the source is known to contain text that offends or harms."""
    limits: tuple[str, ...] = ()
    """What the items cannot show, a sentence each."""


def make_card(items: Sequence[Item], **fields: object) -> ImportCard:
    """Count what a card tells of `items`.

    Args:
        items: The items, at least one.
        **fields: The fields that the items do not tell: name, format, source and the like.
    """
    licences = count(item.licence for item in items)
    counted: dict[str, object] = {
        "version": benchmark_digest(items),
        "licences": licences,
        "non_commercial": non_commercial(licences),
        "n_items": len(items),
        "n_clusters": len({item.parent_id or item.id for item in items}),
        "cultures": count(item.culture for item in items),
        "countries": count(item.country for item in items),
        "languages": count(item.language for item in items),
        "domains": count(item.domain for item in items),
        "candidates": by_number(Counter(len(item.candidates) for item in items)),
        "authors": count(item.author for item in items),
        "human_validated": sum(item.human_validated for item in items),
        "chance": round(sum(item.chance for item in items) / len(items), 4),
        "longest": round(sum(_by_length(item, 1) for item in items) / len(items), 4),
        "shortest": round(sum(_by_length(item, -1) for item in items) / len(items), 4),
    }
    about = ABOUT.get(str(fields.get("format")))
    if about is not None:
        counted |= {"harmful": about.harmful, "limits": about.limits}
    return ImportCard.model_validate(counted | fields)


def non_commercial(licences: Iterable[str]) -> Literal["yes", "no", "unknown"]:
    """Tell whether any of these licences forbids commercial use; "no" only for known ones."""
    every = list(licences)
    if any(_NON_COMMERCIAL.search(licence) for licence in every):
        return "yes"
    return "no" if all(_COMMERCIAL.fullmatch(licence) for licence in every) else "unknown"


def _by_length(item: Item, sign: int) -> float:
    """Return the credit for taking the longest (sign 1) or shortest (-1); equals share it."""
    lengths = {one.id: sign * len(one.text) for one in item.candidates}
    top = max(lengths.values())
    taken = [id for id, length in lengths.items() if length == top]
    return sum(id in item.best_ids for id in taken) / len(taken)


def count(values: Iterable[str | None]) -> dict[str, int]:
    """Count values, the most frequent first, equals by name."""
    counts = Counter(value or UNKNOWN for value in values)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def by_number(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts of numbers in the order of the numbers."""
    return {str(number): counts[number] for number in sorted(counts)}


def card_text(card: ImportCard) -> str:
    """Return `CARD.md`: the card for people."""
    about = ABOUT.get(card.format)
    title = f"{about.title} ({about.paper})" if about else f"the file or folder {card.source}"
    parts = [
        f"# {cell(card.name)}",
        f"{card.n_items:,} items in the format of Habitus, made from {cell(title)}. Load them by "
        "the path of this folder: `habitus evaluate MODEL --benchmark FOLDER`.",
        _licences(card),
        _figures(card),
        *_tables(card),
        _left_out(card),
        "## Limits\n\n" + "\n".join(f"- {line}" for line in _limits(card)),
        _origin(card),
    ]
    return "\n\n".join(parts) + "\n"


def _licences(card: ImportCard) -> str:
    lines = ["## Licence", ""]
    lines += [f"- {cell(name)}: {n:,} items" for name, n in card.licences.items()]
    told = {
        "yes": "Non-commercial use only. Mark what is trained on these items as non-commercial, too.",
        "no": "No licence here forbids commercial use.",
        "unknown": "Whether commercial use is allowed is not known: ask the source.",
    }
    return "\n".join([*lines, "", told[card.non_commercial]])


def _figures(card: ImportCard) -> str:
    rows = {
        "items": f"{card.n_items:,}",
        "parents (intervals are clustered by them)": f"{card.n_clusters:,}",
        "candidates of an item": ", ".join(f"{n} ({c:,})" for n, c in card.candidates.items()),
        "written by": ", ".join(f"{cell(who)} ({c:,})" for who, c in card.authors.items()),
        "checked by people of the culture": f"{card.human_validated:,}",
        "accuracy of a random pick": f"{card.chance:.1%}",
        "accuracy of the longest candidate": f"{card.longest:.1%}",
        "accuracy of the shortest candidate": f"{card.shortest:.1%}",
    }
    return "## Figures\n\n" + table("figure", "value", rows)


def _tables(card: ImportCard) -> list[str]:
    parts = (
        ("culture", card.cultures),
        ("country", card.countries),
        ("language", card.languages),
        ("domain", card.domains),
    )
    return [
        f"### By {name}\n\n" + table(name, "items", {key: f"{n:,}" for key, n in counts.items()})
        for name, counts in parts
        if set(counts) != {UNKNOWN}
    ]


def _left_out(card: ImportCard) -> str:
    if not card.skipped:
        return "## Left out\n\nNothing."
    rows = {reason: f"{n:,}" for reason, n in card.skipped.items()}
    return "## Left out\n\n" + table("reason", "rows", rows)


def _limits(card: ImportCard) -> list[str]:
    """Return the source's limits, and those that the figures show."""
    lines = list(card.limits)
    if card.harmful:
        lines.append("Contains text that offends or harms; keep it out of logs and front pages.")
    if not card.human_validated:
        lines.append("No item has been checked by people of its culture as an item of this form.")
    if UNKNOWN in card.cultures:
        lines.append(
            f"{card.cultures[UNKNOWN]:,} items name no culture; a language or country is none."
        )
    for name, value in (("longest", card.longest), ("shortest", card.shortest)):
        if value > card.chance + 0.1:
            lines.append(
                f"Length gives answers away: the {name} candidate is right in {value:.1%}, a "
                f"random one in {card.chance:.1%}. Compare a model with that."
            )
    if card.limit is not None:
        lines.append(f"A sample of {card.n_items:,} items, spread over cultures and domains.")
    lines.append("Sources on the web may be in a model's training data.")
    return lines


def _origin(card: ImportCard) -> str:
    rows = {
        "source": card.source,
        "sha256 of the source": card.source_sha256,
        "format": card.format,
        "seed": str(card.seed),
        "limit": str(card.limit or "none"),
        "Habitus": card.habitus,
        "version (digest of the items)": card.version,
    }
    notes = "".join(f"\n- {cell(note)}" for note in card.notes)
    return "## Origin\n\n" + table("what", "value", rows) + (f"\n{notes}" if notes else "")


def table(first: str, second: str, rows: Mapping[str, str]) -> str:
    """Return a Markdown table of two columns, with these heads."""
    head = [f"| {first} | {second} |", "|---|---:|"]
    return "\n".join([*head, *(f"| {cell(key)} | {cell(value)} |" for key, value in rows.items())])


def cell(text: str) -> str:
    """Return a text from data so that it stays text in Markdown."""
    return re.sub(r"([\\|<>`*_\[\]#])", r"\\\1", " ".join(text.split()))
