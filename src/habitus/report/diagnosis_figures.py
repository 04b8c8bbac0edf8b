"""Figures and tables of a diagnosis, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from habitus.diagnose.model import CueTest, Diagnosis
from habitus.report import charts
from habitus.report.diagnosis_charts import Bar, MatrixCell, cue_bars, matrix
from habitus.report.figures import MAX_TABLE_ROWS, Figure, Table
from habitus.report.model import MetricTable, order_key
from habitus.report.text import bounds, one_line, p_value, percent
from habitus.types import Metric

STILL = 0.2
"""A surface cue whose mean |change| is surely below so many standard deviations is drawn as good."""


def signed_change(test: CueTest) -> str:
    """Return a test's mean and interval, signed."""
    if test.mean is None:
        return "no data"
    text = f"{test.mean:+.2f}"
    if test.ci_low is not None and test.ci_high is not None:
        text += f" ({test.ci_low:+.2f} to {test.ci_high:+.2f})"
    return text.replace("-", "−")


def number(metric: Metric | None, digits: int = 2) -> str:
    """Return a figure for people; one without a finite value says so."""
    if metric is None or metric.value is None:
        return "no finite value" if metric is not None and metric.n else "no data"
    return f"{metric.value:.{digits}f}".replace("-", "−")


def interval(metric: Metric | None, digits: int = 2) -> str:
    """Return a figure's interval for people."""
    if metric is None or metric.ci_low is None or metric.ci_high is None:
        return "–"
    return f"{metric.ci_low:.{digits}f} to {metric.ci_high:.{digits}f}".replace("-", "−")


def bars_figure(diagnosis: Diagnosis, table: MetricTable) -> Figure:
    """Return the bars of all cues, with the table of the same numbers."""
    tests = {test.name: test for test in diagnosis.tests}
    bars, rows = [], []
    for count in diagnosis.cues:
        for target in ("best", "rival"):
            group = {"form": diagnosis.form, "cue": count.cue, "target": target}
            signed, size = table.get("change_sd", **group), table.get("change_sd_abs", **group)
            if signed is None or size is None:
                continue
            both = table.get("change_sd", **(group | {"target": "best"})) is not None
            label = f"{count.cue} rival" if target == "rival" and both else count.cue
            test = tests.get(f"{count.cue} {target}")
            rows.append(_bar_row(label, count.words, signed, size, test, table, group))
            if signed.value is not None and size.value is not None:
                bars.append(_bar(label, count.kind, count.words, signed, size, test))
        if not count.n_items:
            rows.append((count.cue, count.words, *["no items"] * 6, "0"))
    headers = (
        *("Cue", "What", "Change, SD", "95 % interval", "|Change|, SD", "Relative"),
        *("Winner flips", "Holm p", "Edits"),
    )
    return Figure(
        "bars",
        "What moves the score",
        Table(headers, tuple(rows)),
        cue_bars(bars, "Mean change of the score by cue, in the model's standard deviations")
        if bars
        else None,
        "Up: how far a causal edit lowers the score, which it should. Down: how far a surface edit "
        "moves it either way, which it should not. Blue: as it should be, beyond the noise. Orange: "
        "as it should not be. Grey: cannot be told. Line: 95 % interval. Numbers: signed mean "
        "change.",
        min_width=430,
        open=True,
    )


def _bar(
    label: str, kind: str, words: str, signed: Metric, size: Metric, test: CueTest | None
) -> Bar:
    shown = f"{signed.value:+.2f}".replace("-", "−")
    clear = test is not None and test.clear
    if kind == "causal":
        tone = "unclear" if not clear else "good" if (signed.value or 0) < 0 else "bad"
        low = None if signed.ci_high is None else -signed.ci_high
        high = None if signed.ci_low is None else -signed.ci_low
        return Bar(label, words, -(signed.value or 0.0), low, high, tone, shown, signed.n)
    still = size.ci_high is not None and size.ci_high < STILL
    tone = "good" if still else "bad" if clear else "unclear"
    low = None if size.ci_high is None else -size.ci_high
    high = None if size.ci_low is None else -size.ci_low
    return Bar(label, words, -(size.value or 0.0), low, high, tone, shown, signed.n)


def _bar_row(
    label: str,
    words: str,
    signed: Metric,
    size: Metric,
    test: CueTest | None,
    table: MetricTable,
    group: dict[str, str],
) -> tuple[str, ...]:
    relative = table.get("relative_change", **group)
    flips = table.get("flip_rate", cue=group["cue"], target=group["target"])
    change = "no data" if signed.value is None else f"{signed.value:+.2f}".replace("-", "−")
    return (
        label,
        words,
        change,
        interval(signed),
        number(size),
        percent(relative.value if relative else None),
        percent(flips.value if flips else None),
        p_value(test.p_holm if test else None),
        f"{signed.n:,}" + (f" ({signed.n_excluded:,} left out)" if signed.n_excluded else ""),
    )


def language_figures(diagnosis: Diagnosis, table: MetricTable) -> list[Figure]:
    """Return the matrices of consistency and of which language gets more."""
    form = diagnosis.form
    both = ("form", "language_a", "language_b")
    same = [m for m in table.by("consistency", *both) if m.group["form"] == form]
    favour = [m for m in table.by("language_favour", *both) if m.group["form"] == form]
    cells, leaning = [], []
    for metric in same:
        if metric.value is not None:
            a, b = metric.group["language_a"], metric.group["language_b"]
            shown = f"{metric.value:.2f}"
            cells += [MatrixCell(x, y, metric.value, shown, metric.n) for x, y in ((a, b), (b, a))]
    for metric in favour:
        if metric.value is not None:
            a, b = metric.group["language_a"], metric.group["language_b"]
            for x, y, value in ((a, b, metric.value), (b, a, -metric.value)):
                shown = f"{value:+.1f}".replace("-", "−")
                leaning.append(MatrixCell(x, y, value, shown, metric.n))
    width = 90 + 46 * len({cell.row for cell in cells})
    return [
        Figure(
            "consistency",
            "Consistency over languages",
            _pair_table(same, "Consistency"),
            matrix(cells, (0.0, 0.5, 1.0), "Consistency by pair of languages") if cells else None,
            f"exp(−k |difference in SD|) of the same content in two languages, k = {diagnosis.k:g}. "
            "1: the language does not matter.",
            min_width=width,
        ),
        Figure(
            "favour",
            "Which language gets more",
            _pair_table(favour, "First − second, SD"),
            matrix(leaning, (-1.5, 0.0, 1.5), "Difference by pair of languages")
            if leaning
            else None,
            "Score in the row's language minus that in the column's, in SD, for the same content. "
            "Blue: the row's language gets more.",
            min_width=width,
        ),
    ]


def _pair_table(metrics: Sequence[Metric], name: str) -> Table:
    return Table(
        ("Languages", name, "95 % interval", "Pairs"),
        tuple(
            (
                f"{one_line(m.group['language_a'], 40)}, {one_line(m.group['language_b'], 40)}",
                number(m),
                interval(m),
                f"{m.n:,}",
            )
            for m in metrics[:MAX_TABLE_ROWS]
        ),
    )


def triplet_figure(table: MetricTable) -> Figure:
    """Return the triplet test against chance."""
    rows = []
    for name, label, chance in (
        ("triplet_top1", "appropriate first", 1 / 3),
        ("triplet_full_order", "appropriate > generic > opposite", 1 / 6),
    ):
        metric = table.get(name)
        if metric is not None and metric.value is not None:
            low, high = metric.ci_low, metric.ci_high
            rows.append(charts.Row(label, metric.value, low, high, metric.n, chance))
    return Figure(
        "triplet",
        "Appropriate, generic, opposite",
        Table(
            ("Test", "Share", "95 % interval", "Triplets", "Chance"),
            tuple(
                (
                    row.label,
                    percent(row.value),
                    bounds(row.low, row.high),
                    f"{row.n:,}",
                    percent(row.chance),
                )
                for row in rows
            ),
        ),
        charts.forest(rows, "Share of triplets in order") if rows else None,
        "Three responses of one item: the right one, a polite one without the decisive act, and one "
        "with the opposite act. Yellow mark: chance.",
    )


_COLUMNS = (
    *(("change_sd", cue) for cue in ("CC", "RC", "CL", "RP", "LN", "FM")),
    ("causal_to_spurious", ""),
    ("auc", ""),
)


def group_figures(diagnosis: Diagnosis, table: MetricTable) -> list[Figure]:
    """Return a table of the first figures by culture, language and domain."""
    found = []
    for key in ("culture", "language", "domain"):
        metrics = table.by("auc", "form", key)
        values = sorted({metric.group[key] for metric in metrics}, key=order_key)
        rows = []
        for value in values[:MAX_TABLE_ROWS]:
            cells = []
            for name, cue in _COLUMNS:
                group = {"form": diagnosis.form, key: value}
                group |= {"cue": cue, "target": "best"} if cue else {}
                metric = table.get(name, **group)
                shown = number(metric)
                cells.append(
                    f"{shown} ({interval(metric)})"
                    if shown[0].isdigit() or shown[0] == "−"
                    else shown
                )
            rows.append((one_line(value, 80), *cells))
        headers = (
            key.capitalize(),
            *(cue or {"auc": "AUC"}.get(name, "CC : surface") for name, cue in _COLUMNS),
        )
        if len(rows) > 1:
            note = "Signed mean changes in SD, with 95 % intervals. Small groups: wide intervals."
            found.append(Figure(f"by-{key}", f"By {key}", Table(headers, tuple(rows), note), None))
    return found


def tests_table(tests: Sequence[CueTest]) -> Table:
    """Return the tests behind the verdict."""
    return Table(
        ("Test", "Mean, SD (95 % interval)", "p", "Holm p", "n", "Left out"),
        tuple(
            (
                test.name,
                signed_change(test),
                p_value(test.p),
                p_value(test.p_holm),
                f"{test.n:,}",
                f"{test.n_excluded:,}",
            )
            for test in tests[:MAX_TABLE_ROWS]
        ),
    )


def all_table(diagnosis: Diagnosis) -> Table:
    """Return all figures that are not split by group."""
    wanted = [
        metric
        for metric in diagnosis.metrics
        if not {"culture", "domain", "language"} & metric.group.keys()
        and "language_a" not in metric.group
    ]
    rows = tuple(
        (
            metric.name.replace("_", " "),
            " ".join(one_line(value, 40) for value in metric.group.values()) or "all",
            number(metric, 3),
            interval(metric, 3),
            f"{metric.n:,}",
            f"{metric.n_excluded:,}",
        )
        for metric in wanted[:MAX_TABLE_ROWS]
    )
    note = "Figures by culture, language and domain are in diagnosis.json."
    headers = ("Figure", "Of", "Value", "95 % interval", "n", "Left out")
    return Table(headers, rows, note)
