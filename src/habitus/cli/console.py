"""Where the commands print: figures on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console

out = Console()
"""For figures and tables."""
err = Console(stderr=True)
"""For notes, progress and errors."""


def say(line: str) -> None:
    """Print a line for the user on stderr, as it is."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)
