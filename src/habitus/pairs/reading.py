"""Preference pairs as a file: reading them back checked, naming them, and their licence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from habitus.data.cards import UNKNOWN
from habitus.data.cards import non_commercial as licences_non_commercial
from habitus.data.fields import first_problem
from habitus.data.source import Place, Row, Source
from habitus.errors import InputError
from habitus.store import dump_line
from habitus.types import PreferencePair

PAIRS, CARD, CARD_TEXT = "pairs.jsonl", "card.json", "card.md"
"""The files of a pairs folder. The card is written last: a folder without one is unfinished."""


def read_pairs(path: str | Path) -> list[PreferencePair]:
    """Read the pairs of a folder that `habitus pairs` wrote, or of one file, and check them.

    Args:
        path: A folder with `pairs.jsonl`, or a file with one `PreferencePair` a line.

    Returns:
        The pairs, in the order of the file.

    Raises:
        InputError: When there is no such file or it is empty, a line is no pair, an id is
            repeated, or a group stands in two parts or two folds. The message names file and line.
    """
    path = Path(path)
    file = path / PAIRS if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"{path}: no {PAIRS} in this folder; write it with: habitus pairs SOURCE --out FOLDER"
            if path.is_dir()
            else f"no such file or folder of pairs: {path}"
        )
    pairs: list[PreferencePair] = []
    ids: dict[str, Place] = {}
    groups: dict[str, tuple[PreferencePair, Place]] = {}
    for row in Source(file).rows():
        pair = _pair(row)
        first = ids.setdefault(pair.id, row.place)
        if first is not row.place:
            raise row.error(
                f"the id {pair.id[:60]!r} stands in {first.unit} {first.number} already; ids must "
                "be unique"
            )
        _check_group(row, pair, *groups.setdefault(pair.group, (pair, row.place)))
        pairs.append(pair)
    return pairs


def _pair(row: Row) -> PreferencePair:
    try:
        return PreferencePair.model_validate(row.values)
    except ValidationError as error:
        raise row.error(first_problem(error)) from error


def _check_group(row: Row, pair: PreferencePair, first: PreferencePair, place: Place) -> None:
    """Refuse a group that is torn apart: figures on its test pairs would be too good."""
    for name, here, there in (
        ("split", pair.split, first.split),
        ("fold", pair.fold, first.fold),
    ):
        if here != there:
            raise row.error(
                f"the group {pair.group[:60]!r} has {name} {here} here and {there} in {place.unit} "
                f"{place.number}; all pairs of a group must share it"
            )


def pairs_digest(pairs: Iterable[PreferencePair]) -> str:
    """Return 16 hexadecimal digits that name a set of pairs, whatever their order.

    Every field counts, split and fold among them.
    """
    lines = sorted(hashlib.sha256(dump_line(pair)).digest() for pair in pairs)
    return hashlib.sha256(b"".join(lines)).hexdigest()[:16]


def non_commercial(pairs: Sequence[PreferencePair]) -> bool:
    """Tell whether any pair's licence forbids commercial use, so that a model trained on it must.

    A pair without a licence does not count: whether it may be used commercially is not known.
    """
    licences = {pair.licence or UNKNOWN for pair in pairs}
    return licences_non_commercial(licences) == "yes"
