"""`habitus locals-report`: the report of trained judges, made from files alone."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import GroupedCommand

PATH = click.Path(path_type=Path)


@click.command("locals-report", cls=GroupedCommand)
@click.argument("runs", metavar="OUT...", type=PATH, nargs=-1, required=True)
@click.option(
    "--out",
    "page",
    type=PATH,
    metavar="FILE.html",
    help="Where to write the page; figures.json goes beside it.  [default: locals-report.html in "
    "the last OUT]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling.")
def locals_report(runs: tuple[Path, ...], page: Path | None, seed: int) -> None:
    """Report on the folders OUT of habitus train locals, finished or under way.

    Learning curves, held-out pairs with intervals and paired tests between the runs, criteria over
    training, and what a step costs. A run of --stage base comes first. Needs no model.
    """
    from habitus.cli.console import out, say
    from habitus.metrics.locals_read import read_runs
    from habitus.metrics.locals_summary import summarise_runs
    from habitus.report.locals import PAGE, print_locals, write_locals
    from habitus.report.locals_figures import View

    found = read_runs(runs)
    figures = summarise_runs(found, seed)
    path = page or runs[-1] / PAGE
    beside = write_locals(found, figures, path)
    print_locals(View(found, figures), out)
    say(f"page: {path}")
    say(f"figures: {beside}")
