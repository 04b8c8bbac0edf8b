"""Import a benchmark: read any format, check it, and write a folder in native format."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from habitus import __version__
from habitus.data import bundles
from habitus.data.benchmark import Benchmark
from habitus.data.cards import ImportCard, card_text, make_card
from habitus.data.loading import load
from habitus.data.sampling import take
from habitus.data.source import MORE_SUFFIXES, SUFFIXES, suffix_of
from habitus.errors import InputError, RunError
from habitus.store import dump_line, hold, write_atomic

ITEMS, CARD, CARD_TEXT = "items.jsonl", "card.json", "CARD.md"
"""The files of a benchmark folder. The card is written last: a folder without one is unfinished."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*( (AND|OR|WITH) [A-Za-z0-9][A-Za-z0-9.+-]*)*")


def import_benchmark(
    source: str,
    out: Path,
    *,
    format: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    name: str | None = None,
    licence: str | None = None,
    force: bool = False,
) -> ImportCard:
    """Read a benchmark in any known format and write it as a folder that `load` takes.

    The folder holds `items.jsonl`, `card.json` and `CARD.md`. Equal input gives equal bytes.

    Args:
        source: As of `load`.
        out: The folder to write.
        format: As of `load`.
        seed: Seed of whatever the format draws, and of `limit`.
        limit: How many items to take, spread over cultures and domains; None for all.
        name: The benchmark's name; None takes it from the source.
        licence: Licence, an SPDX identifier, of the items whose source names none.
        force: Replace a benchmark that the folder holds.

    Returns:
        The card, as written.

    Raises:
        InputError: When the source or an option is wrong.
        RunError: When the folder holds something, or cannot be written.
    """
    for value, pattern, option, example in (
        (name, _NAME, "name", "my-benchmark"),
        (licence, _LICENCE, "licence", "CC-BY-4.0"),
    ):
        if value is not None and not pattern.fullmatch(value):
            raise InputError(f"--{option} {value[:60]!r} will not do; give one such as {example}")
    _check_out(out, force)  # before the source is read: that may take long
    benchmark = load(source, format=format, seed=seed)
    _check_apart(benchmark.path, out)
    benchmark = replace(benchmark, items=take(benchmark.items, limit, seed))
    if licence is not None:
        benchmark = _licensed(benchmark, licence)
    card = make_card(
        benchmark.items,
        name=name or _slug(benchmark.name),
        format=benchmark.format,
        source=source if source in bundles.paths() else benchmark.path.resolve().name,
        source_sha256=source_digest(benchmark.path),
        seed=seed,
        limit=limit,
        habitus=__version__,
        skipped=dict(benchmark.skipped),
        notes=benchmark.notes,
    )
    with hold(out / ".lock", out):
        _check_out(out, force)
        (out / CARD).unlink(missing_ok=True)
        write_atomic(out / ITEMS, (dump_line(item) for item in benchmark.items))
        write_atomic(out / CARD_TEXT, [card_text(card).encode()])
        write_atomic(
            out / CARD, [card.model_dump_json(indent=2, exclude_none=True).encode(), b"\n"]
        )
    return card


def source_digest(path: Path) -> str:
    """Return the sha256 of a file; of a folder, that of its files' names and digests.

    Hidden files are left out. The order of the files on disk does not matter.
    """
    if path.is_file():
        return _file_digest(path)
    sha = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in inside.parts):
            sha.update(f"{_file_digest(file)}  {inside.as_posix()}\n".encode())
    return sha.hexdigest()


def _file_digest(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error


def _check_out(out: Path, force: bool) -> None:
    """Refuse a folder whose contents would be lost, or read together with the items."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; name a folder with --out")
    others = [
        path
        for path in (sorted(out.rglob("*")) if out.is_dir() else [])
        if suffix_of(path) in (*SUFFIXES, *MORE_SUFFIXES)
        and path not in (out / ITEMS, out / CARD)
        and not any(part.startswith(".") for part in path.relative_to(out).parts)
    ]
    if others:
        raise RunError(
            f"{out} holds other data ({others[0].relative_to(out)}), which would be read with the "
            "items; name another --out"
        )
    if not force and any((out / file).exists() for file in (ITEMS, CARD, CARD_TEXT)):
        raise RunError(f"{out} holds a benchmark; add --force to replace it, or name another --out")


def _check_apart(source: Path, out: Path) -> None:
    """Refuse to write into what was read."""
    read, written = source.resolve(), out.resolve()
    if written == read or read in written.parents or read.parent == written:
        raise RunError(f"{out} is in the source, {source}, or holds it; name another --out")


def _licensed(benchmark: Benchmark, licence: str) -> Benchmark:
    """Give the licence to the items without one.

    Raises:
        InputError: When all items have one: it is not ours to change.
    """
    if all(item.licence is not None for item in benchmark.items):
        stated = ", ".join(sorted({str(item.licence) for item in benchmark.items}))
        raise InputError(
            f"--licence {licence}: every item of {benchmark.name} has a licence already "
            f"({stated}); leave the option out"
        )
    return replace(
        benchmark,
        items=tuple(
            item if item.licence else item.model_copy(update={"licence": licence})
            for item in benchmark.items
        ),
    )


def _slug(name: str) -> str:
    """Return a name with only the characters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100] or "benchmark"
