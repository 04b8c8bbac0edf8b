"""The nouns of a study of how well a benchmark predicts use (papers: CARB A3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from habitus.evaluate.matching import How, Named
from habitus.evaluate.outcomes import Outcome
from habitus.metrics import LabelledRun
from habitus.metrics.correlation_scores import Scores
from habitus.metrics.statistics import Floats

FAMILY = "family"
"""Column of a facts file that groups reward models where no other is named."""


@dataclass(frozen=True)
class Request:
    """What to correlate."""

    runs: tuple[Path, ...]
    """Folders of `habitus evaluate`, one for each reward model, all of one benchmark."""
    downstream: tuple[Path, ...]
    """Folders of `habitus downstream`."""
    general: tuple[Path, ...] = ()
    """Folders of `habitus evaluate` of the same reward models on a general benchmark."""
    facts: Path | None = None
    """CSV file of `matching.read_facts`."""
    how: How = "auto"
    """How reward models are matched."""
    group: str | None = None
    """Column of the facts file that groups reward models; None takes `FAMILY` where it is."""
    domains: tuple[str, ...] = ()
    """Domains of the items that count; empty for all."""
    cultures: tuple[str, ...] = ()
    """Cultures of the items that count; empty for all."""
    countries: tuple[str, ...] = ()
    """Countries of the prompts that count; empty for all."""
    by_culture: bool = False
    """Whether each culture is correlated by itself too."""


@dataclass(frozen=True)
class Model:
    """One reward model of a study."""

    label: str
    """Its name in tables."""
    named: Named
    """What other runs know it by."""
    folder: Path
    """Its run folder."""
    run: LabelledRun
    """Its items and judgements, filtered."""
    length_bias: float | None
    """Of `metrics.length_bias`."""
    parameters: float | None = None
    """Number of weights, where known."""
    family: str | None = None
    """What it shares with others, such as a training."""


@dataclass(frozen=True)
class Culture:
    """One culture of the benchmark by itself."""

    name: str
    """The culture."""
    countries: tuple[str, ...]
    """Countries of its items that have prompts."""
    x: Scores
    """Accuracy on its items."""
    outcomes: tuple[Scores, ...]
    """Quality on the prompts of its countries, by task."""


@dataclass(frozen=True)
class Study:
    """Everything that is correlated."""

    models: tuple[Model, ...]
    """The reward models, sorted by label."""
    benchmark: Scores
    """Accuracy of each on the benchmark."""
    outcomes: tuple[Scores, ...]
    """Quality of each by task, and over all tasks where there are several."""
    runs: tuple[Outcome, ...]
    """The downstream runs."""
    general: Scores | None
    """Score of each on the general benchmark."""
    confounders: dict[str, Floats]
    """Length bias, log parameters and general score by name; each of shape (models,)."""
    cultures: tuple[Culture, ...]
    """Single cultures, where asked for."""
    grouped_by: str | None
    """Column of the facts file that families come from."""
    notes: tuple[str, ...]
    """What a reader must know: what matches nothing, what was matched by name."""

    @property
    def families(self) -> tuple[str | None, ...]:
        """Family of each reward model."""
        return tuple(model.family for model in self.models)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each reward model."""
        return tuple(model.label for model in self.models)
