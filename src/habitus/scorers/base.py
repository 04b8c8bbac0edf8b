"""What all scorers share: building judgements, and turning failures into statuses."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from habitus.errors import InputError
from habitus.scorers import ScorerOptions
from habitus.types import (
    Item,
    Judgement,
    ScorerSpec,
    Status,
    candidate_order,
    unit_digest,
    winners,
)


class ItemFailureError(Exception):
    """One item cannot be judged; the run goes on."""

    def __init__(self, status: Status, message: str, **fields: Any) -> None:
        """Say how and why.

        Args:
            status: The status of the judgement.
            message: Why, for people.
            fields: Further fields of the judgement, such as `raw`.
        """
        super().__init__(message)
        self.status = status
        self.fields = fields


class ItemScorer(ABC):
    """A scorer that judges one item at a time. Subclasses give `scores_of`."""

    spec: ScorerSpec

    @abstractmethod
    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> Mapping[str, Any]:
        """Return the judgement's own fields, `scores` among them.

        Args:
            item: What to judge.
            order: Candidate ids as they are to be shown first.
            seed: The run's seed.

        Raises:
            ItemFailureError: When this item cannot be judged.
        """

    def judge(self, items: Sequence[Item], seed: int) -> Iterator[Judgement]:
        """Judge items in their order (see `habitus.types.Scorer.judge`)."""
        for item in items:
            yield self._judge_one(item, seed)

    def _judge_one(self, item: Item, seed: int) -> Judgement:
        start = time.perf_counter()
        outcome: Mapping[str, Any] | Exception
        try:
            outcome = self.scores_of(item, candidate_order(item, seed), seed)
        except Exception as error:  # noqa: BLE001 - a bad item is data, never the end of a run
            outcome = error
        return conclude(item, self.spec, seed, outcome, time.perf_counter() - start)

    def close(self) -> None:  # noqa: B027 - most scorers hold nothing
        """Release nothing; scorers that hold a model say otherwise."""


def conclude(
    item: Item,
    spec: ScorerSpec,
    seed: int,
    outcome: Mapping[str, Any] | Exception,
    seconds: float,
) -> Judgement:
    """Make the judgement of an item from its scores, or from what went wrong.

    Args:
        item: The item.
        spec: The scorer.
        seed: The run's seed.
        outcome: The judgement's own fields, `scores` among them; an `ItemFailureError`, which
            names its status; or any other exception, which becomes the status "error".
        seconds: Wall-clock time of this unit.
    """
    order = candidate_order(item, seed)
    found: dict[str, Any] = {"order": order}
    if not isinstance(outcome, Exception):
        scores = outcome["scores"]
        bad = [name for name, score in scores.items() if not math.isfinite(score)]
        if bad:
            outcome = ItemFailureError(
                Status.ERROR, f"the score of candidate {bad[0]!r} is not a finite number"
            )
        else:
            best = winners(scores)
            found |= outcome
            found |= {
                "winner_ids": best,
                "status": Status.TIE if len(best) > 1 else Status.OK,
            }
    if isinstance(outcome, ItemFailureError):
        found |= {"status": outcome.status, "error": str(outcome)} | outcome.fields
    elif isinstance(outcome, Exception):
        message = f"{type(outcome).__name__}: {outcome}"[:500]
        found |= {"status": Status.ERROR, "error": message}
    return Judgement(
        item_id=item.id,
        unit=unit_digest(item, spec, seed),
        scorer=spec.digest,
        seed=seed,
        seconds=round(seconds, 4),
        **found,
    )


def refuse_options(kind: str, options: ScorerOptions, allowed: Collection[str]) -> None:
    """Refuse options that this kind of scorer has no use for.

    Args:
        kind: What the options were given to, for the message.
        options: The options.
        allowed: Names of the options that apply.

    Raises:
        InputError: Naming the first option that was given and does not apply.
    """
    for option in fields(options):
        given = getattr(options, option.name) is not None
        if given and option.name not in {*allowed, "say"}:
            name = option.name.replace("_", "-")
            raise InputError(f"--{name} does not apply to {kind} models")
