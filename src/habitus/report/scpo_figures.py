"""Figures and tables of a study of country reward models, for the page."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.metrics.preferences import BASE, FINETUNE
from habitus.metrics.preferences_data import Weights
from habitus.metrics.preferences_read import Study
from habitus.metrics.preferences_steering import Steering
from habitus.metrics.preferences_summary import StudyFigures
from habitus.report.figures import MAX_TABLE_ROWS, Figure, Table
from habitus.report.model import MetricTable
from habitus.report.scpo_charts import LayerRow, Line, MatrixCell, histogram, layers, lines, matrix
from habitus.report.text import bounds, one_line, p_value, percent, point_bounds, points
from habitus.types import Comparison, Metric

NAMES = {
    "base": "base",
    "finetune": "fine-tuning",
    "filter": "filter only",
    "inverse": "inverse weights",
    "weight": "weights only",
    "scpo": "filter + weights",
}
"""Variants for readers."""

ALL, DISAGREE = "all pairs", "base disagrees"
"""The two layers."""


@dataclass(frozen=True)
class View:
    """A study with its figures, as the page's parts need it."""

    study: Study
    """The study."""
    figures: StudyFigures
    """Its figures."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The base and the variants, in reading order."""
        return (BASE, *self.study.variants)

    def metric(self, name: str, variant: str, country: str | None) -> Metric | None:
        """Return a figure of one variant; `country` None is the macro average."""
        table = MetricTable(self.figures.accuracy.metrics)
        if country is None:
            return table.get(f"{name}_macro", variant=variant)
        return table.get(name, variant=variant, country=country)

    def test(self, variant: str, other: str, country: str | None) -> Comparison | None:
        """Return a variant's comparison with another."""
        for test in self.figures.accuracy.tests:
            pair = (test.comparison.a, test.comparison.b)
            if test.country == country and pair == (variant, other):
                return test.comparison
        return None


def place(country: str | None) -> str:
    """Return a country for readers; None is the average over countries."""
    return "average of countries" if country is None else one_line(country, 60)


def accuracy_figures(view: View) -> list[Figure]:
    """Return accuracy by variant: the macro average, then each country."""
    countries: list[str | None] = [None, *view.study.countries]
    return [_layer_figure(view, number, country) for number, country in enumerate(countries)]


def _layer_figure(view: View, number: int, country: str | None) -> Figure:
    rows, cells = [], []
    for variant in view.columns:
        found = [view.metric(name, variant, country) for name in ("accuracy", "accuracy_disagree")]
        shown: list[str] = [NAMES[variant]]
        for layer, metric in zip((ALL, DISAGREE), found, strict=True):
            if metric is None:
                shown += ["no data", "–", "0"]
                continue
            figures = (metric.value, metric.ci_low, metric.ci_high, metric.n)
            rows.append(LayerRow(NAMES[variant], layer, *figures))
            shown += [percent(metric.value), bounds(metric.ci_low, metric.ci_high), pairs(metric)]
        cells.append(tuple(shown))
    base = view.metric("accuracy", BASE, country)
    headers = ("Variant", "All pairs", "95 % interval", "Pairs", "Base disagrees")
    title = place(country).capitalize() if country is None else place(country)
    drawn = [row for row in rows if row.value is not None]
    return Figure(
        f"accuracy-{number}",
        title,
        Table((*headers, "95 % interval", "Pairs"), tuple(cells)),
        layers(drawn, base.value if base else None, f"Accuracy by variant, {title}")
        if drawn
        else None,
        open=country is None,
    )


def pairs(metric: Metric) -> str:
    """Return how many pairs a figure rests on, and how many were left out."""
    return f"{metric.n:,}" + (f" ({metric.n_excluded:,} left out)" if metric.n_excluded else "")


def tests_table(view: View) -> Table:
    """Return all tests: the averages first."""
    tests = sorted(view.figures.accuracy.tests, key=lambda test: test.country is not None)
    rows = tuple(
        (
            f"{NAMES[test.comparison.a]} − {NAMES[test.comparison.b]}",
            place(test.country),
            *comparison_cells(test.comparison),
        )
        for test in tests
    )
    return Table(("Difference", "Country", *COMPARISON_HEADERS), rows[:MAX_TABLE_ROWS])


COMPARISON_HEADERS = ("Points", "95 % interval", "p", "Holm p", "Told apart", "Pairs")
"""Columns of `comparison_cells`."""


def comparison_cells(found: Comparison) -> tuple[str, ...]:
    """Return a comparison as cells."""
    told = "no data" if found.p_holm is None else "yes" if found.p_holm < 0.05 else "no"
    return (
        points(found.difference),
        point_bounds(found.ci_low, found.ci_high),
        p_value(found.p),
        p_value(found.p_holm),
        told,
        f"{found.n:,}" + (f" ({found.n_excluded:,} left out)" if found.n_excluded else ""),
    )


def counts_table(view: View) -> Table:
    """Return how the held-out pairs came out."""
    rows = tuple(
        (
            place(each.country),
            NAMES[each.variant],
            f"{each.n:,}",
            f"{each.scored:,}",
            f"{each.failed:,}",
            f"{each.unscored:,}",
            f"{each.ties:,}",
        )
        for each in view.figures.accuracy.counts
    )
    headers = ("Country", "Variant", "Held out", "Scored", "Failed", "Not scored yet", "Ties")
    return Table(headers, rows[:MAX_TABLE_ROWS])


def seeds_table(view: View) -> Table:
    """Return the spread over seeds."""
    rows = []
    for spread in view.figures.accuracy.seeds:
        values = spread.accuracies
        low, high = (min(values.values()), max(values.values())) if values else (None, None)
        said = "one seed: not known" if spread.sd is None else points(spread.sd, 2, signed=False)
        rows.append((NAMES[spread.variant], f"{len(values)}", said, bounds(low, high)))
    headers = ("Variant", "Seeds", "Standard deviation, points", "Lowest to highest")
    return Table(headers, tuple(rows))


def matrix_figure(steering: Steering) -> Figure:
    """Return each country's model on each country's pairs."""
    cells, rows = [], []
    for cell in steering.cells:
        gain, accuracy = cell.gain, cell.accuracy
        interval = point_bounds(gain.ci_low, gain.ci_high)
        clear = gain.p_holm is not None and gain.p_holm < 0.05
        shown = points(gain.difference)
        cells.append(
            MatrixCell(
                cell.model,
                cell.country,
                gain.difference,
                "–" if gain.difference is None else shown,
                percent(accuracy.value, 0),
                interval,
                clear,
            )
        )
        rows.append(
            (
                place(cell.model),
                place(cell.country),
                percent(accuracy.value),
                shown,
                interval,
                p_value(gain.p_holm),
                f"{gain.n:,}",
            )
        )
    headers = ("Model of", "Pairs of", "Accuracy", "Points over the base", "95 % interval")
    drawn = any(cell.value is not None for cell in cells)
    return Figure(
        "matrix",
        "Each country's model on each country's pairs",
        Table((*headers, "Holm p", "Pairs"), tuple(rows[:MAX_TABLE_ROWS])),
        matrix(cells, "Points over the base, by country of the model and of the pairs")
        if drawn
        else None,
        "Row: the model's country. Column: whose held-out pairs. Large: points over the base on the "
        "same pairs; small: accuracy. Faded: cannot be told from the base (Holm over the matrix).",
        150 + 76 * len({cell.column for cell in cells}),
    )


def steering_table(steering: Steering) -> Table:
    """Return the summary of steering."""

    def cell(found: Comparison) -> str:
        return f"{points(found.difference)} ({point_bounds(found.ci_low, found.ci_high)})"

    rows = tuple(
        (
            place(row.country),
            cell(row.own),
            cell(row.others),
            cell(row.difference),
            p_value(row.difference.p_holm),
            f"{row.difference.n:,}",
        )
        for row in sorted(steering.rows, key=lambda row: row.country is not None)
    )
    headers = ("Pairs of", "Own model over the base", "Others' models over the base")
    return Table((*headers, "Own minus others", "Holm p", "Pairs"), rows)


def efficiency_figure(view: View) -> Figure:
    """Return accuracy against share of the data."""
    found = view.figures.efficiency
    series: dict[str, list[Metric]] = {}
    for metric in found.metrics:
        series.setdefault(metric.group["variant"], []).append(metric)
    drawn = [
        Line(
            NAMES[variant],
            _kind(variant, view.figures.variant),
            tuple(
                (float(each.group["share"]), each.value, each.ci_low, each.ci_high)
                for each in metrics
                if each.value is not None
            ),
            _dash(variant, view.figures.variant),
        )
        for variant, metrics in series.items()
    ]
    rows = tuple(
        (
            NAMES[each.group["variant"]],
            data_share(float(each.group["share"])),
            percent(each.value),
            bounds(each.ci_low, each.ci_high),
            pairs(each),
        )
        for each in found.metrics
    )
    return Figure(
        "efficiency",
        "Accuracy against share of the training data",
        Table(("Variant", "Share", "Accuracy", "95 % interval", "Pairs"), rows),
        lines(drawn, "share of the data", "accuracy", "Accuracy by share of the data", log=True)
        if drawn
        else None,
        found.reason.capitalize() + "."
        if found.reason
        else "Average of countries, all pairs, on "
        "the pairs that every point has. Bars: 95 % intervals, from the same resamples.",
        420,
    )


def _kind(variant: str, focus: str) -> str:
    return "model" if variant == focus else "alert" if variant == FINETUNE else "baseline"


def _dash(variant: str, focus: str) -> int:
    return (
        0
        if variant in (focus, FINETUNE)
        else 1 + ("filter", "inverse", "weight", "scpo").index(variant)
    )


def ratio_table(view: View) -> Table:
    """Return how much data fine-tuning needs for the same accuracy."""
    rows = tuple(
        (
            NAMES[each.variant],
            data_share(each.share),
            percent(each.accuracy),
            each.reason
            or ("–" if each.finetune_share is None else data_share(each.finetune_share)),
            "–" if each.ratio is None else f"{each.ratio:.2f}",
            _ratio_bounds(each.low, each.high),
        )
        for each in view.figures.efficiency.ratios
    )
    headers = ("Variant", "With share", "Accuracy", "Share that fine-tuning needs", "Ratio")
    return Table((*headers, "95 % interval"), rows)


def _ratio_bounds(low: float | None, high: float | None) -> str:
    """Return an interval; "…" is an end beyond what was measured."""
    ends = ["…" if end is None else f"{end:.2f}" for end in (low, high)]
    return "–" if low is None and high is None else " to ".join(ends)


def data_share(share: float) -> str:
    """Return a share of the data, such as "12.5 %"."""
    return f"{100 * share:.3g}\u00a0%"


def kept_figure(view: View) -> Figure:
    """Return the kept share by tau."""
    series: dict[str, list[tuple[float, float, None, None]]] = {}
    for each in view.figures.kept:
        if each.share is not None:
            series.setdefault(each.country, []).append((each.tau, each.share, None, None))
    drawn = [Line(one_line(name, 24), "baseline", tuple(at)) for name, at in series.items()]
    rows = tuple(
        (place(each.country), f"{each.tau:g}", percent(each.share), f"{each.n:,}")
        for each in view.figures.kept
    )
    taus = {float(unit.run["tau"]) for unit in view.study.units if unit.run.get("tau") is not None}
    return Figure(
        "kept",
        "Pairs that the filter keeps",
        Table(("Country", "Tau", "Kept", "Pairs"), rows[:MAX_TABLE_ROWS]),
        lines(
            drawn,
            "tau",
            "kept",
            "Share of pairs kept by threshold of the filter, one line per country",
            names=False,
            plain_x=True,
            mark=taus.pop() if len(taus) == 1 else None,
        )
        if drawn
        else None,
        "One line per country. A pair is kept when the base's probability of the preference is below "
        "tau. Dashed: the tau of this study.",
        420,
    )


def weight_figures(view: View) -> list[Figure]:
    """Return a histogram of the weights of each variant that has weights."""
    found = []
    for each in view.figures.weights:
        if each.country is None and each.n:
            own = [row for row in view.figures.weights if row.variant == each.variant]
            found.append(
                Figure(
                    f"weights-{each.variant}",
                    f"Weights: {NAMES[each.variant]}",
                    Table(
                        ("Country", "Pairs", "Lowest", "Quartiles", "Highest", "Mean", "Weight 1"),
                        tuple(_weight_row(row) for row in own),
                    ),
                    histogram(each.histogram, "weight", f"Pairs by weight, {NAMES[each.variant]}"),
                )
            )
    return found


def _weight_row(row: Weights) -> tuple[str, ...]:
    name = "all countries" if row.country is None else place(row.country)
    if row.quantiles is None or row.mean is None:
        return (name, "0", *["–"] * 5)
    low, *middle, high = (f"{value:.3f}" for value in row.quantiles)
    return name, f"{row.n:,}", low, " / ".join(middle), high, f"{row.mean:.3f}", percent(row.full)


def curve_figure(view: View) -> Figure:
    """Return the loss over training."""
    drawn = [
        Line(
            NAMES[curve.variant],
            _kind(curve.variant, view.figures.variant),
            tuple((at, loss, None, None) for at, loss, _ in curve.points),
            _dash(curve.variant, view.figures.variant),
        )
        for curve in view.figures.curves
    ]
    rows = tuple(
        (
            NAMES[curve.variant],
            f"{curve.points[0][1]:.4f}",
            f"{curve.points[-1][1]:.4f}",
            f"{max(n for _, _, n in curve.points):,}",
        )
        for curve in view.figures.curves
    )
    return Figure(
        "curves",
        "Loss over training",
        Table(("Variant", "First 5 % of the steps", "Last 5 %", "Units"), rows),
        lines(drawn, "share of the steps", "loss", "Mean loss by variant", percents=False)
        if drawn
        else None,
        "Mean of the units. Losses of variants do not compare: each weighs and keeps other pairs.",
        420,
    )


def benchmark_table(view: View) -> Table:
    """Return benchmarks before and after."""
    rows = tuple(
        (
            one_line(each.benchmark, 60),
            place(each.country),
            NAMES[each.variant],
            percent(each.before),
            "–" if each.before_interval is None else bounds(*each.before_interval),
            percent(each.after),
            points(each.after - each.before),
            bounds(each.lowest, each.highest),
            f"{each.units:,}",
            f"{each.n:,}",
        )
        for each in view.figures.benchmarks
    )
    headers = ("Benchmark", "Model of", "Variant", "Before", "95 % interval", "After", "Points")
    return Table((*headers, "Lowest to highest", "Units", "Items"), rows[:MAX_TABLE_ROWS])
