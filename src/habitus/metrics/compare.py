"""Paired comparisons: run against run, and a run against picking at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from habitus.errors import InputError
from habitus.metrics.bootstrap import (
    RESAMPLES,
    Estimate,
    cluster_sums,
    difference_interval,
    merge_clusters,
)
from habitus.metrics.credit import codes, credits
from habitus.metrics.statistics import (
    Z80,
    Z95,
    Floats,
    Ints,
    agresti_min_moments,
    chance_p,
    holm,
    sign_flip_p,
)
from habitus.types import Comparison


@dataclass(frozen=True)
class LabelledRun:
    """A run to compare."""

    label: str
    """Names it in the table; different for each run."""
    items: pl.DataFrame
    """Table of `read_items`."""
    judgements: pl.DataFrame
    """Table of `read_judgements`."""


def compare(
    runs: Sequence[LabelledRun], *, seed: int, resamples: int = RESAMPLES
) -> tuple[Comparison, ...]:
    """Compare each run with each later one on the items that both judged.

    An item counts only when both runs saw the same prompt, candidates and best ids under its id.
    P-values are of the sign-flip test over clusters, corrected after Holm over all pairs.

    Args:
        runs: The runs.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.

    Returns:
        One comparison per pair; `n_excluded` counts the items that only one run has or judged, or
        that differ in content.

    Raises:
        InputError: When two runs have one label, or a run's files do not belong together.
    """
    labels = [run.label for run in runs]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two runs are labelled {label!r}; give each its own label")
    tables = [
        run.items.select("item_id", "content", "parent").with_columns(
            credits(run.items, run.judgements)["credit"]
        )
        for run in runs
    ]
    rows = []
    for (a, left), (b, right) in itertools.combinations(zip(labels, tables, strict=True), 2):
        shared = left.join(right, on="item_id", suffix="_b", maintain_order="left")
        both = shared.filter(pl.col("content") == pl.col("content_b")).drop_nulls(
            ["credit", "credit_b"]
        )
        everything = left.height + right.height - shared.height
        difference = (both["credit"] - both["credit_b"]).to_numpy()
        cluster = codes(both["parent"])
        rows.append(paired(a, b, difference, cluster, everything - both.height, seed, resamples))
    return with_holm(rows)


def paired(
    a: str,
    b: str,
    difference: Floats,
    cluster: Ints,
    n_excluded: int,
    seed: int,
    resamples: int = RESAMPLES,
    *,
    share: bool = True,
) -> Comparison:
    """Compare two scorers by their paired differences, before Holm's correction.

    Args:
        a: Label of the first.
        b: Label of the second.
        difference: Credit of a minus credit of b for each shared item.
        cluster: The cluster of each shared item.
        n_excluded: Items left out.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
        share: Whether these are differences of shares, within -1 to 1.

    Returns:
        The comparison; `detectable` comes from the observed spread of the paired differences. What
        is no share has none, and no interval where too few clusters differ.
    """
    n = len(difference)
    if n == 0:
        return _nothing(a, b, n_excluded)
    clusters = merge_clusters(cluster, np.zeros(n, dtype=np.int64), difference, 1)
    sums, _ = cluster_sums(clusters)
    purpose = f"compare/{a}/{b}"
    bounds = difference_interval(clusters, seed, f"{purpose}/interval", resamples, share=share)
    low, high = bounds or (None, None)
    _, error = agresti_min_moments(sums, clusters.multiplicity, n)
    return Comparison(
        a=a,
        b=b,
        difference=float(clusters.multiplicity @ sums) / n,
        ci_low=low,
        ci_high=high,
        p=sign_flip_p(sums, clusters.multiplicity, seed, f"{purpose}/p"),
        p_holm=None,
        n=n,
        n_excluded=n_excluded,
        detectable=(Z95 + Z80) * error if share else None,
    )


def against_chance(
    a: str,
    b: str,
    credit: Floats,
    chance: Floats,
    cluster: Ints,
    accuracy: Estimate,
    n_excluded: int,
    seed: int,
) -> Comparison:
    """Compare a scorer with picking at random, before Holm's correction.

    Args:
        a: Label of the scorer.
        b: Label of picking at random.
        credit: Credit of each judged item.
        chance: Probability that a random pick is right, for each.
        cluster: The cluster of each.
        accuracy: The mean credit with its interval, which is shifted by the mean chance.
        n_excluded: Items left out.
        seed: Seed of the draws.

    Returns:
        The comparison; the p-value is that of `statistics.chance_p`, and `detectable` comes from
        the spread of random picks, one a cluster.
    """
    n = len(credit)
    if n == 0 or accuracy.low is None or accuracy.high is None:
        return _nothing(a, b, n_excluded)
    chances, chance_code = np.unique(chance, return_inverse=True)
    pick, size = np.unique(cluster * len(chances) + chance_code, return_counts=True)
    kind, count = np.unique(size * len(chances) + pick % len(chances), return_counts=True)
    # Summing values times counts keeps the order of the items out of the last digit.
    mean = float(chances @ np.bincount(chance_code)) / n
    spread = float((chances * (1 - chances)) @ np.bincount(chance_code)) / n
    values, value_code = np.unique(credit, return_inverse=True)
    total = float(values @ np.bincount(value_code))
    p = chance_p(
        total,
        kind // len(chances),
        chances[kind % len(chances)],
        count.astype(np.int64),
        seed,
        f"compare/{a}/{b}/p",
    )
    return Comparison(
        a=a,
        b=b,
        difference=total / n - mean,
        ci_low=accuracy.low - mean,
        ci_high=accuracy.high - mean,
        p=p,
        p_holm=None,
        n=n,
        n_excluded=n_excluded,
        detectable=(Z95 + Z80) * math.sqrt(spread / accuracy.clusters),
    )


def with_holm(rows: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the comparisons of one table with Holm's correction over all of them."""
    corrected = holm([row.p for row in rows])
    return tuple(
        row.model_copy(update={"p_holm": p}) for row, p in zip(rows, corrected, strict=True)
    )


def _nothing(a: str, b: str, n_excluded: int) -> Comparison:
    """Return a comparison of which nothing can be said."""
    return Comparison(
        a=a,
        b=b,
        difference=None,
        ci_low=None,
        ci_high=None,
        p=None,
        p_holm=None,
        n=0,
        n_excluded=n_excluded,
        detectable=None,
    )
