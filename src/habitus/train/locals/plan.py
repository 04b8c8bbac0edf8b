"""What a training of a judge is asked to do, and in which order it sees pairs."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from habitus.clients import hf
from habitus.errors import InputError
from habitus.train.locals.model import ModelOptions
from habitus.train.locals.prompting import View
from habitus.train.locals.rewards import RewardSettings
from habitus.train.locals.supervised import SupervisedSettings
from habitus.train.locals.warmup import SamplingSettings
from habitus.types import PreferencePair

STAGES = ("warmup", "rl", "both", "verdict", "base")
"""`warmup`: criteria by rejection sampling and verdicts, supervised. `rl`: reinforcement. `both`:
one after the other. What to compare with: `verdict`, verdicts without criteria, supervised, and
`base`, nothing trained, the model measured as it is."""


@dataclass(frozen=True)
class GrpoSettings:
    """How to reinforce. The defaults are the paper's where it names them."""

    steps: int = 100
    """Steps."""
    group: int = 8
    """Completions of a prompt."""
    prompts_per_step: int = 16
    """Prompts of a step, over all processes: an even number, both orders of each pair."""
    micro_batch: int | None = None
    """Completions of a forward pass in training; None is 16, or fewer where that does not fit in."""
    lr: float = 1e-5
    """Learning rate, the same at every step."""
    beta: float = 0.04
    """Weight of the KL penalty."""
    epsilon: float = 0.2
    """The ratio of probabilities is clipped to 1 - epsilon and 1 + epsilon."""
    loss_type: str = "grpo"
    """The paper's, or another that TRL 1.16 has."""
    scale_rewards: str = "group"
    """What advantages are divided by: "group", "batch" or "none"."""
    iterations: int = 1
    """Updates from each batch of completions."""
    temperature: float = 1.0
    """Sampling temperature."""
    max_new_tokens: int = 160
    """Most tokens of a completion."""
    policy: str = "current"
    """Whose log-probabilities R_appr is made of: "current" or "reference"."""
    vllm: str | None = None
    """Who writes: None is transformers; "colocate" or "server" is vLLM."""
    gradient_checkpointing: bool = False
    """Less memory, more time."""
    save_steps: int = 20
    """Steps between checkpoints, and at most lost by a kill."""
    on_collapse: str = "stop"
    """"stop" or "warn"."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When one of them makes no sense.
        """
        if self.group < 2:
            raise InputError(f"--group {self.group}: advantages need 2 or more completions")
        processes = hf.processes()
        if self.prompts_per_step % 2 or self.prompts_per_step * self.group % processes:
            raise InputError(
                f"--prompts-per-step {self.prompts_per_step}: must be even (both orders of a pair), "
                f"and with --group a multiple of the {processes} processes"
            )
        if self.policy == "reference" and not self.beta:
            raise InputError("--policy reference needs a reference: --beta above 0")
        if self.save_steps % self.iterations:
            raise InputError(
                f"--save-steps {self.save_steps}: must be a multiple of --iterations "
                f"{self.iterations}; within one batch a checkpoint cannot be resumed exactly"
            )
        if self.vllm is not None and importlib.util.find_spec("vllm") is None:
            raise InputError(
                f"--vllm {self.vllm}: vllm is not installed; leave it out, or pip install vllm"
            )

    @property
    def micro(self) -> int:
        """Completions of a forward pass: the largest divisor of the process's share that is allowed."""
        share = self.prompts_per_step * self.group // hf.processes()
        most = self.micro_batch or 16
        return max(size for size in range(1, min(most, share) + 1) if share % size == 0)


@dataclass(frozen=True)
class LocalsPlan:
    """What to train."""

    pairs: Sequence[PreferencePair]
    """All pairs; those of the part `test` are not trained on."""
    model: str
    """A causal language model: a folder, an id on the Hub or a known model."""
    out: Path
    """The run's folder."""
    stage: str = "rl"
    """One of `STAGES`."""
    rewards: RewardSettings = field(default_factory=RewardSettings)
    """Weights and ranges of the rewards."""
    grpo: GrpoSettings = field(default_factory=GrpoSettings)
    """How to reinforce."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How criteria are sampled in the warm-up."""
    supervised: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How the warm-up learns."""
    warmup_pairs: int = 256
    """Pairs that criteria are sampled for."""
    load: ModelOptions = field(default_factory=ModelOptions)
    """How the model is loaded."""
    translated: bool = False
    """Instruct in the pair's language, where there is a prompt in it."""
    seed: int = 0
    """Seed of everything."""
    limit: int | None = None
    """At most so many training pairs."""
    evaluate: Sequence[PreferencePair] | None = None
    """Pairs to measure on at the end."""
    evaluate_limit: int | None = None
    """At most so many of them."""
    max_seconds: float | None = None
    """Stop at the next point that can be gone on from after so long."""
    resume: bool = False
    """Go on in an existing folder."""
    command: str | None = None
    """The command line, for the record."""


def schedule(views: Sequence[View], prompts: int, steps: int, seed: int) -> list[str]:
    """Return the names of the prompts of all steps, both orders of a pair side by side.

    Every pair is seen once before any is seen again; each round has an order of its own.

    Args:
        views: Both orders of each pair.
        prompts: Prompts of a step, an even number.
        steps: Steps.
        seed: Seed of the orders.
    """
    pairs: dict[str, list[str]] = {}
    for view in views:
        pairs.setdefault(view.item.id, []).append(view.key)
    shuffle = random.Random(seed)  # noqa: S311 - no secret
    names: list[str] = []
    ids = list(pairs)
    while len(names) < prompts * steps:
        for name in shuffle.sample(ids, len(ids)):
            names += pairs[name]
    return names[: prompts * steps]
