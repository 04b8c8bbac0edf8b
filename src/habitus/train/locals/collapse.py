"""Signs that training by reinforcement has collapsed, read from the curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CollapseSettings:
    """When to stop."""

    patience: int = 5
    """Steps in a row that must show a sign."""
    p_low: float = 0.1
    """Lowest share of verdicts for the first response."""
    p_high: float = 0.9
    """Highest share of verdicts for the first response."""
    shrink: float = 0.5
    """Criteria shorter than this part of the first steps' mean."""
    first: int = 5
    """How many steps are the first ones."""
    parsed: float = 0.5
    """Lowest share of completions with the form."""
    kl: float = 1.0
    """Highest KL divergence from the reference, nats a token."""
    appr: float = -1.0
    """Lowest mean of R_appr, not clipped, over these steps: e to it is how much likelier the right
    verdict is after criteria than without."""


def find_collapse(
    curve: Sequence[Mapping[str, Any]], settings: CollapseSettings | None = None
) -> str | None:
    """Say what has collapsed and what to change, or None.

    Args:
        curve: The lines of `curve.jsonl` so far, in order.
        settings: When to stop.
    """
    settings = settings or CollapseSettings()
    last = curve[-settings.patience :]
    if len(last) < settings.patience:
        return None
    steps = f"in {settings.patience} steps up to {last[-1].get('step')}"

    def all_of(name: str, holds: Any) -> bool:
        values = [line.get(name) for line in last]
        return all(value is not None and holds(value) for value in values)

    def mean(lines: Sequence[Mapping[str, Any]], name: str) -> float:
        values = [float(line[name]) for line in lines if line.get(name) is not None]
        return sum(values) / len(values) if values else 0.0

    if all_of("p_a", lambda value: value > settings.p_high) or all_of(
        "p_a", lambda value: value < settings.p_low
    ):
        letter = "A" if mean(last, "p_a") > 0.5 else "B"
        return (
            f"collapsed to one letter: P(A) was {mean(last, 'p_a'):.2f} on average {steps}, almost "
            f"always {letter}. Warm up first (--stage both), reward agreement of both orders "
            "(--w-swap 0.5), or raise --beta"
        )
    if all_of("parse_rate", lambda value: value < settings.parsed):
        return (
            f"the form was lost: {mean(last, 'parse_rate'):.0%} of completions had criteria and a "
            f"verdict on average {steps}. Warm up first (--stage both), or raise "
            "--max-new-tokens if texts are cut, or lower --lr"
        )
    start = mean(curve[: settings.first], "criteria_chars")
    shortest = settings.shrink * start
    if len(curve) > settings.first and all_of("criteria_chars", lambda value: value < shortest):
        return (
            f"criteria are shrinking: {mean(last, 'criteria_chars'):.0f} characters on average "
            f"{steps}, {start:.0f} in the first {settings.first}. Set a floor (--length-floor "
            f"{max(1, round(start))} --w-length 1), or raise --beta"
        )
    if all_of("kl", lambda value: value > settings.kl):
        return (
            f"the policy runs away from its reference: KL {mean(last, 'kl'):.2f} nats a token on "
            f"average {steps}. Raise --beta, or lower --lr"
        )
    appr = mean(last, "r_appr")
    if appr < settings.appr and all_of("r_appr", lambda value: True):
        return (
            f"the judge is too sure after its criteria: the right verdict was {math.exp(-appr):.1f} "
            f"times less likely than without them on average {steps}. Keep the size of R_appr "
            "(--scale-rewards none --appr-clip -5,5), or warm up longer (--stage both, "
            "--warmup-steps)"
        )
    return None
