"""GlobalOpinionQA (Durmus et al. 2023): survey questions with answer shares by country."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from habitus.data.fields import label, literal, require
from habitus.data.source import Place, Row, Source, kind_of
from habitus.data.survey import survey_item
from habitus.types import Item

HUB = ("question", "selections", "options")
"""Columns on the Hub: `selections` is country to shares, an object or a Python dict as text."""

BY_COUNTRY = ("country", "question", "options", "distribution")
"""Columns of a copy with one row for each question and country."""

BY_ATTRIBUTE = ("attribute", "question", "options", "gold_distribution")
"""Columns of another such copy, whose question is a prompt: "Question: ... Options: ... Answer:"."""

LICENCE = "CC-BY-NC-SA-4.0"

_SURVEYS = {
    "GAS": "Pew Research Center, Global Attitudes Survey",
    "WVS": "World Values Survey",
}
_EITHER = "Pew Research Center (Global Attitudes Survey) or World Values Survey"
_AS_PROMPT = re.compile(r"\s*Question:\s*(.*?)\s*\nOptions:.*\nAnswer:\s*", re.DOTALL)
_DICT = re.compile(r"\{.*\}", re.DOTALL)


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read GlobalOpinionQA in any of its published forms, also mixed in one folder.

    One item for each (question, country): the candidates are the options, best is the one with
    the largest share. All countries' items of a question share `parent_id`.

    Left out, and counted (see `habitus.data.survey`): rows whose shares do not fit the options,
    questions whose first answer leads the second by less than `survey.MIN_MARGIN` of all asked,
    those that most people did not answer, repeated ones. "Don't know" and the like are no
    candidates.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    seen: set[str] = set()
    for row in source.rows():
        question, surveys = surveys_of(row)
        options = [option_text(row, option) for option in list_of(row, "options")]
        for name, shares in surveys.items():
            item = survey_item(
                source,
                seen,
                label=name,
                question=question,
                options=options,
                shares=shares_of(row, shares),
                publisher=_SURVEYS.get(label(row, "source") or "", _EITHER),
                source="globalopinionqa",
                licence=LICENCE,
            )
            if item is not None:
                yield item, row.place


def surveys_of(row: Row) -> tuple[str, dict[str, Any]]:
    """Return a row's question, and the shares by country."""
    if "selections" in row.values:
        require(row, HUB, "globalopinionqa")
        selections = literal(row, "selections", _DICT)
        if not isinstance(selections, dict):
            raise row.error(
                "column selections must be an object of country to shares, found "
                f"{kind_of(selections)}"
            )
        # Parquet gives every row all countries; those that were not asked are null.
        surveys = {str(name): shares for name, shares in selections.items() if shares is not None}
    else:
        by_attribute = "attribute" in row.values
        require(row, BY_ATTRIBUTE if by_attribute else BY_COUNTRY, "globalopinionqa")
        name = label(row, "attribute" if by_attribute else "country")
        if name is None:
            raise row.error("the country is empty")
        shares = literal(row, "gold_distribution" if by_attribute else "distribution")
        surveys = {name: shares}
    question = label(row, "question")
    if question is None:
        raise row.error("column question is empty")
    found = _AS_PROMPT.fullmatch(question)
    return found[1] if found else question, surveys


def list_of(row: Row, column: str) -> list[Any]:
    """Return a column that must hold a list, also one written as Python text.

    Raises:
        InputError: When it holds something else.
    """
    value = literal(row, column)
    if not isinstance(value, list):
        raise row.error(f"column {column} must be an array, found {kind_of(value)}")
    return value


def shares_of(row: Row, value: Any) -> list[float]:
    """Return a country's answer shares as numbers.

    Raises:
        InputError: When they are no list of numbers.
    """
    if not isinstance(value, list) or any(
        isinstance(share, bool) or not isinstance(share, int | float) for share in value
    ):
        raise row.error("the shares must be an array of numbers from 0 to 1")
    return [float(share) for share in value]


def option_text(row: Row, option: Any) -> str:
    """Return an option as text; points of a scale are published as 1.0, 2.0, ..."""
    if isinstance(option, float) and option.is_integer():
        return str(int(option))
    if isinstance(option, bool) or not isinstance(option, str | int | float):
        raise row.error(f"an option must be text, found {kind_of(option)}")
    return str(option)
