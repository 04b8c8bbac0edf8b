"""Intervals and tests, each a small pure function; decision 0002 says why these.

Everything that draws random numbers takes a seed and the name of its purpose, so equal inputs
give equal figures, whatever else was computed before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Z95 = float(special.ndtri(0.975))
"""Two-sided 95 % point of the normal distribution, about 1.96."""

Z80 = float(special.ndtri(0.8))
"""Point that gives 80 % power, about 0.84."""

MAX_DRAWS = 99_999
"""Monte Carlo draws of a test, at most; the smallest p-value is then 1 / 100,000."""

_MIN_DRAWS = 9_999
_BINOMIAL_BUDGET = 20_000_000  # binomial draws in one test: about two seconds
_TOLERANCE = 1e-9  # sums of thirds differ in the last digits


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the random numbers of one purpose.

    Args:
        seed: The seed of the whole summary.
        purpose: What the numbers are for; each purpose has numbers of its own.
    """
    words = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return np.random.default_rng(int.from_bytes(words, "big"))


def wilson(proportion: float, n: float) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion.

    Args:
        proportion: The observed share, 0 to 1. Credit that is shared between equals is allowed: a
            mean of values within 0 to 1 varies no more than a mean of zeros and ones.
        n: Independent observations behind it, above 0; need not be whole.

    Returns:
        The bounds, within 0 to 1. Unlike a bootstrap they have width at 0 and at 1.
    """
    square = Z95**2
    centre = (proportion + square / (2 * n)) / (1 + square / n)
    half = math.sqrt(proportion * (1 - proportion) / n + square / (4 * n * n))
    half *= Z95 / (1 + square / n)
    # Rounding may leave the observed share itself a hair outside at 0 and 1.
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return min(low, proportion), max(high, proportion)


def agresti_min(sums: Floats, counts: Ints, n_items: int) -> tuple[float, float]:
    """Return a 95 % interval of a paired difference that holds for few clusters.

    The method of Agresti and Min (Statistics in Medicine 2005) for matched pairs adds half a pair
    to each cell of the 2 x 2 table, that is, half a difference of +1, half a one of -1 and a whole
    one of 0. Here clusters take the place of pairs and shared credit that of zeros and ones; for
    single items with credits of 0 and 1 it is their interval exactly.

    Args:
        sums: For each kind of cluster, its sum of paired differences.
        counts: How many clusters there are of each kind, at least one in all.
        n_items: Items over all clusters.

    Returns:
        The bounds, within -1 to 1; never of zero width.
    """
    centre, error = agresti_min_moments(sums, counts, n_items)
    return max(-1.0, centre - Z95 * error), min(1.0, centre + Z95 * error)


def agresti_min_moments(sums: Floats, counts: Ints, n_items: int) -> tuple[float, float]:
    """Return the centre and the standard error that `agresti_min` is made of.

    Args:
        sums: As in `agresti_min`.
        counts: As in `agresti_min`.
        n_items: As in `agresti_min`.
    """
    clusters = int(counts.sum())
    differences = sums * (clusters / n_items)
    n = clusters + 2
    centre = float(counts @ differences) / n
    variance = (float(counts @ differences**2) + 1) / n - centre**2
    return centre, math.sqrt(max(variance, 0.0) / n)


def sign_flip_p(sums: Floats, counts: Ints, seed: int, purpose: str) -> float | None:
    """Return the two-sided p-value of a paired sign-flip test over clusters.

    Null hypothesis: exchanging the two scorers within a cluster changes nothing, so each cluster's
    sum of differences has either sign with probability 1/2. The statistic is the absolute total.
    When all sums that are not 0 have one size, it is the exact McNemar test (binomial, twice the
    smaller tail); otherwise p = (hits + 1) / (draws + 1), the signs being drawn as one binomial
    for each distinct size, so that the cost does not depend on the number of clusters.

    Args:
        sums: For each kind of cluster, its sum of paired differences.
        counts: How many clusters there are of each kind.
        seed: Seed of the draws.
        purpose: Name of the draws.

    Returns:
        The p-value; 1 when nothing differs; None when there are no clusters.
    """
    if counts.sum() == 0:
        return None
    sizes, index = np.unique(np.abs(np.round(sums, 9)), return_inverse=True)
    repeats = np.bincount(index, weights=counts, minlength=len(sizes)).astype(np.int64)
    differs = sizes > 0
    sizes, repeats = sizes[differs], repeats[differs]
    if len(sizes) == 0:
        return 1.0
    if len(sizes) == 1:
        positive = int(counts[sums > _TOLERANCE].sum())
        total = int(repeats[0])
        return min(1.0, 2 * float(special.bdtr(min(positive, total - positive), total, 0.5)))
    observed = abs(float(counts @ sums))
    # The sum of signed sizes is twice the sum of the positive ones, less all.
    halves = np.full(len(sizes), 0.5)
    return _monte_carlo_p(2 * sizes, repeats, halves, observed, generator(seed, purpose))


def chance_p(
    total: float,
    sizes: Ints,
    chances: Floats,
    counts: Ints,
    seed: int,
    purpose: str,
) -> float | None:
    """Return the two-sided p-value of a total credit against picking at random.

    Null hypothesis: each pick is right with its item's chance. Items of one cluster with the same
    chance count as one pick, right or wrong together: a judge that knows nothing may still answer
    every variant of a question alike. This is the least favourable dependence, so the test is
    conservative for clusters. The statistic is the distance from the expected total; exact
    binomial when all picks have one chance and one size, otherwise p = (hits + 1) / (draws + 1).

    Args:
        total: Observed sum of credits.
        sizes: For each kind of pick, how many items it decides.
        chances: For each kind, the probability that it is right.
        counts: For each kind, how many such picks there are.
        seed: Seed of the draws.
        purpose: Name of the draws.

    Returns:
        The p-value, or None when there are no picks.
    """
    n = int(counts.sum())
    if n == 0:
        return None
    distance = abs(total - float((sizes * chances) @ counts))
    if len(np.unique(sizes)) == 1 and len(np.unique(chances)) == 1:
        picks, chance = distance / int(sizes[0]), float(chances[0])
        most = math.floor(n * chance - picks + _TOLERANCE)
        least = math.ceil(n * chance + picks - _TOLERANCE)
        lower = float(special.bdtr(most, n, chance)) if most >= 0 else 0.0
        upper = float(special.bdtrc(least - 1, n, chance)) if 0 < least <= n else 0.0
        return min(1.0, lower + upper) if least > most else 1.0
    random = generator(seed, purpose)
    return _monte_carlo_p(sizes.astype(np.float64), counts, chances, distance, random)


def _monte_carlo_p(
    sizes: Floats, repeats: Ints, chances: Floats, observed: float, random: np.random.Generator
) -> float:
    """Return how often a sum of independent binomials is as far from its mean as observed."""
    draws = min(MAX_DRAWS, max(_MIN_DRAWS, _BINOMIAL_BUDGET // len(sizes)))
    totals = np.zeros(draws)
    for size, repeat, chance in zip(sizes, repeats, chances, strict=True):
        one_coin = repeat == 1 and chance == 0.5
        # the same numbers from the same state, several times as fast
        drawn = random.random(draws) > 0.5 if one_coin else random.binomial(repeat, chance, draws)
        totals += size * (drawn - repeat * chance)
    slack = _TOLERANCE * max(1.0, observed)
    hits = int(np.count_nonzero(np.abs(totals) >= observed - slack))
    return (hits + 1) / (draws + 1)


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return p-values after Holm's step-down correction (Holm 1979).

    Args:
        p_values: The p-values of one family. None stands for a comparison that could not be made:
            it stays None and does not count.

    Returns:
        The corrected p-values in the same order: the i-th smallest of m times (m - i + 1), made
        monotone and capped at 1.
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, index) in enumerate(known):
        running = max(running, min(1.0, p * (len(known) - rank)))
        corrected[index] = running
    return tuple(corrected)


def detectable_difference(accuracy: float | None, n: float) -> float | None:
    """Return the smallest true difference to another model that n items find.

    Assumes that both models answer the same n independent items with about this accuracy and that
    their errors are independent, so the difference has variance 2 p (1 - p) / n. Models whose
    errors agree can be told apart sooner; a comparison of two runs uses their own differences.

    Args:
        accuracy: The model's accuracy p.
        n: Independent items (clusters, where items are clustered).

    Returns:
        (1.96 + 0.84) sqrt(2 p (1 - p) / n), for 80 % power at two-sided 5 %. None without items,
        and at an accuracy of 0 or 1, where the spread cannot be estimated.
    """
    if accuracy is None or n <= 0 or not 0 < accuracy < 1:
        return None
    return (Z95 + Z80) * math.sqrt(2 * accuracy * (1 - accuracy) / n)


def detectable_correlation(n: int) -> float | None:
    """Return the smallest true correlation, either way, that n independent points find.

    Args:
        n: Points.

    Returns:
        tanh((1.96 + 0.84) / sqrt(n - 3)), for 80 % power at two-sided 5 % by Fisher's z. None with
        fewer than four points.
    """
    if n < 4:
        return None
    return math.tanh((Z95 + Z80) / math.sqrt(n - 3))


def told_apart(p_holm: float | None, low: float | None, high: float | None) -> bool:
    """Tell whether a difference is told from 0: by the corrected test and by the interval.

    Args:
        p_holm: Its p-value after Holm's correction; None where there was no test.
        low: Lower bound of its 95 % interval; None where there is none.
        high: Upper bound.
    """
    if p_holm is None or low is None or high is None:
        return False
    return p_holm < 0.05 and (low > 0 or high < 0)
