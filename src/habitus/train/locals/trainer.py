"""GRPO on verifiable rewards: one reward function, and a record of every step.

Departures from the paper: the policy sees both orders of a pair in one batch; R_appr is clipped;
completions without the form get a floor (`rewards`); the loss is the paper's by default
(`loss_type="grpo"`, KL to the reference with weight 0.04, ratio clipped at 0.2, advantages divided
by the group's standard deviation), and TRL's later ones are options.
"""

from __future__ import annotations

from typing import Any

from habitus.train import grpo
from habitus.train.locals.model import Policy
from habitus.train.locals.plan import LocalsPlan


def arguments(policy: Policy, plan: LocalsPlan) -> Any:
    """Return TRL's arguments.

    Args:
        policy: What is trained.
        plan: How.
    """
    return grpo.arguments(policy, plan.grpo, plan.out, plan.seed)
