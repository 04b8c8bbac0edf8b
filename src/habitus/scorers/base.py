"""What all scorers share: building judgements, and turning failures into statuses."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
        order = candidate_order(item, seed)
        fields: dict[str, Any] = {"order": order}
        try:
            fields |= self.scores_of(item, order, seed)
            bad = [name for name, score in fields["scores"].items() if not math.isfinite(score)]
            if bad:
                message = f"the score of candidate {bad[0]!r} is not a finite number"
                raise ItemFailureError(Status.ERROR, message, scores={}, passes=())
            best = winners(fields["scores"])
            fields["winner_ids"] = best
            fields["status"] = Status.TIE if len(best) > 1 else Status.OK
        except ItemFailureError as failure:
            fields |= {"status": failure.status, "error": str(failure)} | failure.fields
        except Exception as error:  # noqa: BLE001 - a bad item is data, never the end of a run
            message = f"{type(error).__name__}: {error}"[:500]
            fields = {"order": order, "status": Status.ERROR, "error": message}
        return Judgement(
            item_id=item.id,
            unit=unit_digest(item, self.spec, seed),
            scorer=self.spec.digest,
            seed=seed,
            seconds=round(time.perf_counter() - start, 4),
            **fields,
        )

    def close(self) -> None:  # noqa: B027 - most scorers hold nothing
        """Release nothing; scorers that hold a model say otherwise."""


def refuse_options(kind: str, options: ScorerOptions, *names: str) -> None:
    """Refuse options that this kind of scorer has no use for.

    Raises:
        InputError: Naming the first such option.
    """
    for name in names:
        if getattr(options, name) is not None:
            raise InputError(f"--{name} does not apply to {kind} models")
