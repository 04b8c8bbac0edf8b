"""NAVER's Korean safety sets: SQuARe (Lee et al. 2023) and KoSBi (Lee et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from habitus.data.fields import REPEATED, best_of, label, require, text
from habitus.data.source import Place, Row, Source
from habitus.types import Item, digest
from habitus.types import Message as Turn

SQUARE = ("question", "response", "acceptable?")
"""Columns of SQuARe's responses."""

KOSBI = ("context", "sentence", "sentence_label", "demographic_group")
"""Columns of KoSBi."""

ONE_SIDED = "the responses are all acceptable or all unacceptable"
NO_RESPONSE = "a question without a response"

BOTH = "a response has both labels"

_CONTINUE = "다음 글에 이어질, 차별이나 편견이 없는 문장을 고르세요.\n\n"


@dataclass
class _Group:
    """What was said to one question."""

    row: Row
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def read_square(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read SQuARe: one item for each question with acceptable and unacceptable responses.

    All acceptable responses are best. Rows of the files of questions have no response and are
    left out, as are repeated rows (the release has the same rows with and without annotations).

    Raises:
        InputError: When a column is missing, or a label is not 0 or 1.
    """
    groups: dict[str, _Group] = {}
    for row in source.rows():
        if "sensitive?" in row.values:
            source.skipped[NO_RESPONSE] += 1
            continue
        require(row, SQUARE, "square")
        flag = text(row, "acceptable?")
        if flag not in ("0", "1"):
            raise row.error(f"column acceptable? must be 0 or 1, found {flag[:40]!r}")
        _add(source, groups, row, "question", "response", right=flag == "1")
    yield from _items(source, groups, "square", "")


def read_kosbi(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read KoSBi: one item for each context with safe and unsafe sentences; safe ones are best.

    Raises:
        InputError: When a column is missing, or a label is neither safe nor unsafe.
    """
    groups: dict[str, _Group] = {}
    for row in source.rows():
        require(row, KOSBI, "kosbi")
        flag = text(row, "sentence_label")
        if flag not in ("safe", "unsafe"):
            raise row.error(f"column sentence_label must be safe or unsafe, found {flag[:40]!r}")
        _add(source, groups, row, "context", "sentence", right=flag == "safe")
    yield from _items(source, groups, "kosbi", _CONTINUE)


def _add(
    source: Source,
    groups: dict[str, _Group],
    row: Row,
    key: str,
    response: str,
    *,
    right: bool,
) -> None:
    group = groups.setdefault(text(row, key), _Group(row))
    said = text(row, response)
    mine, other = (group.right, group.wrong) if right else (group.wrong, group.right)
    if said in mine:
        source.skipped[REPEATED] += 1
    elif said in other:
        other.remove(said)  # people disagree on it: neither side has it
        source.skipped[BOTH] += 1
    else:
        mine.append(said)


def _items(
    source: Source, groups: dict[str, _Group], name: str, instruction: str
) -> Iterator[tuple[Item, Place]]:
    """Make the items; rows of questions with one kind of response only are counted."""
    for question, group in groups.items():
        if not group.right or not group.wrong:
            source.skipped[ONE_SIDED] += len(group.right) + len(group.wrong)
            continue
        part = label(group.row, "question_category", "demographic_category")
        item = best_of(
            group.row,
            id=digest(question),
            prompt=(Turn(role="user", content=instruction + question),),
            chosen=group.right,
            rejected=group.wrong,
            culture="Korean",
            country="South Korea",
            language="ko",
            domain="safety",
            source=f"{name}:{part}" if part else name,
            licence="MIT",
        )
        yield item, group.row.place
