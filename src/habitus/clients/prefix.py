"""Next-token logits of many prompts, computing what prompts share only once.

The requests of a judge begin alike: all of them with the system's text, those of one item with the
question too. `plan` decides whether the keys and values of such beginnings are computed once and
continued; `NextToken` does it. Both ways give the same logits up to rounding. Imports torch.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from habitus.clients.labels import common_length

PASS_TOKENS = {"cpu": 32, "cuda": 8192}
"""What one more forward pass costs, in tokens of a large one, by kind of device."""
GAIN = 0.95
"""Shared prefixes are used when they cost less than this share of the plain way: attention over a
cache needs a mask, and is a little slower per token."""
OWN = 8
"""Tokens that an item's requests must share beyond what all share, to be worth a step."""

VOCABULARY = 16384
"""Rows of the output layer that are made float32 at a time."""


@dataclass(frozen=True)
class Batch:
    """Prompts to compute together."""

    rows: tuple[int, ...]
    """Places of the prompts, those of one group side by side."""
    common: int = 0
    """Tokens at the beginning of every prompt of the call, computed once; 0 is none."""
    groups: tuple[int, ...] = ()
    """Which group each row belongs to, counted from 0; empty without prefixes of groups."""
    prefixes: tuple[int, ...] = ()
    """Tokens that each group's rows begin with, `common` among them."""

    def halves(self) -> list[Batch]:
        """Return two batches of about half the rows; groups stay whole while there are several.

        A single group gives up its prefix, a single row cannot be halved.
        """
        if len(self.prefixes) > 1:
            cut = len(self.prefixes) // 2
            place = self.groups.index(cut)
            second = tuple(group - cut for group in self.groups[place:])
            return [
                Batch(self.rows[:place], self.common, self.groups[:place], self.prefixes[:cut]),
                Batch(self.rows[place:], self.common, second, self.prefixes[cut:]),
            ]
        if len(self.rows) < 2:
            return [Batch(self.rows)] if self.common or self.prefixes else []
        cut = len(self.rows) // 2
        return [Batch(self.rows[:cut]), Batch(self.rows[cut:])]


@dataclass(frozen=True)
class _Past:
    """Keys and values of beginnings, one row each."""

    cache: Any
    """The library's `DynamicCache`."""
    mask: torch.Tensor
    """Bool, [rows, length]: False where a row is padded."""
    lengths: torch.Tensor
    """Tokens of each row, [rows]: the position at which it goes on."""


def shared_length(prompts: Sequence[list[int]]) -> int:
    """Return how many tokens all prompts begin with, leaving each at least one of its own."""
    return min(common_length(prompts), min(map(len, prompts)) - 1)


def plan(
    prompts: Sequence[list[int]],
    groups: Sequence[Hashable],
    *,
    budget: int,
    pass_tokens: int,
    share: bool = True,
) -> list[Batch]:
    """Return the batches, in which every prompt stands once, cheapest way first decided.

    Args:
        prompts: Token ids.
        groups: The group of each prompt.
        budget: Tokens of a batch, padding and prefixes included; one prompt may have more.
        pass_tokens: What a forward pass costs beyond its tokens, in tokens.
        share: Whether prefixes may be shared at all.
    """
    if not prompts:
        return []
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    common = shared_length(prompts)
    own = {
        group: shared_length([prompts[place] for place in places])
        for group, places in members.items()
        if len(places) > 1
    }
    own = {group: length for group, length in own.items() if length - common >= OWN}
    total = sum(map(len, prompts))
    passes = max(1, round(total / budget))
    saved_common = (len(prompts) - 1) * common
    saved_own = sum((len(members[g]) - 1) * (length - common) for g, length in own.items())
    costs = {
        (False, False): total + passes * pass_tokens,
        (True, False): total - saved_common + (passes + 1) * pass_tokens,
        (False, True): total
        - sum((len(members[g]) - 1) * length for g, length in own.items())
        + 2 * passes * pass_tokens,
        (True, True): total - saved_common - saved_own + (2 * passes + 1) * pass_tokens,
    }
    with_common, with_own = min(costs, key=costs.__getitem__)
    if not share or costs[with_common, with_own] > GAIN * costs[False, False]:
        with_common = with_own = False
    common = common if with_common else 0
    own = own if with_own else {}
    alone = [[place] for g, places in members.items() if g not in own for place in places]
    together = {group: members[group] for group in own}
    return [
        *_filled(prompts, alone, [0] * len(alone), common, budget),
        *_filled(prompts, list(together.values()), list(own.values()), common, budget),
    ]


def _filled(
    prompts: Sequence[list[int]],
    units: Sequence[Sequence[int]],
    prefixes: Sequence[int],
    common: int,
    budget: int,
) -> Iterator[Batch]:
    """Fill batches with units of rows, the longest first, so that memory is tried early."""

    def length(number: int) -> int:
        return max(len(prompts[place]) for place in units[number])

    chosen: list[int] = []
    rows = longest = 0

    def batch() -> Batch:
        places = tuple(place for number in chosen for place in units[number])
        if not any(prefixes[number] for number in chosen):
            return Batch(places, common)
        group = tuple(place for place, n in enumerate(chosen) for _ in units[n])
        return Batch(places, common, group, tuple(prefixes[number] for number in chosen))

    for number in sorted(range(len(units)), key=length, reverse=True):
        size = len(units[number])
        if chosen and (rows + size) * longest > budget:
            yield batch()
            chosen, rows, longest = [], 0, 0
        chosen.append(number)
        rows += size
        longest = max(longest, length(number))
    if chosen:
        yield batch()


def cache_name(parameters: Container[str]) -> str:
    """Return what the library calls the cache among the parameters of a model's forward."""
    return "cache" if "cache" in parameters else "past_key_values"


class NextToken:
    """Computes next-token logits with one causal language model."""

    def __init__(self, model: Any) -> None:
        """Find out how this model takes keys and values.

        Args:
            model: A causal language model of the transformers library.
        """
        self._model = model
        self._last: torch.Tensor | None = None
        head = model.get_output_embeddings()
        if head is not None:
            head.register_forward_pre_hook(self._keep_last)
            head.register_forward_hook(self._in_float32)
        known = inspect.signature(model.forward).parameters
        self._cache_name = cache_name(known)
        self.can_share = self._cache_name in known and "position_ids" in known
        """Whether prefixes can be shared; other models compute every prompt whole."""
        self._window = 0
        if self.can_share:
            layers = DynamicCache(config=model.config).layers
            kinds = {type(layer) for layer in layers}
            ours = type(model).__module__.startswith("transformers.")
            self.can_share = ours and kinds <= {DynamicLayer, DynamicSlidingWindowLayer}
            windows = [getattr(layer, "sliding_window", 0) for layer in layers]
            self._window = min((window for window in windows if window), default=0)
        self._known: tuple[tuple[int, ...], _Past] | None = None

    def _keep_last(self, module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
        """Hand only the last real place of each row to the output layer: the rest is not asked."""
        if self._last is None or not args or args[0].dim() != 3:
            return None
        hidden, last = args[0], self._last.to(args[0].device)
        rows = torch.arange(len(last), device=hidden.device)
        return (hidden[rows, last][:, None], *args[1:])

    def _in_float32(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """Compute the output layer again in float32: bfloat16 logits are an eighth apart.

        Labels would tie that the model tells apart. It is one place per row, so it costs little.
        """
        if self._last is None or type(module) is not torch.nn.Linear or module.weight.is_meta:
            return None
        if output.dtype not in (torch.bfloat16, torch.float16):
            return None
        weight: Any = module.weight
        with torch.autocast(output.device.type, enabled=False):
            hidden = args[0].float()
            parts = [
                torch.nn.functional.linear(hidden, part.float())
                for part in weight.split(VOCABULARY)
            ]
            logits = torch.cat(parts, dim=-1)
            return logits if module.bias is None else logits + module.bias.float()

    @torch.inference_mode()
    def logits(self, prompts: Sequence[list[int]], batch: Batch) -> torch.Tensor:
        """Return the logits after each prompt of a batch, float32, [rows, vocabulary]."""
        mine = [prompts[place] for place in batch.rows]
        past: _Past | None = None
        starts = [0] * len(mine)
        if self._fits(mine, batch):
            if batch.common:
                past = self._beginning(tuple(mine[0][: batch.common]))
                starts = [batch.common] * len(mine)
            if batch.prefixes:
                first = [batch.groups.index(number) for number in range(len(batch.prefixes))]
                segments = [
                    mine[row][batch.common : length]
                    for row, length in zip(first, batch.prefixes, strict=True)
                ]
                past = self._extended(segments, past)
                past = self._selected(past, batch.groups)
                starts = [batch.prefixes[group] for group in batch.groups]
            elif past is not None:
                past = self._selected(past, [0] * len(mine))
        ends = [prompt[start:] for prompt, start in zip(mine, starts, strict=True)]
        ids, mask = self._padded(ends, side="right")
        last = torch.tensor([len(end) - 1 for end in ends], device=ids.device)
        if past is None:
            return self._forward(ids, last=last)  # causal: padding on the right is never seen
        positions = past.lengths[:, None] + torch.arange(ids.shape[1], device=ids.device)
        seen = torch.cat([past.mask, torch.ones_like(mask)], dim=1)
        return self._forward(ids, last=last, positions=positions, mask=seen, cache=past.cache)

    def _fits(self, prompts: Sequence[list[int]], batch: Batch) -> bool:
        """Say whether padding within a row cannot push anything out of a sliding window."""
        starts = [batch.prefixes[group] for group in batch.groups] or [batch.common] * len(prompts)
        ends = max(len(prompt) - start for prompt, start in zip(prompts, starts, strict=True))
        return self.can_share and not 0 < self._window < max(starts) + ends

    def _padded(
        self, rows: Sequence[Sequence[int]], *, side: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and a bool mask of real tokens, both [rows, longest]."""
        ids = [torch.tensor(row, dtype=torch.long) for row in rows]
        ones = [torch.ones(len(row), dtype=torch.bool) for row in rows]
        device = self._model.device
        return (
            pad_sequence(ids, batch_first=True, padding_side=side).to(device),
            pad_sequence(ones, batch_first=True, padding_side=side).to(device),
        )

    def _forward(
        self,
        ids: torch.Tensor,
        *,
        last: torch.Tensor,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        extra: dict[str, Any] = {}
        if cache is not None:
            extra = {"position_ids": positions, "attention_mask": mask, self._cache_name: cache}
        self._last = last
        try:
            logits = self._model(input_ids=ids, use_cache=cache is not None, **extra).logits
        finally:
            self._last = None
        if logits.shape[1] > 1:
            logits = logits[torch.arange(len(last), device=logits.device), last.to(logits.device)]
        found: torch.Tensor = logits.reshape(len(ids), -1).float()
        return found

    def _beginning(self, tokens: tuple[int, ...]) -> _Past:
        """Return the keys and values of what all prompts begin with, computed once and kept."""
        if self._known is None or self._known[0] != tokens:
            self._known = None
            self._known = (tokens, self._extended([tokens], None))
        return self._known[1]

    def _extended(self, segments: Sequence[Sequence[int]], past: _Past | None) -> _Past:
        """Continue one beginning, or nothing, by several segments, padded on the left."""
        ids, real = self._padded(segments, side="left")
        if past is None:
            lengths = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
            past = _Past(DynamicCache(config=self._model.config), real[:, :0], lengths)
        else:
            past = self._selected(past, [0] * len(ids))
        mask = torch.cat([past.mask, real], dim=1)
        positions = past.lengths[:, None] + (real.long().cumsum(1) - 1).clamp(min=0)
        last = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
        self._forward(ids, last=last, positions=positions, mask=mask, cache=past.cache)
        return _Past(past.cache, mask, past.lengths + real.sum(1))

    @staticmethod
    def _selected(past: _Past, rows: Sequence[int]) -> _Past:
        """Return the named rows, leaving `past` as it is."""
        cache = copy.copy(past.cache)
        cache.layers = [copy.copy(layer) for layer in past.cache.layers]
        index = torch.tensor(rows, device=past.mask.device)
        for layer in cache.layers:
            layer.batch_select_indices(index.to(layer.keys.device))
        return _Past(cache, past.mask[index], past.lengths[index])
