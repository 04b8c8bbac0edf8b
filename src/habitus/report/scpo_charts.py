"""Charts of a study of country reward models: two layers, matrix, lines, histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from habitus.report.charts import TONE, finish, heat, rule, share_axis, shown_interval
from habitus.report.text import percent, unique_labels

_TALL = 12  # rows of the usual height that a line chart is high

LAYERS = ("all pairs", "base disagrees")
"""The two layers of accuracy."""


@dataclass(frozen=True)
class LayerRow:
    """One variant in both layers."""

    label: str
    """The variant."""
    layer: str
    """One of `LAYERS`."""
    value: float | None
    """Accuracy, 0 to 1."""
    low: float | None
    """Lower bound of its interval."""
    high: float | None
    """Upper bound of its interval."""
    n: int
    """Pairs."""


@dataclass(frozen=True)
class MatrixCell:
    """One model on one country's pairs."""

    row: str
    """Country of the model."""
    column: str
    """Country of the pairs."""
    value: float | None
    """Difference to the base, -1 to 1."""
    shown: str
    """The difference for people."""
    below: str
    """Second line of the cell."""
    interval: str
    """Interval of the difference for people."""
    clear: bool
    """True when the corrected test tells it from the base."""


@dataclass(frozen=True)
class Line:
    """One line of a line chart."""

    label: str
    """What it is."""
    kind: str
    """"model" (blue), "baseline" (grey) or "alert" (orange)."""
    points: tuple[tuple[float, float, float | None, float | None], ...]
    """x, y, and the bounds of y's interval."""
    dash: int = 0
    """Number of its dash pattern; 0 is solid."""


_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 4])


def layers(rows: Sequence[LayerRow], base: float | None, description: str) -> dict[str, Any]:
    """Return accuracy by variant in both layers, with the base's accuracy as a line."""
    labels = list(dict.fromkeys(row.label for row in rows))
    values = [
        {
            "label": row.label,
            "layer": row.layer,
            "value": row.value,
            "low": row.low,
            "high": row.high,
            "shown": percent(row.value, 0),
            "Accuracy": percent(row.value),
            "Interval": shown_interval(row.low, row.high),
            "Pairs": f"{row.n:,}",
        }
        for row in rows
        if row.value is not None
    ]
    tips = [alt.Tooltip("label:N", title=" "), alt.Tooltip("layer:N", title="Layer")]
    tips += [alt.Tooltip(f"{name}:N", title=name) for name in ("Accuracy", "Interval", "Pairs")]
    offset = alt.YOffset("layer:N", scale=alt.Scale(domain=list(LAYERS), paddingOuter=0.4))
    y = alt.Y("label:N", sort=None, title=None, scale=alt.Scale(domain=labels))
    chart = alt.Chart(alt.InlineData(values=values)).encode(y=y, yOffset=offset, tooltip=tips)
    colour = alt.Color(
        "layer:N",
        legend=None,
        scale=alt.Scale(domain=[LAYERS[0], "-", LAYERS[1]], range="category"),
    )
    shape = alt.Shape(
        "layer:N",
        legend=None,
        scale=alt.Scale(domain=list(LAYERS), range=["circle", "diamond"]),
    )
    parts = [
        chart.mark_rule(style="interval").encode(x=alt.X("low:Q"), x2="high:Q", color=colour),
        chart.mark_point(style="figure").encode(x=share_axis(), color=colour, shape=shape),
        chart.mark_text(style="figures").encode(x=alt.value("width"), text="shown:N"),
    ]
    if base is not None:
        parts.insert(0, rule(base))
    return finish(parts, len(labels), description, step=38)


def matrix(cells: Sequence[MatrixCell], description: str) -> dict[str, Any]:
    """Return the matrix of differences to the base; cells that cannot be told from it are faded."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    reach = max([0.05, *(abs(cell.value) for cell in cells if cell.value is not None)])
    row_labels = dict(zip(rows, unique_labels(rows, 22), strict=True))
    column_labels = dict(zip(columns, unique_labels(columns, 16), strict=True))
    values = [
        {
            "row": row_labels[cell.row],
            "column": column_labels[cell.column],
            "value": cell.value,
            "strength": 1.0 if cell.clear else 0.4,
            "shown": cell.shown,
            "below": cell.below,
            "Interval": cell.interval,
        }
        for cell in cells
    ]
    titles = (
        ("row", "Model of"),
        ("column", "Pairs of"),
        ("shown", "Points over the base"),
        ("Interval", "Interval"),
        ("below", "Accuracy"),
    )
    return heat(
        values,
        list(row_labels.values()),
        list(column_labels.values()),
        "value",
        (-reach, 0, reach),
        "below",
        [alt.Tooltip(f"{name}:N", title=title) for name, title in titles],
        description,
    )


def lines(
    found: Sequence[Line],
    x_title: str,
    y_title: str,
    description: str,
    *,
    log: bool = False,
    percents: bool = True,
    names: bool = True,
    plain_x: bool = False,
    whole_x: bool = False,
    mark: float | None = None,
    level: float | None = None,
) -> dict[str, Any]:
    """Return a line chart, each line named at its last point.

    Args:
        found: The lines.
        x_title: Title of the x axis; x is a share, 0 to 1.
        y_title: Title of the y axis.
        description: For readers who do not see it.
        log: Whether the x axis is logarithmic.
        percents: Whether y is a share.
        names: Whether lines are named in the chart, not only on hovering and in the table.
        plain_x: Whether x is shown as a number and not as a share.
        whole_x: Whether x is a whole number, such as a step.
        mark: An x to mark by a dashed line.
        level: A y to mark by a dashed line.
    """
    values = [
        {
            "line": line.label,
            "kind": line.kind,
            "dash": str(line.dash),
            "x": x,
            "y": y,
            "low": low,
            "high": high,
            "X": f"{x:g}" if plain_x else f"{100 * x:.3g} %",
            "Y": percent(y) if percents else f"{y:.4g}",
        }
        for line in found
        for x, y, low, high in line.points
    ]
    ends = [
        {"line": line.label, "x": line.points[-1][0], "y": place}
        for line, place in _label_places(found)
    ]
    shown = "format(100 * datum.value, '.0f') + ' %'"
    if all(0 <= y <= 1 for line in found for _, y, _, _ in line.points):
        # names beside the lines can stretch the axis to what no share can be
        shown = f"datum.value < 0 || datum.value > 1 ? '' : {shown}"
    share = alt.Axis(labelExpr=shown)
    ticks = sorted({point[0] for line in found for point in line.points}) if log else alt.Undefined
    label = "datum.value" if plain_x else "format(100 * datum.value, '.3~g') + ' %'"
    apart = 1 if whole_x else alt.Undefined
    across = alt.Axis(labelExpr=label, values=ticks, tickMinStep=apart)
    x = alt.X(
        "x:Q",
        title=x_title,
        axis=across,
        scale=alt.Scale(type="log" if log else "linear", zero=False, nice=False),
    )
    y = alt.Y(
        "y:Q", title=y_title, axis=share if percents else alt.Axis(), scale=alt.Scale(zero=False)
    )
    dash = alt.StrokeDash(
        "dash:N",
        legend=None,
        scale=alt.Scale(domain=[str(n) for n in range(len(_DASHES))], range=list(_DASHES)),
    )
    tips = [
        alt.Tooltip("line:N", title=" "),
        alt.Tooltip("X:N", title=x_title),
        alt.Tooltip("Y:N", title=y_title),
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(x=x, color=TONE, tooltip=tips)
    ending = alt.Chart(alt.InlineData(values=ends)).encode(x=x, y=y)
    parts = [
        base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash, detail="line:N"),
        base.mark_point(style="figure", size=40).encode(y=y),
    ]
    if any(low is not None for line in found for _, _, low, _ in line.points):
        bar = base.mark_rule(opacity=0.4, strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q")
        parts.insert(0, bar)
    if names:
        parts.append(ending.mark_text(style="figures", dx=10).encode(text="line:N"))
    if mark is not None:
        marked = alt.Chart(alt.InlineData(values=[{"x": mark}]))
        parts.insert(0, marked.mark_rule(style="chance").encode(x="x:Q"))
    if level is not None:
        marked = alt.Chart(alt.InlineData(values=[{"y": level}]))
        parts.insert(0, marked.mark_rule(style="chance").encode(y="y:Q"))
    return finish(parts, _TALL, description)


def _label_places(found: Sequence[Line]) -> list[tuple[Line, float]]:
    """Return each line with the y of its name: at its end, moved so that names do not overlap."""
    ys = [y for line in found for point in line.points for y in point[1:] if y is not None]
    gap = 0.065 * (max(ys) - min(ys)) if ys else 0.0
    ordered = sorted((line for line in found if line.points), key=lambda line: line.points[-1][1])
    places: list[float] = []
    for line in ordered:
        y = line.points[-1][1]
        places.append(y if not places else max(y, places[-1] + gap))
    # What was pushed up is centred on where its names belong.
    shift = sum(at - line.points[-1][1] for at, line in zip(places, ordered, strict=True))
    mean = shift / len(places) if places else 0.0
    return [(line, at - mean) for at, line in zip(places, ordered, strict=True)]


def histogram(counts: Sequence[int], x_title: str, description: str) -> dict[str, Any]:
    """Return bars of counts in equal bins over 0 to 1."""
    width = 1 / max(1, len(counts))
    values = [
        {
            "left": index * width,
            "right": (index + 1) * width,
            "n": count,
            "kind": "model",
            "Weight": f"{index * width:.2f} to {(index + 1) * width:.2f}",
            "Pairs": f"{count:,}",
        }
        for index, count in enumerate(counts)
    ]
    chart = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("left:Q", title=x_title, scale=alt.Scale(domain=[0, 1]), bin="binned"),
        x2="right:Q",
        y=alt.Y("n:Q", title="pairs"),
        color=TONE,
        tooltip=[alt.Tooltip("Weight:N"), alt.Tooltip("Pairs:N")],
    )
    return finish([chart.mark_bar()], 8, description)
