"""Text of many prompts in one batch, where each prompt has its own random numbers. Imports torch.

The library's `generate` does the work, greedily; a logits processor replaces the logits by the
token that the prompt's own numbers pick. So a text depends on its prompt and its seed, not on what
else is in the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

if TYPE_CHECKING:
    from habitus.clients.decoding import Decoder

LIKELIEST = 1024
"""Tokens among which the end of a nucleus is looked for first."""


@dataclass(frozen=True)
class Draw:
    """How to pick tokens for one prompt."""

    temperature: float
    """Sampling temperature; 0 is greedy. There is no top-k and no penalty."""
    seed: int
    """Seed of the random numbers, of which each token takes one."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that have this probability together, at the temperature."""
    spent: int = 0
    """Random numbers that earlier tokens of the text have taken."""


@dataclass(frozen=True)
class Written:
    """What a model wrote for one prompt."""

    tokens: tuple[int, ...]
    """Without the token that ended it."""
    finished: bool
    """False when the budget ended it."""
    sound: bool
    """False when the model's output was not a number at some token."""


class _Picker(LogitsProcessor):
    """Leaves one possible token in each row: the most likely, or one drawn by the row's numbers."""

    def __init__(self, draws: Sequence[Draw], start: int, budget: int, device: Any) -> None:
        self._start = start
        self._drawn = any(draw.temperature > 0 for draw in draws)
        heat = [draw.temperature if draw.temperature > 0 else 1.0 for draw in draws]
        self._heat = torch.tensor(heat, dtype=torch.float32, device=device)[:, None]
        greedy = [draw.temperature <= 0 for draw in draws]
        self._greedy = torch.tensor(greedy, device=device)
        within = [draw.top_p if draw.top_p < 1 else np.inf for draw in draws]
        self._cut = any(share < 1 for share in within)
        self._within = torch.tensor(within, dtype=torch.float32, device=device)[:, None]
        numbers = [_numbers(draw, budget) for draw in draws]
        self._numbers = torch.from_numpy(np.stack(numbers)).to(device)
        self._sound = torch.ones((budget, len(draws)), dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        pick = self.pick(input_ids.shape[1] - self._start, scores)
        chosen = torch.full_like(scores, -torch.inf)
        return chosen.scatter_(1, pick[:, None], 0.0)

    def pick(self, step: int, scores: torch.Tensor) -> torch.Tensor:
        """Return the token of each row, of logits (rows, vocabulary)."""
        self._sound[step] = ~torch.isnan(scores).any(dim=-1)
        pick = scores.argmax(dim=-1)
        if self._drawn:
            chances = torch.softmax(scores.float() / self._heat, dim=-1)
            if self._cut:
                chances = nucleus(chances, self._within)
            shares = chances.cumsum(dim=-1)
            wanted = self._numbers[:, step, None] * shares[:, -1:]
            drawn = torch.searchsorted(shares, wanted, right=True)[:, 0]
            past_end = drawn >= scores.shape[-1]  # rounding, once in some ten million draws
            pick = torch.where(self._greedy | past_end, pick, drawn)
        return pick

    def sound(self, row: int, tokens: int) -> bool:
        """Say whether the first `tokens` picks of a row came from numbers."""
        return bool(self._sound[:tokens, row].all())


def _numbers(draw: Draw, count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the next random numbers of a text."""
    return np.random.default_rng(draw.seed).random(draw.spent + count, np.float32)[draw.spent :]


def nucleus(chances: torch.Tensor, within: torch.Tensor) -> torch.Tensor:
    """Set all but the likeliest tokens to 0; what is left has at least the probability `within`.

    Tokens as likely as the last one that is needed stay too, so nothing depends on how a sort
    orders equals.

    Args:
        chances: Probabilities, (rows, tokens).
        within: Probability to keep, (rows, 1).
    """
    size = chances.shape[-1]
    for count in (min(LIKELIEST, size), size):  # the few likeliest nearly always suffice
        top = torch.topk(chances, count, dim=-1).values
        before = top.cumsum(dim=-1) - top
        needed = before < within
        if count == size or not bool(needed[:, -1].any()):
            break
    least = torch.where(needed, top, torch.inf).amin(dim=-1, keepdim=True)
    return torch.where(chances >= least, chances, 0.0)


@torch.inference_mode()
def write(
    model: Any,
    prompts: Sequence[Sequence[int]],
    draws: Sequence[Draw],
    *,
    budget: int,
    stops: Collection[int],
    pad: int,
    decoder: Decoder | None = None,
) -> list[Written]:
    """Write after each prompt until a stop token or the budget.

    Args:
        model: A causal language model.
        prompts: Token ids.
        draws: How to pick, one for each prompt.
        budget: Most tokens to write.
        stops: Ids of the tokens that end a text.
        pad: Id that fills rows up, on the left.
        decoder: Writes in place of the library's `generate`, the same.
    """
    if decoder is not None:
        picker = _Picker(draws, 0, budget, model.device)
        rows = decoder.write(prompts, picker.pick, budget=budget, stops=stops, pad=pad)
        return [_written(row, number, stops, picker) for number, row in enumerate(rows)]
    ids = [torch.tensor(prompt, dtype=torch.long) for prompt in prompts]
    ones = [torch.ones(len(prompt), dtype=torch.long) for prompt in prompts]
    padded = pad_sequence(ids, batch_first=True, padding_value=pad, padding_side="left")
    mask = pad_sequence(ones, batch_first=True, padding_side="left")
    picker = _Picker(draws, padded.shape[1], budget, model.device)
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=budget,
        do_sample=False,
        num_beams=1,
        eos_token_id=sorted(stops) or None,
        pad_token_id=pad,
        use_cache=True,
    )
    out = model.generate(
        input_ids=padded.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=config,
        logits_processor=LogitsProcessorList([picker]),
    )
    rows = out[:, padded.shape[1] :].tolist()
    return [_written(row, number, stops, picker) for number, row in enumerate(rows)]


def _written(row: Sequence[int], number: int, stops: Collection[int], picker: _Picker) -> Written:
    end = next((place for place, token in enumerate(row) if token in stops), None)
    kept = tuple(row if end is None else row[:end])
    return Written(kept, end is not None, picker.sound(number, len(kept) + (end is not None)))
