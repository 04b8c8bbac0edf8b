"""All figures of one benchmark against one outcome over reward models (papers: CARB A3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.correlation import (
    COEFFICIENTS,
    Fit,
    LeftOut,
    coefficients,
    constant,
    leave_one_out,
    linear_fit,
    permutation_p,
    ties,
)
from habitus.metrics.correlation_bootstrap import (
    MIN_FAMILIES,
    Bounds,
    basic,
    bca,
    draw_models,
    squared,
    without_families,
)
from habitus.metrics.correlation_scores import Scores, intervals, reliability, replicates
from habitus.metrics.statistics import Floats, Ints, holm

FEW = 8
"""With fewer reward models a correlation comes with a warning."""


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of correlation."""

    name: str
    """One of `COEFFICIENTS`."""
    value: float
    """The coefficient."""
    over_models: Bounds | None
    """95 % interval over RMs (BCa), or over families of RMs where they are given."""
    over_items: Bounds | None
    """95 % interval over items and prompts for these RMs (basic)."""
    over_both: Bounds | None
    """95 % interval over RMs, items and prompts (BCa)."""
    p: float | None
    """Two-sided permutation p-value over RMs; over the means of families where they are given."""
    of_means: float | None = None
    """The coefficient of the families' means, which p is of; None without families, and where it
    is not defined."""


@dataclass(frozen=True)
class Point:
    """One RM in the scatter."""

    label: str
    """The RM."""
    family: str | None
    """Its family."""
    x: float
    """Accuracy on the benchmark, 0 to 1."""
    x_bounds: Bounds | None
    """95 % interval over items."""
    y: float
    """Downstream quality, 0 to 1."""
    y_bounds: Bounds | None
    """95 % interval over prompts."""
    n_items: int
    """Items behind x."""
    n_prompts: int
    """Prompts behind y."""


@dataclass(frozen=True)
class Correlation:
    """How well a benchmark's accuracy predicts an outcome."""

    benchmark: str
    """Name of the benchmark."""
    outcome: str
    """Name of the outcome."""
    n: int
    """RMs that have both."""
    n_families: int
    """Families of these RMs; n when none share one."""
    points: tuple[Point, ...]
    """The RMs that have both."""
    missing: tuple[tuple[str, str], ...]
    """RMs that lack one, and which."""
    reason: str | None = None
    """Why there are no figures; the rest is then empty."""
    tied_x: int = 0
    """RMs whose accuracy equals another's."""
    tied_y: int = 0
    """RMs whose quality equals another's."""
    fit: Fit | None = None
    """The least-squares line; its p-value takes RMs as independent."""
    coefficients: tuple[Coefficient, ...] = ()
    """Pearson's, Spearman's, Kendall's."""
    left_out: tuple[LeftOut, ...] = ()
    """The line without each RM in turn, in the order of `points`."""
    reliability_x: float | None = None
    """Share of the accuracies' variance that is not sampling error of the items."""
    reliability_y: float | None = None
    """The same of the qualities and the prompts."""
    disattenuated: float | None = None
    """Pearson's r over the root of both reliabilities: an estimate for endless items and prompts;
    may exceed 1."""
    p_holm: float | None = None
    """p-value of Pearson's r after Holm's correction over the table."""

    @property
    def pearson(self) -> Coefficient | None:
        """Pearson's r."""
        return self.coefficients[0] if self.coefficients else None

    @property
    def r2_bounds(self) -> tuple[Bounds | None, Bounds | None, Bounds | None]:
        """Intervals of r2 over RMs, over items and prompts, over both."""
        r = self.pearson
        if r is None:
            return None, None, None
        return squared(r.over_models), squared(r.over_items), squared(r.over_both)


@dataclass(frozen=True)
class Resamples:
    """A measure of some RMs with the draws that all intervals share."""

    x: Floats
    """Replicates of the accuracies over items; shape (resamples, RMs)."""
    y: Floats
    """Replicates of the qualities over prompts; shape (resamples, RMs)."""
    models: Floats
    """How often each RM is drawn; shape (resamples, RMs)."""
    without: Floats
    """Weights without each family; shape (families, RMs)."""


def family_codes(families: Sequence[str | None]) -> Ints:
    """Number the families; an RM without one is a family of its own."""
    names = [f"model {i}" if name is None else f"family {name}" for i, name in enumerate(families)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def family_means(values: Floats, families: Ints) -> Floats:
    """Return the mean of each family's values."""
    return np.asarray(np.bincount(families, weights=values) / np.bincount(families))


def correlate(
    x: Scores,
    y: Scores,
    labels: Sequence[str],
    families: Sequence[str | None],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> Correlation:
    """Correlate a benchmark's accuracy with an outcome over the RMs that have both.

    Args:
        x: Accuracy of each RM.
        y: Quality of each RM.
        labels: Names of the RMs.
        families: What RMs share, such as a training; None is a family of one.
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates.
    """
    both = np.flatnonzero(np.isfinite(x.values) & np.isfinite(y.values))
    missing = tuple(
        (label, f"no {x.name}" if math.isnan(x.values[i]) else f"no {y.name}")
        for i, label in enumerate(labels)
        if i not in set(both.tolist())
    )
    codes = family_codes([families[i] for i in both.tolist()])
    xs, ys = x.take(both), y.take(both)
    found = Correlation(
        x.name,
        y.name,
        len(both),
        len(np.unique(codes)),
        _points(xs, ys, [(labels[i], families[i]) for i in both.tolist()], seed, resamples),
        missing,
    )
    reason = _reason(xs.values, ys.values)
    if reason is not None:
        return replace(found, reason=reason)
    parts = _coefficients(xs, ys, codes, seed, resamples)
    reliable = reliability(xs), reliability(ys)
    return replace(
        found,
        tied_x=ties(xs.values),
        tied_y=ties(ys.values),
        fit=linear_fit(xs.values, ys.values),
        coefficients=parts,
        left_out=leave_one_out(xs.values, ys.values),
        reliability_x=reliable[0],
        reliability_y=reliable[1],
        disattenuated=_disattenuated(parts[0].value, *reliable),
    )


def _reason(x: Floats, y: Floats) -> str | None:
    """Say why nothing can be computed, if so."""
    if len(x) < 3:
        return f"needs 3 RMs that have both, has {len(x)}"
    if constant(x):
        return "all RMs have the same accuracy"
    if constant(y):
        return "all RMs have the same quality"
    return None


def _points(
    x: Scores, y: Scores, names: Sequence[tuple[str, str | None]], seed: int, resamples: int
) -> tuple[Point, ...]:
    bounds = [
        [
            None if one.low is None or one.high is None else Bounds(one.low, one.high)
            for one in intervals(scores, seed, resamples)
        ]
        for scores in (x, y)
    ]
    rows = zip(
        names,
        x.values.tolist(),
        y.values.tolist(),
        x.n.tolist(),
        y.n.tolist(),
        *bounds,
        strict=True,
    )
    return tuple(
        Point(label, family, at_x, in_x, at_y, in_y, n_x, n_y)
        for (label, family), at_x, at_y, n_x, n_y, in_x, in_y in rows
    )


def draw_all(
    x: Scores, y: Scores, families: Ints, seed: int, resamples: int = RESAMPLES
) -> Resamples:
    """Draw items, prompts and RMs; equal families have equal draws, whatever is measured."""
    return Resamples(
        replicates(x, seed, resamples),
        replicates(y, seed, resamples),
        draw_models(families, seed, "correlate/models", resamples),
        without_families(families),
    )


def _coefficients(
    x: Scores, y: Scores, families: Ints, seed: int, resamples: int
) -> tuple[Coefficient, ...]:
    draws = draw_all(x, y, families, seed, resamples)
    enough = len(draws.without) >= MIN_FAMILIES
    sampled = x.clusters is not None or y.clusters is not None
    [values] = coefficients(x.values, y.values)
    over_models = coefficients(x.values, y.values, draws.models)
    over_items = coefficients(draws.x, draws.y)
    over_both = coefficients(draws.x, draws.y, draws.models)
    jackknife = coefficients(x.values, y.values, draws.without)
    means = family_means(x.values, families), family_means(y.values, families)
    ps = permutation_p(*means, seed, "correlate/permutations")
    shared = len(draws.without) < len(families)
    [of_means] = coefficients(*means)
    found = []
    for k, name in enumerate(COEFFICIENTS):
        value = float(values[k])
        found.append(
            Coefficient(
                name,
                value,
                bca(over_models[:, k], value, jackknife[:, k]) if enough else None,
                basic(over_items[:, k], value) if sampled else None,
                bca(over_both[:, k], value, jackknife[:, k]) if enough and sampled else None,
                ps[k],
                float(of_means[k]) if shared and np.isfinite(of_means[k]) else None,
            )
        )
    return tuple(found)


def _disattenuated(r: float, x: float | None, y: float | None) -> float | None:
    if x is None or y is None or x <= 0 or y <= 0:
        return None
    return r / math.sqrt(x * y)


def with_holm(rows: Sequence[Correlation]) -> tuple[Correlation, ...]:
    """Return the correlations of one table with Holm's correction of Pearson's p over all."""
    corrected = holm([None if row.pearson is None else row.pearson.p for row in rows])
    return tuple(replace(row, p_holm=p) for row, p in zip(rows, corrected, strict=True))
