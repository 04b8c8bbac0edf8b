"""PETCI (Tang 2022): Chinese idioms with a dictionary's and machines' English translations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from habitus.data.answers import same
from habitus.data.fields import best_of, identifier, require, text
from habitus.data.source import Place, Row, Source
from habitus.types import Item, Message, canonical_json

COLUMNS = ("id", "chinese", "gold", "human", "machine")
"""Columns that a row must have."""

N_REJECTED = 3
"""Most rejected translations of an idiom."""

NO_MACHINE = "no machine translation differs from the dictionary's"
"""Why an idiom is left out."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read PETCI: the dictionary's translation against up to three of machines.

    Machines are often right. A machine's translation that may say the same as the dictionary's or
    another person's (see `answers.same`) is no candidate; of the others three are drawn by the
    seed.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    for row in source.rows():
        require(row, COLUMNS, "petci")
        idiom, gold, id = text(row, "chinese"), text(row, "gold"), identifier(row)
        right = [gold, *_strings(row, "human")]
        wrong = sorted(
            (one for one in dict.fromkeys(_strings(row, "machine")) if not _known(one, right)),
            key=lambda one: hashlib.sha256(
                canonical_json([source.seed, id, one]).encode()
            ).digest(),
        )
        if not wrong:
            source.skipped[NO_MACHINE] += 1
            continue
        item = best_of(
            row,
            id=id,
            prompt=(
                Message(
                    role="user", content=f"What does the Chinese idiom “{idiom}” mean in English?"
                ),
            ),
            chosen=[gold],
            rejected=wrong[:N_REJECTED],
            culture="Chinese",
            language="en",
            domain="linguistics",
            source="petci",
            licence="Apache-2.0",
        )
        yield item, row.place


def _known(translation: str, right: list[str]) -> bool:
    return any(same(translation, one) for one in right)


def _strings(row: Row, column: str) -> list[str]:
    values: Any = row.values[column]
    if not isinstance(values, list) or any(not isinstance(value, str) for value in values):
        raise row.error(f"column {column} must be an array of texts")
    return [value.strip() for value in values if value.strip()]
