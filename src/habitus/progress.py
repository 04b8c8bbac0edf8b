"""Progress of long work: a rich bar on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PLAIN_INTERVAL = 15.0
"""Seconds between two plain lines when stderr is no terminal."""

Advance = Callable[[int], None]
"""Called with the number of units that were just finished."""


def is_first() -> bool:
    """Whether this is the process that shows and writes: the first of a launch, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def processes() -> int:
    """Return how many processes this launch has; 1 without `accelerate launch`."""
    return int(os.environ.get("WORLD_SIZE") or 1)


@contextmanager
def progress(description: str, total: int, done: int = 0, unit: str = "items") -> Iterator[Advance]:
    """Show the progress of `total` units of work, in the first process of a launch.

    Args:
        description: What is being done.
        total: How many units there are in all.
        done: How many were finished before, on resume; they do not count towards the rate.
        unit: What a unit is.

    Yields:
        A function to call with the number of units just finished.
    """
    if not is_first():
        yield lambda count: None
    elif sys.stderr.isatty():
        with _bar(description, total, done) as advance:
            yield advance
    else:
        yield from _lines(description, total, done, unit)


@contextmanager
def _bar(description: str, total: int, done: int) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda count: bar.advance(task, count)


def _lines(description: str, total: int, done: int, unit: str) -> Iterator[Advance]:
    start = last = time.monotonic()
    finished = done

    def say(now: float) -> None:
        rate = (finished - done) / max(now - start, 1e-9)
        left = f", {(total - finished) / rate:.0f} s left" if rate > 0 and finished < total else ""
        print(
            f"{description}: {finished}/{total} {unit}, {rate:.2f}/s{left}",
            file=sys.stderr,
            flush=True,
        )

    def advance(count: int) -> None:
        nonlocal finished, last
        finished += count
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL:
            last = now
            say(now)

    print(f"{description}: {finished}/{total} {unit}", file=sys.stderr, flush=True)
    yield advance
    say(time.monotonic())
