"""Charts and tables of trainings of a judge, for the page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import altair as alt

from habitus.metrics.bootstrap import MIN_CLUSTERS
from habitus.metrics.locals_heldout import BY, WAYS
from habitus.metrics.locals_read import HELD_OUT, LocalsRun
from habitus.metrics.locals_rises import Rise
from habitus.metrics.locals_steps import StepTest
from habitus.metrics.locals_summary import BINS, CURVES, LOSSES, LocalsFigures, overall
from habitus.report.charts import Row, amounts, forest, heat, shown_interval
from habitus.report.comparisons import COMPARISON_HEADERS, comparison_cells, pairs
from habitus.report.figures import MAX_CULTURES, Figure, Table, cut_table
from habitus.report.scpo_charts import Line, lines
from habitus.report.text import (
    NO_INTERVAL,
    bounds,
    decimal,
    decimal_bounds,
    one_line,
    percent,
    point_bounds,
    points,
    unique_labels,
)
from habitus.types import Comparison, Metric

CURVE_TITLES = {
    "accuracy": "Verdict accuracy",
    "both_orders": "Both orders right",
    "p_a": "Share of verdicts A",
    "r_corr": "Reward of a right verdict",
    "r_appr": "Reward of appropriate criteria",
    "total": "Whole reward",
    "parse_rate": "Texts with the form",
    "criteria_chars": "Length of the criteria",
    "kl": "KL to the reference",
    "entropy": "Entropy",
    "flat_groups": "Groups without spread",
    "tokens_per_second": "Speed of writing",
    "verdict_loss": "Loss of verdicts, before criteria",
    "warmup_loss": "Loss of the warm-up",
}
"""Figures of a step for readers."""

CURVE_UNITS = {
    "criteria_chars": "characters",
    "kl": "nats a token",
    "entropy": "nats a token",
    "tokens_per_second": "tokens a second",
    "verdict_loss": "nats",
    "warmup_loss": "nats",
}
"""Units of those that are no shares and no rewards."""

SHARES = ("accuracy", "both_orders", "p_a", "parse_rate", "flat_groups")
"""Figures of a step that are shares."""

LEVELS = {"accuracy": 0.5, "p_a": 0.5, "r_corr": 0.0, "r_appr": 0.0}
"""Where knowing nothing would be: drawn as a line."""

MEASURES = {
    "accuracy": "Accuracy",
    "both_orders": "Both orders right",
    "p_a": "Share of looks that favour A",
}
"""Measures on held-out pairs that are shares."""

LOSS_TITLE = "Log loss of verdicts"
"""The measure on held-out pairs that is no share."""

OWN_WAY = "Each run in its own way: after criteria, the base and --stage verdict without."
"""How charts show runs that could be shown in several ways."""

CROWD, FEW = 4, 10
"""In charts of so many lines each has so few points: nobody can read more."""

_KINDS = ("model", "alert", "baseline")
_WAY_KINDS = dict(zip(WAYS, ("model", "baseline", "alert"), strict=True))


@dataclass(frozen=True)
class View:
    """Runs with their figures, as the page's parts need them."""

    runs: Sequence[LocalsRun]
    """The runs, the base first."""
    figures: LocalsFigures
    """Their figures."""

    @property
    def measured(self) -> list[LocalsRun]:
        """Runs with held-out pairs."""
        return [run for run in self.runs if run.held_out]


def number(value: float | None, name: str) -> str:
    """Return a figure of a step for readers."""
    if value is None:
        return "no data"
    if name in SHARES:
        return percent(value)
    digits = 0 if name in ("criteria_chars", "tokens_per_second") else 3
    return f"{value:,.{digits}f}".replace("-", "−")


def short(label: str) -> str:
    """Return a run's label as charts have room for it."""
    return one_line(label, 24)


def curve_figures(view: View) -> list[Figure]:
    """Return a chart for each figure of a step that any run has."""
    return [
        figure for name in (*CURVES, *LOSSES) if (figure := _curve_figure(view, name)) is not None
    ]


def _curve_figure(view: View, name: str) -> Figure | None:
    curves = [curve for curve in view.figures.curves if curve.name == name]
    if not curves:
        return None
    places = [run.label for run in view.runs]  # a run has one colour on all charts
    labels = unique_labels(places, 24)
    most = BINS if len(curves) < CROWD else FEW
    drawn = [
        _line(labels[place], place, thinned(curve.points, most))
        for curve in curves
        for place in (places.index(curve.run),)
    ]
    rows = tuple(
        (one_line(c.run, 80), number(c.first, name), number(c.last, name), f"{c.n:,}")
        for c in curves
    )
    title = CURVE_TITLES[name]
    unit = "share" if name in SHARES else CURVE_UNITS.get(name, "reward")
    chart = lines(
        drawn,
        "supervised step" if name in LOSSES else "step",
        unit,
        f"{title} by step",
        percents=name in SHARES,
        plain_x=True,
        whole_x=True,
        names=len(drawn) > 1,
        level=LEVELS.get(name),
    )
    headers = ("Run", "First tenth of the steps", "Last tenth", "Steps")
    return Figure(f"curve-{name.replace('_', '-')}", title, Table(headers, rows), chart)


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return points in at most so many, each the mean of neighbours; cut as `curve_of` does."""
    n = min(most, len(points))
    cuts = [-(-len(points) * part // n) for part in range(n + 1)] if n else []
    parts = (points[begin:end] for begin, end in itertools.pairwise(cuts))
    return [(fmean(x for x, _ in part), fmean(y for _, y in part)) for part in parts]


def _line(label: str, place: int, points: Sequence[tuple[float, float]]) -> Line:
    drawn = tuple((step, value, None, None) for step, value in points)
    return Line(label, _KINDS[place % 3], drawn, (place // 3) % 5)


def measure_figures(view: View) -> list[Figure]:
    """Return a chart for each measure on held-out pairs: runs in each way of judging.

    Of many runs each is drawn in its own way only; the tables have all.
    """
    crowded = len(view.measured) > CROWD
    found = []
    for name, title in MEASURES.items():
        rows, cells = [], []
        for run in view.measured:
            for way, kind in _WAY_KINDS.items():
                metric = overall(run, name, way)
                if metric is None:
                    continue
                cells.append((one_line(run.label, 80), way, *metric_cells(metric)))
                figures = (metric.value, metric.ci_low, metric.ci_high, metric.n)
                chance = 0.5 if name != "both_orders" else 0.25
                rows.append((way == run.way, Row(_row_name(run, way), *figures, chance, kind)))
        headers = ("Run", "Criteria", title, "95 % interval", "Pairs")
        table = Table(headers, tuple(cells))
        drawn = [row for own, row in rows if row.value is not None and (own or not crowded)]
        chart = forest(drawn, f"{title} on held-out pairs by run") if drawn else None
        found.append(
            Figure(f"measure-{name.replace('_', '-')}", title, table, chart, _crowd_note(view))
        )
    return found


def loss_figure(view: View) -> Figure:
    """Return a chart of log loss, drawn as those of `measure_figures`, and the calibration table."""
    crowded = len(view.measured) > CROWD
    rows = [
        Row(
            _row_name(run, way),
            *(each.log_loss, each.loss_low, each.loss_high, each.n),
            -math.log(0.5),
            _WAY_KINDS[way],
        )
        for run in view.measured
        for way, each in view.figures.calibration[run.label].items()
        if way == run.way or not crowded
    ]
    chart = amounts(rows, "nats", f"{LOSS_TITLE} on held-out pairs by run") if rows else None
    caption = "How good the verdicts' probabilities are: less is better; dashed: one half said to everything. "
    caption = (caption + _crowd_note(view)).rstrip()
    return Figure("measure-log-loss", LOSS_TITLE, calibration_table(view), chart, caption)


def _crowd_note(view: View) -> str:
    """Return what charts of many runs leave to their tables."""
    return f"{OWN_WAY} The table has all." if len(view.measured) > CROWD else ""


def _row_name(run: LocalsRun, way: str) -> str:
    return f"{short(run.label)}, {way}"


def metric_cells(metric: Metric | None) -> tuple[str, str, str]:
    """Return a share with its interval and pairs."""
    if metric is None:
        return "no data", NO_INTERVAL, "0"
    return percent(metric.value), bounds(metric.ci_low, metric.ci_high), pairs(metric)


def plain_interval(metric: Metric | Comparison) -> str:
    """Return the interval of a figure that is no share."""
    return signed_bounds(metric.ci_low, metric.ci_high)


def signed_bounds(low: float | None, high: float | None) -> str:
    """Return an interval of log-probability ratios, in nats."""
    if low is None or high is None:
        return NO_INTERVAL
    return f"{signed(low)} to {signed(high)}"


def signed(value: float | None) -> str:
    """Return a log-probability ratio, in nats."""
    return "no data" if value is None else f"{value:+.3f}".replace("-", "−")


def appr_table(view: View) -> Table:
    """Return the mean rise of the right verdict's log-probability by run."""
    rows = []
    for run in view.measured:
        metric = overall(run, "r_appr", "with")
        if metric is not None:
            figures = (signed(metric.value), plain_interval(metric), pairs(metric))
            rows.append((one_line(run.label, 80), *figures))
    note = "In nats, not clipped: how much criteria raise the right verdict's log-probability."
    headers = ("Run", "Mean R_appr", "95 % interval", "Pairs")
    return Table(headers, tuple(rows), note + _too_narrow(view))


def _too_narrow(view: View) -> str:
    """Return what to say of intervals in nats where runs have few groups of pairs."""
    numbers = [len({each["group"] for each in run.held_out or ()}) for run in view.measured]
    if min(numbers, default=0) >= MIN_CLUSTERS:
        return ""
    return f" Intervals over fewer than {MIN_CLUSTERS} groups of pairs are too narrow."


def rise_cells(rise: Rise) -> tuple[str, ...]:
    """Return R_appr in two parts as cells: mean and median, that of borrowed criteria, and the test."""
    own = rise.own
    parts = (rise.total, rise.median, rise.borrowed, own.difference)
    return (*map(signed, parts), plain_interval(own), *comparison_cells(own)[2:])


def rises_table(view: View) -> Table:
    """Return R_appr in two parts, arm by arm."""
    rows = tuple((one_line(each.arm, 80), *rise_cells(each)) for each in view.figures.rises)
    headers = ("Run", "Mean R_appr", "Median", "Of borrowed criteria", "Its own part")
    return Table((*headers, *COMPARISON_HEADERS[1:]), rows)


def calibration_table(view: View) -> Table:
    """Return how sure each run is, in each way of judging, and how often it is right."""
    rows = tuple(
        (
            one_line(label, 80),
            way,
            percent(each.right),
            percent(each.confidence),
            points(each.overconfidence),
            point_bounds(each.ci_low, each.ci_high),
            f"{each.log_loss:.3f}",
            decimal_bounds(each.loss_low, each.loss_high, 3),
            f"{each.n:,}",
        )
        for label, ways in view.figures.calibration.items()
        for way, each in ways.items()
    )
    headers = ("Run", "Criteria", "Right looks", "Confidence", "Overconfidence, points")
    note = (
        "A look is one pair in one order; confidence is the likelier letter's mean probability, to be "
        "held against the share of looks in which it is the right one. Log loss is in nats; one who "
        "says one half to everything has 0.693. R_appr is what criteria take off it."
    ) + _too_narrow(view)
    interval = "95 % interval"
    return Table((*headers, interval, "Log loss", interval, "Pairs"), rows, note)


def group_figures(view: View) -> list[Figure]:
    """Return accuracy by source, language, country and culture, each run in its own way."""
    return [figure for key in BY if (figure := _group_figure(view, key)) is not None]


def _group_figure(view: View, key: str) -> Figure | None:
    found = {
        (run.label, metric.group[key]): metric
        for run in view.measured
        for metric in run.figures
        if metric.name == "accuracy" and metric.group.get("criteria") == run.way
        if key in metric.group
    }
    if not found:
        return None
    values = sorted({value for _, value in found})
    shown = values[:MAX_CULTURES]
    columns = [run.label for run in view.measured]
    rows = unique_labels(shown, 22)
    names = unique_labels(columns, 16)
    cells = [
        _cell(row, column, found.get((label, value)))
        for value, row in zip(shown, rows, strict=True)
        for label, column in zip(columns, names, strict=True)
    ]
    tips = [alt.Tooltip(f"{name}:N", title=name) for name in ("Accuracy", "Interval", "Pairs")]
    tips = [
        alt.Tooltip("row:N", title=key.capitalize()),
        alt.Tooltip("column:N", title="Run"),
        *tips,
    ]
    title = f"Accuracy by {key}"
    chart = heat(cells, rows, names, "gain", (-0.5, 0, 0.5), "items", tips, title)
    table = cut_table(
        (key.capitalize(), "Run", "Accuracy", "95 % interval", "Pairs"),
        [
            (one_line(value, 60), one_line(label, 80), *metric_cells(found.get((label, value))))
            for value in values
            for label in columns
        ],
        HELD_OUT,
    )
    more = len(values) - len(shown)
    caption = (
        f"{OWN_WAY} Faded: the interval holds one half, so the cell cannot be told from guessing."
        + (f" {more:,} more are in the table." if more > 0 else "")
    )
    width = 180 + 90 * len(names)
    return Figure(f"by-{key}", title, table, chart, caption, width if len(names) > 4 else 0)


def _cell(row: str, column: str, metric: Metric | None) -> dict[str, str | float | None]:
    value = None if metric is None else metric.value
    low, high = (None, None) if metric is None else (metric.ci_low, metric.ci_high)
    clear = low is not None and high is not None and (low > 0.5 or high < 0.5)
    return {
        "row": row,
        "column": column,
        "gain": None if value is None else value - 0.5,
        "strength": 1.0 if clear else 0.4,
        "shown": NO_INTERVAL if value is None else percent(value, 0),
        "items": f"n {0 if metric is None else metric.n:,}",
        "Accuracy": percent(value),
        "Interval": shown_interval(low, high),
        "Pairs": f"{0 if metric is None else metric.n:,}",
    }


def sides(own: Comparison, limit: int = 80, minus: str = "−") -> str:
    """Return what a comparison takes from what, each side cut to `limit` characters."""
    return f"{one_line(own.a, limit)} {minus} {one_line(own.b, limit)}"


def tests_table(view: View) -> Table:
    """Return all paired tests."""
    rows = [
        (
            sides(test.comparison),
            MEASURES[test.measure],
            *comparison_cells(test.comparison),
        )
        for test in view.figures.tests
    ]
    return cut_table(("Difference", "Measure", *COMPARISON_HEADERS), rows, "figures.json")


def nats_cells(own: Comparison) -> tuple[str, ...]:
    """Return a comparison that is no share as cells: those of `comparison_cells`, in nats."""
    return (signed(own.difference), plain_interval(own), *comparison_cells(own)[2:])


def losses_table(view: View) -> Table:
    """Return all paired tests of log loss."""
    rows = [
        (
            sides(test.comparison),
            *nats_cells(test.comparison),
        )
        for test in view.figures.losses
    ]
    return cut_table(("Difference", "Nats", *COMPARISON_HEADERS[1:]), rows, "figures.json")


def step_cells(test: StepTest) -> tuple[str, ...]:
    """Return a test over steps as cells: difference, interval, p, corrected p, told apart, steps."""
    in_nats = test.measure == "r_appr"  # no share, so no points
    return nats_cells(test.comparison) if in_nats else comparison_cells(test.comparison)


def steps_table(view: View) -> Table:
    """Return all tests over the steps of trainings on the same pairs."""
    rows = [
        (
            sides(test.comparison),
            CURVE_TITLES[test.measure],
            *step_cells(test),
        )
        for test in view.figures.steps
    ]
    headers = ("Difference", "Figure", "Points; R_appr in nats", *COMPARISON_HEADERS[1:-1], "Steps")
    return cut_table(headers, rows, "figures.json")


def seeds_table(view: View) -> Table:
    """Return the spread over seeds."""
    rows = tuple(
        (
            ", ".join(one_line(label, 40) for label in each.runs),
            MEASURES.get(each.measure, LOSS_TITLE),
            *(
                percent(v) if each.measure in MEASURES else decimal(v, 3)
                for v in (each.mean, each.sd)
            ),
        )
        for each in view.figures.seeds
    )
    headers = ("Runs that differ in the seed only", "Measure", "Mean", "Standard deviation")
    return Table(headers, rows)


def cost_table(view: View) -> Table:
    """Return what a step's time goes to."""
    rows = []
    for each in view.figures.costs:
        shares = (f"{part:.2f} ({percent(part / each.seconds, 0)})" for part in each.parts)
        speed = "–" if each.tokens_per_second is None else f"{each.tokens_per_second:,.0f}"
        cells = (one_line(each.run, 80), f"{each.steps:,}", f"{each.seconds:.2f}", *shares, speed)
        rows.append(cells)
    headers = ("Run", "Steps", "Seconds a step", "Writing", "Scoring R_appr", "Learning")
    return Table((*headers, "Tokens a second"), tuple(rows))


def differing(runs: Sequence[LocalsRun]) -> Table:
    """Return the settings in which runs differ, a row for each setting."""
    every = [run.settings for run in runs]
    keys = sorted({key for settings in every for key in settings})
    rows = [
        (one_line(key, 60), *(one_line(str(settings.get(key, "–")), 60) for settings in every))
        for key in keys
        if len({repr(settings.get(key)) for settings in every}) > 1
    ]
    headers = ("Setting", *(one_line(run.label, 40) for run in runs))
    return Table(headers, tuple(rows))
