"""CARE (Guo et al. 2025): responses to questions on culture, rated by people of the culture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from habitus.data.fields import best_of, label, language, require, text
from habitus.data.source import Place, Row, Source
from habitus.types import Item, Message, digest

COLUMNS = ("question", "response", "rating")
"""Columns that a row must have."""

TEST = {"question", "answer", "culture_type"}
"""Columns of CARE's test files, which have a reference answer and no rated responses."""

DOMAINS = {"cultural commonsense": "commonsense"}
"""CARE's culture_type to our domain; the others are kept, in lower case."""

EQUAL = "the responses all have one rating"
REPEATED = "a response is repeated"

_NATIVE = re.compile(r"Native \((.+)\)")


@dataclass
class _Question:
    """The rated responses to one question."""

    row: Row
    ratings: dict[str, float] = field(default_factory=dict)


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read rated responses: an item for each question; best are those with the highest rating.

    Raises:
        InputError: When a column is missing, a rating is no number from 1 to 10, or the rows are
            CARE's test questions, which have no rated answers.
    """
    questions: dict[tuple[str | None, str], _Question] = {}
    for row in source.rows():
        if "rating" not in row.values and row.values.keys() >= TEST:
            raise row.error(
                "these are questions without rated answers (CARE's test part): there is nothing "
                "to choose from; give CARE's rated responses"
            )
        require(row, COLUMNS, "care")
        key = (language(row), text(row, "question"))
        found = questions.setdefault(key, _Question(row))
        said = text(row, "response")
        if said in found.ratings:
            source.skipped[REPEATED] += 1
        else:
            found.ratings[said] = _rating(row)
    for (tag, question), found in questions.items():
        top = max(found.ratings.values())
        best = [said for said, rating in found.ratings.items() if rating == top]
        rest = [said for said, rating in found.ratings.items() if rating < top]
        if not rest:
            source.skipped[EQUAL] += len(best)
        else:
            yield _item(found.row, tag, question, best, rest), found.row.place


def _item(row: Row, tag: str | None, question: str, best: list[str], rest: list[str]) -> Item:
    native = _NATIVE.fullmatch(label(row, "associated_culture") or "")
    kind = (label(row, "culture_type") or "").lower()
    return best_of(
        row,
        id=digest([tag, question]),
        prompt=(Message(role="user", content=question),),
        chosen=best,
        rejected=rest,
        culture=native[1] if native else None,
        language=tag,
        domain=DOMAINS.get(kind, kind) or None,
        source="care",
    )


def _rating(row: Row) -> float:
    value = row.values["rating"]
    try:
        rating = float(value)
    except (TypeError, ValueError):
        rating = 0.0
    if isinstance(value, bool) or not 1 <= rating <= 10:
        raise row.error(f"column rating must be from 1 to 10, found {str(value)[:40]!r}")
    return rating
