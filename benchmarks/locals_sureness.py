"""What rewards make of a judge's sureness after criteria, by simulation (decision 0004).

    python benchmarks/locals_sureness.py

The judge knows nothing but its belief, which is right in three of four prompts. Criteria make it
surer or less sure: its log-odds are K times what the belief warrants, and each text multiplies them
by a random factor. Printed is, for K of 1 (as sure as it should be) and others, the drive: the mean
of advantage times the logarithm of that factor, in its standard deviations. Where it is above 0,
reinforcement makes the judge surer. Rewards and advantages are those that training computes.
"""

from __future__ import annotations

import argparse
import math
import operator
import random

from habitus.train.locals.rewards import (
    RewardSettings,
    appropriateness,
    correctness,
    group_statistics,
    label_logprob,
    total,
)

RIGHT = 0.75
"""How often the belief is right."""
BELIEF = math.log(RIGHT / (1 - RIGHT))
"""Log-odds that it warrants."""
SPREAD = 0.1
"""Standard deviation of the logarithm of a text's factor."""
GROUP = 8
SURENESS = (0.5, 1.0, 2.0, 3.0, 5.0)


def drive(settings: RewardSettings, scaled: bool, sureness: float, groups: int, seed: int) -> float:
    """Return how much surer criteria are rewarded.

    Args:
        settings: Weights and ranges.
        scaled: Whether advantages are divided by the group's standard deviation.
        sureness: K.
        groups: Prompts to simulate.
        seed: Seed of the draws.
    """
    draw = random.Random(seed)
    products = []
    for _ in range(groups):
        odds = BELIEF if draw.random() < RIGHT else -BELIEF  # of the right letter
        factors = [draw.gauss(0.0, 1.0) for _ in range(GROUP)]
        rewards = [_reward(settings, odds, sureness, factor, draw) for factor in factors]
        [found] = group_statistics(rewards, GROUP)
        advantages = found.advantages if scaled else [each - found.mean for each in rewards]
        products.append(math.fsum(map(operator.mul, advantages, factors)) / GROUP)
    return math.fsum(products) / groups


def _reward(
    settings: RewardSettings, odds: float, sureness: float, factor: float, draw: random.Random
) -> float:
    after = odds * sureness * math.exp(SPREAD * factor)
    verdict = 0 if draw.random() < 1 / (1 + math.exp(-after)) else 1
    gain = appropriateness(label_logprob((after, 0.0), 0), label_logprob((odds, 0.0), 0))
    return total(settings, corr=correctness(verdict, 0), appr=gain)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--groups", type=int, default=20_000, help="prompts of a cell")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        "| rewards | R_appr clipped | advantages over std | "
        + " | ".join(f"K = {each:g}" for each in SURENESS)
        + " |"
    )
    print("|---" * (3 + len(SURENESS)) + "|")
    for name, w_corr, w_appr in (("R_corr", 1.0, 0.0), ("R_appr", 0.0, 1.0), ("both", 1.0, 1.0)):
        for clip in (2.0, 5.0) if w_appr else (2.0,):
            for scaled in (True, False):
                settings = RewardSettings(
                    w_corr=w_corr, w_appr=w_appr, appr_low=-clip, appr_high=clip
                )
                cells = [
                    f"{drive(settings, scaled, each, options.groups, options.seed):+.3f}"
                    for each in SURENESS
                ]
                bounds = f"±{clip:g}" if w_appr else "–"
                print(f"| {name} | {bounds} | {'yes' if scaled else 'no'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
