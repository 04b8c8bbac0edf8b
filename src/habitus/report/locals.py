"""The report of trainings of a judge: page, terminal tables and figures.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from pydantic_core import to_jsonable_python
from rich.console import Console

from habitus.metrics.locals_heldout import WAYS, appr
from habitus.metrics.locals_read import LocalsRun
from habitus.metrics.locals_summary import Curve, LocalsFigures, Test, overall
from habitus.report import locals_figures as parts
from habitus.report.figures import Table, versions_table
from habitus.report.findings import Finding
from habitus.report.locals_criteria import (
    BYTES,
    TEXT_CHARACTERS,
    held_out_views,
    training_views,
)
from habitus.report.locals_figures import CURVE_TITLES, MEASURES, View, number, signed
from habitus.report.page import build_page, shown_notes
from habitus.report.scpo_figures import (
    FIGURES,
    comparison_cells,
    detectable_words,
    difference_words,
    told,
)
from habitus.report.terminal import Sparkline, make_table, say_findings, say_line, styled
from habitus.report.text import (
    NO_INTERVAL,
    Budget,
    bounds,
    count,
    duration,
    one_line,
    percent,
)
from habitus.store import write_atomic, write_json

PAGE = "locals-report.html"
"""Name of the page."""

PAPER = ("arXiv 2509.21798", "https://arxiv.org/abs/2509.21798")
"""The paper of the method: its name and address."""

MOST_FINDINGS = 12
"""Runs that findings speak of one by one."""


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
            "measures": parts.measure_figures(view),
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
        tests=parts.tests_table(view),
        seeds=parts.seeds_table(view),
        costs=parts.cost_table(view),
        training=training_views(view.runs, budget),
        held_out=held_out_views(view.runs, budget),
        notes=shown_notes(_notes(view)),
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


def verdict(view: View) -> Finding:
    """Say whether the last run is better than the base, or that this cannot be told.

    Where there is no base it is compared with the first run, and a run that is alone with itself
    without criteria.
    """
    measured = view.measured
    if not measured:
        return Finding(
            "empty", "No held-out pairs were measured: train with --evaluate-pairs to compare."
        )
    test = _focus(view)
    found = test.comparison
    if found.difference is None:
        return Finding("empty", "No data: no held-out pair was judged by both sides.")
    names = f"{one_line(found.a, 80)} against {one_line(found.b, 80)}"
    words = f"{difference_words(found)}, {count(found.n, 'held-out pair')}"
    if not told(found):
        return Finding(
            "unclear",
            f"{names}: cannot be told apart on these pairs ({words}); {detectable_words(found)}.",
        )
    better = found.difference > 0
    return Finding(
        "above" if better else "below",
        f"{names}: {'more' if better else 'less'} accurate beyond the noise ({words}).",
    )


def _focus(view: View) -> Test:
    arms = view.figures.arms
    first = next(iter(arms))
    (last,) = (arm for arm, runs in arms.items() if view.measured[-1].label in runs)
    for test in view.figures.tests:
        if test.measure == "accuracy" and test.arms == (last, first):
            return test
    raise AssertionError("every pair of arms is tested")


def findings(view: View) -> list[Finding]:
    """Return the sentences under the verdict."""
    found = []
    barred = [one_line(run.label, 40) for run in view.runs if run.record.get("non_commercial")]
    if barred:
        text = f"Not for commercial use, because some of the pairs may not be used so: {', '.join(barred)}."
        found.append(Finding("warning", text))
    for run in view.runs:
        if run.record.get("collapsed"):
            text = f"{one_line(run.label, 60)} {one_line(str(run.record['collapsed']), 450)}."
            found.append(Finding("warning", text))
        if not run.done:
            steps = run.settings.get("grpo.steps")
            text = f"{one_line(run.label, 60)} is not finished: {_progress(run, steps)}."
            found.append(Finding("warning", text))
    measured = view.measured
    for run in measured[:MOST_FINDINGS]:
        judged = overall(run, "accuracy", run.way)
        if judged is not None and judged.n_excluded:
            every = count(judged.n + judged.n_excluded, "held-out pair")
            text = (
                f"{one_line(run.label, 60)} gives no verdict on {judged.n_excluded:,} of {every}."
            )
            found.append(Finding("warning", text))
        p_a = overall(run, "p_a", run.way)
        if p_a is not None and p_a.value is not None and not 0.1 <= p_a.value <= 0.9:
            letter = "first" if p_a.value > 0.5 else "second"
            text = (
                f"{one_line(run.label, 60)} favours the {letter} response in "
                f"{percent(max(p_a.value, 1 - p_a.value), 0)} of looks, whatever it is."
            )
            found.append(Finding("warning", text))
        mean = overall(run, "r_appr", "with")
        if run.way == "with" and mean is not None and mean.value is not None and mean.value < 0:
            rises = [rise for each in run.held_out or () if (rise := appr(each)) is not None]
            if (middle := median(rises)) > 0:
                text = (
                    f"Criteria of {one_line(run.label, 60)} make the right verdict likelier on most pairs (median R_appr "
                    f"{signed(middle)}), and where they mislead it they cost more (mean {signed(mean.value)})."
                )
                found.append(Finding("warning", text))
    for test in view.figures.tests:
        own = test.comparison
        if test.measure != "accuracy" or test.against != "borrowed" or own.difference is None:
            continue
        name = one_line(test.arms[0], 60)
        words = difference_words(own)
        if not told(own):
            text = (
                f"Whether {name} uses the criteria it writes cannot be told: its own against those "
                f"it wrote about other questions {words}; {detectable_words(own)}."
            )
        elif own.difference < 0:
            text = f"{name} is less accurate after its own criteria than after those it wrote about other questions: {words}."
        else:
            continue
        found.append(Finding("warning", text))
    found += _against_others(view) if measured else []
    if measured and measured[0].stage == "base":
        base = next(iter(view.figures.arms))
        for test in view.figures.tests:
            own = test.comparison
            if test.arms[1] == base and own.difference is not None and not test.own:
                found.append(Finding("note", _against(test, "the base")))
    return found[: 4 * MOST_FINDINGS]


def _against_others(view: View) -> list[Finding]:
    """Return how the arm of the verdict does against all but the one it is compared with there.

    In accuracy always; in right verdicts in both orders where that is told.
    """
    found = []
    last, first = _focus(view).arms
    for test in view.figures.tests:
        own = test.comparison
        others = set(test.arms) - {last}
        if last not in test.arms or len(others) != 1 or first in others or own.difference is None:
            continue
        if test.measure != "accuracy" and not told(own):
            continue
        rise = own.difference if test.arms[0] == last else -own.difference
        text = _against(test, one_line(own.b, 60))
        found.append(Finding("note" if told(own) and rise > 0 else "warning", text))
    return found


def _against(test: Test, other: str) -> str:
    own = test.comparison
    ends = "" if told(own) else "; cannot be told from it"
    return (
        f"{one_line(own.a, 60)} against {other}, {MEASURES[test.measure].lower()}: "
        f"{difference_words(own)}{ends}."
    )


def _progress(run: LocalsRun, steps: object) -> str:
    if run.curve.height:
        last = int(run.curve["step"][-1])
        ends = ", but not what follows it" if last == steps else ""
        return f"step {last} of {steps}{ends}"
    for table, what in ((run.warmup, "warm-up"), (run.verdicts, "verdict")):
        if table.height:
            return f"{what} step {int(table['step'][-1])}"
    return "no step yet"


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
    if rise is not None:
        facts.append((f"Mean R_appr, {parts.short(last.label)}", signed(rise.value)))
    return facts


def _notes(view: View) -> list[str]:
    found, measured = [], view.measured
    if measured and measured[0].stage != "base":
        found.append("The model as it was is not among the runs; --stage base measures it.")
    for key, what in (("pairs_digest", "trained on"), ("evaluate_digest", "measured on")):
        known = {run.config.get(key) for run in view.runs if run.config.get(key) is not None}
        if len(known) > 1:
            found.append(
                f"The runs were {what} different pairs"
                + ("; tests are on those that two runs share." if key != "pairs_digest" else ".")
            )
    left = [one_line(run.label, 40) for run in view.runs if not run.held_out]
    if left and measured:
        found.append(f"Without held-out pairs: {', '.join(left)}.")
    for run in view.runs:
        shared = run.record.get("warmup_from")
        if shared is not None:
            took = duration(_number(run.record.get("warmup_seconds")))
            found.append(
                f"{run.label}: the warm-up is that of {shared}; its {took} are not in the time."
            )
        kept = run.record.get("n_criteria")
        if kept is not None:
            both = run.record.get("n_criteria_both_orders")
            found.append(
                f"{run.label}: the warm-up kept {kept} criteria, of which {both} help in both orders."
            )
    return found


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
            duration(_number(run.record.get("seconds"))),
            "not for commercial use" if run.record.get("non_commercial") else "–",
        )
        for run in view.runs
    )
    headers = ("Run", "Stage", "Model", "Finished", "Pairs", "Left out", "Seed", "Time", "Licence")
    return Table(headers, rows)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


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


def print_locals(view: View, console: Console) -> None:
    """Print the verdict, held-out figures, tests, and the curves as lines of characters.

    Args:
        view: Runs and their figures.
        console: Where to print. Colours, width and encoding are the console's.
    """
    say_line(console, "judges that reason like a local", "bold")
    say_findings(console, verdict(view), findings(view))
    _print_held_out(view, console)
    _print_tests(view, console)
    for run in view.runs:
        curves = [curve for curve in view.figures.curves if curve.run == run.label]
        if curves:
            _print_curves(run, curves, console)
    for note in _notes(view):
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


def _print_tests(view: View, console: Console) -> None:
    chosen = [test for test in view.figures.tests if test.measure == "accuracy"]
    if not chosen:
        return
    headers = ("first - second", "points", "95 % CI", "p", "Holm p", "n")
    table = make_table("Paired differences in accuracy", headers)
    for test in chosen:
        cells = comparison_cells(test.comparison)
        pair = f"{one_line(test.comparison.a, 60)} - {one_line(test.comparison.b, 60)}"
        table.add_row(*styled(console, (pair, *cells[:4], cells[5])))
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
