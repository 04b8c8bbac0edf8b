"""Rules that look at the surface of the responses only: length, marks, order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from habitus.audit.table import Floats, Ints, Mask, Table

FORMATTING = (
    r"\*\*|__|~~|`+|^#{1,6}\s|\|"  # markdown
    r"|^\s*(?:[-*•‣◦–]|\d{1,3}[.)、])\s"  # list items
    "|[\"'“”„‟‘’«»‹›「」『』《》〈〉]"  # quotation marks
    r"|[(){}\[\]（）【】［］]"  # brackets
    r"|[\p{Extended_Pictographic}--\p{ASCII}--©®™]"  # emoji
    r"|\n"
)
"""What counts as a formatting mark, as a regular expression of Rust's regex crate."""


@dataclass(frozen=True)
class Scored:
    """A rule's scores, before they are tested."""

    name: str
    """Short name."""
    title: str
    """Name for readers."""
    description: str
    """What it picks."""
    scores: Floats | None
    """One score per candidate, or None when the rule could not run."""
    reason: str | None = None
    """Why it could not run."""
    learned: dict[str, str] = field(default_factory=dict)
    """What it learned, in words."""
    parts: Ints | None = None
    """For a learned rule: the part (half, fold) of each item, scored by what the others taught."""


def surface_rules(table: Table, *, ordered: bool) -> list[Scored]:
    """Return the rules of length, marks, digits, punctuation and position.

    Args:
        table: The benchmark.
        ordered: Whether the order of the candidates is the source's own. Formats that keep the
            right response in a column of its own have no order.
    """
    texts = pl.Series("text", table.texts, dtype=pl.String)
    length = texts.str.len_chars().to_numpy().astype(np.float64)
    marks = _matches(texts, f"(?m){FORMATTING}")
    return [
        Scored("longest", "Longest response", "most characters", length),
        Scored("shortest", "Shortest response", "fewest characters", -length),
        length_by_domain(table, length),
        Scored("most-marks", "Most formatting", "most " + _MARKS, marks),
        Scored("fewest-marks", "Least formatting", "fewest " + _MARKS, -marks),
        Scored("most-digits", "Most digits", "most digits", _matches(texts, r"\p{Nd}")),
        Scored(
            "most-punctuation",
            "Most punctuation",
            "most punctuation characters",
            _matches(texts, r"\p{P}"),
        ),
        position(table, ordered=ordered),
    ]


_MARKS = "markdown, list, quotation and bracket marks, emoji and line ends"


def _matches(texts: pl.Series, pattern: str) -> Floats:
    return texts.str.count_matches(pattern).to_numpy().astype(np.float64)


def length_by_domain(table: Table, length: Floats) -> Scored:
    """Return the rule that picks, in each domain, the length rank that wins most often there.

    The rank is learned on one half of the items and tested on the other, and vice versa. Ranks
    are fractions (0 shortest, 1 longest), so that items with differing numbers of candidates can
    be mixed; a rule picks the candidate whose rank is nearest.
    """
    ranks = table.average_rank(length.astype(np.int64).tolist())
    usual = Counter(table.sizes.tolist()).most_common(1)[0][0]
    targets = [step / (usual - 1) for step in range(usual)]
    scored = {target: -np.abs(ranks - target) for target in targets}
    earned = {target: table.credit(scores) for target, scores in scored.items()}
    domains = np.array([item.domain or "" for item in table.items])
    scores = np.zeros(len(ranks))
    learned = {}
    for half in (0, 1):
        known = table.half != half
        for domain in sorted(set(domains.tolist())):
            here = domains == domain
            training = known & here if (known & here).any() else known
            target = _winner(targets, earned, training)
            tested = ((table.half == half) & here)[table.owner]
            scores[tested] = scored[target][tested]
            learned[f"{domain or 'no domain'}, half {half + 1}"] = _rank_words(target)
    title = "Best length by domain"
    description = "the length rank that wins most in the item's domain on the other half"
    return Scored("length-by-domain", title, description, scores, learned=learned, parts=table.half)


def _winner(targets: list[float], earned: dict[float, Floats], training: Mask) -> float:
    """Return the target that earns most; of equals the highest. No item to learn from: the last."""
    if not training.any():
        return targets[-1]
    return max(
        targets, key=lambda target: (round(float(earned[target][training].sum()), 6), target)
    )


def _rank_words(target: float) -> str:
    return {0.0: "shortest", 1.0: "longest"}.get(
        target, f"rank {target:.2f} (0 shortest, 1 longest)"
    )


def position(table: Table, *, ordered: bool) -> Scored:
    """Return the rule that picks the position in the source that wins most on the other half."""
    title, description = "Position in the file", "the position that wins most on the other half"
    if not ordered:
        reason = "the format keeps the right response in a column of its own, so it has no order"
        return Scored("position", title, description, None, reason)
    places = sorted(set(table.position.tolist()))
    scored = {place: -np.abs(table.position - float(place)) for place in places}
    earned = {place: table.credit(scores) for place, scores in scored.items()}
    scores = np.zeros(len(table.owner))
    learned = {}
    for half in (0, 1):
        training = table.half != half
        place = max(places, key=lambda p: (round(float(earned[p][training].sum()), 6), -p))
        tested = (table.half == half)[table.owner]
        scores[tested] = scored[place][tested]
        learned[f"half {half + 1}"] = f"position {place + 1}"
    return Scored("position", title, description, scores, learned=learned, parts=table.half)
