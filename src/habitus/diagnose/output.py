"""The two files that `habitus perturb` appends to: what was made, and what could not be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from habitus.diagnose.writing import Outcome
from habitus.errors import RunError
from habitus.store import append_whole, dump_line, os_errors
from habitus.types import Frozen, Item


class Failure(Frozen):
    """One line of FILE.failures.jsonl: an edit that could not be made."""

    id: str
    """Id that the edited item would have had."""
    parent_id: str
    """The item."""
    cue: str
    """The kind of edit."""
    status: Outcome
    """How the last attempt ended."""
    reason: str | None = None
    """Why, for people."""
    attempts: int
    """How often it was tried."""
    text: str | None = None
    """The last text, where there is one."""


@dataclass
class Output:
    """The two files of a run, whose lock is held."""

    path: Path
    """Items."""
    failures: Path
    """Edits that could not be made."""
    done: dict[str, str] = field(default_factory=dict)
    """Id to how it ended: the cue, or for failures the cue and the status."""

    def open(self) -> None:
        """Drop torn last lines and read what is done.

        Raises:
            RunError: When a complete line is none of ours.
        """
        for path, kind in ((self.path, Item), (self.failures, Failure)):
            with os_errors(path):
                path.touch()
                end = 0
                for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
                    if not line.endswith(b"\n"):
                        break  # torn by a kill: it is made again
                    try:
                        record: Any = kind.model_validate_json(line)
                    except ValidationError as error:
                        raise RunError(
                            f"{path}, line {number}: not a line of habitus perturb; delete this "
                            "line and those after it, and --resume"
                        ) from error
                    self._note(record)
                    end += len(line)
                os.truncate(path, end)

    def append(self, record: Item | Failure) -> None:
        """Write one line; it survives the process from here on.

        Raises:
            RunError: When it cannot be written.
        """
        path = self.failures if isinstance(record, Failure) else self.path
        kept = "; what is there is whole: make room and --resume"
        with os_errors(path, kept), path.open("ab", buffering=0) as file:
            append_whole(file, path, file.tell(), dump_line(record), kept)
        self._note(record)

    def _note(self, record: Item | Failure) -> None:
        status = f"/{record.status}" if isinstance(record, Failure) else ""
        self.done[record.id] = f"{record.cue or ''}{status}"
