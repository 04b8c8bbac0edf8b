"""R_appr in two parts: what criteria about any question do, and what a judge's own add to it.

R_appr is the rise of the right verdict's log-probability from before criteria to after them. Some of
it comes of reading criteria at all: a judge that is less sure after any text gains wherever it was
wrong, and one that favours a letter after them gains or loses by that. Borrowed criteria, which the
judge wrote about another question of the same source, language and country, do this as well. Only
what its own do beyond is of what they say about the question:

    log p(j | q, y1, y2, z) - log p(j | q, y1, y2)                            R_appr
      = [log p(j | q, y1, y2, z') - log p(j | q, y1, y2)]                     of borrowed criteria z'
      + [log p(j | q, y1, y2, z) - log p(j | q, y1, y2, z')]                  of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import paired, with_holm
from habitus.metrics.credit import codes
from habitus.metrics.locals_arms import WORDS, Arm
from habitus.metrics.locals_heldout import appr
from habitus.types import Comparison


@dataclass(frozen=True)
class Rise:
    """R_appr of an arm in two parts: nats, not clipped, means over orders, runs and pairs."""

    arm: str
    """Label of the arm."""
    total: float
    """R_appr, on the pairs that it judged before criteria, after its own and after borrowed ones."""
    borrowed: float
    """That of borrowed criteria."""
    own: Comparison
    """The former less the latter, over groups of pairs; Holm's correction is over all arms."""


def rises(arms: Sequence[Arm], seed: int = 0, resamples: int = RESAMPLES) -> tuple[Rise, ...]:
    """Return the parts of R_appr of each arm that has any pair with both.

    Args:
        arms: The arms; a pair's value is the mean over those of its runs that judged it.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    rows: list[tuple[str, float, float, Comparison]] = []
    for arm in arms:
        table = _values(arm)
        known = table.drop_nulls()
        if known.is_empty():
            continue
        sides = (f"{arm.label}, {WORDS['with']}", f"{arm.label}, {WORDS['borrowed']}")
        own, borrowed = (known[name].to_numpy() for name in ("own", "borrowed"))
        left = table.height - known.height
        found = paired(*sides, own - borrowed, codes(known["group"]), left, seed, resamples)
        rows.append((arm.label, float(np.mean(own)), float(np.mean(borrowed)), found))
    corrected = with_holm([row[-1] for row in rows])
    return tuple(
        Rise(label, total, borrowed, own)
        for (label, total, borrowed, _), own in zip(rows, corrected, strict=True)
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
