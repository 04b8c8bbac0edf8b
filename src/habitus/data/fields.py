"""Checked access to a row's columns, and the one way to make an item of chosen and rejected."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from habitus import taxonomy
from habitus.data.source import Row, found, kind_of
from habitus.types import Candidate, Item, Message

ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
}
"""Role names in data sets to ours."""

LONGEST_LITERAL = 1 << 20
"""Most characters of a Python value written as text."""

EMPTY = "a response is empty"
"""Why a row is left out."""

IDENTICAL = "two responses are identical"
"""Why a row is left out."""

REPEATED = "the row repeats an earlier one"
"""Why a row is left out."""

_TAG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class Response:
    """One response, and the conversation that led to it where the data repeat it."""

    text: str
    """The last turn."""
    context: tuple[Message, ...] | None = None
    """The turns before it; None when the data give only the response."""


def require(row: Row, columns: Iterable[str], format: str) -> None:
    """Check that a row has the columns of its format.

    Raises:
        InputError: Naming the missing columns and the found ones.
    """
    missing = [column for column in columns if column not in row.values]
    if missing:
        raise row.error(
            f"format {format} needs column{'s' if len(missing) > 1 else ''} "
            f"{', '.join(missing)}; found: {found(row)}"
        )


def label(row: Row, *columns: str) -> str | None:
    """Return the first of these columns that holds a short text, or None.

    Numbers are taken as text; null and blank count as missing.

    Raises:
        InputError: When the value is neither text nor a whole number.
    """
    for column in columns:
        value = row.values.get(column)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise row.error(f"column {column} must be text, found {kind_of(value)}")
        if text := str(value).strip():
            return text
    return None


def text(row: Row, column: str) -> str:
    """Return a column's text without the spaces around it.

    Raises:
        InputError: When it is missing, blank, or neither text nor a whole number.
    """
    value = label(row, column)
    if value is None:
        raise row.error(f"column {column} is empty")
    return value


def rating_of(row: Row, column: str, most: int) -> float:
    """Return a column's rating.

    Raises:
        InputError: When it is no number from 1 to `most`.
    """
    value = row.values[column]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 1 <= number <= most:
        raise row.error(f"column {column} must be from 1 to {most}, found {str(value)[:40]!r}")
    return number


def literal(row: Row, column: str, pattern: re.Pattern[str] | None = None) -> Any:
    """Return a column's value, or the value that its text writes in Python.

    CSV files hold lists as "['a', 'b']". Nothing is executed: only literals are understood.

    Args:
        row: The row.
        column: The column.
        pattern: Which part of the text is the literal; None for all of it.

    Raises:
        InputError: When the text is no literal, or longer than `LONGEST_LITERAL`.
    """
    value = row.values.get(column)
    if not isinstance(value, str):
        return value
    found = pattern.search(value) if pattern else None
    written = found[0] if found else value.strip()
    if len(written) > LONGEST_LITERAL:
        raise row.error(f"column {column} is longer than {LONGEST_LITERAL:,} characters")
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise row.error(f"column {column} is no list or dict, found {written[:40]!r}") from error


def problem(chosen: Sequence[str], rejected: Sequence[str]) -> str | None:
    """Say why people's choices make no item: a response is blank, or two are identical.

    For sources whose rows are known to contain some such; they are left out and counted.
    """
    every = [one.strip() for one in (*chosen, *rejected)]
    if not all(every):
        return EMPTY
    return IDENTICAL if len(set(every)) < len(every) else None


def identifier(row: Row) -> str:
    """Return the column id.

    Raises:
        InputError: When it is missing or blank.
    """
    value = label(row, "id")
    if value is None:
        raise row.error("column id is empty; every row needs an id")
    return value


def language(row: Row) -> str | None:
    """Return the BCP 47 tag from the column language, else from the file's name.

    The column may hold a tag, a FLORES-200 code or an English name. A well-formed tag that the
    taxonomy does not know is kept.

    Raises:
        InputError: When the value is none of these.
    """
    text = label(row, "language")
    if text is None:
        return row.language
    known = taxonomy.resolve(text)
    if known is not None and (known.name.lower() == text.lower() or known.flores == text):
        return known.tag
    if _TAG.fullmatch(text):
        # The writer's own subtags (es-MX) say more than the taxonomy's entry (es).
        return text.replace("_", "-")
    raise row.error(
        f"language {text[:40]!r} is unknown; give a BCP 47 tag (ar), a FLORES-200 code (arb_Arab) "
        "or an English name (Arabic)"
    )


def prompt(row: Row, column: str = "prompt") -> tuple[Message, ...] | None:
    """Return the column prompt as a conversation; None when missing or null.

    Args:
        row: The row.
        column: The column's name, where it is another one.

    Raises:
        InputError: When it is blank, or neither text nor messages.
    """
    value = row.values.get(column)
    if value is None:
        return None
    if isinstance(value, str):
        if not value.strip():
            raise row.error(f"column {column} is empty")
        return (Message(role="user", content=value),)
    if not isinstance(value, list) or not value:
        raise row.error(f"column {column} must be text or messages, found {_described(value)}")
    return _messages(row, column, value)


def responses(row: Row, column: str) -> tuple[Response, ...]:
    """Return the responses in a column: text, a list of texts, messages, or a list of these.

    A list of messages is one whole conversation; its last turn, the assistant's, is the response.

    Raises:
        InputError: When there is none, or it is of another kind.
    """
    value = row.values.get(column)
    if isinstance(value, str):
        return (Response(value),)
    if not isinstance(value, list) or not value:
        raise row.error(f"column {column} needs at least one response, found {_described(value)}")
    if all(isinstance(element, str) for element in value):
        return tuple(Response(element) for element in value)
    if all(isinstance(element, dict) for element in value):
        return (_last_turn(row, column, value),)
    if all(isinstance(element, list) and element for element in value):
        return tuple(_last_turn(row, column, element) for element in value)
    raise row.error(f"column {column} must hold texts or messages, found a mixture")


def texts(row: Row, column: str) -> list[str]:
    """Return the responses in a column as texts, for formats whose prompt is a column."""
    return [response.text for response in responses(row, column)]


def _described(value: Any) -> str:
    return "an empty array" if value == [] else kind_of(value)


def _messages(row: Row, column: str, values: Sequence[Any]) -> tuple[Message, ...]:
    messages = []
    for value in values:
        role = value.get("role", value.get("from")) if isinstance(value, dict) else None
        content = value.get("content", value.get("value")) if isinstance(value, dict) else None
        if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
            raise row.error(
                f"column {column} has a message that is not "
                '{"role": "system", "user" or "assistant", "content": text}'
            )
        messages.append(Message.model_validate({"role": ROLES[role], "content": content}))
    return tuple(messages)


def _last_turn(row: Row, column: str, values: Sequence[Any]) -> Response:
    messages = _messages(row, column, values)
    if messages[-1].role != "assistant":
        raise row.error(
            f"column {column} ends with the role {messages[-1].role}; a response is the assistant's"
        )
    return Response(messages[-1].content, messages[:-1] or None)


def best_of(
    row: Row,
    *,
    id: str,
    prompt: tuple[Message, ...] | None,
    chosen: Sequence[str],
    rejected: Sequence[str],
    chosen_models: Sequence[str | None] = (),
    rejected_models: Sequence[str | None] = (),
    **fields: Any,
) -> Item:
    """Make an item of chosen and rejected responses.

    Candidate ids are "chosen" and "rejected", numbered ("rejected-1") where there are several.

    Args:
        row: The row, for error messages.
        id: The item's id.
        prompt: The conversation; None or empty is an error.
        chosen: The right responses, at least one, none blank.
        rejected: The wrong responses, at least one; an empty response is a response.
        chosen_models: What wrote each chosen response; empty when not known.
        rejected_models: What wrote each rejected response; empty when not known.
        **fields: Further fields of the item.

    Raises:
        InputError: When a part is missing, or a rejected response is also chosen.
    """
    if not prompt:
        raise row.error("column prompt is missing or empty")
    check_texts(row, chosen, rejected)
    candidates = [
        *_candidates("chosen", chosen, chosen_models),
        *_candidates("rejected", rejected, rejected_models),
    ]
    values = {
        "id": id,
        "prompt": prompt,
        "candidates": candidates,
        "best_ids": [candidate.id for candidate in candidates[: len(chosen)]],
        **fields,
    }
    try:
        return Item.model_validate(values)
    except ValidationError as error:
        raise row.error(first_problem(error)) from error


def check_texts(row: Row, chosen: Sequence[str], rejected: Sequence[str]) -> None:
    """Check what every format must hold: no blank chosen response, and none that is also rejected.

    Raises:
        InputError: When it does not hold.
    """
    if any(not text.strip() for text in chosen):
        raise row.error("a chosen response is empty")
    if not set(chosen).isdisjoint(rejected):
        raise row.error(
            "a rejected response is identical to a chosen one, so nothing can be measured; "
            "remove the row"
        )


def _candidates(
    kind: str, texts: Sequence[str], models: Sequence[str | None]
) -> Iterable[Candidate]:
    for index, text in enumerate(texts):
        yield Candidate(
            id=kind if len(texts) == 1 else f"{kind}-{index + 1}",
            text=text,
            source_model=models[index] if models else None,
        )


def first_problem(error: ValidationError) -> str:
    """Put a validation error into one line: the first problem, and how many more there are."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    place = ".".join(str(part) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    if first["type"] == "extra_forbidden":
        message = f"unknown key {str(first['loc'][-1])!r}"
        place = ".".join(str(part) for part in first["loc"][:-1])
    elif first["type"] == "missing":
        message = "is missing"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{place}: {message}{more}" if place else f"{message}{more}"
