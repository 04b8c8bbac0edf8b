"""Coverage of the 95 % intervals and size of the tests, by simulation (decision 0002).

    python benchmarks/interval_coverage.py --simulations 1000

Independent items, and clusters of four items whose answers are correlated (beta-binomial,
intraclass correlation 0.5). Prints, as Markdown tables, how often the interval holds the truth:
for the plain percentile bootstrap and for the interval that Habitus reports.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import sparse

from habitus.metrics.bootstrap import (
    Clusters,
    cluster_sums,
    difference_interval,
    estimate,
    merge_clusters,
    resample,
)
from habitus.metrics.statistics import Floats, Ints, chance_p, sign_flip_p

ONE = sparse.csr_array(np.ones((1, 1)))
RESAMPLES = 1000
CORRELATION = 0.5


def _shares(p: float, clusters: int, size: int, random: np.random.Generator) -> Floats:
    """Draw each cluster's own probability."""
    if size == 1:
        return np.full(clusters, p)
    spread = 1 / CORRELATION - 1
    return random.beta(p * spread, (1 - p) * spread, clusters)


def _clusters(values: Floats, cluster: Ints) -> Clusters:
    """Merge items that all are in one cell."""
    return merge_clusters(cluster, np.zeros(len(values), dtype=np.int64), values, 1)


def _holds(bounds: tuple[float, float], truth: float) -> bool:
    return bounds[0] - 1e-12 <= truth <= bounds[1] + 1e-12


def _percentile(clusters: Clusters, seed: int) -> tuple[float, float]:
    """Return the plain percentile interval."""
    replicates = resample(clusters, ONE, seed, "percentile", RESAMPLES)
    low, high = np.quantile(replicates[:, 0], [0.025, 0.975])
    return float(low), float(high)


def accuracy_row(p: float, n: int, size: int, simulations: int) -> str:
    """Return one row of the table of accuracies."""
    random = np.random.default_rng([n, size, round(100 * p)])
    cluster = np.arange(n) // size
    plain = reported = 0
    widths = []
    for seed in range(simulations):
        shares = _shares(p, n // size, size, random)
        values = (random.random(n) < shares[cluster]).astype(np.float64)
        clusters = _clusters(values, cluster)
        [found] = estimate(clusters, ONE, seed, "reported", RESAMPLES)
        assert found.low is not None
        assert found.high is not None
        plain += _holds(_percentile(clusters, seed), p)
        reported += _holds((found.low, found.high), p)
        widths.append(found.high - found.low)
    cells = [n, size, p, f"{plain / simulations:.3f}", f"{reported / simulations:.3f}"]
    return f"| {' | '.join(map(str, [*cells, f'{np.mean(widths):.3f}']))} |"


def difference_row(p: float, q: float, n: int, size: int, simulations: int) -> str:
    """Return one row of the table of paired differences between accuracies p and q."""
    random = np.random.default_rng([n, size, round(100 * p), round(100 * q)])
    cluster = np.arange(n) // size
    plain = reported = rejected = 0
    widths = []
    for seed in range(simulations):
        # Half of the items are easy or hard for both, so that the two scorers' errors agree.
        draws = random.random(n)
        a = draws < _shares(p, n // size, size, random)[cluster]
        other = np.where(random.random(n) < 0.5, draws, random.random(n))
        b = other < _shares(q, n // size, size, random)[cluster]
        clusters = _clusters(a.astype(np.float64) - b, cluster)
        bounds = difference_interval(clusters, seed, "reported", RESAMPLES)
        assert bounds is not None
        plain += _holds(_percentile(clusters, seed), p - q)
        reported += _holds(bounds, p - q)
        widths.append(bounds[1] - bounds[0])
        sums, _ = cluster_sums(clusters)
        value = sign_flip_p(sums, clusters.multiplicity, seed, "p")
        rejected += value is not None and value <= 0.05
    cells = [n, size, p, q, f"{plain / simulations:.3f}", f"{reported / simulations:.3f}"]
    cells += [f"{np.mean(widths):.3f}", f"{rejected / simulations:.3f}"]
    return f"| {' | '.join(map(str, cells))} |"


def chance_row(n: int, size: int, mixed: bool, alike: bool, simulations: int) -> str:
    """Return one row of the table of the test against chance, under random picking."""
    random = np.random.default_rng([n, size, mixed, alike])
    cluster = np.arange(n) // size
    chances = np.where(cluster % 2, 0.5, 0.25) if mixed else np.full(n, 0.25)
    kinds, counts = np.unique(chances[::size], return_counts=True)
    rejected = 0
    for seed in range(simulations):
        draws = random.random(n // size)[cluster] if alike else random.random(n)
        total = float((draws < chances).sum())
        value = chance_p(total, np.full(len(kinds), size), kinds, counts, seed, "p")
        rejected += value is not None and value <= 0.05
    cells = [n, size, "0.25 and 0.5" if mixed else "0.25", "alike" if alike else "apart"]
    return f"| {' | '.join(map(str, [*cells, f'{rejected / simulations:.3f}']))} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations
    shapes = [(n, size) for size in (1, 4) for n in (4, 10, 40, 400) if n % size == 0]
    shapes.insert(-1, (160, 4))
    print("\n| n | cluster size | accuracy | percentile | reported | mean width |")
    print("|---|---|---|---|---|---|")
    for n, size in shapes:
        for p in (0.25, 0.5, 0.9):
            print(accuracy_row(p, n, size, simulations), flush=True)
    print("\n| n | cluster size | a | b | percentile | reported | mean width | p <= 0.05 |")
    print("|---|---|---|---|---|---|---|---|")
    for n, size in shapes:
        for p, q in ((0.5, 0.5), (0.9, 0.9), (0.75, 0.5)):
            print(difference_row(p, q, n, size, simulations), flush=True)
    print("\n| n | cluster size | chance | picks within a cluster | p <= 0.05 |")
    print("|---|---|---|---|---|")
    for n, size in shapes:
        for mixed in (False, True):
            for alike in (True, False) if size > 1 else (False,):
                print(chance_row(n, size, mixed, alike, simulations), flush=True)


if __name__ == "__main__":
    main()
