"""Figures over several trainings of a judge: curves, paired tests on held-out pairs, seeds, cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.locals_arms import WORDS, Arm, arms_of, between, pair_values, paired_columns
from habitus.metrics.locals_heldout import VALUES, WAYS, Calibration, calibration, log_loss
from habitus.metrics.locals_read import LocalsRun
from habitus.metrics.locals_rises import Rise, rises
from habitus.metrics.locals_steps import StepTest, step_tests
from habitus.types import Comparison, Metric

BINS = 40
"""Most points of a curve: steps are averaged in so many equal parts of training."""

TESTED = ("accuracy", "both_orders")
"""Measures of `paired_tests`."""

LOSS = "log_loss"
"""The measure of `loss_tests`."""

OTHERS = ("without", "borrowed")
"""What judging with criteria is compared with, in the same run."""

CURVES = (
    *("accuracy", "both_orders", "p_a", "r_corr", "r_appr", "total", "parse_rate"),
    *("criteria_chars", "kl", "entropy", "flat_groups", "tokens_per_second"),
)
"""Figures of a step that are drawn, in reading order."""

LOSSES = ("verdict_loss", "warmup_loss")
"""Supervised steps before criteria are sampled, and after."""

PARTS = ("seconds_generate", "seconds_score", "seconds_train")
"""What a step's time is spent on."""


@dataclass(frozen=True)
class Curve:
    """A figure over the steps of a run."""

    run: str
    """Label of the run."""
    name: str
    """One of `CURVES` or `LOSSES`."""
    points: tuple[tuple[float, float], ...]
    """Mean step and mean value of each part of training that has a value."""
    first: float
    """Mean over the first tenth of the steps."""
    last: float
    """Mean over the last tenth."""
    n: int
    """Steps with a value."""


@dataclass(frozen=True)
class Test:
    """A paired difference on the held-out pairs that both sides judged."""

    measure: str
    """One of `TESTED`, or `LOSS`."""
    arms: tuple[str, str]
    """Labels of the arms of both sides; equal for one, with criteria against another way."""
    against: str | None
    """That other way, one of `OTHERS`; None between arms."""
    comparison: Comparison
    """The difference, corrected after Holm over all tests that are returned with it."""

    @property
    def own(self) -> bool:
        """Whether it is one arm, with criteria against another way."""
        return self.against is not None


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed only."""

    runs: tuple[str, ...]
    """Labels."""
    measure: str
    """What was measured, each run in its own way: one of `VALUES`, or `LOSS`."""
    mean: float
    """Mean over the runs."""
    sd: float
    """Standard deviation over the runs."""


@dataclass(frozen=True)
class Cost:
    """Mean time of a step."""

    run: str
    """Label of the run."""
    steps: int
    """Steps behind it."""
    seconds: float
    """Of a whole step."""
    parts: tuple[float, ...]
    """Of writing, scoring and training, as in `PARTS`."""
    tokens_per_second: float | None
    """Written tokens over the time of writing."""


@dataclass(frozen=True)
class LocalsFigures:
    """What a report shows."""

    curves: tuple[Curve, ...]
    """Curves, run by run."""
    arms: dict[str, tuple[str, ...]]
    """Label of an arm to its runs': those that differ in their seed only are together."""
    tests: tuple[Test, ...]
    """All tests of `TESTED`."""
    losses: tuple[Test, ...]
    """Those of log loss."""
    rises: tuple[Rise, ...]
    """R_appr of each arm that judged after its own criteria and after borrowed ones, in two parts."""
    steps: tuple[StepTest, ...]
    """Tests over the steps of trainings on the same pairs."""
    calibration: dict[str, dict[str, Calibration]]
    """Label of a run to how sure it is on held-out pairs in each of `WAYS` that it judged in."""
    seeds: tuple[Seeds, ...]
    """Spread over seeds."""
    costs: tuple[Cost, ...]
    """Time of a step."""
    seed: int
    """Seed of the resampling."""


def summarise_runs(
    runs: Sequence[LocalsRun], seed: int = 0, resamples: int = RESAMPLES
) -> LocalsFigures:
    """Return the figures of runs.

    Args:
        runs: The runs.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    found = [curve for run in runs for curve in _curves(run)]
    arms = arms_of(runs)
    sure = {run.label: _calibration(run, seed, resamples) for run in runs if run.held_out}
    return LocalsFigures(
        curves=tuple(found),
        arms={arm.label: tuple(run.label for run in arm.runs) for arm in arms},
        tests=paired_tests(arms, seed, resamples),
        losses=loss_tests(arms, seed, resamples),
        rises=rises(arms, seed, resamples),
        steps=step_tests(runs, seed, resamples),
        calibration=sure,
        seeds=tuple(_seeds(arms, sure)),
        costs=tuple(cost for run in runs if (cost := _cost(run)) is not None),
        seed=seed,
    )


def _curves(run: LocalsRun) -> list[Curve]:
    found = [curve_of(run.label, name, run.curve, name) for name in CURVES]
    for name, table in zip(LOSSES, (run.verdicts, run.warmup), strict=True):
        found.append(curve_of(run.label, name, table, "loss"))
    return [curve for curve in found if curve is not None]


def curve_of(label: str, name: str, table: pl.DataFrame, column: str) -> Curve | None:
    """Return a figure over the steps of a run in at most `BINS` points; None without values.

    Args:
        label: The run.
        name: The figure.
        table: One row per step: `step`, and the column.
        column: Where its values are.
    """
    known = table.select("step", value=pl.col(column)).drop_nulls("value")
    if known.is_empty():
        return None
    steps = table.height
    place = pl.int_range(pl.len()) * min(BINS, known.height) // pl.len()
    points = (
        known.with_columns(bin=place)
        .group_by("bin", maintain_order=True)
        .agg(pl.col("step").mean(), pl.col("value").mean())
    )
    tenth = max(1, round(steps / 10))
    values = known["value"]
    return Curve(
        label,
        name,
        tuple((step, value) for _, step, value in points.iter_rows()),
        float(values[:tenth].mean()),  # type: ignore[arg-type]
        float(values[-tenth:].mean()),  # type: ignore[arg-type]
        known.height,
    )


def paired_tests(
    arms: Sequence[Arm], seed: int = 0, resamples: int = RESAMPLES
) -> tuple[Test, ...]:
    """Compare each arm with each later one, and each arm's judgements with criteria and without.

    An arm that learned to write criteria is also compared with itself after borrowed ones.

    A pair's value is the mean over the arm's runs that judged it. Arms are compared on the pairs
    that both judged, each in its own way: after criteria, and the base and those that learned
    verdicts only without.

    Args:
        arms: What is compared.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows: list[tuple[str, tuple[str, str], str | None, Comparison]] = []
    for measure in TESTED:
        tables = [(arm, _values(arm, measure)) for arm in arms]
        rows += [(measure, names, None, own) for names, own in between(tables, seed, resamples)]
        for arm, table in tables:
            for way in OTHERS if arm.runs[0].way == "with" else OTHERS[:1]:
                sides = (f"{arm.label}, {WORDS['with']}", f"{arm.label}, {WORDS[way]}")
                found = paired_columns(sides, table, ("with", way), table.height, seed, resamples)
                if way == "borrowed" and not found.n:  # nobody lends
                    continue
                rows.append((measure, (arm.label, arm.label), way, found))
    corrected = with_holm([row[-1] for row in rows])
    return tuple(
        Test(measure, names, against, comparison)
        for (measure, names, against, _), comparison in zip(rows, corrected, strict=True)
    )


def loss_tests(arms: Sequence[Arm], seed: int = 0, resamples: int = RESAMPLES) -> tuple[Test, ...]:
    """Compare each arm with each later one by log loss, in nats: less is better.

    Two judges that are right equally often differ in it where one is surer than it is right. Holm's
    correction is over these tests. Fewer than 30 groups of pairs have no interval that holds, so no
    test.

    Args:
        arms: What is compared, each in its own way of judging.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows = between([(arm, _values(arm, LOSS)) for arm in arms], seed, resamples, share=False)
    corrected = with_holm([own for _, own in rows])
    return tuple(
        Test(LOSS, names, None, own) for (names, _), own in zip(rows, corrected, strict=True)
    )


def _values(arm: Arm, measure: str) -> pl.DataFrame:
    """Return a row for each pair: `pair`, `group`, and the measure in each of `WAYS`."""
    value = log_loss if measure == LOSS else VALUES[measure]
    return pair_values(arm, tuple(WAYS), lambda each: [value(each[kind]) for kind in WAYS.values()])


def _calibration(run: LocalsRun, seed: int, resamples: int) -> dict[str, Calibration]:
    found = {
        way: calibration(run.held_out or (), way, seed=seed, resamples=resamples) for way in WAYS
    }
    return {way: each for way, each in found.items() if each is not None}


def _seeds(
    arms: Sequence[Arm], calibrations: Mapping[str, Mapping[str, Calibration]]
) -> list[Seeds]:
    def value(run: LocalsRun, measure: str) -> float | None:
        if measure == LOSS:
            own = calibrations[run.label].get(run.way)
            return None if own is None else own.log_loss
        metric = overall(run, measure, run.way)
        return None if metric is None else metric.value

    found = []
    for arm in arms:
        if len({run.config.get("seed") for run in arm.runs}) < 2:
            continue
        for measure in (*VALUES, LOSS):
            values = [figure for run in arm.runs if (figure := value(run, measure)) is not None]
            if len(values) == len(arm.runs):
                names = tuple(run.label for run in arm.runs)
                mean, sd = statistics.fmean(values), statistics.stdev(values)
                found.append(Seeds(names, measure, mean, sd))
    return found


def overall(run: LocalsRun, measure: str, criteria: str) -> Metric | None:
    """Return a run's figure over all held-out pairs, `criteria` being one of `WAYS`."""
    for metric in run.figures:
        if metric.name == measure and metric.group == {"criteria": criteria}:
            return metric
    return None


def _cost(run: LocalsRun) -> Cost | None:
    known = run.curve.drop_nulls(["seconds", *PARTS])
    if known.is_empty():
        return None
    written, writing = (float(known[name].sum()) for name in ("tokens", "seconds_generate"))
    return Cost(
        run=run.label,
        steps=known.height,
        seconds=float(known["seconds"].mean()),  # type: ignore[arg-type]
        parts=tuple(float(known[part].mean()) for part in PARTS),  # type: ignore[arg-type]
        tokens_per_second=written / writing if writing else None,
    )
