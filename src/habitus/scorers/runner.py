"""Running a reward function over encoded texts: sorted by length, batched, within memory.

Texts are always padded on the right, and what is pooled is decided by their lengths and never by
looking for padding: the score of a text does not depend on the texts beside it beyond the rounding
of its number format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from habitus.clients.encode import Encoded
from habitus.errors import is_out_of_memory

if TYPE_CHECKING:
    import torch

BUDGETS = {"cpu": 2048}
"""Tokens of a batch to begin with, by device type. Large matrices do not help a CPU; its caches
do."""

BUDGET = 32768
"""Tokens of a batch to begin with on an accelerator; halved when memory runs out."""

WASTE = 0.02
"""Share of padding at which a batch is closed before it is full ..."""

LEAST = 0.25
"""... unless it holds less than this share of its budget: tiny batches waste more than padding."""

TRIAL = (207, 39)
"""Width and rows of the batch that a compiled model is tried with; no multiples of anything, so that
nothing is taken for granted."""


@dataclass(frozen=True)
class Batch:
    """Texts that are computed together, padded on the right."""

    ids: torch.Tensor
    """Token ids, (rows, width), on the device."""
    lengths: Sequence[int]
    """Tokens of each row, on the host."""
    starts: Sequence[int | None]
    """Index of each response's first token, on the host."""
    last: torch.Tensor
    """Index of each row's last real token, (rows,), on the device."""
    types: torch.Tensor | None
    """Token type ids, (rows, width), for models that have them."""

    def mask(self) -> torch.Tensor:
        """Return the attention mask, (rows, width): 1 on tokens, 0 on padding."""
        import torch

        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        return (places <= self.last[:, None]).long()


def plan_batches(lengths: Sequence[int], budget: int, *, padded: bool = True) -> list[list[int]]:
    """Cut texts into batches, the longest first.

    Args:
        lengths: Tokens of each text.
        budget: Most tokens of a batch, padding counted; a longer text stands alone.
        padded: Whether texts of different lengths may share a batch.

    Returns:
        Indices into `lengths`, batch by batch.
    """
    batches: list[list[int]] = []
    width = tokens = 0
    for index in sorted(range(len(lengths)), key=lambda at: (-lengths[at], at)):
        size = lengths[index]
        rows = len(batches[-1]) if batches else 0
        area = width * (rows + 1)
        wasteful = 1 - (tokens + size) / area > WASTE and tokens >= LEAST * budget if area else True
        if not rows or area > budget or wasteful or (not padded and size != width):
            batches.append([])
            width, tokens = size, 0
        batches[-1].append(index)
        tokens += size
    return batches


class Runner:
    """Runs a reward function over encoded texts, within the memory that there is."""

    def __init__(
        self,
        rewards: Callable[[Batch], torch.Tensor],
        device: torch.device,
        *,
        budget: int | None = None,
        padded: bool = True,
        pad_id: int = 0,
        vocabulary: int | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Make a runner.

        Args:
            rewards: Gives one reward per row of a batch, (rows,), on the device.
            device: Where batches go.
            budget: Tokens of a batch to begin with; None is the default of the device.
            padded: Whether texts of different lengths may share a batch.
            pad_id: What rows are filled up with; any id that the model knows.
            vocabulary: How many token ids the model knows, where its tokenizer may know more.
            say: Called with lines for the user.
        """
        self._rewards = rewards
        self._vocabulary = vocabulary
        self._padded = padded
        self._pad_id = pad_id
        self._say = say
        self.device = device
        """Where batches go."""
        self.budget = budget or BUDGETS.get(device.type, BUDGET)
        """Tokens of a batch; halved when memory runs out."""
        self.tokens = 0
        """Tokens read so far."""
        self.computed = 0
        """Tokens computed so far, padding counted."""

    def plan(self, texts: Sequence[Encoded]) -> list[list[int]]:
        """Cut texts into batches."""
        return plan_batches([len(text.ids) for text in texts], self.budget, padded=self._padded)

    def run(self, texts: Sequence[Encoded], batches: Iterable[list[int]]) -> dict[int, float | str]:
        """Compute batches of texts.

        Scores stay on the device until all batches are under way; there is one copy at the end.

        Args:
            texts: All texts.
            batches: Indices of the texts to compute, batch by batch.

        Returns:
            Index to reward, or to why there is none.
        """
        import torch

        waiting = deque(batches)
        failed: dict[int, float | str] = {}
        done: list[int] = []
        found: list[torch.Tensor] = []
        with torch.inference_mode():
            while waiting:
                rows = waiting.popleft()
                outcome = self._attempt([texts[row] for row in rows])
                if not isinstance(outcome, Exception):
                    done += rows
                    found.append(outcome)
                elif len(rows) == 1:
                    failed[rows[0]] = f"{type(outcome).__name__}: {outcome}"[:300]
                elif _is_out_of_memory(outcome):
                    waiting = self._shrink(texts, [rows, *waiting])
                else:
                    waiting.extendleft([row] for row in rows)
            values = torch.cat(found).float().cpu().tolist() if found else []
        return failed | dict(zip(done, values, strict=True))

    def _attempt(self, texts: Sequence[Encoded]) -> torch.Tensor | Exception:
        try:
            batch = self._batch(texts)
            rewards = self._rewards(batch)
        except Exception as error:  # noqa: BLE001 - one bad text must not end the run
            # The traceback holds on to the tensors of the failed attempt.
            return error.with_traceback(None)
        self.tokens += sum(batch.lengths)
        self.computed += batch.ids.numel()
        return rewards

    def _shrink(self, texts: Sequence[Encoded], left: Sequence[list[int]]) -> deque[list[int]]:
        """Halve the budget and plan anew what is left."""
        import torch

        width = max(len(texts[row].ids) for row in left[0])
        self.budget = max(width * len(left[0]) // 2, 1)
        if self.device.type != "cpu":
            torch.accelerator.empty_cache()
        self._say(f"out of memory: going on with batches of {self.budget} tokens")
        rows = [row for batch in left for row in batch]
        lengths = [len(texts[row].ids) for row in rows]
        plan = plan_batches(lengths, self.budget, padded=self._padded)
        return deque([rows[at] for at in batch] for batch in plan)

    def try_once(self) -> None:
        """Run one batch of a usual size: compilers choose what is fast for the first that they see.

        Raises:
            Exception: Whatever the reward function raises.
        """
        width, rows = TRIAL
        texts = [Encoded([self._pad_id] * width, 1, width)] * max(
            min(rows, self.budget // width), 2
        )
        self._rewards(self._batch(texts))

    def _batch(self, texts: Sequence[Encoded]) -> Batch:
        lengths = [len(text.ids) for text in texts]
        shape = (len(texts), max(lengths))
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        types = np.zeros(shape, dtype=np.int64) if texts[0].types is not None else None
        for row, text in enumerate(texts):
            ids[row, : lengths[row]] = text.ids
            if types is not None and text.types is not None:
                types[row, : lengths[row]] = text.types
        if self._vocabulary is not None and ids.max() >= self._vocabulary:
            # On a GPU this would end the process.
            raise ValueError(f"token id {ids.max()}; the model knows {self._vocabulary} tokens")
        return Batch(
            ids=to_device(ids, self.device),
            lengths=lengths,
            starts=[text.start for text in texts],
            last=to_device(np.asarray(lengths) - 1, self.device),
            types=None if types is None else to_device(types, self.device),
        )


def to_device(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """Copy an array to the device without waiting for it."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _is_out_of_memory(error: Exception) -> bool:
    phrases = ("out of memory", "not enough memory")  # of other devices and systems
    return is_out_of_memory(error) or (
        isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)
    )
