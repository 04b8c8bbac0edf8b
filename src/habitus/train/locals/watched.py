"""What the judge writes about the same few pairs over training, so that a reader sees it change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.clients.sampling import Draw, write
from habitus.train.curve import append_lines, keep_steps
from habitus.train.locals.model import Policy
from habitus.train.locals.prompting import CHOSEN, REJECTED, View

if TYPE_CHECKING:
    from habitus.train.locals.reward_function import LocalsReward

WATCHED = "watched.jsonl"

PAIRS, POINTS = 4, 5
"""Pairs that are watched, and how often: before training, after it, and evenly between."""


def watched_views(views: Sequence[View], seed: int, count: int = PAIRS) -> list[View]:
    """Return one view of a few pairs, of as many languages and cultures as there are.

    Args:
        views: Both orders of each pair, side by side.
        seed: Seed of the choice.
        count: How many.
    """
    first = list({view.item.id: view for view in reversed(views)}.values())[::-1]
    random.Random(seed).shuffle(first)  # noqa: S311 - no secret
    times: dict[tuple[str | None, str | None], int] = {}
    ranked = []
    for place, view in enumerate(first):
        key = (view.item.language, view.item.culture or view.item.country)
        times[key] = times.get(key, 0) + 1
        ranked.append((times[key], place))
    return [first[place] for _, place in sorted(ranked)[:count]]


class Watcher:
    """Lets the model write greedily about the watched pairs, at some steps of training.

    It draws no random number, so training is the same with it and without.
    """

    def __init__(
        self,
        policy: Policy,
        reward: LocalsReward,
        views: Sequence[View],
        ids: dict[str, list[int]],
        folder: Path,
        *,
        steps: int,
        max_tokens: int,
    ) -> None:
        """Make a watcher.

        Args:
            policy: What is trained.
            reward: Reads what was written.
            views: What to write about.
            ids: Token ids of their prompts, by name.
            folder: Where `watched.jsonl` goes.
            steps: Steps of the whole training.
            max_tokens: Most tokens of a text.
        """
        self._policy = policy
        self._reward = reward
        self._views = views
        self._ids = ids
        self._path = folder / WATCHED
        self._max_tokens = max_tokens
        self._at = {round(steps * point / (POINTS - 1)) for point in range(POINTS)}

    def begin(self, step: int, first: bool) -> None:
        """Forget what was written after a step; at step 0, write.

        Args:
            step: The step that training goes on from.
            first: Whether this process writes files.
        """
        keep_steps(self._path, step, first)
        if first and step == 0:
            self.look(0)

    def look(self, step: int) -> None:
        """Write after this step, if it is one of those."""
        if step not in self._at or not self._views:
            return
        policy, prompts = self._policy, [self._ids[view.key] for view in self._views]
        training = policy.model.training
        policy.model.eval()
        try:
            with policy.autocast():
                found = write(
                    policy.model,
                    prompts,
                    [Draw(0.0, 0)] * len(prompts),
                    budget=self._max_tokens,
                    stops=policy.stops,
                    pad=min(policy.stops, default=0),
                    decoder=policy.decoder,
                )
        finally:
            policy.model.train(training)
        records = self._reward.read(self._views, [each.tokens for each in found])
        append_lines(
            self._path,
            [
                {"step": step} | record | _shown(view)
                for record, view in zip(records, self._views, strict=True)
            ],
        )


def _shown(view: View) -> dict[str, Any]:
    texts = {candidate.id: candidate.text for candidate in view.item.candidates}
    return {
        "domain": view.item.domain,
        "question": view.item.prompt[-1].content,
        "chosen": texts[CHOSEN],
        "rejected": texts[REJECTED],
    }
