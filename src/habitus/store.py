"""The run folder: `run.json`, `items.jsonl`, `judgements.jsonl`, and what is rebuilt from them.

The resolved configuration is written first, then one line per finished judgement. A process may
be killed at any byte: what is complete stays, a torn last line is dropped on resume, and the
finished file is in the order of the items, so that it equals that of an unbroken run.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import FileIO
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from habitus import __version__
from habitus.errors import InputError, RunError
from habitus.types import Frozen, Item, Judgement, RunInfo

RUN, ITEMS, JUDGEMENTS = "run.json", "items.jsonl", "judgements.jsonl"
METRICS, REPORT = "metrics.json", "report.html"


def dump_line(record: Frozen) -> bytes:
    """Return a record as one line of readable UTF-8 JSON; keys that are None are left out."""
    return record.model_dump_json(exclude_none=True).encode() + b"\n"


def write_atomic(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file so that it is either the old one or the whole new one.

    Raises:
        RunError: When the disk is full or the folder cannot be written.
    """
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as out:
                for chunk in chunks:
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a folder to write to that becomes `path` at the end: whole, or not at all.

    What is at `path` already is replaced. Processes that may want the same folder need a lock.

    Raises:
        RunError: When the folder cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir()
    yield partial
    with os_errors(path):
        shutil.rmtree(path, ignore_errors=True)
        partial.replace(path)


@contextmanager
def os_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Turn an operating system's refusal into one line that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}{kept}") from error


@contextmanager
def hold(lock: Path, path: Path) -> Iterator[None]:
    """Hold what is written at `path` for this process, however the process ends.

    Args:
        lock: The lock file.
        path: What to name in errors.

    Raises:
        RunError: When another process holds it, or the folder cannot be made.
    """
    with os_errors(path):
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(lock)
        try:
            held.acquire(timeout=0)
        except Timeout as error:
            raise RunError(
                f"another process is working on {path}; wait for it, or name another --out"
            ) from error
    try:
        yield
    finally:
        held.release()


def write_json(path: Path, value: Any, *, indent: int = 1) -> None:
    """Write a value as readable UTF-8 JSON, whole or not at all.

    Raises:
        RunError: When the disk is full or the folder cannot be written.
        ValueError: When a number is not finite: JSON has no such numbers.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    write_atomic(path, [text.encode(), b"\n"])


def safe_name(name: str) -> str:
    """Return a name with only letters that every file system takes."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)


def read_judgements(path: Path) -> Iterator[Judgement]:
    """Read the finished judgements of a log, one by one; a torn last line is left out."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield Judgement.model_validate_json(line)


@dataclass
class RunFolder:
    """One run on disk."""

    path: Path
    """The folder."""

    @property
    def info(self) -> RunInfo:
        """The resolved configuration.

        Raises:
            RunError: When the folder holds no readable `run.json`.
        """
        file = self.path / RUN
        if not self.path.exists():
            raise InputError(f"no such run folder: {self.path}")
        if not file.is_file():
            raise InputError(f"{self.path} is no run folder: it has no {RUN}")
        try:
            return RunInfo.model_validate_json(file.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise RunError(f"{file}: {place or 'the file'}: {first['msg']}") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the lock ends with the process, however it ends.

        Raises:
            RunError: When another process holds it, or the folder cannot be made.
        """
        with hold(self.path / ".lock", self.path):
            yield

    def start(self, info: RunInfo, items: Iterable[Item]) -> None:
        """Write the configuration and the items, before anything is judged."""
        write_atomic(self.path / ITEMS, (dump_line(item) for item in items))
        text = json.dumps(info.model_dump(mode="json"), ensure_ascii=False, indent=2)
        write_atomic(self.path / RUN, [text.encode(), b"\n"])

    def items(self) -> Iterator[Item]:
        """Read the items, one by one."""
        with (self.path / ITEMS).open("rb") as lines:
            for line in lines:
                yield Item.model_validate_json(line)

    def judgements(self) -> Iterator[Judgement]:
        """Read the finished judgements, one by one; a torn last line is left out."""
        return read_judgements(self.path / JUDGEMENTS)


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Habitus, Python and those of the libraries that are installed."""
    found = {"habitus": __version__, "python": platform.python_version()}
    for name in libraries:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def check_same(old: RunInfo, new: RunInfo, path: Path) -> None:
    """Refuse to resume with another configuration (see `refuse_changes`)."""
    refuse_changes(_identity(old), _identity(new), path)


def refuse_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Refuse to go on at `path` with another configuration.

    Raises:
        RunError: Naming each key that differs, with both values.
    """
    before, after = flat(old), flat(new)
    differing = [
        f"{key} was {before.get(key)!r} and is now {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    if differing:
        raise RunError(
            f"{path} was made with another configuration: {'; '.join(differing)}; "
            "give the old options, or name another --out"
        )


def _identity(info: RunInfo) -> dict[str, Any]:
    whole = info.model_dump(mode="json")
    return {key: whole[key] for key in ("config", "scorer", "seed", "n_items")}


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a configuration as one level of names: {"a": {"b": 1}} is {"a.b": 1}."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found |= flat(inner, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = inner
    return found


def append_whole(file: FileIO, path: Path, end: int, data: bytes, kept: str) -> None:
    """Write all of `data` at the end of an unbuffered file, or nothing.

    What this returned from is with the system, and survives the process.

    Args:
        file: The file, open for appending.
        path: Its path.
        end: Its length.
        data: What to write: whole lines.
        kept: Ends the message when it cannot be written: what is kept, and what to do.

    Raises:
        RunError: When it cannot be written. What was there before is still whole.
    """
    with os_errors(path, kept):
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            os.truncate(path, end)  # no torn line stays
            raise


class JudgementLog:
    """The append-only `judgements.jsonl` of a run that holds the folder's lock."""

    def __init__(self, path: Path, units: Mapping[str, str], *, retry_failed: bool = False) -> None:
        """Open the log, drop a torn last line, and find out what is done.

        Args:
            path: The file.
            units: Item id to the unit digest that its judgement must carry.
            retry_failed: Forget judgements with the status "error", so that they are done again.

        Raises:
            RunError: When a complete line is not what this run could have written.
        """
        self.path = path
        self.done: dict[str, tuple[int, int]] = {}
        """Item id to the place (offset, length) of its line."""
        self._order = list(units)
        with os_errors(path):
            path.touch()
            self._end = self._scan(units, retry_failed)
            os.truncate(path, self._end)
            self._file = path.open("ab", buffering=0)  # what append() returned is with the system

    def _scan(self, units: Mapping[str, str], retry_failed: bool) -> int:
        offset = 0
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # torn by a kill: it is judged again
                item_id, status = self._check(number, line, units)
                if not (retry_failed and status == "error"):
                    self.done[item_id] = (offset, len(line))
                offset += len(line)
        return offset

    def _check(self, number: int, line: bytes, units: Mapping[str, str]) -> tuple[str, str]:
        """Return item id and status of a complete line that this run can have written."""
        try:
            record = json.loads(line)
            item_id, unit, status = record["item_id"], record["unit"], record["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{self.path}, line {number}: not a judgement; delete the line and --resume"
            ) from error
        if units.get(item_id) != unit:
            raise RunError(
                f"{self.path}, line {number}: the judgement of item {item_id!r} is not of this "
                "run; delete the line, or name another --out"
            )
        return item_id, status

    def append(self, judgement: Judgement) -> None:
        """Write one finished judgement; it survives the process from here on.

        Raises:
            RunError: When it cannot be written. What was there before is still whole.
        """
        line = dump_line(judgement)
        kept = f"; {len(self.done)} judgements are kept: make room and run again with --resume"
        append_whole(self._file, self.path, self._end, line, kept)
        self.done[judgement.item_id] = (self._end, len(line))
        self._end += len(line)

    def finish(self) -> None:
        """Bring the lines into the order of the items, so that equal runs have equal bytes."""
        places = [self.done[item_id] for item_id in self._order if item_id in self.done]
        in_order = all(
            start + length == following
            for (start, length), (following, _) in itertools.pairwise(places)
        )
        if in_order and sum(length for _, length in places) == self._end:
            return
        write_atomic(self.path, self._lines(places))

    def _lines(self, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        with self.path.open("rb") as lines:
            for start, length in places:
                lines.seek(start)
                yield lines.read(length)

    def close(self) -> None:
        """Sync and close the file."""
        with os_errors(self.path):
            os.fsync(self._file.fileno())
        self._file.close()


def default_path(benchmark: str, scorer: str, seed: int) -> Path:
    """Return `runs/BENCHMARK__MODEL__sSEED`, with only letters that every file system takes."""
    return Path("runs") / safe_name(f"{benchmark}__{scorer}__s{seed}")[:150]
