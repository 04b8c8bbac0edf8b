"""The formats that can be read, and how one is told from a row's columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from habitus.data.source import Place, Source, found
from habitus.errors import InputError
from habitus.registry import Registry
from habitus.types import Item

Importer = Callable[[Source], Iterator[tuple[Item, Place]]]
"""Reads a source; gives items, each with its place."""

IMPORTERS = {
    "native": "habitus.data.native:read",
    "carb": "habitus.data.carb:read",
    "rewardbench": "habitus.data.rewardbench:read",
    "rewardbench2": "habitus.data.rewardbench:read_second",
    "m-rewardbench": "habitus.data.rewardbench:read_multilingual",
    "rm-bench": "habitus.data.rm_bench:read",
    "generic": "habitus.data.generic:read",
    "blend": "habitus.data.blend:read",
}
"""Format to the "module:attribute" of its importer."""

FORMATS = Registry("format", IMPORTERS, group="habitus.formats")
"""The importers, and those that other packages add."""

_BLEND_FILE = re.compile(r".+_data\.json")


def importer(name: str) -> Importer:
    """Return the importer of a format.

    Raises:
        UnknownNameError: When there is no such format.
    """
    return cast("Importer", FORMATS.get(name))


def detect(source: Source) -> str:
    """Tell the format, from the names of the files (BLEnD) or from the first row's columns.

    The first that fits is taken, in this order, so that the answer is always the same:

    1. blend: `<Region>_data.json` files, in the folder itself, `annotations/` or
       `data/annotations/`; or one such file.
    2. native: candidates, best_ids.
    3. carb: chosen, rejected, language, subset, and a subset that starts with "cultural_".
    4. rewardbench2: id, prompt, chosen, rejected, subset, with a list in chosen or rejected.
    5. rewardbench: the same with texts.
    6. rm-bench: id, prompt, chosen, rejected, domain, with three texts on both sides.
    7. m-rewardbench: id, prompt, chosen, rejected, source, and a language in a column or as a
       FLORES-200 code in the name of the file or its folder.
    8. generic: chosen, rejected.

    Raises:
        InputError: When none fits, naming the columns that were found.
    """
    if annotation_files(source):
        return "blend"
    row = source.first
    values = row.values
    columns = set(values)
    pair = {"chosen", "rejected"} <= columns
    full = pair and {"id", "prompt"} <= columns
    lists = isinstance(values.get("chosen"), list) or isinstance(values.get("rejected"), list)
    if {"candidates", "best_ids"} <= columns:
        return "native"
    if pair and "language" in columns and str(values.get("subset")).startswith("cultural_"):
        return "carb"
    if full and "subset" in columns:
        return "rewardbench2" if lists else "rewardbench"
    if full and "domain" in columns and _three(values["chosen"]) and _three(values["rejected"]):
        return "rm-bench"
    if full and "source" in columns and ("language" in columns or row.language):
        return "m-rewardbench"
    if pair:
        return "generic"
    raise InputError(
        f"{row.place}: no known format has these columns: {found(row)}; give chosen and rejected "
        f"(and prompt), or the native candidates and best_ids; formats: {', '.join(IMPORTERS)}"
    )


def _three(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(v, str) for v in value)


def annotation_files(source: Source) -> dict[str, Path]:
    """Return BLEnD's annotation files by region; empty when the source has none."""
    path = source.path
    if path.is_file():
        folders = [path.parent] if _BLEND_FILE.fullmatch(path.name) else []
    else:
        folders = [path, path / "annotations", path / "data" / "annotations"]
    for folder in folders:
        files = sorted(folder.glob("*_data.json")) if folder.is_dir() else []
        if files:
            return {file.name.removesuffix("_data.json"): file for file in files}
    return {}
