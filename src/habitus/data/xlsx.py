"""The first sheet of an Excel workbook as text: enough for published tables, and nothing more."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from habitus.errors import InputError

LARGEST = 1 << 28
"""Most bytes of an unpacked part of the workbook."""

_SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_CELL = re.compile(r"([A-Z]{1,3})\d+")


def read_sheet(file: Path) -> list[dict[int, str]]:
    """Read the rows of the first sheet: column number, counted from 0, to the cell's text.

    Empty cells are left out. Formulas are not computed; the values that were saved are read.

    Raises:
        InputError: When the file is no workbook.
    """
    try:
        with zipfile.ZipFile(file) as book:
            names = book.namelist()
            strings = "xl/sharedStrings.xml"
            shared = (
                [_text(one) for one in _parse(book, strings).iter(f"{_SPACE}si")]
                if strings in names
                else []
            )
            sheet = _parse(book, "xl/worksheets/sheet1.xml")
            return [dict(_cells(row, shared)) for row in sheet.iter(f"{_SPACE}row")]
    except (zipfile.BadZipFile, KeyError, IndexError, ValueError, ElementTree.ParseError) as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(f"{file}: not a readable Excel workbook: {problem}") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error


def _parse(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if book.getinfo(name).file_size > LARGEST:
        raise ValueError(f"{name} is larger than {LARGEST:,} bytes")
    content = book.read(name)
    # No workbook declares entities, so none are expanded: that is how XML is made to explode.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ValueError(f"{name} declares entities")
    return ElementTree.fromstring(content)  # noqa: S314 - entities are refused above


def _cells(row: ElementTree.Element, shared: list[str]) -> Iterator[tuple[int, str]]:
    for cell in row.iter(f"{_SPACE}c"):
        place = _CELL.fullmatch(cell.get("r", ""))
        value = cell.findtext(f"{_SPACE}v")
        if cell.get("t") == "inlineStr":
            value = _text(cell)
        elif cell.get("t") == "s" and value is not None:
            value = shared[int(value)]
        if place is None:
            raise ValueError("a cell has no reference")
        if value:
            yield _number(place[1]), value


def _text(element: ElementTree.Element) -> str:
    """Return the text of a string, whose parts may differ in format."""
    return "".join(part.text or "" for part in element.iter(f"{_SPACE}t"))


def _number(letters: str) -> int:
    """Return a column's number, from 0: A is 0, Z is 25, AA is 26."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
