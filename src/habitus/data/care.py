"""CARE (Guo et al. 2025): responses to questions on culture, rated by people of the culture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from habitus.data.fields import best_of, label, language, rating_of, require, text
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
class Question:
    """A question and the rated responses to it."""

    row: Row
    """The first row about it."""
    language: str | None
    """BCP 47 tag."""
    text: str
    """The question."""
    ratings: dict[str, float] = field(default_factory=dict)
    """Response to its rating, 1 to 10, in the order of the rows."""

    @property
    def id(self) -> str:
        """Digest of language and text."""
        return digest([self.language, self.text])

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The question as a conversation."""
        return (Message(role="user", content=self.text),)

    def facts(self) -> dict[str, Any]:
        """Return culture (where CARE calls it native), language, domain and source."""
        native = _NATIVE.fullmatch(label(self.row, "associated_culture") or "")
        kind = (label(self.row, "culture_type") or "").lower()
        return {
            "culture": native[1] if native else None,
            "language": self.language,
            "domain": DOMAINS.get(kind, kind) or None,
            "source": "care",
        }


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read rated responses: an item for each question; best are those with the highest rating.

    Raises:
        InputError: As `questions`.
    """
    for question in questions(source, REPEATED):
        ratings = question.ratings
        top = max(ratings.values())
        best = [said for said, rating in ratings.items() if rating == top]
        rest = [said for said, rating in ratings.items() if rating < top]
        if not rest:
            source.skipped[EQUAL] += len(best)
            continue
        item = best_of(
            question.row,
            id=question.id,
            prompt=question.prompt,
            chosen=best,
            rejected=rest,
            **question.facts(),
        )
        yield item, question.row.place


def questions(source: Source, repeated: str) -> Iterable[Question]:
    """Gather the rated responses by question.

    Args:
        source: CARE's rated responses.
        repeated: What repeated responses are counted as in `source.skipped`.

    Raises:
        InputError: When a column is missing, a rating is no number from 1 to 10, or the rows are
            CARE's test questions, which have no rated answers.
    """
    found: dict[tuple[str | None, str], Question] = {}
    for row in source.rows():
        if "rating" not in row.values and row.values.keys() >= TEST:
            raise row.error(
                "these are questions without rated answers (CARE's test part): there is nothing "
                "to choose from; give CARE's rated responses"
            )
        require(row, COLUMNS, "care")
        key = (language(row), text(row, "question"))
        question = found.setdefault(key, Question(row, *key))
        said = text(row, "response")
        if said in question.ratings:
            source.skipped[repeated] += 1
        else:
            question.ratings[said] = rating_of(row, "rating", 10)
    return found.values()
