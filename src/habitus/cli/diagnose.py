"""`habitus diagnose`: does the score follow the culture or the surface?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from habitus.cli.options import COUNT, GroupedCommand, command_line, scorer_options
from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.diagnose import Diagnosis
    from habitus.scorers import ScorerOptions
    from habitus.store import RunFolder

GOING_ON = ("run", "resume", "retry_failed")
"""Parameters that only say where to write and how to go on."""
DEFAULT_BENCHMARK = "carb-open:cues"
"""Edits of carb-open's dev and train items that come with the package."""
RUN_PATH = click.Path(path_type=Path)


@click.command(cls=GroupedCommand)
@click.argument("model", metavar="MODEL|RUN")
@click.option(
    "--benchmark",
    metavar="NAME|PATH",
    help="A benchmark with edited items, such as one of habitus perturb."
    f"  [default: {DEFAULT_BENCHMARK}]",
)
@click.option(
    "--out",
    "run",
    type=RUN_PATH,
    metavar="RUN",
    help="Run folder.  [default: runs/diagnose__BENCHMARK__MODEL__sSEED]",
)
@click.option("--limit", type=COUNT, metavar="N", help="Use N items, each with all its edits.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of candidate orders and --limit."
)
@click.option(
    "--k",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="K",
    help="How fast language consistency, exp(-K |difference in SD|), falls.",
)
@click.option("--resume", is_flag=True, help="Go on in an existing run folder.")
@click.option(
    "--retry-failed", is_flag=True, help="With --resume: redo the items that ended in an error."
)
@scorer_options
def diagnose(
    model: str,
    benchmark: str | None,
    run: Path | None,
    limit: int | None,
    seed: int,
    k: float,
    resume: bool,
    retry_failed: bool,
    options: ScorerOptions,
) -> None:
    """Say why responses win with MODEL: for the cultural concept, or for surface cues.

    MODEL is as of `habitus evaluate`. Items and their edits are judged into a run folder; then
    diagnosis.json and diagnosis.html are written there. Given a run folder, RUN, in place of a
    model, they are made again from its files; no model is needed.
    """
    from habitus.cli.console import out, say
    from habitus.report.diagnosis import print_diagnosis, write_diagnosis

    if Path(model).is_dir():
        given = {
            "--benchmark": benchmark,
            "--out": run,
            "--limit": limit,
            "--resume": resume,
            "--retry-failed": retry_failed,
        }
        folder, found = _again(Path(model), k, options, given)
    else:
        from habitus.data import load
        from habitus.diagnose import DiagnosePlan, prepare
        from habitus.diagnose import diagnose as run_plan
        from habitus.evaluate import benchmark_notes
        from habitus.scorers import resolve

        loaded = load(benchmark or DEFAULT_BENCHMARK, seed=seed)
        for note in benchmark_notes(loaded):
            say(f"note: {note}")
        prepare(loaded, limit=limit, seed=seed)  # what is wrong is found before a model is loaded
        scorer = resolve(model, options)
        try:
            plan = DiagnosePlan(
                scorer,
                loaded,
                out=run,
                limit=limit,
                seed=seed,
                resume=resume,
                retry_failed=retry_failed,
                k=k,
                command=command_line(GOING_ON),
            )
            folder, found = run_plan(plan, say)
        finally:
            scorer.close()
    page = write_diagnosis(folder, found)
    print_diagnosis(found, out)
    say(f"report: {page}")


def _again(
    path: Path, k: float, options: ScorerOptions, given: Mapping[str, object]
) -> tuple[RunFolder, Diagnosis]:
    """Make the diagnosis of a run folder again.

    Raises:
        InputError: When an option was given that only a model has.
        HabitusError: When it is no run folder, or holds no edits.
    """
    from habitus.diagnose import rebuild
    from habitus.scorers import ScorerOptions
    from habitus.store import RunFolder

    wrong = [name for name, value in given.items() if value]
    if wrong or options != ScorerOptions():
        raise InputError(
            f"{path} is a run folder, so {wrong[0] if wrong else 'options of a model'} does not "
            "apply; leave it out, or name a model"
        )
    folder = RunFolder(path)
    folder.info  # noqa: B018 - says what is wrong with the folder before anything is locked
    with folder.lock():
        return folder, rebuild(folder, k=k)
