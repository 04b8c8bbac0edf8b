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
        "classifier": "habitus.scorers.classifier:create",
        "dpo": "habitus.scorers.dpo:create",
        "embedded": "habitus.scorers.embedded:create",
        "ensemble": "habitus.scorers.ensemble:create",
        "judge": "habitus.scorers.judge:create",
        "steer": "habitus.scorers.steer:create",
    },
    group="habitus.scorers",
)
"""Kinds of reward models. A factory takes (model, ScorerOptions) and returns a `Scorer`."""


@dataclass(frozen=True)
class ScorerOptions:
    """Options of the command line that a scorer may use."""

    mode: str | None = None
    """How a judge judges: "listwise", "pairwise" or "pointwise"; "criteria" is listwise with
    criteria first."""
    criteria: bool | None = None
    """Whether a judge writes criteria before its verdict."""
    prompt: str | None = None
    """Path of a prompt file that replaces the mode's own."""
    instructions: str | None = None
    """Language of a judge's instructions: "english" (default) or "item", the item's own."""
    verdict: str | None = None
    """Where a judge's verdict is read: "logprobs" or "text"; None is the engine's best."""
    votes: int | None = None
    """How many times a judge is asked each question; more than one needs a temperature."""
    temperature: float | None = None
    """Sampling temperature of what a judge writes; None is 0, or 1 with several votes."""
    max_tokens: int | None = None
    """Most tokens that a judge may write for one question."""
    pairs: str | None = None
    """Which pairs a pairwise judge sees: "all" against all (default) or "knockout"."""
    scale: str | None = None
    """Scale of a pointwise rating, such as "1-10"."""
    engine: str | None = None
    """What runs a judge: "embedded", "transformers", "vllm" or "openai"."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key; None is OPENAI_API_KEY."""
    concurrency: int | None = None
    """Most requests under way at once."""
    budget_tokens: int | None = None
    """Most tokens, read and written, that a run may spend at a server."""
    cache: str | None = None
    """Folder of cached answers of a server."""
    context: int | None = None
    """Tokens of context; None is the model's own, within the engine's default."""
    threads: int | None = None
    """CPU threads; None is all cores of the process."""
    truncate: str | None = None
    """What a classifier does with a text over its limit: "error" (default: the item gets the
    status truncated), "left" or "right"."""
    dtype: str | None = None
    """Number format of the weights, such as "bfloat16"; None is float32 on a CPU, bfloat16 else."""
    device: str | None = None
    """Device, such as "cpu" or "cuda:1"; None is the best there is."""
    batch_tokens: int | None = None
    """Tokens in a batch; None finds out what fits."""
    compile: bool | None = None
    """Compile the layers with torch.compile: faster on a GPU, after some seconds."""
    label: int | None = None
    """Which output of a classifier with several is the reward."""
    template: str | None = None
    """Path of a chat template that replaces the model's own."""
    no_system: str | None = None
    """What to do when the template has no system role: "merge" into the user's turn, "error"."""
    reference: str | None = None
    """Reference model of an implicit (DPO) reward."""
    average: str | None = None
    """Whether an implicit reward is the "sum" (default) or the "mean" over response tokens."""
    revision: str | None = None
    """Revision of the model on the Hugging Face Hub."""
    trust_remote_code: bool | None = None
    """Run code that comes with the model; off unless asked for."""
    allow_new_head: bool | None = None
    """Score with a head that is not in the checkpoint; refused unless asked for."""
    countries: str | None = None
    """Countries and shares of a steered mixture, such as "Chile=0.7,Israel=0.3"."""
    steer_by: str | None = None
    """What a steered mixture mixes: "scores" (default) or "weights"."""
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
    check_kind(name)
    kind, _, model = name.partition(":")
    scorer: Scorer = KINDS.get(kind)(model, options or ScorerOptions())
    return scorer


def check_kind(name: str) -> None:
    """Refuse a name whose kind is not known, without loading anything.

    Raises:
        UnknownNameError: Suggesting near names.
    """
    if name.partition(":")[0] not in KINDS.targets():
        known = [entry.name for entry in list_models()]
        raise UnknownNameError("reward model", name, known)


def list_models() -> list[ModelEntry]:
    """Return what can be named without further ado, for `habitus models`."""
    from habitus.scorers import baselines, embedded

    return [*embedded.entries(), *baselines.entries()]
