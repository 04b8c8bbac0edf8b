"""From a file or folder to rows: JSON, JSONL, Parquet and CSV, with the place of every row.

Whatever is wrong with the bytes ends here as one line that names the file and the place. Nothing
is executed: no pickle, no loading scripts.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from habitus import taxonomy
from habitus.errors import InputError

SUFFIXES = (".json", ".jsonl", ".parquet")
"""What a folder is searched for."""

MORE_SUFFIXES = (".csv", ".json.gz", ".jsonl.gz", ".csv.gz")
"""What a folder is searched for when it has no file with one of `SUFFIXES`."""

LONGEST_CELL = 1 << 24
"""Most characters in one cell of a CSV file; the standard library's own limit is 131,072."""

METADATA = (
    "card.json",
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
)
"""Files about a data set, which a folder may hold beside the data."""

_FLORES = re.compile(r"(?<![a-z])[a-z]{3}_[A-Z][a-z]{3}(?![a-z])")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands, for error messages."""

    file: Path
    """The file."""
    number: int
    """Line of a JSONL file, or row of any other, counted from 1."""
    unit: str = "line"
    """"line" or "row"."""

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, as read."""

    values: dict[str, Any]
    """Column to value."""
    place: Place
    """Where it stands."""
    language: str | None = None
    """BCP 47 tag, where the file's or its folder's name is a FLORES-200 code."""

    def error(self, problem: str) -> InputError:
        """Return an error that names the row's place."""
        return InputError(f"{self.place}: {problem}")


@dataclass
class Source:
    """A file or folder that is being read, and the tallies of what was noticed."""

    path: Path
    """The file or folder."""
    seed: int = 0
    """Seed of whatever an importer draws."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason to number of rows left out."""
    surrogates: int = 0
    """How many lone surrogates were replaced by U+FFFD."""
    _rest: Iterator[Row] | None = field(default=None, init=False, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed in the rows read so far."""
        if not self.surrogates:
            return ()
        s = "" if self.surrogates == 1 else "s"
        return (f"{self.surrogates} lone surrogate{s} replaced by U+FFFD",)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The data files, in the order of their names; hidden ones and metadata left out.

        Raises:
            InputError: When there is none, or the suffix is not one that can be read.
        """
        if not self.path.is_dir():
            if suffix_of(self.path) not in (*SUFFIXES, *MORE_SUFFIXES):
                raise InputError(
                    f"{self.path}: cannot read {self.path.suffix or 'a file without a suffix'!r}; "
                    f"give a {', '.join((*SUFFIXES, *MORE_SUFFIXES))} file or a folder of them"
                )
            return (self.path,)
        visible = [
            path
            for path in sorted(self.path.rglob("*"))
            if path.name not in METADATA
            and not any(part.startswith(".") for part in path.relative_to(self.path).parts)
            and path.is_file()
        ]
        for suffixes in (SUFFIXES, MORE_SUFFIXES):
            if found := tuple(path for path in visible if suffix_of(path) in suffixes):
                return found
        raise InputError(
            f"{self.path}: no {', '.join((*SUFFIXES, *MORE_SUFFIXES))} file in this folder"
        )

    @cached_property
    def first(self) -> Row:
        """The first row, which the format is told from; `rows` goes on from there."""
        self._rest = self._read_all()
        return next(self._rest)

    def rows(self) -> Iterator[Row]:
        """Read all rows of all files.

        Raises:
            InputError: When a file cannot be read, is empty, or is not what its suffix says.
        """
        if self._rest is None:
            return self._read_all()
        rest, self._rest = self._rest, None
        return chain([self.first], rest)

    def _read_all(self) -> Iterator[Row]:
        for file in self.files:
            language = self._language(file)
            n = 0
            try:
                for number, unit, value in self._read(file):
                    n += 1
                    place = Place(file, number, unit)
                    if not isinstance(value, dict):
                        raise InputError(
                            f"{place}: expected an object with columns, found {kind_of(value)}"
                        )
                    yield Row(value, place, language)
            except OSError as error:
                raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
            if not n:
                raise InputError(f"{file}: is empty; expected at least one row")

    def label(self, place: Place) -> str:
        """Name a place's file within the folder, without the suffix."""
        return place.file.relative_to(self.path).with_suffix("").as_posix()

    def document(self, file: Path) -> Any:
        """Read one JSON file that is no table.

        Raises:
            InputError: When it cannot be read or is not JSON.
        """
        try:
            return self.parse(decode(read_bytes(file), file), file)
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error

    def _language(self, file: Path) -> str | None:
        """Tell a language from the file's or a folder's name, the innermost first."""
        parts = file.relative_to(self.path).parts if self.path.is_dir() else (file.name,)
        for part in reversed(parts):
            for code in _FLORES.findall(part):
                found = taxonomy.resolve(code)
                if found is not None and found.flores == code:
                    return found.tag
        return None

    def _read(self, file: Path) -> Iterator[tuple[int, str, Any]]:
        """Yield number, unit and value of each row of one file."""
        suffix = suffix_of(file).removesuffix(".gz")
        if suffix == ".parquet":
            return _read_parquet(file)
        if suffix == ".csv":
            return _read_csv(file)
        if suffix == ".jsonl":
            return self._read_lines(file)
        return self._read_array(file)

    def _read_lines(self, file: Path) -> Iterator[tuple[int, str, Any]]:
        offset = 0
        with _unpacked(file), _opened(file) as lines:
            # Only \n ends a line: U+2028 and \r stand in texts unescaped.
            for number, raw in enumerate(lines, start=1):
                text = decode(raw, file, offset, number)
                offset += len(raw)
                if text.strip():
                    yield number, "line", self.parse(text, file, number)

    def _read_array(self, file: Path) -> Iterator[tuple[int, str, Any]]:
        text = decode(read_bytes(file), file)
        if not text.strip():
            return
        if _is_lines(text):
            yield from self._read_lines(file)
            return
        value = self.parse(text, file)
        if isinstance(value, dict):
            raise InputError(
                f"{file}: expected an array of rows, found one object with the keys "
                f"{_names(value)}; write it as [row, row, ...] or one row a line"
            )
        if not isinstance(value, list):
            raise InputError(f"{file}: expected an array of rows, found {kind_of(value)}")
        for number, row in enumerate(value, start=1):
            yield number, "row", row

    def parse(self, text: str, file: Path, line: int | None = None) -> Any:
        """Parse JSON, refusing NaN and infinity, and mend lone surrogates."""
        try:
            value = _DECODER.decode(text.rstrip("\r\n"))  # columns count within the line
        except json.JSONDecodeError as error:
            place = f"line {line or error.lineno}, column {error.colno}"
            raise InputError(f"{file}, {place}: broken JSON: {error.msg}") from error
        except _NotFiniteError as error:
            place = f", line {line}" if line else ""
            raise InputError(f"{file}{place}: {error} is not valid JSON; use null") from error
        except (ValueError, RecursionError) as error:
            place = f", line {line}" if line else ""
            raise InputError(f"{file}{place}: broken JSON: {_one_line(error)}") from error
        return self._mend(value) if _ESCAPED_SURROGATE.search(text) else value

    def _mend(self, value: Any) -> Any:
        """Replace lone surrogates, which no UTF-8 file and no tokenizer takes."""
        if isinstance(value, str):
            mended, n = _SURROGATE.subn("\ufffd", value)
            self.surrogates += n
            return mended
        if isinstance(value, list):
            return [self._mend(element) for element in value]
        if isinstance(value, dict):
            return {self._mend(key): self._mend(element) for key, element in value.items()}
        return value


class _NotFiniteError(ValueError):
    """A number that JSON does not have."""


def _refuse(constant: str) -> None:
    raise _NotFiniteError(constant)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _NotFiniteError(text)
    return number


# One decoder for all rows: json.loads would build one for each.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def decode(raw: bytes, file: Path, offset: int = 0, line: int | None = None) -> str:
    """Decode UTF-8; a byte order mark at the start of the file is dropped."""
    if offset == 0 and raw.startswith(b"\xef\xbb\xbf"):
        raw, offset = raw[3:], 3
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        number = line or raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {number}: not UTF-8 at byte {offset + error.start} "
            f"(0x{raw[error.start]:02x}); save the file as UTF-8"
        ) from error


def suffix_of(path: Path) -> str:
    """Return a file's suffix in lower case; of a compressed file the last two (".jsonl.gz")."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def read_bytes(file: Path) -> bytes:
    """Read a file, unpacked when it is compressed.

    Raises:
        InputError: When the compressed file is broken.
    """
    with _unpacked(file), _opened(file) as content:
        return content.read()


def _opened(file: Path) -> BinaryIO:
    """Open a file, unpacking it when its name ends in .gz."""
    return cast("BinaryIO", gzip.open(file) if suffix_of(file).endswith(".gz") else file.open("rb"))


@contextmanager
def _unpacked(file: Path) -> Iterator[None]:
    """Turn what a broken gzip file raises into one line."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{file}: not a whole gzip file: {_one_line(error)}") from error


def _read_csv(file: Path) -> Iterator[tuple[int, str, Any]]:
    """Read a CSV file whose first row names the columns; every value is text."""
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(io.StringIO(decode(read_bytes(file), file), newline=""), strict=True)
    try:
        names = next(reader, [])
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{file}: the first row names the column {twice[0][:60]!r} twice")
        number = 0
        for values in reader:
            if not values:
                continue  # a blank line
            number += 1
            if len(values) != len(names):
                raise InputError(
                    f"{file}, row {number}: {len(values)} values for {len(names)} columns; quote "
                    "values that hold a comma or a line break"
                )
            yield number, "row", dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: broken CSV: {error}") from error


def _is_lines(text: str) -> bool:
    """Tell JSONL in a .json file: the first line is an object, and more follows."""
    first, _, rest = text.strip().partition("\n")
    if not first.startswith("{") or not rest.strip():
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _read_parquet(file: Path) -> Iterator[tuple[int, str, Any]]:
    import polars as pl  # deferred: most files are JSON

    if file.stat().st_size == 0:
        return
    try:
        frame = pl.read_parquet(file, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InputError(f"{file}: not a readable Parquet file: {_one_line(error)}") from error
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield number, "row", row


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _names(columns: dict[str, Any]) -> str:
    """List at most twelve column names."""
    names = [str(name) for name in columns]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more


def found(row: Row) -> str:
    """List the columns that a row has, for error messages."""
    return _names(row.values) or "none"


_KINDS = {
    str: "a string",
    list: "an array",
    dict: "an object",
    bool: "a boolean",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    """Name a JSON value's type, for error messages."""
    return _KINDS.get(type(value), "a number" if isinstance(value, int | float) else "other data")
