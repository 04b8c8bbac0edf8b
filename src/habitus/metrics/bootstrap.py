"""Clustered bootstrap of many groups' means in one joint resampling.

Items with one parent form a cluster, and clusters are resampled whole. Credits take few values,
so most clusters look alike: each is described by its signature, the list of (cell, value, count)
that it holds, and equal signatures are merged. Resampling clusters is then one multinomial draw
over signatures, which has exactly the same distribution and a cost that does not grow with the
number of items. Every group is a weighted set of cells, so that all groups share the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from habitus.metrics.statistics import Floats, Ints, agresti_min, generator, wilson

MIN_CLUSTERS = 30
"""With fewer (effective) clusters the bootstrap's percentiles are too narrow (decision 0002)."""

MIN_EVENTS = 10
"""Likewise with fewer clusters' worth of right or of wrong answers (decision 0002)."""

RESAMPLES = 2000
"""Resamples by default."""

_CHUNK_ELEMENTS = 4_000_000  # numbers held at a time: 32 MB
_MULTINOMIAL_COST = 10  # one binomial draw takes as long as about so many drawn indices


@dataclass(frozen=True)
class Clusters:
    """Merged clusters: what the bootstrap resamples."""

    multiplicity: Ints
    """How many clusters have each signature; shape (signatures,)."""
    sums: sparse.csr_array
    """Sum of values by signature and cell; shape (signatures, cells)."""
    counts: sparse.csr_array
    """Number of items by signature and cell; shape (signatures, cells)."""

    @property
    def n(self) -> int:
        """Number of clusters."""
        return int(self.multiplicity.sum())


@dataclass(frozen=True)
class Estimate:
    """A group's mean with its interval."""

    value: float | None
    """The mean, or None when the group is empty."""
    low: float | None
    """Lower bound of the 95 % interval."""
    high: float | None
    """Upper bound of the 95 % interval."""
    interval: Literal["bootstrap", "wilson"] | None
    """How the interval was made."""
    clusters: float
    """Effective number of clusters: (sum of sizes)^2 / sum of squared sizes (Kish)."""


def merge_clusters(cluster: Ints, cell: Ints, value: Floats, n_cells: int) -> Clusters:
    """Describe each cluster by its signature and merge equal ones.

    Args:
        cluster: The cluster of each item, any integers from 0; shape (items,).
        cell: The cell of each item, 0 to n_cells - 1; shape (items,).
        value: The value of each item, such as its credit; shape (items,).
        n_cells: Number of cells.

    Returns:
        The merged clusters, in an order that depends on their content only, so that the order of
        the items changes no later draw.
    """
    values, value_code = np.unique(value, return_inverse=True)
    kinds = max(1, n_cells * len(values))
    # An atom is one (cluster, cell, value), as a single integer so that sorting is fast.
    items = cluster.astype(np.int64) * kinds + cell.astype(np.int64) * len(values) + value_code
    atoms, repeats = np.unique(items, return_counts=True)
    _, starts, lengths = np.unique(atoms // kinds, return_index=True, return_counts=True)
    most = int(repeats.max(initial=0)) + 1
    codes = (atoms % kinds) * most + repeats
    multiplicity, owners, contents = [], [], []
    first = 0
    for length in np.unique(lengths):
        alike = codes[starts[lengths == length][:, None] + np.arange(length)]
        rows, times = _unique_rows(alike)
        multiplicity.append(times)
        owners.append(np.repeat(np.arange(first, first + len(rows)), length))
        contents.append(rows.ravel())
        first += len(rows)
    signature, content = _concatenated(owners), _concatenated(contents)
    kind, number = content // most, content % most
    place = (signature, kind // max(1, len(values)))
    amount = values[kind % max(1, len(values))] * number if len(values) else np.zeros(0)
    shape = (first, n_cells)
    return Clusters(
        _concatenated(multiplicity),
        sparse.csr_array(sparse.coo_array((amount, place), shape=shape)),
        sparse.csr_array(sparse.coo_array((number.astype(np.float64), place), shape=shape)),
    )


def _concatenated(parts: list[Ints]) -> Ints:
    """Concatenate integer arrays, of which there may be none."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _unique_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows, sorted, and how often each occurs."""
    table = table[np.lexsort(table.T[::-1])]
    new = np.ones(len(table), dtype=bool)
    new[1:] = (table[1:] != table[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    return table[starts], np.diff(np.append(starts, len(table)))


def resample(
    clusters: Clusters, weights: sparse.csr_array, seed: int, purpose: str, resamples: int
) -> Floats:
    """Return bootstrap replicates of each group's weighted mean.

    Args:
        clusters: What is resampled, whole clusters with replacement.
        weights: Weight of a cell in a group; shape (cells, groups).
        seed: Seed of the draws.
        purpose: Name of the draws.
        resamples: Number of replicates.

    Returns:
        Means of shape (resamples, groups); NaN where a replicate holds no item of a group.
    """
    random = generator(seed, purpose)
    widest = max(1, *clusters.sums.shape, weights.shape[1])
    rows = max(1, _CHUNK_ELEMENTS // widest)
    result = np.full((resamples, weights.shape[1]), np.nan)
    for start in range(0, resamples, rows):
        stop = min(resamples, start + rows)
        draws = _draw(clusters.multiplicity, stop - start, random)
        sums = (draws @ clusters.sums) @ weights
        sizes = (draws @ clusters.counts) @ weights
        np.divide(sums, sizes, out=result[start:stop], where=sizes > 0)
    return result


def _draw(multiplicity: Ints, rows: int, random: np.random.Generator) -> Floats:
    """Draw how often each signature occurs when the clusters are resampled `rows` times."""
    n, signatures = int(multiplicity.sum()), len(multiplicity)
    if n == 0:
        return np.zeros((rows, signatures))
    if signatures * _MULTINOMIAL_COST <= n:
        return random.multinomial(n, multiplicity / n, size=rows).astype(np.float64)
    # Nearly as many signatures as clusters: drawing clusters one by one is cheaper.
    signature_of = np.repeat(np.arange(signatures, dtype=np.int32), multiplicity)
    draws = np.empty((rows, signatures))
    some = max(1, _CHUNK_ELEMENTS // n)
    for start in range(0, rows, some):
        part = draws[start : start + some]
        picked = signature_of[random.integers(0, n, size=(len(part), n), dtype=np.int32)]
        place = picked + np.arange(len(part))[:, None] * signatures
        counts = np.bincount(place.ravel(), minlength=part.size)
        part[:] = counts.reshape(part.shape)
    return draws


def estimate(
    clusters: Clusters,
    weights: sparse.csr_array,
    seed: int,
    purpose: str,
    resamples: int = RESAMPLES,
) -> tuple[Estimate, ...]:
    """Return each group's mean with a 95 % interval.

    The interval is the percentile interval of the clustered bootstrap. Where that is known to be
    too narrow (few effective clusters, few right or few wrong, no spread at all) it is Wilson's
    interval on the effective number of clusters, as if a cluster's items were one (decision 0002).

    Args:
        clusters: The items' values, 0 to 1.
        weights: Weight of a cell in a group, 1 for a plain mean; shape (cells, groups).
        seed: Seed of the draws.
        purpose: Name of the draws.
        resamples: Number of replicates.
    """
    shares = clusters.counts @ weights
    sizes = np.asarray(clusters.multiplicity @ shares, dtype=np.float64)
    totals = np.asarray(clusters.multiplicity @ (clusters.sums @ weights), dtype=np.float64)
    squares = np.asarray(clusters.multiplicity @ shares.power(2), dtype=np.float64)
    some = sizes > 0
    values = np.divide(totals, sizes, out=np.zeros_like(totals), where=some).clip(0.0, 1.0)
    effective = np.divide(sizes**2, squares, out=np.zeros_like(sizes), where=some)
    rarer = np.minimum(values, 1 - values) * effective
    # The slack keeps 10 of 100 above the limit whatever the last digit of 0.1.
    enough = np.flatnonzero((effective >= MIN_CLUSTERS - 1e-9) & (rarer >= MIN_EVENTS - 1e-9))
    replicates = resample(clusters, weights[:, enough], seed, purpose, resamples)
    bounds = dict(zip(enough.tolist(), _percentiles(replicates), strict=True))
    result = []
    for index, value in enumerate(values.tolist()):
        if not some[index]:
            result.append(Estimate(None, None, None, None, 0.0))
            continue
        low, high = bounds.get(index, (value, value))
        kind: Literal["bootstrap", "wilson"] = "bootstrap"
        if low == high:
            kind = "wilson"
            low, high = wilson(value, float(effective[index]))
        result.append(Estimate(value, low, high, kind, float(effective[index])))
    return tuple(result)


def _percentiles(replicates: Floats) -> list[tuple[float, float]]:
    """Return the 2.5 % and 97.5 % points of each column."""
    if replicates.size == 0:
        return []
    low, high = np.nanquantile(replicates, [0.025, 0.975], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def difference_interval(
    clusters: Clusters,
    seed: int,
    purpose: str,
    resamples: int = RESAMPLES,
    *,
    share: bool = True,
) -> tuple[float, float] | None:
    """Return a 95 % interval of a mean paired difference.

    The percentile interval of the clustered bootstrap; with few clusters, or few in which the two
    scorers differ, `statistics.agresti_min` (decision 0002), which holds for shares only.

    Args:
        clusters: The items' paired differences, all in one cell.
        seed: Seed of the draws.
        purpose: Name of the draws.
        resamples: Number of replicates.
        share: Whether it is a difference of shares, within -1 to 1.

    Returns:
        The bounds; None when there are no clusters, or too few for what is no share.
    """
    sums, sizes = cluster_sums(clusters)
    if clusters.n == 0:
        return None
    differing = int(clusters.multiplicity[np.abs(sums) > 1e-9].sum())
    if clusters.n >= MIN_CLUSTERS and differing >= MIN_EVENTS:
        one = sparse.csr_array(np.ones((1, 1)))
        [(low, high)] = _percentiles(resample(clusters, one, seed, purpose, resamples))
        if low < high or not share:
            return low, high
    numbers = int(sizes @ clusters.multiplicity)
    return agresti_min(sums, clusters.multiplicity, numbers) if share else None


def cluster_sums(clusters: Clusters) -> tuple[Floats, Ints]:
    """Return each signature's sum of values and number of items, over all cells."""
    sums = np.asarray(clusters.sums.sum(axis=1), dtype=np.float64)
    sizes: npt.NDArray[np.float64] = np.asarray(clusters.counts.sum(axis=1))
    return sums, np.rint(sizes).astype(np.int64)
