"""Trainings of a judge that differ in their seed only, put together and compared by pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import MIN_CLUSTERS
from habitus.metrics.compare import paired
from habitus.metrics.credit import codes
from habitus.metrics.locals_read import LocalsRun
from habitus.types import Comparison

WORDS = {
    "with": "with criteria",
    "without": "without criteria",
    "borrowed": "with borrowed criteria",
}
"""`WAYS` for readers."""


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed only: one way of training."""

    label: str
    """That of its run; of several, what their labels begin with, and how many they are."""
    runs: tuple[LocalsRun, ...]
    """The runs."""

    @property
    def side(self) -> str:
        """Names the arm in a comparison: its label, and its way where that is without criteria."""
        return self.label if self.runs[0].way == "with" else f"{self.label}, {WORDS['without']}"


def arms_of(runs: Sequence[LocalsRun]) -> tuple[Arm, ...]:
    """Put runs together that differ in their seed only.

    Args:
        runs: The runs; those without held-out pairs are left out.
    """
    alike: dict[tuple[tuple[str, str], ...], list[LocalsRun]] = {}
    for run in runs:
        if run.held_out:
            alike.setdefault(run.twin, []).append(run)
    groups = list(alike.values())
    names = [_common_name([run.label for run in group]) for group in groups]
    return tuple(
        Arm(
            name if names.count(name) == 1 else ", ".join(run.label for run in group),
            tuple(group),
        )
        for name, group in zip(names, groups, strict=True)
    )


def _common_name(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    columns = zip(*labels, strict=False)
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, columns)
    shared = "".join(letters[0] for letters in same).rstrip("-_./ ") or labels[0]
    return f"{shared} ({len(labels)} runs)"


def pair_values(
    arm: Arm,
    names: Sequence[str],
    values_of: Callable[[Mapping[str, Any]], Sequence[float | None]],
) -> pl.DataFrame:
    """Return a row for each pair: `pair`, `group`, and values, each the mean over runs that have it.

    Args:
        arm: The arm.
        names: Of the values.
        values_of: Gives those of a held-out pair's record; None where there is none.
    """
    schema = {"pair": pl.String, "group": pl.String, **dict.fromkeys(names, pl.Float64)}
    rows = [
        (str(each["pair"]), str(each["group"]), *values_of(each))
        for run in arm.runs
        for each in run.held_out or ()
    ]
    table = pl.DataFrame(rows, schema=schema, orient="row")
    if len(arm.runs) == 1:
        return table
    return table.group_by("pair", "group", maintain_order=True).agg(pl.col(*names).mean())


def between(
    tables: Sequence[tuple[Arm, pl.DataFrame]], seed: int, resamples: int, *, share: bool = True
) -> list[tuple[tuple[str, str], Comparison]]:
    """Return the difference of each arm to each earlier one, each in its own way of judging.

    Args:
        tables: Arms, the base first, and a row for each pair: `pair`, `group`, and a value by way.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
        share: Whether the values are shares; where they are not, two arms that share pairs of fewer
            than 30 groups are left out.

    Returns:
        Labels of the later arm and the earlier one, and the difference before Holm's correction.
    """
    found = []
    for (a, left), (b, right) in itertools.combinations(tables, 2):
        both = left.join(right, on=("pair", "group"), suffix="_b", maintain_order="left")
        every = left.height + right.height - both.height
        columns = (f"{b.runs[0].way}_b", a.runs[0].way)
        if share or both.drop_nulls(columns)["group"].n_unique() >= MIN_CLUSTERS:
            sides = (b.side, a.side)
            own = paired_columns(sides, both, columns, every, seed, resamples, share=share)
            found.append(((b.label, a.label), own))
    return found


def paired_columns(
    sides: tuple[str, str],
    table: pl.DataFrame,
    columns: tuple[str, str],
    every: int,
    seed: int,
    resamples: int,
    *,
    share: bool = True,
) -> Comparison:
    """Return the difference of two columns over the pairs that have both.

    Args:
        sides: Labels of both.
        table: One row for each pair: `group`, and the columns.
        columns: The first, and what is taken from it.
        every: How many pairs there are; those without both count as left out.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
        share: Whether the columns are shares.
    """
    known = table.drop_nulls(columns)
    difference = (known[columns[0]] - known[columns[1]]).to_numpy().astype(np.float64)
    cluster = codes(known["group"])
    left = every - known.height
    return paired(*sides, difference, cluster, left, seed, resamples, share=share)
