"""`habitus score`: scores of the responses in a file of any size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from habitus.cli.options import COUNT, GroupedCommand, scorer_options
from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.score import Runner, ScorePlan
    from habitus.scorers import ScorerOptions

FILE = click.Path(path_type=Path)


@click.command(cls=GroupedCommand)
@click.argument("file", type=FILE)
@click.option(
    "--model", required=True, metavar="MODEL", help="The reward model, as of habitus evaluate."
)
@click.option(
    "--out", type=FILE, required=True, metavar="SCORES.jsonl", help="Where to write the scores."
)
@click.option("--resume", is_flag=True, help="Go on in an existing file of scores.")
@click.option("--limit", type=COUNT, metavar="N", help="Score only the first N rows.")
@click.option(
    "--keep", multiple=True, metavar="COLUMN", help="Copy a column to the scores; repeatable."
)
@click.option(
    "--chunk",
    type=COUNT,
    default=1024,
    show_default=True,
    metavar="N",
    help="Rows that are scored together, and at most lost by a kill.",
)
@click.option(
    "--runner",
    type=click.Choice(["local", "ray"]),
    help="Score in this process (default) or over Ray Data; --engine ray is the same.",
)
@click.option(
    "--actors",
    type=COUNT,
    metavar="N",
    help="With Ray: copies of the model.  [default: as many as there are GPUs or CPUs for]",
)
@click.option(
    "--gpus",
    type=click.FloatRange(min=0),
    metavar="N",
    help="With Ray: GPUs of each copy, such as 0.5.  [default: 1 where there are any]",
)
@scorer_options
def score(
    file: Path,
    model: str,
    out: Path,
    resume: bool,
    limit: int | None,
    keep: tuple[str, ...],
    chunk: int,
    runner: str | None,
    actors: int | None,
    gpus: float | None,
    options: ScorerOptions,
) -> None:
    """Score the responses in FILE, JSONL or Parquet, one line of scores for each row.

    A row has a prompt (text or messages) and a response, or a list of responses, and may have an
    id. MODEL must be able to score a single response: classifier, dpo or baseline.
    """
    from habitus.cli.console import say
    from habitus.score import ScorePlan, score_file

    if options.engine == "ray":
        if runner == "local":
            raise InputError("--engine ray and --runner local exclude each other; give one")
        runner, options = "ray", replace(options, engine=None)
    if runner != "ray" and (actors is not None or gpus is not None):
        raise InputError(f"--{'gpus' if actors is None else 'actors'} needs --runner ray")
    plan = ScorePlan(file, model, out, options, keep, limit, chunk, resume)

    def over_ray(plan: ScorePlan) -> Runner:
        from habitus.score.ray_engine import RayRunner

        return RayRunner(plan, actors=actors, gpus=gpus)

    rows = score_file(plan, say, over_ray if runner == "ray" else None)
    say(f"scores: {out} ({rows:,} rows)")
