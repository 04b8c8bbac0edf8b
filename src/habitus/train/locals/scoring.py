"""Log-probabilities of verdict letters from a model in training: no gradient, evaluation mode.

The batches are those of the transformers engine: sorted by length, filled to a token budget, what
prompts share computed once. Temperature is 1. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from habitus.clients.engine import Reply, Request
from habitus.clients.prefix import PASS_TOKENS, NextToken, plan
from habitus.clients.prompt_encoder import PromptEncoder
from habitus.clients.transformers_engine import BATCH_TOKENS

Pair = tuple[float, float]
"""Log-probabilities of the letters A and B over the whole vocabulary."""


class _Changing(NextToken):
    """Next-token logits of a model whose weights change between calls."""

    def forget(self) -> None:
        """Drop the keys and values that older weights computed."""
        self._known = None


class VerdictScorer:
    """Asks a model for its verdicts."""

    def __init__(
        self,
        model: Any,
        encoder: PromptEncoder,
        *,
        budget: int | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Look at the model.

        Args:
            model: A causal language model; of an adapter, the model that holds its layers.
            encoder: What makes its token ids.
            budget: Tokens of a batch; None is the device's default.
            autocast: Makes the context in which the model computes.
        """
        self._model = model
        self._encoder = encoder
        self._autocast = autocast
        kind = "cpu" if model.device.type == "cpu" else "cuda"
        self._budget = budget or BATCH_TOKENS[kind]
        self._pass_tokens = PASS_TOKENS[kind]
        self._next = _Changing(model)

    def logprobs(self, requests: Sequence[Request]) -> list[Pair | None]:
        """Return the letters' log-probabilities; None where a prompt does not fit or is no number.

        Args:
            requests: Requests with two labels.
        """
        prompts: list[list[int]] = []
        labels: list[tuple[int, ...]] = []
        places: list[int] = []
        for place, (request, ids) in enumerate(
            zip(requests, self._encoder.encode(requests), strict=True)
        ):
            if isinstance(ids, Reply):
                continue
            found_labels = self._encoder.label_tokens(request.answer, request.labels)
            whole = found_labels.after(ids)
            if len(whole) <= self._encoder.context:
                places.append(place)
                prompts.append(whole)
                labels.append(found_labels.first)
        groups = [requests[place].group for place in places]
        found: list[Pair | None] = [None] * len(requests)
        for rows, values in self._run(prompts, labels, groups):
            for row, pair in zip(rows, values, strict=True):
                found[places[row]] = pair
        return found

    def _run(
        self, prompts: list[list[int]], labels: list[tuple[int, ...]], groups: list[str]
    ) -> list[tuple[Sequence[int], list[Pair | None]]]:
        self._next.forget()
        batches = plan(
            prompts,
            groups,
            budget=self._budget,
            pass_tokens=self._pass_tokens,
            share=self._next.can_share,
        )
        training = self._model.training
        self._model.eval()
        found: list[tuple[Sequence[int], list[Pair | None]]] = []
        try:
            for batch in batches:
                with self._autocast():
                    logits = self._next.logits(prompts, batch)
                index = torch.tensor([labels[row] for row in batch.rows], device=logits.device)
                values = logits.gather(1, index) - torch.logsumexp(logits, -1, keepdim=True)
                sound = torch.isfinite(values).all(-1).tolist()
                pairs = values.double().cpu().tolist()
                found.append(
                    (
                        batch.rows,
                        [
                            (a, b) if fine else None
                            for (a, b), fine in zip(pairs, sound, strict=True)
                        ],
                    )
                )
        finally:
            self._model.train(training)
            self._next.forget()
        return found
