"""Read JSON objects and lines with errors that name the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from habitus.errors import InputError

Schema = dict[str, pl.DataType | type[pl.DataType]]
"""Columns and their types."""


def read_object(path: Path, made_by: str = "habitus train scpo") -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        made_by: The command that writes such files, for the message.

    Raises:
        InputError: When the file is missing or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"{path.parent} has no {path.name}; give a folder written by {made_by}"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: a JSON object was expected, not {type(found).__name__}")
    return found


def read_lines(
    path: Path,
    schema: Schema,
    required: Iterable[str],
    remedy: str = "delete the unit's folder and resume",
    torn: bool = False,
) -> pl.DataFrame:
    """Read JSON lines into a table with exactly the columns of `schema`.

    Args:
        path: The file.
        schema: Columns; other keys are left out.
        required: Columns that may not be null.
        remedy: What to do about a broken line, for the message.
        torn: Leave out a last line without its end: the file may be written to right now.

    Raises:
        InputError: Naming file and line, when the file is missing, or a line is broken.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if torn:
        data = data[: data.rfind(b"\n") + 1]
    if not data.strip():
        return pl.DataFrame(schema=schema)
    try:
        table = pl.read_ndjson(data, schema=schema)
    except pl.exceptions.PolarsError as error:
        raise InputError(_broken_line(path, data, error, remedy)) from error
    for column in required:
        missing = table[column].is_null().arg_true()
        if len(missing):
            number = _line_of(data, int(missing[0]))
            raise InputError(f"{path}, line {number}: no {column!r}; run the training again")
    finite = [
        pl.when(pl.col(name).is_finite()).then(name).alias(name)
        for name, kind in schema.items()
        if kind == pl.Float64
    ]
    return table.with_columns(finite)


def _line_of(data: bytes, row: int) -> int:
    """Return the number of the line that a row was read from: empty lines are no rows."""
    numbers = [number for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    return numbers[row]


def _broken_line(path: Path, data: bytes, error: Exception, remedy: str) -> str:
    """Say which line is no JSON object, or what polars said."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            whole = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            whole = False
        if not whole:
            return f"{path}, line {number}: not a JSON object; {remedy}"
    return f"{path}: {str(error).splitlines()[0][:200]}"
