"""The parts that figures are computed on, such as each culture and each domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import sparse

from habitus.metrics.statistics import Ints


@dataclass(frozen=True)
class Groups:
    """Items sorted into cells, and groups made of cells."""

    cell: Ints
    """The cell of each item; shape (items,)."""
    labels: tuple[dict[str, str], ...]
    """What each group is, such as {"culture": "Thai"}; empty for all items."""
    weights: sparse.csr_array
    """1 where a cell belongs to a group; shape (cells, groups)."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return int(self.weights.shape[0])


def make_groups(
    items: pl.DataFrame,
    key_sets: Sequence[Sequence[str]],
    languages: pl.DataFrame | None = None,
) -> Groups:
    """Group items by each of several sets of keys.

    Args:
        items: Table of items.
        key_sets: The keys of each family of groups; an empty set stands for all items. A key is a
            column of `items` or of `languages`.
        languages: Facts to look up by `language`, one row for each.

    Returns:
        Cells are the distinct combinations of the keys that items have. Groups come in the order
        of `key_sets`, within one by value; items without a value for a key are in none of its
        groups.
    """
    keys = {key for key_set in key_sets for key in key_set}
    own = sorted(keys & set(items.columns) | ({"language"} if keys - set(items.columns) else set()))
    if own and items.height:
        distinct = items.select(own).unique().sort(own, nulls_last=True)
        cells = distinct.with_row_index("cell")
        found = items.select(own).join(
            cells, on=own, how="left", nulls_equal=True, maintain_order="left"
        )
        cell = found["cell"].to_numpy().astype(np.int64)
    else:
        cells = pl.DataFrame({"cell": [0]}, schema={"cell": pl.UInt32})
        cells = cells.with_columns(pl.lit(None, pl.String).alias(key) for key in own)
        cell = np.zeros(items.height, dtype=np.int64)
    if languages is not None and "language" in own:
        cells = cells.join(
            languages, on="language", how="left", validate="m:1", maintain_order="left"
        )
    labels: list[dict[str, str]] = []
    rows: list[int] = []
    columns: list[int] = []
    for key_set in key_sets:
        parts = cells.drop_nulls(key_set) if key_set else cells
        grouped = parts.partition_by(key_set, as_dict=True) if key_set else {(): parts}
        for values in sorted(grouped):
            members = grouped[values]["cell"].to_list()
            rows += members
            columns += [len(labels)] * len(members)
            labels.append(dict(zip(key_set, map(str, values), strict=True)))
    ones = np.ones(len(rows))
    shape = (cells.height, len(labels))
    weights = sparse.csr_array(sparse.coo_array((ones, (rows, columns)), shape=shape))
    return Groups(cell, tuple(labels), weights)
