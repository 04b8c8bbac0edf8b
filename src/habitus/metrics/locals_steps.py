"""Trainings of a judge compared step by step, where both were trained on the same pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import MIN_CLUSTERS, RESAMPLES
from habitus.metrics.compare import paired, with_holm
from habitus.metrics.locals_read import LocalsRun
from habitus.types import Comparison

STEP_MEASURES = ("accuracy", "both_orders", "r_appr")
"""Figures of a step that trainings are compared in."""

_SCHEDULE = ("seed", "pairs_digest", "limit", "grpo.prompts_per_step", "grpo.iterations")
"""What of a configuration says which pairs a step is on."""

_MEANING = {"r_appr": ("rewards.labels", "grpo.policy")}
"""Figure to what of a configuration says what it is."""


@dataclass(frozen=True)
class StepTest:
    """A paired difference over the steps at which two trainings were on the same pairs."""

    measure: str
    """One of `STEP_MEASURES`."""
    comparison: Comparison
    """The later run minus the earlier one; a step counts as an item. Holm's correction is over all
    such tests of the report."""


def step_tests(
    runs: Sequence[LocalsRun], seed: int = 0, resamples: int = RESAMPLES
) -> tuple[StepTest, ...]:
    """Compare trainings that took the same pairs in the same order, as from one warm-up and seed.

    Two trainings need 30 such steps; of those that learn from the same texts only the first counts.
    The steps of one training depend on each other, so a difference says what these two did, not
    what others with another seed would do.

    Args:
        runs: The runs.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows: list[tuple[str, Comparison]] = []
    for a, b in itertools.combinations(runs, 2):
        both = _shared(a, b)
        for measure in STEP_MEASURES:
            known = both.drop_nulls([measure, f"{measure}_b"])
            if known.height < MIN_CLUSTERS or not _alike(a, b, _MEANING.get(measure, ())):
                continue
            difference = (known[f"{measure}_b"] - known[measure]).to_numpy()
            left, cluster = both.height - known.height, np.arange(known.height)
            names, share = (b.label, a.label), measure != "r_appr"
            found = paired(*names, difference, cluster, left, seed, resamples, share=share)
            rows.append((measure, found))
    corrected = with_holm([found for _, found in rows])
    return tuple(
        StepTest(measure, found) for (measure, _), found in zip(rows, corrected, strict=True)
    )


def _shared(a: LocalsRun, b: LocalsRun) -> pl.DataFrame:
    """Return both curves at the steps that took the same pairs, as far as their samples tell."""
    both = a.curve.join(b.curve, on="step", suffix="_b", maintain_order="left")
    if not _alike(a, b, _SCHEDULE):
        return both.clear()
    ours, theirs = (
        run.samples.group_by("step").agg(pl.col("pair").unique().sort()) for run in (a, b)
    )
    same = ours.join(theirs, on=("step", "pair"), how="semi")
    both = both.join(same, on="step", how="semi", maintain_order="left")
    times = a.settings.get("grpo.iterations")
    if not isinstance(times, int) or times < 1:  # older runs do not name it
        return both
    return both.filter((pl.col("step") - 1) % times == 0)


def _alike(a: LocalsRun, b: LocalsRun, names: Sequence[str]) -> bool:
    return all(a.settings.get(name) == b.settings.get(name) for name in names)
