"""What trainings by reinforcement share: how to reinforce, in which order, and TRL's arguments."""

from __future__ import annotations

import importlib.util
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.errors import InputError
from habitus.progress import processes
from habitus.train.fitting import CHECKPOINTS

if TYPE_CHECKING:
    from habitus.train.locals.model import Policy


@dataclass(frozen=True)
class Grpo:
    """How to reinforce. The defaults are those of Think-as-Locals where its paper names them."""

    steps: int = 100
    """Steps."""
    group: int = 8
    """Completions of a prompt."""
    prompts_per_step: int = 16
    """Prompts of a step, over all processes."""
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
    vllm: str | None = None
    """Who writes: None is transformers; "colocate" or "server" is vLLM."""
    gradient_checkpointing: bool = False
    """Less memory, more time."""
    save_steps: int = 20
    """Steps between checkpoints, and at most lost by a kill."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When one of them makes no sense.
        """
        if self.group < 2:
            raise InputError(f"--group {self.group}: advantages need 2 or more completions")
        shares = processes()
        if self.prompts_per_step * self.group % shares:
            raise InputError(
                f"--prompts-per-step {self.prompts_per_step}: must be, with --group, a multiple of "
                f"the {shares} processes"
            )
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
        share = self.prompts_per_step * self.group // processes()
        most = self.micro_batch or 16
        return max(size for size in range(1, min(most, share) + 1) if share % size == 0)


def rounds(groups: Mapping[str, Sequence[str]], total: int, seed: int) -> list[str]:
    """Return the names of the prompts of all steps, those of a group side by side.

    Every group is seen once before any is seen again; each round has an order of its own.

    Args:
        groups: Names of the prompts that go together.
        total: Prompts of all steps.
        seed: Seed of the orders.
    """
    shuffle = random.Random(seed)  # noqa: S311 - no secret
    names: list[str] = []
    ids = list(groups)
    while len(names) < total:
        for name in shuffle.sample(ids, len(ids)):
            names += groups[name]
    return names[:total]


def arguments(policy: Policy, grpo: Grpo, folder: Path, seed: int) -> Any:
    """Return TRL's arguments.

    Args:
        policy: What is trained.
        grpo: How.
        folder: Where the checkpoints' folder goes.
        seed: Seed of everything.
    """
    from habitus.train._trl import LOGGED_STEPS, on_one_gpu, shared_arguments
    from habitus.train.locals._grpo import GRPOConfig

    on_cpu = policy.device.type == "cpu"
    share = grpo.prompts_per_step * grpo.group // processes()
    more: dict[str, Any] = {}
    if grpo.vllm is not None:
        more = {"use_vllm": True, "vllm_mode": grpo.vllm}
    with warnings.catch_warnings():  # TRL sets what transformers has renamed
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        found = GRPOConfig(
            output_dir=str(folder / CHECKPOINTS),
            per_device_train_batch_size=grpo.micro,
            gradient_accumulation_steps=share // grpo.micro,
            num_generations=grpo.group,
            num_iterations=grpo.iterations,
            max_completion_length=grpo.max_new_tokens,
            max_steps=grpo.steps,
            learning_rate=grpo.lr,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            temperature=grpo.temperature,
            top_p=1.0,
            top_k=0,
            beta=grpo.beta if policy.options.lora is not None else 0.0,
            epsilon=grpo.epsilon,
            loss_type=grpo.loss_type,
            scale_rewards=grpo.scale_rewards,
            use_bias_correction_kl=False,
            disable_dropout=True,
            shuffle_dataset=False,  # the schedule is shuffled already, groups together
            bf16=policy.bf16,
            gradient_checkpointing=grpo.gradient_checkpointing,
            **LOGGED_STEPS,
            **shared_arguments(seed=seed, save_steps=grpo.save_steps, on_cpu=on_cpu),
            **more,
        )
    return on_one_gpu(found)
