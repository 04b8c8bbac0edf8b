"""`habitus correlate`: does a benchmark's accuracy predict use? Made from files alone."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import GroupedCommand, command_line
from habitus.errors import InputError

PATH = click.Path(path_type=Path)
LISTS = ("--downstream", "--general")
"""Options that take several values at once, so that a shell's `*` can be given."""


class ListCommand(GroupedCommand):
    """A command some of whose options take all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, which is what click reads."""
        return super().parse_args(ctx, spread(args))


def spread(words: list[str]) -> list[str]:
    """Return the words of a command line with `--general A B` as `--general A --general B`."""
    found: list[str] = []
    option, first = None, False
    for place, word in enumerate(words):
        if word == "--":
            return found + words[place:]
        if word.startswith("-"):
            option, first = (word, True) if word in LISTS else (None, False)
            found.append(word)
            continue
        if option is not None and not first:
            found.append(option)
        first = False
        found.append(word)
    return found


@click.command(cls=ListCommand)
@click.argument("runs", metavar="RUN...", type=PATH, nargs=-1)
@click.option(
    "--downstream",
    type=PATH,
    multiple=True,
    required=True,
    metavar="DIR...",
    help="Folders of habitus downstream.",
)
@click.option(
    "--general",
    type=PATH,
    multiple=True,
    metavar="RUN...",
    help="Run folders of the same reward models on a general benchmark, which is compared and held "
    "fixed.",
)
@click.option(
    "--facts",
    type=PATH,
    metavar="FILE.csv",
    help="What is known of the reward models: name, and any of parameters, family, general.",
)
@click.option(
    "--group",
    metavar="COLUMN",
    help="Column of --facts with what reward models share, such as a training.  [default: family, "
    "where there is one]",
)
@click.option(
    "--match",
    "how",
    type=click.Choice(["digest", "name"]),
    help="Match reward models by digest or by name.  [default: by digest, then by name]",
)
@click.option("--domain", "domains", multiple=True, metavar="D", help="Only items of this domain.")
@click.option(
    "--culture", "cultures", multiple=True, metavar="C", help="Only items of this culture."
)
@click.option(
    "--country", "countries", multiple=True, metavar="C", help="Only prompts of this country."
)
@click.option(
    "--by-culture", is_flag=True, help="Correlate each culture with its own countries too."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling.")
@click.option(
    "--out",
    "page",
    type=PATH,
    default="correlate.html",
    show_default=True,
    metavar="FILE.html",
    help="Where to write the page; correlation.json goes beside it.",
)
def correlate(
    runs: tuple[Path, ...],
    downstream: tuple[Path, ...],
    general: tuple[Path, ...],
    facts: Path | None,
    group: str | None,
    how: str | None,
    domains: tuple[str, ...],
    cultures: tuple[str, ...],
    countries: tuple[str, ...],
    by_culture: bool,
    seed: int,
    page: Path,
) -> None:
    """Say how well accuracy on a benchmark predicts downstream quality, over reward models.

    RUN... are folders of habitus evaluate, one for each reward model, all on one benchmark; they
    come first. Line, r2, rank correlations, intervals over reward models and over items, leave one
    out, permutation test, confounders, and a general benchmark as a rival. Needs no model.
    """
    from habitus.cli.console import out, say
    from habitus.evaluate.correlate import analyse, parts
    from habitus.evaluate.correlate_model import Request
    from habitus.evaluate.correlate_read import read_study
    from habitus.progress import progress
    from habitus.report.correlate import print_correlation, write_correlation

    if not runs:
        raise InputError(
            "no RUN; name the run folders first: --downstream and --general take all words after "
            "them"
        )
    study = read_study(
        Request(
            runs=runs,
            downstream=downstream,
            general=general,
            facts=facts,
            how="digest" if how == "digest" else "name" if how == "name" else "auto",
            group=group,
            domains=domains,
            cultures=cultures,
            countries=countries,
            by_culture=by_culture,
        )
    )
    with progress("correlate", parts(study), unit="parts") as advance:
        figures = analyse(study, seed=seed, advance=advance)
    beside = write_correlation(study, figures, page, command_line(("page",)))
    print_correlation(study, figures, out)
    say(f"page: {page}")
    say(f"figures: {beside}")
