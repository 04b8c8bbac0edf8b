"""Charts and tables of a study of how well a benchmark predicts use, for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from habitus.evaluate.correlate import Figures
from habitus.evaluate.correlate_model import Study
from habitus.metrics.correlation import most_influential
from habitus.metrics.correlation_bootstrap import Bounds
from habitus.metrics.correlation_rivals import Given, Versus
from habitus.metrics.correlation_summary import Correlation
from habitus.report.correlate_charts import scatter
from habitus.report.figures import Figure, Table, cut_table
from habitus.report.text import (
    NO_DATA,
    bounds,
    decimal,
    decimal_bounds,
    one_line,
    p_value,
    percent,
    points,
)

FILE = "correlation.json"
"""Name of the file with all figures."""

NAMES = {"pearson": "Pearson’s r", "spearman": "Spearman’s ρ", "kendall": "Kendall’s τ-b"}
"""Coefficients for readers."""


@dataclass(frozen=True)
class View:
    """A study with its figures, as the page's parts need it."""

    study: Study
    """The study."""
    figures: Figures
    """Its figures."""

    @property
    def main(self) -> Correlation:
        """The benchmark with its last outcome: over all tasks where there are several."""
        own = [
            row for row in self.figures.correlations if row.benchmark == self.study.benchmark.name
        ]
        return own[-1]

    @property
    def grouped(self) -> bool:
        """True when some reward models share a family."""
        return any(row.n_families < row.n for row in self.figures.correlations)

    @property
    def over(self) -> str:
        """What intervals are over, for people."""
        return "families" if self.grouped else "RMs"


def shown(found: Bounds | None) -> str:
    """Return an interval for people."""
    return decimal_bounds(None, None) if found is None else decimal_bounds(found.low, found.high)


def scatter_figures(view: View) -> list[Figure]:
    """Return a scatter of each benchmark with each outcome."""
    return [_scatter(number, row) for number, row in enumerate(view.figures.correlations)]


def _scatter(number: int, row: Correlation) -> Figure:
    r, fit = row.pearson, row.fit
    if r is None or fit is None:
        caption = f"No line: {row.reason}."
    else:
        caption = (
            f"r² = {decimal(fit.r2)} (95 % interval over RMs {shown(row.r2_bounds[0])}), "
            f"r = {decimal(r.value)}, permutation p = {p_value(r.p)}, n = {row.n}. Bars: 95 % "
            "intervals of each reward model over items and over prompts. Band: 95 % band of the "
            "line, which takes reward models as independent."
        )
    cells = [
        (
            one_line(point.label, 200),
            percent(point.x),
            _share(point.x_bounds),
            f"{point.n_items:,}",
            percent(point.y),
            _share(point.y_bounds),
            f"{point.n_prompts:,}",
            one_line(point.family or "–", 60),
        )
        for point in sorted(row.points, key=lambda point: -point.x)
    ]
    title = f"{row.benchmark} and {row.outcome}"
    return Figure(
        f"scatter-{number}",
        title,
        cut_table(
            (
                "Reward model",
                "Accuracy",
                "95 % interval",
                "Items",
                "Quality",
                "95 % interval",
                "Prompts",
                "Family",
            ),
            cells,
            FILE,
        ),
        scatter(
            row.points,
            fit,
            f"Accuracy on {one_line(row.benchmark, 60)}",
            f"Quality on {one_line(row.outcome, 60)}",
            f"Quality on {one_line(row.outcome, 60)} against accuracy on "
            f"{one_line(row.benchmark, 60)}, {row.n} reward models",
        )
        if row.points
        else None,
        caption,
        min_width=620,
    )


def _share(found: Bounds | None) -> str:
    return bounds(None, None) if found is None else bounds(found.low, found.high)


def coefficient_table(rows: Sequence[Correlation], first: Sequence[str] = ()) -> Table:
    """Return all coefficients with their intervals.

    Args:
        rows: The correlations.
        first: What each row is, in place of the benchmark's name.
    """
    headers = (
        "Benchmark and outcome",
        "Coefficient",
        "Value",
        "Interval over RMs",
        "over items and prompts",
        "over all",
        "p",
        "Holm p",
        "RMs",
    )
    cells = []
    for number, row in enumerate(rows):
        name = (
            first[number]
            if first
            else f"{one_line(row.benchmark, 60)}, {one_line(row.outcome, 60)}"
        )
        if row.pearson is None or row.fit is None:
            cells.append((name, row.reason or NO_DATA, *["–"] * 6, str(row.n)))
            continue
        r2 = [shown(found) for found in row.r2_bounds]
        test = p_value(row.fit.p) + " (t)"
        cells.append((name, "r²", decimal(row.fit.r2), *r2, test, "–", str(row.n)))
        for one in row.coefficients:
            intervals = [shown(found) for found in (one.over_models, one.over_items, one.over_both)]
            holm = p_value(row.p_holm) if one.name == "pearson" else "–"
            p = p_value(one.p)
            if one.of_means is not None:
                p += f" ({decimal(one.of_means)})"
            figures = (NAMES[one.name], decimal(one.value), *intervals, p, holm)
            cells.append((name, *figures, str(row.n)))
    return cut_table(headers, cells, FILE)


def fit_table(rows: Sequence[Correlation]) -> Table:
    """Return lines, reliabilities and the correlation without the items' noise."""
    headers = (
        "Benchmark and outcome",
        "Quality per 10 points",
        "r² (t-test p)",
        "Reliability of accuracy",
        "Reliability of quality",
        "r without noise",
        "Ties",
    )
    cells = []
    for row in rows:
        if row.fit is None:
            continue
        cells.append(
            (
                f"{one_line(row.benchmark, 60)}, {one_line(row.outcome, 60)}",
                f"{points(row.fit.slope / 10)} points",
                f"{decimal(row.fit.r2)} ({p_value(row.fit.p)})",
                _reliability(row.reliability_x),
                _reliability(row.reliability_y),
                "–" if row.disattenuated is None else decimal(row.disattenuated),
                f"{row.tied_x} and {row.tied_y}",
            )
        )
    return cut_table(headers, cells, FILE)


def _reliability(value: float | None) -> str:
    if value is None:
        return "not known"
    return "none" if value <= 0 else decimal(value)


def left_out_table(row: Correlation) -> Table:
    """Return the line without each reward model in turn, the most influential first."""
    headers = ("Left out", "r of the others", "Change of r", "r²", "p (t-test)")
    r = row.pearson
    if r is None:
        return Table(headers, ())
    order = sorted(
        row.left_out, key=lambda one: -float("inf") if one.r is None else -abs(one.r - r.value)
    )
    cells = [
        (
            one_line(row.points[one.model].label, 200),
            "not defined" if one.r is None else decimal(one.r),
            "–" if one.r is None else decimal(one.r - r.value),
            "–" if one.r2 is None else decimal(one.r2),
            "–" if one.p is None else p_value(one.p),
        )
        for one in order
    ]
    return cut_table(headers, cells, FILE)


def left_out_range(row: Correlation) -> str:
    """Say between what r lies when one reward model is left out, and whose absence moves it most."""
    values = [one.r for one in row.left_out if one.r is not None]
    most = None if row.pearson is None else most_influential(row.left_out, row.pearson.value)
    if most is None or not values:
        return ""
    name = one_line(row.points[most.model].label, 80)
    without = "not defined" if most.r is None else decimal(most.r)
    return (
        f"With one reward model left out r is {decimal(min(values))} to {decimal(max(values))}; "
        f"it moves most without {name} ({without})."
    )


def given_table(rows: Sequence[Given]) -> Table:
    """Return the correlations given the confounders."""
    headers = (
        "Outcome",
        "Given",
        "Partial r",
        "95 % interval",
        "p (t-test)",
        "Holm p",
        "df",
        "r of the same RMs",
        "with accuracy",
        "with quality",
        "RMs",
    )
    cells = []
    for row in rows:
        value = decimal(row.value) if row.value is not None else f"none: {row.reason}"
        cells.append(
            (
                one_line(row.outcome, 60),
                " + ".join(row.confounders),
                value,
                shown(row.bounds),
                "–" if row.p is None else p_value(row.p),
                "–" if row.p_holm is None else p_value(row.p_holm),
                str(max(0, row.df)) if row.value is not None else "–",
                "–" if row.plain is None else decimal(row.plain),
                "–" if row.with_accuracy is None else decimal(row.with_accuracy),
                "–" if row.with_quality is None else decimal(row.with_quality),
                str(row.n),
            )
        )
    return cut_table(headers, cells, FILE)


def versus_table(rows: Sequence[Versus]) -> Table:
    """Return which of two benchmarks predicts more."""
    headers = (
        "Outcome",
        "r, benchmark",
        "r, general",
        "r between them",
        "Difference of r",
        "Interval over RMs",
        "over items and prompts",
        "over all",
        "Steiger’s Z",
        "p",
        "Holm p",
        "RMs",
    )
    cells = []
    for row in rows:
        if row.difference is None:
            cells.append((one_line(row.outcome, 60), f"none: {row.reason}", *["–"] * 9, str(row.n)))
            continue
        cells.append(
            (
                one_line(row.outcome, 60),
                decimal(row.r_first),
                decimal(row.r_second),
                decimal(row.r_between),
                decimal(row.difference),
                shown(row.over_models),
                shown(row.over_items),
                shown(row.over_both),
                "not defined" if row.z is None else decimal(row.z),
                "–" if row.p is None else p_value(row.p),
                "–" if row.p_holm is None else p_value(row.p_holm),
                str(row.n),
            )
        )
    return cut_table(headers, cells, FILE)


def model_table(view: View) -> Table:
    """Return what is known of each reward model."""
    study = view.study
    general = [] if study.general is None else [study.general]
    measures = [study.benchmark, *study.outcomes, *general]
    headers = (
        "Reward model",
        *(one_line(one.name, 40) for one in measures),
        "Length bias",
        "Parameters",
        "Family",
    )
    cells = []
    for number, model in enumerate(study.models):
        values = [one.values[number] for one in measures]
        size = "not known" if model.parameters is None else _size(model.parameters)
        cells.append(
            (
                one_line(model.label, 200),
                *("–" if np.isnan(value) else percent(float(value)) for value in values),
                "–" if model.length_bias is None else f"{points(model.length_bias)}",
                size,
                one_line(model.family or "–", 60),
            )
        )
    return cut_table(headers, cells, FILE)


def _size(weights: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if weights >= size:
            return f"{weights / size:.3g} {unit}"
    return f"{weights:,.0f}"
