"""HelpSteer3's preference part (Wang et al. 2025): which of two responses people prefer."""

from __future__ import annotations

from collections.abc import Iterator

from habitus import taxonomy
from habitus.data.fields import best_of, label, problem, prompt, require
from habitus.data.source import Place, Row, Source
from habitus.types import Item, digest

COLUMNS = ("context", "response1", "response2", "overall_preference")
"""Columns that a row must have; domain and language are optional."""

TIE = "people prefer neither response"
"""Why a row is left out."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read rows as items.

    Raises:
        InputError: As `preferences`.
    """
    for item, _, place in preferences(source):
        yield item, place


def preferences(source: Source) -> Iterator[tuple[Item, int, Place]]:
    """Read rows; overall_preference from -3 (the first is much better) to 3 (the second is).

    Each item comes with the strength of the preference, 1 to 3. In the domain "code" the column language names a programming language: the item has none then.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    for row in source.rows():
        require(row, COLUMNS, "helpsteer3")
        preference = row.values["overall_preference"]
        if isinstance(preference, float) and preference.is_integer():
            preference = int(preference)
        if isinstance(preference, bool) or preference not in range(-3, 4):
            raise row.error(
                f"column overall_preference must be from -3 to 3, found {str(preference)[:40]!r}"
            )
        answers = [row.values[column] for column in ("response1", "response2")]
        if not all(isinstance(answer, str) for answer in answers):
            raise row.error("columns response1 and response2 must be texts")
        chosen, rejected = answers if preference < 0 else reversed(answers)
        reason = TIE if preference == 0 else problem([chosen], [rejected])
        if reason:
            source.skipped[reason] += 1
            continue
        context = prompt(row, "context")
        yield (
            best_of(
                row,
                id=f"row-{row.place.number}",
                prompt=context,
                chosen=[chosen],
                rejected=[rejected],
                language=_language(row),
                domain=label(row, "domain"),
                source="helpsteer3",
                licence="CC-BY-4.0",
                parent_id=digest([[turn.role, turn.content] for turn in context or ()]),
                reason=f"preference {abs(preference)} of 3",
            ),
            abs(preference),
            row.place,
        )


def _language(row: Row) -> str | None:
    name = label(row, "language")
    if name is None or (label(row, "domain") or "").lower() == "code":
        return None
    known = taxonomy.resolve(name)
    return known.tag if known else None
