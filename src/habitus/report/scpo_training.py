"""Figures and tables of what training saw and what it cost, for the page of a study."""

from __future__ import annotations

from habitus.metrics.preferences import BASE, FINETUNE
from habitus.metrics.preferences_data import Weights
from habitus.metrics.preferences_read import VARIANTS
from habitus.report.comparisons import COMPARISON_HEADERS, comparison_cells, pairs
from habitus.report.figures import Figure, Table, cut_table
from habitus.report.scpo_charts import Line, histogram, lines
from habitus.report.scpo_figures import FIGURES, NAMES, View, place
from habitus.report.text import bounds, one_line, percent, points
from habitus.types import Metric


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
    base = found.base
    if base is not None:
        interval = bounds(base.ci_low, base.ci_high)
        rows = ((NAMES[BASE], "none", percent(base.value), interval, pairs(base)), *rows)
    return Figure(
        "efficiency",
        "Accuracy against share of the training data",
        Table(("Variant", "Share", "Accuracy", "95 % interval", "Pairs"), rows),
        lines(
            drawn,
            "share of the data",
            "accuracy",
            "Accuracy by share of the data",
            log=True,
            level=base.value if base else None,
        )
        if drawn
        else None,
        found.reason.capitalize() + "."
        if found.reason
        else "Average of countries, all pairs, on "
        "the pairs that every point has. Bars: 95 % intervals, from the same resamples. Dashed line: the base.",
        420,
    )


def _kind(variant: str, focus: str) -> str:
    return "model" if variant == focus else "alert" if variant == FINETUNE else "baseline"


def _dash(variant: str, focus: str) -> int:
    return 0 if variant in (focus, FINETUNE) else VARIANTS.index(variant)


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
        cut_table(("Country", "Tau", "Kept", "Pairs"), rows, FIGURES),
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
    return cut_table((*headers, "Lowest to highest", "Units", "Items"), rows, FIGURES)


def benchmark_tests_table(view: View) -> Table:
    """Return each variant against the base on benchmarks, over all its models."""
    rows = tuple(
        (
            one_line(each.benchmark, 60),
            NAMES[each.comparison.a],
            f"{each.units:,}",
            *comparison_cells(each.comparison),
        )
        for each in view.figures.benchmark_tests
    )
    headers = ("Benchmark", "Variant", "Models", *COMPARISON_HEADERS[:-1], "Items")
    return cut_table(headers, rows, FIGURES)


def units_table(view: View) -> Table:
    """Return training in numbers, by country and variant, over folds and seeds."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    keys = ("n_train", "n_kept", "n_too_long", "n_steps", "n_skipped", "seconds")
    for unit in view.study.units:
        if unit.share == 1.0:
            numbers = {key: float(unit.run.get(key) or 0) for key in keys}
            groups.setdefault((unit.country, unit.variant), []).append(numbers)
    rows = []
    for (country, variant), units in groups.items():
        mean = {key: sum(unit[key] for unit in units) / len(units) for key in keys}
        cells = (f"{mean[key]:,.0f}" for key in keys[:-1])
        name = NAMES.get(variant, variant)
        rows.append((place(country), name, f"{len(units):,}", *cells, f"{mean['seconds']:,.1f}"))
    headers = ("Country", "Variant", "Units", "Pairs", "Kept", "Too long", "Steps", "Skipped")
    return Table((*headers, "Seconds"), tuple(rows), "Means over units trained on all their data.")
