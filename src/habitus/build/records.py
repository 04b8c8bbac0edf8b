"""Records of the builder's stages: one line for every text that was asked for or compared.

A record is named by its unit: a digest of the stage, everything that was asked, the model, the seed
and the attempt. A build is replayed from the start on every call; what has a record is not done
again. So the lines of a killed build are the first lines of an unbroken one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import FiniteFloat, ValidationError

from habitus.errors import RunError
from habitus.store import append_whole, dump_line, os_errors
from habitus.types import Frozen


class Outcome(StrEnum):
    """How a step ended. All but `ok` are failures, which are counted and tried again."""

    OK = "ok"
    """As asked."""
    REFUSED = "refused"
    """The model or its server declined."""
    TRUNCATED = "truncated"
    """The token limit or the context ended the text."""
    EMPTY = "empty"
    """There is no text."""
    ERROR = "error"
    """The request failed; the reason says how."""
    LANGUAGE = "language"
    """The text is in another language than asked for."""
    MARKUP = "markup"
    """The text has lists, headings or several paragraphs."""
    REVEALS = "reveals"
    """The question repeats the fact, or the answer repeats the question."""
    DUPLICATE = "duplicate"
    """The text equals another question, or another answer of the item."""
    DISSIMILAR = "dissimilar"
    """The answer is not near its own reference, or is nearer to another (papers: CARB A1)."""
    LENGTH = "length"
    """The four answers differ too much in length."""


class StageRecord(Frozen):
    """One line of a file in `stages/`."""

    stage: str
    """"facts", "prompts", "chosen", "rejected", "filtered" or "matched"."""
    key: str
    """What it belongs to: the item, and for rejected answers "/" and the number."""
    unit: str
    """Digest of everything that the outcome depends on."""
    attempt: int
    """Which try it is, from 1."""
    status: Outcome
    """How it ended."""
    reason: str | None = None
    """Why it failed, for people."""
    text: str | None = None
    """What was written, cleaned; also where it failed."""
    model: str | None = None
    """What wrote or compared it."""
    reference: str | None = None
    """Id of the reference that it was written from."""
    similarities: dict[str, FiniteFloat] | None = None
    """For comparisons: cosine to the text's own reference, and the highest to another."""
    prompt_tokens: int = 0
    """Tokens read."""
    completion_tokens: int = 0
    """Tokens written."""


class StageLog:
    """The append-only records of one stage, in a folder whose lock is held."""

    def __init__(self, path: Path) -> None:
        """Open the file, drop a torn last line, and read what is done.

        Raises:
            RunError: When a complete line is no record.
        """
        self.path = path
        """The file."""
        self.visited: list[StageRecord] = []
        """Records that this build has used, in their order: the old ones and the new ones."""
        self._done: dict[str, StageRecord] = {}
        with os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._end = self._read()
            os.truncate(path, self._end)
            self._file = path.open("ab", buffering=0)

    def _read(self) -> int:
        end = 0
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # torn by a kill: it is asked again
                try:
                    record = StageRecord.model_validate_json(line)
                except ValidationError as error:
                    raise RunError(
                        f"{self.path}, line {number}: not a record of a build; delete this line "
                        "and those after it, and --resume"
                    ) from error
                self._done[record.unit] = record
                end += len(line)
        return end

    def find(self, unit: str) -> StageRecord | None:
        """Return the record of a unit, or None when it is still to be done."""
        return self._done.get(unit)

    def use(self, record: StageRecord) -> None:
        """Count a record that was found."""
        self.visited.append(record)

    def append(self, record: StageRecord) -> None:
        """Write a record, and count it; it survives the process from here on.

        Raises:
            RunError: When it cannot be written. What was there before is still whole.
        """
        line = dump_line(record)
        kept = f"; {len(self._done)} records are kept: make room and run again with --resume"
        append_whole(self._file, self.path, self._end, line, kept)
        self._end += len(line)
        self._done[record.unit] = record
        self.visited.append(record)

    def close(self) -> None:
        """Sync and close the file."""
        with os_errors(self.path):
            os.fsync(self._file.fileno())
        self._file.close()


class StageLogs:
    """The records of all stages of a build."""

    STAGES: Sequence[str] = ("facts", "prompts", "chosen", "rejected", "filtered", "matched")
    """The stages, in their order; each is a file."""

    def __init__(self, folder: Path) -> None:
        """Open the files in a folder.

        Raises:
            RunError: When a file cannot be used.
        """
        self._logs: dict[str, StageLog] = {}
        try:
            for stage in self.STAGES:
                self._logs[stage] = StageLog(folder / f"{stage}.jsonl")
        except BaseException:
            self.close()
            raise

    def __getitem__(self, stage: str) -> StageLog:
        """Return the records of a stage."""
        return self._logs[stage]

    def visited(self) -> list[StageRecord]:
        """Return all records that this build has used, stage by stage."""
        return [record for log in self._logs.values() for record in log.visited]

    def close(self) -> None:
        """Close all files."""
        for log in self._logs.values():
            log.close()
