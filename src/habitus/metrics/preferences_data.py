"""What training saw and what it cost: data efficiency, kept shares, weights, curves.

See papers: SCPO, for the filter, the weight and the claim of data efficiency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.preferences import BASE, FINETUNE, credit, credit_table
from habitus.metrics.preferences_board import make_board
from habitus.metrics.preferences_read import Study, read_curves
from habitus.metrics.statistics import Floats
from habitus.types import Metric

TAUS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
"""Thresholds of the filter at which the kept share is shown."""

WEIGHT_BINS = 20
"""Bins of the histogram of weights, over 0 to 1."""

CURVE_BINS = 20
"""Points of a learning curve: shares of the steps."""

WEIGHTED = ("scpo", "weight", "inverse")
"""Variants with weights."""


@dataclass(frozen=True)
class Ratio:
    """How much data fine-tuning needs to be as accurate as another variant is with some."""

    variant: str
    """The variant."""
    share: float
    """Its share of the data."""
    accuracy: float
    """Its macro average there."""
    finetune_share: float | None
    """Share at which fine-tuning is first as accurate, linear in the log of the share."""
    ratio: float | None
    """`finetune_share` over `share`: 2 means half the data."""
    low: float | None
    """Lower bound of its 95 % interval, or None where it lies outside what was measured."""
    high: float | None
    """Upper bound, likewise."""
    reason: str
    """Why there is no ratio; empty where there is one."""


@dataclass(frozen=True)
class Efficiency:
    """Accuracy against share of the data."""

    metrics: tuple[Metric, ...]
    """"accuracy_share" by variant and share: macro averages."""
    ratios: tuple[Ratio, ...]
    """For each variant but fine-tuning, and each share."""
    countries: tuple[str, ...]
    """Countries of the averages."""
    reason: str
    """Why there is no curve; empty where there is one."""
    base: Metric | None = None
    """"accuracy_share" of the base, which has seen none of the data, on the same pairs."""


@dataclass(frozen=True)
class Kept:
    """How much of a country's pairs the filter keeps."""

    country: str
    """The country."""
    tau: float
    """Threshold: a pair is kept when the base's probability of the preference is below it."""
    share: float | None
    """Kept pairs over all; None without pairs."""
    n: int
    """Pairs."""


@dataclass(frozen=True)
class Weights:
    """Weights of the kept pairs."""

    country: str | None
    """The country; None is all."""
    variant: str
    """The variant."""
    n: int
    """Pairs with a weight."""
    quantiles: tuple[float, float, float, float, float] | None
    """Minimum, quartiles and maximum."""
    mean: float | None
    """Mean."""
    full: float | None
    """Share of weights that are 1."""
    histogram: tuple[int, ...]
    """Pairs by weight, in equal bins over 0 to 1."""


@dataclass(frozen=True)
class Curve:
    """Mean loss of a variant's units over their training."""

    variant: str
    """The variant."""
    points: tuple[tuple[float, float, int], ...]
    """Share of the steps done, mean loss, units behind it."""


def efficiency(study: Study, seed: int = 0, resamples: int = RESAMPLES) -> Efficiency:
    """Compute accuracy against share of the data, and what share fine-tuning would need.

    Only pairs that every variant scored at every share count, so that points differ by training
    alone.

    Args:
        study: The study.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    found = study.scores.select("variant", "share").unique().sort("variant", "share")
    shares = {
        variant: sorted(found.filter(pl.col("variant") == variant)["share"].to_list())
        for variant in study.variants
    }
    shares = {variant: values for variant, values in shares.items() if len(values) > 1}
    if not shares:
        return Efficiency((), (), (), "no variant was trained on more than one share of the data")
    points = [(variant, share) for variant, values in shares.items() for share in values]
    table = study.pairs.select("pair", "country", "group", credit().alias(BASE))
    for share in sorted({share for _, share in points}):
        wanted = [variant for variant, at in points if at == share]
        named = {variant: _point(variant, share) for variant in wanted}
        part = credit_table(study, share).select("pair", *wanted).rename(named)
        table = table.join(part, on="pair", how="left", maintain_order="left")
    columns = [_point(*point) for point in points]
    common = table.drop_nulls(columns)
    board = make_board(common, [BASE, *columns], seed, "scpo/efficiency", resamples)
    if not board.countries:
        return Efficiency((), (), (), "no pair was scored at every share by every variant")
    lost = table.height - common.height
    metrics = []
    for variant, share in points:
        group = {"variant": variant, "share": f"{share:g}"}
        column = _point(variant, share)
        metrics.append(board.metric("accuracy_share", None, column, group, lost))
    base = board.metric("accuracy_share", None, BASE, {"variant": BASE}, lost)
    if FINETUNE not in shares:
        reason = "fine-tuning was not trained on several shares, so there is no ratio"
        return Efficiency(tuple(metrics), (), board.countries, reason, base)
    values = {point: board.macro[_point(*point)].value or 0.0 for point in points}
    draws = {point: board.replicates[_point(*point)] for point in points}
    ratios = [
        _ratio(variant, share, shares[FINETUNE], values, draws, base.value or 0.0)
        for variant, share in points
        if variant != FINETUNE
    ]
    return Efficiency(tuple(metrics), tuple(ratios), board.countries, "", base)


def _point(variant: str, share: float) -> str:
    return f"{variant} {share:g}"


def share_reaching(target: float, shares: Sequence[float], values: Sequence[float]) -> float:
    """Return the share at which a curve first reaches `target`, linear in the log of the share.

    Args:
        target: What is to be reached.
        shares: Shares, ascending.
        values: The curve at the shares.

    Returns:
        0 when the first point is there already (so the share is not known), infinity when no
        point is.
    """
    if values[0] >= target:
        return 0.0
    logs = (math.log(share) for share in shares)
    for (left, before), (right, after) in pairwise(zip(logs, values, strict=True)):
        if after >= target:
            part = (target - before) / (after - before)
            return math.exp(left + part * (right - left))
    return math.inf


def _ratio(
    variant: str,
    share: float,
    shares: Sequence[float],
    values: Mapping[tuple[str, float], float],
    draws: Mapping[tuple[str, float], Floats],
    base: float,
) -> Ratio:
    target = values[variant, share]
    if target <= base:
        reason = f"the base is as accurate, with {100 * base:.1f} % and no data"
        return Ratio(variant, share, target, None, None, None, None, reason)
    needed = share_reaching(target, shares, [values[FINETUNE, each] for each in shares])
    curves = np.stack([draws[FINETUNE, each] for each in shares], axis=1)
    drawn = np.array(
        [
            share_reaching(float(aim), shares, curve)
            for aim, curve in zip(draws[variant, share], curves, strict=True)
            if np.isfinite(aim) and np.isfinite(curve).all()
        ]
    )
    bounds: list[float | None] = [None, None]
    if len(drawn):
        ends = np.quantile(drawn, [0.025, 0.975], method="nearest")
        bounds = [float(end) / share if 0 < end < math.inf else None for end in ends]
    reason = ""
    if needed == 0:
        reason = (
            f"fine-tuning is as accurate with {100 * shares[0]:.3g} % already, the least measured"
        )
    elif math.isinf(needed):
        reason = f"fine-tuning is never as accurate, with up to {100 * shares[-1]:.3g} %"
    known = not reason
    return Ratio(
        variant,
        share,
        target,
        needed if known else None,
        needed / share if known else None,
        bounds[0],
        bounds[1],
        reason,
    )


def kept_shares(study: Study, taus: Sequence[float] = TAUS) -> tuple[Kept, ...]:
    """Return the share of each country's training pairs that a filter at each tau would keep."""
    table = study.filters.drop_nulls("p").unique(["country", "pair"], keep="first")
    found = []
    for country in study.countries:
        p = table.filter(pl.col("country") == country)["p"]
        for tau in taus:
            kept = int((p < tau).sum())
            found.append(Kept(country, tau, kept / len(p) if len(p) else None, len(p)))
    return tuple(found)


def weights(study: Study) -> tuple[Weights, ...]:
    """Return the weights of the kept pairs, by variant, over all countries and in each."""
    table = study.filters.filter(pl.col("kept")).drop_nulls("weight")
    found = []
    for variant in (name for name in study.variants if name in WEIGHTED):
        mine = table.filter(pl.col("variant") == variant)
        for country in (None, *study.countries):
            own = mine if country is None else mine.filter(pl.col("country") == country)
            found.append(_weights(country, variant, own["weight"].to_numpy()))
    return tuple(found)


def _weights(country: str | None, variant: str, values: Floats) -> Weights:
    if not len(values):
        return Weights(country, variant, 0, None, None, None, (0,) * WEIGHT_BINS)
    low, first, middle, third, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    bins, _ = np.histogram(values, bins=WEIGHT_BINS, range=(0.0, 1.0))
    return Weights(
        country,
        variant,
        len(values),
        (low, first, middle, third, high),
        float(values.mean()),
        float((values >= 1.0).mean()),
        tuple(int(count) for count in bins),
    )


def curves(study: Study) -> tuple[Curve, ...]:
    """Return the mean loss of each variant's units on all their data, over their training."""
    table = read_curves(study).filter(pl.col("share") == 1.0).drop_nulls("loss")
    done = pl.col("step") / pl.col("step").max().over("unit")
    bins = (done * CURVE_BINS).ceil().clip(1, CURVE_BINS)
    # Sums in the order of the units: in any other, the last digits would differ from run to run.
    each = (
        table.with_columns(bin=bins)
        .group_by("variant", "unit", "bin", maintain_order=True)
        .agg(pl.col("loss").mean())
    )
    mean = (
        each.group_by("variant", "bin", maintain_order=True)
        .agg(pl.col("loss").mean(), n=pl.len())
        .sort("bin")
    )
    found = []
    for variant in study.variants:
        mine = mean.filter(pl.col("variant") == variant)
        points = tuple((at / CURVE_BINS, loss, n) for _, at, loss, n in mine.iter_rows())
        if points:
            found.append(Curve(variant, points))
    return tuple(found)
