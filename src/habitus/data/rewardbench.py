"""RewardBench, RewardBench 2 and M-RewardBench."""

from __future__ import annotations

from collections.abc import Iterator

from habitus.data.fields import best_of, identifier, label, language, prompt, require, texts
from habitus.data.source import Place, Row, Source
from habitus.types import Item

COLUMNS = ("id", "prompt", "chosen", "rejected", "subset")
"""Columns of RewardBench and RewardBench 2; the others are optional."""

M_COLUMNS = ("id", "prompt", "chosen", "rejected", "source")
"""Columns of M-RewardBench; the others are optional."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read RewardBench: one chosen, one rejected; the domain is the subset.

    Raises:
        InputError: When a column is missing, or there are several responses on a side.
    """
    for row in source.rows():
        require(row, COLUMNS, "rewardbench")
        for column in ("chosen", "rejected"):
            if len(texts(row, column)) > 1:
                raise row.error(
                    f"format rewardbench has one response in {column}; for several use "
                    "--format rewardbench2 or --format generic"
                )
        yield _item(row, "rewardbench", "subset"), row.place


def read_second(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read RewardBench 2: one or more chosen, several rejected; the domain is the subset.

    In the subset Ties all chosen responses are in `best_ids`, so an item is right when any of
    them wins. RewardBench 2's own Ties score also weighs the margins between responses
    and is another number: do not compare the two.

    Raises:
        InputError: When a column is missing.
    """
    for row in source.rows():
        require(row, COLUMNS, "rewardbench2")
        yield _item(row, "rewardbench2", "subset"), row.place


def read_multilingual(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read M-RewardBench: RewardBench's rows in a language, its subset in the column source.

    Raises:
        InputError: When a column is missing.
    """
    for row in source.rows():
        require(row, M_COLUMNS, "m-rewardbench")
        yield _item(row, "m-rewardbench", "source"), row.place


def _item(row: Row, name: str, subset: str) -> Item:
    chosen, rejected = texts(row, "chosen"), texts(row, "rejected")
    return best_of(
        row,
        id=identifier(row),
        prompt=prompt(row),
        chosen=chosen,
        rejected=rejected,
        chosen_models=_model(row, "chosen_model", len(chosen)),
        rejected_models=_model(row, "rejected_model", len(rejected)),
        language=language(row),
        domain=label(row, subset),
        source=name,
    )


def _model(row: Row, column: str, n: int) -> list[str | None]:
    """Return the model of a single response; RewardBench 2's list tells no sides apart."""
    value = row.values.get(column)
    return [value] if n == 1 and isinstance(value, str) else [None] * n
