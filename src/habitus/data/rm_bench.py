"""RM-Bench (Liu et al., ICLR 2025): three styles of a right and of a wrong response."""

from __future__ import annotations

from collections.abc import Iterator

from habitus.data.fields import best_of, identifier, label, language, prompt, require, texts
from habitus.data.source import Place, Source
from habitus.types import Item

COLUMNS = ("id", "prompt", "chosen", "rejected", "domain")
"""Columns that a row must have."""

STYLES = ("concise", "detailed", "markdown")
"""The styles by position, plainer first."""


def level(chosen: int, rejected: int) -> str:
    """Return RM-Bench's level of a pair of styles.

    Args:
        chosen: Position of the right response's style.
        rejected: Position of the wrong response's style.

    Returns:
        "hard" when the right one is plainer, "normal" when equal, "easy" when it is fancier.
    """
    if chosen < rejected:
        return "hard"
    return "normal" if chosen == rejected else "easy"


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read RM-Bench: each row gives nine two-way items that share the row's id as `parent_id`.

    The level is in the item's source, "rm-bench:hard"; the mean of the nine items of all rows
    is RM-Bench's overall accuracy.

    Raises:
        InputError: When a column is missing, or a side has not three responses.
    """
    for row in source.rows():
        require(row, COLUMNS, "rm-bench")
        chosen, rejected = texts(row, "chosen"), texts(row, "rejected")
        for column, found in (("chosen", chosen), ("rejected", rejected)):
            if len(found) != len(STYLES):
                raise row.error(f"column {column} must have 3 responses, found {len(found)}")
        parent = identifier(row)
        for i, right in enumerate(chosen):
            for j, wrong in enumerate(rejected):
                item = best_of(
                    row,
                    id=f"{parent}:{STYLES[i]}-{STYLES[j]}",
                    prompt=prompt(row),
                    chosen=[right],
                    rejected=[wrong],
                    language=language(row),
                    domain=label(row, "domain"),
                    source=f"rm-bench:{level(i, j)}",
                    parent_id=parent,
                )
                yield item, row.place
