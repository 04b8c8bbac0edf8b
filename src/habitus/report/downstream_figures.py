"""Figures and tables of a best-of-n run (papers: CARB A3), for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from habitus.downstream.result import Downstream, Gain, PickerResult, Quality
from habitus.report.charts import heat
from habitus.report.figures import Figure, Table, cut_table
from habitus.report.scpo_charts import Line, lines
from habitus.report.text import (
    bounds,
    duration,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
    unique_labels,
)

FILE = "downstream.json"
"""Name of the file with all figures."""

MAX_LINES = 14
"""Reward models in the chart; the table has all."""

REFERENCE_NAMES = {
    "random": "random answer",
    "oracle": "best answer (oracle)",
    "longest": "longest answer",
    "shortest": "shortest answer",
}
"""References for readers."""

MEASURES = {
    "blend-short": "share of questions answered as local people did (soft match, SEM-B)",
    "blend-choice": "share of questions answered right",
    "include": "share of questions answered right",
    "omgeval": "share of the other answers that the grader puts below the pick",
}
"""What quality is, by task."""


def measure(result: Downstream) -> str:
    """Return what quality is, in words."""
    return MEASURES.get(result.task, "mean grade of the pick")


def name_of(picker: PickerResult) -> str:
    """Return a reward model's or reference's name for readers."""
    return REFERENCE_NAMES.get(picker.name, picker.label) if picker.digest is None else picker.label


def ranked(result: Downstream) -> list[PickerResult]:
    """Return the reward models, the best pick first."""
    return sorted(result.scorers, key=lambda one: -(one.quality.value or 0.0))


def reference(result: Downstream, name: str) -> PickerResult:
    """Return one of the references."""
    return next(one for one in result.references if one.name == name)


def ns_of(result: Downstream) -> list[int]:
    """Return the values of n that there are curves at."""
    return [point.n for point in result.references[0].curve]


def curves_figure(result: Downstream, country: str | None = None, number: int = 0) -> Figure:
    """Return quality over n, of the reward models, a random answer and the longest one.

    Args:
        result: The run.
        country: The country; None is the average.
        number: Makes the figure's id unique.
    """
    shown = ranked(result)[:MAX_LINES]
    references = [reference(result, name) for name in ("random", "longest")]
    labels = unique_labels([name_of(one) for one in (*shown, *references)], 40)
    drawn = []
    for label, one in zip(labels, (*shown, *references), strict=True):
        kind = "baseline" if one.digest is None else "alert" if one.fallen else "model"
        curve = _curve(one, country)
        places = [
            (float(n), found.value, found.low, found.high)
            for n, found in curve
            if found.value is not None
        ]
        if places:
            dash = 2 if one.name == "random" else 1 if one.digest is None else 0
            drawn.append(Line(label, kind, tuple(places), dash))
    rows = [
        (one_line(name_of(one), 120), *(_cell(found) for _, found in _curve(one, country)))
        for one in (*ranked(result), *result.references)
    ]
    headers = ("Pick", *(f"n = {n}" for n in ns_of(result)))
    title = "Average of countries" if country is None else one_line(country, 60)
    more = len(result.scorers) - len(shown)
    left = f" {more} more reward models are in the table." if more > 0 else ""
    caption = (
        "Bars: 95\u00a0% intervals over questions. Orange: quality at the largest n is below that "
        f"at a smaller one, beyond the noise. The best answer of n is in the table.{left}"
    )
    return Figure(
        f"curves-{number}",
        title,
        cut_table(headers, rows, FILE),
        lines(
            drawn,
            "answers to pick from (n)",
            "quality",
            title,
            log=True,
            names=country is None,
            plain_x=True,
        )
        if drawn
        else None,
        caption if country is None else "",
        640 if country is None else 0,
        open=country is None,
    )


def _curve(one: PickerResult, country: str | None) -> list[tuple[int, Quality]]:
    curve = one.curve if country is None else one.countries.get(country, ())
    return [(point.n, point.quality) for point in curve]


def _cell(found: Quality) -> str:
    return f"{percent(found.value)} ({bounds(found.low, found.high)})"


def picks_table(result: Downstream) -> Table:
    """Return the figures at the largest n, one row for each reward model and reference."""
    headers = (
        *("Pick", "Quality, 95 % interval", "Over random, points", "Holm p"),
        *("Over longest, points", "Holm p", "Length", "Ties", "Failed"),
    )
    rows = []
    for one in (*ranked(result), *result.references):
        cells = (one_line(name_of(one), 160), _cell(one.quality))
        if one.digest is None:
            rows.append((*cells, *["–"] * (len(headers) - len(cells))))
            continue
        rows.append(
            (
                *cells,
                *gain_cells(one.gain_over_random),
                *gain_cells(one.gain_over_longest),
                "–" if one.length_ratio is None else f"{one.length_ratio:.2f}",
                f"{one.tied:,}",
                f"{sum(one.failed.values()):,}",
            )
        )
    return cut_table(headers, rows, FILE)


def costs_table(result: Downstream) -> Table:
    """Return what each reward model is and what its scores took."""
    rows = [
        (
            one_line(one.label, 160),
            one_line(one.name, 200),
            "–" if one.parameters is None else f"{one.parameters:,}",
            "–" if one.tokens is None else f"{one.tokens:,}",
            duration(one.seconds),
        )
        for one in result.scorers
    ]
    return cut_table(("Reward model", "As given", "Weights", "Tokens", "Time"), rows, FILE)


def gain_cells(gain: Gain | None) -> tuple[str, str]:
    """Return a gain with its interval, and its corrected p-value."""
    if gain is None:
        return "–", "–"
    return f"{points(gain.value)} ({point_bounds(gain.low, gain.high)})", p_value(gain.p_holm)


def countries_figure(result: Downstream) -> Figure:
    """Return each reward model's gain over a random answer in each country."""
    shown = ranked(result)
    row_labels = unique_labels([one.label for one in shown], 30)
    column_labels = unique_labels(list(result.countries), 16)
    values, rows = [], []
    for label, one in zip(row_labels, shown, strict=True):
        for column, country in zip(column_labels, result.countries, strict=True):
            gain = one.gain_over_random_by.get(country)
            curve = one.countries.get(country, ())
            if gain is None or not curve:
                continue
            quality = curve[-1].quality
            clear = (
                gain.low is not None and gain.high is not None and not (gain.low <= 0 <= gain.high)
            )
            values.append(
                {
                    "row": label,
                    "column": column,
                    "value": gain.value,
                    "strength": 1.0 if clear else 0.4,
                    "shown": points(gain.value),
                    "below": percent(quality.value, 0),
                    "Interval": point_bounds(gain.low, gain.high),
                }
            )
            interval = point_bounds(gain.low, gain.high)
            rows.append(
                (
                    one_line(one.label, 120),
                    one_line(country, 60),
                    _cell(quality),
                    points(gain.value),
                    interval,
                    f"{quality.n:,}",
                )
            )
    found = [abs(float(str(value["value"]))) for value in values if value["value"] is not None]
    reach = max([0.05, *found])
    titles = (
        *(("row", "Pick"), ("column", "Country"), ("shown", "Points over random")),
        *(("Interval", "Interval"), ("below", "Quality")),
    )
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in titles]
    headers = ("Pick", "Country", "Quality", "Over random, points", "95 % interval", "Prompts")
    return Figure(
        "countries",
        "Gain over a random answer, by country",
        cut_table(headers, rows, FILE),
        heat(
            values,
            row_labels,
            column_labels,
            "value",
            (-reach, 0, reach),
            "below",
            tips,
            "Points over a random answer, by reward model and country",
        )
        if found
        else None,
        "Large: points over a random answer; small: quality. Faded: the interval holds 0 (not "
        "corrected for the number of cells).",
        200 + 76 * len(result.countries),
    )


def answers_table(result: Downstream) -> Table:
    """Return how the policy's answers ended."""
    total = sum(result.answers.values()) or 1
    words = {
        "ok": "ended by the policy",
        "truncated": "cut by the token limit (a candidate)",
        "empty": "empty (a candidate)",
        "too-long": "the prompt does not fit (no candidate)",
        "refused": "refused by the server (no candidate)",
        "error": "the engine failed (no candidate)",
    }
    rows: list[Sequence[str]] = [
        (words.get(status, status), f"{number:,}", percent(number / total))
        for status, number in result.answers.items()
    ]
    rows.append(
        ("candidates without a grade", f"{result.ungraded:,}", percent(result.ungraded / total))
    )
    if result.task in ("blend-choice", "include"):
        rows.append(
            ("naming no letter (graded 0)", f"{result.unread:,}", percent(result.unread / total))
        )
    return Table(("Answers", "Number", "Share"), tuple(tuple(row) for row in rows))
