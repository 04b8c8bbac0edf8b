"""Errors that a person can act on.

The tree::

    HabitusError            one line for the user, no traceback, exit status 2 (audit --strict: 1)
    |-- InputError          a file, row, option or name that was given is wrong
    |   `-- UnknownNameError    a name that is not registered; near names are suggested
    |-- RunError            a run folder that cannot be used as asked (locked, changed, exists)
    |-- ModelError          model weights that cannot be had, or are not what they should be
    `-- MissingExtraError   an optional dependency that is not installed

Failures of a single judgement are no errors: they are a status in the record
(see :class:`habitus.types.Status`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HabitusError(Exception):
    """Base of all errors that are shown to a user as one line.

    The message says what was found, where, and how to mend it.
    """

    exit_status = 2


class InputError(HabitusError):
    """A file, row, option or name that the user gave is wrong."""


class UnknownNameError(InputError):
    """A name that is not registered; the message suggests near names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Build the message.

        Args:
            kind: What the name should name, such as "benchmark".
            name: The name as given.
            known: The names that would have worked.
        """
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class RunError(HabitusError):
    """A run folder that cannot be used as asked: locked, changed, existing, unreadable."""


class ModelError(HabitusError):
    """Model weights that cannot be had, or that are not what they should be."""


class MissingExtraError(HabitusError):
    """An optional dependency that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        """Build the message.

        Args:
            feature: What the user asked for.
            extra: The extra that brings it.
        """
        super().__init__(f"{feature} needs an extra: pip install 'habitus[{extra}]'")


NO_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
"""What torch and the libraries below it say where there is none, in errors of other kinds."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether torch found no memory on a device, told without importing it.

    Args:
        error: What was raised, if anything.
    """
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(line in str(error) for line in NO_MEMORY)
    )
