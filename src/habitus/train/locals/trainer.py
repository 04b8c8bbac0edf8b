"""GRPO on verifiable rewards: one reward function, and a record of every step.

Departures from the paper: the policy sees both orders of a pair in one batch; R_appr is clipped;
completions without the form get a floor (`rewards`); the loss is the paper's by default
(`loss_type="grpo"`, KL to the reference with weight 0.04, ratio clipped at 0.2, advantages divided
by the group's standard deviation), and TRL's later ones are options.
"""

from __future__ import annotations

import warnings
from typing import Any

from habitus.clients import hf
from habitus.train._trl import LOGGED_STEPS, on_one_gpu, shared_arguments
from habitus.train.fitting import CHECKPOINTS
from habitus.train.locals._grpo import GRPOConfig
from habitus.train.locals.model import Policy
from habitus.train.locals.plan import LocalsPlan


def arguments(policy: Policy, plan: LocalsPlan) -> Any:
    """Return TRL's arguments.

    Args:
        policy: What is trained.
        plan: How.
    """
    grpo = plan.grpo
    on_cpu = policy.device.type == "cpu"
    share = grpo.prompts_per_step * grpo.group // hf.processes()
    more: dict[str, Any] = {}
    if grpo.vllm is not None:
        more = {"use_vllm": True, "vllm_mode": grpo.vllm}
    with warnings.catch_warnings():  # TRL sets what transformers has renamed
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        found = GRPOConfig(
            output_dir=str(plan.out / CHECKPOINTS),
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
            beta=grpo.beta if plan.load.lora is not None else 0.0,
            epsilon=grpo.epsilon,
            loss_type=grpo.loss_type,
            scale_rewards=grpo.scale_rewards,
            use_bias_correction_kl=False,
            disable_dropout=True,
            shuffle_dataset=False,  # the schedule is shuffled already, pairs together
            bf16=policy.bf16,
            gradient_checkpointing=grpo.gradient_checkpointing,
            **LOGGED_STEPS,
            **shared_arguments(seed=plan.seed, save_steps=grpo.save_steps, on_cpu=on_cpu),
            **more,
        )
    return on_one_gpu(found)
