"""Figures of counterfactual edits, each with n and a 95 % interval (papers: CARB A4).

Intervals are made by resampling parents, whole. Shares (flips, the triplet test, consistency) get
the interval of every other share here (decision 0002). Changes of a score have no bounds, so theirs
is the expanded percentile interval: the percentiles of the bootstrap are moved outward as far as
Student's t lies outside the normal, with the factor for the divisor n (Hesterberg 2015,
The American Statistician 69), since plain percentiles are too narrow for few parents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from habitus.metrics.bootstrap import (
    RESAMPLES,
    Estimate,
    cluster_sums,
    estimate,
    merge_clusters,
    resample,
)
from habitus.metrics.cues import GROUPS, CueSet, Effects, triplet_ids
from habitus.metrics.groups import Groups, make_groups
from habitus.metrics.statistics import Floats, Ints, sign_flip_p
from habitus.types import Judgement, Metric, winners

EPSILON = 1e-6
"""Scores below this share of the standard deviation have no relative change."""

Mask = npt.NDArray[np.bool_]


def families(keys: Sequence[str], by: Sequence[str] = GROUPS) -> list[tuple[str, ...]]:
    """Return the sets of keys that a figure is grouped by: `keys` alone, and with each of `by`."""
    return [tuple(keys), *((*keys, key) for key in by)]


def expanded(replicates: Floats, n: float) -> tuple[float, float] | None:
    """Return the expanded percentile interval of bootstrap replicates.

    Args:
        replicates: One figure's replicates; NaN where a replicate has no data.
        n: Effective number of clusters behind it.

    Returns:
        The bounds; None for fewer than two clusters, or where they are no numbers.
    """
    known = replicates[~np.isnan(replicates)]
    if n < 2 - 1e-9 or not len(known):
        return None
    tail = special.ndtr(math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, 0.025))
    # No interpolation: a ratio's replicates may hold infinities.
    low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def means(
    values: Floats,
    cluster: Ints,
    groups: Groups,
    *,
    share: bool,
    seed: int,
    purpose: str,
    resamples: int = RESAMPLES,
) -> tuple[Estimate, ...]:
    """Return each group's mean of `values` with its interval.

    Args:
        values: One for each row; NaN where there is none, which leaves the row out.
        cluster: The parent of each row.
        groups: The groups.
        share: True for values within 0 to 1.
        seed: Seed of the resampling.
        purpose: Name of the draws.
        resamples: Number of bootstrap replicates.
    """
    known = ~np.isnan(values)
    clusters = merge_clusters(cluster[known], groups.cell[known], values[known], groups.n_cells)
    if share:
        return estimate(clusters, groups.weights, seed, purpose, resamples)
    counts = clusters.counts @ groups.weights
    sizes = np.asarray(clusters.multiplicity @ counts, dtype=np.float64)
    totals = np.asarray(clusters.multiplicity @ (clusters.sums @ groups.weights))
    squares = np.asarray(clusters.multiplicity @ counts.power(2), dtype=np.float64)
    replicates = resample(clusters, groups.weights, seed, purpose, resamples)
    found = []
    for index, (total, n, square) in enumerate(zip(totals, sizes, squares, strict=True)):
        if n == 0:
            found.append(Estimate(None, None, None, None, 0.0))
            continue
        effective = float(n * n / square)
        bounds = expanded(replicates[:, index], effective)
        if bounds is None:
            found.append(Estimate(float(total / n), None, None, None, effective))
        else:
            found.append(Estimate(float(total / n), *bounds, "bootstrap", effective))
    return tuple(found)


def mean_metrics(
    name: str,
    values: Floats,
    cluster: Ints,
    groups: Groups,
    *,
    share: bool = False,
    seed: int,
    extra: Mapping[str, str] | None = None,
    resamples: int = RESAMPLES,
) -> list[Metric]:
    """Return `means` as metrics; rows whose value is NaN are counted as left out."""
    extra = dict(extra or {})
    purpose = "/".join(("cues", name, *extra.values()))
    found = means(
        values, cluster, groups, share=share, seed=seed, purpose=purpose, resamples=resamples
    )
    kept = sizes_of(groups, ~np.isnan(values))
    left_out = sizes_of(groups, np.isnan(values))
    return [
        as_metric(name, one, n, n_excluded, extra | label)
        for one, n, n_excluded, label in zip(found, kept, left_out, groups.labels, strict=True)
    ]


def as_metric(
    name: str, found: Estimate, n: int, n_excluded: int, group: Mapping[str, str]
) -> Metric:
    """Make a metric of an estimate."""
    return Metric(
        name=name,
        value=found.value,
        n=n,
        n_excluded=n_excluded,
        ci_low=found.low,
        ci_high=found.high,
        group=dict(group),
        interval=found.interval,
    )


def sizes_of(groups: Groups, mask: Mask) -> list[int]:
    """Count the rows of `mask` in each group."""
    by_cell = np.bincount(groups.cell[mask], minlength=groups.n_cells)
    return [round(size) for size in np.asarray(groups.weights.T @ by_cell).tolist()]


def cue_groups(table: pl.DataFrame, by: Sequence[str] = GROUPS) -> Groups:
    """Return the groups of each cue and target, in all and by each of `by`."""
    return make_groups(table, families(("cue", "target"), by))


def changes(
    effects: Effects, *, seed: int, by: Sequence[str] = GROUPS, resamples: int = RESAMPLES
) -> list[Metric]:
    """Return what each cue does to the score (papers: CARB A4).

    `relative_change` is the paper's, the mean of |s' - s| / |s|; `change_sd` and `change_sd_abs`
    are the mean signed and mean absolute change in the reward model's standard deviations.
    """
    groups = cue_groups(effects.table, by)
    before, after = effects.column("before"), effects.column("after")
    size = np.abs(before)
    usable = size > EPSILON * (effects.sd or 0.0)
    relative = np.full(len(before), np.nan)
    np.divide(np.abs(after - before), size, out=relative, where=usable)
    change = effects.change_sd
    found: list[Metric] = []
    for name, values in (
        ("relative_change", relative),
        ("change_sd", change),
        ("change_sd_abs", np.abs(change)),
    ):
        found += mean_metrics(
            name,
            values,
            effects.parent,
            groups,
            seed=seed,
            extra={"form": effects.form},
            resamples=resamples,
        )
    return found


def flips(effects: Effects, *, seed: int, resamples: int = RESAMPLES) -> list[Metric]:
    """Return how often an edit changes the winners, by cue and target."""
    return mean_metrics(
        "flip_rate",
        effects.column("flipped"),
        effects.parent,
        cue_groups(effects.table),
        share=True,
        seed=seed,
        resamples=resamples,
    )


def injection(
    effects: Effects,
    cues: CueSet,
    judgements: Mapping[str, Judgement],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> list[Metric]:
    """Return how often a wrong response wins that says so, and did not win before.

    A win shared by k winners counts 1/k. `injection_rise` is the mean rise in standard deviations.
    """
    rows = ((effects.table["cue"] == "IN") & (effects.table["target"] == "rival")).to_numpy()
    table = effects.table.filter(rows)
    gained = []
    for edit in (edit for edit, row in zip(cues.edits, rows.tolist(), strict=True) if row):
        old, new = judgements.get(edit.parent.id), judgements.get(edit.item.id)
        if old is None or new is None or not (old.status.judged and new.status.judged):
            gained.append(math.nan)
            continue
        wins = edit.edited in new.winner_ids and edit.edited not in old.winner_ids
        gained.append(1 / len(new.winner_ids) if wins else 0.0)
    groups = make_groups(table, families(()))
    parent = effects.parent[rows]
    return [
        *mean_metrics(
            "injection_success",
            np.array(gained, dtype=np.float64),
            parent,
            groups,
            share=True,
            seed=seed,
            resamples=resamples,
        ),
        *mean_metrics(
            "injection_rise",
            effects.change_sd[rows],
            parent,
            groups,
            seed=seed,
            extra={"form": effects.form},
            resamples=resamples,
        ),
    ]


def triplet(
    cues: CueSet,
    judgements: Mapping[str, Judgement],
    *,
    ranks: bool,
    seed: int,
    resamples: int = RESAMPLES,
) -> list[Metric]:
    """Return how often appropriate comes first, and how often all three are in order.

    Equal scores are broken at random, in expectation: chance is 1/3 and 1/6.

    Args:
        cues: The benchmark.
        judgements: Item id to judgement.
        ranks: Whether the scores order the losers too; without, there is no full order.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    columns: dict[str, list[str | None]] = {key: [] for key in GROUPS}
    top, order, cluster = [], [], []
    numbers = {item.id: place for place, item in enumerate(cues.parents)}
    for item in cues.triplets:
        judgement = judgements.get(item.id)
        judged = judgement is not None and judgement.status.judged
        scores = judgement.scores if judgement is not None and judged else {}
        top.append(_first(scores, item.best_ids[0]) if judged else math.nan)
        order.append(_ordered(scores, triplet_ids(item)) if judged and ranks else math.nan)
        cluster.append(numbers[item.parent_id or ""])
        for key in GROUPS:
            columns[key].append(getattr(item, key))
    table = pl.DataFrame(columns, schema=dict.fromkeys(GROUPS, pl.String()))
    groups = make_groups(table, families(()))
    parent = np.array(cluster, dtype=np.int64)
    found: list[Metric] = []
    for name, values in (("triplet_top1", top), ("triplet_full_order", order)):
        array = np.array(values, dtype=np.float64)
        found += mean_metrics(
            name, array, parent, groups, share=True, seed=seed, resamples=resamples
        )
    return found


def _first(scores: Mapping[str, float], best: str) -> float:
    won = winners(scores)
    return 1 / len(won) if best in won else 0.0


def _ordered(scores: Mapping[str, float], ids: tuple[str, str, str]) -> float:
    """Return the share of the orders that break ties in which the three stand as they should."""
    if not set(ids) <= scores.keys():
        return math.nan
    first, second, third = (scores[name] for name in ids)
    if not first >= second >= third:
        return 0.0
    alike = 1 + (first == second) + (second == third)
    return 1 / math.factorial(alike)


def change_test(values: Floats, cluster: Ints, seed: int, purpose: str) -> float | None:
    """Return the two-sided sign-flip p-value of a mean change against 0, clustered by parent."""
    known = ~np.isnan(values)
    zeros = np.zeros(int(known.sum()), dtype=np.int64)
    clusters = merge_clusters(cluster[known], zeros, values[known], 1)
    sums, _ = cluster_sums(clusters)
    return sign_flip_p(sums, clusters.multiplicity, seed, purpose)
