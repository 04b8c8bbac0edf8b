"""The report of a study of country reward models: page, terminal tables and figures.json."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import to_jsonable_python
from rich.console import Console

from habitus.metrics.preferences import BASE, DISAGREE, FINETUNE
from habitus.metrics.preferences_benchmarks import BenchmarkTest
from habitus.metrics.preferences_read import Study
from habitus.metrics.preferences_summary import StudyFigures
from habitus.report import scpo_figures as parts
from habitus.report import scpo_training as training
from habitus.report.comparisons import comparison_cells, comparison_finding, difference_words, told
from habitus.report.figures import Table, versions_table
from habitus.report.findings import Finding
from habitus.report.page import build_page, shown_notes
from habitus.report.scpo_figures import FIGURES, NAMES, View, place
from habitus.report.terminal import make_table, say_findings, say_line, styled
from habitus.report.text import (
    Budget,
    bounds,
    count,
    one_line,
    percent,
    points,
)
from habitus.store import write_atomic, write_json

PAGE = "scpo-report.html"
"""Name of the page."""

PAPER = ("arXiv 2606.18606", "https://arxiv.org/abs/2606.18606")
"""The paper of the method: its name and address."""

LAYER_NOTE = (
    "On the pairs where the base disagrees the base scores 0 by construction. There, higher is not "
    "better: a model that always contradicts the base scores 100 %."
)
"""How to read the second layer."""


def write_study(study: Study, figures: StudyFigures, path: Path) -> Path:
    """Write the page, and figures.json beside it.

    Returns:
        The path of figures.json.

    Raises:
        RunError: When the folder cannot be written.
    """
    write_atomic(path, [render_study(study, figures).encode()])
    beside = path.parent / FIGURES
    write_json(beside, to_json(study, figures))
    return beside


def to_json(study: Study, figures: StudyFigures) -> dict[str, object]:
    """Return all figures as JSON's values."""
    return {
        "base": study.base,
        "folders": [folder.name for folder in study.folders],
        "countries": list(study.countries),
        "variants": list(study.variants),
        "non_commercial": study.non_commercial,
        "units": len(study.units),
        "unfinished": [list(key) for key in study.unfinished],
        "verdict": verdict(View(study, figures)).text,
        **to_jsonable_python(figures),
    }


def render_study(study: Study, figures: StudyFigures) -> str:
    """Return the complete HTML page."""
    view = View(study, figures)
    accuracy = parts.accuracy_figures(view)
    budget = Budget(60_000, each=4000)
    commands = dict.fromkeys(str(about.get("command") or "") for about in study.about)
    return build_page(
        "scpo.html.jinja",
        {
            "overview": accuracy[:1],
            "countries": accuracy[1:],
            "matrix": [parts.matrix_figure(figures.steering)],
            "efficiency": [training.efficiency_figure(view)],
            "kept": [training.kept_figure(view)],
            "weights": training.weight_figures(view),
            "curves": [training.curve_figure(view)],
        },
        title=f"Country reward models from {one_line(study.base, 80)}",
        base=study.base,
        focus=NAMES[figures.variant],
        non_commercial=study.non_commercial,
        verdict=verdict(view),
        findings=findings(view),
        facts=_facts(view),
        layer_note=LAYER_NOTE,
        tests=parts.tests_table(view),
        changes=Table(parts.CHANGE_HEADERS, parts.change_rows(view)),
        change_note=parts.CHANGE_NOTE,
        counts=parts.counts_table(view),
        seeds=parts.seeds_table(view),
        steering=parts.steering_table(figures.steering),
        ratios=training.ratio_table(view),
        benchmarks=training.benchmark_table(view),
        benchmark_tests=training.benchmark_tests_table(view),
        units=training.units_table(view),
        notes=shown_notes(_notes(view)),
        commands=[budget.clip(command) for command in commands if command],
        setup=_setup(view),
        versions=_versions(study),
        paper=PAPER,
    )


def verdict(view: View) -> Finding:
    """Say whether the variant in focus is better than fine-tuning, or that this cannot be told."""
    focus = view.figures.variant
    other = FINETUNE if focus != FINETUNE and FINETUNE in view.study.variants else BASE
    found = view.test(focus, other, None)
    if found is None or found.difference is None:
        both = [view.cell_count(focus, other, country) for country in view.study.countries]
        some = sum(each > 0 for each in both)
        if some:
            text = f"No average yet: {some:,} of {len(both):,} countries have held-out pairs that both models scored."
            return Finding("empty", text)
        return Finding("empty", "No data: no country has held-out pairs that both models scored.")
    names = f"{NAMES[focus].capitalize()} against {_against(other)}"
    figures = f"{difference_words(found)}, average of {count(len(view.figures.accuracy.countries), 'country', 'countries')}"
    return comparison_finding(found, names, figures)


def _against(other: str) -> str:
    return "the base" if other == BASE else NAMES[other]


def findings(view: View) -> list[Finding]:
    """Return the sentences under the verdict."""
    study, figures = view.study, view.figures
    found = []
    if study.non_commercial:
        text = "Not for commercial use: some of the data, and so the models, may not be used so."
        found.append(Finding("warning", text))
    if study.unfinished:
        units = count(len(study.unfinished), "unit")
        total = len(study.unfinished) + len(study.units)
        found.append(
            Finding("warning", f"{units} of {total:,} not finished; figures are of the others.")
        )
    skipped = sum(int(unit.run.get("n_skipped") or 0) for unit in study.units)
    if skipped:
        steps = count(skipped, "step")
        found.append(
            Finding("warning", f"{steps} of training skipped: the loss or gradient was no number.")
        )
    for variant in study.variants:
        test = view.test(variant, BASE, None)
        if test is not None and test.difference is not None:
            ends = "" if told(test) else "; cannot be told from it"
            text = (
                f"{NAMES[variant].capitalize()} against the base: {difference_words(test)}{ends}."
            )
            found.append(Finding("note", text))
    found += _steering_findings(view)
    found += [
        Finding("note", _benchmark_words(each))
        for each in figures.benchmark_tests
        if each.comparison.a == figures.variant and each.comparison.difference is not None
    ]
    spreads = [spread for spread in figures.accuracy.seeds if spread.variant == figures.variant]
    if spreads and spreads[0].sd is None:
        found.append(Finding("note", "One seed: how much figures move with the seed is not known."))
    elif spreads:
        text = f"{points(spreads[0].sd, 2, signed=False)} points (standard deviation)"
        number = len(spreads[0].accuracies)
        found.append(
            Finding("note", f"Over {number} seeds, {NAMES[figures.variant]} moves by {text}.")
        )
    return found


def _benchmark_words(test: BenchmarkTest) -> str:
    ends = "" if told(test.comparison) else "; cannot be told from none"
    return (
        f"On {one_line(test.benchmark, 60)}, {NAMES[test.comparison.a]} changes accuracy by "
        f"{difference_words(test.comparison)}{ends}."
    )


def _steering_findings(view: View) -> list[Finding]:
    rows = [row for row in view.figures.steering.rows if row.country is None]
    if not rows or rows[0].difference.difference is None:
        return []
    row = rows[0]
    if told(row.difference):
        way = "better" if (row.difference.difference or 0) > 0 else "worse"
        text = f"A country's own model serves it {way} than the other countries' models"
    else:
        text = "A country's own model cannot be told from the other countries' models"
    return [Finding("note", f"{text} ({difference_words(row.difference)}).")]


def _facts(view: View) -> list[tuple[str, str]]:
    study, focus = view.study, view.figures.variant
    macro, base = (view.metric("accuracy", name, None) for name in (focus, BASE))
    failed = sum(each.failed for each in view.figures.accuracy.counts)
    return [
        (f"Accuracy, {NAMES[focus]}", percent(macro.value if macro else None)),
        ("Accuracy, base", percent(base.value if base else None)),
        ("Countries", f"{len(study.countries):,}"),
        ("Held-out pairs", f"{study.pairs.height:,}"),
        ("People or questions", f"{study.pairs['group'].n_unique():,}"),
        ("Units finished", f"{len(study.units):,} of {len(study.units) + len(study.unfinished):,}"),
        ("Scores failed", f"{failed:,}"),
    ]


def _notes(view: View) -> list[str]:
    study, found = view.study, []
    left = [name for name in study.countries if name not in view.figures.accuracy.countries]
    if left:
        found.append(
            f"Averages leave out {', '.join(left)}: not every variant has scores there yet."
        )
    ties = sum(view.figures.accuracy.base_ties.values())
    if ties:
        found.append(
            f"The base scores {count(ties, 'pair')} equally: they earn it 1/2, and are no "
            "disagreement."
        )
    long = sum(int(unit.run.get("n_too_long") or 0) for unit in study.units)
    if long:
        found.append(f"Over all units, {count(long, 'training pair')} were left out as too long.")
    return found


def _setup(view: View) -> list[tuple[str, str]]:
    about = view.study.about[0]
    rows = [
        ("Base", view.study.base),
        ("Base revision", view.study.base_revision),
        ("Pairs digest", str(about.get("pairs_digest") or "not recorded")),
        ("Sources", ", ".join(view.study.sources) or "not recorded"),
        ("Folds", ", ".join("split" if f is None else str(f) for f in view.study.folds)),
        ("Seeds", ", ".join(map(str, view.study.seeds)) or "none"),
        ("Seed of the resampling", str(view.figures.seed)),
        ("Folders", ", ".join(folder.name for folder in view.study.folders)),
    ]
    return [(name, one_line(value, 300)) for name, value in rows]


def _versions(study: Study) -> Table:
    found = study.about[0].get("versions")
    known = found.items() if isinstance(found, dict) else ()
    return versions_table({str(name): str(version) for name, version in known})


def print_study(study: Study, figures: StudyFigures, console: Console) -> None:
    """Print the verdict, accuracy by variant and country, and the tests of the averages.

    Args:
        study: The study.
        figures: Its figures.
        console: Where to print.
    """
    view = View(study, figures)
    say_line(console, f"country reward models from {one_line(study.base, 120)}", "bold")
    say_findings(console, verdict(view), findings(view))
    for name, title in (("accuracy", "All pairs"), (DISAGREE, "Base disagrees")):
        _print_layer(view, name, title, console)
    say_line(console, LAYER_NOTE)
    table = make_table(
        "Paired differences, average of countries",
        ("first - second", "points", "95 % CI", "p", "Holm p", "n"),
    )
    for test in figures.accuracy.tests:
        if test.country is None:
            pair = f"{NAMES[test.comparison.a]} - {NAMES[test.comparison.b]}"
            cells = comparison_cells(test.comparison)
            table.add_row(*styled(console, (pair, *cells[:4], cells[5])))
    console.print(table)
    _print_changes(view, console)
    for note in _notes(view):
        say_line(console, f"note: {note}")


def _print_changes(view: View, console: Console) -> None:
    headers = ("variant", "won", "95 % CI", "lost", "95 % CI")
    table = make_table("Against the base, average of countries, points of all pairs", headers)
    for cells in parts.change_rows(view):
        table.add_row(*styled(console, cells))
    console.print(table)
    say_line(console, parts.CHANGE_NOTE)


def _print_layer(view: View, name: str, title: str, console: Console) -> None:
    table = make_table(title, ("", "variant", "accuracy", "95 % CI", "n"))
    for country in (None, *view.study.countries):
        for variant in view.columns:
            metric = view.metric(name, variant, country)
            if metric is None:
                continue
            first = place(country) if variant == BASE else ""
            interval = bounds(metric.ci_low, metric.ci_high)
            cells = (first, NAMES[variant], percent(metric.value), interval, f"{metric.n:,}")
            table.add_row(*styled(console, cells))
    console.print(table)
