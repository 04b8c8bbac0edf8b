"""Baselines that read nothing: random, longest, shortest. Each report shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from habitus.errors import UnknownNameError
from habitus.scorers import ModelEntry, ScorerOptions
from habitus.scorers.base import ItemScorer, refuse_options
from habitus.types import Candidate, Item, ScorerSpec, canonical_json


def _random(item: Item, candidate: Candidate, seed: int) -> float:
    key = canonical_json(["baseline", seed, item.id, candidate.id]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:6]) / 2**48


def _longest(item: Item, candidate: Candidate, seed: int) -> float:
    return float(len(candidate.text))


def _shortest(item: Item, candidate: Candidate, seed: int) -> float:
    return -float(len(candidate.text))


RULES: dict[str, tuple[Callable[[Item, Candidate, int], float], str]] = {
    "random": (_random, "a random pick, drawn from the seed"),
    "longest": (_longest, "the candidate with the most characters"),
    "shortest": (_shortest, "the candidate with the fewest characters"),
}
"""Name to the rule and its description."""


class Baseline(ItemScorer):
    """A rule as a scorer."""

    def __init__(self, rule: str) -> None:
        """Make the baseline that `rule` names."""
        self._score = RULES[rule][0]
        self.spec = ScorerSpec(kind="baseline", model=rule)

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> Mapping[str, Any]:
        """Score each candidate by the rule."""
        return {"scores": {c.id: self._score(item, c, seed) for c in item.candidates}}


def create(model: str, options: ScorerOptions) -> Baseline:
    """Make a baseline from its name.

    Raises:
        UnknownNameError: When there is no such rule.
        InputError: When an option was given that only judges have.
    """
    if model not in RULES:
        raise UnknownNameError("baseline", model, RULES)
    refuse_options("baseline", options, ())
    return Baseline(model)


def entries() -> list[ModelEntry]:
    """Return the baselines for `habitus models`."""
    return [ModelEntry(f"baseline:{rule}", text) for rule, (_, text) in RULES.items()]
