"""What the figures say, in plain sentences that never claim more than the noise allows.

A run is called above or below chance only when both the Holm-corrected paired test against random
picking and the 95 % interval say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from habitus.report.model import MetricTable, ReportData, Versus, against_baseline, versus
from habitus.report.text import (
    count,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
    whole,
)
from habitus.types import Comparison, Status

SMALL, TINY = 100, 20
"""Below these many judged items a report says so in its own sentence."""

WORST_LANGUAGES = 4
"""Languages that a finding on failures names."""

FAILURES = tuple(status for status in Status if not status.judged)
"""Statuses without a verdict."""

Tone = Literal["above", "below", "unclear", "empty", "note", "warning"]
"""How a sentence is shown: the first four are verdicts."""


@dataclass(frozen=True)
class Finding:
    """One sentence of a report."""

    tone: Tone
    """How it is shown."""
    text: str
    """The sentence."""


def verdict(data: ReportData) -> Finding:
    """Say whether a run is above, below or at chance, or that this cannot be said."""
    table = MetricTable(data.metrics)
    accuracy, chance = table.get("accuracy"), table.value("chance")
    if accuracy is None or accuracy.value is None or accuracy.n == 0:
        return Finding("empty", "No data: no item of this run has a verdict.")
    items = count(accuracy.n, "item")
    these = f"these {items}" if accuracy.n != 1 else "this 1 item"
    test = against_baseline(data, "random")
    if chance is None or test is None or test.p_holm is None:
        return Finding(
            "unclear",
            f"No claim: the figures hold no paired test against random picking on {these}.",
        )
    against = f"(chance {percent(chance)}, Holm-corrected p {_p(test.p_holm)})"
    if test.better and accuracy.ci_low is not None and accuracy.ci_low > chance:
        return Finding("above", f"Above chance on {these} {against}.")
    if test.worse and accuracy.ci_high is not None and accuracy.ci_high < chance:
        return Finding("below", f"Below chance: worse than random picking on {these} {against}.")
    return Finding("unclear", f"Cannot be told from random picking on {these} {against}.")


def findings(data: ReportData) -> tuple[Finding, ...]:
    """Return the sentences under the verdict: rules of length, sample size, failures, position."""
    table = MetricTable(data.metrics)
    found = [
        *_length_rules(data),
        *_sample_size(data, table),
        *_failures(data, table),
        *_position(table),
    ]
    return tuple(found)


def _length_rules(data: ReportData) -> list[Finding]:
    found = []
    for baseline in ("longest", "shortest"):
        test = against_baseline(data, baseline)
        if test is None or test.difference is None:
            continue
        rule = f"the rule “always pick the {baseline} response”"
        figures = (
            f"({points(test.difference)} points, 95\u00a0% interval "
            f"{point_bounds(test.low, test.high)}, Holm-corrected p {_p(test.p_holm)})"
        )
        if test.better:
            found.append(Finding("note", f"Beats {rule} {figures}."))
        elif test.worse:
            found.append(Finding("warning", f"Does worse than {rule} {figures}."))
        else:
            found.append(Finding("note", f"Cannot be told from {rule} {figures}."))
    return found


def _sample_size(data: ReportData, table: MetricTable) -> list[Finding]:
    found = []
    accuracy = table.get("accuracy")
    n = 0 if accuracy is None else accuracy.n
    if data.n_judged < data.n_items:
        found.append(
            Finding(
                "warning",
                f"Unfinished: {data.n_judged:,} of {count(data.n_items, 'item')} have been judged.",
            )
        )
    if 0 < n < TINY:
        found.append(
            Finding(
                "warning",
                f"Only {count(n, 'item')}: enough to see that things run, too few to judge a model by.",
            )
        )
    elif TINY <= n < SMALL:
        found.append(
            Finding(
                "note",
                f"A small sample: {n} items show large differences only, and single groups rest on "
                "a handful of items each.",
            )
        )
    detectable = table.value("detectable_difference")
    if detectable is not None:
        found.append(Finding("note", detectable_text(detectable, n)))
    return found


def detectable_text(detectable: float, n: int) -> str:
    """Say the smallest detectable difference in words."""
    if detectable >= 1:
        return (
            f"No true difference, however large, would be found reliably with {count(n, 'item')}."
        )
    return (
        f"Smallest difference that {count(n, 'item')} would find in four of five such runs: about "
        f"{points(detectable, 0, signed=False)} percentage points. Smaller ones can be there unseen."
    )


def _failures(data: ReportData, table: MetricTable) -> list[Finding]:
    counts = {status: whole(table.get("status_count", status=status)) for status in FAILURES}
    failed = sum(counts.values())
    if not failed:
        judged = bool(table.by("status_count", "status"))
        return [Finding("note", "No item failed.")] if judged and data.n_judged else []
    parts = ", ".join(f"{number:,} {status.value}" for status, number in counts.items() if number)
    text = (
        f"{count(failed, 'item')} of {data.n_judged:,} failed ({parts}) and "
        f"{'is' if failed == 1 else 'are'} left out of the accuracy."
    )
    text += _worst_languages(table)
    wrong = table.value("accuracy_failures_wrong")
    if wrong is not None:
        text += f" Counted as wrong, accuracy is {percent(wrong)}."
    return [Finding("warning" if failed * 20 >= data.n_judged else "note", text)]


def _worst_languages(table: MetricTable) -> str:
    """Name the languages with the largest share of failures, where there are several."""
    failed: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for metric in table.by("status_count", "status", "language"):
        failed[metric.group["language"]] += whole(metric)
        sizes[metric.group["language"]] = metric.n
    worst = sorted(failed, key=lambda name: (-failed[name] / sizes[name], name))[:WORST_LANGUAGES]
    if not worst:
        return ""
    shares = ", ".join(
        f"{one_line(name, 60)} {failed[name]:,} of {sizes[name]:,}" for name in worst
    )
    return f" By language: {shares}{', ...' if len(failed) > len(worst) else ''}."


def _position(table: MetricTable) -> list[Finding]:
    found = []
    shares = [metric for metric in table.by("letter_share", "letter") if metric.value is not None]
    if shares:
        top = max(shares, key=lambda metric: metric.value or 0.0)
        even = 1 / len(shares)
        # Three standard errors: the largest of a few shares is often above two by luck.
        error = math.sqrt(even * (1 - even) / max(1, top.n))
        certain = (top.value or 0.0) - even > 3 * error
        if len(shares) > 1 and certain and (top.value or 0.0) >= min(0.9, 2 * even):
            found.append(
                Finding(
                    "warning",
                    f"Position bias: picks letter {top.group['letter']} in {percent(top.value, 0)} of "
                    f"its looks, where {percent(even, 0)} is even.",
                )
            )
    flip = table.get("flip_rate")
    if flip is not None and flip.value is not None and flip.value >= 0.5:
        found.append(
            Finding(
                "warning",
                f"Unstable: on {percent(flip.value, 0)} of {count(flip.n, 'item')} the pick changes "
                "when the same responses are shown in another order.",
            )
        )
    mass = table.value("letter_mass")
    if mass is not None and mass < 0.5:
        found.append(
            Finding(
                "warning",
                f"The model gives the answer letters only {percent(mass, 0)} of its probability, so it "
                "mostly wants to write something else.",
            )
        )
    return found


def _p(p: float | None) -> str:
    text = p_value(p)
    return text if text.startswith(("<", "no")) else f"= {text}"


@dataclass(frozen=True)
class Standing:
    """One run's place in a comparison, as far as the noise lets one say."""

    data: ReportData
    """The run."""
    accuracy: float | None
    """Its accuracy."""
    rank_low: int
    """Best rank it can have: one more than the runs that are better beyond the noise."""
    rank_high: int
    """Worst rank it can have: all runs less those that are worse beyond the noise."""
    best_group: bool
    """True when it is the run of highest accuracy or cannot be told from it."""
    to_best: Versus | None
    """Its comparison with the run of highest accuracy, None for that run itself."""

    @property
    def rank(self) -> str:
        """The rank, or the range of ranks."""
        if self.accuracy is None:
            return "–"
        same = self.rank_low == self.rank_high
        return str(self.rank_low) if same else f"{self.rank_low}–{self.rank_high}"


def standings(runs: Sequence[ReportData], comparisons: Sequence[Comparison]) -> list[Standing]:
    """Order runs by accuracy, each with the range of ranks that the corrected tests leave open."""
    accuracy = {run.label: MetricTable(run.metrics).value("accuracy") for run in runs}
    ranked = sorted(
        runs,
        key=lambda run: (accuracy[run.label] is None, -(accuracy[run.label] or 0.0), run.label),
    )
    scored = [run for run in ranked if accuracy[run.label] is not None]
    result = []
    for run in ranked:
        tests = {
            test.other: test
            for comparison in comparisons
            if run.label in (comparison.a, comparison.b)
            for test in [versus(comparison, run.label)]
            if test.other in accuracy and test.other != run.label
        }
        to_best = tests.get(scored[0].label) if scored and run is not scored[0] else None
        result.append(
            Standing(
                data=run,
                accuracy=accuracy[run.label],
                rank_low=1 + sum(test.worse for test in tests.values()),
                rank_high=len(scored) - sum(test.better for test in tests.values()),
                best_group=accuracy[run.label] is not None
                and (run is scored[0] or to_best is None or not to_best.worse),
                to_best=to_best,
            )
        )
    return result


def comparison_verdict(table: Sequence[Standing]) -> Finding:
    """Say which runs lead, without naming a winner inside the noise."""
    scored = [standing for standing in table if standing.accuracy is not None]
    if not scored:
        return Finding("empty", "No data: no run has a verdict on any item.")
    best, *others = scored
    if not others:
        return Finding("unclear", "Only one run has data, so there is nothing to compare.")
    tied = [standing for standing in others if standing.best_group]
    lead = f"{one_line(best.data.label)} has the highest accuracy ({percent(best.accuracy)})"
    if not tied:
        return Finding("above", f"{lead} and beats every other run here beyond the noise.")
    if len(tied) == len(others):
        return Finding("unclear", f"No winner: {lead}, but no other run can be told from it.")
    names = [one_line(standing.data.label) for standing in tied[:4]]
    if len(tied) > 4:
        names.append(f"{len(tied) - 4:,} more")
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return Finding("unclear", f"No single winner: {lead}, but {listed} cannot be told from it.")


def comparison_findings(
    runs: Sequence[ReportData], comparisons: Sequence[Comparison]
) -> tuple[Finding, ...]:
    """Return the sentences under the verdict: sample size, shared items, differing benchmarks."""
    found = []
    detectable = [pair.detectable for pair in comparisons if pair.detectable is not None]
    if detectable:
        low, high = min(detectable), max(detectable)
        span = points(low, 0, signed=False)
        if round(100 * low) != round(100 * high):
            span += f" to {points(high, 0, signed=False)}"
        found.append(
            Finding(
                "note",
                "Smallest difference between two runs that these items would find in four of five "
                f"such comparisons: about {span} percentage points.",
            )
        )
    partial = [pair for pair in comparisons if pair.n_excluded]
    if partial:
        fewest, most = min(pair.n for pair in partial), max(pair.n for pair in partial)
        span = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        found.append(
            Finding(
                "warning",
                f"Not all items are shared: {len(partial)} of {count(len(comparisons), 'pair')} of "
                f"runs are compared on {span} items only, those that both have and that neither "
                "failed on. Accuracies of single runs rest on different items.",
            )
        )
    names = sorted({run.benchmark for run in runs})
    if len(names) > 1:
        found.append(Finding("warning", f"The runs name different benchmarks: {', '.join(names)}."))
    tests = sum(pair.p is not None for pair in comparisons)
    if tests > 1:
        found.append(Finding("note", f"p-values are corrected for {tests} comparisons (Holm)."))
    return tuple(found)
