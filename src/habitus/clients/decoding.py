"""Text token by token with a static cache, where each token is one launch: a recorded CUDA graph.

A token of a small model is a thousand kernels or more, with an adapter several thousand, and
launching them takes ten times as long as computing them. Here the pass that gives the next token is
recorded once for a number of rows and a width of the cache, and replayed. What is computed is what
the library's `generate` computes. Imports torch.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, StaticCache
from transformers.cache_utils import StaticLayer

from habitus.clients.prefix import cache_name
from habitus.clients.recording import beside, given_up, recording

ROWS, WIDTH = 32, 128
"""Rows and widths are rounded up to multiples of these, so that there are few shapes."""
KEPT_TOKENS = 2**18
"""Places for keys and values that are kept, over all shapes but the one in use."""
LOOK = 8
"""Tokens between two looks at whether all rows have ended: a look waits for the device."""

Pick = Callable[[int, torch.Tensor], torch.Tensor]
"""Picks the next tokens: of the number of the token and logits (rows, vocabulary), ids (rows)."""


class _Layer(StaticLayer):  # type: ignore[no-untyped-call, misc, unused-ignore]
    """Keys and values of one layer, as attention will read them."""

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        # under autocast keys come in float32, values do not, and attention casts both
        kind = key_states.device.type
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            key_states, value_states = key_states.to(dtype), value_states.to(dtype)
        return super().update(key_states, value_states, *args, **kwargs)


def _new_cache(config: Any, width: int) -> Any:
    count = len(StaticCache(config=config, max_cache_len=width).layers)
    return Cache(layers=[_Layer(max_cache_len=width) for _ in range(count)])


@dataclass
class _Step:
    """The pass of one more token, for a number of rows and a width."""

    cache: Any
    ids: torch.Tensor
    positions: torch.Tensor
    seen: torch.Tensor
    """Which places each row looks at, (rows, 1, 1, width)."""
    graph: Any = None
    logits: torch.Tensor | None = None
    """Where the graph writes."""


class Decoder:
    """Writes with one causal language model, whose weights may change between calls, in place."""

    def __init__(
        self,
        model: Any,
        say: Callable[[str], None] = lambda line: None,
        *,
        record: bool | None = None,
    ) -> None:
        """Look at the model.

        Args:
            model: A causal language model of the transformers library; see `can_decode`.
            say: Called with lines for the user.
            record: Whether to record graphs; None is on NVIDIA's GPUs.
        """
        self._model = model
        self._say = say
        self._record = model.device.type == "cuda" if record is None else record
        self._cache_name = cache_name(inspect.signature(model.forward).parameters)
        self._steps: OrderedDict[tuple[int, int], _Step] = OrderedDict()

    @property
    def recorded(self) -> int:
        """Number of shapes that are recorded."""
        return sum(step.graph is not None for step in self._steps.values())

    def forget(self) -> None:
        """Release what is recorded, with its memory."""
        self._steps.clear()

    @torch.no_grad()
    def write(
        self,
        prompts: Sequence[Sequence[int]],
        pick: Pick,
        *,
        budget: int,
        stops: Collection[int],
        pad: int,
    ) -> list[list[int]]:
        """Write after each prompt until all have ended, or the budget.

        Args:
            prompts: Token ids.
            pick: Picks tokens.
            budget: Most tokens to write.
            stops: Ids of the tokens that end a text.
            pad: Id that fills rows up.

        Returns:
            The ids of each row, with the stop token where there was one, and nothing behind it.
        """
        device = self._model.device
        rows = len(prompts)
        ids = pad_sequence(
            [torch.tensor(prompt) for prompt in prompts],
            batch_first=True,
            padding_value=pad,
            padding_side="left",
        ).to(device)
        real = pad_sequence(
            [torch.ones(len(prompt), dtype=torch.bool) for prompt in prompts],
            batch_first=True,
            padding_side="left",
        ).to(device)
        # streams and graphs are of the current GPU, which the model's need not be
        own = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with own, _no_cast_is_kept(device.type), self._evaluating():
            step = self._step(rows, ids.shape[1] + budget)
            extra = len(step.ids) - rows  # rows that nobody reads
            if extra:
                ids = torch.cat([ids, ids[-1:].expand(extra, -1)])
                real = torch.cat([real, real[-1:].expand(extra, -1)])
            lengths = real.sum(1, keepdim=True)
            logits = self._read(step, ids, real)
            return self._decode(step, logits, lengths, pick, rows, ids.shape[1], budget, stops)

    def _read(self, step: _Step, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Read the prompts, and return the logits after them."""
        step.cache.reset()
        step.seen.zero_()
        step.seen[:, 0, 0, : ids.shape[1]] = real
        positions = (real.long().cumsum(1) - 1).clamp(min=0)
        found: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=real,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: step.cache},
        ).logits
        return found

    def _decode(
        self,
        step: _Step,
        logits: torch.Tensor,
        lengths: torch.Tensor,
        pick: Pick,
        rows: int,
        start: int,
        budget: int,
        stops: Collection[int],
    ) -> list[list[int]]:
        ends = torch.tensor(sorted(stops), dtype=torch.long, device=logits.device)
        ended = torch.zeros(rows, dtype=torch.bool, device=logits.device)
        written: list[torch.Tensor] = []
        for place in range(budget):
            token = pick(place, logits[:rows, -1])
            written.append(token)
            ended |= torch.isin(token, ends)
            if place == budget - 1 or (place % LOOK == LOOK - 1 and bool(ended.all())):
                break
            step.ids[:rows, 0] = token
            torch.add(lengths, place, out=step.positions)
            step.seen[..., start + place] = True
            logits = self._next(step)
        found = []
        for row in torch.stack(written, dim=1).tolist():
            end = next((place for place, token in enumerate(row) if token in stops), len(row))
            found.append(row[: end + 1])
        return found

    def _next(self, step: _Step) -> torch.Tensor:
        if step.graph is not None:
            step.graph.replay()
            assert step.logits is not None
            return step.logits
        return self._forward(step)

    def _forward(self, step: _Step) -> torch.Tensor:
        found: torch.Tensor = self._model(
            input_ids=step.ids,
            attention_mask=step.seen,
            position_ids=step.positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: step.cache},
        ).logits
        return found

    def _step(self, rows: int, width: int) -> _Step:
        """Return the pass for at least so many rows and so wide a cache, the narrowest known."""
        whole = -(-rows // ROWS) * ROWS if rows > ROWS // 4 and self._record else rows
        known = [key for key in self._steps if key[0] == whole and key[1] >= width]
        if known:
            key = min(known)
            self._steps.move_to_end(key)
            return self._steps[key]
        for key in [key for key in self._steps if key[0] == whole]:
            del self._steps[key]  # narrower ones of as many rows
        key = (whole, -(-width // WIDTH) * WIDTH)
        while self._steps and sum(a * b for a, b in [key, *self._steps]) > KEPT_TOKENS:
            self._steps.popitem(last=False)
        step = self._new(*key)
        self._steps[key] = step
        return step

    def _new(self, rows: int, width: int) -> _Step:
        device = self._model.device
        step = _Step(
            cache=_new_cache(self._model.config, width),
            ids=torch.zeros((rows, 1), dtype=torch.long, device=device),
            positions=torch.zeros((rows, 1), dtype=torch.long, device=device),
            seen=torch.ones((rows, 1, 1, width), dtype=torch.bool, device=device),
        )
        if self._record:
            try:
                self._record_step(step)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - what cannot be recorded varies
                self._record = False
                self._steps.clear()
                self._say(f"tokens cannot be recorded as CUDA graphs: {given_up(error)}")
                return self._new(rows, width)
        return step

    def _record_step(self, step: _Step) -> None:
        with beside():
            self._forward(step)
        torch.clear_autocast_cache()  # weights that were cast before would be those of before
        graph = torch.cuda.CUDAGraph()
        with recording(graph):
            step.logits = self._forward(step)
        step.graph = graph
        torch.clear_autocast_cache()

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        training = self._model.training
        self._model.eval()
        try:
            yield
        finally:
            self._model.train(training)


@contextmanager
def _no_cast_is_kept(kind: str) -> Iterator[None]:
    """Keep autocast as it is, but let it cast weights at each use: a graph must read them anew."""
    if not torch.is_autocast_enabled(kind):
        yield
        return
    with torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), cache_enabled=False):
        yield


def can_decode(model: Any) -> bool:
    """Say whether a `Decoder` can write with a model: on one device, with a cache without windows.

    Args:
        model: A causal language model of the transformers library.
    """
    known = inspect.signature(model.forward).parameters
    ours = type(model).__module__.startswith("transformers.")
    if not (ours and {"position_ids", "logits_to_keep", cache_name(known)} <= set(known)):
        return False
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return False  # masks have another form elsewhere
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        return False
    layers = StaticCache(config=model.config, max_cache_len=WIDTH).layers
    return {type(layer) for layer in layers} == {StaticLayer}
