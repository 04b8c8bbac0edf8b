"""What else could predict the outcome: confounders and a rival benchmark (papers: CARB A3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.correlation import (
    coefficients,
    constant,
    partial_coefficients,
    partial_correlation,
    steiger_z,
)
from habitus.metrics.correlation_bootstrap import (
    MIN_FAMILIES,
    Bounds,
    basic,
    bca,
    draw_models,
    without_families,
)
from habitus.metrics.correlation_scores import Scores, replicates
from habitus.metrics.correlation_summary import draw_all, family_codes
from habitus.metrics.statistics import Floats, Ints, holm

LENGTH, SIZE, GENERAL = "length bias", "log parameters", "general score"
"""The confounders: how much more often than chance an RM picks the longest response; log10 of its
number of weights; its score on a general benchmark."""


@dataclass(frozen=True)
class Given:
    """The correlation of accuracy and quality given one or more confounders."""

    outcome: str
    """Name of the outcome."""
    confounders: tuple[str, ...]
    """Their names."""
    n: int
    """RMs with all values."""
    df: int
    """Degrees of freedom of the test, n - 2 - number of confounders."""
    plain: float | None
    """Pearson's r of the same RMs, no confounder held fixed."""
    with_accuracy: float | None
    """Pearson's r of the confounder and accuracy, for one confounder alone."""
    with_quality: float | None
    """Pearson's r of the confounder and quality, for one confounder alone."""
    value: float | None
    """The partial correlation."""
    bounds: Bounds | None
    """Its 95 % interval over RMs or families (BCa)."""
    p: float | None
    """Two-sided p-value (t-test, which takes RMs as independent)."""
    reason: str | None
    """Why there is no partial correlation."""
    p_holm: float | None = None
    """After Holm's correction over the table."""


@dataclass(frozen=True)
class Versus:
    """Which of two benchmarks correlates more with one outcome, on the same RMs."""

    outcome: str
    """Name of the outcome."""
    first: str
    """Name of the benchmark."""
    second: str
    """Name of its rival."""
    n: int
    """RMs that have all three."""
    r_first: float | None = None
    """Pearson's r of the benchmark with the outcome."""
    r_second: float | None = None
    """Pearson's r of the rival with the outcome."""
    r_between: float | None = None
    """Pearson's r of the two benchmarks."""
    difference: float | None = None
    """First r less second r."""
    over_models: Bounds | None = None
    """95 % interval of the difference over RMs or families (BCa)."""
    over_items: Bounds | None = None
    """95 % interval over items and prompts for these RMs (basic)."""
    over_both: Bounds | None = None
    """95 % interval over RMs, items and prompts (BCa)."""
    z: float | None = None
    """Steiger's Z."""
    p: float | None = None
    """Its two-sided p-value; it takes RMs as independent."""
    p_holm: float | None = None
    """After Holm's correction over the table."""
    reason: str | None = None
    """Why there is no comparison, or no Z."""


def hold_fixed(
    x: Scores,
    y: Scores,
    confounders: Mapping[str, Floats],
    families: Sequence[str | None],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[Given, ...]:
    """Correlate accuracy and quality given each confounder alone, and given all together.

    Args:
        x: Accuracy of each RM.
        y: Quality of each RM.
        confounders: Values by name, NaN where an RM has none; each of shape (RMs,).
        families: What RMs share; None is a family of one.
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates.

    Returns:
        One row for each confounder, and one for all where there are several. A row uses the RMs
        that have all its values. Confounders that no RM has are left out of the last row.
    """
    known = [name for name, values in confounders.items() if np.isfinite(values).any()]
    sets = [(name,) for name in confounders] + ([tuple(known)] if len(known) > 1 else [])
    return tuple(
        _given(x, y, {name: confounders[name] for name in names}, families, seed, resamples)
        for names in sets
    )


def _given(
    x: Scores,
    y: Scores,
    confounders: Mapping[str, Floats],
    families: Sequence[str | None],
    seed: int,
    resamples: int,
) -> Given:
    table = np.column_stack([x.values, y.values, *confounders.values()])
    rows = np.flatnonzero(np.isfinite(table).all(axis=1))
    table = table[rows]
    n, k = len(rows), len(confounders)
    found = Given(
        y.name, tuple(confounders), n, n - 2 - k, None, None, None, None, None, None, None
    )
    if n < 3 or constant(table[:, 0]) or constant(table[:, 1]):
        why = f"needs {k + 4} RMs, has {n}" if n < 3 else "accuracy or quality is constant"
        return replace(found, reason=why)
    found = replace(found, plain=_pearson(table[:, 0], table[:, 1]))
    if k == 1:
        with_both = [_pearson(table[:, 2], table[:, column]) for column in (0, 1)]
        found = replace(found, with_accuracy=with_both[0], with_quality=with_both[1])
    partial = partial_correlation(table[:, 0], table[:, 1], table[:, 2:])
    found = replace(found, value=partial.value, p=partial.p, reason=partial.reason)
    codes = family_codes([families[i] for i in rows.tolist()])
    without = without_families(codes)
    if partial.value is None or len(without) < MIN_FAMILIES:
        return found
    draws = draw_models(codes, seed, "correlate/models", resamples)
    jackknife = partial_coefficients(table, without)
    return replace(found, bounds=bca(partial_coefficients(table, draws), partial.value, jackknife))


def _pearson(x: Floats, y: Floats) -> float | None:
    value = float(coefficients(x, y)[0, 0])
    return None if math.isnan(value) else value


def versus(
    first: Scores,
    second: Scores,
    outcome: Scores,
    families: Sequence[str | None],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> Versus:
    """Compare how well two benchmarks predict one outcome, on the RMs that have all three.

    Args:
        first: Accuracy of each RM on the benchmark.
        second: Accuracy of each RM on its rival.
        outcome: Quality of each RM.
        families: What RMs share; None is a family of one.
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates.
    """
    measures = (first, second, outcome)
    rows = np.flatnonzero(np.isfinite([one.values for one in measures]).all(axis=0))
    x, other, y = (one.take(rows) for one in measures)
    found = Versus(outcome.name, first.name, second.name, len(rows))
    if len(rows) < 4:
        return replace(found, reason=f"needs 4 RMs that have all three, has {len(rows)}")
    same = [one.name for one in (x, other, y) if constant(one.values)]
    if same:
        return replace(found, reason=f"{same[0]} is the same for all RMs")
    a, b, between = (
        float(coefficients(one.values, two.values)[0, 0])
        for one, two in ((x, y), (other, y), (x, other))
    )
    found = replace(found, r_first=a, r_second=b, r_between=between, difference=a - b)
    codes = family_codes([families[i] for i in rows.tolist()])
    found = _difference_intervals(found, (x, other, y), codes, seed, resamples)
    if max(abs(a), abs(b), abs(between)) > 1 - 1e-9:
        return replace(found, reason="a correlation of 1: Steiger's Z is not defined")
    z, p = steiger_z(a, b, between, len(rows))
    return replace(found, z=z, p=p)


def _difference_intervals(
    found: Versus,
    measures: tuple[Scores, Scores, Scores],
    families: Ints,
    seed: int,
    resamples: int,
) -> Versus:
    first, second, outcome = measures
    value = found.difference
    if value is None:
        return found
    draws = draw_all(first, outcome, families, seed, resamples)
    others = replicates(second, seed, resamples)

    def difference(x: Floats, other: Floats, y: Floats, weights: Floats | None = None) -> Floats:
        pair = coefficients(x, y, weights)[:, 0], coefficients(other, y, weights)[:, 0]
        return np.asarray(pair[0] - pair[1])

    values = first.values, second.values, outcome.values
    over_items = basic(difference(draws.x, others, draws.y), value, limit=2.0)
    sampled = any(one.clusters is not None for one in measures)
    found = replace(found, over_items=over_items if sampled else None)
    if len(draws.without) < MIN_FAMILIES:
        return found
    jackknife = difference(*values, draws.without)
    over_models = bca(difference(*values, draws.models), value, jackknife)
    both = difference(draws.x, others, draws.y, draws.models)
    over_both = bca(both, value, jackknife) if sampled else None
    return replace(found, over_models=over_models, over_both=over_both)


def given_with_holm(rows: Sequence[Given]) -> tuple[Given, ...]:
    """Return the partial correlations of one table with Holm's correction over all."""
    corrected = holm([row.p for row in rows])
    return tuple(replace(row, p_holm=p) for row, p in zip(rows, corrected, strict=True))


def versus_with_holm(rows: Sequence[Versus]) -> tuple[Versus, ...]:
    """Return the comparisons of one table with Holm's correction over all."""
    corrected = holm([row.p for row in rows])
    return tuple(replace(row, p_holm=p) for row, p in zip(rows, corrected, strict=True))
