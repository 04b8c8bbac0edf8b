"""All figures of a study of country reward models, computed once for terminal, page and file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from habitus.errors import UnknownNameError
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.preferences import Accuracy, accuracy
from habitus.metrics.preferences_benchmarks import (
    Benchmark,
    BenchmarkTest,
    benchmark_tests,
    benchmarks,
)
from habitus.metrics.preferences_data import (
    Curve,
    Efficiency,
    Kept,
    Weights,
    curves,
    efficiency,
    kept_shares,
    weights,
)
from habitus.metrics.preferences_read import Study
from habitus.metrics.preferences_steering import Steering, steering

PARTS = 7
"""Parts that the figures are computed in."""

Part = TypeVar("Part")


@dataclass(frozen=True)
class StudyFigures:
    """Everything that a report of a study shows."""

    variant: str
    """The variant that the verdict and the matrix are about."""
    accuracy: Accuracy
    """Accuracy in two layers, tests, seeds."""
    steering: Steering
    """Country by country."""
    efficiency: Efficiency
    """Accuracy against share of the data."""
    kept: tuple[Kept, ...]
    """Kept share by tau."""
    weights: tuple[Weights, ...]
    """Weights of the kept pairs."""
    curves: tuple[Curve, ...]
    """Loss over training."""
    benchmarks: tuple[Benchmark, ...]
    """Benchmarks before and after, by country."""
    benchmark_tests: tuple[BenchmarkTest, ...]
    """The same by variant, tested item by item."""
    seed: int
    """Seed of the resampling."""


def summarise_study(
    study: Study,
    variant: str | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    advance: Callable[[int], None] = lambda parts: None,
) -> StudyFigures:
    """Compute all figures of a study.

    Args:
        study: The study.
        variant: The variant in focus; None is the study's last, which is "scpo" where it
            has it.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
        advance: Called with 1 after each of `PARTS` parts.

    Raises:
        InputError: When the study has no such variant, or a file is broken.
    """
    chosen = variant or (study.variants[-1] if study.variants else "scpo")
    if chosen not in study.variants:
        raise UnknownNameError("variant", chosen, study.variants)

    def done(part: Part) -> Part:
        advance(1)
        return part

    return StudyFigures(
        variant=chosen,
        accuracy=done(accuracy(study, seed, resamples)),
        steering=done(steering(study, chosen, seed, resamples)),
        efficiency=done(efficiency(study, seed, resamples)),
        kept=done(kept_shares(study)),
        weights=done(weights(study)),
        curves=done(curves(study)),
        benchmarks=benchmarks(study),
        benchmark_tests=done(benchmark_tests(study, seed, resamples)),
        seed=seed,
    )
