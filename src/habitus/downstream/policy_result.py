"""`policy.json`: all figures of policies trained against reward models, as reports read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, FiniteFloat

from habitus.downstream.model import Sampling
from habitus.downstream.result import Gain, PolicyResult, Quality, read_figures
from habitus.types import Frozen

RESULT, PAGE, QUALITIES = "policy.json", "policy.html", "qualities.jsonl"
TRAINING, BEFORE, EXCLUDED = "training.jsonl", "before.jsonl", "excluded.jsonl"
RUN, RUNS = "run.json", "scorers"
"""Files of a run's folder, and its folder of trainings."""


class HeldOutQuality(Frozen):
    """One line of `qualities.jsonl`: a trained policy on one held-out prompt."""

    scorer: str
    """Digest of the reward model that it was trained against."""
    prompt: str
    """Id of the prompt."""
    country: str
    """The prompt's country."""
    quality: FiniteFloat
    """Mean grade of its answers."""
    before: FiniteFloat
    """Mean grade of the answers before training."""
    win: FiniteFloat | None = None
    """Share of pairs of an answer after and one before in which the reward model scores the one
    after higher, equal ones counting half; None where it failed."""


class Change(Frozen):
    """A figure of the answers before and after training."""

    before: Quality
    """Before, average of countries."""
    after: Quality
    """After, average of countries."""
    gain: Gain
    """After minus before, paired; corrected after Holm over all reward models and all figures of
    the watch."""


class Line(Frozen):
    """A figure over the steps of a training."""

    points: tuple[tuple[FiniteFloat, FiniteFloat], ...]
    """Mean step and mean value of each of at most 40 parts of the training."""
    first: FiniteFloat
    """Mean over the first tenth of the steps."""
    last: FiniteFloat
    """Mean over the last tenth."""


class Trained(Frozen):
    """The policy that was trained against one reward model."""

    name: str
    """The reward model as given on the command line."""
    label: str
    """Names it in tables and charts; unique within the run."""
    digest: str
    """Digest of the reward model."""
    kind: str
    """Kind of the reward model."""
    parameters: int | None = None
    """Number of the reward model's weights, where known."""
    folder: str
    """The training's folder, within the run's."""
    quality: Quality
    """On held-out prompts after training, average of countries."""
    gain: Gain
    """After minus before, corrected after Holm over the reward models."""
    countries: dict[str, Quality] = Field(default_factory=dict)
    """Quality after training in each country."""
    gain_by: dict[str, Gain] = Field(default_factory=dict)
    """The gain in each country, not corrected."""
    reward: Quality
    """Share of pairs, one answer after training and one before, in which the reward model prefers
    the one after; 1/2 is no change."""
    reward_gain: Gain
    """The same minus 1/2, corrected after Holm over the reward models."""
    reward_failed: dict[str, int] = Field(default_factory=dict)
    """Status to held-out prompts on which the reward model failed."""
    watch: dict[str, Change] = Field(default_factory=dict)
    """The hacking watch: what else changed."""
    curves: dict[str, Line] = Field(default_factory=dict)
    """Figures of training, by name."""
    steps: int
    """Steps of training."""
    answers: int
    """Answers written in training."""
    unscored: dict[str, int] = Field(default_factory=dict)
    """Answers in training that have no reward, by why: the reward model's status, "same" (all
    answers to the prompt were one text, so there was nothing to learn), or how the answer ended."""
    flags: tuple[str, ...] = ()
    """What looks like reward hacking, in words."""
    seconds: FiniteFloat | None = None
    """Time of training in all legs; differs between equal runs."""


class Difference(Frozen):
    """Quality after training against one reward model minus that against another."""

    a: str
    """Label of the first."""
    b: str
    """Label of the second."""
    gain: Gain
    """The difference, corrected after Holm over all pairs."""


class PolicyStudy(Frozen):
    """`policy.json`: all figures of a run."""

    task: str
    """The task."""
    data: dict[str, Any]
    """Source of the prompts: name, licence, digest, notes."""
    language: str | None = None
    """Of blend-short: "own" or "en"."""
    policy: PolicyResult
    """The policy before training."""
    sampling: Sampling
    """How answers to held-out prompts are drawn."""
    grpo: dict[str, Any]
    """How policies are trained."""
    n: int
    """Answers to each held-out prompt, before and after."""
    seed: int
    """The seed of everything."""
    countries: tuple[str, ...]
    """Countries of the averages."""
    training_prompts: int
    """Prompts that policies are trained on."""
    training_excluded: int = 0
    """Further ones that do not fit into the context."""
    prompts: int
    """Held-out prompts."""
    prompts_graded: int
    """Held-out prompts with a graded answer before training: those that figures are over."""
    before: Quality
    """Quality on held-out prompts before training, average of countries."""
    before_countries: dict[str, Quality] = Field(default_factory=dict)
    """The same in each country."""
    scorers: tuple[Trained, ...]
    """The policies after training, in the order in which reward models were added."""
    differences: tuple[Difference, ...] = ()
    """Each pair of reward models."""
    languages: str
    """What tells the language of an answer."""
    not_watched: dict[str, str] = Field(default_factory=dict)
    """Figures of the watch that could not be had, and why."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of Habitus, Python and the libraries that results depend on."""
    command: str | None = None
    """The command line that began the run."""


def read_study(folder: Path) -> PolicyStudy:
    """Read `policy.json` of a run's folder.

    Raises:
        InputError: When the folder holds none.
        RunError: When it is not what a run writes.
    """
    return read_figures(folder / RESULT, PolicyStudy, "policy")
