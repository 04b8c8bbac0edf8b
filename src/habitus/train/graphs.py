"""Forward and backward passes as CUDA graphs: a step is launched at once, not kernel by kernel.

A step of few short pairs is thousands of small kernels, and launching them takes several times as
long as computing them. A graph holds the kernels of one shape of batch, recorded once and replayed.

Graphs of all shapes take turns in the same memory. It is of the size of the largest only if that was
recorded first: what a small one left is too small for the parts of a larger one, which then takes memory
of its own beside it. So a shape larger than all before starts over, and the others follow as they come.

That memory comes on top of what passes take that are not recorded. Where both do not fit, recorded ones
give way: a pass that ran out of memory is computed again without them, and from then on only shapes of at
most half the size of the largest are recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from habitus.errors import is_out_of_memory
from habitus.progress import processes

T = TypeVar("T")

WIDTH = 16
"""Batches are padded to a multiple of it, so that there are few shapes."""

EAGER = 2
"""Times that a shape is computed kernel by kernel before it is recorded."""


def can_record(device: Any) -> bool:
    """Say whether steps can be recorded: in one process, on a GPU of NVIDIA's.

    Args:
        device: Where the model is.
    """
    import torch

    return device.type == "cuda" and torch.version.cuda is not None and processes() == 1


@dataclass(frozen=True)
class _Recorded:
    """A recorded shape."""

    graph: Any
    """The graph."""
    inputs: Mapping[str, Any]
    """Where it reads its inputs from."""
    loss: Any
    """Where it writes the loss."""


class StepGraphs:
    """The recorded passes of one model; they are good as long as its parameters stay where they are."""

    def __init__(
        self, parameters: Iterable[Any], say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Record nothing yet.

        Args:
            parameters: The model's parameters, on a CUDA device.
            say: Called with lines for the user.
        """
        self._parameters = list(parameters)
        self._say = say
        self._seen: Counter[object] = Counter()
        self._recorded: dict[object, _Recorded] = {}
        self._used: list[Any] = []
        self._gradients: list[Any] = []
        self._pool: Any = None
        self._largest = 0
        self._most = math.inf
        self.failed = False
        """Whether recording failed; nothing is recorded or replayed then."""
        self.replayed = False
        """Whether something has been replayed."""

    @property
    def used(self) -> bool:
        """Whether there is something to replay."""
        return bool(self._recorded)

    def run(
        self,
        inputs: Mapping[str, Any],
        compute: Callable[[Mapping[str, Any]], Any],
        key: object,
        size: int | None = None,
    ) -> Any:
        """Compute a loss and add its gradients to the parameters'.

        Args:
            inputs: Tensors on the device; `compute` uses nothing else that changes.
            compute: Gives the loss, a scalar, of such inputs.
            key: Whatever else the computation depends on.
            size: What it takes of memory, in a unit of the caller's; None is the number of elements
                of the inputs.

        Returns:
            The loss; None where nothing was done, and the caller is to compute it with `unrecorded`:
            the shape is not recorded yet, or cannot be.
        """
        import torch

        if self.failed:
            return None
        shape = (key, *((name, tuple(value.shape)) for name, value in inputs.items()))
        if shape not in self._recorded:
            if size is None:
                size = sum(value.numel() for value in inputs.values())
            self._seen[shape] += 1
            if (
                self._seen[shape] <= EAGER
                or size > self._most
                or not self._record(shape, inputs, compute, size)
            ):
                return None
        recorded = self._recorded[shape]
        with torch.no_grad():
            self._attach()
            for name, value in inputs.items():
                recorded.inputs[name].copy_(value)
            recorded.graph.replay()
            self.replayed = True
            return recorded.loss.clone()

    def unrecorded(self, compute: Callable[[], T]) -> T:
        """Compute what `run` has not; where memory runs out, again without what is recorded.

        Args:
            compute: Does both passes. It is called a second time with the gradients as they were.

        Returns:
            What it returns.

        Raises:
            RuntimeError: When it runs out of memory with nothing recorded.
        """
        if not self._recorded:
            return compute()
        found = [parameter.grad for parameter in self._parameters]
        kept: list[Any] = []
        try:
            kept += [None if each is None else each.clone() for each in found]
            return compute()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # it keeps what was computed: on only when it is gone
        self._give_way()
        if len(kept) == len(found):  # else there was no room for them, and nothing was computed
            for gradient, value in zip(found, kept, strict=True):
                if gradient is not None:
                    gradient.copy_(value)
            self._set_gradients(self._parameters, found)
        del kept
        return compute()

    def _give_way(self) -> None:
        self._most = self._largest / 2
        self._largest = 0
        self._start_over()
        self._say(
            "memory ran out: recorded steps are released, and only smaller ones are recorded from now on"
        )

    def forget(self) -> None:
        """Release what is recorded, with its memory."""
        self._start_over()
        self._used, self._gradients = [], []

    def _start_over(self) -> None:
        """Release what is recorded, but not the gradients: what is in them may be half a step."""
        import torch

        self._recorded.clear()
        self._pool = None
        torch.cuda.empty_cache()

    def _attach(self) -> None:
        """Let the parameters' gradients be those that graphs add to, with what is in them so far."""
        import torch

        now = [parameter.grad for parameter in self._used]
        if now[0] is self._gradients[0]:
            return
        if now[0] is None:
            torch._foreach_zero_(self._gradients)
        else:
            torch._foreach_copy_(self._gradients, now)
        self._set_gradients(self._used, self._gradients)

    def _record(
        self,
        shape: object,
        inputs: Mapping[str, Any],
        compute: Callable[[Mapping[str, Any]], Any],
        size: int,
    ) -> bool:
        from habitus.clients.recording import given_up

        before = [parameter.grad for parameter in self._parameters]
        if size > self._largest:
            self._start_over()
            self._largest = size
        full = False
        try:
            self._recorded[shape] = self._record_now(inputs, compute)
        except Exception as error:  # noqa: BLE001 - what cannot be recorded varies, none is fatal
            # ending a recording may raise an error of its own, with the first one behind it
            full = is_out_of_memory(error) or is_out_of_memory(error.__context__)
            why = given_up(error)
            if not full:
                self.failed = True
                self._recorded.clear()
                self._say(f"steps cannot be recorded as CUDA graphs ({why}): going on without")
        finally:
            self._set_gradients(self._parameters, before)
        if full:
            self._give_way()
        return shape in self._recorded

    def _record_now(
        self, inputs: Mapping[str, Any], compute: Callable[[Mapping[str, Any]], Any]
    ) -> _Recorded:
        import torch

        from habitus.clients.recording import beside, recording

        kept = {name: value.clone() for name, value in inputs.items()}
        self._set_gradients(self._parameters, [None] * len(self._parameters))
        with beside():
            compute(kept).backward()
        if not self._gradients:
            self._used = [each for each in self._parameters if each.grad is not None]
            self._gradients = [torch.zeros_like(each) for each in self._used]
        self._set_gradients(self._parameters, [None] * len(self._parameters))
        self._set_gradients(self._used, self._gradients)
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self._pool):
            loss = compute(kept)
            loss.backward()
        self._pool = graph.pool()
        return _Recorded(graph, kept, loss.detach())

    @staticmethod
    def _set_gradients(parameters: Iterable[Any], gradients: Iterable[Any]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
