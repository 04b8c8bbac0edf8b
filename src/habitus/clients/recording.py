"""What recording CUDA graphs needs wherever it is done. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@contextmanager
def beside() -> Iterator[None]:
    """Compute beside a recording, on the current GPU: what is set up at first use is set up there.

    It is one stream for all recordings: memory is kept by stream, and one of its own for each would
    keep what its pass took for as long as the process lives. What it took is given back.
    """
    stream = _stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.empty_cache()


@contextmanager
def recording(graph: Any, pool: Any = None) -> Iterator[None]:
    """Record what is computed; the current stream is the same afterwards, also where that fails.

    Args:
        graph: Where it is recorded.
        pool: Whose memory it takes; None is its own.
    """
    cuda: Any = torch.cuda
    stream = cuda.current_stream()
    try:
        with cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        cuda.set_stream(stream)


@cache
def _stream(device: int) -> Any:
    cuda: Any = torch.cuda
    return cuda.Stream(device)


def given_up(error: Exception) -> str:
    """Set the device right after a recording that failed, and return why, for the user.

    A recording that ends in an error leaves the device's random numbers in the state of a recording:
    every later draw would fail. They go on from where they were.

    Args:
        error: What was raised.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        generator: Any = torch.cuda.default_generators[torch.cuda.current_device()]
        generator.graphsafe_set_state(generator.clone_state())
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
