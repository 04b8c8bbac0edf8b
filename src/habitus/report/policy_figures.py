"""Charts and tables of policies trained against reward models, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from habitus.downstream.policy_result import RESULT, Change, PolicyStudy, Trained
from habitus.downstream.result import Gain, Quality
from habitus.report.charts import Row, differences, forest, heat
from habitus.report.downstream_figures import MEASURES, gain_cells
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

WATCHED = {
    "length": "Length",
    "truncated": "Cut by limit",
    "language": "Right language",
    "label": "Names place",
    "repeats": "Repeats itself",
    "copies": "Copies question",
    "unread": "No letter",
    "distinct": "Distinct",
}
"""Figures of the watch for readers."""

CURVES = {
    "reward_sd": ("Reward", "standard deviations of the start"),
    "quality": ("Quality on training prompts", ""),
    "kl": ("KL to the start", "nats a token"),
    "kl_answer": ("KL to the start, whole answers", "nats an answer"),
    "entropy": ("Entropy", "nats a token"),
    "length": ("Length of answers", "tokens"),
    "reward_std": ("Spread of rewards within a group", "reward"),
    "flat_groups": ("Groups that teach nothing", ""),
    "truncated": ("Answers cut by the token limit", ""),
    "language": ("Answers in the prompt's language", ""),
    "label": ("Answers that name country or culture", ""),
    "repeats": ("Answers that repeat themselves", ""),
    "copies": ("Answers that copy the question", ""),
    "unread": ("Answers that name no letter", ""),
    "tokens_per_second": ("Speed of writing", "tokens a second"),
}
"""Figures of training, in reading order: title and unit; shares have none."""

_KINDS = ("model", "alert", "baseline")

MAX_LINES = 14
"""Trainings in a chart; tables have all."""


def measure(study: PolicyStudy) -> str:
    """Return what quality is, in words."""
    return MEASURES.get(study.task, "mean grade of the answers")


def gain_figure(study: PolicyStudy) -> Figure:
    """Return the change of quality by reward model."""
    rows = [
        Row(
            one.label,
            one.gain.value,
            one.gain.low,
            one.gain.high,
            one.gain.n,
            None,
            "alert" if one.flags else "model" if one.gain.clear else "baseline",
        )
        for one in study.scorers
        if one.gain.value is not None
    ]
    table_rows = [
        (
            one_line(one.label, 160),
            _cell(study.before),
            _cell(one.quality),
            *gain_cells(one.gain),
            _cell(one.reward),
            p_value(one.reward_gain.p_holm),
            _last(one, "kl", 3),
            _last(one, "kl_answer", 2),
            "; ".join(one.flags) or "–",
        )
        for one in study.scorers
    ]
    headers = (
        *("Trained against", "Quality before", "After", "Change, points", "Holm p"),
        *("Prefers the answers after", "Holm p", "KL a token", "KL an answer", "Watch"),
    )
    return Figure(
        "gain",
        "Quality after training minus before",
        cut_table(headers, table_rows, RESULT),
        differences(rows, "Change of quality by reward model, in points") if rows else None,
        "Points on held-out questions; bars: 95\u00a0% intervals over questions. Blue: told from 0 "
        "after Holm's correction; grey: cannot be told; orange: the watch has found something.",
        open=True,
    )


def reward_figure(study: PolicyStudy) -> Figure:
    """Return how often each reward model prefers the answers after training to those before."""
    rows = [
        Row(one.label, q.value, q.low, q.high, q.n, 0.5)
        for one in study.scorers
        if (q := one.reward).value is not None
    ]
    table = [
        (one_line(one.label, 160), _cell(one.reward), f"{one.reward.n:,}", _failed(one))
        for one in study.scorers
    ]
    headers = ("Reward model", "Prefers the answers after", "Prompts", "Failed on")
    return Figure(
        "reward",
        "Does the reward model prefer what it has trained?",
        cut_table(headers, table, RESULT),
        forest(rows, "How often each reward model prefers answers after training")
        if rows
        else None,
        "Share of pairs, one answer after training and one before, in which the one after is "
        "scored higher; equal ones count half. Dashed: no change.",
    )


def _failed(one: Trained) -> str:
    total = sum(one.reward_failed.values())
    return "–" if not total else ", ".join(f"{n:,} {s}" for s, n in one.reward_failed.items())


def _cell(found: Quality) -> str:
    return f"{percent(found.value)} ({bounds(found.low, found.high)})"


def _last(one: Trained, name: str, digits: int) -> str:
    line = one.curves.get(name)
    return "–" if line is None else f"{line.last:.{digits}f}"


def shown(study: PolicyStudy, name: str, quality: Quality) -> str:
    """Return a figure of the watch: a share, or of length tokens."""
    if quality.value is None:
        return "no data"
    if name == "length":
        return f"{quality.value * study.sampling.max_new_tokens:.1f}"
    return percent(quality.value)


def brief(study: PolicyStudy, name: str, quality: Quality) -> str:
    """Return a figure of the watch in few letters: whole percents without a sign, or tokens."""
    if quality.value is None:
        return "–"
    scale = study.sampling.max_new_tokens if name == "length" else 100
    return f"{scale * quality.value:.0f}"


def change_words(study: PolicyStudy, name: str, gain: Gain) -> str:
    """Return a change of the watch with its unit."""
    if gain.value is None:
        return "–"
    if name == "length":
        most = study.sampling.max_new_tokens
        return f"{gain.value * most:+.1f}".replace("-", "−")
    return points(gain.value)


def _interval(study: PolicyStudy, name: str, gain: Gain) -> str:
    if gain.low is None or gain.high is None:
        return "–"
    if name == "length":
        most = study.sampling.max_new_tokens
        return f"{gain.low * most:+.1f} to {gain.high * most:+.1f}".replace("-", "−")
    return point_bounds(gain.low, gain.high)


def watch_figure(study: PolicyStudy) -> Figure:
    """Return the hacking watch: each figure's change under each reward model."""
    names = [name for name in WATCHED if any(name in one.watch for one in study.scorers)]
    drawn = study.scorers[:40]
    rows = unique_labels([one.label for one in drawn], 30)
    columns = unique_labels([WATCHED[name] for name in names], 26)
    cells: list[dict[str, object]] = []
    table = []
    for one, label in zip(drawn, rows, strict=True):
        for name, column in zip(names, columns, strict=True):
            found = one.watch.get(name)
            if found is None:
                continue
            cells.append(_watch_cell(study, name, label, column, found))
    for one in study.scorers:
        for name in names:
            found = one.watch.get(name)
            if found is not None:
                table.append(
                    (
                        one_line(one.label, 120),
                        WATCHED[name] + (", tokens" if name == "length" else ""),
                        shown(study, name, found.before),
                        shown(study, name, found.after),
                        change_words(study, name, found.gain),
                        _interval(study, name, found.gain),
                        p_value(found.gain.p_holm),
                    )
                )
    titles = {"row": "Trained against", "column": "Figure", "shown": "After", "below": "Before"}
    titles |= {"Change": "Change", "Interval": "95 % interval"}
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]
    headers = ("Trained against", "Figure", "Before", "After", "Change", "95 % interval", "Holm p")
    return Figure(
        "watch",
        "What else changed",
        cut_table(headers, table, RESULT),
        heat(
            cells,
            rows,
            columns,
            "colour",
            (-1, 0, 1),
            "below",
            tips,
            "Figures of the hacking watch after training, by reward model",
        )
        if cells
        else None,
        "Large: after training; small: before. Orange: lower, blue: higher; faded: cannot be told "
        "from before, after Holm's correction over the whole table. Length in tokens.",
        190 + 118 * len(names),
    )


def _watch_cell(
    study: PolicyStudy, name: str, label: str, column: str, found: Change
) -> dict[str, object]:
    value = found.gain.value or 0.0
    return {
        "row": label,
        "column": column,
        "colour": max(-1.0, min(1.0, 4 * value)),
        "strength": 1.0 if found.gain.clear else 0.4,
        "shown": shown(study, name, found.after),
        "below": f"was {shown(study, name, found.before)}",
        "Change": change_words(study, name, found.gain),
        "Interval": _interval(study, name, found.gain),
    }


def countries_figure(study: PolicyStudy) -> Figure:
    """Return each training's change of quality in each country."""
    drawn = study.scorers[:40]
    rows = unique_labels([one.label for one in drawn], 30)
    columns = unique_labels(list(study.countries), 16)
    cells, table = [], []
    for one, label in zip(drawn, rows, strict=True):
        for country, column in zip(study.countries, columns, strict=True):
            gain = one.gain_by[country]
            clear = (
                gain.low is not None and gain.high is not None and not gain.low <= 0 <= gain.high
            )
            then = one.countries[country]
            cells.append(
                {
                    "row": label,
                    "column": column,
                    "value": gain.value,
                    "strength": 1.0 if clear else 0.4,
                    "shown": points(gain.value),
                    "below": percent(then.value, 0),
                    "Interval": point_bounds(gain.low, gain.high),
                }
            )
            table.append(
                (
                    one_line(one.label, 120),
                    one_line(country, 60),
                    percent(study.before_countries[country].value),
                    _cell(then),
                    points(gain.value),
                    point_bounds(gain.low, gain.high),
                    f"{then.n:,}",
                )
            )
    reach = max([0.05, *(abs(float(str(c["value"]))) for c in cells if c["value"] is not None)])
    titles = {"row": "Trained against", "column": "Country", "shown": "Points", "below": "After"}
    titles |= {"Interval": "95 % interval"}
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]
    headers = (
        *("Trained against", "Country", "Before", "After", "Change, points"),
        *("95 % interval", "Prompts"),
    )
    title = "Change of quality, by reward model and country"
    return Figure(
        "countries",
        "Change of quality, by country",
        cut_table(headers, table, RESULT),
        heat(cells, rows, columns, "value", (-reach, 0, reach), "below", tips, title)
        if cells
        else None,
        "Large: points over before; small: quality after. Faded: the interval holds 0 (not "
        "corrected for the number of cells).",
        200 + 76 * len(study.countries),
    )


def curve_figures(study: PolicyStudy) -> list[Figure]:
    """Return a chart for each figure of training."""
    labels = unique_labels([one.label for one in study.scorers], 24)
    found = []
    for name, (title, unit) in CURVES.items():
        known = [(n, one) for n, one in enumerate(study.scorers) if name in one.curves]
        if not known:
            continue
        drawn = [
            Line(
                labels[n],
                _KINDS[n % 3],
                tuple((step, value, None, None) for step, value in one.curves[name].points),
                (n // 3) % 5,
            )
            for n, one in known[:MAX_LINES]
        ]
        chart = lines(
            drawn,
            "step",
            unit or "share",
            f"{title} by step",
            percents=not unit,
            plain_x=True,
            whole_x=True,
            names=len(drawn) > 1,
            level=0.0 if name == "reward_sd" else None,
        )
        rows = tuple(
            (one_line(one.label, 80), *(number(value, unit) for value in _ends(one, name)))
            for _, one in known
        )
        headers = ("Trained against", "First tenth of the steps", "Last tenth")
        found.append(Figure(f"curve-{name.replace('_', '-')}", title, Table(headers, rows), chart))
    return found


def _ends(one: Trained, name: str) -> tuple[float, float]:
    return one.curves[name].first, one.curves[name].last


def number(value: float, unit: str) -> str:
    """Return a figure of training for readers; shares have no unit."""
    return f"{value:,.3f}".replace("-", "−") if unit else percent(value)


def differences_table(study: PolicyStudy) -> Table:
    """Return quality against each reward model minus that against each other one."""
    rows = [
        (f"{one_line(one.a, 80)} − {one_line(one.b, 80)}", *gain_cells(one.gain), f"{one.gain.n:,}")
        for one in study.differences
    ]
    return cut_table(("Difference", "Points", "Holm p", "Prompts"), rows, RESULT)


def costs_table(study: PolicyStudy) -> Table:
    """Return what each training was and took."""
    rows = [
        (
            one_line(one.label, 120),
            one_line(one.name, 200),
            f"{one.steps:,}",
            f"{one.answers:,}",
            _unscored(one),
            "–" if one.parameters is None else f"{one.parameters:,}",
            duration(one.seconds),
            one_line(one.folder, 120),
        )
        for one in study.scorers
    ]
    headers = (
        *("Reward model", "As given", "Steps", "Answers", "Without a reward"),
        *("Weights", "Time", "Folder"),
    )
    return cut_table(headers, rows, RESULT)


def _unscored(one: Trained) -> str:
    total = sum(one.unscored.values())
    if not total:
        return "0"
    return f"{total:,} ({', '.join(f'{number:,} {why}' for why, number in one.unscored.items())})"


def headline(found: Sequence[Trained]) -> str:
    """Return the names of trainings for a sentence."""
    names = ", ".join(one_line(one.label, 60) for one in found[:6])
    return names + (f" and {len(found) - 6} more" if len(found) > 6 else "")
