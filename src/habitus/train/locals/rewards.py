r"""Rewards of Think-as-Locals (papers: CARB A5): pure functions of numbers, no model.

For a prompt q, responses y1 and y2, the right judgement j, and a completion that wrote criteria z
and then judged j^:

    R_corr = +1 if j^ = j else -1
    R_appr = log p(j | q, y1, y2, z) - log p(j | q, y1, y2)
    R      = w_corr R_corr + w_appr clip(R_appr, low, high) + w_swap R_swap + w_length R_length

R_swap is +1 where the judgement after z is for the same response in both orders, else -1;
R_length falls from 0 to -1 as criteria get shorter than a floor. A completion without the form
gets a floor that is below every R of one with it, never None and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from habitus.errors import InputError

ETA = 1e-4
"""Added to a group's standard deviation, as TRL does."""


@dataclass(frozen=True)
class RewardSettings:
    """Weights and ranges."""

    w_corr: float = 1.0
    """Weight of R_corr."""
    w_appr: float = 1.0
    """Weight of R_appr."""
    w_swap: float = 0.0
    """Weight of R_swap; it costs one more forward pass of each completion."""
    w_length: float = 0.0
    """Weight of R_length."""
    length_floor: int = 0
    """Characters of criteria below which R_length is negative; 0 is no floor."""
    appr_low: float = -2.0
    """Lowest R_appr that counts. Criteria that make the right verdict e^2 = 7.4 times less likely
    are as bad as can be; without a bound one confident mistake would outweigh a whole group."""
    appr_high: float = 2.0
    """Highest R_appr that counts."""
    labels: Literal["two", "all"] = "two"
    """What log p(j | ...) is normalised over: the two verdict letters, or the whole vocabulary.
    Over the vocabulary R_appr also rewards that any letter comes next at all."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When one of them makes no sense.
        """
        for name in ("w_corr", "w_appr", "w_swap", "w_length"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise InputError(f"--{name.replace('_', '-')} {weight}: must be 0 or more")
        if not self.w_corr and not self.w_appr:
            raise InputError("both --w-corr and --w-appr are 0; there is nothing to learn from")
        if not self.appr_low < self.appr_high or not math.isfinite(self.appr_high - self.appr_low):
            raise InputError(
                f"--appr-clip {self.appr_low:g} {self.appr_high:g}: the first must be the lower"
            )
        if self.length_floor < 0 or bool(self.length_floor) != bool(self.w_length):
            raise InputError("--length-floor (characters) and --w-length go together")

    @property
    def floor(self) -> float:
        """Reward of a completion without the form: 1 below the lowest valid reward.

        floor = -w_corr + w_appr low - w_swap - w_length - 1
        """
        lowest = -self.w_corr + self.w_appr * self.appr_low - self.w_swap - self.w_length
        return lowest - 1.0


def correctness(verdict: int, right: int) -> float:
    """Return R_corr: +1 where the verdict is the right one, else -1."""
    return 1.0 if verdict == right else -1.0


def label_logprob(logprobs: Sequence[float], label: int, labels: str = "two") -> float:
    """Return the log-probability of a verdict letter.

    Args:
        logprobs: Log-probability of each letter over the whole vocabulary.
        label: Which letter.
        labels: "two": renormalised, log p_j - log(p_A + p_B); "all": as it is.
    """
    if labels == "all":
        return logprobs[label]
    highest = max(logprobs)
    total = math.fsum(math.exp(value - highest) for value in logprobs)
    return logprobs[label] - highest - math.log(total)


def appropriateness(with_criteria: float, without: float) -> float:
    """Return R_appr = log p(j | q, y1, y2, z) - log p(j | q, y1, y2), not yet clipped.

    Args:
        with_criteria: The first term.
        without: The second; the same for all completions of a prompt.
    """
    return with_criteria - without


def clip(value: float, low: float, high: float) -> float:
    """Return the value, or the bound that it is beyond."""
    return min(max(value, low), high)


def swap_consistency(own: Sequence[float], swapped: Sequence[float]) -> float:
    """Return R_swap: +1 where the same response is likelier in both orders, else -1.

    Args:
        own: Log-probabilities of the two letters in the completion's own order.
        swapped: The same, with the responses shown the other way round, after the same criteria.
    """
    return 1.0 if (own[0] - own[1]) * (swapped[0] - swapped[1]) < 0 else -1.0


def length_penalty(characters: int, floor: int) -> float:
    """Return R_length = -max(0, floor - characters) / floor, in [-1, 0]; 0 without a floor."""
    return -max(0, floor - characters) / floor if floor else 0.0


def total(
    settings: RewardSettings,
    *,
    corr: float,
    appr: float,
    swap: float = 0.0,
    length: float = 0.0,
) -> float:
    """Return R of a completion with the form.

    Args:
        settings: Weights and ranges.
        corr: R_corr.
        appr: R_appr, not yet clipped.
        swap: R_swap.
        length: R_length.
    """
    clipped = clip(appr, settings.appr_low, settings.appr_high)
    return (
        settings.w_corr * corr
        + settings.w_appr * clipped
        + settings.w_swap * swap
        + settings.w_length * length
    )


@dataclass(frozen=True)
class Group:
    """The rewards of one prompt's completions."""

    mean: float
    """Mean reward."""
    std: float
    """Standard deviation with n - 1, as TRL has it; 0 for one completion."""
    advantages: tuple[float, ...]
    """(R_i - mean) / (std + eta); all 0 where all rewards are equal."""

    @property
    def flat(self) -> bool:
        """Whether all rewards are equal, so that the group teaches nothing."""
        return self.std == 0.0


def group_statistics(rewards: Sequence[float], size: int, eta: float = ETA) -> list[Group]:
    """Return the statistics of each group of GRPO.

    Args:
        rewards: Rewards, the completions of a prompt side by side.
        size: Completions of a prompt.
        eta: Added to the standard deviation.

    Raises:
        ValueError: When the rewards do not fill the groups.
    """
    if size < 1 or len(rewards) % size:
        raise ValueError(f"{len(rewards)} rewards do not fill groups of {size}")
    groups = []
    for start in range(0, len(rewards), size):
        own = rewards[start : start + size]
        if min(own) == max(own):
            groups.append(Group(own[0], 0.0, (0.0,) * size))
            continue
        mean = math.fsum(own) / size
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in own) / (size - 1))
        groups.append(Group(mean, std, tuple((value - mean) / (std + eta) for value in own)))
    return groups
