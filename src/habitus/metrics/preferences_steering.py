"""Whether a country's reward model serves that country more than the others (papers: SCPO).

All comparisons are on the same pairs: on the pairs of a country, its own model is set against the
other countries' models, so that a country whose pairs are easy gains nothing by that.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from habitus.errors import UnknownNameError
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import with_holm
from habitus.metrics.preferences import BASE, credit, join_credit
from habitus.metrics.preferences_board import make_board, paired_by_country
from habitus.metrics.preferences_read import Study
from habitus.types import Comparison, Metric

OWN, OTHERS = "own model", "other countries' models"
"""Columns of the summary: the own model's credit, and the mean credit of the others."""


@dataclass(frozen=True)
class MatrixCell:
    """One country's model on one country's pairs."""

    model: str
    """The country that the model was trained for."""
    country: str
    """The country whose held-out pairs it is judged on."""
    accuracy: Metric
    """Its accuracy."""
    gain: Comparison
    """The model minus the base, on the same pairs; Holm's correction is over the matrix."""


@dataclass(frozen=True)
class SteeringRow:
    """One country's pairs: own model, others' models and the base."""

    country: str | None
    """The country; None is the macro average."""
    own: Comparison
    """The own model minus the base."""
    others: Comparison
    """The mean of the other countries' models minus the base: what steering costs, or brings,
    those it was not meant for."""
    difference: Comparison
    """The own model minus the mean of the others."""


@dataclass(frozen=True)
class Steering:
    """The country by country matrix and its summary."""

    variant: str
    """Variant of the models."""
    cells: tuple[MatrixCell, ...]
    """By model, then by country."""
    rows: tuple[SteeringRow, ...]
    """By country, then the macro average; empty with fewer than two models."""


def steering(
    study: Study, variant: str = "scpo", seed: int = 0, resamples: int = RESAMPLES
) -> Steering:
    """Compute the matrix and the summary, over seeds, from models trained on all their data.

    Args:
        study: The study.
        variant: Variant of the models.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.

    Raises:
        UnknownNameError: When the study has no such variant.
    """
    if variant not in study.variants:
        raise UnknownNameError("variant", variant, study.variants)
    table = _wide(study, variant)
    models = [country for country in study.countries if _column(country) in table.columns]
    cells = _cells(table, models, study.countries, seed, resamples)
    rows = _rows(table, models, seed, resamples) if len(models) > 1 else ()
    return Steering(variant, tuple(cells), rows)


def _column(country: str) -> str:
    return f"model of {country}"


def _wide(study: Study, variant: str) -> pl.DataFrame:
    """Return one row per held-out pair: `country`, `group`, "base", and a column per model."""
    mine = study.scores.filter((pl.col("variant") == variant) & (pl.col("share") == 1.0))
    table = study.pairs.select("pair", "country", "group", credit().alias(BASE))
    for country in study.countries:
        own = mine.filter(pl.col("model") == country)
        if own.height:
            table = join_credit(table, own, _column(country))
    return table


def _cells(
    table: pl.DataFrame,
    models: list[str],
    countries: tuple[str, ...],
    seed: int,
    resamples: int,
) -> list[MatrixCell]:
    columns = [_column(model) for model in models]
    if not columns:
        return []
    board = make_board(table, columns, seed, "scpo/matrix", resamples)
    found = []
    for model in models:
        gains, _ = paired_by_country(
            table, _column(model), BASE, countries, seed, resamples, average=False
        )
        for country in countries:
            group = {"model": model, "country": country}
            lost = gains[country].n_excluded
            metric = board.metric("matrix", country, _column(model), group, lost)
            found.append(MatrixCell(model, country, metric, gains[country]))
    gained = with_holm([cell.gain for cell in found])
    return [
        MatrixCell(cell.model, cell.country, cell.accuracy, gain)
        for cell, gain in zip(found, gained, strict=True)
    ]


def _rows(
    table: pl.DataFrame, models: list[str], seed: int, resamples: int
) -> tuple[SteeringRow, ...]:
    parts = []
    for country in models:
        pairs = table.filter(pl.col("country") == country)
        others = [_column(model) for model in models if model != country]
        # A pair counts when all models scored it: a mean over some would be of other models.
        whole = pl.all_horizontal(pl.col(*others).is_not_null())
        parts.append(
            pairs.select(
                "country",
                "group",
                BASE,
                pl.col(_column(country)).alias(OWN),
                pl.when(whole).then(pl.mean_horizontal(others)).alias(OTHERS),
            )
        )
    summary = pl.concat(parts)
    families = [
        paired_by_country(summary, a, b, models, seed, resamples)
        for a, b in ((OWN, BASE), (OTHERS, BASE), (OWN, OTHERS))
    ]
    columns = [
        with_holm([*(single[country] for country in models), macro]) for single, macro in families
    ]
    return tuple(
        SteeringRow(country, *parts)
        for country, *parts in zip([*models, None], *columns, strict=True)
    )
