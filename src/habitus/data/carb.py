"""CARB's release rows (papers: CARB A1): one chosen and three rejected responses."""

from __future__ import annotations

from collections.abc import Iterator

from habitus.data.fields import best_of, identifier, label, language, prompt, require, texts
from habitus.data.source import Place, Row, Source, kind_of
from habitus.taxonomy import culture_of_language
from habitus.types import Item

COLUMNS = ("id", "language", "prompt", "chosen", "rejected", "subset")
"""Columns that a row must have; the others are optional."""

DOMAINS = {
    "cultural_commonsense": "commonsense",
    "cultural_value": "values",
    "cultural_toxicity": "safety",
    "cultural_linguistic": "linguistics",
}
"""CARB's subset to our domain."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read CARB rows; the culture is CARB's own for the language, and None for other languages.

    Raises:
        InputError: When a column is missing, or a subset is not one of the four.
    """
    for row in source.rows():
        require(row, COLUMNS, "carb")
        subset = label(row, "subset")
        if subset not in DOMAINS:
            raise row.error(f"subset {subset!r} is unknown; known: {', '.join(DOMAINS)}")
        tag = language(row)
        if tag is None:
            raise row.error("column language is empty")
        part = label(row, "source")
        chosen, rejected = texts(row, "chosen"), texts(row, "rejected")
        item = best_of(
            row,
            id=identifier(row),
            prompt=prompt(row),
            chosen=chosen,
            rejected=rejected,
            chosen_models=_models(row, "chosen_model", len(chosen)),
            rejected_models=_models(row, "rejected_model", len(rejected)),
            culture=culture_of_language(tag),
            country=label(row, "country"),
            language=tag,
            domain=DOMAINS[subset],
            source=f"carb:{part}" if part else "carb",
        )
        yield item, row.place


def _models(row: Row, column: str, n: int) -> list[str | None]:
    """Return what wrote each of `n` responses."""
    value = row.values.get(column)
    if value is None:
        return [None] * n
    models = [value] if isinstance(value, str) else value
    if not isinstance(models, list) or any(not isinstance(m, str | None) for m in models):
        raise row.error(f"column {column} must be a list of names, found {kind_of(value)}")
    if len(models) != n:
        raise row.error(f"column {column} has {len(models)} names for {n} responses")
    return models
