"""Sentences on how arms do against each other on held-out pairs: one for all that came out alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from habitus.metrics.locals_rises import Rise
from habitus.metrics.locals_summary import LOSS, Test
from habitus.report.comparisons import (
    detectable_words,
    difference_words,
    tested_words,
    told,
)
from habitus.report.findings import Finding
from habitus.report.locals_figures import MEASURES, View, plain_interval, signed
from habitus.report.text import one_line, p_value, point_bounds, points
from habitus.types import Comparison

MOST_NAMES, SHORT = 8, 22
"""Runs or arms that one sentence names, and the characters of each: pages cut long sentences."""

INTERVALS = "with 95\u00a0% intervals"


def name(label: str) -> str:
    """Return the label of a run or an arm, for a sentence about several."""
    return one_line(label, SHORT)


def listed(items: Sequence[str], between: str = ", ") -> str:
    """Return items for a sentence, the last ones as a number where there are many."""
    more = len(items) - MOST_NAMES
    return between.join(items[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class _Versus:
    """One arm against another in a measure."""

    measure: str
    """What was measured."""
    arm: str
    """The arm that is named among others with this outcome."""
    own: Comparison
    """The difference; `a` is what the sentence is about."""

    @property
    def outcome(self) -> str:
        """`better`, `worse` or, inside the noise, `alike`: of `own.a`."""
        if not told(self.own) or self.own.difference is None:
            return "alike"
        return "better" if (self.own.difference > 0) != (self.measure == LOSS) else "worse"

    @property
    def title(self) -> str:
        """Names the measure."""
        return MEASURES.get(self.measure, "Log loss")

    @property
    def item(self) -> str:
        """The arm with difference and interval."""
        own = self.own
        if self.measure == LOSS:
            return f"{name(self.arm)} {signed(own.difference)} ({plain_interval(own)})"
        return (
            f"{name(self.arm)} {points(own.difference)} ({point_bounds(own.ci_low, own.ci_high)})"
        )

    def sentence(self, other: str) -> str:
        """Return the comparison as a sentence of its own."""
        own, nats = self.own, self.measure == LOSS
        ends = (
            "cannot be told from it"
            if self.outcome == "alike"
            else f"{self.outcome} beyond the noise"
        )
        words = _nats(own) if nats else difference_words(own)
        return f"{one_line(own.a, 60)} against {other}, {self.title.lower()}: {words}; {ends}."


def _turned(own: Comparison) -> Comparison:
    """Return a comparison as seen from the other side."""
    low, high, difference = (
        None if each is None else -each for each in (own.ci_high, own.ci_low, own.difference)
    )
    turned = {"a": own.b, "b": own.a, "difference": difference, "ci_low": low, "ci_high": high}
    return own.model_copy(update=turned)


def against_base(view: View) -> list[Finding]:
    """Return how each arm does against the first, where that is the model as it was."""
    base = next(iter(view.figures.arms))
    rows = [
        _Versus(test.measure, test.arms[0], test.comparison)
        for test in (*view.figures.tests, *view.figures.losses)
        if test.arms[1] == base and not test.own and test.comparison.difference is not None
    ]
    found = []
    for alike in _outcomes(rows):
        first = alike[0]
        if len(alike) == 1:
            text = first.sentence("the base")
        else:
            text = f"{first.title} against the base, {_several(alike, 'it')}."
        found.append(Finding("warning" if first.outcome == "worse" else "note", text))
    return found


def against_others(view: View, last: str, first: str) -> list[Finding]:
    """Return how an arm does against all but the one that the verdict has told of.

    In accuracy always; in other measures where that is told.

    Args:
        view: Runs and their figures.
        last: The arm that the verdict is about.
        first: The one it is compared with there.
    """
    rows = []
    for test in (*view.figures.tests, *view.figures.losses):
        own = test.comparison
        others = set(test.arms) - {last}
        if last not in test.arms or len(others) != 1 or first in others or own.difference is None:
            continue
        later, earlier = test.arms
        row = (
            _Versus(test.measure, earlier, own)
            if later == last
            else _Versus(test.measure, later, _turned(own))
        )
        if test.measure == "accuracy" or row.outcome != "alike":
            rows.append(row)
    found = []
    for alike in _outcomes(rows):
        row = alike[0]
        if len(alike) == 1:
            text = row.sentence(one_line(row.own.b, 60))
        else:
            heading = f"{one_line(last, 60)}, {row.title.lower()}"
            text = f"{heading} against others, {_several(alike, 'any of them')}."
        found.append(Finding("note" if row.outcome == "better" else "warning", text))
    return found


def _outcomes(rows: Iterable[_Versus]) -> list[list[_Versus]]:
    """Put rows of one measure and outcome together."""
    found: dict[tuple[str, str], list[_Versus]] = {}
    for row in rows:
        found.setdefault((row.measure, row.outcome), []).append(row)
    return list(found.values())


def _several(rows: Sequence[_Versus], other: str) -> str:
    """Return what comparisons come to, and each with its interval."""
    outcome = rows[0].outcome
    if outcome == "alike":
        ends = f"cannot be told from {other}"
    else:
        p = p_value(max(row.own.p_holm or 0.0 for row in rows)).replace(" ", "\u00a0")
        ends = f"{outcome} beyond the noise (largest Holm-corrected p {p})"
    unit = "nats" if rows[0].measure == LOSS else "points"
    return f"{ends}; {unit} {INTERVALS}: {listed([row.item for row in rows], '; ')}"


def _nats(own: Comparison) -> str:
    return tested_words(own, f"{signed(own.difference)} nats", plain_interval(own))


def own_criteria(view: View) -> list[Finding]:
    """Say of each arm that learned to write criteria whether it uses them, and what its R_appr is of.

    Whether it uses them is told by accuracy: R_appr is also of how sure it is.
    """
    parts = {each.arm: each for each in view.figures.rises}
    tests = [
        test
        for test in view.figures.tests
        if test.measure == "accuracy" and test.against == "borrowed"
        if test.comparison.difference is not None
    ]
    unclear = [test for test in tests if not told(test.comparison)]
    found = []
    for test in tests if len(unclear) < 2 else [each for each in tests if told(each.comparison)]:
        own, arm = test.comparison, one_line(test.arms[0], 60)
        more = told(own) and own.difference is not None and own.difference > 0
        if told(own):
            text = (
                f"{arm} is {'more' if more else 'less'} accurate after its own criteria than after "
                f"those it wrote about other questions: {difference_words(own)}."
            )
        else:
            text = (
                f"Whether {arm} uses the criteria it writes cannot be told: its own against those "
                f"it wrote about other questions {difference_words(own)}; {detectable_words(own)}."
            )
        if test.arms[0] in parts:
            text += f" {_parts(parts[test.arms[0]])}"
        found.append(Finding("note" if more else "warning", text))
    return found + (_unclear(unclear, parts) if len(unclear) > 1 else [])


def _unclear(tests: Sequence[Test], parts: Mapping[str, Rise]) -> list[Finding]:
    """Say of several arms that it cannot be told whether they use their criteria."""
    most = max(test.comparison.detectable or 0.0 for test in tests)
    items = [_Versus(test.measure, test.arms[0], test.comparison).item for test in tests]
    text = (
        f"Whether {len(tests)} judges use the criteria that they write cannot be told (a true "
        f"difference of {points(most, signed=False)} points would be found in each four times in "
        f"five); their own against those about other questions, points {INTERVALS}: "
        f"{listed(items, '; ')}."
    )
    sentences = [Finding("warning", text)]
    rises = [parts[test.arms[0]] for test in tests if test.arms[0] in parts]
    apart = [each for each in rises if told(each.own)]
    if apart:
        items = [
            f"{name(each.arm)} {signed(each.own.difference)} ({plain_interval(each.own)})"
            for each in apart
        ]
        rest = "" if len(apart) == len(rises) else " The others cannot be told."
        text = (
            "R_appr after their own criteria less that after those about other questions, beyond the "
            f"noise; nats {INTERVALS}: {listed(items, '; ')}.{rest}"
        )
        sentences.append(Finding("warning", text))
    return sentences


def _parts(rise: Rise) -> str:
    own = rise.own
    if not told(own):
        ends = f"a part of its own cannot be told ({_nats(own)})"
    else:
        more = own.difference is not None and own.difference > 0
        ends = (
            f"its own make the right verdict {'likelier' if more else 'less likely'} ({_nats(own)})"
        )
    return (
        f"Its mean R_appr is {signed(rise.total)}, that of criteria about other questions "
        f"{signed(rise.borrowed)}: {ends}."
    )
