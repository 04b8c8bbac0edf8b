"""From a source to its pairs: telling what it is, and reading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from habitus.data import bundles, load
from habitus.data.formats import detect
from habitus.data.importing import source_digest
from habitus.data.source import Source
from habitus.errors import InputError
from habitus.pairs.items import from_items, read_generic
from habitus.pairs.people import PersonCountry, prism_files, read_care, read_helpsteer3, read_prism
from habitus.pairs.reading import PAIRS, read_pairs
from habitus.pairs.surveys import read_surveys
from habitus.types import PreferencePair

NO_MARGIN = "pairs closer than the least margin"
"""Why a pair is left out of data that name margins."""

_OWN = frozenset(["item_id", "group", "prompt", "chosen", "rejected"])


@dataclass(frozen=True)
class Found:
    """What was read from a source."""

    pairs: tuple[PreferencePair, ...]
    """The pairs, without part and fold."""
    format: str
    """What the source was read as."""
    name: str
    """Name of the file or folder, or of the bundled benchmark; no path."""
    sha256: str
    """Digest of the source (see `source_digest`)."""
    path: Path
    """The file or folder that was read."""
    dropped: dict[str, int]
    """Reason to the number of rows, responses or pairs left out."""
    notes: tuple[str, ...]
    """What was noticed."""


def read_source(
    source: str,
    *,
    format: str | None = None,
    seed: int = 0,
    person_country: PersonCountry = "reside",
    min_margin: float | None = None,
) -> Found:
    """Read the pairs of a source.

    Args:
        source: A file, a folder, or a bundled benchmark's name.
        format: "prism", "pairs", or a format that benchmarks are imported from; None to tell it
            from the names of files and columns.
        seed: Seed of whatever a benchmark's format draws (only BLEnD does).
        person_country: Which of a person's countries counts (PRISM).
        min_margin: Least difference of shares (0 to 1) or ratings; None for the format's own.

    Raises:
        UnknownNameError: When the name, or the format, is unknown.
        InputError: When the source is missing or wrong, or holds no pair.
    """
    path = Path(source).expanduser()
    if source in bundles.paths() or not path.exists():
        return _items(source, format, seed, min_margin)
    files = prism_files(path) if format in (None, "prism") else None
    if format == "prism" and files is None:
        raise InputError(f"{path}: no utterances.jsonl and survey.jsonl of PRISM here")
    read = Source(files[0] if files else _pairs_file(path), seed=seed)
    name = "prism" if files else format or _format(read)
    if files:
        found = list(
            read_prism(read, files[1], person_country=person_country, min_margin=min_margin)
        )
    elif name == "globalopinionqa":
        found = list(read_surveys(read, min_margin))
    elif name == "care":
        found = list(read_care(read, min_margin))
    elif name == "helpsteer3":
        found = list(read_helpsteer3(read, min_margin))
    elif name == "generic":
        found = _far_enough(list(read_generic(read)), min_margin, read.skipped)
    elif name == "pairs":
        found = _far_enough(read_pairs(read.path), min_margin, read.skipped)
    else:
        return _items(source, name, seed, min_margin)
    if not found:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in read.skipped.items())
        raise InputError(f"{path}: no pair is left ({reasons or 'no rows'})")
    sha256 = source_digest(path.parent if files and path.is_file() else path)
    return Found(
        tuple(found), name, path.resolve().name, sha256, path, dict(read.skipped), read.notes
    )


def _pairs_file(path: Path) -> Path:
    """Return the pairs of a pairs folder, whose card is no data; else the path itself."""
    return path / PAIRS if path.is_dir() and (path / PAIRS).is_file() else path


def _format(source: Source) -> str:
    """Tell the format; pairs as `habitus pairs` writes them are told first."""
    if source.path.is_file() and source.path.name == PAIRS and source.first.values.keys() >= _OWN:
        return "pairs"
    return detect(source)


def _items(source: str, format: str | None, seed: int, min_margin: float | None) -> Found:
    """Read any benchmark, and pair its candidates."""
    benchmark = load(source, format=format, seed=seed)
    dropped = dict(benchmark.skipped)
    found = _far_enough(list(from_items(benchmark.items)), min_margin, dropped)
    bundled = source in bundles.paths()
    return Found(
        tuple(found),
        benchmark.format,
        source if bundled else benchmark.path.resolve().name,
        source_digest(benchmark.path),
        benchmark.path,
        dropped,
        benchmark.notes,
    )


def _far_enough(
    pairs: list[PreferencePair], least: float | None, dropped: dict[str, int]
) -> list[PreferencePair]:
    """Leave out pairs closer than the least margin, where one is given.

    Raises:
        InputError: When one is given and a pair has no margin.
    """
    if least is None:
        return pairs
    kept = []
    for pair in pairs:
        if pair.margin is None:
            raise InputError(
                f"the pair {pair.id[:60]!r} has no margin; leave --min-margin out, or add a column "
                "margin"
            )
        if pair.margin >= least:
            kept.append(pair)
    if len(kept) < len(pairs):
        dropped[NO_MARGIN] = len(pairs) - len(kept)
    return kept
