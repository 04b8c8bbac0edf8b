"""What the curve of a training of a policy says of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from habitus.train.curve import mean

LOGGED = ("loss", "kl", "kl_answer", "entropy", "grad_norm")
"""What the curve takes from TRL's log."""


def step_figures(records: Sequence[Mapping[str, Any]], group: int) -> dict[str, Any]:
    """Return what the curve says of a step's answers.

    Args:
        records: The answers, those to a prompt side by side.
        group: Answers to a prompt.

    Returns:
        `reward`: mean over answers with one; `reward_std`: mean over groups of the standard
        deviation (n - 1) within; `flat_groups`: share of groups without any difference of rewards,
        which teach nothing, those without rewards among them; `unscored`: answers without a reward;
        `quality`: mean grade by the task; `length` in tokens; `truncated`: share cut.
    """
    rewards = [record["reward"] for record in records]
    spreads, flat = [], 0
    for start in range(0, len(records), group):
        own = [value for value in rewards[start : start + group] if value is not None]
        flat += len(set(own)) < 2
        if len(own) > 1:
            spreads.append(_deviation(own))
    known = [value for value in rewards if value is not None]
    return {
        "reward": mean(known),
        "reward_std": mean(spreads),
        "flat_groups": flat * group / len(records) if records else None,
        "unscored": len(rewards) - len(known),
        "quality": mean([each["grade"] for each in records if each["grade"] is not None]),
        "length": mean([float(each["tokens"]) for each in records]),
        "truncated": mean([float(each["status"] == "truncated") for each in records]),
        "completions": len(records),
        "tokens": sum(int(each["tokens"]) for each in records),
    }


def _deviation(values: Sequence[float]) -> float:
    centre = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))
