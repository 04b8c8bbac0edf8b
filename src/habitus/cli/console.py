"""Where the commands print: figures on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console

out = Console(emoji=False)  # a name may hold :x: or the like
"""For figures and tables."""
err = Console(stderr=True, emoji=False)
"""For notes, progress and errors."""


def say(line: str) -> None:
    """Print a line for the user on stderr, as it is."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)
