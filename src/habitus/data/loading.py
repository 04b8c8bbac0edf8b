"""Load a benchmark: find it, tell its format, read it, and check what holds for all formats."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from habitus.data import bundles
from habitus.data.benchmark import Benchmark
from habitus.data.formats import detect, importer
from habitus.data.source import MORE_SUFFIXES, SUFFIXES, Place, Source, suffix_of
from habitus.errors import InputError, UnknownNameError
from habitus.types import Item

_OTHER_DATA = (*SUFFIXES, *MORE_SUFFIXES, ".tsv", ".txt", ".gz", ".zip", ".arrow", ".xlsx")


def load(source: str, *, format: str | None = None, seed: int = 0) -> Benchmark:
    """Load a bundled benchmark or one's own data.

    Args:
        source: A bundled benchmark's name, or the path of a file or folder. A bundled name wins
            over a path of the same name; write `./name` for the path. A folder is read as one
            benchmark: all its JSON, JSONL and Parquet files, one after the other; where there is
            none, its CSV and compressed files.
        format: Name of the format; None to tell it from the data (see `formats.detect`).
        seed: Seed of whatever the format draws (only BLEnD does).

    Returns:
        The benchmark. Ids are as in the source. Where they repeat across a folder's files or
        across a file's languages, as in translations, all get a prefix, the language ("ar:12")
        or, where that does not tell them apart, the file ("test-0:12"); the id in the source
        becomes `parent_id`, unless there is one, so that intervals are clustered by it.

    Raises:
        UnknownNameError: When the name, or the format, is unknown.
        InputError: When the file is missing or wrong; the message says where and what to do.
    """
    path, name = _find(source)
    read = Source(path, seed=seed)
    chosen = format or detect(read)
    with _collector_paused():
        items, note = _items(chosen, read)
    notes = (note, *read.notes) if note else read.notes
    return Benchmark(name, items, chosen, path, dict(read.skipped), notes)


def _items(format: str, source: Source) -> tuple[tuple[Item, ...], str | None]:
    """Read a source's items, and make their ids unique.

    Raises:
        InputError: When there is none.
    """
    placed = list(importer(format)(source))
    if not placed:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in source.skipped.items())
        raise InputError(f"{source.path}: no item is left ({reasons or 'no rows'})")
    return _unique(placed, source, across_languages=format != "native")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: it takes half the time of loading 100,000 rows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _find(source: str) -> tuple[Path, str]:
    """Return the path of a source, and the benchmark's name."""
    shipped = bundles.paths()
    if source in shipped:
        if not shipped[source].exists():
            raise InputError(f"the file of {source} is missing from the installation; reinstall")
        return shipped[source], source
    path = Path(source).expanduser()
    try:
        exists = bool(source) and path.exists()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if exists:
        whole = path.is_dir() or not suffix_of(path)
        return path, path.resolve().name if whole else path.name[: -len(suffix_of(path))]
    looks_like_path = "/" in source or "\\" in source or path.suffix.lower() in _OTHER_DATA
    if looks_like_path:
        raise InputError(f"no such file or folder: {source}")
    raise UnknownNameError("benchmark", source, shipped)


def _unique(
    placed: list[tuple[Item, Place]], source: Source, *, across_languages: bool
) -> tuple[tuple[Item, ...], str | None]:
    """Check that ids are unique, or prefix them where they repeat for a known reason.

    Raises:
        InputError: When an id repeats within one file (and one language of it).
    """
    seen: dict[tuple[Path, str | None, str], Place] = {}
    repeated: list[tuple[str, Place, Place]] = []
    for item, place in placed:
        key = (place.file, item.language if across_languages else None, item.id)
        first = seen.setdefault(key, place)
        if first is not place:
            repeated.append((item.id, first, place))
    if repeated:
        listed = ", ".join(
            f"{id[:60]!r} ({first.unit}s {first.number} and {second.number})"
            for id, first, second in repeated[:3]
        )
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        raise InputError(
            f"{repeated[0][1].file}: duplicate ids: {listed}{more}; ids must be unique"
        )
    if _all_differ(item.id for item, _ in placed):
        return tuple(item for item, _ in placed), None
    by_language = [f"{item.language or 'und'}:{item.id}" for item, _ in placed]
    if _all_differ(by_language):
        ids, prefix = by_language, "language"
    else:
        ids, prefix = [f"{source.label(place)}:{item.id}" for item, place in placed], "file"
        if not _all_differ(ids):
            ids = [
                f"{item.language or 'und'}:{id}" for (item, _), id in zip(placed, ids, strict=True)
            ]
            prefix = "language and file"
    items = tuple(
        item.model_copy(update={"id": id, "parent_id": item.parent_id or item.id})
        for (item, _), id in zip(placed, ids, strict=True)
    )
    return items, f"ids repeat across files or languages and were prefixed with the {prefix}"


def _all_differ(ids: Iterable[str]) -> bool:
    return max(Counter(ids).values()) == 1
