"""The native format: one `Item` a row, unknown keys refused."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from habitus.data.fields import check_texts, first_problem, require
from habitus.data.source import Place, Source
from habitus.types import Item


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read rows whose columns are the fields of `habitus.types.Item`.

    Raises:
        InputError: When a row is not an item: a key is unknown or missing, or a value is wrong.
    """
    for row in source.rows():
        require(row, ("id", "prompt", "candidates", "best_ids"), "native")
        try:
            item = Item.model_validate(row.values)
        except ValidationError as error:
            raise row.error(first_problem(error)) from error
        best = [one.text for one in item.candidates if one.id in item.best_ids]
        others = [one.text for one in item.candidates if one.id not in item.best_ids]
        check_texts(row, best, others)
        yield item, row.place
