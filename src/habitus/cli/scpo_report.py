"""`habitus scpo-report`: the report of country reward models, made from files alone."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import GroupedCommand

PATH = click.Path(path_type=Path)


@click.command("scpo-report", cls=GroupedCommand)
@click.argument("studies", metavar="OUT...", type=PATH, nargs=-1, required=True)
@click.option(
    "--out",
    "page",
    type=PATH,
    metavar="FILE.html",
    help="Where to write the page; figures.json goes beside it.  [default: scpo-report.html in "
    "the first OUT]",
)
@click.option(
    "--variant",
    metavar="NAME",
    help="Variant of the verdict and the matrix.  [default: scpo, or the study's last]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling.")
def scpo_report(
    studies: tuple[Path, ...], page: Path | None, variant: str | None, seed: int
) -> None:
    """Report on the folders OUT of habitus train scpo; several are read as one study.

    Accuracy in two layers with intervals and paired tests, each country's model on each country's
    pairs, data efficiency, kept shares, weights and learning curves. Needs no model.
    """
    from habitus.cli.console import out, say
    from habitus.metrics.preferences_read import read_study
    from habitus.metrics.preferences_summary import PARTS, summarise_study
    from habitus.progress import progress
    from habitus.report.scpo import PAGE, print_study, write_study

    with progress("report", PARTS + 1, unit="parts") as advance:
        study = read_study(studies)
        advance(1)
        figures = summarise_study(study, variant, seed, advance=advance)
    path = page or studies[0] / PAGE
    beside = write_study(study, figures, path)
    print_study(study, figures, out)
    say(f"page: {path}")
    say(f"figures: {beside}")
