"""Write `docs/cli.md` from the commands' own --help: python tools/cli_reference.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
"""The file that is written."""


def reference() -> str:
    """Return the reference of all commands as Markdown."""
    from habitus.cli.main import app

    parts = ["# Command line\n\nMade from `--help` by `make docs`; a test keeps it true.\n"]
    parts += [_section(*words) for words in _commands(app)]
    return "\n".join(parts)


def _commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Give the words of a command and of all below it."""
    yield words
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _commands(each, *words, name)


def _section(*words: str) -> str:
    from habitus.cli.main import app

    shown = CliRunner().invoke(app, [*words, "--help"], prog_name="habitus", terminal_width=100)
    title = " ".join(("habitus", *words))
    return f"## {title}\n\n```\n{shown.output.rstrip()}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
