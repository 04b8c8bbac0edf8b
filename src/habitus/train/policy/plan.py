"""What a training of policies is asked to do, and which prompts are for what."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from habitus.downstream.model import Sampling, TaskPrompt
from habitus.downstream.plan import ScorerChoice
from habitus.downstream.policy_result import RUNS
from habitus.downstream.tasks import Task, choose, without_questions
from habitus.errors import InputError
from habitus.pairs.splits import draw
from habitus.progress import processes
from habitus.scorers import check_kind
from habitus.store import safe_name
from habitus.train.grpo import Grpo
from habitus.train.locals.model import ModelOptions
from habitus.types import ScorerSpec

HELD_OUT = 0.3
"""Share of the questions that is held out, unless said otherwise."""


@dataclass(frozen=True)
class PolicyPlan:
    """What to do, resolved."""

    task: str
    """Name of the task."""
    data: Path
    """Its data."""
    policy: str
    """The model that is trained: a folder, an id on the Hub or a known model."""
    scorers: tuple[ScorerChoice, ...]
    """The reward models; one training for each."""
    out: Path
    """The folder."""
    grpo: Grpo = field(default_factory=Grpo)
    """How to train."""
    load: ModelOptions = field(default_factory=ModelOptions)
    """How the policy is loaded."""
    n: int = 8
    """Answers to each held-out prompt, before and after."""
    top_p: float = 1.0
    """Probability of the tokens that held-out answers are drawn from; training draws from all."""
    seed: int = 0
    """Seed of everything."""
    countries: tuple[str, ...] = ()
    """Countries to keep; empty keeps all."""
    trained_on: frozenset[str] = frozenset()
    """Questions to leave out: reward models have been trained on them."""
    limit: int | None = None
    """Most training prompts of a country."""
    held_out: float = HELD_OUT
    """Share of the questions that is held out."""
    held_out_limit: int | None = None
    """Most held-out prompts of a country."""
    language: str = "own"
    """Of blend-short."""
    generations: Path | None = None
    """Folder of the answers before training that several runs share; None is one in `out`."""
    max_seconds: float | None = None
    """Stop at the next point that can be gone on from after so long."""
    resume: bool = False
    """Go on in an existing folder, or add reward models to it."""
    retry_failed: bool = False
    """Ask again for held-out answers, and judge again held-out prompts, that ended in an error."""
    command: str | None = None
    """The command line, for the record."""

    @property
    def sampling(self) -> Sampling:
        """How held-out answers are drawn."""
        return Sampling(
            temperature=self.grpo.temperature,
            top_p=self.top_p,
            max_new_tokens=self.grpo.max_new_tokens,
        )

    def check(self) -> None:
        """Refuse what is wrong whatever the data.

        Raises:
            InputError: Naming the option.
        """
        if processes() > 1:
            raise InputError(
                "habitus downstream policy runs in one process: start it without accelerate launch "
                "and torchrun; several reward models can be trained side by side, each into an "
                "--out of its own"
            )
        if not 0 < self.held_out < 1:
            raise InputError(f"--held-out {self.held_out:g}: a share above 0 and below 1")
        names = [choice.asked for choice in self.scorers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"--scorer {twice[0]} is given twice; give it once")
        for choice in self.scorers:
            check_kind(choice.name)
        self.grpo.check()

    def asked(self) -> dict[str, Any]:
        """Return what must be equal for a run to go on, as far as it is known without the data."""
        loading = ("revision", "context", "precision", "lora")
        return {
            "task": self.task,
            "language": self.language,
            "countries": list(self.countries),
            "questions_left_out": len(self.trained_on) or None,
            "limit": self.limit,
            "held_out": self.held_out,
            "held_out_limit": self.held_out_limit,
            "policy": {
                "asked": self.policy,
                **{name: getattr(self.load, name) for name in loading},
            },
            "grpo": {
                name: value
                for name, value in vars(self.grpo).items()
                if name not in ("vllm", "iterations")
            },
            "n": self.n,
            "top_p": self.top_p,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Parts:
    """A task's prompts, by what they are for."""

    training: Task
    """What policies are trained on."""
    held_out: Task
    """What they are measured on."""
    shared: int
    """Training prompts that were left out because their text is that of a held-out one."""


def folder_of(spec: ScorerSpec) -> str:
    """Return the folder of the training against a reward model, within the run's."""
    return f"{RUNS}/{safe_name(spec.label)[:60]}__{spec.digest[:8]}"


def split(task: Task, plan: PolicyPlan) -> Parts:
    """Part a task's questions by the hash of question and seed, as pairs are parted.

    A question is in one part in all countries, whatever else is in the data.

    Raises:
        UnknownNameError: When the task has no such country.
        InputError: When the task is graded by a judge, or a part is too small.
    """
    if task.judged:
        raise InputError(
            f"{task.name} is graded by a judge, and training needs a task with a key: blend-short, "
            "blend-choice or include"
        )
    if plan.trained_on:
        task = without_questions(task, plan.trained_on)
    task = choose(task, plan.countries)
    held: list[TaskPrompt] = []
    rest: list[TaskPrompt] = []
    for prompt in task.prompts:
        apart = draw(plan.seed, "part", prompt.group) < plan.held_out
        (held if apart else rest).append(prompt)
    seen = {prompt.digest for prompt in held}
    fresh = tuple(prompt for prompt in rest if prompt.digest not in seen)
    training = choose(replace(task, prompts=fresh), (), plan.limit, plan.seed)
    held_out = choose(replace(task, prompts=tuple(held)), (), plan.held_out_limit, plan.seed)
    for name, part, least, limit in (
        ("training", training, plan.grpo.prompts_per_step, "--limit"),
        ("held-out", held_out, 2, "--held-out-limit"),
    ):
        if len(part.prompts) < least:
            raise InputError(
                f"{task.name}: {len(part.prompts)} {name} prompts of {len(task.prompts)} are too "
                f"few, {least} are needed; take more countries, a higher {limit}, another --held-out"
                f"{' or fewer --prompts-per-step' if name == 'training' else ''}"
            )
    return Parts(training, held_out, len(rest) - len(fresh))
