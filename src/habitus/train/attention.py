"""Which kernels attention may train with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def sound_attention() -> Iterator[None]:
    """Train without cuDNN's attention, whose gradients can be no numbers.

    With torch 2.11, which prefers it on H100 and H200, its backward pass gives NaN where a mask is
    given, the length is 64 more than a multiple of 128 and all scores of a row are far below 0
    (https://github.com/pytorch/pytorch/issues/196678).
    """
    cuda: Any = import_module("torch.backends.cuda")  # in part without types
    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)
