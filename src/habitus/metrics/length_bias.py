"""How much more often than chance a reward model picks the longest response."""

from __future__ import annotations

import polars as pl


def length_bias(
    items: pl.DataFrame, judgements: pl.DataFrame, longest: pl.DataFrame
) -> float | None:
    """Return the share of judged items whose pick is the longest response, less chance.

    Of k winners with the same score, h of them among the longest, the share is h / k; chance is
    the number of longest responses over that of all. 0 means that length does not matter. A
    benchmark whose right responses are longer gives an accurate reward model a bias too: compare
    it on one benchmark only.

    Args:
        items: Table of `read_items`.
        judgements: Table of `read_judgements`.
        longest: Table of `read_longest`.

    Returns:
        In -1 to 1, or None when no item has a verdict.
    """
    winners = pl.col("winner_ids").list
    table = (
        items.select("item_id", "n_candidates")
        .join(longest, on="item_id")
        .join(judgements.select("item_id", "winner_ids"), on="item_id")
        .filter(winners.len() > 0)
    )
    share = winners.set_intersection("longest_ids").list.len() / winners.n_unique()
    chance = pl.col("longest_ids").list.len() / pl.col("n_candidates")
    found = table.select((share - chance).mean()).item()
    return None if found is None else float(found)
