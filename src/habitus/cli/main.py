"""`habitus`: one verb per arrow of the one flow (load, judge, summarise, render)."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.table import Table

from habitus import __version__
from habitus.cli.audit import audit
from habitus.cli.benchmarks import benchmarks
from habitus.cli.build import build
from habitus.cli.console import complain, out, say
from habitus.cli.correlate import correlate
from habitus.cli.diagnose import diagnose
from habitus.cli.downstream import downstream
from habitus.cli.downstream_policy import policy as train_policy
from habitus.cli.export import export
from habitus.cli.locals_report import locals_report
from habitus.cli.options import COUNT, GroupedCommand, command_line, scorer_options
from habitus.cli.pairs import pairs
from habitus.cli.perturb import perturb
from habitus.cli.score import score
from habitus.cli.scpo_report import scpo_report
from habitus.cli.train import train
from habitus.cli.train_locals import train_locals
from habitus.errors import HabitusError, InputError, is_out_of_memory
from habitus.progress import processes

GOING_ON = ("run", "resume", "retry_failed")
"""Parameters of `evaluate` that only say where to write and how to go on."""
RUN_PATH = click.Path(path_type=Path)
OUT_OF_MEMORY = (
    "What is finished is kept: make --micro-batch, --batch-tokens or --context smaller or say "
    "--no-graphs where the command has them, or free the device, and go on with --resume"
)
"""What to do when a device's memory is full."""

if TYPE_CHECKING:
    from habitus.scorers import ScorerOptions


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="habitus", message="%(prog)s %(version)s")
def app() -> None:
    """Measure, diagnose and improve the cultural awareness of reward models."""


@app.command(cls=GroupedCommand)
@click.argument("model")
@click.option(
    "--benchmark",
    default="carb-open:quick",
    show_default=True,
    metavar="NAME|PATH",
    help="A bundled benchmark's name, a file or a folder.",
)
@click.option(
    "--format", "data_format", metavar="NAME", help="Format of the data; recognised if not given."
)
@click.option(
    "--out",
    "run",
    type=RUN_PATH,
    metavar="RUN",
    help="Run folder.  [default: runs/BENCHMARK__MODEL__sSEED]",
)
@click.option("--limit", type=COUNT, help="Judge N items, spread evenly over cultures and domains.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of candidate orders and --limit."
)
@click.option("--resume", is_flag=True, help="Go on in an existing run folder.")
@click.option(
    "--retry-failed", is_flag=True, help="With --resume: redo the items that ended in an error."
)
@scorer_options
def evaluate(
    model: str,
    benchmark: str,
    data_format: str | None,
    run: Path | None,
    limit: int | None,
    seed: int,
    resume: bool,
    retry_failed: bool,
    options: ScorerOptions,
) -> None:
    """Evaluate MODEL and write its run folder and report.

    MODEL is KIND:NAME, such as embedded, embedded:PATH.gguf or baseline:longest; see `habitus
    models`.
    """
    from habitus.data import load
    from habitus.evaluate import Plan, benchmark_notes
    from habitus.evaluate import evaluate as run_plan
    from habitus.report import print_run, write_report
    from habitus.scorers import resolve

    loaded = load(benchmark, format=data_format, seed=seed)
    for note in benchmark_notes(loaded):
        say(f"note: {note}")
    scorer = resolve(model, options)
    try:
        plan = Plan(scorer, loaded, run, limit, seed, resume, retry_failed, command_line(GOING_ON))
        folder = run_plan(plan, say)
    finally:
        scorer.close()
    data = write_report(folder)
    print_run(data, out)
    say(f"report: {folder.path / 'report.html'}")


@app.command()
@click.argument("run", type=RUN_PATH)
def report(run: Path) -> None:
    """Rebuild metrics.json and report.html of RUN from its files; no model is needed."""
    from habitus.evaluate.summary import write_metrics
    from habitus.report import print_run, write_report
    from habitus.store import RunFolder

    folder = RunFolder(run)
    folder.info  # noqa: B018 - says what is wrong with the folder before anything is locked
    with folder.lock():
        data = write_report(folder, write_metrics(folder))
    print_run(data, out)
    say(f"report: {folder.path / 'report.html'}")


@app.command()
@click.argument("runs", nargs=-1, type=RUN_PATH, metavar="RUN RUN...")
@click.option(
    "--out",
    "page",
    type=RUN_PATH,
    default="compare.html",
    show_default=True,
    metavar="FILE.html",
    help="Where to write the page.",
)
def compare(runs: tuple[Path, ...], page: Path) -> None:
    """Compare runs on the items that they share: leaderboard and paired differences."""
    from habitus.report import print_comparison, write_comparison
    from habitus.store import RunFolder

    if len(runs) < 2:
        raise InputError("compare needs two or more run folders")
    data, comparisons = write_comparison([RunFolder(path) for path in runs], page)
    print_comparison(data, comparisons, out)
    say(f"page: {page}")


@app.command()
def models() -> None:
    """List the reward models that can be named."""
    from habitus.scorers import list_models

    table = Table("MODEL", "what it is", "licence", "state", box=None)
    for entry in list_models():
        table.add_row(entry.name, entry.description, entry.licence, entry.state)
    out.print(table)


train.add_command(train_locals, "locals")
downstream.add_command(train_policy)
for command in (
    audit,
    benchmarks,
    build,
    correlate,
    diagnose,
    downstream,
    export,
    locals_report,
    pairs,
    perturb,
    score,
    scpo_report,
    train,
):
    app.add_command(command)


def main() -> None:
    """Run the command line; a user's error is one line on stderr and exit status 2."""
    status = run()
    if processes() > 1:
        _leave(status)
    sys.exit(status)


def _leave(status: int) -> NoReturn:
    """End one process of several without tearing its interpreter down.

    Gloo's threads can hold tensors after their group is destroyed; one that lets go of its tensor
    while the interpreter ends aborts the process (pytorch#190489), and the launch counts as failed
    though everything was computed and written.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Args:
        arguments: What follows `habitus`; None takes them from the process.
    """
    try:
        app.main(args=arguments, prog_name="habitus", standalone_mode=False)
    except HabitusError as error:
        return _fail(str(error), error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 2
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output has gone; say nothing more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", 2)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return _fail(f"{str(error).splitlines()[0]} {OUT_OF_MEMORY}", 1)
    return 0


def _fail(message: str, status: int) -> int:
    complain(f"error: {' '.join(message.split())}")
    return status


if __name__ == "__main__":
    main()
