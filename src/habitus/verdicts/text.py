"""What letters and ratings share: thinking, normal form, tags, refusals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from habitus.types import Status
from habitus.verdicts import words

T = TypeVar("T")

LONGEST = 40_000
"""Characters of an answer that are read, from its end."""


@dataclass(frozen=True)
class Verdict(Generic[T]):
    """What a judge's text says."""

    status: Status
    """`ok`, `unparsed` or `refused`."""
    value: T | None = None
    """The letter or the rating; None unless the status is `ok`."""
    reason: str | None = None
    """Why there is no value, for people."""


class Split(NamedTuple):
    """A text in two."""

    thinking: str
    """What stands up to the last `</think>`, tags included; all of it while that is missing."""
    answer: str | None
    """What stands after it; None when the thinking does not end."""


_OPEN = re.compile(r"<(?:think|thinking|thought)>", re.IGNORECASE)
_CLOSE = re.compile(r"</(?:think|thinking|thought)>", re.IGNORECASE)
_CRITERIA = re.compile(r"<criteria>(?:(?!<criteria>).)*?</criteria>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(
    r"<(judge?ment|verdict|answer|final_answer|final|choice|decision|winner|rating|score)>"
    r"(.*?)(?:</\1>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_REFUSAL = re.compile("|".join(words.REFUSALS), re.IGNORECASE)


def split_thinking(text: str) -> Split:
    """Split a text into what was thought and what was answered.

    An opening tag may be missing, because some chat templates write it into the prompt.
    """
    end = 0
    for match in _CLOSE.finditer(text):
        end = match.end()
    if _OPEN.search(text, end):
        return Split(text, None)
    return Split(text[:end], text[end:])


def normal(text: str) -> str:
    """Return a text with full-width and styled characters made plain, and no invisible ones.

    Decimal digits of every script become ASCII digits.
    """
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    return "".join(
        str(unicodedata.digit(char)) if char.isdecimal() else char
        for char in plain
        if char.isascii() or unicodedata.category(char) != "Cf"
    )


def answer_of(text: str) -> tuple[str, str | None]:
    """Return the part that can hold a verdict, in normal form, and why there is none."""
    answer = split_thinking(text).answer
    if answer is None:
        return "", "the thinking does not end"
    answer = normal(answer[-LONGEST:]).strip()
    return _CRITERIA.sub("\n", answer), None if answer else "the text is empty"


def tagged(answer: str) -> list[str]:
    """Return what stands in verdict tags; the last one may be unclosed, cut by a stop word."""
    return [match[2].strip() for match in _TAG.finditer(answer) if match[2].strip()]


def settle(found: Iterable[T], answer: str) -> Verdict[T]:
    """Return the verdict when `found` holds exactly one value, else why there is none.

    Args:
        found: The values of the deciding kind.
        answer: The text, to tell a refusal from a text without a verdict.
    """
    values = list(dict.fromkeys(found))
    if len(values) == 1:
        return Verdict(Status.OK, values[0])
    if values:
        listed = ", ".join(map(str, values))
        return Verdict(Status.UNPARSED, reason=f"several verdicts: {listed}")
    if _REFUSAL.search(answer):
        return Verdict(Status.REFUSED, reason="the judge declines")
    return Verdict(Status.UNPARSED, reason="the text holds no verdict")
