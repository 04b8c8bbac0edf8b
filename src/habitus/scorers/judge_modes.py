"""The ways of judging: which looks an item gets, and how they become scores.

listwise
    All candidates at once, in every rotation of the order, so that each stands once at each
    position. A candidate's score is the mean of its log-probability, or its share of the votes.
pairwise, all against all
    Every pair in both orders. The probability of winning a pair is the mean over the two orders; a
    candidate's score is the mean of that over all opponents.
pairwise, knockout
    Neighbours in the seeded order play, in both orders; the better one goes on and stands in its
    place, the last of an odd number goes on without playing. A score is the number of rounds
    survived before the last match played, plus the probability of winning that match. So the
    winner of the final has the highest score. A match that is exactly even goes to the one that
    the seeded order has first; an even final is a tie.
pointwise
    Each candidate alone. Its score is its rating: expected, over the distribution of ratings, or
    as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from habitus.scorers.judge_looks import Look, Program, Questions, Record, together
from habitus.types import Pass

Scores = dict[str, float]
"""Candidate id to score."""


class Bench:
    """Takes the looks of one item and keeps what they bring."""

    def __init__(self, questions: Questions, *, wide: bool) -> None:
        """Begin with no look.

        Args:
            questions: Asks about the item.
            wide: Ask what does not depend on each other at once, rather than one by one.
        """
        self.questions = questions
        self.passes: list[Pass] = []
        """All looks taken."""
        self.records: list[Record] = []
        """What they cost and brought, that of a failed look last."""
        self._wide = wide

    def take(self, looks: Sequence[Look]) -> Program[list[Pass]]:
        """Take looks and return their passes."""
        passes = yield from together(looks, self.records, wide=self._wide)
        self.passes += passes
        return passes

    def votes(self) -> range:
        """Number the votes of a look."""
        return range(self.questions.settings.votes)

    def both_orders(self, pairs: Iterable[tuple[str, str]]) -> list[Look]:
        """Return looks at pairs in both orders."""
        return [
            self.questions.compare(shown, vote)
            for a, b in pairs
            for shown in ((a, b), (b, a))
            for vote in self.votes()
        ]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return round(math.fsum(found) / len(found), 6)


def listwise(bench: Bench, order: Sequence[str]) -> Program[Scores]:
    """Show all candidates in every rotation."""
    looks = [
        bench.questions.compare((*order[shift:], *order[:shift]), vote)
        for shift in range(len(order))
        for vote in bench.votes()
    ]
    passes = yield from bench.take(looks)
    return {name: _mean(look.scores[look.order.index(name)] for look in passes) for name in order}


def _chance(bench: Bench, passes: Iterable[Pass], a: str, b: str) -> float:
    """Return the probability that `a` beats `b`, over all looks at the two."""
    scores = [look.scores[look.order.index(a)] for look in passes if set(look.order) == {a, b}]
    if bench.questions.settings.verdict == "logprobs":
        scores = [math.exp(score) for score in scores]
    return _mean(scores)


def pairwise(bench: Bench, order: Sequence[str]) -> Program[Scores]:
    """Show every pair in both orders."""
    pairs = list(combinations(order, 2))
    passes = yield from bench.take(bench.both_orders(pairs))
    won: dict[str, list[float]] = {name: [] for name in order}
    for a, b in pairs:
        chance = _chance(bench, passes, a, b)
        won[a].append(chance)
        won[b].append(1 - chance)
    return {name: _mean(chances) for name, chances in won.items()}


def knockout(bench: Bench, order: Sequence[str]) -> Program[Scores]:
    """Let neighbours play until one is left."""
    scores: Scores = {}
    left = list(order)
    for survived in range(len(order)):
        if len(left) == 1:
            break
        pairs = list(zip(left[::2], left[1::2], strict=False))
        passes = yield from bench.take(bench.both_orders(pairs))
        going_on = []
        for a, b in pairs:
            chance = _chance(bench, passes, a, b)
            scores[a], scores[b] = round(survived + chance, 6), round(survived + 1 - chance, 6)
            going_on.append(a if chance >= 0.5 else b)
        left = going_on + left[len(pairs) * 2 :]
    return {name: scores[name] for name in order}


def pointwise(bench: Bench, order: Sequence[str]) -> Program[Scores]:
    """Show each candidate alone."""
    looks = [bench.questions.rate(name, vote) for name in order for vote in bench.votes()]
    passes = yield from bench.take(looks)
    return {
        name: _mean(look.scores[0] for look in passes if look.order == (name,)) for name in order
    }


def program_of(mode: str, pairs: str) -> Callable[[Bench, Sequence[str]], Program[Scores]]:
    """Return the way of judging that a judge's settings name."""
    if mode == "pairwise":
        return knockout if pairs == "knockout" else pairwise
    return {"listwise": listwise, "pointwise": pointwise}[mode]
