"""All figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse

from habitus.metrics.bootstrap import RESAMPLES, Estimate, estimate, merge_clusters
from habitus.metrics.compare import against_chance, paired, with_holm
from habitus.metrics.credit import MISSING, codes, credits
from habitus.metrics.groups import Groups, make_groups
from habitus.metrics.statistics import Floats, Ints, detectable_difference
from habitus.types import Comparison, Metric, Status

ACCURACY_KEYS: tuple[tuple[str, ...], ...] = (
    (),
    ("culture",),
    ("country",),
    ("language",),
    ("domain",),
    ("source",),
    ("script",),
    ("family",),
    ("joshi_class",),
    ("culture", "domain"),
)
"""What accuracy and chance are grouped by (papers: CARB A1, with its three linguistic axes)."""

BASELINES = ("random", "longest", "shortest")
"""What needs no knowledge: a random pick, the longest and the shortest response."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Summary:
    """The figures of one run."""

    metrics: tuple[Metric, ...]
    """In an order that depends on the items only."""
    comparisons: tuple[Comparison, ...]
    """The run against each baseline, corrected after Holm."""


@dataclass(frozen=True)
class _Run:
    """A run's items with their judgements, aligned to the items' order."""

    table: pl.DataFrame
    """Items with `status`, `credit`, and of the passes `n_shown`, `looked_again`, `flipped`,
    `positions` and `mass`."""
    judged: Mask
    """True where there is a verdict."""
    cluster: Ints
    """The cluster of each item, by parent."""
    seed: int
    """Seed of the resampling."""
    resamples: int
    """Number of bootstrap replicates."""

    def column(self, name: str) -> Floats:
        """Return a column as numbers, NaN for null."""
        return self.table[name].cast(pl.Float64).to_numpy()

    def means(
        self,
        purpose: str,
        values: Floats,
        mask: Mask,
        groups: Groups,
        weights: sparse.csr_array | None = None,
    ) -> tuple[Estimate, ...]:
        """Estimate the mean of `values` over the items in `mask`, in each group."""
        clusters = merge_clusters(
            self.cluster[mask], groups.cell[mask], values[mask], groups.n_cells
        )
        chosen = groups.weights if weights is None else weights
        return estimate(clusters, chosen, self.seed, purpose, self.resamples)


def summarise(
    items: pl.DataFrame,
    judgements: pl.DataFrame,
    *,
    languages: pl.DataFrame,
    seed: int,
    label: str,
    resamples: int = RESAMPLES,
) -> Summary:
    """Compute all figures of one run.

    `n` is what a figure rests on; `n_excluded` are the items left out because their judgement
    failed or is missing (`accuracy_failures_wrong` leaves out the missing ones only).

    Args:
        items: Table of `read_items`.
        judgements: Table of `read_judgements`.
        languages: Columns `language` (BCP 47, each once), `script`, `family`, `joshi_class`.
        seed: Seed of the resampling.
        label: Names the run in the comparisons.
        resamples: Number of bootstrap replicates.

    Returns:
        Metrics and the comparisons against the baselines; None where nothing can be said.

    Raises:
        InputError: When items and judgements do not belong together.
    """
    earned = credits(items, judgements)
    columns = ("n_shown", "looked_again", "flipped", "positions", "mass")
    looks = judgements.select("item_id", *columns)
    table = items.with_columns(earned["status"], earned["credit"]).join(
        looks, on="item_id", how="left", maintain_order="left"
    )
    judged = table["credit"].is_not_null().to_numpy()
    run = _Run(table, judged, codes(table["parent"]), seed, resamples)
    groups = make_groups(table, ACCURACY_KEYS, languages)
    accuracy = run.means("accuracy", run.column("credit"), judged, groups)
    metrics = [
        *_by_group("accuracy", accuracy, groups, judged),
        *_chance(run, groups),
        _failures_wrong(run),
        _macro(run, groups),
        *_status_counts(table),
        _share(run, "tie_rate", (table["status"] == str(Status.TIE)).to_numpy(), judged),
        *_baselines(run),
        *_flips(run),
        *_letters(run),
        _detectable(accuracy[0], judged),
    ]
    return Summary(tuple(metrics), _comparisons(run, label, accuracy[0]))


def _metric(
    name: str, found: Estimate, n: int, n_excluded: int, group: dict[str, str] | None = None
) -> Metric:
    """Make a metric of an estimate."""
    return Metric(
        name=name,
        value=found.value,
        n=n,
        n_excluded=n_excluded,
        ci_low=found.low,
        ci_high=found.high,
        group=group or {},
        interval=found.interval,
    )


def _sizes(groups: Groups, mask: Mask) -> list[int]:
    """Count the items of `mask` in each group."""
    by_cell = np.bincount(groups.cell[mask], minlength=groups.n_cells)
    sizes: npt.NDArray[np.float64] = groups.weights.T @ by_cell
    return [round(size) for size in sizes.tolist()]


def _by_group(
    name: str, found: Sequence[Estimate], groups: Groups, mask: Mask, baseline: str | None = None
) -> Iterator[Metric]:
    """Make a metric of each group's estimate over the items in `mask`."""
    extra = {} if baseline is None else {"baseline": baseline}
    kept, left_out = _sizes(groups, mask), _sizes(groups, ~mask)
    for label, one, n, n_excluded in zip(groups.labels, found, kept, left_out, strict=True):
        yield _metric(name, one, n, n_excluded, extra | label)


def _exact_means(run: _Run, values: Floats, mask: Mask, groups: Groups) -> list[Estimate]:
    """Return group means of figures that are known, not sampled, and so have no interval."""
    clusters = merge_clusters(
        np.zeros(int(mask.sum()), dtype=np.int64), groups.cell[mask], values[mask], groups.n_cells
    )
    sums = (clusters.multiplicity @ clusters.sums) @ groups.weights
    return [
        Estimate(total / n if n else None, None, None, None, 0.0)
        for total, n in zip(sums.tolist(), _sizes(groups, mask), strict=True)
    ]


def _chance(run: _Run, groups: Groups) -> Iterator[Metric]:
    """Yield the accuracy that random picks are expected to have, by group."""
    means = _exact_means(run, run.column("chance"), run.judged, groups)
    return _by_group("chance", means, groups, run.judged)


def _share(run: _Run, name: str, holds: Mask, mask: Mask) -> Metric:
    """Return the share of the items in `mask` for which something holds."""
    [found] = run.means(name, holds.astype(np.float64), mask, make_groups(run.table, [()]))
    return _metric(name, found, int(mask.sum()), int((~mask).sum()))


def _failures_wrong(run: _Run) -> Metric:
    """Return the accuracy when failures count as wrong answers; missing ones stay left out."""
    name = "accuracy_failures_wrong"
    finished = (run.table["status"] != MISSING).to_numpy()
    values = np.where(run.judged, run.column("credit"), 0.0)
    [found] = run.means(name, values, finished, make_groups(run.table, [()]))
    return _metric(name, found, int(finished.sum()), int((~finished).sum()))


def _macro(run: _Run, groups: Groups) -> Metric:
    """Return the mean of the accuracies of all culture x domain cells (papers: CARB A1).

    Each item weighs 1 / (items in its cell), and the weights are held fixed in the bootstrap, so
    that cells of one item do not drop out of a replicate and make the interval too narrow.
    """
    pairs = [index for index, label in enumerate(groups.labels) if len(label) == 2]
    members = groups.weights[:, pairs]
    by_cell = np.bincount(groups.cell[run.judged], minlength=groups.n_cells)
    sizes = np.asarray(by_cell @ members, dtype=np.float64)
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    weights = sparse.csr_array((members @ inverse)[:, None])
    credit = run.column("credit")
    name = "accuracy_macro"
    [found] = run.means(name, credit, run.judged, groups, weights)
    inside = np.asarray(members.sum(axis=1))[groups.cell] > 0
    n = int((inside & run.judged).sum())
    return _metric(name, found, n, int((inside & ~run.judged).sum()))


def _status_counts(table: pl.DataFrame) -> Iterator[Metric]:
    """Yield how many items ended in each status, zeros too, and failures by language."""
    counts = dict(table["status"].value_counts().iter_rows())
    known = [str(status) for status in Status]
    for status in [*known, MISSING] if MISSING in counts else known:
        yield Metric(
            name="status_count",
            value=counts.get(status, 0),
            n=table.height,
            group={"status": status},
        )
    failures = [str(status) for status in Status if not status.judged]
    spoken = table.filter(pl.col("language").is_not_null())
    sizes = dict(spoken["language"].value_counts().iter_rows())
    failed = spoken.filter(pl.col("status").is_in(failures)).group_by("status", "language").len()
    for status, language, number in sorted(failed.iter_rows()):
        yield Metric(
            name="status_count",
            value=number,
            n=sizes[language],
            group={"status": status, "language": language},
        )


def _baselines(run: _Run) -> Iterator[Metric]:
    """Yield the baselines' accuracy on the judged items, in all and by domain."""
    groups = make_groups(run.table, [(), ("domain",)])
    for baseline in BASELINES:
        name = "baseline_accuracy"
        found: Sequence[Estimate]
        if baseline == "random":
            found = _exact_means(run, run.column("chance"), run.judged, groups)
        else:
            values = run.column(f"{baseline}_credit")
            found = run.means(f"{name}/{baseline}", values, run.judged, groups)
        yield from _by_group(name, found, groups, run.judged, baseline)


def _flips(run: _Run) -> Iterator[Metric]:
    """Yield how often the picked candidate depends on the order, in all and by language."""
    several = run.judged & run.table["looked_again"].fill_null(False).to_numpy()
    flips = run.table["flipped"].fill_null(False).to_numpy().astype(np.float64)
    groups = make_groups(run.table, [(), ("language",)])
    found = run.means("flip_rate", flips, several, groups)
    failed = _sizes(groups, ~run.judged)
    for label, one, n, n_excluded in zip(
        groups.labels, found, _sizes(groups, several), failed, strict=True
    ):
        if n or not label:
            yield _metric("flip_rate", one, n, n_excluded, label)


def _letters(run: _Run) -> Iterator[Metric]:
    """Yield how often each position was picked, and the mean probability on the letters."""
    judged = run.table.filter(run.table["credit"].is_not_null())
    failed = run.table.height - judged.height
    seen = judged.filter(pl.col("positions").list.len() > 0)
    if seen.height:
        positions = seen["positions"].explode().to_numpy()
        letters = int(seen.select(pl.col("n_shown").max()).item())
        counts = np.bincount(positions, minlength=letters).tolist()
        for position, count in enumerate(counts):
            yield Metric(
                name="letter_share",
                value=count / len(positions),
                n=len(positions),
                n_excluded=failed,
                group={"letter": _letter(position)},
            )
    mass = judged["mass"].drop_nulls().to_numpy()
    if len(mass):
        # Sorted, so that the order of the items changes no digit.
        value = float(np.sort(mass).mean())
        yield Metric(name="letter_mass", value=value, n=len(mass), n_excluded=failed)


def _letter(position: int) -> str:
    """Return the letter of a position: A to Z, then AA, AB, ..."""
    name = ""
    position += 1
    while position:
        position, digit = divmod(position - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def _detectable(accuracy: Estimate, judged: Mask) -> Metric:
    """Return the smallest true difference to another model that these items find."""
    return Metric(
        name="detectable_difference",
        value=detectable_difference(accuracy.value, accuracy.clusters),
        n=int(judged.sum()),
        n_excluded=int((~judged).sum()),
    )


def _comparisons(run: _Run, label: str, accuracy: Estimate) -> tuple[Comparison, ...]:
    """Compare the run with each baseline on the judged items."""
    failed = int((~run.judged).sum())
    credit, cluster = run.column("credit")[run.judged], run.cluster[run.judged]
    rows = []
    for baseline in BASELINES:
        name = f"baseline:{baseline}"
        if baseline == "random":
            chance = run.column("chance")[run.judged]
            row = against_chance(label, name, credit, chance, cluster, accuracy, failed, run.seed)
        else:
            difference = credit - run.column(f"{baseline}_credit")[run.judged]
            row = paired(label, name, difference, cluster, failed, run.seed, run.resamples)
        rows.append(row)
    return with_holm(rows)
