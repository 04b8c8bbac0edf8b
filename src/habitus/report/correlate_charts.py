"""The scatter of downstream quality against benchmark accuracy (papers: CARB A3, its figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from habitus.metrics.correlation import Fit, fit_band
from habitus.metrics.correlation_bootstrap import Bounds
from habitus.metrics.correlation_summary import Point
from habitus.report.charts import PIXELS, TONE, finish
from habitus.report.text import bounds, percent, unique_labels

_ROWS = 18  # height of the chart, in rows of the usual height
_WIDTH, _HEIGHT = 900, 430  # pixels that names are placed for; the page's own width is near
_LINE = 14  # height of a name, in pixels
_MOST_NAMED = 40

SIDES: dict[str, dict[str, Any]] = {
    "upper right": {"align": "left", "dx": 6, "dy": -9},
    "upper left": {"align": "right", "dx": -6, "dy": -9},
    "lower right": {"align": "left", "dx": 6, "dy": 10},
    "lower left": {"align": "right", "dx": -6, "dy": 10},
    "right": {"align": "left", "dx": 9, "dy": 0},
    "left": {"align": "right", "dx": -9, "dy": 0},
}
"""Where a name can stand beside its point."""


def scatter(
    points: Sequence[Point], fit: Fit | None, x_title: str, y_title: str, description: str
) -> dict[str, Any]:
    """Return points with both intervals and names, and the line with its band.

    Args:
        points: The reward models.
        fit: The least-squares line; None draws none.
        x_title: Title of the x axis.
        y_title: Title of the y axis.
        description: For readers who do not see it.
    """
    labels = unique_labels([point.label for point in points], 30)
    line = [] if fit is None else _line(points, fit)
    x_range = _range([point.x for point in points], [point.x_bounds for point in points])
    y_range = _range(
        [point.y for point in points],
        [point.y_bounds for point in points],
        [one[key] for one in line for key in ("low", "high")],
    )
    axis = alt.Axis(labelExpr="format(100 * datum.value, '.0f') + ' %'", tickCount=6)
    x = alt.X("x:Q", title=x_title, axis=axis, scale=alt.Scale(domain=x_range, nice=False))
    y = alt.Y("y:Q", title=y_title, axis=axis, scale=alt.Scale(domain=y_range, nice=False))
    sides = _sides(points, labels, x_range, y_range)
    values = [
        _value(point, label, side) for point, label, side in zip(points, labels, sides, strict=True)
    ]
    fields = ("Accuracy", "Accuracy interval", "Quality", "Quality interval", "Family")
    tips = [alt.Tooltip("label:N", title=" "), *(alt.Tooltip(f"{f}:N", title=f) for f in fields)]
    base = alt.Chart(alt.InlineData(values=values)).encode(color=TONE, tooltip=tips)
    thin: dict[str, Any] = {"strokeWidth": 1.5, "opacity": 0.4}
    layers = [
        base.mark_rule(**thin).encode(x=alt.X("x_low:Q"), x2="x_high:Q", y=y),
        base.mark_rule(**thin).encode(x=x, y=alt.Y("y_low:Q"), y2="y_high:Q"),
        base.mark_point(style="figure").encode(x=x, y=y),
    ]
    for side, place in SIDES.items():
        named = [value for value in values if value["side"] == side]
        if named:
            chart = alt.Chart(alt.InlineData(values=named)).mark_text(style="figures", **place)
            layers.append(chart.encode(x=x, y=y, text="label:N"))
    if line:
        band = alt.Chart(alt.InlineData(values=line)).encode(x=x, color=TONE)
        layers.insert(0, band.mark_line(strokeWidth=2, clip=True).encode(y=y))
        area = band.mark_area(opacity=0.15, clip=True, stroke=None)
        bottom = alt.Y(
            "low:Q", title=y_title, axis=axis, scale=alt.Scale(domain=y_range, nice=False)
        )
        layers.insert(0, area.encode(y=bottom, y2="high:Q"))
    return finish(layers, _ROWS, description)


def _value(point: Point, label: str, side: str | None) -> dict[str, Any]:
    def ends(found: Bounds | None) -> tuple[float | None, float | None]:
        return (None, None) if found is None else (found.low, found.high)

    (x_low, x_high), (y_low, y_high) = ends(point.x_bounds), ends(point.y_bounds)
    return {
        "label": label,
        "side": side,
        "kind": "model",
        "x": point.x,
        "x_low": x_low,
        "x_high": x_high,
        "y": point.y,
        "y_low": y_low,
        "y_high": y_high,
        "Accuracy": percent(point.x),
        "Accuracy interval": bounds(x_low, x_high),
        "Quality": percent(point.y),
        "Quality interval": bounds(y_low, y_high),
        "Family": point.family or "none",
    }


def _line(points: Sequence[Point], fit: Fit) -> list[dict[str, Any]]:
    xs = [point.x for point in points]
    at = np.linspace(min(xs), max(xs), 41)
    middle, low, high = fit_band(fit, at)
    rows = zip(at.tolist(), middle.tolist(), low.tolist(), high.tolist(), strict=True)
    return [{"kind": "baseline", "x": x, "y": y, "low": lo, "high": hi} for x, y, lo, hi in rows]


def _range(
    values: Sequence[float], intervals: Sequence[Bounds | None], others: Sequence[float] = ()
) -> list[float]:
    """Return the ends of an axis with some room, as far as shares go."""
    all_values = [*values, *others]
    for one in intervals:
        all_values += [] if one is None else [one.low, one.high]
    room = 0.04 * max(max(all_values) - min(all_values), 0.02)
    return [max(min(0.0, *values), min(all_values) - room), min(1.0, max(all_values) + room)]


def _sides(
    points: Sequence[Point],
    labels: Sequence[str],
    x_range: Sequence[float],
    y_range: Sequence[float],
) -> list[str | None]:
    """Place each name where it hides least; None where there are too many to name."""
    if len(points) > _MOST_NAMED:
        return [None] * len(points)

    def across(x: float) -> float:
        return _WIDTH * (x - x_range[0]) / max(x_range[1] - x_range[0], 1e-9)

    def down(y: float) -> float:
        return _HEIGHT * (y_range[1] - y) / max(y_range[1] - y_range[0], 1e-9)

    places = [(across(point.x), down(point.y)) for point in points]
    taken = [(x - 6.0, y - 6.0, x + 6.0, y + 6.0) for x, y in places]
    for point, (x, y) in zip(points, places, strict=True):
        if point.x_bounds is not None:
            wide = [across(end) for end in (point.x_bounds.low, point.x_bounds.high)]
            taken.append((wide[0], y - 1.0, wide[1], y + 1.0))
        if point.y_bounds is not None:
            high = [down(end) for end in (point.y_bounds.high, point.y_bounds.low)]
            taken.append((x - 1.0, high[0], x + 1.0, high[1]))
    found: list[str | None] = []
    for (x, y), label in zip(places, labels, strict=True):
        boxes = {side: _box(x, y, len(label) * PIXELS, side) for side in SIDES}
        best = min(boxes, key=lambda side: _hidden(boxes[side], taken))
        taken.append(boxes[best])
        found.append(best)
    return found


_Box = tuple[float, float, float, float]


def _box(x: float, y: float, width: float, side: str) -> _Box:
    place = SIDES[side]
    left = x + place["dx"] - (width if place["align"] == "right" else 0)
    top = y + place["dy"] - _LINE / 2
    return left, top, left + width, top + _LINE


def _hidden(box: _Box, taken: Sequence[_Box]) -> float:
    """Return how much of other boxes, and of the chart's outside, a box covers."""

    def overlap(low: float, high: float, other_low: float, other_high: float) -> float:
        return max(0.0, min(high, other_high) - max(low, other_low))

    left, top, right, bottom = box
    covered = sum(
        overlap(left, right, other[0], other[2]) * overlap(top, bottom, other[1], other[3])
        for other in taken
    )
    outside = (
        max(0.0, -left) + max(0.0, right - _WIDTH) + max(0.0, -top) + max(0.0, bottom - _HEIGHT)
    )
    return covered + outside * _LINE
