"""One measure of several reward models (RMs), with what its sampling error is computed from.

A measure is a mean of parts: an accuracy has one part, a downstream quality one for each country.
RMs share the items, so all are resampled jointly (`bootstrap`): a cell is one RM in one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import sparse

from habitus.metrics.bootstrap import (
    RESAMPLES,
    Clusters,
    Estimate,
    estimate,
    merge_clusters,
    resample,
)
from habitus.metrics.credit import codes
from habitus.metrics.statistics import Floats, Ints

UNITS_SCHEMA = {
    "model": pl.Int64,
    "part": pl.String,
    "share": pl.Float64,
    "cluster": pl.String,
    "value": pl.Float64,
}
"""Columns of the table that `make_scores` reads: index of the RM; the part and what it counts in
the mean; the cluster that is resampled whole; and the value, null where the RM failed."""


@dataclass(frozen=True)
class Scores:
    """One measure of each RM."""

    name: str
    """Names it in tables."""
    values: Floats
    """The mean, NaN where an RM has none; shape (RMs,)."""
    n: Ints
    """Items or prompts behind it; shape (RMs,)."""
    n_excluded: Ints
    """Items or prompts that the RM failed on; shape (RMs,)."""
    clusters: Clusters | None = None
    """What is resampled; None where only the values are known."""
    weights: sparse.csr_array | None = None
    """What a cell counts in an RM's mean; shape (cells, RMs)."""
    units: str = "items"
    """What it rests on: "items" or "prompts"."""

    def take(self, models: Ints) -> Scores:
        """Return the measure of some of the RMs, in that order."""
        weights = None if self.weights is None else self.weights[:, models]
        return Scores(
            self.name,
            self.values[models],
            self.n[models],
            self.n_excluded[models],
            self.clusters,
            weights,
            self.units,
        )


def make_scores(name: str, table: pl.DataFrame, n_models: int, units: str = "items") -> Scores:
    """Make a measure of the values of single items or prompts.

    Args:
        name: Names it in tables.
        table: Columns of `UNITS_SCHEMA`.
        n_models: Number of RMs.
        units: What a row is: "items" or "prompts".

    Returns:
        The measure; an RM that lacks a whole part has no value.
    """
    failed = table.filter(pl.col("value").is_null())
    kept = table.filter(pl.col("value").is_not_null())
    parts = table.select("part", "share").unique(maintain_order=True).with_row_index("code")
    joined = kept.join(parts.select("part", "code"), on="part", how="left", maintain_order="left")
    model = joined["model"].to_numpy()
    n_parts = max(1, parts.height)
    cell = joined["code"].to_numpy().astype(np.int64) * n_models + model
    n_cells = n_parts * n_models
    clusters = merge_clusters(codes(kept["cluster"]), cell, kept["value"].to_numpy(), n_cells)
    sizes = np.bincount(cell, minlength=n_cells)
    share = np.repeat(parts["share"].to_numpy() if parts.height else np.ones(1), n_models)
    weight = np.divide(share, sizes, out=np.zeros(n_cells), where=sizes > 0)
    owner = np.tile(np.arange(n_models), n_parts)
    shape = (n_cells, n_models)
    weights = sparse.csr_array(sparse.coo_array((weight, (np.arange(n_cells), owner)), shape=shape))
    complete = (sizes.reshape(n_parts, n_models) > 0).all(axis=0)
    sums = clusters.multiplicity @ (clusters.sums @ weights)
    totals = clusters.multiplicity @ (clusters.counts @ weights)
    values = np.divide(sums, totals, out=np.full(n_models, np.nan), where=complete)
    return Scores(
        name,
        values,
        np.bincount(model, minlength=n_models).astype(np.int64),
        np.bincount(failed["model"].to_numpy(), minlength=n_models).astype(np.int64),
        clusters,
        weights,
        units,
    )


def known_scores(name: str, values: Sequence[float | None]) -> Scores:
    """Make a measure of which only the values are known, None where an RM has none."""
    found = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    nothing = np.zeros(len(found), dtype=np.int64)
    return Scores(name, found, nothing, nothing)


def replicates(scores: Scores, seed: int, resamples: int = RESAMPLES) -> Floats:
    """Return the measure in other samples of items or prompts; shape (resamples, RMs).

    All RMs, and all calls of one measure, share the draws. Known values do not vary.
    """
    if scores.clusters is None or scores.weights is None:
        return np.tile(scores.values, (resamples, 1))
    purpose = f"correlate/{scores.name}"
    return resample(scores.clusters, scores.weights, seed, purpose, resamples)


def intervals(scores: Scores, seed: int, resamples: int = RESAMPLES) -> tuple[Estimate, ...]:
    """Return each RM's mean with a 95 % interval over items or prompts (decision 0002)."""
    if scores.clusters is None or scores.weights is None:
        return tuple(
            Estimate(None if np.isnan(value) else float(value), None, None, None, 0.0)
            for value in scores.values
        )
    found = estimate(
        scores.clusters, scores.weights, seed, f"correlate/{scores.name}/interval", resamples
    )
    return tuple(
        Estimate(None, None, None, None, 0.0) if np.isnan(value) else one
        for value, one in zip(scores.values, found, strict=True)
    )


def reliability(scores: Scores) -> float | None:
    """Return which share of the variance between the RMs is not sampling error of the items.

    One less the error variance over the observed variance. Error that all RMs share (a hard sample
    of items) moves no RM against another and does not count. For complete answers to unclustered
    items this is Hoyt's analysis of variance, that is, Cronbach's alpha.

    Returns:
        At most 1; 0 or less where the RMs differ by no more than their errors; None without a
        sample of items, with fewer than two RMs or clusters, or when no RM differs.
    """
    clusters, weights = scores.clusters, scores.weights
    if clusters is None or weights is None or clusters.n < 2 or len(scores.values) < 2:
        return None
    observed = float(np.var(scores.values, ddof=1))
    if np.isnan(observed) or observed <= 1e-18:
        return None
    sums = np.asarray((clusters.sums @ weights).todense())
    sizes = np.asarray((clusters.counts @ weights).todense())
    pull = (sums - scores.values * sizes) / (clusters.multiplicity @ sizes)
    own = pull - pull.mean(axis=1, keepdims=True)
    squares = clusters.multiplicity @ (own**2).sum(axis=1)
    error = float(squares) / (len(scores.values) - 1) * clusters.n / (clusters.n - 1)
    return 1 - error / observed
