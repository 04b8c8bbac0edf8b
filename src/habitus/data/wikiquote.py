"""Proverbs of Wikiquote: the idiomatic against the literal translation.

The form is that of the test set in Sockeye's repository (branch naacl2022): text files of one
proverb a line, `proverbs_idiomatic.en-de.de` beside `proverbs_literal.en-de.de` and the English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from habitus import taxonomy
from habitus.data.fields import REPEATED, best_of, problem
from habitus.data.source import Place, Row, Source, decode, read_bytes
from habitus.errors import InputError
from habitus.types import Item, Message, digest

_PROMPTS = {
    "de": "Wie sagt man dieses englische Sprichwort auf Deutsch?\n\n",
    "ru": "Как сказать эту английскую пословицу по-русски?\n\n",
}
_ENGLISH = "How does one say this English proverb in {}?\n\n"
_FILE = re.compile(r"proverbs_(?:idiomatic|literal)\.en-([a-z]{2,3})\.(?:en|\1)")


def languages(path: Path) -> list[str]:
    """Return the languages whose proverbs are in a folder, or beside and in one of its files."""
    if path.is_file():
        found = _FILE.fullmatch(path.name)
        return [found[1]] if found else []
    if not path.is_dir():
        return []
    matches = (_FILE.fullmatch(file.name) for file in path.iterdir())
    return sorted({match[1] for match in matches if match})


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read the folder, or the language that one of its files is of.

    Raises:
        InputError: When a file is missing, or the files of a language differ in length.
    """
    folder = source.path.parent if source.path.is_file() else source.path
    tags = languages(source.path)
    if not tags:
        raise InputError(
            f"{source.path}: no proverbs_idiomatic.en-XX.XX here; give the folder of the text files"
        )
    seen: set[str] = set()
    for tag in tags:
        names = (f"idiomatic.en-{tag}.en", f"idiomatic.en-{tag}.{tag}", f"literal.en-{tag}.{tag}")
        files = [folder / f"proverbs_{name}" for name in names]
        lines = [_lines(file) for file in files]
        if len({len(part) for part in lines}) > 1:
            counts = ", ".join(f"{f.name} {len(p)}" for f, p in zip(files, lines, strict=True))
            raise InputError(f"{folder}: the files differ in lines: {counts}; they must be aligned")
        for number, (english, idiom, literal) in enumerate(zip(*lines, strict=True), start=1):
            place = Place(files[1], number)
            id = digest([tag, english, idiom, literal])
            reason = REPEATED if id in seen else problem([english, idiom], [literal])
            seen.add(id)
            if reason:
                source.skipped[reason] += 1
            else:
                yield _item(Row({}, place), tag, id, english, idiom, literal), place


def _item(row: Row, tag: str, id: str, english: str, idiom: str, literal: str) -> Item:
    known = taxonomy.lookup(tag)
    prompt = _PROMPTS.get(tag) or _ENGLISH.format(known.name if known else tag)
    return best_of(
        row,
        id=id,
        prompt=(Message(role="user", content=prompt + english),),
        chosen=[idiom],
        rejected=[literal],
        language=tag,
        domain="linguistics",
        source=f"wikiquote-proverbs:en-{tag}",
        licence="CC-BY-SA-3.0",
        parent_id=digest(english),
        author="human",
    )


def _lines(file: Path) -> list[str]:
    try:
        text = decode(read_bytes(file), file)
    except FileNotFoundError as error:
        raise InputError(f"{file}: is missing; the proverbs need all three files") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    return [line.strip() for line in text.removesuffix("\n").split("\n")]
