"""The report of trainings of a judge: page, terminal tables and figures.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_core import to_jsonable_python
from rich.console import Console

from habitus.metrics.locals_heldout import WAYS
from habitus.metrics.locals_read import LocalsRun
from habitus.metrics.locals_summary import Curve, LocalsFigures, overall
from habitus.report import locals_figures as parts
from habitus.report.comparisons import comparison_cells
from habitus.report.figures import Table, versions_table
from habitus.report.locals_criteria import (
    BYTES,
    TEXT_CHARACTERS,
    held_out_views,
    training_views,
)
from habitus.report.locals_figures import CURVE_TITLES, MEASURES, View, number, signed
from habitus.report.locals_findings import findings, notes, number_of, verdict
from habitus.report.page import build_page, shown_notes
from habitus.report.scpo_figures import FIGURES
from habitus.report.terminal import Sparkline, make_table, say_findings, say_line, styled
from habitus.report.text import (
    NO_INTERVAL,
    Budget,
    bounds,
    duration,
    one_line,
    percent,
)
from habitus.store import write_atomic, write_json
from habitus.types import Comparison

PAGE = "locals-report.html"
"""Name of the page."""

PAPER = ("arXiv 2509.21798", "https://arxiv.org/abs/2509.21798")
"""The paper of the method: its name and address."""


def write_locals(runs: Sequence[LocalsRun], figures: LocalsFigures, path: Path) -> Path:
    """Write the page, and figures.json beside it.

    Returns:
        The path of figures.json.

    Raises:
        RunError: When the folder cannot be written.
    """
    view = View(runs, figures)
    write_atomic(path, [render_locals(view).encode()])
    beside = path.parent / FIGURES
    write_json(beside, to_json(view))
    return beside


def to_json(view: View) -> dict[str, object]:
    """Return all figures as JSON's values."""
    return {
        "runs": [
            {
                "label": run.label,
                "stage": run.stage,
                "done": run.done,
                "collapsed": run.record.get("collapsed"),
                "non_commercial": bool(run.record.get("non_commercial")),
                "held_out": to_jsonable_python(run.figures),
            }
            for run in view.runs
        ],
        "verdict": verdict(view).text,
        **to_jsonable_python(view.figures),
    }


def render_locals(view: View) -> str:
    """Return the complete HTML page."""
    budget = Budget(BYTES, TEXT_CHARACTERS)
    commands = Budget(60_000, each=4000)
    names = ", ".join(one_line(run.label, 40) for run in view.runs[:4])
    if len(view.runs) > 4:
        names += f" and {len(view.runs) - 4} more"
    return build_page(
        "locals.html.jinja",
        {
            "measures": [
                *parts.measure_figures(view),
                *([parts.loss_figure(view)] if view.measured else []),
            ],
            "groups": parts.group_figures(view),
            "curves": parts.curve_figures(view),
        },
        title=f"Judges that reason like a local: {names}",
        names=names,
        non_commercial=any(run.record.get("non_commercial") for run in view.runs),
        verdict=verdict(view),
        findings=findings(view),
        facts=_facts(view),
        appr=parts.appr_table(view),
        rises=parts.rises_table(view),
        tests=parts.tests_table(view),
        losses=parts.losses_table(view),
        steps=parts.steps_table(view),
        seeds=parts.seeds_table(view),
        costs=parts.cost_table(view),
        training=training_views(view.runs, budget),
        held_out=held_out_views(view.runs, budget),
        notes=shown_notes(notes(view)),
        settings=parts.differing(view.runs) if len(view.runs) > 1 else None,
        runs=_runs_table(view),
        commands=[
            (one_line(run.label, 80), commands.clip(str(run.record["command"])))
            for run in view.runs
            if run.record.get("command")
        ],
        versions=_versions(view.runs),
        paper=PAPER,
    )


def _facts(view: View) -> list[tuple[str, str]]:
    measured = view.measured
    last = measured[-1] if measured else view.runs[-1]
    facts = [("Runs", f"{len(view.runs):,}")]
    if measured:
        facts.append(("Held-out pairs", f"{len(last.held_out or ()):,}"))
    for name in ("accuracy", "both_orders", "p_a"):
        metric = overall(last, name, last.way)
        if metric is not None:
            facts.append((f"{MEASURES[name]}, {parts.short(last.label)}", percent(metric.value)))
    rise = overall(last, "r_appr", "with")
    if rise is not None and last.way == "with":
        facts.append((f"Mean R_appr, {parts.short(last.label)}", signed(rise.value)))
    return facts


def _runs_table(view: View) -> Table:
    rows = tuple(
        (
            one_line(run.label, 80),
            one_line(run.stage, 20),
            one_line(str(run.settings.get("model.model")), 80),
            "yes" if run.done else "no",
            str(run.record.get("n_train", "–")),
            str(run.record.get("n_excluded", "–")),
            str(run.config.get("seed")),
            duration(number_of(run.record.get("seconds"))),
            "not for commercial use" if run.record.get("non_commercial") else "–",
        )
        for run in view.runs
    )
    headers = ("Run", "Stage", "Model", "Finished", "Pairs", "Left out", "Seed", "Time", "Licence")
    return Table(headers, rows)


def _versions(runs: Sequence[LocalsRun]) -> Table:
    found: dict[str, list[str]] = {}
    for run in runs:
        versions = run.record.get("versions")
        if isinstance(versions, Mapping):
            for name, value in versions.items():
                found.setdefault(str(name), []).append(str(value))
    return versions_table(
        {name: ", ".join(dict.fromkeys(values)) for name, values in found.items()}
    )


STEP_NAMES = {"accuracy": "accuracy", "both_orders": "both", "r_appr": "R_appr"}
"""`STEP_MEASURES` as a narrow table has room for them."""


def print_locals(view: View, console: Console) -> None:
    """Print the verdict, held-out figures, tests, and the curves as lines of characters.

    Args:
        view: Runs and their figures.
        console: Where to print. Colours, width and encoding are the console's.
    """
    say_line(console, "judges that reason like a local", "bold")
    say_findings(console, verdict(view), findings(view))
    _print_held_out(view, console)
    _print_rises(view, console)
    _print_tests(view, console)
    _print_steps(view, console)
    for run in view.runs:
        curves = [curve for curve in view.figures.curves if curve.run == run.label]
        if curves:
            _print_curves(run, curves, console)
    for note in notes(view):
        say_line(console, f"note: {note}")


def _print_held_out(view: View, console: Console) -> None:
    if not view.measured:
        return
    headers = ("run", "criteria", "accuracy", "95 % CI", "both", "P(A)", "R_appr", "n")
    table = make_table("Held-out pairs; both: right in both orders", headers)
    for run in view.measured:
        for way in WAYS:
            cells = (one_line(run.label, 50), way, *_held_out_cells(run, way))
            table.add_row(*styled(console, cells))
    console.print(table)


def _held_out_cells(run: LocalsRun, way: str) -> tuple[str, ...]:
    """Return accuracy, interval, both orders, P(A), R_appr and pairs."""
    accuracy, both, p_a = (overall(run, name, way) for name in MEASURES)
    rise = overall(run, "r_appr", way)  # of the judge's own criteria only
    return (
        percent(accuracy.value if accuracy else None),
        bounds(accuracy.ci_low, accuracy.ci_high) if accuracy else NO_INTERVAL,
        *(NO_INTERVAL if m is None or m.value is None else percent(m.value) for m in (both, p_a)),
        NO_INTERVAL if rise is None or rise.value is None else signed(rise.value),
        f"{accuracy.n if accuracy else 0:,}",
    )


def _print_rises(view: View, console: Console) -> None:
    if not view.figures.rises:
        return
    headers = ("run", "R_appr", "borrowed", "own", "95 % CI", "Holm p", "n")
    table = make_table("R_appr in two parts, in nats", headers)
    for each in view.figures.rises:
        cells = parts.rise_cells(each)
        every = f"{each.own.n:,} of {each.own.n + each.own.n_excluded:,}"
        row = (one_line(each.arm, 50), cells[0], *cells[2:5], cells[6], every)
        table.add_row(*styled(console, row))
    console.print(table)


def _print_tests(view: View, console: Console) -> None:
    accuracy = [each.comparison for each in view.figures.tests if each.measure == "accuracy"]
    losses = [each.comparison for each in view.figures.losses]
    rows = [(own, comparison_cells(own)) for own in accuracy]
    _print_comparisons("Paired differences in accuracy", "points", rows, console)
    rows = [(own, parts.nats_cells(own)) for own in losses]
    _print_comparisons("Paired differences in log loss; less is better", "nats", rows, console)


def _print_comparisons(
    title: str, unit: str, rows: Sequence[tuple[Comparison, tuple[str, ...]]], console: Console
) -> None:
    if not rows:
        return
    table = make_table(title, ("first - second", unit, "95 % CI", "p", "Holm p", "n"))
    for own, cells in rows:
        pair = parts.sides(own, 60, "-")
        table.add_row(*styled(console, (pair, *cells[:4], cells[5])))
    console.print(table)


def _print_steps(view: View, console: Console) -> None:
    if not view.figures.steps:
        return
    headers = ("first - second", "figure", "", "95 % CI", "Holm p", "n")
    table = make_table("Steps on the same pairs; R_appr in nats, the others in points", headers)
    for test in view.figures.steps:
        cells = parts.step_cells(test)
        pair = parts.sides(test.comparison, 60, "-")
        row = (pair, STEP_NAMES[test.measure], *cells[:2], cells[3], cells[5])
        table.add_row(*styled(console, row))
    console.print(table)


def _print_curves(run: LocalsRun, curves: Sequence[Curve], console: Console) -> None:
    draw = Sparkline(console)
    title = f"{one_line(run.label, 60)}: {run.curve.height or run.warmup.height:,} steps"
    table = make_table(title, ("figure", "first tenth", "over training", "last tenth"))
    for curve in curves:
        line = draw([value for _, value in curve.points])
        first, last = number(curve.first, curve.name), number(curve.last, curve.name)
        table.add_row(*styled(console, (CURVE_TITLES[curve.name], first, line, last)))
    console.print(table)
