"""Vega-Altair specifications of the charts.

Colours are left to the page, which sets them through named styles and ranges for the light and
the dark scheme (`report.js`). Expressions hold no text from data: labels are data values and
explicit scale domains, so that no name can be read as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from habitus.report.text import (
    bounds,
    decimal,
    decimal_bounds,
    percent,
    point_bounds,
    points,
    unique_labels,
)

ROW = 24
"""Height of one row of a chart, in pixels."""


@dataclass(frozen=True)
class Row:
    """One line of a forest plot."""

    label: str
    """What the line is."""
    value: float | None
    """The figure, a share or in the chart's unit; None when there is no data."""
    low: float | None = None
    """Lower bound of its interval."""
    high: float | None = None
    """Upper bound of its interval."""
    n: int = 0
    """Items it rests on."""
    chance: float | None = None
    """What random picking scores on the same items."""
    kind: str = "model"
    """"model", or "baseline" for the rules that a model is compared with."""


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map."""

    row: str
    """Label of its row."""
    column: str
    """Label of its column."""
    value: float | None
    """Accuracy, in 0 to 1."""
    low: float | None
    """Lower bound of its interval."""
    high: float | None
    """Upper bound of its interval."""
    n: int
    """Items it rests on."""
    chance: float | None
    """What random picking scores on the same items."""

    @property
    def clear(self) -> bool:
        """True when the interval leaves chance out."""
        if self.chance is None or self.low is None or self.high is None:
            return False
        return self.low > self.chance or self.high < self.chance


def forest(rows: Sequence[Row], description: str) -> dict[str, Any]:
    """Return a chart of values with intervals, one line per row, and the chance line."""
    facts = [
        {
            "chance": row.chance,
            "figures": f"{percent(row.value, 0)} · n {row.n:,}",
            "Accuracy": percent(row.value),
            "Interval": shown_interval(row.low, row.high),
            "Items": f"{row.n:,}",
            "Chance": percent(row.chance),
        }
        for row in rows
    ]
    base = _base(rows, facts, "Accuracy", "Interval", "Items", "Chance")
    layers = [*_chance(rows, base), *_intervals(base, share_axis())]
    return finish(layers, len(rows), description)


def _chance(rows: Sequence[Row], base: alt.Chart) -> list[alt.Chart]:
    """One line over the whole chart where chance is one number, else a tick in each row."""
    chances = {round(row.chance, 6) for row in rows if row.chance is not None}
    if len(chances) == 1:
        return [rule(chances.pop())]
    return [base.mark_tick(style="chance-tick").encode(x="chance:Q")] if chances else []


def differences(rows: Sequence[Row], description: str) -> dict[str, Any]:
    """Return a chart of paired differences in accuracy with intervals, around zero.

    Here a row's values are differences in -1 to 1; `kind` is "model" when the corrected test tells
    the two apart and "baseline" (grey) when it does not.
    """
    facts = [
        {
            "figures": points(row.value),
            "Difference": points(row.value) + " points",
            "Interval": point_bounds(row.low, row.high),
            "Items": f"{row.n:,}",
        }
        for row in rows
    ]
    reach = max([0.1] + [abs(x) for row in rows for x in (row.value, row.low, row.high) if x])
    x = alt.X(
        "value:Q",
        title=None,
        axis=alt.Axis(
            labelExpr="datum.value == 0 ? '0' : format(100 * datum.value, '+.0f')", tickCount=5
        ),
        scale=alt.Scale(domain=[-reach, reach]),
    )
    base = _base(rows, facts, "Difference", "Interval", "Items", label_limit=250)
    return finish([rule(0), *_intervals(base, x)], len(rows), description)


def amounts(rows: Sequence[Row], name: str, description: str) -> dict[str, Any]:
    """Return a chart of values that are no shares, from 0 up, with intervals and the chance line.

    Args:
        rows: One line each; `value`, bounds and `chance` in the unit that `name` tells.
        name: What the values are, with their unit: an axis title.
        description: For readers who do not see the chart.
    """
    facts = [
        {
            "figures": f"{decimal(row.value)} · n {row.n:,}",
            "Value": decimal(row.value, 3),
            "Interval": decimal_bounds(row.low, row.high, 3),
            "n": f"{row.n:,}",
        }
        for row in rows
    ]
    reach = max([0.1] + [x for row in rows for x in (row.value, row.high, row.chance) if x])
    x = alt.X("value:Q", title=name, axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=[0, reach]))
    base = _base(rows, facts, "Value", "Interval", "n")
    return finish([*_chance(rows, base), *_intervals(base, x)], len(rows), description)


def bars(rows: Sequence[Row], description: str, even: float | None = None) -> dict[str, Any]:
    """Return a bar chart of shares, with a line at `even` where all would be equal.

    A row of kind "alert" is drawn in the warning colour.
    """
    facts = [
        {
            "figures": f"{percent(row.value, 0)} · n {row.n:,}",
            "Share": percent(row.value),
            "n": f"{row.n:,}",
        }
        for row in rows
    ]
    base = _base(rows, facts, "Share", "n")
    layers = [base.mark_bar(style="share").encode(x=share_axis(), color=TONE), _figures(base)]
    if even is not None:
        layers.append(rule(even))
    return finish(layers, len(rows), description)


PIXELS = 7
"""Width of a character of an axis label, about."""

TONE = alt.Color(
    "kind:N",
    legend=None,
    scale=alt.Scale(domain=["model", "baseline", "alert"], range="category"),
)
"""Colour of a mark by its `kind`."""


def _base(
    rows: Sequence[Row], facts: Sequence[dict[str, Any]], *tips: str, label_limit: int = 170
) -> alt.Chart:
    """Return a chart without marks: one line per row, with `facts` added to each row's data."""
    labels = unique_labels([row.label for row in rows], label_limit // PIXELS)
    values = [
        {"label": label, "value": row.value, "low": row.low, "high": row.high, "kind": row.kind}
        | fact
        for label, row, fact in zip(labels, rows, facts, strict=True)
    ]
    return alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y(
            "label:N",
            sort=None,
            title=None,
            scale=alt.Scale(domain=labels),
            axis=alt.Axis(labelLimit=label_limit),
        ),
        tooltip=_tooltip("label", *tips),
    )


def _intervals(base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    return [
        base.mark_rule(style="interval").encode(x=alt.X("low:Q"), x2="high:Q", color=TONE),
        base.mark_point(style="figure").encode(x=x, color=TONE),
        _figures(base),
    ]


def _figures(base: alt.Chart) -> alt.Chart:
    """The figures of each row as text at the right edge, for readers who cannot hover."""
    chart: alt.Chart = base.mark_text(style="figures").encode(
        x=alt.value("width"), text="figures:N"
    )
    return chart


def rule(place: float) -> alt.Chart:
    """Return a line over the whole height at `place`."""
    data = alt.InlineData(values=[{"place": place}])
    chart: alt.Chart = alt.Chart(data).mark_rule(style="chance").encode(x="place:Q")
    return chart


def heat_map(cells: Sequence[Cell], chance: float | None, description: str) -> dict[str, Any]:
    """Return a heat map of accuracy that diverges around chance; unclear cells are faded.

    The colour is accuracy minus the chance of the cell's own items.
    """
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    row_labels = dict(zip(rows, unique_labels(rows), strict=True))
    column_labels = dict(zip(columns, unique_labels(columns, 24), strict=True))
    values = [
        {
            "row": row_labels[cell.row],
            "column": column_labels[cell.column],
            "gain": None if cell.value is None or cell.chance is None else cell.value - cell.chance,
            "strength": 1.0 if cell.clear else 0.4,
            "shown": "–" if cell.value is None else percent(cell.value, 0),
            "items": f"n {cell.n:,}",
            "Accuracy": percent(cell.value),
            "Interval": shown_interval(cell.low, cell.high),
            "Items": f"{cell.n:,}",
            "Chance": percent(cell.chance),
        }
        for cell in cells
    ]
    floor = chance if chance else 0.25
    return heat(
        values,
        list(row_labels.values()),
        list(column_labels.values()),
        "gain",
        (-floor, 0, 1 - floor),
        "items",
        _tooltip("row", "column", "Accuracy", "Interval", "Items", "Chance"),
        description,
    )


def heat(
    values: Sequence[dict[str, Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    colour: str,
    reach: tuple[float, float, float],
    below: str,
    tips: Sequence[alt.Tooltip],
    description: str,
) -> dict[str, Any]:
    """Return a heat map of cells that hold two lines of text.

    Args:
        values: The cells: `row` and `column` (labels), `strength` (1 is not faded), `shown` (the
            first line), and the fields that are named here.
        rows: Labels of the rows, in their order.
        columns: Labels of the columns, in their order.
        colour: Field that the colour shows.
        reach: Its values that are drawn in orange, grey and blue.
        below: Field of the second line.
        tips: What is shown on hovering.
        description: For readers who do not see it.
    """
    base = alt.Chart(alt.InlineData(values=list(values))).encode(
        x=alt.X(
            "column:N",
            sort=None,
            title=None,
            scale=alt.Scale(domain=list(columns)),
            axis=alt.Axis(orient="top", labelAngle=0, style="column"),
        ),
        y=alt.Y("row:N", sort=None, title=None, scale=alt.Scale(domain=list(rows))),
        tooltip=list(tips),
    )
    scale = alt.Scale(domain=list(reach), range="diverging", clamp=True, interpolate="rgb")
    layers = [
        base.mark_rect(style="cell").encode(
            color=alt.Color(f"{colour}:Q", legend=None, scale=scale),
            opacity=alt.Opacity("strength:Q", scale=None, legend=None),
        ),
        base.mark_text(style="cell-value", dy=-6).encode(text="shown:N"),
        base.mark_text(style="cell-items", dy=8).encode(text=f"{below}:N"),
    ]
    return finish(layers, len(rows), description, step=36)


def share_axis() -> alt.X:
    """Return the x axis of `value`, a share, from 0 to 100 %."""
    return alt.X(
        "value:Q",
        title=None,
        axis=alt.Axis(
            labelExpr="format(100 * datum.value, '.0f') + ' %'", values=[0, 0.25, 0.5, 0.75, 1]
        ),
        scale=alt.Scale(domain=[0, 1]),
    )


def shown_interval(low: float | None, high: float | None) -> str:
    """Return an interval of shares with its unit, such as "46.3 to 76.8 %"."""
    return bounds(low, high) if low is None or high is None else f"{bounds(low, high)} %"


def _tooltip(first: str, *fields: str) -> list[alt.Tooltip]:
    title = {"label": " ", "row": "Culture", "column": "Domain"}
    return [alt.Tooltip(f"{name}:N", title=title.get(name, name)) for name in (first, *fields)]


def finish(
    layers: Sequence[alt.Chart], rows: int, description: str, step: int = ROW
) -> dict[str, Any]:
    """Size the chart to its container and return its specification without what the page sets."""
    chart = alt.LayerChart(
        layer=list(layers),
        width="container",
        height=max(1, rows) * step,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        padding={"left": 2, "right": 6, "top": 4, "bottom": 4},
        description=description,
    )
    spec: dict[str, Any] = chart.to_dict()
    # The page sets colours; the schema's address would only look like something to be fetched.
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec
