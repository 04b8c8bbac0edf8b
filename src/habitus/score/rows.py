"""From rows to conversations, and from their scores to lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from habitus.data import fields
from habitus.data.source import Row, found, kind_of
from habitus.errors import HabitusError, InputError
from habitus.score.responses import Responses
from habitus.scorers.batching import ConversationScorer, Scored
from habitus.types import Message, Status

OWN_KEYS = ("id", "row", "score", "scores", "status", "error", "tokens", "cut")
"""Keys of a line of scores; a column of one of these names cannot be kept."""

Conversation = tuple[Message, ...]
"""A prompt and, as the last turn, a response."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one row asks for."""

    head: dict[str, Any]
    """The row's id, or its number."""
    conversations: tuple[Conversation, ...]
    """One for each response."""
    several: bool
    """Whether the row has the column `responses`."""
    kept: dict[str, Any]
    """Columns to copy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a chunk."""

    lines: bytes
    """A line for each row, up to the first bad one."""
    error: str | None = None
    """What is wrong with that one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows of a chunk, ready to be scored."""

    requests: list[Request]
    """The rows up to the first bad one."""
    error: str | None
    """What is wrong with that one."""
    work: Any
    """The conversations, encoded where the model does that apart."""


def prepare(
    rows: Iterable[Row], first: int, model: Responses, keep: Sequence[str] = ()
) -> Prepared:
    """Do what can be done with the rows of a chunk while the model is busy with others.

    Args:
        rows: The rows; where they cannot be read any further, those before are prepared.
        first: Number of rows before them.
        model: What will score them.
        keep: Columns to copy.
    """
    requests: list[Request] = []
    problem = None
    try:
        for number, row in enumerate(rows, first + 1):
            requests.append(request(row, number, keep))
    except InputError as error:
        problem = str(error)
    work: Any = [each for asked in requests for each in asked.conversations]
    if work and isinstance(model, ConversationScorer):
        work = model.prepare(work)
    return Prepared(requests, problem, work)


def finish(prepared: Prepared, model: Responses) -> Outcome:
    """Score a chunk.

    Raises:
        HabitusError: When the model cannot score at all.
    """
    wanted = sum(len(asked.conversations) for asked in prepared.requests)
    scored: list[Scored] = []
    if wanted and isinstance(model, ConversationScorer):
        scored = model.run(prepared.work)
    elif wanted:
        scored = model.score(prepared.work)
    if len(scored) != wanted:
        raise HabitusError(f"the model gave {len(scored)} scores for {wanted} responses")
    lines: list[bytes] = []
    at = 0
    for asked in prepared.requests:
        end = at + len(asked.conversations)
        lines.append(_line(asked, scored[at:end]))
        at = end
    return Outcome(b"".join(lines), prepared.error)


def request(row: Row, number: int, keep: Sequence[str] = ()) -> Request:
    """Check a row and say what is to be scored.

    Args:
        row: The row.
        number: Its number in the file, counted from 1, which stands in for a missing id.
        keep: Columns to copy.

    Raises:
        InputError: Naming the file, the line and the column.
    """
    values = row.values
    prompt = fields.prompt(row)
    if prompt is None:
        raise row.error(f"needs the column prompt; found: {found(row)}")
    several = "responses" in values
    if several == ("response" in values):
        which = "both response and responses; keep one" if several else "no response or responses"
        raise row.error(f"has {which}; found: {found(row)}")
    texts = values["responses"] if several else [values["response"]]
    if not isinstance(texts, list) or not texts:
        what = "an empty array" if texts == [] else kind_of(texts)
        raise row.error(f"column responses must be a list of texts, found {what}")
    for text in texts:
        if not isinstance(text, str):
            column = "responses must hold texts" if several else "response must be text"
            raise row.error(f"column {column}, found {kind_of(text)}")
    return Request(
        head=_head(row, number),
        conversations=tuple((*prompt, Message(role="assistant", content=text)) for text in texts),
        several=several,
        kept=_kept(row, keep) if keep else {},
    )


def _head(row: Row, number: int) -> dict[str, Any]:
    given = row.values.get("id")
    if given is None:
        return {"row": number}
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise row.error(f"column id must be text or a whole number, found {kind_of(given)}")
    return {"id": given}


def _kept(row: Row, keep: Sequence[str]) -> dict[str, Any]:
    missing = [name for name in keep if name not in row.values]
    if missing:
        raise row.error(f"has no column {missing[0]} to keep; found: {found(row)}")
    kept = {name: row.values[name] for name in keep}
    try:
        to_json(kept)
    except (PydanticSerializationError, ValueError) as error:
        raise row.error(f"a column to keep holds what JSON cannot: {error}") from error
    return kept


def _line(asked: Request, scored: Sequence[Scored]) -> bytes:
    """Return the line of a row: a score that could not be had is null, and the status says why."""
    scored = [_finite(each) for each in scored]
    values = [each.value for each in scored]
    record = asked.head | ({"scores": values} if asked.several else {"score": values[0]})
    failed = next(
        ((at, each) for at, each in enumerate(scored, 1) if each.status is not Status.OK), None
    )
    record["status"] = failed[1].status.value if failed else Status.OK.value
    if failed:
        message = failed[1].error or failed[1].status.value
        record["error"] = f"response {failed[0]}: {message}" if asked.several else message
    for key, count in (
        ("tokens", sum(each.tokens for each in scored)),
        ("cut", sum(each.cut for each in scored)),
    ):
        if count:
            record[key] = count
    return to_json(record | asked.kept) + b"\n"


def _finite(scored: Scored) -> Scored:
    """Make sure that a score is there exactly when its status says so."""
    if scored.status is not Status.OK:
        return scored if scored.value is None else replace(scored, value=None)
    if scored.value is None or not math.isfinite(scored.value):
        message = "the score is not a finite number"
        return replace(scored, value=None, status=Status.ERROR, error=message)
    return scored
