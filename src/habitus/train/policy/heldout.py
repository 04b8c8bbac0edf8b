"""Held-out prompts: answers before and after training, with the same random numbers, and scores.

The policy before training and after it is asked by the engine and with the settings of
`habitus downstream bestofn --engine transformers`. A reward model scores a prompt's answers before
and after together, in one set, so that it can be told how often it prefers those after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from habitus.clients.engine import describe
from habitus.downstream.generate import GenerationFile, generate, generation_file
from habitus.downstream.grading import answer_of
from habitus.downstream.model import (
    GENERATIONS,
    Answer,
    Generation,
    ScoreLine,
    TaskPrompt,
    read_records,
)
from habitus.downstream.pick import AnswerSet, items_of, judge_sets, score_lines
from habitus.store import dump_line, read_judgements, write_atomic
from habitus.train.locals.model import open_engine
from habitus.train.policy.plan import PolicyPlan
from habitus.types import Frozen, Scorer, digest

Say = Callable[[str], None]


class HeldOutAnswer(Answer):
    """One line of `before.jsonl`, or of a training's `answers.jsonl`."""

    tokens: int = 0
    """Tokens written, thinking included, without the one that ends the text."""


class BaseLine(Frozen):
    """The policy before training, as it was asked."""

    name: str
    """The model."""
    digest: str
    """Digest of everything that can change what it writes."""


def draw_before(
    plan: PolicyPlan, prompts: Sequence[TaskPrompt], path: Path, go_on: Callable[[], bool], say: Say
) -> BaseLine | None:
    """Have the policy answer before training, and write its graded answers.

    Args:
        plan: What is done.
        prompts: The held-out prompts.
        path: Where the graded answers go.
        go_on: As in `generate`.
        say: Called with lines for the user.

    Returns:
        Who answered; None when it was ended early.
    """
    with closing(open_engine(plan.policy, plan.load)) as engine:
        about = describe(engine)
        base = BaseLine(name=engine.model, digest=digest(about))
        file = generation_file(
            plan.generations or plan.out / GENERATIONS,
            *(plan.task, base.name, base.digest, plan.sampling, plan.seed),
            retry_failed=plan.retry_failed,
        )
        generate(
            file, prompts, plan.n, engine, base.digest, plan.sampling, plan.seed, say, go_on=go_on
        )
        sampling = plan.sampling.model_dump(mode="json")
        file.describe({"policy": about, "sampling": sampling, "seed": plan.seed})
    return base if _written(file, prompts, plan.n, path) else None


def draw_after(
    plan: PolicyPlan,
    prompts: Sequence[TaskPrompt],
    model: Path,
    base: BaseLine,
    path: Path,
    go_on: Callable[[], bool],
    say: Say,
) -> bool:
    """Have a trained policy answer, with the random numbers of the one before.

    Args:
        plan: What is done.
        prompts: The held-out prompts.
        model: Its folder.
        base: The policy before training.
        path: Where its graded answers go; the generations lie beside it.
        go_on: As in `generate`.
        say: Called with lines for the user.

    Returns:
        False when it was ended early.
    """
    file = GenerationFile(path.with_name("generations.jsonl"), retry_failed=plan.retry_failed)
    with closing(open_engine(str(model), replace(plan.load, revision=None))) as engine:
        generate(
            file,
            *(prompts, plan.n, engine, digest(describe(engine)), plan.sampling, plan.seed, say),
            numbers=base.digest,
            go_on=go_on,
        )
    return _written(file, prompts, plan.n, path)


def _written(file: GenerationFile, prompts: Sequence[TaskPrompt], n: int, path: Path) -> bool:
    if file.missing([prompt.digest for prompt in prompts], n):
        return False
    lines = (_held_out(prompt, one) for prompt in prompts for one in file.answers(prompt.digest, n))
    write_atomic(path, map(dump_line, lines))
    return True


def _held_out(prompt: TaskPrompt, generation: Generation) -> HeldOutAnswer:
    found = answer_of(prompt, generation)
    return HeldOutAnswer(**found.model_dump(), tokens=generation.completion_tokens)


def read_answers(path: Path) -> dict[str, list[HeldOutAnswer]]:
    """Read graded answers, by prompt."""
    lines = read_records(path, HeldOutAnswer)
    return {name: list(own) for name, own in itertools.groupby(lines, key=lambda one: one.prompt)}


def both_sets(
    prompts: Iterable[TaskPrompt],
    before: Mapping[str, Sequence[Answer]],
    after: Mapping[str, Sequence[Answer]],
) -> list[AnswerSet]:
    """Return each prompt's answers before training and, numbered on, those after it."""
    found = []
    for prompt in prompts:
        first, then = before[prompt.id], after[prompt.id]
        moved = (one.model_copy(update={"index": one.index + len(first)}) for one in then)
        found.append(AnswerSet(prompt, (*first, *moved)))
    return found


def score_both(
    sets: Sequence[AnswerSet],
    scorer: Scorer,
    folder: Path,
    seed: int,
    say: Say,
    *,
    retry_failed: bool,
    go_on: Callable[[], bool] | None = None,
) -> bool:
    """Have a reward model score answers before and after, into a training's `scores.jsonl`.

    Args:
        sets: The answers, of `both_sets`.
        scorer: The reward model.
        folder: The training's folder.
        seed: Seed of candidate orders.
        say: Called with lines for the user.
        retry_failed: Judge prompts again that ended in an error.
        go_on: As in `judge_sets`.

    Returns:
        False when it was ended early; then there is no `scores.jsonl` yet.
    """
    items = items_of(sets, distinct=scorer.spec.kind != "baseline")
    log = folder / "judgements.jsonl"
    if not judge_sets(log, scorer, items, seed, say, retry_failed=retry_failed, go_on=go_on):
        return False
    lines: list[ScoreLine] = score_lines(sets, items, scorer.spec, read_judgements(log))
    write_atomic(folder / "scores.jsonl", map(dump_line, lines))
    return True


def win_rate(line: ScoreLine, n: int) -> float | None:
    """Return how often an answer after training is scored higher than one before.

    It is the share of all pairs of both, equal ones counting half; None where the reward model
    failed or a side has no answers.

    Args:
        line: Scores of both.
        n: How many of them are before.
    """
    first = [score for score in line.scores[:n] if score is not None]
    then = [score for score in line.scores[n:] if score is not None]
    if not first or not then:
        return None
    wins = sum((b > a) + (b == a) / 2 for a in first for b in then)
    return wins / (len(first) * len(then))
