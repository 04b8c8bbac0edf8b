"""Sentences on trainings of a judge: the verdict, what follows it, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from habitus.metrics.locals_heldout import Calibration, appr
from habitus.metrics.locals_read import LocalsRun
from habitus.metrics.locals_summary import Test, overall
from habitus.report.comparisons import comparison_finding, difference_words
from habitus.report.findings import Finding
from habitus.report.locals_compared import (
    against_base,
    against_others,
    listed,
    name,
    own_criteria,
)
from habitus.report.locals_figures import View, signed
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
        names = "all runs" if 1 < len(barred) == len(view.runs) else listed(barred)
        text = f"Not for commercial use, because some of the pairs may not be used so: {names}."
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
    found += _unjudged(measured)
    for run in measured[:MOST_FINDINGS]:
        p_a = overall(run, "p_a", run.way)
        if p_a is not None and p_a.value is not None and not 0.1 <= p_a.value <= 0.9:
            letter = "first" if p_a.value > 0.5 else "second"
            text = (
                f"{one_line(run.label, 60)} favours the {letter} response in "
                f"{percent(max(p_a.value, 1 - p_a.value), 0)} of looks, whatever it is."
            )
            found.append(Finding("warning", text))
    found += _misleading(view)
    found += own_criteria(view)
    if measured:
        found += against_others(view, *_focus(view).arms)
    if measured and measured[0].stage == "base":
        found += against_base(view)
    return found[: 4 * MOST_FINDINGS]


def _unjudged(measured: Sequence[LocalsRun]) -> list[Finding]:
    """Say which runs give no verdict on how many held-out pairs."""
    known = [(run, overall(run, "accuracy", run.way)) for run in measured]
    some = [(run, metric) for run, metric in known if metric is not None and metric.n_excluded]
    if not some:
        return []
    if len(some) == 1:
        ((run, metric),) = some
        every = count(metric.n + metric.n_excluded, "held-out pair")
        text = f"{one_line(run.label, 60)} gives no verdict on {metric.n_excluded:,} of {every}."
    else:
        items = [
            f"{name(run.label)} ({metric.n_excluded:,} of {metric.n + metric.n_excluded:,})"
            for run, metric in some
        ]
        text = f"Without a verdict on some held-out pairs: {listed(items)}."
    return [Finding("warning", text)]


def _misleading(view: View) -> list[Finding]:
    """Say of which runs criteria help on most pairs, and cost more where they mislead."""
    some: list[tuple[LocalsRun, str, str]] = []
    for run in view.measured:
        mean = overall(run, "r_appr", "with")
        if run.way == "with" and mean is not None and mean.value is not None and mean.value < 0:
            rises = [rise for each in run.held_out or () if (rise := appr(each)) is not None]
            if (middle := median(rises)) > 0:
                some.append((run, signed(middle), signed(mean.value)))
    if not some:
        return []
    words = "make the right verdict likelier on most pairs"
    if len(some) == 1:
        ((run, middle_words, mean_words),) = some
        text = (
            f"Criteria of {one_line(run.label, 60)} {words} (median R_appr {middle_words}), and where "
            f"they mislead it they cost more (mean {mean_words})"
            f"{_overconfidence(view.figures.calibration[run.label])}."
        )
    else:
        items = [f"{name(run.label)} {middle} and {mean}" for run, middle, mean in some]
        text = (
            f"Criteria of {len(some)} runs {words}, and where they mislead them they cost more; "
            f"median and mean R_appr: {listed(items, '; ')}."
        )
    return [Finding("warning", text)]


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
    said: dict[str, list[str]] = {}
    for run in view.runs:
        for text in _warmup(run):
            said.setdefault(text, []).append(name(run.label))
    return found + [f"{listed(labels)}: {text}" for text, labels in said.items()]


def _warmup(run: LocalsRun) -> list[str]:
    """Say whose warm-up it is, and what it kept."""
    found = []
    shared = run.record.get("warmup_from")
    if shared is not None:
        took = duration(number_of(run.record.get("warmup_seconds")))
        found.append(f"the warm-up is that of {shared}; its {took} are not in the time.")
    kept = run.record.get("n_criteria")
    if kept is not None:
        both = run.record.get("n_criteria_both_orders")
        found.append(
            f"the warm-up kept {kept} criteria, of which {both} help in both orders{_shown(run)}."
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
