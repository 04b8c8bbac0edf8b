"""What each judgement earns."""

from __future__ import annotations

import numpy as np
import polars as pl

from habitus.errors import InputError
from habitus.metrics.statistics import Ints

MISSING = "missing"
"""Stands for the status of an item that has no judgement, because its run is unfinished."""


def credits(items: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Return what each item's judgement earns (papers: CARB A1; ties share).

    A single winner earns 1 when it is right, else 0. Of k winners with the same highest score, h
    of them right, the credit is h / k: what picking one of them at random earns.

    Args:
        items: Table of `read_items`.
        judgements: Table of `read_judgements`.

    Returns:
        One row per item, in the items' order: `item_id`, `status` ("missing" where there is no
        judgement), and `credit`, null where there is no verdict.

    Raises:
        InputError: When a judgement's item or winner is none of the items' (the files do not
            belong together).
    """
    strange = judgements.join(items, on="item_id", how="anti")
    if strange.height:
        raise InputError(
            f"judgement of item {strange['item_id'][0]!r}, which is not among the items; "
            "judgements.jsonl and items.jsonl must be of one run"
        )
    joined = items.select("item_id", "best_ids", "candidate_ids").join(
        judgements.select("item_id", "status", "winner_ids"),
        on="item_id",
        how="left",
        maintain_order="left",
    )
    winners = pl.col("winner_ids").list.n_unique()
    right = pl.col("winner_ids").list.set_intersection("best_ids").list.len()
    known = pl.col("winner_ids").list.set_intersection("candidate_ids").list.len()
    strange = joined.filter(known != winners)
    if strange.height:
        raise InputError(
            f"judgement of item {strange['item_id'][0]!r} has a winner that is none of its "
            "candidates; judgements.jsonl and items.jsonl must be of one run"
        )
    return joined.select(
        "item_id",
        pl.col("status").fill_null(MISSING),
        credit=pl.when(winners > 0).then(right / winners).otherwise(None).cast(pl.Float64),
    )


def codes(column: pl.Series) -> Ints:
    """Number the distinct values of a column, null among them, by first appearance."""
    names = column.alias("name").to_frame()
    distinct = names.unique(maintain_order=True).with_row_index("code")
    joined = names.join(distinct, on="name", how="left", nulls_equal=True, maintain_order="left")
    return joined["code"].to_numpy().astype(np.int64)
