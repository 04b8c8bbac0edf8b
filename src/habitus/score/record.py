"""The record beside a file of scores, and the file itself, appended chunk by chunk.

`SCORES.run.json` is written before the first score. It says what the scores are made of and how far
they reach: after whole chunks (`boundary`) and at the end of the last call (`end`). A process may
be killed at any byte: on resume what follows the boundary is dropped and scored again, in the same
chunks as in an unbroken run, so that the finished file has the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from habitus.errors import RunError
from habitus.score.source import EMPTY_SHA256, Chunk, Start
from habitus.store import append_whole, os_errors, write_atomic
from habitus.types import Frozen, ScorerSpec

SYNC_SECONDS = 1.0
"""Least time between two writes of the record."""


class Checkpoint(Frozen):
    """How far the scores reach."""

    rows: int = 0
    """Rows scored."""
    lines: int = 0
    """Lines of the input read, blank ones among them; 0 for Parquet."""
    position: int = 0
    """Bytes (JSONL) or rows (Parquet) of the input read."""
    input_sha256: str = EMPTY_SHA256
    """Digest of the input read (JSONL) or of the whole file (Parquet)."""
    scores_bytes: int = 0
    """Bytes of scores written."""
    scores_sha256: str = EMPTY_SHA256
    """Digest of the scores written."""

    @property
    def start(self) -> Start:
        """Where reading of the input goes on."""
        return Start(self.rows, self.lines, self.position)


class ScoreRecord(Frozen):
    """`SCORES.run.json`."""

    scorer: ScorerSpec
    """The reward model."""
    chunk: int
    """Rows that are scored together; batches, and so the last digits of scores, depend on it."""
    keep: tuple[str, ...] = ()
    """Columns that are copied from the input."""
    input: str
    """Name of the input file, for people; its content is what counts."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Versions of Habitus, Python and the libraries that scores depend on."""
    boundary: Checkpoint = Checkpoint()
    """After the last whole chunk: where a resumed run goes on."""
    end: Checkpoint | None = None
    """After the last chunk, whole or not; None while scoring and after a kill."""

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a resumed run to go on."""
        return self.model_dump(mode="json", include={"scorer", "chunk", "keep"})


def record_path(scores: Path) -> Path:
    """Return the path of the record that belongs to a file of scores."""
    return scores.with_name(f"{scores.name}.run.json")


def read_record(scores: Path) -> ScoreRecord | None:
    """Read the record of a file of scores; None when there is none.

    Raises:
        RunError: When it cannot be read.
    """
    path = record_path(scores)
    if not path.exists():
        return None
    try:
        return ScoreRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{path}: {place or 'the file'}: {first['msg']}") from error


def write_record(scores: Path, record: ScoreRecord) -> None:
    """Write the record of a file of scores, whole or not at all."""
    text = json.dumps(record.model_dump(mode="json"), ensure_ascii=False, indent=2)
    write_atomic(record_path(scores), [text.encode(), b"\n"])


def written(scores: Path, at: Checkpoint) -> hashlib._Hash | None:
    """Digest the scores up to a checkpoint; None when they are not those that it vouches for."""
    sha = hashlib.sha256()
    left = at.scores_bytes
    with os_errors(scores), scores.open("rb") as file:
        while left and (block := file.read(min(2**20, left))):
            sha.update(block)
            left -= len(block)
    return None if left or sha.hexdigest() != at.scores_sha256 else sha


class ScoreLog:
    """The append-only file of scores, in the order of the input, of a process that holds its lock.

    Each line reaches the system before `append` returns. The record follows at most once in
    `SYNC_SECONDS`, always behind the scores that it vouches for.
    """

    def __init__(self, scores: Path, record: ScoreRecord) -> None:
        """Open the file and drop what follows the record's boundary.

        Raises:
            RunError: When what comes before the boundary is not what was written.
        """
        self.path = scores
        self.record = record.model_copy(update={"end": None})
        self._at = record.boundary
        self._loose = 0
        with os_errors(scores):
            scores.touch()
        sha = written(scores, self._at)
        if sha is None:
            raise RunError(
                f"{scores}: its first {self._at.rows:,} rows are not what was written; "
                "restore the file, or name another --out"
            )
        self._sha = sha
        write_record(scores, self.record)
        with os_errors(scores):
            os.truncate(scores, self._at.scores_bytes)
            self._file = scores.open("ab", buffering=0)
        self._synced = time.monotonic()

    @property
    def rows(self) -> int:
        """Rows whose scores are in the file."""
        return self._at.rows + self._loose

    def append(self, lines: bytes, chunk: Chunk) -> None:
        """Write the scores of a chunk, or of its first rows when the rest could not be read.

        Args:
            lines: The lines, one for each row.
            chunk: The chunk. With fewer lines than it has rows it is the last one of this call.

        Raises:
            RunError: When they cannot be written. What was there before is still whole.
        """
        kept = f"; {self._at.rows:,} rows are kept: make room and run again with --resume"
        append_whole(self._file, self.path, self._at.scores_bytes, lines, kept)
        rows = lines.count(b"\n")
        if rows < chunk.rows:  # scores to look at; a resumed run makes them again
            self._loose = rows
            return
        self._sha.update(lines)
        self._at = Checkpoint(
            rows=chunk.end.rows,
            lines=chunk.end.lines,
            position=chunk.end.position,
            input_sha256=chunk.sha256,
            scores_bytes=self._at.scores_bytes + len(lines),
            scores_sha256=self._sha.hexdigest(),
        )
        if chunk.whole:
            self.record = self.record.model_copy(update={"boundary": self._at})
        if time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Bring scores and record to the disk, in this order."""
        with os_errors(self.path):
            os.fsync(self._file.fileno())
        write_record(self.path, self.record)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Note how far the scores reach, and close the file."""
        self.record = self.record.model_copy(update={"end": self._at})
        self.sync()
        self._file.close()
