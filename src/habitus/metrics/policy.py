"""Figures of policies before and after training: quality, preference and the hacking watch.

All values are shares of one held-out prompt, so that one clustered resampling of questions serves
every figure. Each country counts alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.preferences_board import Board, make_board, paired_average, paired_by_country
from habitus.types import Comparison, Metric

BEFORE, EVEN = "before", "even"
"""Columns: quality before training, and one half."""


def after(name: str) -> str:
    """Name the column of a policy's quality after training."""
    return f"after@{name}"


def win(name: str) -> str:
    """Name the column of how often a reward model prefers answers after training."""
    return f"win@{name}"


def watched(measure: str, name: str | None = None) -> str:
    """Name the column of a figure of the watch, after a training or before (None)."""
    return f"{measure}@{BEFORE if name is None else f'after {name}'}"


@dataclass(frozen=True)
class Watched:
    """A figure of the watch, before and after."""

    before: Metric
    """Before training."""
    after: Metric
    """After it."""
    change: Comparison
    """After minus before; Holm's correction is over all policies and figures."""


@dataclass(frozen=True)
class PolicyFigures:
    """One trained policy."""

    quality: Metric
    """Quality after training, average of countries."""
    gain: Comparison
    """After minus before; Holm's correction is over the policies."""
    countries: dict[str, Metric]
    """Quality after training in each country."""
    gain_by: dict[str, Comparison]
    """The gain in each country, not corrected."""
    reward: Metric
    """How often the reward model prefers answers after training."""
    reward_gain: Comparison
    """The same minus one half; Holm's correction is over the policies."""
    watch: dict[str, Watched]
    """The watch."""


@dataclass(frozen=True)
class StudyFigures:
    """All policies of a run."""

    countries: tuple[str, ...]
    """Countries of the averages of quality."""
    before: Metric
    """Quality before training, average of countries."""
    before_countries: dict[str, Metric]
    """The same in each country."""
    policies: tuple[PolicyFigures, ...]
    """The trained policies, in the order given."""
    differences: tuple[tuple[str, str, Comparison], ...]
    """Quality of a policy minus that of a later one; Holm's correction is over all of them."""


def study_figures(
    table: pl.DataFrame,
    names: Sequence[str],
    measures: Sequence[str],
    seed: int,
    resamples: int = RESAMPLES,
) -> StudyFigures:
    """Compute quality, gains, preferences and the watch, with intervals.

    Args:
        table: One row per held-out prompt: `country`, `group` (the question), `before`, and for
            each policy the columns `after`, `win` and `watched` of each figure, null where there is
            no value.
        names: Names of the policies.
        measures: Names of the watch's figures, as far as the table has them.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    table = table.with_columns(pl.lit(0.5).alias(EVEN))
    columns = [BEFORE, *map(after, names)]
    board = make_board(table, columns, seed, "policy", resamples)
    countries = board.countries
    gains, rewards, by_country = [], [], []
    boards = {name: make_board(table, [win(name)], seed, "policy/win", resamples) for name in names}
    for name in names:
        single, gain = paired_by_country(table, after(name), BEFORE, countries, seed, resamples)
        by_country.append(single)
        gains.append(gain)
        own = boards[name].countries
        rewards.append(paired_average(table, win(name), EVEN, own, seed, resamples))
    watch = _watch(table, names, measures, seed, resamples)
    pairs = list(itertools.combinations(names, 2))
    rivals = [
        paired_average(table, after(a), after(b), countries, seed, resamples) for a, b in pairs
    ]
    found = zip(names, with_holm(gains), by_country, with_holm(rewards), watch, strict=True)
    return StudyFigures(
        countries=countries,
        before=_metric(table, board, BEFORE),
        before_countries={each: _metric(table, board, BEFORE, each) for each in countries},
        policies=tuple(
            PolicyFigures(
                quality=_metric(table, board, after(name)),
                gain=gain,
                countries={each: _metric(table, board, after(name), each) for each in countries},
                gain_by=single,
                reward=_metric(table, boards[name], win(name)),
                reward_gain=reward,
                watch=own,
            )
            for name, gain, single, reward, own in found
        ),
        differences=tuple(
            (a, b, one) for (a, b), one in zip(pairs, with_holm(rivals), strict=True)
        ),
    )


def _metric(table: pl.DataFrame, board: Board, column: str, country: str | None = None) -> Metric:
    inside = table if country is None else table.filter(pl.col("country") == country)
    group = {"country": country} if country else {}
    return board.metric("quality", country, column, group, inside[column].null_count())


def _watch(
    table: pl.DataFrame, names: Sequence[str], measures: Sequence[str], seed: int, resamples: int
) -> list[dict[str, Watched]]:
    """Compare each figure of each policy with that before training, one correction over all."""
    keys, parts, changes = [], [], []
    for measure in measures:
        first = watched(measure)
        for name in names:
            then = watched(measure, name)
            both = make_board(table, [first, then], seed, f"policy/{measure}", resamples)
            if not both.countries:
                continue
            keys.append((name, measure))
            parts.append((_metric(table, both, first), _metric(table, both, then)))
            changes.append(paired_average(table, then, first, both.countries, seed, resamples))
    found: dict[str, dict[str, Watched]] = {name: {} for name in names}
    for (name, measure), sides, change in zip(keys, parts, with_holm(changes), strict=True):
        found[name][measure] = Watched(*sides, change)
    return [found[name] for name in names]
