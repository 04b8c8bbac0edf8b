"""Figures of country reward models: accuracy in two layers, and paired tests (papers: SCPO).

Layer one is all of a country's held-out pairs. Layer two is those where the base disagrees with
the preference: the base scores 0 there by construction, so this layer says how far training moved
the model, and higher is not better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.preferences_board import Board, make_board, paired_by_country
from habitus.metrics.preferences_read import Study
from habitus.types import Comparison, Metric

BASE = "base"
"""Name of the base (global) reward model among the variants."""

DISAGREE = "accuracy_disagree"
"""Name of the second layer's figures."""

WON, LOST = "won", "lost"
"""Names of what training changed: shares of all pairs that only the trained model, and that only the
base, has right. Their difference is the change in accuracy."""

FINETUNE = "finetune"
"""The variant that the others are compared with."""


@dataclass(frozen=True)
class Counts:
    """How the held-out pairs of one country came out under one variant, over seeds."""

    country: str
    """The country."""
    variant: str
    """The variant, or `BASE`."""
    n: int
    """Held-out pairs."""
    scored: int
    """Pairs with a score from at least one seed."""
    failed: int
    """Pairs that were tried, and on which the scorer failed under every seed."""
    unscored: int
    """Pairs of units that are not finished."""
    ties: int
    """Equal scores, over all scored pairs and seeds; each earns 1/2."""


@dataclass(frozen=True)
class SeedSpread:
    """How much a variant's macro average moves with the seed."""

    variant: str
    """The variant."""
    accuracies: dict[int, float]
    """Seed to macro average."""
    sd: float | None
    """Standard deviation over seeds (n - 1); None with fewer than two."""


@dataclass(frozen=True)
class Test:
    """A variant against the base or against fine-tuning."""

    country: str | None
    """The country; None is the macro average."""
    comparison: Comparison
    """Its paired difference; Holm's correction is over the whole table."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of all variants in both layers."""

    metrics: tuple[Metric, ...]
    """"accuracy", "accuracy_disagree", "won" and "lost" by country and variant, and "..._macro" by
    variant; "won" and "lost" have no base."""
    counts: tuple[Counts, ...]
    """How the pairs came out."""
    base_ties: dict[str, int]
    """Country to pairs that the base scores equally: they are no disagreement."""
    tests: tuple[Test, ...]
    """Each variant against the base, and against fine-tuning."""
    seeds: tuple[SeedSpread, ...]
    """Spread over seeds, by variant."""
    countries: tuple[str, ...]
    """Countries of the macro averages."""


def credit(chosen: str = "chosen", rejected: str = "rejected") -> pl.Expr:
    """Return 1 where the chosen response scores higher, 1/2 for equal scores, 0 else, or null."""
    right = (pl.col(chosen) > pl.col(rejected)).cast(pl.Float64)
    return right + 0.5 * (pl.col(chosen) == pl.col(rejected)).cast(pl.Float64)


def credit_table(study: Study, share: float = 1.0) -> pl.DataFrame:
    """Return each held-out pair's credit under its own country's models.

    Args:
        study: The study.
        share: Share of the training data.

    Returns:
        One row per pair: `pair`, `country`, `group`, `margin` (the base's chosen minus rejected
        score), the column "base", and one column per variant: the mean over the seeds that scored
        the pair, null where none did.
    """
    own = _own_scores(study, share)
    table = study.pairs.select(
        "pair",
        "country",
        "group",
        margin=pl.col("chosen") - pl.col("rejected"),
        base=credit(),
    )
    for variant in study.variants:
        table = join_credit(table, own.filter(pl.col("variant") == variant), variant)
    return table


def join_credit(table: pl.DataFrame, scores: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return `table` with a column `name`: each pair's mean credit in `scores`, or null."""
    mean = scores.group_by("pair").agg(credit().mean().alias(name))
    return table.join(mean, on="pair", how="left", maintain_order="left")


def _own_scores(study: Study, share: float = 1.0) -> pl.DataFrame:
    """Return the scores of pairs under their own country's models, with their `country`."""
    own = study.scores.join(study.pairs.select("pair", "country"), on="pair", how="left")
    return own.filter((pl.col("model") == pl.col("country")) & (pl.col("share") == share))


def accuracy(study: Study, seed: int = 0, resamples: int = RESAMPLES) -> Accuracy:
    """Compute accuracy in both layers, paired tests and the spread over seeds.

    Args:
        study: The study.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    table, own = credit_table(study), _own_scores(study)
    columns = [BASE, *study.variants]
    counts = _counts(study, table, own)
    excluded = {(each.country, each.variant): each.n - each.scored for each in counts}
    board = make_board(table, columns, seed, "scpo/all", resamples)
    metrics = _layer("accuracy", board, study, columns, excluded)
    below = table.filter(pl.col("margin") < 0)
    layer = make_board(below, columns, seed, "scpo/disagree", resamples)
    lost = {
        (country, column): int(below.filter(pl.col("country") == country)[column].null_count())
        for country in study.countries
        for column in columns
    }
    metrics += _layer(DISAGREE, layer, study, columns, lost)
    for name in (WON, LOST):
        changed = table.with_columns(_changed(name, variant) for variant in study.variants)
        part = make_board(changed, study.variants, seed, "scpo/all", resamples)
        metrics += _layer(name, part, study, study.variants, excluded)
    ties = table.filter(pl.col("margin") == 0)["country"].to_list()
    return Accuracy(
        metrics=tuple(metrics),
        counts=tuple(counts),
        base_ties={country: ties.count(country) for country in study.countries},
        tests=_tests(table, study.variants, board.countries, seed, resamples),
        seeds=tuple(_spread(own, variant, board.countries) for variant in study.variants),
        countries=board.countries,
    )


def _changed(name: str, variant: str) -> pl.Expr:
    """Return what a variant wins over the base, or loses, of each pair, in the variant's column."""
    change = pl.col(variant) - pl.col(BASE)
    return (change if name == WON else -change).clip(lower_bound=0).alias(variant)


def _layer(
    name: str,
    board: Board,
    study: Study,
    columns: Sequence[str],
    excluded: dict[tuple[str, str], int],
) -> list[Metric]:
    """Return a layer's figures: by country and variant, then the macro averages."""
    found = []
    for country in (*study.countries, None):
        for column in columns:
            places = board.countries if country is None else (country,)
            lost = sum(excluded.get((place, column), 0) for place in places)
            group = {"variant": column} | ({"country": country} if country else {})
            full_name = name if country else f"{name}_macro"
            metric = board.metric(full_name, country, column, group, lost)
            if name == DISAGREE and column == BASE:
                # It is 0 by construction: nothing was sampled.
                nothing = {"ci_low": None, "ci_high": None, "interval": None}
                metric = metric.model_copy(update=nothing)
            found.append(metric)
    return found


def _counts(study: Study, table: pl.DataFrame, own: pl.DataFrame) -> list[Counts]:
    found = []
    for country in study.countries:
        pairs = table.filter(pl.col("country") == country)
        known = study.pairs.filter(pl.col("country") == country)
        n, scored = pairs.height, pairs.height - pairs[BASE].null_count()
        ties = known.filter(pl.col("chosen") == pl.col("rejected")).height
        found.append(Counts(country, BASE, n, scored, n - scored, 0, ties))
        for variant in study.variants:
            mine = own.filter((pl.col("country") == country) & (pl.col("variant") == variant))
            scored = n - pairs[variant].null_count()
            tried = mine["pair"].n_unique()
            ties = mine.filter(pl.col("chosen") == pl.col("rejected")).height
            found.append(Counts(country, variant, n, scored, tried - scored, n - tried, ties))
    return found


def _tests(
    table: pl.DataFrame,
    variants: Sequence[str],
    countries: Sequence[str],
    seed: int,
    resamples: int,
) -> tuple[Test, ...]:
    """Compare each variant with the base, and each but fine-tuning with fine-tuning."""
    found: list[Test] = []
    for other in (BASE, FINETUNE):
        for variant in variants:
            if variant == other or other not in table.columns:
                continue
            single, macro = paired_by_country(table, variant, other, countries, seed, resamples)
            found += [Test(country, each) for country, each in single.items()]
            found.append(Test(None, macro))
    corrected = with_holm([test.comparison for test in found])
    return tuple(Test(old.country, new) for old, new in zip(found, corrected, strict=True))


def _spread(own: pl.DataFrame, variant: str, countries: Sequence[str]) -> SeedSpread:
    """Return the macro average of each seed; a seed that lacks a country is left out."""
    mine = own.filter((pl.col("variant") == variant) & pl.col("country").is_in(list(countries)))
    means = (
        mine.group_by("seed", "country", maintain_order=True)
        .agg(value=credit().mean())
        .drop_nulls("value")
    )
    macro = (
        means.group_by("seed", maintain_order=True)
        .agg(pl.col("value").mean(), n=pl.len())
        .sort("seed")
    )
    whole = macro.filter(pl.col("n") == len(countries))
    values = {int(seed): float(value) for seed, value, _ in whole.iter_rows()}
    several = len(values) > 1
    return SeedSpread(
        variant, values, float(np.std(list(values.values()), ddof=1)) if several else None
    )
