"""`habitus benchmarks`: list the bundled benchmarks, and import others."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import COUNT


@click.group(invoke_without_command=True)
@click.pass_context
def benchmarks(context: click.Context) -> None:
    """List the bundled benchmarks and the formats that can be read, or import a benchmark."""
    if context.invoked_subcommand is not None:
        return
    from rich.table import Table

    from habitus.cli.console import out
    from habitus.data import FORMATS, bundled

    table = Table("NAME", "version", "items", "licence", "what it is", box=None)
    for entry in bundled():
        table.add_row(
            entry.name, entry.version, str(entry.n_items), entry.licence, entry.description
        )
    out.print(table)
    formats = ", ".join(sorted(FORMATS.targets()))
    out.print(f"\nOther data by path; --format is one of: {formats}", highlight=False)


@benchmarks.command("import")
@click.argument("source")
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="The benchmark folder to write.",
)
@click.option(
    "--format", "data_format", metavar="NAME", help="Format of the data; recognised if not given."
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of what the format draws and of --limit.",
)
@click.option(
    "--limit",
    type=COUNT,
    metavar="N",
    help="Take N items, spread evenly over cultures and domains.",
)
@click.option("--name", metavar="NAME", help="Name of the benchmark.  [default: the source's]")
@click.option(
    "--licence", metavar="SPDX", help="Licence of the items whose source names none: CC-BY-4.0."
)
@click.option("--force", is_flag=True, help="Replace a benchmark that the folder holds.")
def import_(
    source: str,
    folder: Path,
    data_format: str | None,
    seed: int,
    limit: int | None,
    name: str | None,
    licence: str | None,
    force: bool,
) -> None:
    """Read SOURCE in any known format, check it, and write a benchmark folder with a data card.

    SOURCE is a file, a folder or a bundled benchmark's name. The folder holds items.jsonl, which
    habitus evaluate --benchmark FOLDER reads, card.json and CARD.md, the data card for people.
    """
    from habitus.cli.console import say
    from habitus.data import import_benchmark
    from habitus.data.importing import CARD_TEXT

    card = import_benchmark(
        source,
        folder,
        format=data_format,
        seed=seed,
        limit=limit,
        name=name,
        licence=licence,
        force=force,
    )
    for note in card.notes:
        say(f"note: {note}")
    for reason, count in card.skipped.items():
        say(f"left out: {count:,} x {reason}")
    if card.non_commercial == "yes":
        say(f"note: non-commercial use only ({', '.join(card.licences)})")
    if card.harmful:
        say("note: contains text that offends or harms")
    say(f"{card.name}: {card.n_items:,} items, read as {card.format}")
    say(f"card: {folder / CARD_TEXT}")
