"""Where the commands print: figures on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console

from habitus.progress import is_first

out = Console(emoji=False)  # a name may hold :x: or the like
"""For figures and tables."""
err = Console(stderr=True, emoji=False)
"""For notes, progress and errors."""


def say(line: str) -> None:
    """Print a line for the user on stderr, as it is, in the first process of a launch."""
    if is_first():
        complain(line)


def complain(line: str) -> None:
    """Print an error on stderr, as it is, in any process."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)
