"""The exact test of a rule's credit against chance, ties and clusters included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft, special, stats

from habitus.metrics.statistics import Floats, Ints, generator

MAX_LATTICE = 2**20
"""Points of the exact distribution; a longer one is drawn instead."""

DRAWS = 99_999
"""Draws where the distribution is too long to be computed."""

FLOOR = 1e-12
"""Rounding of the transform hides p-values below; they are given as this."""


@dataclass(frozen=True)
class _Kind:
    """Picks that are alike."""

    weight: int
    """Items that one pick decides."""
    count: int
    """How many such picks there are."""
    tied: int
    """Candidates that share the highest score."""
    share: Floats
    """Probability that 0, 1, ... of the tied ones are right."""


def upper_p(
    credit: Floats,
    sizes: Ints,
    n_best: Ints,
    tied: Ints,
    cluster: Ints,
    *,
    seed: int,
    purpose: str,
) -> float | None:
    """Return the one-sided p-value of a total credit against chance.

    Null hypothesis: in every item all choices of the right candidates are equally likely, whatever
    the rule prefers. With `tied` candidates on top, the number of right ones among them is
    hypergeometric, and the credit is that number over `tied`. Items of one cluster with the same
    sizes count as one pick, right or wrong together (as in `metrics.statistics.chance_p`), which
    is conservative.

    Args:
        credit: Credit of each item, 0 to 1; shape (items,).
        sizes: Candidates of each item.
        n_best: Right candidates of each item.
        tied: Candidates that share the highest score in each item.
        cluster: Cluster of each item.
        seed: Seed of the draws, where there are any.
        purpose: Name of the draws.

    Returns:
        P(total >= observed): exact while the distribution has at most `MAX_LATTICE` points,
        otherwise (hits + 1) / (draws + 1). None without items.
    """
    if len(credit) == 0:
        return None
    kinds = _kinds(sizes, n_best, tied, cluster)
    if all(kind.tied == 1 for kind in kinds) and len({kind.weight for kind in kinds}) == 1:
        chances = {round(float(kind.share[1]), 12) for kind in kinds}
        if len(chances) == 1:
            right = math.ceil(float(credit.sum()) / kinds[0].weight - 1e-6)
            picks = sum(kind.count for kind in kinds)
            return float(special.bdtrc(right - 1, picks, chances.pop())) if right > 0 else 1.0
    unit = math.lcm(*(kind.tied for kind in kinds))
    observed = math.ceil(round(float(credit.sum()) * unit, 4))
    length = sum(kind.count * kind.weight * min(kind.tied, len(kind.share) - 1) for kind in kinds)
    if length * unit <= MAX_LATTICE:
        return _exact(kinds, unit, observed)
    return _drawn(kinds, float(credit.sum()), generator(seed, purpose))


def combined(p_values: Sequence[float], weights: Sequence[int]) -> float:
    """Return one p-value of several, whatever their dependence.

    A rule that is learned on one part of the items and tested on another gives a valid p-value for
    each part, but the parts' results depend on each other: each taught the others. e times the
    weighted geometric mean is valid all the same (Vovk and Wang, Biometrika 2020).

    Args:
        p_values: One for each part, at least one.
        weights: Items of each part.
    """
    if len(p_values) == 1:
        return p_values[0]
    mean = float(np.average(np.log(np.maximum(p_values, FLOOR)), weights=weights))
    return min(1.0, math.exp(1 + mean))


def _kinds(sizes: Ints, n_best: Ints, tied: Ints, cluster: Ints) -> list[_Kind]:
    facts = np.stack([cluster, sizes, n_best, tied], axis=1)
    picks, weight = np.unique(facts, axis=0, return_counts=True)
    alike, count = np.unique(np.column_stack([picks[:, 1:], weight]), axis=0, return_counts=True)
    kinds = []
    for (size, best, top, items), times in zip(alike.tolist(), count.tolist(), strict=True):
        right = np.arange(min(best, top) + 1)
        share = np.asarray(stats.hypergeom.pmf(right, size, best, top), dtype=np.float64)
        kinds.append(_Kind(items, times, top, share))
    return kinds


def _exact(kinds: list[_Kind], unit: int, observed: int) -> float:
    """Convolve the kinds' distributions over multiples of 1 / unit."""
    most = sum(k.count * k.weight * (len(k.share) - 1) * (unit // k.tied) for k in kinds)
    if observed > most:
        return FLOOR
    length = fft.next_fast_len(most + 1, real=True)
    product: npt.NDArray[np.complex128] = np.ones(length // 2 + 1, dtype=np.complex128)
    for kind in kinds:
        single = np.zeros(length)
        step = kind.weight * (unit // kind.tied)
        single[np.arange(len(kind.share)) * step] = kind.share
        product *= fft.rfft(single) ** kind.count
    density = fft.irfft(product, length)
    tail = float(np.clip(density[max(0, observed) : most + 1].sum(), FLOOR, 1.0))
    return float(f"{tail:.12g}")  # what lies behind is rounding


def _drawn(kinds: list[_Kind], observed: float, random: np.random.Generator) -> float:
    totals = np.zeros(DRAWS)
    for kind in kinds:
        counts = random.multinomial(kind.count, kind.share / kind.share.sum(), size=DRAWS)
        totals += counts @ (np.arange(len(kind.share)) * (kind.weight / kind.tied))
    hits = int(np.count_nonzero(totals >= observed - 1e-6))
    return (hits + 1) / (DRAWS + 1)
