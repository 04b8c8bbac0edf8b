"""Charts of a run with the tables of the same numbers beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.report import charts
from habitus.report.charts import Cell, Row
from habitus.report.model import BASELINES, MetricTable, ReportData, order_key
from habitus.report.text import bounds, one_line, percent, whole
from habitus.types import Metric, Status

MAX_ROWS, MAX_TABLE_ROWS = 40, 400
"""Lines of a chart and of a table; what is left out is said."""

MAX_CULTURES, MAX_DOMAINS = 40, 12
"""Rows and columns of a heat map."""

GROUPS = (
    ("culture", "By culture"),
    ("domain", "By domain"),
    ("language", "By language"),
    ("country", "By country"),
    ("script", "By script"),
    ("family", "By language family"),
    ("joshi_class", "By resource class (Joshi et al. 2020; 5 is best resourced)"),
    ("source", "By source"),
)
"""Group keys of accuracy in the order shown, with the title of each."""


@dataclass(frozen=True)
class Table:
    """A table for the page. Cells are plain text."""

    headers: tuple[str, ...]
    """Column titles; the first column names the row."""
    rows: tuple[tuple[str, ...], ...]
    """Cells."""
    note: str = ""
    """What the table leaves out."""


@dataclass(frozen=True)
class Figure:
    """A chart and the table of its numbers; without `spec` there is no data."""

    id: str
    """Unique on the page; made of fixed words and numbers only."""
    title: str
    """Heading."""
    table: Table
    """The numbers."""
    spec: dict[str, Any] | None
    """Vega-Lite specification, or None when there is nothing to draw."""
    caption: str = ""
    """How to read it."""
    min_width: int = 0
    """Width in pixels below which the chart scrolls inside its box."""
    open: bool = False
    """True when the table is shown without a click."""


def run_figures(data: ReportData) -> dict[str, list[Figure]]:
    """Return the figures of a run by section: heat, overview, groups, statuses, position."""
    table = MetricTable(data.metrics)
    return {
        "heat": [heat_figure(table, "heat", "Culture by domain")],
        "overview": [_overview(data, table)],
        "groups": [
            figure
            for key, title in GROUPS
            if (figure := _group_figure(table, key, title)) is not None
        ],
        "baselines": _baselines_by_domain(data, table),
        "statuses": [_status_figure(table, data)],
        "position": _position_figures(table),
    }


def accuracy_row(metric: Metric, label: str, chance: float | None, kind: str = "model") -> Row:
    """Return `metric` as a line of a forest plot."""
    return Row(label, metric.value, metric.ci_low, metric.ci_high, metric.n, chance, kind)


def forest_table(first: str, rows: Sequence[Row]) -> Table:
    """Return the numbers of a forest plot."""
    cells = [
        (
            one_line(row.label, 200),
            percent(row.value),
            bounds(row.low, row.high),
            f"{row.n:,}",
            percent(row.chance),
        )
        for row in rows
    ]
    return cut_table((first, "Accuracy", "95 % interval", "Items", "Chance"), cells, "metrics.json")


def cut_table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], file: str) -> Table:
    """Return a table of the first rows that says how many more are in `file`."""
    more = len(rows) - MAX_TABLE_ROWS
    note = f"{more:,} more rows are in {file}." if more > 0 else ""
    return Table(headers, tuple(rows[:MAX_TABLE_ROWS]), note)


def versions_table(versions: Mapping[str, str]) -> Table:
    """Return the versions of the libraries that results depend on."""
    cells = ((one_line(name, 80), one_line(found, 80)) for name, found in sorted(versions.items()))
    return Table(("Library", "Version"), tuple(cells))


def baseline_rows(table: MetricTable, shown: Collection[str] = ()) -> list[Row]:
    """Return the baselines as lines of a forest plot, in their order.

    Args:
        table: Figures of a run.
        shown: Scorers that are lines already; a baseline among them is left out.
    """
    names = {
        "random": "random pick",
        "longest": "longest response",
        "shortest": "shortest response",
    }
    chance = table.value("chance")
    return [
        accuracy_row(metric, names[baseline], chance, "baseline")
        for baseline in BASELINES
        if f"baseline:{baseline}" not in shown
        and (metric := table.get("baseline_accuracy", baseline=baseline)) is not None
    ]


def _overview(data: ReportData, table: MetricTable) -> Figure:
    accuracy = table.get("accuracy")
    rows = [] if accuracy is None else [accuracy_row(accuracy, data.label, table.value("chance"))]
    rows += baseline_rows(table)
    drawn = any(row.value is not None for row in rows)
    return Figure(
        "overview",
        "Against chance and simple rules",
        forest_table("Scorer", rows),
        charts.forest(rows, "Accuracy of the model and of three simple rules, with intervals")
        if drawn
        else None,
        "Dot: accuracy. Bar: 95 % interval. Dashed line: chance. A model that a rule of length "
        "matches may be judging length.",
    )


def _group_figure(table: MetricTable, key: str, title: str) -> Figure | None:
    metrics = table.by("accuracy", key)
    if len(metrics) < 2:
        # One group is the whole run, which the front page shows.
        return None
    overall = table.value("chance")
    rows = [
        accuracy_row(metric, metric.group[key], _chance(table, metric, overall))
        for metric in metrics
    ]
    drawn = rows
    caption = ""
    if len(rows) > MAX_ROWS:
        largest = sorted(rows, key=lambda row: (-row.n, row.label))[:MAX_ROWS]
        drawn = [row for row in rows if row in largest]
        caption = f"The {MAX_ROWS} largest of {len(rows):,} groups; the table has more."
    has_data = any(row.value is not None for row in drawn)
    return Figure(
        f"group-{key}",
        title,
        forest_table(title.removeprefix("By ").split(" (")[0].capitalize(), rows),
        charts.forest(drawn, f"Accuracy with intervals, {title.lower()}") if has_data else None,
        caption,
    )


def _chance(table: MetricTable, metric: Metric, overall: float | None) -> float | None:
    value = table.value("chance", **metric.group)
    return overall if value is None else value


def heat_figure(table: MetricTable, figure_id: str, title: str) -> Figure:
    """Return the culture by domain heat map of one run."""
    metrics = {
        (metric.group["culture"], metric.group["domain"]): metric
        for metric in table.by("accuracy", "culture", "domain")
    }
    overall = table.value("chance")
    cultures = _largest(metrics, 0, MAX_CULTURES)
    domains = _largest(metrics, 1, MAX_DOMAINS)
    cells = []
    for culture in cultures:
        for domain in domains:
            metric = metrics.get((culture, domain))
            if metric is None:
                cells.append(Cell(culture, domain, None, None, None, 0, overall))
                continue
            chance = _chance(table, metric, overall)
            cells.append(
                Cell(culture, domain, metric.value, metric.ci_low, metric.ci_high, metric.n, chance)
            )
    left_out = len({key[0] for key in metrics}) > MAX_CULTURES or (
        len({key[1] for key in metrics}) > MAX_DOMAINS
    )
    drawn = any(cell.value is not None for cell in cells)
    description = "Heat map of accuracy by culture and domain, coloured by distance from chance"
    return Figure(
        figure_id,
        title,
        heat_table(cells),
        charts.heat_map(cells, overall, description) if drawn else None,
        "Only the largest cultures and domains are shown." if left_out else "",
        min_width=110 + 58 * len(domains),
    )


def heat_table(cells: Sequence[Cell]) -> Table:
    """Return the numbers of a heat map, one line per cell that has items."""
    return Table(
        ("Culture", "Domain", "Accuracy", "95 % interval", "Items", "Chance"),
        tuple(
            (
                one_line(cell.row, 200),
                one_line(cell.column, 200),
                percent(cell.value),
                bounds(cell.low, cell.high),
                f"{cell.n:,}",
                percent(cell.chance),
            )
            for cell in cells
            if cell.n or cell.value is not None
        ),
    )


def _largest(metrics: dict[tuple[str, str], Metric], side: int, limit: int) -> list[str]:
    """Return the groups with most items, in reading order."""
    sizes: dict[str, int] = {}
    for key, metric in metrics.items():
        sizes[key[side]] = sizes.get(key[side], 0) + metric.n
    kept = sorted(sizes, key=lambda name: (-sizes[name], name))[:limit]
    return sorted(kept, key=order_key)


def _baselines_by_domain(data: ReportData, table: MetricTable) -> list[Figure]:
    """Accuracy of the model and of the length rules in each domain, as a table only."""
    domains = table.by("accuracy", "domain")
    if not domains or not table.by("baseline_accuracy", "baseline", "domain"):
        return []
    rows = []
    for metric in domains[:MAX_TABLE_ROWS]:
        domain = metric.group["domain"]
        rules = [
            percent(table.value("baseline_accuracy", baseline=baseline, domain=domain))
            for baseline in BASELINES
        ]
        rows.append((one_line(domain, 200), percent(metric.value), *rules, f"{metric.n:,}"))
    headers = ("Domain", "Model", "Random", "Longest", "Shortest", "Items")
    return [Figure("baselines", "Simple rules by domain", Table(headers, tuple(rows)), None)]


STATUS_WORDS = {
    Status.OK: "one winner",
    Status.TIE: "several share the highest score",
    Status.UNPARSED: "no verdict, or more than one, could be read",
    Status.REFUSED: "the judge declined",
    Status.TRUNCATED: "longer than the limit",
    Status.ERROR: "the scorer failed",
}
"""What each status means, for readers."""


def _status_figure(table: MetricTable, data: ReportData) -> Figure:
    counts = {status: whole(table.get("status_count", status=status)) for status in Status}
    total = sum(counts.values())
    rows = [
        Row(
            status.value,
            number / total if total else None,
            n=number,
            kind="model" if status.judged else "alert",
        )
        for status, number in counts.items()
        if number or status is Status.OK
    ]
    lines = tuple(
        (
            status.value,
            STATUS_WORDS[status],
            f"{number:,}",
            percent(number / total if total else None),
        )
        for status, number in counts.items()
    )
    lines += tuple(
        (
            metric.group["status"],
            f"of the items in {one_line(metric.group['language'], 60)}",
            f"{whole(metric):,} of {metric.n:,}",
            percent(whole(metric) / metric.n),
        )
        for metric in table.by("status_count", "status", "language")[:MAX_TABLE_ROWS]
    )
    missing = data.n_items - data.n_judged
    if missing > 0:
        lines += (("not judged", "the run has not come to it", f"{missing:,}", "–"),)
    return Figure(
        "statuses",
        "How judgements ended",
        Table(("Status", "Meaning", "Items", "Share"), lines),
        charts.bars(rows, "Share of judgements by status") if total else None,
        "Failures have no winner and are left out of the accuracy; they are never counted as half "
        "right.",
    )


def _position_figures(table: MetricTable) -> list[Figure]:
    shares = [metric for metric in table.by("letter_share", "letter") if metric.value is not None]
    even = 1 / len(shares) if shares else None
    rows = [
        Row(
            metric.group["letter"],
            metric.value,
            metric.ci_low,
            metric.ci_high,
            metric.n,
            even,
            "alert" if even and (metric.value or 0.0) >= min(0.9, 2 * even) else "model",
        )
        for metric in shares[:MAX_ROWS]
    ]
    lines = [
        (
            f"picks of letter {one_line(row.label, 20)}",
            percent(row.value),
            bounds(row.low, row.high),
            f"{row.n:,}",
        )
        for row in rows
    ]
    for metric in [table.get("flip_rate"), *table.by("flip_rate", "language")]:
        if metric is not None:
            where = f", {one_line(metric.group['language'], 60)}" if metric.group else ""
            name = f"pick changes with the order{where}"
            interval = bounds(metric.ci_low, metric.ci_high)
            lines.append((name, percent(metric.value), interval, f"{metric.n:,}"))
    for name, words in (("letter_mass", "probability on the letters"), ("tie_rate", "ties")):
        metric = table.get(name)
        if metric is not None:
            interval = bounds(metric.ci_low, metric.ci_high)
            lines.append((words, percent(metric.value), interval, f"{metric.n:,}"))
    if not lines:
        return []
    return [
        Figure(
            "letters",
            "Which position is picked",
            Table(("What", "Share", "95 % interval", "n"), tuple(lines[:MAX_TABLE_ROWS])),
            charts.bars(rows, "Share of picks by position", even) if rows else None,
            "A judge that reads the responses picks each position about equally often (dashed line), "
            "because the order is drawn anew for every item.",
        )
    ]
