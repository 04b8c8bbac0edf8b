"""Which reward model of one set of runs is which of another, and what else is known of it."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from habitus.errors import InputError

How = Literal["auto", "digest", "name"]
"""Match by digest, by name, or by digest and then by name."""


@dataclass(frozen=True)
class Named:
    """A reward model as one set of runs knows it."""

    names: tuple[str, ...]
    """What it may be called, its label first."""
    digest: str
    """Digest of its specification."""


@dataclass(frozen=True)
class Matches:
    """Which are the same."""

    pairs: dict[int, int]
    """Index on the left to index on the right."""
    by_name: tuple[int, ...]
    """Those on the left that were matched by name although their digests differ."""
    ambiguous: tuple[str, ...]
    """Names that several share, so that they match nothing."""
    unmatched: tuple[int, ...]
    """Those on the right that match nothing."""


def match(left: Sequence[Named], right: Sequence[Named], how: How = "auto") -> Matches:
    """Find each reward model's counterpart: by digest, then by label, then by any name.

    Args:
        left: Reward models, such as those of runs.
        right: Reward models, such as those of a downstream run.
        how: Which of the steps are taken.
    """
    pairs: dict[int, int] = {}
    ambiguous: dict[str, None] = {}
    if how != "name":
        pairs = _unique([(one.digest,) for one in left], [(one.digest,) for one in right], {})[0]
    by_name: dict[int, int] = {}
    if how != "digest":
        for most in (1, None):
            keys = [[one.names[:most] for one in side] for side in (left, right)]
            found, shared = _unique(keys[0], keys[1], pairs | by_name)
            by_name |= found
            ambiguous |= dict.fromkeys(shared)
    pairs |= by_name
    named = tuple(sorted(i for i, j in by_name.items() if left[i].digest != right[j].digest))
    taken = set(pairs.values())
    rest = tuple(j for j in range(len(right)) if j not in taken)
    lost = {name for j in rest for name in right[j].names}
    return Matches(pairs, named, tuple(name for name in ambiguous if name in lost), rest)


def _unique(
    left: Sequence[Sequence[str]], right: Sequence[Sequence[str]], done: Mapping[int, int]
) -> tuple[dict[int, int], list[str]]:
    """Match what is left by keys that only one of each side has; return shared keys too."""
    taken = set(done.values())
    mine = {i: keys for i, keys in enumerate(left) if i not in done}
    theirs = {j: keys for j, keys in enumerate(right) if j not in taken}
    times = [Counter(key for keys in side.values() for key in set(keys)) for side in (mine, theirs)]
    both = times[0].keys() & times[1].keys()
    single = {key for key in both if times[0][key] == times[1][key] == 1}
    owner = {key: j for j, keys in theirs.items() for key in keys if key in single}
    found: dict[int, int] = {}
    for i, keys in mine.items():
        place = next((owner[key] for key in keys if key in single), None)
        if place is not None and place not in found.values():
            found[i] = place
    return found, sorted(both - single)


@dataclass(frozen=True)
class Facts:
    """One row of a facts file."""

    name: str
    """The reward model: its label, name, digest or run folder."""
    parameters: float | None = None
    """Number of weights."""
    general: float | None = None
    """Score on a general benchmark."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """All other columns, such as `family`; empty cells are left out."""


def read_facts(path: Path) -> tuple[tuple[Facts, ...], tuple[str, ...]]:
    """Read a CSV file with a header: `name`, and any of `parameters`, `general`, `family`, more.

    Returns:
        The rows, and the names of the other columns.

    Raises:
        InputError: When the file cannot be read, a name is missing or there twice, or a number is
            none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text; save it as UTF-8") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    header = [name.strip() for name in reader.fieldnames or ()]
    if "name" not in header:
        raise InputError(
            f"{path}: no column 'name', only {', '.join(header) or 'nothing'}; the first line "
            "must name the columns, such as name,parameters,family,general"
        )
    reader.fieldnames = header
    rows: dict[str, Facts] = {}
    for row in reader:
        number = reader.line_num
        if None in row or None in row.values():
            raise InputError(f"{path}, line {number}: not {len(header)} cells; mend the commas")
        cells = {name: value.strip() for name, value in row.items()}
        name = cells["name"]
        if not name or name in rows:
            what = f"name {name!r} is there twice" if name else "no name"
            raise InputError(f"{path}, line {number}: {what}; give each reward model one line")
        numbers = {
            column: _number(path, number, column, cells.get(column, ""))
            for column in ("parameters", "general")
        }
        if numbers["parameters"] is not None and numbers["parameters"] <= 0:
            raise InputError(f"{path}, line {number}: parameters must be above 0; leave it empty")
        others = {key: cells[key] for key in header if key not in {"name", *numbers} and cells[key]}
        rows[name] = Facts(name, numbers["parameters"], numbers["general"], others)
    return tuple(rows.values()), tuple(
        name for name in header if name not in {"name", "parameters", "general"}
    )


def _number(path: Path, line: int, column: str, cell: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{path}, line {line}: {column} {cell!r} is no number; write digits, such as 7e9"
        )
    return value
