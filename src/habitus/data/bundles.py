"""The benchmarks that come with the package, as their cards list them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from habitus.data.benchmark import BundledBenchmark
from habitus.data.fields import first_problem
from habitus.errors import InputError
from habitus.types import Frozen

ROOT = Path(__file__).with_name("bundled")
"""The folder that holds a folder per benchmark, each with a card."""


class Part(Frozen):
    """One part of a bundled benchmark."""

    file: str
    """File in native format beside the card, or a folder of such files."""
    description: str
    """One line in English."""


class Card(Frozen):
    """`card.json`: what a bundled benchmark is, and its parts. A new part is a new entry."""

    name: str
    """Name of the benchmark, such as "carb-open"."""
    version: str
    """Version of the data."""
    licence: str
    """SPDX identifier."""
    description: str
    """One line in English."""
    parts: dict[str, Part]
    """Part to file; a part is loaded by `name:part`."""
    default: str | None = None
    """The part that the plain name stands for, where there is one."""


def bundled() -> list[BundledBenchmark]:
    """List the benchmarks that come with the package, by name.

    A card's default part is listed under the plain name.

    Raises:
        InputError: When a card is broken.
    """
    return [
        BundledBenchmark(
            name=name,
            version=card.version,
            licence=card.licence,
            n_items=_count(path),
            description=part.description,
            path=path,
        )
        for name, (card, part, path) in sorted(_parts().items())
    ]


def paths() -> dict[str, Path]:
    """Return the file or folder of each bundled benchmark by name, without opening it.

    Raises:
        InputError: When a card is broken.
    """
    return {name: path for name, (_, _, path) in _parts().items()}


def _parts() -> dict[str, tuple[Card, Part, Path]]:
    found = {}
    for file in sorted(ROOT.glob("*/card.json")):
        card = _card(file)
        for key, part in card.parts.items():
            name = card.name if key == card.default else f"{card.name}:{key}"
            found[name] = (card, part, file.parent / part.file)
    return found


def _card(file: Path) -> Card:
    try:
        return Card.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise InputError(f"{file}: {first_problem(error)}; reinstall habitus") from error


def _count(path: Path) -> int:
    """Count the rows of a JSONL file, or of a folder of them; 0 when it is missing."""
    if path.is_dir():
        return sum(_count(file) for file in path.glob("*.jsonl"))
    if not path.is_file():
        return 0
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
