"""INCLUDE (Romanou et al. 2025): questions of local exams in 44 languages, four options."""

from __future__ import annotations

from collections.abc import Iterator

from habitus import taxonomy
from habitus.data.countries import country
from habitus.data.fields import REPEATED, label, problem, require, text
from habitus.data.source import Place, Row, Source
from habitus.types import Candidate, Item, Message, digest

COLUMNS = ("language", "country", "question", "answer", "regional_feature")
"""Columns that a row must have, beside the options."""

OPTIONS = ("option_a", "option_b", "option_c", "option_d")
"""The options' columns; earlier releases have one column `choices` in their place."""

NO_ANSWER = "the answer names no option"
"""Why a row is left out."""

_TAGS = {"dutch-flemish": "nl", "north macedonian": "mk", "malay": "ms", "serbian": "sr"}


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read INCLUDE: the candidates are the four options; `answer` counts from 0.

    The domain is the source's own, such as "Arts & Humanities". Whether a question is about the
    region stands in `source`: "include:region explicit", "include:culture", "include:agnostic".

    Raises:
        InputError: When a column is missing, a language is unknown, or the answer is no number.
    """
    seen: set[str] = set()
    for row in source.rows():
        require(row, COLUMNS, "include")
        options, tag, question = _options(row), _language(row), text(row, "question")
        answer = text(row, "answer")
        if not answer.isdecimal():
            raise row.error(f"column answer must be a number from 0 to 3, found {answer[:40]!r}")
        id = digest([tag, question, options])
        best = int(answer)
        reason = problem(options, ()) or (NO_ANSWER if best >= len(options) else None)
        if id in seen:
            reason = REPEATED
        seen.add(id)
        if reason:
            source.skipped[reason] += 1
        else:
            yield _item(row, id, tag, question, options, best), row.place


def _item(row: Row, id: str, tag: str, question: str, options: list[str], best: int) -> Item:
    place, part = label(row, "country"), label(row, "regional_feature")
    return Item(
        id=id,
        prompt=(Message(role="user", content=question),),
        candidates=tuple(
            Candidate(id=letter, text=option)
            for letter, option in zip("abcdefgh", options, strict=False)
        ),
        best_ids=("abcdefgh"[best],),
        country=country(place)[0] if place else None,
        language=tag,
        domain=label(row, "domain"),
        source=f"include:{part}" if part else "include",
        licence="Apache-2.0",
        author="human",
    )


def _options(row: Row) -> list[str]:
    choices = row.values.get("choices")
    if choices is None:
        require(row, OPTIONS, "include")
        choices = [str(row.values[column] or "") for column in OPTIONS]
    if (
        not isinstance(choices, list)
        or any(not isinstance(choice, str) for choice in choices)
        or not 2 <= len(choices) <= 8
    ):
        raise row.error("column choices must be an array of two to eight texts")
    return [choice.strip() for choice in choices]


def _language(row: Row) -> str:
    name = text(row, "language")
    known = taxonomy.resolve(_TAGS.get(name.lower(), name))
    if known is None:
        raise row.error(f"language {name[:40]!r} is unknown; give its English name")
    return known.tag
