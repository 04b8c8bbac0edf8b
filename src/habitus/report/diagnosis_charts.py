"""Charts of a diagnosis: cue bars, and the language matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from habitus.report.charts import finish

_HEIGHT_IN_ROWS = 12


@dataclass(frozen=True)
class Bar:
    """One cue."""

    label: str
    """The cue."""
    words: str
    """What the edit does."""
    value: float
    """Where the bar ends, in standard deviations; upward is a causal effect."""
    low: float | None
    """Lower end of its interval."""
    high: float | None
    """Upper end of its interval."""
    tone: str
    """"good", "bad" or "unclear"."""
    shown: str
    """The signed mean change, for people."""
    n: int
    """Edits that it rests on."""


@dataclass(frozen=True)
class MatrixCell:
    """One pair of languages."""

    row: str
    """Language of the row."""
    column: str
    """Language of the column."""
    value: float
    """The figure."""
    shown: str
    """The figure for people."""
    n: int
    """Pairs that it rests on."""


def cue_bars(bars: Sequence[Bar], description: str) -> dict[str, Any]:
    """Return vertical bars: causal effects upward, surface effects downward, with intervals."""
    values = [
        {
            "label": bar.label,
            "value": bar.value,
            "low": bar.low,
            "high": bar.high,
            "tone": bar.tone,
            "shown": bar.shown,
            "What": bar.words,
            "Change": f"{bar.shown} SD",
            "Edits": f"{bar.n:,}",
        }
        for bar in bars
    ]
    tips = [alt.Tooltip("label:N", title=" ")]
    tips += [alt.Tooltip(f"{name}:N", title=name) for name in ("What", "Change", "Edits")]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X(
            "label:N",
            sort=None,
            title=None,
            scale=alt.Scale(domain=[bar.label for bar in bars]),
            axis=alt.Axis(labelAngle=0, orient="bottom"),
        ),
        tooltip=tips,
    )
    tone = alt.Color(
        "tone:N",
        legend=None,
        scale=alt.Scale(domain=["good", "unclear", "bad"], range="category"),
    )
    y = alt.Y(
        "value:Q",
        title="← surface   |change| in SD   causal →",
        axis=alt.Axis(labelExpr="format(abs(datum.value), '.1f')", tickCount=6, grid=True),
    )
    zero = alt.Chart(alt.InlineData(values=[{"place": 0}]))
    layers = [
        base.mark_bar(width={"band": 0.62}, opacity=0.85).encode(y=y, color=tone),
        base.mark_rule(style="cell-value", strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q"),
        zero.mark_rule(style="chance", strokeDash=[1, 0]).encode(y="place:Q"),
        # At the edge, where neither bar nor interval hides it.
        base.mark_text(style="cell-value", baseline="top", fontSize=11).encode(
            y=alt.value(2), text="shown:N"
        ),
    ]
    return finish(layers, _HEIGHT_IN_ROWS, description)


def matrix(cells: Sequence[MatrixCell], reach: tuple[float, float, float], description: str) -> Any:
    """Return a heat map of pairs of languages.

    Args:
        cells: The cells; pairs without items are left out.
        reach: Values drawn in orange, grey and blue.
        description: For readers who do not see it.
    """
    names = list(dict.fromkeys(sorted({cell.row for cell in cells} | {c.column for c in cells})))
    values = [
        {
            "row": cell.row,
            "column": cell.column,
            "value": cell.value,
            "shown": cell.shown,
            "items": f"n {cell.n:,}",
        }
        for cell in cells
    ]
    tips = [
        alt.Tooltip(f"{name}:N", title=title)
        for name, title in (
            ("row", "Language"),
            ("column", "Against"),
            ("shown", "Value"),
            ("items", " "),
        )
    ]
    scale = alt.Scale(domain=names)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X(
            "column:N",
            sort=None,
            title=None,
            scale=scale,
            axis=alt.Axis(orient="top", labelAngle=0, style="column"),
        ),
        y=alt.Y("row:N", sort=None, title=None, scale=scale),
        tooltip=tips,
    )
    colour = alt.Color(
        "value:Q",
        legend=None,
        scale=alt.Scale(domain=list(reach), range="diverging", clamp=True, interpolate="rgb"),
    )
    layers = [
        base.mark_rect(style="cell").encode(color=colour),
        base.mark_text(style="cell-value", dy=-6).encode(text="shown:N"),
        base.mark_text(style="cell-items", dy=8).encode(text="items:N"),
    ]
    return finish(layers, len(names), description, step=36)
