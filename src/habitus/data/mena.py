"""MENA Values (QCRI 2025): answer shares of Arab and neighbouring countries' surveys.

The workbook has a column for each question and a row for each country, below rows that describe
the question. A cell is "(mean, {answer's number: percent})".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from habitus.data.source import Place, Source
from habitus.data.survey import survey_item
from habitus.data.xlsx import read_sheet
from habitus.errors import InputError
from habitus.types import Item

QUESTION, SURVEY, LOW, HIGH = "Full Question", "Source", "Min", "MAX"
"""Names, in the first column, of the rows that are read."""

ABOUT = (SURVEY, "Sub Question", LOW, HIGH, "Scale", "Category", "Sub Category", QUESTION)
"""The rows that describe a question; every other row is a country."""

NO_DATA = "a country that was not asked"
"""Why a cell is left out."""

NO_LABELS = "the question does not say what its numbers stand for"
"""Why a question is left out: a bare number is no answer."""

_SURVEYS = {
    "WVS 7": "World Values Survey, wave 7",
    "The 2022 Arab Opinion Index": "Arab Center for Research and Policy Studies, "
    "Arab Opinion Index 2022",
}
_SHARES = re.compile(r"\{.*\}", re.DOTALL)
_LABEL = re.compile(r"(?:^|(?<=[\s,;.?]))(\d{1,2})\s*:\s*")
_SCALE = re.compile(r"'(\d{1,2})' (?:being|meaning|for) '([^']+)'")
_SCALE_START = re.compile(
    r"[,.]?\s*(Please (indicate|use)[^.?]*,\s*)?with '\d{1,2}' (being|meaning|for) ", re.IGNORECASE
)


def workbook(path: Path) -> Path | None:
    """Return the workbook that a path names or holds; None when there is not exactly one."""
    if path.is_dir():
        found = sorted(path.glob("*.xlsx"))
        return found[0] if len(found) == 1 else None
    return path if path.suffix.lower() == ".xlsx" and path.is_file() else None


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read the workbook: one item for each question and country, as in GlobalOpinionQA.

    Left out, and counted: questions that do not say what all of their numbers stand for (most of
    the World Values Survey's, whose scales are labelled at the ends), countries that were not
    asked, and what `habitus.data.survey` leaves out.

    Raises:
        InputError: When the file is no workbook, or lacks a row that describes the questions.
    """
    file = workbook(source.path)
    if file is None:
        raise InputError(f"{source.path}: no Excel workbook here; give the .xlsx file")
    table = {row.pop(0, "").strip(): (number, row) for number, row in _rows(file)}
    missing = [name for name in (QUESTION, SURVEY, LOW, HIGH) if name not in table]
    if missing:
        raise InputError(
            f"{file}: the first column has no row {missing[0]!r}; expected the rows of MENA "
            f"Values: {', '.join(ABOUT)}, and countries"
        )
    countries = {name: found for name, found in table.items() if name and name not in ABOUT}
    seen: set[str] = set()
    for column, question in table[QUESTION][1].items():
        low, high, survey = (table[name][1].get(column, "") for name in (LOW, HIGH, SURVEY))
        asked, labels = _labels(question, low, high)
        if not labels:
            source.skipped[NO_LABELS] += 1
            continue
        for name, (number, cells) in countries.items():
            shares = _shares(cells.get(column, ""))
            if not shares:
                source.skipped[NO_DATA] += 1
                continue
            item = survey_item(
                source,
                seen,
                label=name,
                question=asked,
                options=list(labels.values()),
                # A number that nobody gave is not published; one without a label breaks the sum.
                shares=[shares.get(key, 0.0) for key in labels],
                publisher=_SURVEYS.get(survey.strip(), survey.strip() or "unknown"),
                source="mena-values",
                licence="MIT",
            )
            if item is not None:
                yield item, Place(file, number, "row")


def _rows(file: Path) -> Iterator[tuple[int, dict[int, str]]]:
    return enumerate(read_sheet(file), start=1)


def _labels(question: str, low: str, high: str) -> tuple[str, dict[int, str]]:
    """Split a question into what was asked and what each of its numbers stands for.

    Returns:
        The question, and number to label; no labels when one of low..high has none.
    """
    text = " ".join(question.split())
    parts = _LABEL.split(text)
    if len(parts) > 2:
        asked = parts[0]
        labels = {
            int(number): label.strip(" ,;.")
            for number, label in zip(parts[1::2], parts[2::2], strict=True)
        }
    else:
        labels = {int(number): label.strip() for number, label in _SCALE.findall(text)}
        start = _SCALE_START.search(text)
        asked = text[: start.start()] if start else text
    try:
        expected = set(range(int(float(low)), int(float(high)) + 1))
    except ValueError:
        expected = set(labels)
    asked = asked.strip(" ,")
    if asked[-1:] not in ("?", ".", ":", "…"):
        asked += "."
    return asked, labels if expected <= labels.keys() and all(labels.values()) else {}


def _shares(cell: str) -> dict[int, float]:
    """Read a cell, "(1.07, {'1': '93.93%', '2': '6.07%'})"; empty when it holds no shares."""
    found = _SHARES.search(cell)
    try:
        published = ast.literal_eval(found[0]) if found else {}
        return {
            int(float(key)): float(str(share).rstrip("%")) / 100 for key, share in published.items()
        }
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        return {}
