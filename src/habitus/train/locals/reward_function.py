"""The reward function that the trainer calls: it reads completions and asks the model about them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from habitus.clients.engine import Request
from habitus.train.locals.model import Policy
from habitus.train.locals.prompting import Prompting, View
from habitus.train.locals.rewards import (
    RewardSettings,
    appropriateness,
    correctness,
    label_logprob,
    length_penalty,
    swap_consistency,
    total,
)
from habitus.train.locals.scoring import Pair, VerdictScorer
from habitus.train.locals.written import LETTERS, Written, read_written

if TYPE_CHECKING:
    from habitus.train.locals._grpo import IdsGRPOTrainer


@dataclass(frozen=True)
class Completion:
    """A completion, read and asked about; without `logprobs` of it its reward is the floor."""

    view: View
    """What it is about."""
    text: str
    """What was written, from `<criteria>` on."""
    written: Written
    """The text, read."""
    logprobs: Pair | None
    """Of the verdict letters after the criteria."""
    swapped: Pair | None
    """The same with the responses the other way round."""
    baseline: Pair | None
    """The same without criteria."""


class LocalsReward:
    """The reward function of the trainer: the total R of each completion, never None."""

    __name__ = "locals"

    def __init__(
        self,
        policy: Policy,
        prompting: Prompting,
        views: Mapping[str, View],
        settings: RewardSettings,
        *,
        reference: bool,
    ) -> None:
        """Make the function; `attach` must follow.

        Args:
            policy: The model.
            prompting: Makes the judge's requests.
            views: What may be asked about, by name.
            settings: Weights and ranges.
            reference: Whether R_appr is the reference policy's rather than the current one's.
        """
        self._policy = policy
        self._prompting = prompting
        self._views = views
        self._settings = settings
        self._reference = reference
        self._baselines: dict[str, Pair | None] = {}  # the reference's, which never change
        probe = prompting.criteria_request(next(iter(views.values())))
        before = policy.encoder.encode([probe])[0]
        assert isinstance(before, list)
        self._begun, self._before = probe.answer, before
        self._trainer: Any = None
        self._scorer: VerdictScorer | None = None
        self.records: list[dict[str, Any]] = []
        """The last step's completions, those of all processes."""
        self.seconds = 0.0
        """Seconds spent since it was last set to 0."""

    def attach(self, trainer: IdsGRPOTrainer) -> None:
        """Say whose reward this is."""
        self._trainer = trainer

    def __call__(
        self,
        prompts: list[str],
        completions: list[str],
        completion_ids: list[list[int]],
        **columns: Any,
    ) -> list[float]:
        """Return R of each completion.

        Args:
            prompts: Names of views.
            completions: Not used: TRL's text lacks control tokens.
            completion_ids: Token ids.
            **columns: Not used.
        """
        begin = time.perf_counter()
        records = self.read([self._views[name] for name in prompts], completion_ids)
        rewards = [float(record["total"]) for record in records]
        self.records = _gathered(self._trainer, records)
        self.seconds += time.perf_counter() - begin
        return rewards

    def read(self, views: Sequence[View], ids: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """Return a record of each completion: its text, what it says and what it earns.

        Args:
            views: What each is about.
            ids: Token ids of each.
        """
        found = self._asked(views, [self._text(each) for each in ids])
        return [
            self._record(each) | {"tokens": len(own)} for each, own in zip(found, ids, strict=True)
        ]

    def _text(self, ids: Sequence[int]) -> str:
        end = next((n for n, token in enumerate(ids) if token in self._policy.stops), len(ids))
        return self._begun + self._policy.encoder.decode(self._before, ids[:end])

    def _asked(self, views: Sequence[View], texts: Sequence[str]) -> list[Completion]:
        """Ask for the verdicts after the criteria and, once for each prompt, without them."""
        size = len(views)
        requests = [self._request(v, text) for v, text in zip(views, texts, strict=True)]
        if self._settings.w_swap:
            pairs = zip(views, texts, strict=True)
            requests += [self._request(view.swapped, text) for view, text in pairs]
        plain = list(dict.fromkeys(view.key for view in views))
        if self._reference:
            plain = [key for key in plain if key not in self._baselines]
        requests += [self._prompting.plain_request(self._views[key]) for key in plain]
        answers = self._logprobs(requests)
        fresh = dict(zip(plain, answers[len(answers) - len(plain) :], strict=True))
        if self._reference:
            self._baselines |= fresh
        baselines = self._baselines if self._reference else fresh
        swapped = answers[size : 2 * size] if self._settings.w_swap else [None] * size
        return [
            Completion(view, text, read_written(text), own, other, baselines[view.key])
            for view, text, own, other in zip(views, texts, answers[:size], swapped, strict=True)
        ]

    def _request(self, view: View, text: str) -> Request:
        found = self._prompting.verdict_request(view, text)
        return found or self._prompting.stand_in_request(view, text)

    def _logprobs(self, requests: Sequence[Request]) -> list[Pair | None]:
        if not self._reference:
            return self._scoring(self._policy.model).logprobs(requests)
        with self._trainer.as_reference() as reference:
            own = reference is self._trainer.accelerator.unwrap_model(self._trainer.model)
            return self._scoring(self._policy.model if own else reference).logprobs(requests)

    def _scoring(self, model: Any) -> VerdictScorer:
        if self._scorer is None:
            self._scorer = VerdictScorer(
                model,
                self._policy.encoder,
                budget=self._policy.options.batch_tokens,
                autocast=self._policy.autocast,
            )
        return self._scorer

    def _record(self, found: Completion) -> dict[str, Any]:
        settings, right = self._settings, found.view.right
        item = found.view.item
        record: dict[str, Any] = {
            "pair": item.id,
            "culture": item.culture or item.country,
            "language": item.language,
            "source": item.source,
            "right": LETTERS[right],
            "verdict": None,
            "text": found.text,
            "characters": found.written.characters,
            "problem": found.written.problem,
            "r_corr": None,
            "r_appr": None,
            "r_swap": None,
            "r_length": None,
            "p_a": None,
            "total": settings.floor,
        }
        verdict, own, baseline = found.written.verdict, found.logprobs, found.baseline
        if verdict is None:
            return record
        if own is None or baseline is None or (settings.w_swap and found.swapped is None):
            return record | {"problem": "the prompt with the criteria is too long, or no number"}
        appr = appropriateness(
            label_logprob(own, right, settings.labels),
            label_logprob(baseline, right, settings.labels),
        )
        corr = correctness(verdict, right)
        swap = swap_consistency(own, found.swapped) if found.swapped else 0.0
        length = length_penalty(found.written.characters, settings.length_floor)
        return record | {
            "verdict": LETTERS[verdict],
            "r_corr": corr,
            "r_appr": appr,
            "r_swap": swap if found.swapped else None,
            "r_length": length if settings.length_floor else None,
            "p_a": math.exp(label_logprob(own, 0)),
            "total": total(settings, corr=corr, appr=appr, swap=swap, length=length),
        }


def _gathered(trainer: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if trainer.accelerator.num_processes == 1:
        return records
    from accelerate.utils import gather_object

    found: list[dict[str, Any]] = gather_object(records)
    return found
