"""Figures of best-of-n: what a pick of the best of n answers is worth (papers: CARB A3).

From N graded answers to a prompt, the expected grade of the best of n is exact: every set of n of
the N answers is equally likely, so the answer with the r-th lowest score is the pick of
C(r - 1, n - 1) of the C(N, n) sets. The mean over prompts is an unbiased estimate for any n up to
N, with no draws. Equal scores share the pick.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.preferences_board import (
    Board,
    make_board,
    paired_average,
    paired_by_country,
)
from habitus.metrics.statistics import holm
from habitus.types import Comparison, Metric

RANDOM, ORACLE, LONGEST, SHORTEST = "random", "oracle", "longest", "shortest"
"""Picks that need no reward model: any answer, the best graded, the longest, the shortest."""

REFERENCES = (RANDOM, ORACLE, LONGEST, SHORTEST)


def sizes(n: int) -> tuple[int, ...]:
    """Return the values of n that curves are computed at: powers of two below N, and N."""
    powers = [2**power for power in range(n.bit_length()) if 2**power < n]
    return (*powers, n)


def expected_qualities(
    scores: Sequence[float], grades: Sequence[float], ns: Sequence[int]
) -> list[float]:
    """Return the expected grade of the highest-scored of n answers drawn without replacement.

    Args:
        scores: A score for each answer, at least one.
        grades: A grade for each answer.
        ns: How many are drawn, one result for each; all of them when there are fewer.
    """
    groups: dict[float, list[float]] = {}
    for score, grade in zip(scores, grades, strict=True):
        groups.setdefault(score, []).append(grade)
    ordered = [groups[score] for score in sorted(groups)]
    means = [math.fsum(group) / len(group) for group in ordered]
    group_sizes = tuple(map(len, ordered))
    found = []
    for n in ns:
        chances = _chances(group_sizes, min(n, len(scores)))
        parts = (chance * mean for chance, mean in zip(chances, means, strict=True))
        found.append(min(1.0, max(0.0, math.fsum(parts))))
    return found


@lru_cache(maxsize=1 << 14)
def _chances(group_sizes: tuple[int, ...], n: int) -> tuple[float, ...]:
    """Return the probability that the best of n is in each group of equals, the lowest first."""
    whole = math.comb(sum(group_sizes), n)
    upto = list(itertools.accumulate(group_sizes, initial=0))
    return tuple(
        (math.comb(high, n) - math.comb(low, n)) / whole for low, high in itertools.pairwise(upto)
    )


def column(name: str, n: int) -> str:
    """Name the column of a picker's quality at n."""
    return f"{name}@{n}"


@dataclass(frozen=True)
class Fall:
    """How the quality of the largest n compares with that of a smaller one."""

    n: int
    """The smaller n."""
    comparison: Comparison
    """Quality at the largest n minus quality at this one; Holm's correction is over all falls."""

    @property
    def clear(self) -> bool:
        """True when the curve has fallen since this n, beyond the noise."""
        found = self.comparison
        if found.p_holm is None or found.ci_high is None:
            return False
        return found.p_holm < 0.05 and found.ci_high < 0


@dataclass(frozen=True)
class PickerFigures:
    """One reward model, or one of `REFERENCES`."""

    name: str
    """The picker."""
    curve: tuple[Metric, ...]
    """Quality at each of `sizes`, average of countries."""
    countries: dict[str, tuple[Metric, ...]]
    """The same in each country."""
    over_random: Comparison | None = None
    """Quality at the largest n minus that of a random answer, average of countries."""
    over_longest: Comparison | None = None
    """The same against the longest answer."""
    over_random_by: dict[str, Comparison] | None = None
    """`over_random` in each country."""
    falls: tuple[Fall, ...] = ()
    """The largest n against each smaller one at which quality is higher."""


@dataclass(frozen=True)
class BestOfN:
    """All figures of a run."""

    ns: tuple[int, ...]
    """The values of n."""
    countries: tuple[str, ...]
    """The countries of the averages."""
    references: dict[str, PickerFigures]
    """Name in `REFERENCES` to its figures."""
    pickers: tuple[PickerFigures, ...]
    """The reward models, in the order given."""


def best_of_n(
    prompts: pl.DataFrame,
    scores: Mapping[str, Sequence[Sequence[float] | None]],
    seed: int,
    resamples: int = RESAMPLES,
) -> BestOfN:
    """Compute curves with intervals, gains and falls.

    Args:
        prompts: One row per prompt with answers: `country`, `group` (what intervals are clustered
            by), `grades` and `lengths` (lists, one value for each answer).
        scores: Reward model to its scores of each prompt's answers, in the order of `prompts`;
            None where it failed, and then the prompt is left out of that model's figures.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.

    Returns:
        The averages give each country the same weight, and are over the countries in which every
        picker has a value. P-values of the gains are corrected after Holm over all reward models
        and both comparisons; those of the falls over all reward models and all n.
    """
    grades = prompts["grades"].to_list()
    lengths = prompts["lengths"].to_list()
    ns = sizes(max(map(len, grades), default=1))
    every: dict[str, Sequence[Sequence[float] | None]] = {
        RANDOM: [[0.0] * len(one) for one in grades],
        ORACLE: grades,
        LONGEST: lengths,
        SHORTEST: [[-length for length in one] for one in lengths],
        **scores,
    }
    table = prompts.select("country", "group").with_columns(
        series for name, found in every.items() for series in _columns(name, found, grades, ns)
    )
    names = [column(name, n) for name in every for n in ns]
    board = make_board(table, names, seed, "best-of-n", resamples)
    tests = {name: _gains(table, board, name, ns[-1], seed, resamples) for name in scores}
    gains = with_holm([one for name in scores for one in tests[name][1:]])
    falls = _falls(table, board, list(scores), ns, seed, resamples)
    pickers = []
    for at, name in enumerate(scores):
        figures = _figures(name, table, board, ns)
        pickers.append(
            PickerFigures(
                name=name,
                curve=figures.curve,
                countries=figures.countries,
                over_random=gains[2 * at],
                over_longest=gains[2 * at + 1],
                over_random_by=tests[name][0],
                falls=falls[name],
            )
        )
    references = {name: _figures(name, table, board, ns) for name in REFERENCES}
    return BestOfN(ns, board.countries, references, tuple(pickers))


def _columns(
    name: str,
    scores: Sequence[Sequence[float] | None],
    grades: Sequence[Sequence[float]],
    ns: Sequence[int],
) -> list[pl.Series]:
    """Return a picker's quality on each prompt, one column for each n."""
    rows = [
        [None] * len(ns) if one is None else expected_qualities(one, graded, ns)
        for one, graded in zip(scores, grades, strict=True)
    ]
    return [
        pl.Series(column(name, n), [row[at] for row in rows], dtype=pl.Float64)
        for at, n in enumerate(ns)
    ]


def _figures(name: str, table: pl.DataFrame, board: Board, ns: Sequence[int]) -> PickerFigures:
    def curve(country: str | None) -> tuple[Metric, ...]:
        inside = table if country is None else table.filter(pl.col("country") == country)
        found = []
        for n in ns:
            group = {"n": str(n)} | ({"country": country} if country else {})
            missing = inside[column(name, n)].null_count()
            found.append(board.metric("quality", country, column(name, n), group, missing))
        return tuple(found)

    every = sorted({country for country, _ in board.cells})
    return PickerFigures(name, curve(None), {country: curve(country) for country in every})


def _gains(
    table: pl.DataFrame, board: Board, name: str, n: int, seed: int, resamples: int
) -> tuple[dict[str, Comparison], Comparison, Comparison]:
    """Compare a reward model at n with the random answer, by country too, and the longest."""
    own, countries = column(name, n), board.countries
    single, random = paired_by_country(table, own, column(RANDOM, n), countries, seed, resamples)
    longest = paired_average(table, own, column(LONGEST, n), countries, seed, resamples)
    return single, random, longest


def _falls(
    table: pl.DataFrame,
    board: Board,
    names: Sequence[str],
    ns: Sequence[int],
    seed: int,
    resamples: int,
) -> dict[str, tuple[Fall, ...]]:
    """Test each reward model's largest n against each smaller one at which quality is higher.

    What has not fallen is not tested; it counts in Holm's correction as a p-value of 1.
    """
    rows, places = [], []
    for name in names:
        for n in ns[:-1]:
            last, before = (board.macro.get(column(name, each)) for each in (ns[-1], n))
            fell = (
                last is not None
                and before is not None
                and (last.value or 0.0) < (before.value or 0.0)
            )
            if fell:
                pair = (column(name, ns[-1]), column(name, n))
                rows.append(paired_average(table, *pair, board.countries, seed, resamples))
                places.append((name, n))
    tests = len(names) * (len(ns) - 1)
    corrected = holm([*(row.p for row in rows), *[1.0] * (tests - len(rows))])
    falls: dict[str, list[Fall]] = {name: [] for name in names}
    for (name, n), row, p in zip(places, rows, corrected, strict=False):
        falls[name].append(Fall(n, row.model_copy(update={"p_holm": p})))
    return {name: tuple(found) for name, found in falls.items()}
