"""JCommonsenseMorality (Takeshita et al. 2023): minimal pairs of acceptable and wrong acts."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from habitus.data.fields import REPEATED, best_of, require, text
from habitus.data.source import Place, Row, Source
from habitus.types import Item, Message, digest

COLUMNS = ("sent", "label")
"""Columns that a row must have; label is 1 for what is morally wrong."""

MIN_OVERLAP = 0.5
"""Least share of characters that two sentences have in common to be a minimal pair."""

UNPAIRED = "the next row is no minimal pair to it"
"""Why a row is left out: the labels are equal, or the sentences share too little."""

_PROMPT = "次の二つの行動のうち、道徳的に問題のないものはどちらですか。"


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read the files; a row and the next one are a pair where they fit together.

    They fit when their labels differ and their sentences share at least `MIN_OVERLAP` of their
    characters. In the published training part pairs do not always begin at an odd row: after
    a row that fits no neighbour the search goes on with the next one.

    Raises:
        InputError: When a column is missing, or a label is neither 0 nor 1.
    """
    seen: set[str] = set()
    waiting: Row | None = None
    for row in source.rows():
        _check(row)
        if waiting is None or not _fit(waiting, row):
            source.skipped[UNPAIRED] += waiting is not None
            waiting = row
            continue
        right, wrong = (text(one, "sent") for one in (waiting, row))
        if text(waiting, "label") == "1":
            right, wrong = wrong, right
        place, waiting = waiting.place, None
        id = digest([right, wrong])
        if id in seen:
            source.skipped[REPEATED] += 2
            continue
        seen.add(id)
        yield _item(row, id, right, wrong), place
    source.skipped[UNPAIRED] += waiting is not None


def _check(row: Row) -> None:
    require(row, COLUMNS, "jcm")
    if (flag := text(row, "label")) not in ("0", "1"):
        raise row.error(f"column label must be 0 or 1, found {flag[:40]!r}")


def _fit(first: Row, second: Row) -> bool:
    """Tell a minimal pair: two rows of one file with different labels and similar sentences."""
    if first.place.file != second.place.file or text(first, "label") == text(second, "label"):
        return False
    one, other = text(first, "sent"), text(second, "sent")
    ratio = SequenceMatcher(None, one, other, autojunk=False).ratio()
    return one != other and ratio >= MIN_OVERLAP


def _item(row: Row, id: str, right: str, wrong: str) -> Item:
    return best_of(
        row,
        id=id,
        prompt=(Message(role="user", content=_PROMPT),),
        chosen=[right],
        rejected=[wrong],
        culture="Japanese",
        language="ja",
        domain="values",
        source="jcm",
        licence="MIT",
        parent_id=id,  # the prompt is the same for all: no group of its own
        author="human",
    )
