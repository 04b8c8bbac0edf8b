"""What loading gives back: a benchmark, and the list of those that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from habitus.types import Item


@dataclass(frozen=True)
class Benchmark:
    """Items ready to be judged, with what was noticed while they were read."""

    name: str
    """A bundled benchmark's name, or the file's or folder's name without its suffix."""
    items: tuple[Item, ...]
    """The items, in the order of the source; at least one."""
    format: str
    """The format that they were read as, a key of `habitus.data.formats.FORMATS`."""
    path: Path
    """The file or folder that they were read from."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Reason to number of rows that were rightly left out, such as questions nobody answered."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know, such as "3 lone surrogates replaced by U+FFFD"."""


@dataclass(frozen=True)
class BundledBenchmark:
    """One benchmark that comes with the package."""

    name: str
    """What `load` takes, such as "carb-open:quick"."""
    version: str
    """Version of the data, not of the package."""
    licence: str
    """SPDX identifier."""
    n_items: int
    """How many items it has; 0 when its file is missing from the installation."""
    description: str
    """One line in English."""
    path: Path
    """The file in native format, or a folder of such files."""
