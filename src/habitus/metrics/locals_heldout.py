"""Figures of a judge on held-out pairs: with criteria, without and after borrowed ones, by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from habitus.metrics.bootstrap import RESAMPLES, estimate, merge_clusters, resample

TIE = 1e-6
"""A probability that is so near to one half is a tie."""

BY = ("source", "language", "country", "culture")
"""Figures are also given for each value of these."""


def figures(
    records: Sequence[Mapping[str, Any]], *, seed: int = 0, resamples: int = RESAMPLES
) -> list[dict[str, Any]]:
    """Return the figures of records, over all and over each source, language and country.

    Args:
        records: One for each pair: `group`, each of `BY`, and for each of `WAYS` the
            log-probability of the right letter, shown `first` and `second`, or None.
        seed: Seed of the bootstrap.
        resamples: Number of its replicates.
    """
    parts: list[tuple[dict[str, str], list[Mapping[str, Any]]]] = [({}, list(records))]
    for name in BY:
        known = sorted({str(record[name]) for record in records if record[name] is not None})
        for value in known if len(known) > 1 else ():
            parts.append(({name: value}, [r for r in records if r[name] == value]))
    found = []
    for group, own in parts:
        for way, kind in WAYS.items():
            for measure, value_of in VALUES.items():
                values = [value_of(record[kind]) for record in own]
                found.append(_figure(measure, way, values, own, group, seed, resamples))
        rises = [appr(record) for record in own]
        found.append(_figure("r_appr", "with", rises, own, group, seed, resamples))
    return found


def _probability(look: Mapping[str, Any]) -> float | None:
    if look["first"] is None:
        return None
    return (math.exp(look["first"]) + math.exp(look["second"])) / 2


def _accuracy(look: Mapping[str, Any]) -> float | None:
    p = _probability(look)
    return None if p is None else 0.5 if abs(p - 0.5) < TIE else float(p > 0.5)


def _both(look: Mapping[str, Any]) -> float | None:
    if look["first"] is None:
        return None
    return float(min(look["first"], look["second"]) > math.log(0.5))


def _p_a(look: Mapping[str, Any]) -> float | None:
    """Share of the two looks that favour A: the right one first, the wrong one first."""
    if look["first"] is None:
        return None
    half = math.log(0.5)
    return (float(look["first"] > half) + float(look["second"] < half)) / 2


def appr(record: Mapping[str, Any], way: str = "with") -> float | None:
    """Return a pair's R_appr, not clipped, as the mean over both orders; None without a verdict.

    Args:
        record: Of the pair.
        way: After which criteria: `with`, the judge's own, or `borrowed`.
    """
    after, before = record[WAYS[way]], record["plain"]
    if after["first"] is None or before["first"] is None:
        return None
    rise = (after[order] - before[order] for order in ("first", "second"))
    return float(sum(rise) / 2)


def log_loss(look: Mapping[str, Any]) -> float | None:
    """Return the mean negative log-probability of the right letter in both orders, in nats.

    A proper score: in the mean a judge has least when it is as sure as it is right. One half said to
    everything has 0.693.

    Args:
        look: A pair's, in one of `WAYS`; without a verdict the value is None.
    """
    if look["first"] is None:
        return None
    return -float(look["first"] + look["second"]) / 2


@dataclass(frozen=True)
class Calibration:
    """How sure a judge is, and how often it is right; a look is one pair in one order."""

    n: int
    """Pairs that it judged."""
    confidence: float
    """Mean probability of the likelier letter, 0.5 to 1."""
    right: float
    """Share of looks whose likelier letter is the right one."""
    overconfidence: float
    """`confidence` less `right`: above 0 it is surer than it is right."""
    ci_low: float | None
    """Lower bound of the 95 % interval of `overconfidence` over groups; None for fewer than two."""
    ci_high: float | None
    """Upper bound."""
    log_loss: float
    """Mean of `log_loss` over pairs."""
    loss_low: float | None
    """Lower bound of its 95 % interval over groups; None for fewer than two."""
    loss_high: float | None
    """Upper bound."""


def calibration(
    records: Sequence[Mapping[str, Any]], way: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> Calibration | None:
    """Return how sure a judge is on records, as in `figures`; None where it judged none.

    Args:
        records: The records.
        way: One of `WAYS`.
        seed: Seed of the bootstrap.
        resamples: Number of its replicates.
    """
    looks = [(record[WAYS[way]], str(record["group"])) for record in records]
    known = [(look, group) for look, group in looks if look["first"] is not None]
    if not known:
        return None
    odds = np.exp([(look["first"], look["second"]) for look, _ in known])
    confidence = np.maximum(odds, 1 - odds).mean(axis=1)
    right = np.where(np.abs(odds - 0.5) < TIE, 0.5, odds > 0.5).mean(axis=1)
    gap = confidence - right
    gaps = [(float(each), group) for each, (_, group) in zip(gap, known, strict=True)]
    _, low, high = _mean(gaps, f"calibration {way}", seed, resamples, share=False)
    losses = [(loss, group) for look, group in known if (loss := log_loss(look)) is not None]
    mean, least, most = _mean(losses, f"log loss {way}", seed, resamples, share=False)
    assert mean is not None  # of pairs that were judged
    return Calibration(
        n=len(known),
        confidence=float(confidence.mean()),
        right=float(right.mean()),
        overconfidence=float(gap.mean()),
        ci_low=low,
        ci_high=high,
        log_loss=mean,
        loss_low=least,
        loss_high=most,
    )


WAYS = {"with": "criteria", "without": "plain", "borrowed": "borrowed"}
"""How a pair was judged, to where a record has it: after the judge's own criteria, without, and after
criteria that it wrote about another question."""

VALUES: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    "accuracy": _accuracy,
    "both_orders": _both,
    "p_a": _p_a,
}
"""Measure to its value for one pair, in 0 to 1; None where the judge gave no verdict."""


def _figure(
    name: str,
    way: str,
    values: Iterable[float | None],
    records: Sequence[Mapping[str, Any]],
    group: dict[str, str],
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    known = [(v, str(r["group"])) for v, r in zip(values, records, strict=True) if v is not None]
    value, low, high = _mean(known, name, seed, resamples, share=name != "r_appr")
    return {
        "name": name,
        "criteria": way,
        "value": value,
        "n": len(known),
        "n_excluded": len(records) - len(known),
        "ci_low": low,
        "ci_high": high,
        "group": group,
    }


def _mean(
    known: Sequence[tuple[float, str]], name: str, seed: int, resamples: int, *, share: bool
) -> tuple[float | None, float | None, float | None]:
    """Return the mean with its interval; a mean that is no share has none below two groups."""
    if not known:
        return None, None, None
    numbers = np.array([value for value, _ in known])
    codes = {label: place for place, label in enumerate(sorted({label for _, label in known}))}
    cluster = np.array([codes[label] for _, label in known], dtype=np.int64)
    clusters = merge_clusters(cluster, np.zeros(len(known), dtype=np.int64), numbers, 1)
    weights = sparse.csr_array(np.ones((1, 1)))
    if share:
        (found,) = estimate(clusters, weights, seed, f"locals {name}", resamples)
        return found.value, found.low, found.high
    mean = float(numbers.mean())
    if len(codes) < 2:
        return mean, None, None
    replicates = resample(clusters, weights, seed, f"locals {name}", resamples)[:, 0]
    low, high = np.nanpercentile(replicates, [2.5, 97.5])
    return mean, float(low), float(high)
