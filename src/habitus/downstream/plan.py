"""What a best-of-n run is to do, as the command line or a caller says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from habitus.downstream.model import Sampling
from habitus.errors import InputError
from habitus.scorers import ScorerOptions, check_kind, engines

PUBLISHED = "published"
"""The policy that stands for a data set's published answers."""

NO_CHANGE = frozenset(
    ["say", "engine", "base_url", "api_key_env", "concurrency", "budget_tokens", "cache", "threads"]
)
"""Options of the policy that change no answer."""


@dataclass(frozen=True)
class ScorerChoice:
    """A reward model as it was asked for."""

    name: str
    """`KIND:MODEL`."""
    options: ScorerOptions = field(default_factory=ScorerOptions)
    """Its options."""
    words: str = ""
    """As given on the command line, options included; empty is the name."""

    @property
    def asked(self) -> str:
        """What names it in files."""
        return self.words or self.name


@dataclass(frozen=True)
class BestOfNPlan:
    """What to do, resolved."""

    task: str
    """Name of the task."""
    data: Path
    """Its data."""
    policy: str
    """The model that answers, as its engine knows it, or "published"."""
    scorers: tuple[ScorerChoice, ...]
    """The reward models."""
    out: Path
    """The folder."""
    engine: str = engines.DEFAULT
    """What runs the policy."""
    options: ScorerOptions = field(default_factory=ScorerOptions)
    """Options of the policy's engine."""
    grader: ScorerChoice | None = None
    """The judge that grades, where the task needs one."""
    n: int = 16
    """Answers to each prompt."""
    seed: int = 0
    """Seed of everything drawn."""
    countries: tuple[str, ...] = ()
    """Countries to keep; empty keeps all."""
    limit: int | None = None
    """Most prompts of a country."""
    trained_on: frozenset[str] = frozenset()
    """Questions to leave out: reward models have been trained on them."""
    language: str = "own"
    """Of blend-short."""
    part: str = "all"
    """Of omgeval."""
    sampling: Sampling = field(default_factory=Sampling)
    """How answers are drawn."""
    generations: Path | None = None
    """Folder of generations that several runs share; None is one in `out`."""
    resume: bool = False
    """Go on in an existing folder."""
    retry_failed: bool = False
    """Ask again for answers, and judge again prompts, whose status is "error"."""
    command: str | None = None
    """The command line, for the record."""

    def check(self) -> None:
        """Refuse what is wrong whatever the data.

        Raises:
            InputError: Naming the option.
        """
        if self.n < 2:
            raise InputError(f"--n {self.n}: a pick needs at least 2 answers")
        if self.policy == PUBLISHED:
            if self.generations is not None or self.options != ScorerOptions():
                raise InputError("--policy published draws nothing: leave out the policy's options")
        elif self.sampling.temperature == 0:
            raise InputError("--temperature 0 gives the same answer every time; use a higher one")
        names = [choice.asked for choice in self.scorers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"--scorer {twice[0]} is given twice; give it once")
        for choice in (*self.scorers, *filter(None, [self.grader])):
            check_kind(choice.name)
        if self.grader and self.grader.name in [choice.name for choice in self.scorers]:
            raise InputError(
                f"--grader {self.grader.name} is a reward model under test: it would grade its own "
                "picks; name another judge"
            )

    def asked_policy(self) -> dict[str, Any]:
        """Return the policy as it was asked for: what must be equal for a run to go on."""
        given = {
            name: value
            for name, value in vars(self.options).items()
            if value is not None and name not in NO_CHANGE
        }
        sampling = self.sampling.model_dump(mode="json")
        return {"asked": self.policy, "engine": self.engine, "options": given, "sampling": sampling}
