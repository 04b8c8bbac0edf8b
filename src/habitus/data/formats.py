"""The formats that can be read, and how one is told from a row's columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from habitus.data import hh_rlhf, mena, wikiquote
from habitus.data.source import Place, Row, Source, found
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
    "blend-own": "habitus.data.blend_own:read",
    "globalopinionqa": "habitus.data.globalopinionqa:read",
    "hh-rlhf": "habitus.data.hh_rlhf:read",
    "oasst1-zh": "habitus.data.oasst:read",
    "square": "habitus.data.korean_safety:read_square",
    "kosbi": "habitus.data.korean_safety:read_kosbi",
    "ruhhh": "habitus.data.mera:read",
    "petci": "habitus.data.petci:read",
    "wikiquote-proverbs": "habitus.data.wikiquote:read",
    "jcm": "habitus.data.jcm:read",
    "include": "habitus.data.include:read",
    "helpsteer3": "habitus.data.helpsteer3:read",
    "care": "habitus.data.care:read",
    "mena-values": "habitus.data.mena:read",
}
"""Format to the "module:attribute" of its importer."""

FORMATS = Registry("format", IMPORTERS, group="habitus.formats")
"""The importers, and those that other packages add."""

COLUMNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("globalopinionqa", ("question", "selections", "options")),
    ("globalopinionqa", ("country", "question", "options", "distribution")),
    ("globalopinionqa", ("attribute", "question", "options", "gold_distribution")),
    ("square", ("question", "response", "acceptable?")),
    ("square", ("question", "sensitive?")),
    ("kosbi", ("context", "sentence", "sentence_label", "demographic_group")),
    ("ruhhh", ("query", "ans1", "ans2", "lb")),
    ("petci", ("chinese", "gold", "human", "machine")),
    ("jcm", ("", "sent", "label")),
    ("include", ("language", "country", "question", "answer", "regional_feature")),
    ("helpsteer3", ("context", "response1", "response2", "overall_preference")),
    ("care", ("question", "response", "rating", "culture_type")),
    ("care", ("question", "answer", "culture_type")),
)
"""Formats that are told by the names of their columns alone, none of which others have."""

_RANKED = ("instruction", "output", "history")
_RANKED_FILE = re.compile(r"oa(a|s)st.*zh", re.IGNORECASE)  # LLaMA-Factory writes oaast
_BLEND_FILE = re.compile(r".+_data\.json")


def importer(name: str) -> Importer:
    """Return the importer of a format.

    Raises:
        UnknownNameError: When there is no such format.
    """
    return cast("Importer", FORMATS.get(name))


def detect(source: Source) -> str:
    """Tell the format, from the names of the files or from the first row's columns.

    The first that fits is taken, in this order, so that the answer is always the same:

    1. blend: `<Region>_data.json` files, in the folder itself, `annotations/` or
       `data/annotations/`; or one such file.
    2. wikiquote-proverbs: `proverbs_idiomatic.en-XX.XX` and the like. mena-values: an .xlsx file.
    3. native: candidates, best_ids.
    4. carb: chosen, rejected, language, subset, and a subset that starts with "cultural_".
    5. rewardbench2: id, prompt, chosen, rejected, subset, with a list in chosen or rejected.
    6. rewardbench: the same with texts.
    7. rm-bench: id, prompt, chosen, rejected, domain, with three texts on both sides.
    8. m-rewardbench: id, prompt, chosen, rejected, source, and a language in a column or as a
       FLORES-200 code in the name of the file or its folder.
    9. hh-rlhf: chosen and rejected alone, in a folder that is named as the published ones
       (harmless-base, helpful-base, ...): the form alone does not tell whose data it is.
    10. generic: chosen, rejected.
    11. oasst1-zh: instruction, output, history, with a list in output, in a file that is named so.
    12. What stands in `COLUMNS`.

    Raises:
        InputError: When none fits, naming the columns that were found.
    """
    if name := _by_files(source):
        return name
    row = source.first
    columns = set(row.values)
    if {"candidates", "best_ids"} <= columns:
        return "native"
    if {"chosen", "rejected"} <= columns:
        return _by_pair(row, columns)
    ranked = columns.issuperset(_RANKED) and isinstance(row.values["output"], list)
    if ranked and _RANKED_FILE.search(row.place.file.name):
        return "oasst1-zh"
    for name, needed in COLUMNS:
        if columns.issuperset(needed):
            return name
    raise InputError(
        f"{row.place}: no known format has these columns: {found(row)}; give chosen and rejected "
        f"(and prompt), or the native candidates and best_ids, or name the --format: "
        f"{', '.join(IMPORTERS)}"
    )


def _by_files(source: Source) -> str | None:
    """Tell the formats whose files are no tables of rows."""
    if annotation_files(source):
        return "blend"
    if wikiquote.languages(source.path):
        return "wikiquote-proverbs"
    if mena.workbook(source.path):
        return "mena-values"
    return None


def _by_pair(row: Row, columns: set[str]) -> str:
    """Tell the formats whose columns chosen and rejected hold the responses."""
    values = row.values
    full = {"id", "prompt"} <= columns
    lists = isinstance(values["chosen"], list) or isinstance(values["rejected"], list)
    if "language" in columns and str(values.get("subset")).startswith("cultural_"):
        return "carb"
    if full and "subset" in columns:
        return "rewardbench2" if lists else "rewardbench"
    if full and "domain" in columns and _three(values["chosen"]) and _three(values["rejected"]):
        return "rm-bench"
    if full and "source" in columns and ("language" in columns or row.language):
        return "m-rewardbench"
    if columns == {"chosen", "rejected"} and hh_rlhf.subset(row.place.file.absolute()):
        return "hh-rlhf"
    return "generic"


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
