"""Figures and tables of a study of country reward models, for the page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from habitus.metrics.preferences import BASE, DISAGREE, LOST, WON
from habitus.metrics.preferences_read import Study
from habitus.metrics.preferences_steering import Steering
from habitus.metrics.preferences_summary import StudyFigures
from habitus.report.comparisons import COMPARISON_HEADERS, comparison_cells, pairs, told
from habitus.report.figures import Figure, Table, cut_table
from habitus.report.model import MetricTable
from habitus.report.scpo_charts import LAYERS, LayerRow, MatrixCell, layers, matrix
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

FIGURES = "figures.json"
"""Name of the file with all figures."""


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
        if country is None:
            return self._accuracy.get(f"{name}_macro", variant=variant)
        return self._accuracy.get(name, variant=variant, country=country)

    @cached_property
    def _accuracy(self) -> MetricTable:
        return MetricTable(self.figures.accuracy.metrics)

    def cell_count(self, variant: str, other: str, country: str) -> int:
        """Return how many pairs of a country at least both variants have a figure on."""
        found = [self.metric("accuracy", name, country) for name in (variant, other)]
        return min(0 if each is None else each.n for each in found)

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
        found = [view.metric(name, variant, country) for name in ("accuracy", DISAGREE)]
        shown: list[str] = [NAMES[variant]]
        for layer, metric in zip(LAYERS, found, strict=True):
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
    return cut_table(("Difference", "Country", *COMPARISON_HEADERS), rows, FIGURES)


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
    return cut_table(headers, rows, FIGURES)


CHANGE_HEADERS = ("Variant", "Won", "95 % interval", "Lost", "95 % interval")
"""Columns of `change_rows`."""

CHANGE_NOTE = (
    "Won: pairs that the base gets wrong and the trained model right; lost: the other way round. "
    "Both in points of all pairs; won minus lost is the change in accuracy."
)
"""How to read `change_rows`."""


def change_rows(view: View) -> tuple[tuple[str, ...], ...]:
    """Return what each variant wins and loses against the base, average of countries."""
    rows = []
    for variant in view.study.variants:
        shown = [NAMES[variant]]
        for name in (WON, LOST):
            found = view.metric(name, variant, None)
            if found is None:
                shown += ["no data", "–"]
                continue
            shown += [points(found.value, signed=False), bounds(found.ci_low, found.ci_high)]
        rows.append(tuple(shown))
    return tuple(rows)


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
        shown = points(gain.difference)
        cells.append(
            MatrixCell(
                cell.model,
                cell.country,
                gain.difference,
                "–" if gain.difference is None else shown,
                percent(accuracy.value, 0),
                interval,
                told(gain),
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
        cut_table((*headers, "Holm p", "Pairs"), rows, FIGURES),
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
