"""Sentences on trainings of a judge: the verdict, what follows it, notes."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from habitus.metrics.locals_heldout import Calibration, appr
from habitus.metrics.locals_read import LocalsRun
from habitus.metrics.locals_rises import Rise
from habitus.metrics.locals_summary import Test, overall
from habitus.report.comparisons import (
    comparison_finding,
    detectable_words,
    difference_words,
    tested_words,
    told,
)
from habitus.report.findings import Finding
from habitus.report.locals_figures import MEASURES, View, plain_interval, signed
from habitus.report.text import count, duration, one_line, percent

MOST_FINDINGS = 12
"""Runs that findings speak of one by one."""


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
    return comparison_finding(found, names, words)


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
                    f"{signed(middle)}), and where they mislead it they cost more (mean {signed(mean.value)})"
                    f"{_overconfidence(view.figures.calibration[run.label])}."
                )
                found.append(Finding("warning", text))
    found += _own_criteria(view)
    found += _against_others(view) if measured else []
    if measured and measured[0].stage == "base":
        base = next(iter(view.figures.arms))
        for test in view.figures.tests:
            own = test.comparison
            if test.arms[1] == base and own.difference is not None and not test.own:
                found.append(Finding("note", _against(test, "the base")))
    return found[: 4 * MOST_FINDINGS]


def _own_criteria(view: View) -> list[Finding]:
    """Say of each arm that learned to write criteria whether it uses them, and what its R_appr is of.

    Whether it uses them is told by accuracy: R_appr is also of how sure it is.
    """
    found = []
    parts = {each.arm: each for each in view.figures.rises}
    for test in view.figures.tests:
        own = test.comparison
        if test.measure != "accuracy" or test.against != "borrowed" or own.difference is None:
            continue
        name = one_line(test.arms[0], 60)
        words = difference_words(own)
        if told(own):
            more = own.difference > 0
            text = (
                f"{name} is {'more' if more else 'less'} accurate after its own criteria than after "
                f"those it wrote about other questions: {words}."
            )
        else:
            more = False
            text = (
                f"Whether {name} uses the criteria it writes cannot be told: its own against those "
                f"it wrote about other questions {words}; {detectable_words(own)}."
            )
        if test.arms[0] in parts:
            text += f" {_parts(parts[test.arms[0]])}"
        found.append(Finding("note" if more else "warning", text))
    return found


def _parts(rise: Rise) -> str:
    own = rise.own
    words = tested_words(own, f"{signed(own.difference)} nats", plain_interval(own))
    if not told(own):
        ends = f"a part of its own cannot be told ({words})"
    else:
        more = own.difference is not None and own.difference > 0
        ends = f"its own make the right verdict {'likelier' if more else 'less likely'} ({words})"
    return (
        f"Its mean R_appr is {signed(rise.total)}, that of criteria about other questions "
        f"{signed(rise.borrowed)}: {ends}."
    )


def _overconfidence(ways: Mapping[str, Calibration]) -> str:
    """Return how much surer than right a judge is after its criteria, where that is above 0."""
    own, plain = ways.get("with"), ways.get("without")
    if own is None or plain is None or own.ci_low is None or own.ci_low <= 0:
        return ""
    return (
        f": the likelier letter has {percent(own.confidence, 0)} after them and is right in "
        f"{percent(own.right, 0)} of looks, without {percent(plain.confidence, 0)} and "
        f"{percent(plain.right, 0)}"
    )


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


def notes(view: View) -> list[str]:
    """Return what a reader should know besides."""
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
            took = duration(number_of(run.record.get("warmup_seconds")))
            found.append(
                f"{run.label}: the warm-up is that of {shared}; its {took} are not in the time."
            )
        kept = run.record.get("n_criteria")
        if kept is not None:
            both = run.record.get("n_criteria_both_orders")
            shown = _shown(run)
            found.append(
                f"{run.label}: the warm-up kept {kept} criteria, of which {both} help in both orders{shown}."
            )
    return found


def _shown(run: LocalsRun) -> str:
    """Say how often the warm-up showed a pair after criteria; nothing where that is not known."""
    known = run.record.get("shown_after_criteria")
    if not isinstance(known, Mapping):
        return ""
    mean, most = number_of(known.get("mean")), number_of(known.get("most"))
    if mean is None or most is None:
        return ""
    return (
        f", and showed a pair {mean:.1f} times after criteria on average, {most:.0f} times at most"
    )


def number_of(value: object) -> float | None:
    """Return a number of a run's record; None where there is none."""
    return float(value) if isinstance(value, int | float) else None
