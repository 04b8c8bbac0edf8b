"""Whatever else people bring: chosen and rejected, as text, lists or conversations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from habitus.data.fields import (
    Response,
    best_of,
    label,
    language,
    prompt,
    require,
    responses,
)
from habitus.data.source import Place, Row, Source
from habitus.types import Item, Message

COLUMNS = ("chosen", "rejected")
"""Columns that a row must have."""

DIVERGED = "the conversations differ before the last turn"
"""Why a row is left out: two conversations that part earlier have no shared prompt."""

NO_PREFERENCE = "the chosen turn is empty or identical to a rejected one"
"""Why a row of whole conversations is left out: people's votes contain some such."""

_TURN = re.compile(r"\n\n(Human|Assistant):")


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    r"""Read rows with chosen and rejected.

    - chosen, rejected: text, a list of texts, a list of messages, or a list of such lists.
    - prompt: text or messages. It may be missing when chosen and rejected are whole
      conversations that share their beginning: lists of messages, or texts of
      "\n\nHuman: ...\n\nAssistant: ..." as in hh-rlhf.
    - id: optional; else "row-N", N the line or row.
    - subset and source are two names for one thing; domain, when missing, takes subset first.
    - culture, country, language: optional; language also from the file's name.

    Rows of whole conversations are left out, and counted, where the conversations part before
    the last turn, or where the chosen turn is empty or identical to a rejected one: data of
    people's votes contain some. Where there is a column prompt the latter is an error.

    Raises:
        InputError: When a column is missing, or a conversation does not continue the prompt.
    """
    for row in source.rows():
        require(row, COLUMNS, "generic")
        item = read_row(row, source)
        if item is not None:
            yield item, row.place


def read_row(row: Row, source: Source) -> Item | None:
    """Make a row's item, or count in `source.skipped` why there is none (see `read`).

    Raises:
        InputError: As `read`.
    """
    given = prompt(row)
    chosen, rejected = responses(row, "chosen"), responses(row, "rejected")
    if given is None:
        chosen, rejected = _split(row, chosen), _split(row, rejected)
    context = chosen[0].context or given
    best, others = [one.text for one in chosen], [one.text for one in rejected]
    if any((one.context or given) != context for one in (*chosen, *rejected)):
        source.skipped[DIVERGED] += 1
        return None
    if given is None and (not all(map(str.strip, best)) or set(best) & set(others)):
        source.skipped[NO_PREFERENCE] += 1
        return None
    if given is not None and context is not None and context[-len(given) :] != given:
        raise row.error(
            "the conversation in chosen does not continue the prompt; leave one of them out"
        )
    return best_of(
        row,
        id=label(row, "id") or f"row-{row.place.number}",
        prompt=context,
        chosen=best,
        rejected=others,
        culture=label(row, "culture"),
        country=label(row, "country"),
        language=language(row),
        domain=label(row, "domain", "subset", "source"),
        source=label(row, "source", "subset"),
    )


def _split(row: Row, found: tuple[Response, ...]) -> tuple[Response, ...]:
    """Find the conversation before each response of a row that has no prompt."""
    return tuple(one if one.context else _parse_turns(row, one.text) for one in found)


def _parse_turns(row: Row, text: str) -> Response:
    """Split hh-rlhf's text into turns."""
    before, *parts = _TURN.split(text)
    roles, contents = parts[::2], [part.strip() for part in parts[1::2]]
    if before.strip() or len(roles) < 2 or roles[-1] != "Assistant":
        raise row.error(
            "column prompt is missing, and chosen and rejected are no conversations that end "
            "with the assistant's turn; add a column prompt"
        )
    messages = [
        Message(role="user" if role == "Human" else "assistant", content=content)
        for role, content in zip(roles, contents, strict=True)
    ]
    return Response(contents[-1], tuple(messages[:-1]))
