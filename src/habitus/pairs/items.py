"""Pairs from what has chosen and rejected already: rows of one's own, and benchmarks' items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from habitus.data.countries import country
from habitus.data.fields import first_problem, label, require
from habitus.data.generic import COLUMNS, read_row
from habitus.data.source import Source
from habitus.errors import InputError
from habitus.pairs.splits import normalise
from habitus.types import Item, Message, PreferencePair, digest


def read_generic(source: Source) -> Iterator[PreferencePair]:
    """Read rows with chosen and rejected, as `habitus.data.generic.read` does, and who chose.

    Further columns, all optional: annotator, group, item_id, margin, weight and licence. `group`
    is, where the column is missing, the annotator, else the prompt.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    several = len(source.files) > 1
    for row in source.rows():
        require(row, COLUMNS, "generic")
        item = read_row(row, source)
        if item is None:
            continue
        annotator = label(row, "annotator")
        fields = {
            "item_id": label(row, "item_id") or item.id,
            "annotator": annotator,
            "group": label(row, "group") or annotator or _by_prompt(item.prompt),
            "licence": label(row, "licence", "license"),
            "margin": row.values.get("margin"),
        }
        if row.values.get("weight") is not None:
            fields["weight"] = row.values["weight"]
        try:
            # Ids need be unique in one file only.
            prefix = f"{source.label(row.place)}:" if several else ""
            yield from item_pairs(item, prefix=prefix, **fields)
        except ValidationError as error:
            raise row.error(first_problem(error)) from error


def from_items(items: Iterable[Item]) -> Iterator[PreferencePair]:
    """Pair each best candidate with each other one; `group` is the parent, else the prompt.

    Raises:
        InputError: When a best candidate has the text of another one.
    """
    for item in items:
        try:
            yield from item_pairs(
                item,
                item_id=item.parent_id or item.id,
                group=group_of(item),
                licence=item.licence,
            )
        except ValidationError as error:
            raise InputError(f"item {item.id[:60]!r}: {first_problem(error)}") from error


def group_of(item: Item) -> str:
    """Return the group of an item's pairs: its parent, else its prompt."""
    return item.parent_id or _by_prompt(item.prompt)


def item_pairs(item: Item, *, prefix: str = "", **fields: Any) -> Iterator[PreferencePair]:
    """Pair each best candidate of an item with each other one.

    Args:
        item: The item.
        prefix: What to put before the ids.
        **fields: Further fields of the pairs.

    Raises:
        ValidationError: When a field is wrong.
    """
    best = [one for one in item.candidates if one.id in item.best_ids]
    rest = [one for one in item.candidates if one.id not in item.best_ids]
    single = len(best) == len(rest) == 1
    for chosen in best:
        for rejected in rest:
            yield PreferencePair(
                id=prefix + (item.id if single else f"{item.id}:{chosen.id}>{rejected.id}"),
                prompt=item.prompt,
                chosen=chosen.text,
                rejected=rejected.text,
                country=country(item.country)[0] if item.country else None,
                culture=item.culture,
                language=item.language,
                domain=item.domain,
                source=item.source,
                **fields,
            )


def _by_prompt(prompt: tuple[Message, ...]) -> str:
    return digest([[turn.role, normalise(turn.content)] for turn in prompt])
