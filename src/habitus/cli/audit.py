"""`habitus audit`: find what gives a benchmark's right responses away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from habitus.cli.options import COUNT, GroupedCommand, command_line
from habitus.errors import HabitusError

PATH = click.Path(path_type=Path)
MARGIN = click.FloatRange(min=0, max=1, min_open=True, max_open=True)

WRITING = ("out_folder", "strict")
"""Parameters that change no result."""


class StrictAuditError(HabitusError):
    """With --strict: a door is open, or a check failed."""

    exit_status = 1


@click.command(cls=GroupedCommand)
@click.argument("bench")
@click.option(
    "--format", "data_format", metavar="NAME", help="Format of the data; recognised if not given."
)
@click.option(
    "--against",
    multiple=True,
    metavar="NAME|PATH",
    help="A benchmark or split that must not overlap with BENCH; repeatable.",
)
@click.option(
    "--out",
    "out_folder",
    type=PATH,
    metavar="FOLDER",
    help="Where to write audit.json and audit.html.  [default: runs/audit__NAME]",
)
@click.option(
    "--limit", type=COUNT, metavar="N", help="Audit N items, spread over cultures and domains."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of halves, samples and --limit."
)
@click.option(
    "--overall-margin",
    type=MARGIN,
    default=0.08,
    show_default=True,
    metavar="SHARE",
    help="A door is closed when its interval ends at chance plus this.",
)
@click.option(
    "--domain-margin",
    type=MARGIN,
    default=0.15,
    show_default=True,
    metavar="SHARE",
    help="The same in a domain.",
)
@click.option("--strict", is_flag=True, help="Exit 1 when a door is open or a check failed.")
def audit(
    bench: str,
    data_format: str | None,
    against: tuple[str, ...],
    out_folder: Path | None,
    limit: int | None,
    seed: int,
    overall_margin: float,
    domain_margin: float,
    strict: bool,
) -> None:
    """Find rules that win on BENCH without reading a question, and check its texts.

    BENCH is a bundled benchmark's name, a file or a folder. A part of a bundled benchmark is
    compared with its other parts.
    """
    from habitus.audit import audit as run_audit
    from habitus.audit import default_path, need_extra, siblings, write_json
    from habitus.cli.console import out, say
    from habitus.data import load
    from habitus.data.sampling import take
    from habitus.report.audit import print_audit, write_page

    need_extra()
    loaded = load(bench, format=data_format, seed=seed)
    others = [replace(load(name, seed=seed), name=name) for name in against]
    paths = {other.path.resolve() for other in others}
    others += [other for other in siblings(loaded) if other.path.resolve() not in paths]
    if limit is not None and limit < len(loaded.items):
        note = f"{limit:,} of {len(loaded.items):,} items, drawn with seed {seed}"
        drawn = take(loaded.items, limit, seed)
        loaded = replace(loaded, items=drawn, notes=(*loaded.notes, note))
    found = run_audit(
        loaded,
        against=others,
        seed=seed,
        overall_margin=overall_margin,
        domain_margin=domain_margin,
        say=say,
        command=command_line(WRITING),
    )
    folder = out_folder or default_path(loaded.name)
    write_json(found, folder)
    page = write_page(found, folder)
    print_audit(found, out)
    say(f"page: {page}")
    if strict and not found.clean:
        raise StrictAuditError(f"--strict: {found.headline}")
