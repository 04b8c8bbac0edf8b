"""`downstream.json`: all figures of a run, as reports and `habitus correlate` read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, FiniteFloat, ValidationError

from habitus.downstream.model import RESULT, Sampling
from habitus.errors import InputError, RunError
from habitus.metrics.statistics import told_apart
from habitus.types import Frozen

Figures = TypeVar("Figures", bound=Frozen)
"""What a file of figures holds."""


class Quality(Frozen):
    """A mean quality with its 95 % interval."""

    value: FiniteFloat | None
    """The mean over countries; None with n = 0."""
    low: FiniteFloat | None
    """Lower bound."""
    high: FiniteFloat | None
    """Upper bound."""
    n: int
    """Prompts."""
    n_excluded: int = 0
    """Prompts that were left out: the reward model failed on them."""


class Gain(Frozen):
    """A paired difference of quality."""

    value: FiniteFloat | None
    """The mean difference, average of countries."""
    low: FiniteFloat | None
    """Lower bound of its 95 % interval."""
    high: FiniteFloat | None
    """Upper bound."""
    p: FiniteFloat | None
    """Two-sided sign-flip p-value over questions."""
    p_holm: FiniteFloat | None
    """The same, corrected after Holm over the table."""
    n: int
    """Prompts that both have."""

    @property
    def clear(self) -> bool:
        """True when it is told from 0 after the correction, and the interval agrees."""
        return told_apart(self.p_holm, self.low, self.high)


class CurvePoint(Frozen):
    """Quality of the best of n."""

    n: int
    """How many answers are drawn."""
    quality: Quality
    """What their best is worth."""


class Fallen(Frozen):
    """Where a curve has fallen: over-optimisation."""

    since: int
    """The n since which it has, of those with the largest fall."""
    gain: Gain
    """Quality at the largest n minus quality there; below 0."""


class PickerResult(Frozen):
    """One reward model's, or one reference's, figures."""

    name: str
    """The reward model as given on the command line, or "random", "oracle", "longest",
    "shortest"."""
    label: str
    """Names it in tables and charts; unique within the run."""
    digest: str | None = None
    """Digest of the reward model; None for references."""
    kind: str
    """Kind of the reward model, or "reference"."""
    quality: Quality
    """At the largest n, average of countries."""
    curve: tuple[CurvePoint, ...]
    """At each n, average of countries."""
    countries: dict[str, tuple[CurvePoint, ...]] = Field(default_factory=dict)
    """The same in each country."""
    gain_over_random: Gain | None = None
    """Against a random answer; None for references."""
    gain_over_longest: Gain | None = None
    """Against the longest answer; None for references."""
    gain_over_random_by: dict[str, Gain] = Field(default_factory=dict)
    """The gain over a random answer in each country, not corrected."""
    fallen: Fallen | None = None
    """Where quality at the largest n is below that at a smaller n, beyond the noise."""
    failed: dict[str, int] = Field(default_factory=dict)
    """Status to prompts on which the reward model failed."""
    tied: int = 0
    """Prompts where several answers share the highest score."""
    length_ratio: FiniteFloat | None = None
    """Mean length of the picks over that of all answers, in characters."""
    parameters: int | None = None
    """Number of the model's weights, where known."""
    tokens: int | None = None
    """Tokens read and written for all scores; None where the reward model does not count."""
    seconds: FiniteFloat | None = None
    """Time of all scores; the only field that differs between equal runs."""


class PolicyResult(Frozen):
    """Who answered."""

    name: str
    """The model."""
    digest: str
    """Digest of everything that can change what it writes."""
    engine: str | None = None
    """What ran it; None for published answers."""


class Downstream(Frozen):
    """`downstream.json`: all figures of a run."""

    task: str
    """The task."""
    data: dict[str, Any]
    """Source of the prompts: name, licence, digest, notes."""
    language: str | None = None
    """Of blend-short: "own" or "en"."""
    policy: PolicyResult
    """Who answered."""
    sampling: Sampling | None = None
    """How answers were drawn; None for published answers."""
    grader: dict[str, Any] | None = None
    """Name and digest of the judge that graded, where one did."""
    n: int
    """Answers to each prompt."""
    seed: int
    """The seed of everything drawn."""
    countries: tuple[str, ...]
    """Countries of the averages."""
    prompts: int
    """Prompts."""
    prompts_graded: int
    """Prompts with at least one graded answer: those that figures are over."""
    answers: dict[str, int]
    """How the generations ended, by status."""
    ungraded: int = 0
    """Candidates without a grade: the grader failed on them. They are left out."""
    unread: int = 0
    """Multiple choice: answers that name no letter; they grade 0."""
    distinct: FiniteFloat | None = None
    """Mean number of distinct texts among a prompt's answers."""
    tokens: int = 0
    """Tokens that the policy read and wrote for these answers."""
    scorers: tuple[PickerResult, ...]
    """The reward models, in the order in which they were added."""
    references: tuple[PickerResult, ...]
    """"random", "oracle", "longest" and "shortest"."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of Habitus, Python and the libraries that results depend on."""
    command: str | None = None
    """The command line that began the run."""


def read_result(folder: Path) -> Downstream:
    """Read `downstream.json` of a run's folder.

    Raises:
        InputError: When the folder holds none.
        RunError: When it is not what a run writes.
    """
    return read_figures(folder / RESULT, Downstream, "bestofn")


def read_figures(path: Path, kind: type[Figures], command: str) -> Figures:
    """Read a run's file of figures.

    Args:
        path: The file.
        kind: What it holds.
        command: The subcommand of `habitus downstream` that writes it.

    Raises:
        InputError: When there is no such file.
        RunError: When it is not what a run writes.
    """
    if not path.is_file():
        raise InputError(
            f"{path.parent} holds no {path.name}; make it with habitus downstream {command}"
        )
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{path}: {place or 'the file'}: {first['msg']}") from error
