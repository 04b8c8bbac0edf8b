"""Tables of a run or a comparison for the terminal, readable at 80 columns and in a log file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from habitus.report import findings
from habitus.report.compare import leaders
from habitus.report.figures import baseline_rows
from habitus.report.findings import Finding
from habitus.report.model import MetricTable, ReportData
from habitus.report.text import (
    bounds,
    duration,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
    whole,
)
from habitus.types import Comparison, Status

MAX_ROWS = 40
"""Rows of one table; what is left out is said."""

_SHORT = {
    "highest accuracy, not alone": "highest",
    "not told from the best": "unclear",
    "below the best": "below",
}
"""Standings on a narrow terminal."""

_NUMERIC = frozenset(
    (
        *("accuracy", "95 % CI", "n", "points", "p", "Holm p"),
        *("both", "P(A)", "R_appr", "first tenth", "last tenth"),
    )
)
"""Headers of columns of figures."""

TONES = {"above": "bold green", "below": "bold red", "warning": "yellow", "empty": "bold"}
"""Style of a finding by its tone."""


def print_run(data: ReportData, console: Console) -> None:
    """Print one run: the verdict, accuracy by domain and culture, statuses.

    Args:
        data: The run.
        console: Where to print. Colours, width and encoding are the console's.
    """
    table = MetricTable(data.metrics)
    accuracy, chance = table.get("accuracy"), table.value("chance")
    say_line(console, f"{one_line(data.label, 120)} on {one_line(data.benchmark, 120)}", "bold")
    if accuracy is not None and accuracy.value is not None:
        interval = bounds(accuracy.ci_low, accuracy.ci_high)
        say_line(
            console,
            f"accuracy {percent(accuracy.value)}, 95 % interval {interval}, n = {accuracy.n:,}",
        )
    say_findings(console, findings.verdict(data), findings.findings(data))
    rows = []
    if accuracy is not None:
        rows.append(
            ("this run", accuracy.value, accuracy.ci_low, accuracy.ci_high, accuracy.n, chance)
        )
    rows += [(r.label, r.value, r.low, r.high, r.n, r.chance) for r in baseline_rows(table)]
    _accuracy_table(console, "Against simple rules", rows)
    if rows:
        say_line(console, Bar(console).legend)
    for key in ("domain", "culture"):
        rows = []
        for metric in table.by("accuracy", key):
            own = table.value("chance", **metric.group)
            line = (metric.group[key], metric.value, metric.ci_low, metric.ci_high, metric.n)
            rows.append((*line, chance if own is None else own))
        _accuracy_table(console, f"By {key}", rows)
    counts = {status: whole(table.get("status_count", status=status)) for status in Status}
    parts = [f"{number:,} {status.value}" for status, number in counts.items() if number]
    if data.n_items > data.n_judged:
        parts.append(f"{data.n_items - data.n_judged:,} not judged")
    say_line(console, f"judgements: {', '.join(parts) or 'none'}")
    if data.seconds is not None:
        say_line(console, f"judging time: {duration(data.seconds)}")
    for note in data.notes:
        say_line(console, f"note: {one_line(note, 400)}")


def print_comparison(
    runs: Sequence[ReportData], comparisons: Sequence[Comparison], console: Console
) -> None:
    """Print a leaderboard with intervals and the paired differences.

    Args:
        runs: The runs, with labels that differ.
        comparisons: Paired differences, Holm-corrected over the table.
        console: Where to print.
    """
    narrow = console.width < 100
    standings = findings.standings(runs, comparisons)
    say_findings(
        console,
        findings.comparison_verdict(standings),
        findings.comparison_findings(runs, comparisons),
    )
    bar = Bar(console)
    titles = () if narrow else (bar.title,)  # a name that is whole says more than a bar
    board = make_table(
        "Leaderboard", ("rank", "run", "accuracy", "95 % CI", *titles, "n", "standing")
    )
    for row in leaders(standings):
        cells = (row.rank, row.label, row.shown, row.interval)
        drawn = () if narrow else (bar(row.accuracy, row.low, row.high, row.chance),)
        standing = _SHORT.get(row.place, row.place) if narrow else row.place
        board.add_row(*styled(console, (*cells, *drawn, f"{row.n:,}", standing)))
    console.print(board)
    if narrow:
        say_line(console, "unclear: cannot be told from the run of highest accuracy")
    if not comparisons:
        return
    pairs = make_table(
        "Paired differences", ("first - second", "points", "95 % CI", "p", "Holm p", "n")
    )
    ordered = sorted(comparisons, key=lambda pair: (pair.p_holm is None, pair.p_holm or 0.0))
    for pair in ordered[:MAX_ROWS]:
        name = f"{one_line(pair.a, 60)} - {one_line(pair.b, 60)}"
        figures = (points(pair.difference), point_bounds(pair.ci_low, pair.ci_high))
        tests = (p_value(pair.p), p_value(pair.p_holm), f"{pair.n:,}")
        pairs.add_row(*styled(console, (name, *figures, *tests)))
    console.print(pairs)
    if len(ordered) > MAX_ROWS:
        say_line(console, f"{len(ordered) - MAX_ROWS:,} more pairs are in the report")


class Bar:
    """Draws an interval as a line of characters, with a mark for chance."""

    def __init__(self, console: Console, width: int = 20) -> None:
        ascii_only = console.options.ascii_only
        # Accuracy, interval, chance, ground.
        self._marks = ("o", "-", "|", ".") if ascii_only else ("●", "━", "┆", "·")
        self._width = 12 if console.width < 90 else width
        dot, line, mark, _ = self._marks
        self.legend = f"{dot} accuracy  {line} 95 % interval  {mark} chance"
        self.title = "0" + " " * (self._width - 4) + "100"

    def __call__(
        self, value: float | None, low: float | None, high: float | None, chance: float | None
    ) -> str:
        """Draw one interval; empty where there is no value."""
        dot, line, mark, ground = self._marks
        cells = [ground] * self._width
        if low is not None and high is not None:
            for place in range(self._place(low), self._place(high) + 1):
                cells[place] = line
        if chance is not None:
            cells[self._place(chance)] = mark
        if value is not None:
            cells[self._place(value)] = dot
        return "".join(cells)

    def _place(self, share: float) -> int:
        return min(self._width - 1, max(0, int(share * self._width)))


class Sparkline:
    """Draws values over time as a line of characters, from the lowest to the highest."""

    def __init__(self, console: Console, width: int = 24) -> None:
        self._marks = "_.-=*#" if console.options.ascii_only else "▁▂▃▄▅▆▇█"
        self._width = 12 if console.width < 90 else width

    def __call__(self, values: Sequence[float]) -> str:
        """Draw values; neighbours are averaged where there are more than fit."""
        size = min(self._width, len(values))
        edges = [place * len(values) // size for place in range(size + 1)] if size else [0]
        means = [
            sum(values[start:stop]) / (stop - start) for start, stop in itertools.pairwise(edges)
        ]
        low, high = min(means, default=0.0), max(means, default=0.0)
        top = len(self._marks) - 1
        if high == low:
            return self._marks[top // 2] * size
        return "".join(self._marks[round((mean - low) / (high - low) * top)] for mean in means)


_Line = tuple[str, float | None, float | None, float | None, int, float | None]


def _accuracy_table(console: Console, title: str, rows: Sequence[_Line]) -> None:
    if not rows:
        return
    bar = Bar(console)
    table = make_table(title, ("", "accuracy", "95 % CI", bar.title, "n"))
    for label, value, low, high, n, chance in rows[:MAX_ROWS]:
        cells = (one_line(label, 60), percent(value), bounds(low, high))
        table.add_row(*styled(console, (*cells, bar(value, low, high, chance), f"{n:,}")))
    console.print(table)
    if len(rows) > MAX_ROWS:
        say_line(console, f"{len(rows) - MAX_ROWS:,} more rows are in the report")


def make_table(title: str, headers: Sequence[str]) -> Table:
    """Return an empty table in the house form, figures on the right."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, header in enumerate(headers):
        numeric = header in _NUMERIC
        names = index == 0 or header in {"run", "standing"}
        table.add_column(
            Text(header),
            justify="right" if numeric else "left",
            no_wrap=not names,
            overflow="fold" if names else "crop",
        )
    return table


def say_findings(console: Console, verdict: Finding, others: Iterable[Finding]) -> None:
    """Print the verdict, and the other findings under it, each in the style of its tone."""
    say_line(console, verdict.text, TONES.get(verdict.tone, "bold"))
    for finding in others:
        mark = "!" if finding.tone == "warning" else "-"
        say_line(console, f"{mark} {finding.text}", TONES.get(finding.tone, ""))


def say_line(console: Console, text: str, style: str = "") -> None:
    """Print a line, its text as it is."""
    # Text objects, never markup: names from data may hold square brackets.
    console.print(Text(_safe(console, text), style=style), highlight=False)


def styled(console: Console, cells: Iterable[str]) -> list[Text]:
    """Return cells as text without markup, in what the terminal can show."""
    return [Text(_safe(console, cell)) for cell in cells]


_PLAIN = str.maketrans(
    {"\u00a0": " ", "−": "-", "–": "-", "“": '"', "”": '"', "’": "'", "…": "..."}
)


def _safe(console: Console, text: str) -> str:
    """Return `text` on one line, without control characters, in the console's encoding."""
    flat = one_line(text, 1000)
    if console.options.ascii_only:
        return flat.translate(_PLAIN).encode("ascii", "backslashreplace").decode()
    return flat
