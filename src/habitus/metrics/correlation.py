"""Coefficients, fit and tests of one benchmark against one outcome over reward models (RMs).

x is a benchmark's accuracy and y a downstream quality, one value of each for an RM (papers: CARB
A3). Values closer than a billionth are ties: means of thirds differ in their last digits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from habitus.metrics.statistics import MAX_DRAWS, Floats, Ints, generator

COEFFICIENTS = ("pearson", "spearman", "kendall")
"""Pearson's r, Spearman's rho and Kendall's tau-b, in the order of all arrays of coefficients."""

EXACT = 8
"""Up to so many values all permutations are tried; above, `statistics.MAX_DRAWS` random ones."""

_DIGITS = 9
_CHUNK_ELEMENTS = 4_000_000  # numbers held at a time: 32 MB
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Fit:
    """A least-squares line of y on x."""

    slope: float
    """Change of y with x."""
    intercept: float
    """y at x = 0."""
    r2: float
    """Share of y's variance that the line explains."""
    p: float
    """Two-sided p-value of the slope (t-test)."""
    df: int
    """Its degrees of freedom, n - 2."""
    sd: float
    """Standard deviation of the residuals."""
    x_mean: float
    """Mean of x."""
    x_squares: float
    """Sum of squared deviations of x."""


@dataclass(frozen=True)
class LeftOut:
    """The line without one RM."""

    model: int
    """Index of the RM that is left out."""
    r: float | None
    """Pearson's r of the others; None where it is not defined."""
    r2: float | None
    """Its square."""
    p: float | None
    """Two-sided p-value of the slope."""


@dataclass(frozen=True)
class Partial:
    """Correlation of x and y given confounders."""

    value: float | None
    """The partial correlation."""
    df: int
    """Degrees of freedom, n - 2 - (number of confounders)."""
    p: float | None
    """Two-sided p-value (t-test)."""
    reason: str | None = None
    """Why there is none."""


def coefficients(x: Floats, y: Floats, weights: Floats | None = None) -> Floats:
    """Return Pearson's r, Spearman's rho and Kendall's tau-b of many weighted samples.

    A weight says how often an RM is in the sample, so that one resample of a bootstrap is a row
    of weights, and the jackknife leaves out by a weight of 0. Ranks are mid-ranks.

    Args:
        x: Values of shape (samples, RMs), or (RMs,) for all samples.
        y: Values of the same form.
        weights: Whole numbers of shape (samples, RMs); None counts each RM once.

    Returns:
        Shape (samples, 3), in the order of `COEFFICIENTS`; NaN where x or y is constant or
        missing.
    """
    rounded = np.round(np.atleast_2d(x), _DIGITS), np.round(np.atleast_2d(y), _DIGITS)
    counts = np.ones((1, rounded[0].shape[1])) if weights is None else np.atleast_2d(weights)
    xs, ys, ws = np.broadcast_arrays(*rounded, counts)
    samples, models = xs.shape
    result = np.full((samples, len(COEFFICIENTS)), np.nan)
    rows = max(1, _CHUNK_ELEMENTS // max(1, models**2))
    for start in range(0, samples, rows):
        part = slice(start, start + rows)
        result[part] = _coefficients(xs[part], ys[part], ws[part])
    return result


def _coefficients(x: Floats, y: Floats, w: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        above_x = np.sign(x[:, :, None] - x[:, None, :])
        above_y = np.sign(y[:, :, None] - y[:, None, :])
        # How many are below, less how many above, is the mid-rank up to a shift and a scale.
        rank_x = np.einsum("rij,rj->ri", above_x, w)
        rank_y = np.einsum("rij,rj->ri", above_y, w)
        pairs = w[:, :, None] * w[:, None, :]
        untied_x = (above_x**2 * pairs).sum(axis=(1, 2))
        untied_y = (above_y**2 * pairs).sum(axis=(1, 2))
        concordant = (above_x * above_y * pairs).sum(axis=(1, 2))
        tau = concordant / np.sqrt(untied_x * untied_y)
        found = np.stack([_product_moment(x, y, w), _product_moment(rank_x, rank_y, w), tau], 1)
    varies = (untied_x > 0) & (untied_y > 0)
    return np.where(varies[:, None], np.clip(found, -1.0, 1.0), np.nan)


def _product_moment(x: Floats, y: Floats, w: Floats) -> Floats:
    total = w.sum(axis=1, keepdims=True)
    dx = x - (w * x).sum(axis=1, keepdims=True) / total
    dy = y - (w * y).sum(axis=1, keepdims=True) / total
    squares = (w * dx**2).sum(axis=1) * (w * dy**2).sum(axis=1)
    return np.asarray((w * dx * dy).sum(axis=1) / np.sqrt(squares), dtype=np.float64)


def constant(values: Floats) -> bool:
    """Return whether all values are equal, so that nothing can correlate with them."""
    return bool(np.ptp(np.round(values, _DIGITS)) == 0)


def ties(values: Floats) -> int:
    """Count the values that some other value equals."""
    _, times = np.unique(np.round(values, _DIGITS), return_counts=True)
    return int(times[times > 1].sum())


def linear_fit(x: Floats, y: Floats) -> Fit:
    """Fit a line by least squares (papers: CARB A3).

    Args:
        x: At least three values, not all equal.
        y: As many, not all equal.
    """
    found = stats.linregress(x, y)
    residuals = y - (found.intercept + found.slope * x)
    df = len(x) - 2
    return Fit(
        slope=float(found.slope),
        intercept=float(found.intercept),
        r2=float(found.rvalue**2),
        p=float(found.pvalue),
        df=df,
        sd=math.sqrt(float(residuals @ residuals) / df),
        x_mean=float(x.mean()),
        x_squares=float(((x - x.mean()) ** 2).sum()),
    )


def fit_band(fit: Fit, x: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the line at `x` and the bounds of its mean's 95 % band, each point for itself."""
    n = fit.df + 2
    line = fit.intercept + fit.slope * x
    error = fit.sd * np.sqrt(1 / n + (x - fit.x_mean) ** 2 / fit.x_squares)
    half = float(stats.t.ppf(0.975, fit.df)) * error
    return line, line - half, line + half


def leave_one_out(x: Floats, y: Floats) -> tuple[LeftOut, ...]:
    """Return the line without each RM in turn; empty with fewer than four."""
    n = len(x)
    if n < 4:
        return ()
    found = []
    for model, r in enumerate(coefficients(x, y, 1 - np.eye(n))[:, 0].tolist()):
        if math.isnan(r):
            found.append(LeftOut(model, None, None, None))
            continue
        others = np.arange(n) != model
        found.append(LeftOut(model, r, r * r, linear_fit(x[others], y[others]).p))
    return tuple(found)


def permutation_p(x: Floats, y: Floats, seed: int, purpose: str) -> tuple[float | None, ...]:
    """Return two-sided p-values of all coefficients when y is dealt to the RMs at random.

    Exact up to `EXACT` values; above that (hits + 1) / (draws + 1) over random permutations.

    Args:
        x: Values, one for each RM or family.
        y: As many.
        seed: Seed of the draws.
        purpose: Name of the draws.

    Returns:
        In the order of `COEFFICIENTS`; None for all with fewer than three values or constant ones.
    """
    n = len(x)
    if n < 3 or constant(x) or constant(y):
        return (None,) * len(COEFFICIENTS)
    x, y = np.round(x, _DIGITS), np.round(y, _DIGITS)
    statistic = _Statistic(x, y)
    observed = np.abs(statistic(np.arange(n)[None]))
    slack = _TOLERANCE * np.maximum(1e-3, observed)
    hits = np.zeros(len(COEFFICIENTS))
    rows = max(1, _CHUNK_ELEMENTS // n**2)
    if n <= EXACT:
        orders = np.array(list(itertools.permutations(range(n))), dtype=np.int64)
        draws = len(orders)
        for start in range(0, draws, rows):
            hits += (np.abs(statistic(orders[start : start + rows])) >= observed - slack).sum(0)
        return tuple((hits / draws).tolist())
    random = generator(seed, purpose)
    for start in range(0, MAX_DRAWS, rows):
        size = min(rows, MAX_DRAWS - start)
        orders = random.permuted(np.tile(np.arange(n), (size, 1)), axis=1)
        hits += (np.abs(statistic(orders)) >= observed - slack).sum(axis=0)
    return tuple(((hits + 1) / (MAX_DRAWS + 1)).tolist())


class _Statistic:
    """The coefficients' numerators; their denominators do not change when y is permuted."""

    def __init__(self, x: Floats, y: Floats) -> None:
        self._x, self._y = x - x.mean(), y - y.mean()
        self._rank_x = stats.rankdata(x) - (len(x) + 1) / 2
        self._rank_y = stats.rankdata(y) - (len(y) + 1) / 2
        # Sums of signs are small whole numbers, which single precision holds exactly.
        self._above_x = np.sign(x[:, None] - x[None, :]).astype(np.float32)
        self._above_y = np.sign(y[:, None] - y[None, :]).astype(np.float32).ravel()

    def __call__(self, orders: Ints) -> Floats:
        """Return numerators of shape (orders, 3)."""
        n = len(self._x)
        places = np.ascontiguousarray(orders.T.astype(np.int32))
        concordant = np.zeros(len(orders), dtype=np.float32)
        for i in range(n - 1):
            turned = self._above_y.take(places[i] * n + places[i + 1 :])
            concordant += self._above_x[i, i + 1 :] @ turned
        moments = self._y[orders] @ self._x, self._rank_y[orders] @ self._rank_x
        return np.stack([*moments, concordant.astype(np.float64)], axis=1)


def partial_correlation(x: Floats, y: Floats, confounders: Floats) -> Partial:
    """Correlate what is left of x and y after a linear fit on the confounders.

    Args:
        x: Values, shape (RMs,).
        y: As many.
        confounders: Shape (RMs, number of confounders), one or more.

    Returns:
        The partial correlation with its t-test; refused with a reason where n is below the number
        of confounders plus four, where a confounder is constant or follows from the others, and
        where the confounders explain x or y completely.
    """
    n, k = confounders.shape
    df = n - 2 - k
    if n < k + 4:
        return Partial(None, df, None, f"needs {k + 4} RMs, has {n}")
    spread = confounders.std(axis=0)
    if any(constant(column) for column in confounders.T):
        return Partial(None, df, None, "constant over the RMs")
    design = np.column_stack([np.ones(n), (confounders - confounders.mean(axis=0)) / spread])
    if np.linalg.matrix_rank(design, tol=1e-8 * math.sqrt(n)) < k + 1:
        return Partial(None, df, None, "one confounder follows from the others")
    left = [values - design @ np.linalg.lstsq(design, values)[0] for values in (x, y)]
    for name, values, rest in zip(("accuracy", "quality"), (x, y), left, strict=True):
        if rest.std() <= 1e-9 * max(values.std(), 1e-9):
            return Partial(None, df, None, f"the confounders explain all of the {name}")
    r = float(np.clip(np.corrcoef(*left)[0, 1], -1.0, 1.0))
    return Partial(r, df, _t_test(r, df))


def _t_test(r: float, df: int) -> float:
    if abs(r) >= 1.0:
        return 0.0
    return float(2 * stats.t.sf(abs(r) * math.sqrt(df / (1 - r * r)), df))


def partial_coefficients(columns: Floats, weights: Floats) -> Floats:
    """Return the partial correlation of the first two columns in many weighted samples.

    Args:
        columns: x, y, then the confounders; shape (RMs, 2 + number of confounders).
        weights: How often each RM is in each sample; shape (samples, RMs).

    Returns:
        Shape (samples,); NaN where a sample has too few different RMs.
    """
    scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    shares = weights / weights.sum(axis=1, keepdims=True)
    means = shares @ scaled
    products = np.einsum("rj,ja,jb->rab", shares, scaled, scaled)
    covariance = products - means[:, :, None] * means[:, None, :]
    found = np.full(len(weights), np.nan)
    size = columns.shape[1]
    fine = np.linalg.matrix_rank(covariance, tol=1e-9, hermitian=True) == size
    if fine.any():
        precision = np.linalg.inv(covariance[fine])
        scale = np.sqrt(precision[:, 0, 0] * precision[:, 1, 1])
        found[fine] = np.clip(-precision[:, 0, 1] / scale, -1.0, 1.0)
    return found


def steiger_z(r_first: float, r_second: float, r_between: float, n: int) -> tuple[float, float]:
    """Compare two correlations that share a variable: Steiger's Z (1980) with pooled estimates.

    Equation 14 of Steiger (Psychological Bulletin 87, 245-251): the difference of Fisher's z over
    its standard error, whose covariance is that at the mean of the two correlations.

    Args:
        r_first: Correlation of the shared variable with the first.
        r_second: Correlation of the shared variable with the second.
        r_between: Correlation of the first with the second.
        n: Observations, at least four.

    Returns:
        Z and its two-sided p-value. All correlations must be within -1 to 1 and not at the ends.
    """
    mean = (r_first + r_second) / 2
    square = mean * mean
    covariance = r_between * (1 - 2 * square) - square * (1 - 2 * square - r_between**2) / 2
    correlation = covariance / (1 - square) ** 2
    difference = math.atanh(r_first) - math.atanh(r_second)
    z = difference * math.sqrt((n - 3) / (2 - 2 * correlation))
    return z, float(2 * special.ndtr(-abs(z)))


def most_influential(left_out: Sequence[LeftOut], r: float) -> LeftOut | None:
    """Return the RM without which r moves most, or becomes undefined; None where there is none."""
    if not left_out:
        return None
    return max(left_out, key=lambda one: math.inf if one.r is None else abs(one.r - r))
