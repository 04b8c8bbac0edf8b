"""SCPO's filter, weights and loss, and the plain Bradley-Terry loss (papers: SCPO, method).

The global reward model gives every pair two rewards, g+ of the preferred response and g- of the
other. What follows from them is computed once, before training, in float64 and without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from habitus.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import torch

Variant = Literal["scpo", "filter", "weight", "inverse", "finetune"]
"""What is made of the global rewards: `scpo` filters and weights; `filter` and `weight` do one of
the two; `inverse` weights the other way round; `finetune` uses none of it."""

VARIANTS: tuple[Variant, ...] = get_args(Variant)
"""All variants, in the order of the tables."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Weighting:
    """What a variant makes of pairs, one entry per pair."""

    p: Array
    """Probability that the global reward model gives to the preference; NaN where it has none."""
    weight: Array
    """Weight in the loss, in [0, 1], also of pairs that are not kept; NaN where it has none."""
    kept: npt.NDArray[np.bool_]
    """Whether the pair is trained on."""


def preference_probability(chosen: Array, rejected: Array) -> Array:
    """Return p(y+ > y- | x) = sigmoid(g+ - g-), (pairs,), of the global rewards."""
    found: Array = expit(np.asarray(chosen, float) - np.asarray(rejected, float))
    return found


def filter_mask(p: Array, tau: float) -> npt.NDArray[np.bool_]:
    """Return which pairs stay, (pairs,): those with p < tau. Exactly tau, and NaN, is dropped."""
    return np.asarray(p, float) < tau


def confidence_weight(chosen: Array, rejected: Array, beta: float) -> Array:
    """Return W = min(exp((g+ - g-) / beta), 1), (pairs,), of the global rewards.

    Less weight where the global model disagrees strongly. The exponent is cut at 0 before it is
    raised, so that no difference overflows.
    """
    difference = np.asarray(chosen, float) - np.asarray(rejected, float)
    found: Array = np.exp(np.minimum(difference / beta, 0.0))
    return found


def inverse_weight(chosen: Array, rejected: Array, beta: float) -> Array:
    """Return min(exp(-(g+ - g-) / beta), 1), (pairs,): less weight where the models agree.

    The paper names an "inverse weighting" without its formula; this is `confidence_weight` with
    the sign of the difference turned.
    """
    return confidence_weight(rejected, chosen, beta)


def weigh(
    variant: Variant, chosen: Array, rejected: Array, *, tau: float = 0.7, beta: float = 1.1
) -> Weighting:
    """Return what a variant makes of the global rewards of pairs.

    Args:
        variant: One of `VARIANTS`.
        chosen: g+, (pairs,); NaN where there is none.
        rejected: g-, (pairs,).
        tau: Pairs with p < tau are kept by `scpo` and `filter`.
        beta: How fast weights fall with the difference of the rewards.

    Raises:
        UnknownNameError: When there is no such variant.
        InputError: When beta is not above 0.
    """
    if variant not in VARIANTS:
        raise UnknownNameError("variant", variant, VARIANTS)
    if not beta > 0:
        raise InputError(f"--beta {beta}: must be above 0")
    p = preference_probability(chosen, rejected)
    known = ~np.isnan(p)
    weight = np.ones_like(p)
    if variant in ("scpo", "weight"):
        weight = confidence_weight(chosen, rejected, beta)
    elif variant == "inverse":
        weight = inverse_weight(chosen, rejected, beta)
    kept = known if variant != "finetune" else np.ones_like(known)
    if variant in ("scpo", "filter"):
        kept = filter_mask(p, tau)
    return Weighting(p, weight, kept)


def pair_losses(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """Return -log sigmoid(r+ - r-) of each pair, (pairs,), in float32.

    `logsigmoid` is stable for any finite difference; `log(sigmoid(...))` is not: it is minus
    infinity from a difference of about -104 on, and its gradient is then not a number.
    """
    from torch.nn.functional import logsigmoid

    return -logsigmoid(chosen.float() - rejected.float())


def weighted_loss(
    chosen: torch.Tensor, rejected: torch.Tensor, weight: torch.Tensor, count: float | None = None
) -> torch.Tensor:
    """Return sum(W * -log sigmoid(r+ - r-)) / count, a scalar.

    Args:
        chosen: r+, (pairs,).
        rejected: r-, (pairs,).
        weight: W, (pairs,).
        count: Pairs of the whole step, over all its micro-batches and processes; None is the
            number of these pairs. It is not the sum of the weights: a step of light pairs is small.
    """
    losses = pair_losses(chosen, rejected) * weight.float()
    return losses.sum() / (len(losses) if count is None else count)
