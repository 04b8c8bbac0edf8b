"""Reward models behind one interface: `resolve("kind:model")` gives a `Scorer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from habitus.errors import UnknownNameError
from habitus.registry import Registry
from habitus.types import Scorer

KINDS = Registry(
    "reward model",
    {
        "baseline": "habitus.scorers.baselines:create",
        "embedded": "habitus.scorers.embedded:create",
    },
    group="habitus.scorers",
)
"""Kinds of reward models. A factory takes (model, ScorerOptions) and returns a `Scorer`."""


@dataclass(frozen=True)
class ScorerOptions:
    """Options of the command line that a scorer may use."""

    mode: str | None = None
    """How a judge judges, such as "listwise" or "criteria"; None is the kind's default."""
    prompt: str | None = None
    """Path of a prompt file that replaces the mode's own."""
    context: int | None = None
    """Tokens of context; None is the model's own, within the engine's default."""
    threads: int | None = None
    """CPU threads; None is all cores of the process."""
    say: Callable[[str], None] = field(default=lambda line: None, compare=False)
    """Called with lines for the user, such as the start of a download."""


@dataclass(frozen=True)
class ModelEntry:
    """A line of `habitus models`."""

    name: str
    """What to write on the command line."""
    description: str
    """What it is."""
    licence: str = ""
    """Licence of the weights, where there are any."""
    state: str = ""
    """Such as "cached" or "98 MB to download"."""


def resolve(name: str, options: ScorerOptions | None = None) -> Scorer:
    """Return the reward model that `name` stands for.

    Args:
        name: `KIND:MODEL`, or a kind that has a default model.
        options: Options of the command line.

    Raises:
        UnknownNameError: When the kind or the model is not known.
        HabitusError: When the model cannot be loaded.
    """
    kind, _, model = name.partition(":")
    if kind not in KINDS.targets():
        known = [entry.name for entry in list_models()]
        raise UnknownNameError("reward model", name, known)
    scorer: Scorer = KINDS.get(kind)(model, options or ScorerOptions())
    return scorer


def list_models() -> list[ModelEntry]:
    """Return what can be named without further ado, for `habitus models`."""
    from habitus.scorers import baselines, embedded

    return [*embedded.entries(), *baselines.entries()]
