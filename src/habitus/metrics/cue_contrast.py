"""The core concept against the surface (papers: CARB A4).

How much more a change of the concept moves the score than changes of the surface do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from scipy import sparse

from habitus.metrics.bootstrap import RESAMPLES, Estimate, merge_clusters, resample
from habitus.metrics.cue_figures import Mask, as_metric, expanded, families, sizes_of
from habitus.metrics.cues import GROUPS, SPURIOUS, Effects
from habitus.metrics.groups import Groups, make_groups
from habitus.metrics.statistics import Floats, Ints, generator, wilson
from habitus.types import Metric

_CHUNK_ELEMENTS = 4_000_000  # numbers held at a time: 32 MB


def causal_to_spurious(
    effects: Effects, *, seed: int, by: Sequence[str] = GROUPS, resamples: int = RESAMPLES
) -> list[Metric]:
    """Return the mean |change| of CC over the mean of those of RC, CL and RP, and its log.

    The cues weigh alike, and are resampled jointly by parent. Edits of wrong responses do not
    count. Without a bound (surface edits change nothing) the value is None while n is not 0.
    """
    wanted = effects.table["cue"].is_in(["CC", *SPURIOUS]) & (effects.table["target"] == "best")
    rows = wanted.to_numpy()
    table, values = effects.table.filter(wanted), np.abs(effects.change_sd[rows])
    groups = make_groups(table, families(("cue",), by))
    known = ~np.isnan(values)
    clusters = merge_clusters(
        effects.parent[rows][known], groups.cell[known], values[known], groups.n_cells
    )
    purpose = f"cues/causal_to_spurious/{effects.form}"
    replicates = resample(clusters, groups.weights, seed, purpose, resamples)
    sums = np.asarray(clusters.multiplicity @ (clusters.sums @ groups.weights), dtype=np.float64)
    kept, left_out = sizes_of(groups, known), sizes_of(groups, ~known)
    sizes = np.array(kept, dtype=np.float64)
    observed = np.divide(sums, sizes, out=np.full(len(sums), np.nan), where=sizes > 0)
    found = []
    for label, columns in _by_cue(groups).items():
        n = sum(kept[column] for column in columns.values())
        excluded = sum(left_out[column] for column in columns.values())
        log = _log_ratio(observed[None, :], columns)[0]
        parents = len(np.unique(effects.parent[rows][known & _members(groups, columns)]))
        bounds = expanded(_log_ratio(replicates, columns), parents) if np.isfinite(log) else None
        both = "CC" in columns and len(columns) > 1 and not math.isnan(log)
        for name, scale in (("causal_to_spurious", math.exp), ("causal_to_spurious_log", float)):
            found.append(
                Metric(
                    name=name,
                    value=scale(log) if np.isfinite(log) else None,
                    n=n if both else 0,
                    n_excluded=excluded if both else excluded + n,
                    ci_low=scale(bounds[0]) if bounds else None,
                    ci_high=scale(bounds[1]) if bounds else None,
                    group={"form": effects.form} | dict(label),
                    interval="bootstrap" if bounds else None,
                )
            )
    return found


def _by_cue(groups: Groups) -> dict[tuple[tuple[str, str], ...], dict[str, int]]:
    """Return, for each group without the cue, the column of each cue."""
    found: dict[tuple[tuple[str, str], ...], dict[str, int]] = {(): {}}
    for column, label in enumerate(groups.labels):
        rest = tuple((key, value) for key, value in label.items() if key != "cue")
        found.setdefault(rest, {})[label["cue"]] = column
    return found


def _members(groups: Groups, columns: Mapping[str, int]) -> Mask:
    if not columns:
        return np.zeros(len(groups.cell), dtype=bool)
    inside: Mask = (
        np.asarray(groups.weights[:, list(columns.values())].sum(axis=1))[groups.cell] > 0
    )
    return inside


def _log_ratio(table: Floats, columns: Mapping[str, int]) -> Floats:
    """Return log(CC / mean of the surface cues there are) of each row; NaN without either."""
    surface = [columns[cue] for cue in SPURIOUS if cue in columns]
    if "CC" not in columns or not surface:
        return np.full(len(table), np.nan)
    parts = table[:, surface]
    there = ~np.isnan(parts)
    n = there.sum(axis=1)
    total = np.where(there, parts, 0.0).sum(axis=1)
    low = np.divide(total, n, out=np.full(len(table), np.nan), where=n > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.log(table[:, columns["CC"]]) - np.log(low)
    return ratio


def auc(
    effects: Effects, *, seed: int, by: Sequence[str] = GROUPS, resamples: int = RESAMPLES
) -> list[Metric]:
    """Return the probability that a CC edit lowers the score more than a surface edit does.

    Over all pairs of a CC edit and an RC, CL or RP edit, of the same parent or not; equal drops
    count a half (Mann-Whitney). 0.5 is what a reward model earns that cannot tell them apart.
    """
    change = effects.change_sd
    wanted = effects.table["cue"].is_in(["CC", *SPURIOUS]) & (effects.table["target"] == "best")
    rows = wanted.to_numpy()
    table = effects.table.filter(wanted)
    drop, causal = -change[rows], (table["cue"] == "CC").to_numpy()
    parent = effects.parent[rows]
    groups = make_groups(table, families((), by))
    found = []
    for column, label in enumerate(groups.labels):
        inside = np.asarray(groups.weights[:, [column]].toarray())[groups.cell, 0] > 0
        known = inside & ~np.isnan(drop)
        purpose = "/".join(("cues/auc", effects.form, *label.values()))
        one = _auc(drop[known], causal[known], parent[known], seed, purpose, resamples)
        n, missing = int(known.sum()), int((inside & ~known).sum())
        if one.value is None:
            n, missing = 0, n + missing
        found.append(as_metric("auc", one, n, missing, {"form": effects.form} | label))
    return found


def _auc(
    drop: Floats, causal: Mask, parent: Ints, seed: int, purpose: str, resamples: int
) -> Estimate:
    """Return the Mann-Whitney probability with a bootstrap over parents."""
    if not causal.any() or causal.all():
        return Estimate(None, None, None, None, 0.0)
    _, place = np.unique(np.round(drop, 9), return_inverse=True)
    _, cluster = np.unique(parent, return_inverse=True)
    shape = (int(cluster.max()) + 1, int(place.max()) + 1)
    ones = np.ones(len(drop))

    def table(mask: Mask) -> sparse.csr_array:
        entries = (ones[mask], (cluster[mask], place[mask]))
        return sparse.csr_array(sparse.coo_array(entries, shape=shape))

    high, low = table(causal), table(~causal)

    def shares(weights: Floats) -> Floats:
        first, second = weights @ high, weights @ low
        below = np.cumsum(second, axis=1) - second / 2
        pairs = first.sum(axis=1) * second.sum(axis=1)
        result = np.full(len(weights), np.nan)
        np.divide((first * below).sum(axis=1), pairs, out=result, where=pairs > 0)
        return result

    value = float(shares(np.ones((1, shape[0])))[0])
    random = generator(seed, purpose)
    step = max(1, _CHUNK_ELEMENTS // max(shape))
    draws = [
        shares(
            random.multinomial(
                shape[0], np.full(shape[0], 1 / shape[0]), size=min(step, resamples - start)
            ).astype(np.float64)
        )
        for start in range(0, resamples, step)
    ]
    bounds = expanded(np.concatenate(draws), shape[0])
    if bounds is None or bounds[0] == bounds[1]:
        return Estimate(value, *wilson(value, shape[0]), "wilson", float(shape[0]))
    return Estimate(value, *bounds, "bootstrap", float(shape[0]))


def causal_minus_surface(effects: Effects) -> tuple[Floats, Ints]:
    """Return, by parent, the mean |change| of its CC edits minus that of its surface edits.

    Returns:
        The differences in standard deviations, and the parents' numbers; a parent that lacks
        either is left out.
    """
    rows = effects.table.with_columns(size=pl.Series(np.abs(effects.change_sd))).filter(
        (pl.col("target") == "best") & ~pl.col("size").is_nan()
    )
    causal = rows.filter(pl.col("cue") == "CC").group_by("parent").agg(cc=pl.col("size").mean())
    surface = (
        rows.filter(pl.col("cue").is_in(SPURIOUS)).group_by("parent").agg(sf=pl.col("size").mean())
    )
    both = causal.join(surface, on="parent").sort("parent")
    difference = (both["cc"] - both["sf"]).to_numpy()
    return difference, both["parent"].to_numpy().astype(np.int64)
