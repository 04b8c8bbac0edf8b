"""Sentences on how arms do against each other on held-out pairs: one for all that came out alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from habitus.report.locals_figures import MEASURES, View, plain_interval, signed, signed_bounds
from habitus.report.text import one_line, p_value, point_bounds, points
from habitus.types import Comparison

MOST_NAMES = 8
"""Runs or arms that one sentence names."""


def listed(items: Sequence[str]) -> str:
    """Return items for a sentence, the last ones as a number where there are many."""
    more = len(items) - MOST_NAMES
    return ", ".join(items[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class _Side:
    """One arm against another, seen from the one that a sentence is about."""

    name: str
    """The arm that is named among others of its outcome."""
    test: Test
    """The test."""
    flipped: bool
    """Whether the test takes the arm that the sentence is about from the other."""

    @property
    def outcome(self) -> str:
        """`better`, `worse` or, inside the noise, `alike`."""
        own = self.test.comparison
        if not told(own) or own.difference is None:
            return "alike"
        more = (own.difference > 0) != self.flipped
        return "better" if more != (self.test.measure == LOSS) else "worse"

    @property
    def item(self) -> str:
        """Its name, difference and interval."""
        own, sign = self.test.comparison, -1 if self.flipped else 1
        low, high = (
            None if each is None else sign * each for each in (own.ci_low, own.ci_high)[::sign]
        )
        assert own.difference is not None
        difference = sign * own.difference
        if self.test.measure == LOSS:
            return f"{self.name} {signed(difference)} ({signed_bounds(low, high)})"
        return f"{self.name} {points(difference)} ({point_bounds(low, high)})"


def against_base(view: View) -> list[Finding]:
    """Return how each arm does against the first, where that is the model as it was."""
    base = next(iter(view.figures.arms))
    sides = [
        _Side(one_line(test.comparison.a, 60), test, flipped=False)
        for test in (*view.figures.tests, *view.figures.losses)
        if test.arms[1] == base and not test.own and test.comparison.difference is not None
    ]
    found = []
    for alike in _outcomes(sides):
        first = alike[0]
        if len(alike) == 1:
            text = _one(first.test, "the base")
        else:
            text = f"{_heading(first.test)} against the base, {_items(alike, 'it')}."
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
    sides = []
    for test in (*view.figures.tests, *view.figures.losses):
        own = test.comparison
        others = set(test.arms) - {last}
        if last not in test.arms or len(others) != 1 or first in others or own.difference is None:
            continue
        flipped = test.arms[0] != last
        side = _Side(one_line(own.a if flipped else own.b, 60), test, flipped)
        if test.measure == "accuracy" or side.outcome != "alike":
            sides.append(side)
    found = []
    for alike in _outcomes(sides):
        side = alike[0]
        if len(alike) == 1:
            text = _one(side.test, one_line(side.test.comparison.b, 60))
        else:
            heading = f"{one_line(last, 60)}, {_heading(side.test).lower()}"
            text = f"{heading} against others, {_items(alike, 'any of them')}."
        found.append(Finding("note" if side.outcome == "better" else "warning", text))
    return found


def _outcomes(sides: Iterable[_Side]) -> list[list[_Side]]:
    """Put sides of one measure and outcome together."""
    found: dict[tuple[str, str], list[_Side]] = {}
    for side in sides:
        found.setdefault((side.test.measure, side.outcome), []).append(side)
    return list(found.values())


def _heading(test: Test) -> str:
    return "Log loss" if test.measure == LOSS else MEASURES[test.measure]


def _items(sides: Sequence[_Side], other: str) -> str:
    """Return the unit, the differences, and what they come to."""
    side = sides[0]
    unit = "nats" if side.test.measure == LOSS else "points"
    words = f"in {unit} with 95\u00a0% intervals: {listed([each.item for each in sides])}"
    if side.outcome == "alike":
        return f"{words}; cannot be told from {other}"
    worst = max(each.test.comparison.p_holm or 0.0 for each in sides)
    p = p_value(worst).replace(" ", "\u00a0")
    return f"{words}; {side.outcome} beyond the noise (largest Holm-corrected p {p})"


def _one(test: Test, other: str) -> str:
    own = test.comparison
    ends = "" if told(own) else "; cannot be told from it"
    words = _nats(own) if test.measure == LOSS else difference_words(own)
    return f"{one_line(own.a, 60)} against {other}, {_heading(test).lower()}: {words}{ends}."


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
    for test in tests:
        own, name = test.comparison, one_line(test.arms[0], 60)
        more = False
        if told(own):
            more = own.difference is not None and own.difference > 0
            text = (
                f"{name} is {'more' if more else 'less'} accurate after its own criteria than after "
                f"those it wrote about other questions: {difference_words(own)}."
            )
        elif len(unclear) == 1:
            text = (
                f"Whether {name} uses the criteria it writes cannot be told: its own against those "
                f"it wrote about other questions {difference_words(own)}; {detectable_words(own)}."
            )
        else:
            continue
        if test.arms[0] in parts:
            text += f" {_parts(parts[test.arms[0]])}"
        found.append(Finding("note" if more else "warning", text))
    if len(unclear) > 1:
        found += _unclear(unclear, parts)
    return found


def _unclear(tests: Sequence[Test], parts: dict[str, Rise]) -> list[Finding]:
    """Say of several arms that it cannot be told whether they use their criteria."""
    items = [_Side(one_line(test.arms[0], 60), test, flipped=False).item for test in tests]
    found = [test.comparison.detectable for test in tests]
    least = [each for each in found if each is not None]
    text = (
        f"Whether {len(tests)} judges use the criteria that they write cannot be told; their own "
        f"against those about other questions, in points with 95\u00a0% intervals: {listed(items)}."
    )
    if least:
        ends = f"{points(min(least), signed=False)} to {points(max(least), signed=False)}"
        text += f" True differences of {ends} points would be found four times in five."
    rises = [parts[test.arms[0]] for test in tests if test.arms[0] in parts]
    apart = [each for each in rises if told(each.own)]
    if apart:
        text += " What their own add to R_appr, in nats: " + listed(
            [
                f"{one_line(each.arm, 60)} {signed(each.own.difference)} ({plain_interval(each.own)})"
                for each in apart
            ]
        )
        text += ", beyond the noise."
    return [Finding("warning", text)]


def _parts(rise: Rise) -> str:
    own = rise.own
    words = _nats(own)
    if not told(own):
        ends = f"a part of its own cannot be told ({words})"
    else:
        more = own.difference is not None and own.difference > 0
        ends = f"its own make the right verdict {'likelier' if more else 'less likely'} ({words})"
    return (
        f"Its mean R_appr is {signed(rise.total)}, that of criteria about other questions "
        f"{signed(rise.borrowed)}: {ends}."
    )
