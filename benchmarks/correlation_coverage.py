"""Coverage of the correlation's 95 % intervals and size of its tests, by simulation (decision 0003).

    python benchmarks/correlation_coverage.py --simulations 300

Reward models (RMs) have true accuracies and true qualities of standard deviation 8 points that
correlate by rho; items and prompts have difficulties of their own that all RMs share. Prints, as
Markdown tables, how often the plain percentile interval and the one that Habitus reports hold

- over RMs: the correlation of measured values in the population of RMs,
- over items and prompts: the correlation of these RMs' true values,
- over all: the correlation of true values in the population of RMs,

and how often the tests have p <= 0.05 when rho is 0, or when two benchmarks are equally good.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import polars as pl

from habitus.metrics.correlation import coefficients, linear_fit, permutation_p, steiger_z
from habitus.metrics.correlation_bootstrap import basic, bca, draw_models, without_families
from habitus.metrics.correlation_scores import UNITS_SCHEMA, Scores, make_scores, replicates
from habitus.metrics.statistics import Floats

SPREAD, DIFFICULTY = 0.08, 0.15
"""Standard deviations of true values over RMs, and of difficulties over items."""
RESAMPLES = 500

Grid = tuple[int, float, int, int]
"""RMs, rho, items, prompts."""

GRID: tuple[Grid, ...] = (
    (8, 0.8, 480, 200),
    (12, 0.0, 480, 200),
    (12, 0.5, 480, 200),
    (12, 0.8, 480, 200),
    (12, 0.8, 40, 100),
    (12, 0.95, 480, 400),
    (20, 0.8, 480, 200),
)


def _scores(name: str, true: Floats, items: int, random: np.random.Generator) -> Scores:
    chances = np.clip(true[:, None] + random.normal(0, DIFFICULTY, items), 0, 1)
    right = (random.random(chances.shape) < chances).astype(np.float64)
    models, places = np.indices(chances.shape)
    table = pl.DataFrame(
        {
            "model": models.ravel(),
            "part": "items",
            "share": 1.0,
            "cluster": places.ravel().astype(str),
            "value": right.ravel(),
        },
        schema=UNITS_SCHEMA,
    )
    return make_scores(name, table, len(true))


def _attenuated(rho: float, items: int, prompts: int) -> float:
    """Return the correlation of measured values; chances lie about 0.55 and 0.5."""
    found = rho
    for mean, n in ((0.55, items), (0.5, prompts)):
        noise = (mean * (1 - mean) - DIFFICULTY**2) / n
        found *= math.sqrt(SPREAD**2 / (SPREAD**2 + noise))
    return found


def coverage_row(grid: Grid, simulations: int) -> str:
    """Return one row of the table of intervals."""
    models, rho, items, prompts = grid
    random = np.random.default_rng([models, round(100 * rho), items, prompts])
    families = np.arange(models)
    without = without_families(families)
    hits = np.zeros(6)
    for number in range(simulations):
        first = random.normal(size=models)
        second = rho * first + math.sqrt(1 - rho**2) * random.normal(size=models)
        x = _scores("x", 0.55 + SPREAD * first, items, random)
        y = _scores("y", 0.50 + SPREAD * second, prompts, random)
        weights = draw_models(families, number, "models", RESAMPLES)
        xs, ys = replicates(x, number, RESAMPLES), replicates(y, number, RESAMPLES)
        r = float(coefficients(x.values, y.values)[0, 0])
        left = coefficients(x.values, y.values, without)[:, 0]
        draws = (
            coefficients(x.values, y.values, weights)[:, 0],
            coefficients(xs, ys)[:, 0],
            coefficients(xs, ys, weights)[:, 0],
        )
        reported = bca(draws[0], r, left), basic(draws[1], r), bca(draws[2], r, left)
        truths = (
            _attenuated(rho, items, prompts),
            float(np.corrcoef(first, second)[0, 1]),
            rho,
        )
        for k, (truth, found) in enumerate(zip(truths, reported, strict=True)):
            low, high = np.nanquantile(draws[k], [0.025, 0.975])
            hits[2 * k] += low <= truth <= high
            hits[2 * k + 1] += found is not None and found.low <= truth <= found.high
    shares = [f"{hit / simulations:.3f}" for hit in hits]
    pairs = " | ".join(f"{shares[k]} / {shares[k + 1]}" for k in (0, 2, 4))
    return f"| {models} | {rho} | {items} and {prompts} | {pairs} |"


def size_row(models: int, simulations: int) -> str:
    """Return one row of the table of tests."""
    random = np.random.default_rng(models)
    hits = np.zeros(3)
    for number in range(simulations):
        x, y, shared = random.normal(size=(3, models))
        hits[0] += linear_fit(x, y).p <= 0.05
        hits[1] += (permutation_p(x, y, number, "size")[0] or 0.0) <= 0.05
        first, second = (0.6 * y + 0.4 * shared + 0.6 * random.normal(size=models) for _ in "ab")
        rs = np.corrcoef([first, second, y])
        _, p = steiger_z(float(rs[0, 2]), float(rs[1, 2]), float(rs[0, 1]), models)
        hits[2] += p <= 0.05
    shares = " | ".join(f"{hit / simulations:.3f}" for hit in hits)
    return f"| {models} | {shares} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of correlations.")
    parser.add_argument("--simulations", type=int, default=300)
    simulations = parser.parse_args().simulations
    print("Percentile / reported\n")
    print("| RMs | rho | items and prompts | over RMs | over items and prompts | over all |")
    print("|---|---|---|---|---|---|")
    for grid in GRID:
        print(coverage_row(grid, simulations), flush=True)
    print("\n| RMs | t-test | permutation test | Steiger's Z |")
    print("|---|---|---|---|")
    for models in (8, 12, 20):
        print(size_row(models, simulations), flush=True)


if __name__ == "__main__":
    main()
