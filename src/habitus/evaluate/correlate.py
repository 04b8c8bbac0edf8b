"""All figures of a study of how well a benchmark predicts use (papers: CARB A3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from habitus.evaluate.correlate_model import Study
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.correlation_rivals import (
    Given,
    Versus,
    given_with_holm,
    hold_fixed,
    versus,
    versus_with_holm,
)
from habitus.metrics.correlation_scores import Scores
from habitus.metrics.correlation_summary import Correlation, correlate, with_holm


@dataclass(frozen=True)
class Figures:
    """What a study found. Each table is corrected after Holm by itself."""

    correlations: tuple[Correlation, ...]
    """The benchmark with each outcome, then the general benchmark with each."""
    given: tuple[Given, ...]
    """The benchmark with each outcome given the confounders."""
    versus: tuple[Versus, ...]
    """The benchmark against the general one; empty without one."""
    cultures: tuple[tuple[str, tuple[Correlation, ...]], ...]
    """Single cultures: name, and the benchmark with each outcome."""
    seed: int
    """Seed of the draws."""


def parts(study: Study) -> int:
    """Return how often `analyse` calls `advance`."""
    return len(study.outcomes) * (2 if study.general is not None else 1) + len(study.cultures)


def analyse(
    study: Study,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    advance: Callable[[int], None] = lambda count: None,
) -> Figures:
    """Compute all figures of a study.

    Args:
        study: The study.
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates.
        advance: Called with the number of parts just done; see `parts`.
    """

    def pair(x: Scores, y: Scores) -> Correlation:
        return correlate(x, y, study.labels, study.families, seed=seed, resamples=resamples)

    rows: list[Correlation] = []
    given: list[Given] = []
    against: list[Versus] = []
    for outcome in study.outcomes:
        rows.append(pair(study.benchmark, outcome))
        given += hold_fixed(
            study.benchmark,
            outcome,
            study.confounders,
            study.families,
            seed=seed,
            resamples=resamples,
        )
        advance(1)
    if study.general is not None:
        for outcome in study.outcomes:
            rows.append(pair(study.general, outcome))
            against.append(
                versus(
                    study.benchmark,
                    study.general,
                    outcome,
                    study.families,
                    seed=seed,
                    resamples=resamples,
                )
            )
            advance(1)
    cultures = []
    for culture in study.cultures:
        cultures.append((culture.name, [pair(culture.x, outcome) for outcome in culture.outcomes]))
        advance(1)
    flat = iter(with_holm([row for _, found in cultures for row in found]))
    return Figures(
        correlations=with_holm(rows),
        given=given_with_holm(given),
        versus=versus_with_holm(against),
        cultures=tuple((name, tuple(next(flat) for _ in found)) for name, found in cultures),
        seed=seed,
    )
