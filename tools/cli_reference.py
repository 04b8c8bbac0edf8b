"""Write `docs/cli.md` from the commands' own --help: python tools/cli_reference.py."""

from __future__ import annotations

from pathlib import Path

from click import Command, Context

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
"""The file that is written."""


def reference() -> str:
    """Return the reference of all commands as Markdown."""
    from habitus.cli.main import app

    parts = ["# Command line\n\nMade from `--help` by `make docs`; a test keeps it true.\n"]
    parts.append(_section("habitus", app))
    for name, command in app.commands.items():
        parts.append(_section(f"habitus {name}", command))
    return "\n".join(parts)


def _section(title: str, command: Command) -> str:
    context = Context(
        command, info_name=title, terminal_width=100, help_option_names=["-h", "--help"]
    )
    return f"## {title}\n\n```\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
