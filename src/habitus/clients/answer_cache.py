"""Answers of servers, kept so that nothing is paid for twice: one SQLite file in a folder.

Safe for several processes and threads. The key is a digest of everything that was sent and of the
server it was sent to, so a changed prompt, seed or model asks anew. Only answers are kept, never
failures. An entry that is not what was written (a torn disk, an edit by hand) counts as missing.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from habitus.clients.engine import Reply
from habitus.errors import InputError
from habitus.types import canonical_json

FILE = "answers.sqlite3"
"""Name of the file in the cache folder."""
VERSION = 1
"""Part of every key: raised when an equal request would be answered in another form."""
PATIENCE = 30.0
"""Seconds to wait for another process that is writing."""

_REPLY = TypeAdapter(Reply)


def answer_key(sent: Mapping[str, Any]) -> str:
    """Return the sha256 of what was asked, and of whom.

    Args:
        sent: Everything that the answer depends on, as JSON values.
    """
    return hashlib.sha256(canonical_json([VERSION, sent]).encode()).hexdigest()


def _seal(key: str, value: str) -> str:
    return hashlib.sha256(f"{key}\n{value}".encode()).hexdigest()[:16]


class AnswerCache:
    """Replies by key."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
        """Open the cache, and make it where there is none.

        Args:
            folder: A folder on a local disk; SQLite's locks do not work on network drives.
            say: Called with a line when the cache can no longer be written.

        Raises:
            InputError: When the folder cannot be used, or holds a file that is no cache.
        """
        self.path = folder / FILE
        """The file."""
        self._say = say
        self._lock = Lock()
        self._writable = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock", timeout=PATIENCE):
                self._connection = self._open()
        except (OSError, sqlite3.OperationalError) as error:  # a lock's Timeout is an OSError
            raise InputError(f"cannot use the cache {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path} is no answer cache ({error}); delete it or name another folder"
            ) from error

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")  # safe with WAL, and no fsync per row
            connection.execute(
                "CREATE TABLE IF NOT EXISTS answers "
                "(key TEXT PRIMARY KEY, value TEXT NOT NULL, seal TEXT NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def get(self, key: str) -> Reply | None:
        """Return the reply of a key; None when there is none, or none that is intact."""
        try:
            with self._lock:
                row = self._connection.execute(
                    "SELECT value, seal FROM answers WHERE key = ?", (key,)
                ).fetchone()
        except sqlite3.Error:
            return None
        if row is None or not isinstance(row[0], str) or row[1] != _seal(key, row[0]):
            return None
        try:
            return _REPLY.validate_json(row[0])
        except ValidationError:
            return None

    def put(self, key: str, reply: Reply) -> None:
        """Keep an answer, but no failure.

        What cannot be written is said once and not raised: the answer itself is good.
        """
        if reply.status is not None or not self._writable:
            return
        value = _REPLY.dump_json(reply, exclude={"status", "error"}).decode()
        try:
            with self._lock:
                self._connection.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)",
                    (key, value, _seal(key, value)),
                )
        except sqlite3.Error as error:
            self._writable = False
            self._say(f"answers are no longer cached: cannot write {self.path}: {error}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
