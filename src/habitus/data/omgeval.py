"""OMGEval (Liu et al. 2024): open prompts in several languages, and models' published answers.

A checkout has `data/*.txt`, one prompt a line, with a localised part of each language in
`*_local.txt`, and `model_outputs/LANGUAGE/MODEL.json`, rows of instruction and output in the order
of the prompts. The prompts of one line number say the same in all languages, or are localised.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.data.source import Source, decode, read_bytes
from habitus.errors import InputError

LANGUAGES = {
    "arabic": ("Arabic", "ar"),
    "chinese": ("Chinese", "zh"),
    "english": ("English", "en"),
    "french": ("French", "fr"),
    "italian": ("Italian", "it"),
    "japanese": ("Japanese", "ja"),
    "korean": ("Korean", "ko"),
    "portuguese": ("Portuguese", "pt"),
    "russia": ("Russian", "ru"),
    "russian": ("Russian", "ru"),
    "spanish": ("Spanish", "es"),
}
"""Words in the names of files and folders to the language's name and BCP 47 tag."""


@dataclass(frozen=True)
class OpenPrompt:
    """One prompt, and what models answered."""

    number: int
    """Its line, from 0; lines of one number belong together across languages."""
    language: str
    """The language's English name."""
    tag: str
    """Its BCP 47 tag."""
    text: str
    """The prompt."""
    local: bool
    """Whether it is in the localised part."""
    answers: tuple[tuple[str, str], ...] = ()
    """Model and its published answer, by the model's name; empty answers are there too."""


def read(source: Source) -> list[OpenPrompt]:
    """Read all prompts of a checkout, language by language.

    Where a language has published answers, the prompts are those that were answered.

    Raises:
        InputError: When there are neither prompts nor answers, or a file is not as published.
    """
    root = source.path
    if not root.is_dir():
        raise InputError(f"{root}: give the folder of an OMGEval checkout")
    prompts, local = _prompt_files(root)
    outputs = _answers(source, root / "model_outputs")
    found: list[OpenPrompt] = []
    for language in sorted(prompts.keys() | outputs.keys()):
        rows = outputs.get(language)
        texts = [text for text, _ in rows] if rows else prompts[language]
        name, tag = language
        for number, text in enumerate(texts):
            answers = rows[number][1] if rows else ()
            inside = text in local.get(language, ())
            found.append(OpenPrompt(number, name, tag, text, inside, answers))
    if not found:
        raise InputError(
            f"{root}: no prompts in data/*.txt and no answers in model_outputs/LANGUAGE/MODEL.json; "
            "give the folder of an OMGEval checkout"
        )
    return found


_Language = tuple[str, str]
_Answered = list[tuple[str, tuple[tuple[str, str], ...]]]


def _language(name: str) -> _Language | None:
    words = name.lower().replace("-", "_").split("_")
    return next((LANGUAGES[word] for word in words if word in LANGUAGES), None)


def _prompt_files(root: Path) -> tuple[dict[_Language, list[str]], dict[_Language, set[str]]]:
    prompts: dict[_Language, list[str]] = {}
    local: dict[_Language, set[str]] = {}
    for file in sorted((root / "data").glob("*.txt")):
        language = _language(file.stem)
        if language is None:
            continue
        lines = decode(read_bytes(file), file).split("\n")
        texts = [line.strip() for line in lines if line.strip()]
        if file.stem.lower().endswith("_local"):
            local[language] = set(texts)
        else:
            prompts[language] = texts
    return prompts, local


def _answers(source: Source, folder: Path) -> dict[_Language, _Answered]:
    found: dict[_Language, _Answered] = {}
    for place in sorted(path for path in folder.glob("*") if path.is_dir()):
        language = _language(place.name)
        files = sorted(place.glob("*.json"))
        if language is None or not files:
            continue
        columns = {file.stem: _rows(source, file) for file in files}
        first = columns[files[0].stem]
        for name, rows in columns.items():
            differing = [
                number
                for number, (one, other) in enumerate(zip(first, rows, strict=False), 1)
                if one[0].split() != other[0].split()  # line ends differ between models' files
            ]
            if len(rows) != len(first) or differing:
                where = f"row {differing[0]}" if differing else f"{len(rows)} rows"
                raise InputError(
                    f"{place / name}.json, {where}: the prompts are not those of "
                    f"{files[0].name}; all models of a language answer the same prompts"
                )
        found[language] = [
            (text, tuple((name, rows[number][1]) for name, rows in columns.items()))
            for number, (text, _) in enumerate(first)
        ]
    return found


def _rows(source: Source, file: Path) -> list[tuple[str, str]]:
    document: Any = source.document(file)
    if not isinstance(document, list) or not document:
        raise InputError(f"{file}: expected an array of rows with instruction and output")
    rows = []
    for number, row in enumerate(document, 1):
        if not isinstance(row, dict) or not all(
            isinstance(row.get(key), str) for key in ("instruction", "output")
        ):
            raise InputError(f"{file}, row {number}: needs instruction and output, both texts")
        rows.append((row["instruction"].strip(), row["output"]))
    return rows
