"""OpenAssistant's Chinese conversations with people's rankings (Köpf et al. 2023).

The file is the one that LLaMA-Factory packs: instruction, input, output (best first), history.
"""

from __future__ import annotations

from collections.abc import Iterator

from habitus.data.fields import best_of, label, problem, require, text, texts
from habitus.data.source import Place, Row, Source
from habitus.types import Item, Message, digest

COLUMNS = ("instruction", "output", "history")
"""Columns that a row must have; input is optional."""

ALONE = "only one answer"
"""Why a row is left out."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read rows of ranked answers: the first is best, the others are rejected.

    Rows that open with the same turn share `parent_id`: they come from one conversation tree.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    for row in source.rows():
        require(row, COLUMNS, "oasst1-zh")
        prompt, answers = _prompt(row), texts(row, "output")
        reason = ALONE if len(answers) < 2 else problem(answers[:1], answers[1:])
        if reason:
            source.skipped[reason] += 1
            continue
        item = best_of(
            row,
            id=f"row-{row.place.number}",
            prompt=prompt,
            chosen=answers[:1],
            rejected=answers[1:],
            language="zh",
            source="oasst1-zh",
            licence="Apache-2.0",
            parent_id=digest(prompt[0].content),
            author="human",
        )
        yield item, row.place


def _prompt(row: Row) -> tuple[Message, ...]:
    """Return the earlier turns, and the one that the answers answer."""
    history = row.values.get("history") or []
    if not isinstance(history, list) or any(
        not isinstance(turn, list) or len(turn) != 2 or not all(isinstance(t, str) for t in turn)
        for turn in history
    ):
        raise row.error("column history must be an array of [what was asked, what was answered]")
    turns = [
        message
        for asked, answered in history
        for message in (
            Message(role="user", content=asked),
            Message(role="assistant", content=answered),
        )
    ]
    asked = "\n".join(part for part in (text(row, "instruction"), label(row, "input")) if part)
    return (*turns, Message(role="user", content=asked))
