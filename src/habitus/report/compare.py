"""Charts and tables of a comparison of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.report import charts
from habitus.report.charts import Row
from habitus.report.figures import (
    Figure,
    Table,
    accuracy_row,
    baseline_rows,
    forest_table,
    heat_figure,
)
from habitus.report.findings import FAILURES, Standing
from habitus.report.model import MetricTable, ReportData
from habitus.report.text import bounds, one_line, p_value, percent, point_bounds, points, whole
from habitus.types import Comparison

MAX_RUNS_DRAWN, MAX_HEATS, MAX_PAIRS_DRAWN, MAX_PAIRS = 60, 24, 45, 500
"""Runs and pairs in charts, heat maps, and pairs in the table, of one page."""


@dataclass(frozen=True)
class Leader:
    """One line of the leaderboard."""

    rank: str
    """Rank or range of ranks."""
    label: str
    """The run."""
    scorer: str
    """Its scorer's name, when it says more than the label."""
    accuracy: float | None
    """Accuracy, in 0 to 1."""
    low: float | None
    """Lower bound of its interval."""
    high: float | None
    """Upper bound of its interval."""
    chance: float | None
    """Chance on its items."""
    shown: str
    """Accuracy for people."""
    interval: str
    """Interval for people."""
    n: int
    """Items with a verdict."""
    failures: int
    """Items without."""
    flip_rate: str
    """How often the order changes the pick."""
    place: str
    """What the tests say about it and the best: "best", "not told from the best", ..."""
    top: bool
    """True when it is the best or cannot be told from it."""


def leaders(table: Sequence[Standing]) -> tuple[Leader, ...]:
    """Return the leaderboard's lines."""
    lines = []
    alone = sum(standing.best_group for standing in table) == 1
    for standing in table:
        metrics = MetricTable(standing.data.metrics)
        accuracy = metrics.get("accuracy")
        lines.append(
            Leader(
                rank=standing.rank,
                label=one_line(standing.data.label, 120),
                scorer=_scorer(standing.data),
                accuracy=standing.accuracy,
                low=accuracy.ci_low if accuracy else None,
                high=accuracy.ci_high if accuracy else None,
                chance=metrics.value("chance"),
                shown=percent(standing.accuracy),
                interval=bounds(accuracy.ci_low, accuracy.ci_high) if accuracy else percent(None),
                n=accuracy.n if accuracy else 0,
                failures=sum(
                    whole(metrics.get("status_count", status=status)) for status in FAILURES
                ),
                flip_rate=percent(metrics.value("flip_rate"), 0),
                place=place(standing, alone),
                top=standing.best_group,
            )
        )
    return tuple(lines)


def place(standing: Standing, alone: bool) -> str:
    """Say how a run stands to the one of highest accuracy."""
    if standing.accuracy is None:
        return "no data"
    if standing.to_best is None:
        if standing.rank_low == 1 and standing.best_group:
            return "best" if alone else "highest accuracy, not alone"
        return "not compared"
    if standing.to_best.p_holm is None:
        return "not compared"
    return "not told from the best" if standing.best_group else "below the best"


def _scorer(data: ReportData) -> str:
    name = data.info.scorer.name
    return "" if data.label.startswith(name) else one_line(name, 120)


def comparison_figures(
    table: Sequence[Standing], comparisons: Sequence[Comparison]
) -> dict[str, list[Figure]]:
    """Return the figures of a comparison by section: overview, differences, heats."""
    runs = [standing.data for standing in table]
    return {
        "overview": [_overview(runs)],
        "differences": [_differences(comparisons)],
        "heats": [
            heat_figure(MetricTable(run.metrics), f"heat-{index}", run.label)
            for index, run in enumerate(runs[:MAX_HEATS])
        ],
    }


def _overview(runs: Sequence[ReportData]) -> Figure:
    rows = []
    for run in runs[:MAX_RUNS_DRAWN]:
        metrics = MetricTable(run.metrics)
        accuracy = metrics.get("accuracy")
        if accuracy is None:
            rows.append(Row(run.label, None))
        else:
            rows.append(accuracy_row(accuracy, run.label, metrics.value("chance")))
    if runs:
        rows += baseline_rows(MetricTable(runs[0].metrics), [run.info.scorer.name for run in runs])
    return Figure(
        "overview",
        "Accuracy with intervals",
        forest_table("Run", rows),
        charts.forest(rows, "Accuracy of all runs with intervals")
        if any(row.value is not None for row in rows)
        else None,
        "Dot: accuracy. Bar: 95 % interval. Dashed: chance. Grey: simple rules, on the items of the "
        "first run. Overlapping bars do not settle a comparison: the paired differences below do.",
    )


def _differences(comparisons: Sequence[Comparison]) -> Figure:
    pairs = sorted(
        comparisons,
        key=lambda pair: (pair.p_holm is None, pair.p_holm or 0.0, pair.a, pair.b),
    )
    rows = [
        Row(
            f"{one_line(pair.a, 22)} − {one_line(pair.b, 22)}",
            pair.difference,
            pair.ci_low,
            pair.ci_high,
            pair.n,
            kind="model" if pair.p_holm is not None and pair.p_holm < 0.05 else "baseline",
        )
        for pair in pairs[:MAX_PAIRS_DRAWN]
    ]
    caption = (
        "First minus second, on the items that both judged. Coloured: told apart at the 5 % level "
        "after Holm's correction. Grey: not told apart."
    )
    if len(pairs) > MAX_PAIRS_DRAWN:
        caption += f" The {MAX_PAIRS_DRAWN} clearest of {len(pairs)} pairs are drawn."
    return Figure(
        "differences",
        "Paired differences",
        difference_table(pairs),
        charts.differences(rows, "Paired differences in accuracy with intervals")
        if any(row.value is not None for row in rows)
        else None,
        caption,
        min_width=620,
        open=True,
    )


def difference_table(pairs: Sequence[Comparison]) -> Table:
    """Return paired differences with their tests."""
    headers = (
        "First − second",
        "Points",
        "95 % interval",
        "p",
        "Holm p",
        "Items",
        "Left out",
        "Detectable",
    )
    rows = tuple(
        (
            f"{one_line(pair.a, 120)} − {one_line(pair.b, 120)}",
            points(pair.difference),
            point_bounds(pair.ci_low, pair.ci_high),
            p_value(pair.p),
            p_value(pair.p_holm),
            f"{pair.n:,}",
            f"{pair.n_excluded:,}",
            points(pair.detectable, signed=False),
        )
        for pair in pairs[:MAX_PAIRS]
    )
    note = f"{len(pairs) - MAX_PAIRS:,} more pairs." if len(pairs) > MAX_PAIRS else ""
    return Table(headers, rows, note)
