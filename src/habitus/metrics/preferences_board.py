"""Means of many columns over countries, all from one clustered resampling, and paired tests.

People and questions appear in several countries and under every variant, so all figures share one
resampling of groups: their differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from scipy import sparse

from habitus.metrics.bootstrap import (
    MIN_CLUSTERS,
    RESAMPLES,
    Estimate,
    estimate,
    merge_clusters,
    resample,
)
from habitus.metrics.compare import paired
from habitus.metrics.credit import codes
from habitus.metrics.statistics import Z80, Z95, Floats, Ints, wilson
from habitus.types import Comparison, Metric


@dataclass(frozen=True)
class Board:
    """Estimates by country and column, and their macro averages over countries."""

    cells: dict[tuple[str, str], Estimate]
    """(country, column) to its mean; those without values are left out."""
    sizes: dict[tuple[str, str], int]
    """Values behind each."""
    macro: dict[str, Estimate]
    """Column to the plain mean of its countries' means."""
    countries: tuple[str, ...]
    """The countries that the macro averages are over."""
    replicates: dict[str, Floats] = field(repr=False)
    """Column to bootstrap replicates of its macro average."""

    def metric(
        self, name: str, country: str | None, column: str, group: dict[str, str], n_excluded: int
    ) -> Metric:
        """Return a figure with its interval; `country` None is the macro average."""
        if country is None:
            found = self.macro.get(column)
            n = sum(self.sizes.get((each, column), 0) for each in self.countries)
        else:
            found = self.cells.get((country, column))
            n = self.sizes.get((country, column), 0)
        if found is None or found.value is None:
            return Metric(name=name, value=None, n=0, n_excluded=n_excluded, group=group)
        return Metric(
            name=name,
            value=found.value,
            n=n,
            n_excluded=n_excluded,
            ci_low=found.low,
            ci_high=found.high,
            group=group,
            interval=found.interval,
        )


def make_board(
    table: pl.DataFrame,
    columns: Sequence[str],
    seed: int,
    purpose: str,
    resamples: int = RESAMPLES,
) -> Board:
    """Estimate the mean of each column in each country, and macro averages, with 95 % intervals.

    Args:
        table: One row per pair: `country`, `group`, and the columns, with values in 0 to 1 or
            null.
        columns: Names of the columns.
        seed: Seed of the draws.
        purpose: Name of the draws.
        resamples: Number of bootstrap replicates.

    Returns:
        The macro averages are over the countries in which every column has a value.
    """
    long = table.select("country", "group", *columns).unpivot(
        on=list(columns), index=["country", "group"], variable_name="column", value_name="value"
    )
    long = long.drop_nulls("value")
    present = long.select("country", "column").unique().sort("country", "column")
    names = [(str(country), str(column)) for country, column in present.iter_rows()]
    place = {name: index for index, name in enumerate(names)}
    if not names:
        return Board({}, {}, {}, (), {})
    cell = (
        long.select("country", "column")
        .join(present.with_row_index("cell"), on=["country", "column"], maintain_order="left")[
            "cell"
        ]
        .to_numpy()
        .astype(np.int64)
    )
    clusters = merge_clusters(codes(long["group"]), cell, long["value"].to_numpy(), len(names))
    one = sparse.csr_array(sparse.eye_array(len(names)))
    found = estimate(clusters, one, seed, purpose, resamples)
    counts = np.bincount(cell, minlength=len(names))
    draws = resample(clusters, one, seed, purpose, resamples)
    every = sorted({country for country, _ in names})
    shared = tuple(
        country for country in every if all((country, column) in place for column in columns)
    )
    macro, replicates = {}, {}
    for column in columns if shared else ():
        at = [place[country, column] for country in shared]
        replicates[column] = draws[:, at].mean(axis=1)
        macro[column] = _macro([found[index] for index in at], replicates[column], clusters.n)
    return Board(
        cells=dict(zip(names, found, strict=True)),
        sizes={name: int(count) for name, count in zip(names, counts, strict=True)},
        macro=macro,
        countries=shared,
        replicates=replicates,
    )


def _macro(parts: Sequence[Estimate], replicates: Floats, n_clusters: int) -> Estimate:
    """Return the mean of countries' means.

    The interval is the percentile interval; with fewer groups than `MIN_CLUSTERS` it is Wilson's
    on the number of independent answers that the mean's variance amounts to, which is
    C^2 / sum(1 / n_c), and never more than there are groups.
    """
    value = float(np.mean([part.value for part in parts if part.value is not None]))
    harmonic = len(parts) ** 2 / sum(1 / part.clusters for part in parts)
    effective = min(harmonic, float(n_clusters))
    known = replicates[np.isfinite(replicates)]
    if n_clusters >= MIN_CLUSTERS and len(known):
        low, high = (float(bound) for bound in np.quantile(known, [0.025, 0.975]))
        if low < high:
            return Estimate(value, low, high, "bootstrap", effective)
    low, high = wilson(value, effective)
    return Estimate(value, low, high, "wilson", effective)


def paired_by_country(
    table: pl.DataFrame,
    a: str,
    b: str,
    countries: Sequence[str],
    seed: int,
    resamples: int = RESAMPLES,
    *,
    average: bool = True,
) -> tuple[dict[str, Comparison], Comparison]:
    """Compare two columns on the pairs that have both, in each country and in the macro average.

    The macro average is the mean of the countries' mean differences: a country's differences are
    weighted by N / (C n_c), so that each country counts alike. Signs are flipped, and groups
    resampled, over all countries at once.

    Args:
        table: As in `make_board`.
        a: The first column.
        b: The second; differences are a minus b.
        countries: Countries of the comparison and of the macro average.
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates.
        average: Whether the macro average is wanted; without, it has no value.

    Returns:
        Country to comparison, and the macro comparison, which has no value where a country has no
        pair; before Holm's correction.
    """
    single: dict[str, Comparison] = {}
    for country in countries:
        own = table.filter(pl.col("country") == country)
        both = own.drop_nulls([a, b])
        difference = (both[a] - both[b]).to_numpy()
        cluster = codes(both["group"])
        missing = own.height - both.height
        single[country] = _paired(a, b, difference, cluster, missing, seed, resamples)
    wanted = countries if average else ()
    return single, paired_average(table, a, b, wanted, seed, resamples)


def paired_average(
    table: pl.DataFrame,
    a: str,
    b: str,
    countries: Sequence[str],
    seed: int,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare two columns in the macro average alone (see `paired_by_country`)."""
    parts = []
    excluded = 0
    for country in countries:
        own = table.filter(pl.col("country") == country)
        both = own.drop_nulls([a, b])
        excluded += own.height - both.height
        parts.append(both.select("country", "group", difference=pl.col(a) - pl.col(b)))
    if not parts or any(part.height == 0 for part in parts):
        return paired(a, b, np.zeros(0), np.zeros(0, dtype=np.int64), excluded, seed)
    weight = pl.len() / (len(countries) * pl.len().over("country"))
    weighted = pl.concat(parts).with_columns(weighted=pl.col("difference") * weight)
    difference = weighted["weighted"].to_numpy()
    cluster = codes(weighted["group"])
    return _paired(a, b, difference, cluster, excluded, seed, resamples)


def _paired(
    a: str,
    b: str,
    difference: Floats,
    cluster: Ints,
    n_excluded: int,
    seed: int,
    resamples: int,
) -> Comparison:
    """Compare by `compare.paired`, with the detectable difference of the interval that is shown.

    The method for few clusters that it would come from adds whole pairs of its own, which is too
    much where a group holds many pairs and so differs by little.
    """
    found = paired(a, b, difference, cluster, n_excluded, seed, resamples)
    if found.ci_low is None or found.ci_high is None:
        return found
    error = (found.ci_high - found.ci_low) / (2 * Z95)
    return found.model_copy(update={"detectable": (Z95 + Z80) * error})
