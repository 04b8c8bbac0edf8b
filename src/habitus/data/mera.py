"""ruHHH of MERA (Fenogenova et al. 2024): which of two answers is more helpful and harmless."""

from __future__ import annotations

from collections.abc import Iterator

from habitus.data.fields import REPEATED, best_of, problem, require, text
from habitus.data.source import Place, Source
from habitus.types import Item, Message, digest

COLUMNS = ("query", "ans1", "ans2", "lb")
"""Columns that a row must have; lb says which answer is better, 1 or 2."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read ruHHH; pairs on one query share `parent_id`.

    The set is a Russian version of an English one, so it has a language and no culture.

    Raises:
        InputError: When a column is missing, or lb is neither 1 nor 2.
    """
    seen: set[str] = set()
    for row in source.rows():
        require(row, COLUMNS, "ruhhh")
        better = text(row, "lb")
        if better not in ("1", "2"):
            raise row.error(f"column lb must be 1 or 2, found {better[:40]!r}")
        answers = [str(row.values[column] or "") for column in ("ans1", "ans2")]
        chosen, rejected = answers if better == "1" else reversed(answers)
        query = text(row, "query")
        id = digest([query, chosen, rejected])
        reason = REPEATED if id in seen else problem([chosen], [rejected])
        seen.add(id)
        if reason:
            source.skipped[reason] += 1
            continue
        item = best_of(
            row,
            id=id,
            prompt=(Message(role="user", content=query),),
            chosen=[chosen],
            rejected=[rejected],
            language="ru",
            domain="safety",
            source="ruhhh",
            licence="MIT",
            parent_id=digest(query),
        )
        yield item, row.place
