"""R_appr in two parts: what criteria about another question do too, and what a judge's own add to it.

R_appr is the rise of the right verdict's log-probability from before criteria to after them. Some of
it comes of reading criteria at all: a judge that is less sure after any text gains wherever it was
wrong, and one that favours a letter after them gains or loses by that. Borrowed criteria, which the
judge wrote about another question of the same source, language and country, do this as well:

    log p(j | q, y1, y2, z) - log p(j | q, y1, y2)                            R_appr
      = [log p(j | q, y1, y2, z') - log p(j | q, y1, y2)]                     of borrowed criteria z'
      + [log p(j | q, y1, y2, z) - log p(j | q, y1, y2, z')]                  of its own

A part of its own says that it matters whose criteria they are: to its verdicts, or to how sure it is
of them. None says that what its criteria do they do for other questions of the country, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import MIN_CLUSTERS, RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.locals_arms import WORDS, Arm, pair_values, paired_columns
from habitus.metrics.locals_heldout import appr
from habitus.types import Comparison

COLUMNS = ("own", "borrowed")
"""Whose criteria."""


@dataclass(frozen=True)
class Rise:
    """R_appr of an arm in two parts, in nats and not clipped.

    A pair's value is the mean over both orders and those of the arm's runs that judged it in all
    three ways. Each pair counts once, so means over pairs are no means of the runs' own.
    """

    arm: str
    """Label of the arm."""
    total: float
    """Mean R_appr, on the pairs that it judged without criteria, after its own and after borrowed ones."""
    median: float
    """Its median: where a judge is too sure without criteria, few pairs make the mean."""
    borrowed: float
    """That of borrowed criteria."""
    own: Comparison
    """`total` less `borrowed`, over groups of pairs; Holm's correction is over all arms."""


def rises(arms: Sequence[Arm], seed: int = 0, resamples: int = RESAMPLES) -> tuple[Rise, ...]:
    """Return the parts of R_appr of each arm with such pairs of 30 groups, below which no interval holds.

    Args:
        arms: The arms; a pair's value is the mean over those of its runs that judged it.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows: list[tuple[Arm, pl.DataFrame, Comparison]] = []
    for arm in arms:
        table = pair_values(arm, COLUMNS, _both)
        known = table.drop_nulls()
        if known["group"].n_unique() < MIN_CLUSTERS:
            continue
        sides = (f"{arm.label}, {WORDS['with']}", f"{arm.label}, {WORDS['borrowed']}")
        own = paired_columns(sides, table, COLUMNS, table.height, seed, resamples, share=False)
        rows.append((arm, known, own))
    corrected = with_holm([row[-1] for row in rows])
    return tuple(
        Rise(
            arm.label,
            total=float(known["own"].to_numpy().mean()),
            median=float(np.median(known["own"].to_numpy())),
            borrowed=float(known["borrowed"].to_numpy().mean()),
            own=found,
        )
        for (arm, known, _), found in zip(rows, corrected, strict=True)
    )


def _both(record: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return R_appr of own and of borrowed criteria, or neither."""
    own, borrowed = appr(record), appr(record, "borrowed")
    return (None, None) if own is None or borrowed is None else (own, borrowed)
