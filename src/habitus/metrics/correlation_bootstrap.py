"""Intervals of correlations: over reward models (RMs), over items and prompts, and over both.

Which interval for which question is decision 0003, with its coverage. Over RMs and over both it is
the bias-corrected and accelerated one (BCa, Efron 1987); over items alone it is the basic one,
because resampling adds the items' noise a second time and so moves every correlation to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.statistics import Z95, Floats, Ints, generator

MIN_FAMILIES = 5
"""With fewer RMs (or families) a bootstrap over them says nothing."""


@dataclass(frozen=True)
class Bounds:
    """A 95 % interval."""

    low: float
    """Lower bound."""
    high: float
    """Upper bound."""


def draw_models(families: Ints, seed: int, purpose: str, resamples: int = RESAMPLES) -> Floats:
    """Draw families of RMs with replacement, whole.

    Args:
        families: The family of each RM, 0 to the number of families - 1.
        seed: Seed of the draws.
        purpose: Name of the draws.
        resamples: Number of draws.

    Returns:
        How often each RM is in each resample; shape (resamples, RMs).
    """
    number = int(families.max(initial=-1)) + 1
    random = generator(seed, purpose)
    draws = random.multinomial(number, np.full(number, 1 / number), size=resamples)
    return np.asarray(draws[:, families], dtype=np.float64)


def without_families(families: Ints) -> Floats:
    """Return weights that leave out each family in turn; shape (families, RMs)."""
    number = int(families.max(initial=-1)) + 1
    return np.asarray(np.arange(number)[:, None] != families[None, :], dtype=np.float64)


def bca(replicates: Floats, value: float, jackknife: Floats) -> Bounds | None:
    """Return the bias-corrected and accelerated interval of a statistic.

    Args:
        replicates: The statistic in each resample; NaN where it is not defined there.
        value: The statistic itself.
        jackknife: The statistic without each family in turn.

    Returns:
        The interval, or None when the statistic is defined in fewer than half of the resamples.
    """
    known = _known(replicates)
    if known is None:
        return None
    below = (np.count_nonzero(known < value) + np.count_nonzero(known <= value)) / 2
    # Where all resamples lie on one side, the shift is as large as their number can tell.
    share = np.clip(below / len(known), 1 / (len(known) + 1), len(known) / (len(known) + 1))
    bias = float(special.ndtri(share))
    pulls = jackknife[np.isfinite(jackknife)]
    pulls = pulls.mean() - pulls if len(pulls) else np.zeros(1)
    squares = float((pulls**2).sum())
    skew = float((pulls**3).sum()) / (6 * squares**1.5) if squares > 1e-18 else 0.0
    points = bias + np.array([-Z95, Z95])
    low, high = np.quantile(known, special.ndtr(bias + points / (1 - skew * points)))
    return Bounds(float(min(low, high)), float(max(low, high)))


def basic(replicates: Floats, value: float, limit: float = 1.0) -> Bounds | None:
    """Return the basic interval: the resamples' distances from the value, turned around.

    Args:
        replicates: The statistic in each resample; NaN where it is not defined there.
        value: The statistic itself.
        limit: The statistic's largest size.

    Returns:
        The interval, or None when the statistic is defined in fewer than half of the resamples.
    """
    known = _known(replicates)
    if known is None:
        return None
    high, low = 2 * value - np.quantile(known, [0.025, 0.975])
    return Bounds(float(np.clip(low, -limit, limit)), float(np.clip(high, -limit, limit)))


def _known(replicates: Floats) -> Floats | None:
    known = replicates[np.isfinite(replicates)]
    return known if 2 * len(known) >= len(replicates) and len(known) else None


def squared(bounds: Bounds | None) -> Bounds | None:
    """Return the interval of the square of what `bounds` is the interval of."""
    if bounds is None:
        return None
    low, high = sorted((bounds.low**2, bounds.high**2))
    return Bounds(0.0 if bounds.low <= 0 <= bounds.high else low, high)
