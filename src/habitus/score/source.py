"""Rows of prompts and responses, read in chunks that can be read again by themselves.

A chunk knows where it begins and ends and the digest of all input up to its end. So a run can stop
after any chunk and prove later that what it has read is still the same, and workers can be handed
places instead of texts.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from habitus.data.source import Place, Row, Source, decode, kind_of
from habitus.errors import InputError

if TYPE_CHECKING:
    import polars as pl

EMPTY_SHA256 = hashlib.sha256().hexdigest()
"""Digest of no bytes."""

_BLOCK = 2**20


@dataclass(frozen=True)
class Start:
    """Where to begin reading."""

    rows: int = 0
    """Rows before."""
    lines: int = 0
    """Lines before, blank ones among them; 0 for Parquet."""
    position: int = 0
    """First byte (JSONL) or row (Parquet) to read."""


@dataclass(frozen=True)
class Chunk:
    """Some rows in a row."""

    first: Start
    """Where it begins."""
    end: Start
    """Where the next one begins."""
    sha256: str
    """Digest of the input up to the end (JSONL), or of the whole file (Parquet)."""
    whole: bool
    """False for a last chunk that holds fewer rows than asked for."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.end.rows - self.first.rows


class RowFile(Protocol):
    """A file of rows. It holds no handle, so it can be sent to another process."""

    def count(self, limit: int | None = None) -> int:
        """Return the number of rows, at most `limit`."""
        ...

    def sha256(self, position: int) -> str | None:
        """Return the digest of the input before `position`; None when it is shorter than that."""
        ...

    def chunks(self, start: Start, size: int, limit: int | None = None) -> Iterator[Chunk]:
        """Cut the rest of the file into chunks of `size` rows, the last one shorter.

        Args:
            start: Where to begin: the end of an earlier chunk.
            size: Rows of a chunk.
            limit: Stop when so many rows of the file, those before `start` among them, are cut.
        """
        ...

    def read(self, chunk: Chunk) -> Iterator[Row]:
        """Read the rows of a chunk.

        Raises:
            InputError: At the first row that cannot be read; what was yielded before is right.
        """
        ...


def open_rows(path: Path, columns: Iterable[str]) -> RowFile:
    """Return a reader of a JSONL or Parquet file, told by its suffix.

    Args:
        path: The file; whatever does not end in .parquet is read as JSONL.
        columns: The only columns that are needed of a Parquet file.

    Raises:
        InputError: When it is no readable file.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; give one JSONL or Parquet file")
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if path.suffix.lower() == ".parquet":
        return ParquetFile(path, tuple(columns))
    return LinesFile(path)


@dataclass(frozen=True)
class LinesFile:
    """A JSONL file. Only a line feed ends a line; blank lines are no rows."""

    path: Path
    """The file."""

    def count(self, limit: int | None = None) -> int:
        """Return the number of rows (see `RowFile`); one fast pass over the file."""
        found = 0
        with self.path.open("rb") as lines:
            for line in lines:
                if found == limit:
                    break
                if not line.isspace():
                    found += 1
        return found

    def sha256(self, position: int) -> str | None:
        """Return the digest of the bytes before `position` (see `RowFile`)."""
        with self.path.open("rb") as file:
            sha = _digest(file, position)
        return sha.hexdigest() if sha else None

    def chunks(self, start: Start, size: int, limit: int | None = None) -> Iterator[Chunk]:
        """Cut the file into chunks (see `RowFile`)."""
        with self.path.open("rb") as file:
            sha = _digest(file, start.position)
            if sha is None:
                raise InputError(f"{self.path}: is shorter than the {start.position:,} bytes read")
            rows, lines, position = start.rows, start.lines, start.position
            if rest := self._rest_of_line(file, start):
                sha.update(rest)
                position += len(rest)
            first = Start(rows, lines, position)
            for line in file:
                if limit is not None and rows >= limit:
                    break
                sha.update(line)
                lines += 1
                position += len(line)
                rows += not line.isspace()
                if rows - first.rows == size:
                    end = Start(rows, lines, position)
                    yield Chunk(first, end, sha.hexdigest(), whole=True)
                    first = end
            if rows > first.rows:
                end = Start(rows, lines, position)
                yield Chunk(first, end, sha.hexdigest(), whole=False)

    def _rest_of_line(self, file: io.BufferedReader, start: Start) -> bytes:
        """Return what ends a last line that had no line feed when it was read.

        Raises:
            InputError: When that line has become longer.
        """
        if not start.position:
            return b""
        file.seek(start.position - 1)
        if file.read(1) == b"\n":
            return b""
        rest = file.readline()
        if rest and not rest.isspace():
            raise InputError(
                f"{self.path}, line {start.lines}: has become longer since it was scored; "
                "undo that, or name another --out"
            )
        return rest

    def read(self, chunk: Chunk) -> Iterator[Row]:
        """Read the rows of a chunk (see `RowFile`)."""
        with self.path.open("rb") as file:
            file.seek(chunk.first.position)
            data = file.read(chunk.end.position - chunk.first.position)
        parser = Source(self.path)
        offset = chunk.first.position
        for number, raw in enumerate(io.BytesIO(data), chunk.first.lines + 1):
            text = decode(raw, self.path, offset, number)
            place = Place(self.path, number)
            if text.strip():
                value = parser.parse(text, self.path, number)
                if not isinstance(value, dict):
                    raise InputError(
                        f"{place}: expected an object with columns, found {kind_of(value)}"
                    )
                yield Row(value, place)
            offset += len(raw)


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file, read a slice at a time."""

    path: Path
    """The file."""
    columns: tuple[str, ...]
    """The columns to read, where the file has them."""

    def count(self, limit: int | None = None) -> int:
        """Return the number of rows (see `RowFile`), from the file's own metadata."""
        import polars as pl  # deferred: most files are JSONL

        with self._errors():
            found = int(self._scan().select(pl.len()).collect().item())
        return found if limit is None else min(found, limit)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import polars as pl

        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            message = " ".join(str(error).split())[:200]
            raise InputError(f"{self.path}: not a readable Parquet file: {message}") from error

    def _scan(self) -> pl.LazyFrame:
        import polars as pl

        return pl.scan_parquet(self.path, glob=False)

    def sha256(self, position: int) -> str | None:
        """Return the digest of the whole file: its rows cannot be told apart by bytes."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def chunks(self, start: Start, size: int, limit: int | None = None) -> Iterator[Chunk]:
        """Cut the file into chunks (see `RowFile`)."""
        sha = self.sha256(0) or EMPTY_SHA256
        total = self.count(limit)
        for at in range(start.rows, total, size):
            end = min(at + size, total)
            first, last = Start(at, 0, at), Start(end, 0, end)
            yield Chunk(first, last, sha, whole=end - at == size)

    def read(self, chunk: Chunk) -> Iterator[Row]:
        """Read the rows of a chunk (see `RowFile`)."""
        with self._errors():
            lazy = self._scan()
            names = lazy.collect_schema().names()
            if "prompt" not in names or not {"response", "responses"} & set(names):
                raise InputError(
                    f"{self.path}: needs columns prompt and response (or responses); "
                    f"found: {', '.join(names[:12])}"
                )
            lazy = lazy.select([name for name in names if name in self.columns])
            frame = lazy.slice(chunk.first.rows, chunk.rows).collect()
        for number, values in enumerate(frame.iter_rows(named=True), chunk.first.rows + 1):
            yield Row(values, Place(self.path, number, "row"))


def _digest(file: io.BufferedReader, position: int) -> hashlib._Hash | None:
    """Digest the bytes before `position`, and leave the file there; None when it is shorter."""
    sha = hashlib.sha256()
    while position > 0:
        block = file.read(min(_BLOCK, position))
        if not block:
            return None
        sha.update(block)
        position -= len(block)
    return sha
