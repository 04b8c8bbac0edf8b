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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import MIN_CLUSTERS, RESAMPLES
from habitus.metrics.compare import paired, with_holm
from habitus.metrics.credit import codes
from habitus.metrics.locals_arms import WORDS, Arm
from habitus.metrics.locals_heldout import appr
from habitus.metrics.statistics import Floats
from habitus.types import Comparison


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
    """`total` less `borrowed`, over groups of pairs; Holm's correction is over all arms. What true
    difference would be found is not known: `detectable` is of shares."""


def rises(arms: Sequence[Arm], seed: int = 0, resamples: int = RESAMPLES) -> tuple[Rise, ...]:
    """Return the parts of R_appr of each arm with such pairs of 30 groups, below which no interval holds.

    Args:
        arms: The arms; a pair's value is the mean over those of its runs that judged it.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows: list[tuple[str, Floats, Floats, Comparison]] = []
    for arm in arms:
        table = _values(arm)
        known = table.drop_nulls()
        if known["group"].n_unique() < MIN_CLUSTERS:
            continue
        sides = (f"{arm.label}, {WORDS['with']}", f"{arm.label}, {WORDS['borrowed']}")
        own, borrowed = (known[name].to_numpy() for name in ("own", "borrowed"))
        left = table.height - known.height
        found = paired(*sides, own - borrowed, codes(known["group"]), left, seed, resamples)
        rows.append((arm.label, own, borrowed, found.model_copy(update={"detectable": None})))
    corrected = with_holm([row[-1] for row in rows])
    return tuple(
        Rise(label, float(own.mean()), float(np.median(own)), float(borrowed.mean()), found)
        for (label, own, borrowed, _), found in zip(rows, corrected, strict=True)
    )


def _values(arm: Arm) -> pl.DataFrame:
    """Return a row for each pair: `pair`, `group`, and both rises, or neither."""
    names = ("own", "borrowed")
    schema = {"pair": pl.String, "group": pl.String, **dict.fromkeys(names, pl.Float64)}
    rows = []
    for run in arm.runs:
        for each in run.held_out or ():
            found = (appr(each), appr(each, "borrowed"))
            known = found if None not in found else (None, None)
            rows.append((str(each["pair"]), str(each["group"]), *known))
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.group_by("pair", "group", maintain_order=True).agg(pl.col(*names).mean())
