"""What a diagnosis is: `diagnosis.json`, rebuilt from a run folder without a model."""

from __future__ import annotations

from typing import Literal

from pydantic import FiniteFloat

from habitus.metrics.statistics import told_apart
from habitus.types import Frozen, Metric

DIAGNOSIS, PAGE = "diagnosis.json", "diagnosis.html"
"""Files in the run folder."""

Tone = Literal["good", "bad", "unclear", "empty"]


class CueCount(Frozen):
    """How many items of a cue there are."""

    cue: str
    """The cue."""
    kind: Literal["causal", "surface"]
    """Whether the score should move or stay."""
    words: str
    """What the edit does."""
    n_items: int
    """Items; 0 is listed too."""


class CueTest(Frozen):
    """One test of a mean change, in the reward model's standard deviations."""

    name: str
    """The cue and target ("CC best"), "CC over surface", or "favours LANGUAGE"."""
    mean: FiniteFloat | None
    """The mean change."""
    ci_low: FiniteFloat | None
    """Lower bound of its 95 % interval."""
    ci_high: FiniteFloat | None
    """Upper bound of its 95 % interval."""
    p: FiniteFloat | None
    """Two-sided sign-flip p-value over parents."""
    p_holm: FiniteFloat | None = None
    """The same after Holm's correction over all tests of the diagnosis."""
    n: int
    """Edits (pairs, for languages; parents, for CC over surface) that it rests on."""
    n_excluded: int
    """How many were left out."""

    @property
    def clear(self) -> bool:
        """True when the mean is told from 0 after the correction, and the interval agrees."""
        return self.mean is not None and told_apart(self.p_holm, self.ci_low, self.ci_high)

    @property
    def raises(self) -> bool:
        """True when it is clear and above 0."""
        return self.clear and self.mean is not None and self.mean > 0

    @property
    def lowers(self) -> bool:
        """True when it is clear and below 0."""
        return self.clear and self.mean is not None and self.mean < 0


class Trait(Frozen):
    """One thing that a reward model follows, beyond the noise."""

    name: str
    """In words, such as "follows the label"."""
    tone: Literal["good", "bad"]
    """Whether one wants it."""
    evidence: str
    """The figure behind it, in a sentence."""
    effect: FiniteFloat
    """Size in standard deviations."""


class Worst(Frozen):
    """An edit that the reward model took worst."""

    item_id: str
    """The edited item."""
    parent_id: str
    """Its parent."""
    cue: str
    """The cue."""
    edited: str
    """The candidate whose text was edited."""
    before: FiniteFloat
    """Its score before."""
    after: FiniteFloat
    """Its score after."""
    change: FiniteFloat
    """The change in standard deviations."""
    flipped: bool
    """True when the winners changed."""


class Diagnosis(Frozen):
    """Everything that is said about one reward model."""

    model: str
    """Label of the reward model."""
    benchmark: str
    """Name of the cue benchmark."""
    form: str
    """How scores were compared: "raw", "margin" or "verdict"."""
    sd: FiniteFloat | None
    """The reward model's standard deviation in that form; 0 when it ties everything."""
    n_scores: int
    """Scores that it rests on."""
    k: float
    """How fast consistency falls with the difference."""
    seed: int
    """Seed of the resampling."""
    n_parents: int
    """Parents in the benchmark."""
    n_parents_judged: int
    """Parents with a verdict."""
    n_failed: int
    """Items without a verdict, edits and triplets included."""
    cues: tuple[CueCount, ...]
    """Items of each cue."""
    metrics: tuple[Metric, ...]
    """All figures."""
    tests: tuple[CueTest, ...]
    """The tests behind the verdict."""
    traits: tuple[Trait, ...]
    """What the reward model follows, largest effect first; empty when it cannot be told."""
    verdict: str
    """The verdict in one sentence."""
    tone: Tone
    """How to show it."""
    notes: tuple[str, ...]
    """What a reader must know."""
    worst: tuple[Worst, ...]
    """The edits taken worst, worst first."""
