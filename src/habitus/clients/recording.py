"""What recording CUDA graphs needs wherever it is done. Imports torch."""

from __future__ import annotations

from typing import Any

import torch


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
