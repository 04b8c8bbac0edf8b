"""`habitus downstream`: what a reward model is good for in use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from habitus.cli.options import (
    COUNT,
    GroupedCommand,
    command_line,
    engine_options,
    parse_model,
)

if TYPE_CHECKING:
    from habitus.scorers import ScorerOptions

PATH = click.Path(path_type=Path)
EXCLUDED = "Leave out the questions that these pairs train on, all but their part test; repeatable."
"""Help of `--exclude-questions-of`."""
GOING_ON = ("out", "resume", "retry_failed", "concurrency", "budget_tokens")
"""Parameters that only say where to write and how to go on."""


def questions_trained_on(folders: Iterable[Path]) -> frozenset[str]:
    """Return the questions of pairs, all but those of their part `test`.

    A task names a question by its group of pairs, or, where that is one of equal prompts, by its item.
    """
    from habitus.pairs import read_pairs

    pairs = [pair for folder in folders for pair in read_pairs(folder) if pair.split != "test"]
    return frozenset(name for pair in pairs for name in (pair.group, pair.item_id) if name)


@click.group()
def downstream() -> None:
    """Measure what a reward model is good for in use: picking answers, training a policy."""


@downstream.command(cls=GroupedCommand)
@click.option(
    "--task",
    required=True,
    metavar="TASK",
    help="blend-short, blend-choice, include or omgeval.",
)
@click.option(
    "--data", type=PATH, required=True, metavar="PATH", help="The task's data: a file or folder."
)
@click.option(
    "--policy",
    required=True,
    metavar="MODEL",
    help="The model that answers, as its engine knows it; of omgeval also: published.",
)
@click.option(
    "--engine",
    default="embedded",
    show_default=True,
    metavar="NAME",
    help="What runs the policy: embedded, transformers, vllm or openai.",
)
@click.option(
    "--scorer",
    "scorers",
    required=True,
    multiple=True,
    metavar="MODEL",
    help="A reward model that picks, as of habitus evaluate, in quotes with options of its own: "
    "'judge:NAME --mode pairwise'; repeatable.",
)
@click.option(
    "--grader",
    metavar="MODEL",
    help="Of omgeval: the judge that grades, likewise; never a reward model under test.",
)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="The run's folder.")
@click.option(
    "--n",
    type=click.IntRange(min=2),
    default=16,
    show_default=True,
    metavar="N",
    help="Answers to each prompt.",
)
@click.option(
    "--country",
    "countries",
    multiple=True,
    metavar="NAME",
    help="Keep this country's prompts only; repeatable.",
)
@click.option("--limit", type=COUNT, metavar="K", help="Most prompts of a country.")
@click.option(
    "--exclude-questions-of",
    "excluded",
    multiple=True,
    type=PATH,
    metavar="PAIRS",
    help=EXCLUDED,
)
@click.option(
    "--language",
    type=click.Choice(["own", "en"]),
    default="own",
    show_default=True,
    help="Of blend-short: each country's own language, or English.",
)
@click.option(
    "--part",
    type=click.Choice(["all", "local"]),
    default="all",
    show_default=True,
    help="Of omgeval: all prompts, or the localised ones.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="T",
    help="Sampling temperature of the policy.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    metavar="P",
    help="Probability of the tokens that the policy draws from.",
)
@click.option(
    "--max-new-tokens",
    type=COUNT,
    metavar="N",
    help="Most tokens of an answer, thinking included.  [default: 64 for blend-short, 256 for "
    "multiple choice, 512 for omgeval]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn.")
@click.option(
    "--generations",
    type=PATH,
    metavar="FOLDER",
    help="Keep the policy's answers here, for several runs.  [default: DIR/generations]",
)
@click.option(
    "--resume", is_flag=True, help="Go on in an existing folder, or add reward models to it."
)
@click.option("--retry-failed", is_flag=True, help="With --resume: redo what ended in an error.")
@engine_options("Options of the policy")
def bestofn(
    task: str,
    data: Path,
    policy: str,
    engine: str,
    scorers: tuple[str, ...],
    grader: str | None,
    out: Path,
    n: int,
    countries: tuple[str, ...],
    limit: int | None,
    excluded: tuple[Path, ...],
    language: str,
    part: str,
    temperature: float,
    top_p: float,
    max_new_tokens: int | None,
    seed: int,
    generations: Path | None,
    resume: bool,
    retry_failed: bool,
    options: ScorerOptions,
) -> None:
    """Let reward models pick the best of N answers of a policy, and grade what they pick.

    The policy's answers are drawn once and kept; with --resume a further reward model costs only
    its own scores. DIR/downstream.html shows quality over n, with a random answer, the longest one
    and the best one beside the reward models.
    """
    from habitus.cli.console import out as console
    from habitus.cli.console import say
    from habitus.downstream.model import PAGE, Sampling
    from habitus.downstream.plan import BestOfNPlan, ScorerChoice
    from habitus.downstream.run import best_of_n
    from habitus.downstream.tasks import DEFAULT_TOKENS, MAX_NEW_TOKENS
    from habitus.report.downstream import print_downstream, write_downstream

    def choice(text: str, option: str) -> ScorerChoice:
        name, own = parse_model(text, option)
        return ScorerChoice(name, own, " ".join(text.split()))

    longest = max_new_tokens or MAX_NEW_TOKENS.get(task, DEFAULT_TOKENS)
    plan = BestOfNPlan(
        task=task,
        data=data,
        policy=policy,
        scorers=tuple(choice(text, "--scorer") for text in scorers),
        out=out,
        engine=engine,
        options=options,
        grader=choice(grader, "--grader") if grader else None,
        n=n,
        seed=seed,
        countries=countries,
        limit=limit,
        trained_on=questions_trained_on(excluded),
        language=language,
        part=part,
        sampling=Sampling(temperature=temperature, top_p=top_p, max_new_tokens=longest),
        generations=generations,
        resume=resume,
        retry_failed=retry_failed,
        command=command_line(GOING_ON),
    )
    result = best_of_n(plan, say)
    write_downstream(out)
    print_downstream(result, console)
    say(f"page: {out / PAGE}")
