"""What a writer's text must be: there, on one line, in the language asked for, and no refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from habitus.build.records import Outcome
from habitus.clients import recognise
from habitus.clients.engine import Reply
from habitus.clients.recognise import UNLIKELY
from habitus.data.answers import fold
from habitus.types import Status
from habitus.verdicts import split_thinking

REPEATED = 0.8
"""Share of a text's pieces that stand in another; from here on it counts as repeated there."""
PIECE = 4
"""Characters in such a piece."""

_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "‘": "’", "「": "」", "『": "』", "'": "'"}
_LABEL = re.compile(
    r"\A(?:\*\*)?(?:answer|question|translation|rewritten answer)(?:\*\*)?\s*:\s*", re.I
)
_MARKUP = re.compile(r"^\s*(?:[-*•+] |#{1,6} |\d{1,2}[.)] |\||```)", re.MULTILINE)
_REFUSAL = re.compile(
    r"(?:sorry,? (?:but )?)?i(?:'m| am) (?:sorry|unable|not able)\b|i (?:cannot|can't|won't|will not) "
    r"(?:help|assist|answer|provide|write|create|fulfil)|as an? (?:ai|language model)\b"
    r"|lo siento,? (?:pero )?no puedo|es tut mir leid|ich kann (?:dabei|diese\w*|ihnen) .{0,30}nicht"
    r"|извините, но|я не могу (?:помочь|ответить)|к сожалению, я не могу"
    r"|抱歉，?我|很抱歉|对不起，?我|對不起，?我|我无法|我無法|申し訳(?:ありません|ございません)が"
    r"|죄송하지만|죄송합니다만|عذرا[ً،]|آسف،|لا أستطيع (?:مساعدة|الإجابة)|ขออภัย|xin lỗi, (?:tôi|nhưng)",
    re.IGNORECASE,
)


class Languages(Protocol):
    """Recognises the language of a text."""

    @property
    def name(self) -> str:
        """What recognises it, with its version."""
        ...

    def recognise(self, text: str) -> str | None:
        """Return the base tag of a text's language, or None when it cannot tell."""
        ...

    def probability(self, text: str, tag: str) -> float | None:
        """Return how probable a language is; None when it is not known or the text too short."""
        ...


class Lingua(recognise.Lingua):
    """Languages by the library lingua, among a given few; digits and marks count as letters."""

    def letters(self, text: str) -> int:
        """Count what `fold` leaves of a text."""
        return len(fold(text))


def find_languages(tags: Iterable[str]) -> Languages | None:
    """Return what recognises languages, or None when lingua is not installed."""
    return Lingua(tags) if recognise.installed() else None


@dataclass(frozen=True)
class Checked:
    """A text, and what is wrong with it."""

    text: str | None
    """The text, cleaned."""
    status: Outcome
    """How it ended."""
    reason: str | None = None
    """Why it failed, for people."""


_STATUS = {Status.TRUNCATED: Outcome.TRUNCATED, Status.REFUSED: Outcome.REFUSED}


def check_reply(reply: Reply, language: str, languages: Languages | None) -> Checked:
    """Return the text of a reply, or why there is none that can be used.

    Thinking, a label such as "Answer:", bold marks and quotation marks around the whole are taken
    off.

    Args:
        reply: What the writer gave.
        language: BCP 47 tag of the language that it must be in.
        languages: What recognises languages; None does not check.
    """
    if reply.status is not None:
        return Checked(None, _STATUS.get(reply.status, Outcome.ERROR), reply.error)
    answer = split_thinking(reply.text or "").answer
    text = _clean(answer or "")
    if not reply.finished:
        return Checked(text or None, Outcome.TRUNCATED, "the token limit ended the text")
    if answer is None or not fold(text):
        reason = "the thinking does not end" if answer is None else "there is no text"
        return Checked(None, Outcome.EMPTY, reason)
    if _REFUSAL.match(text):
        return Checked(text, Outcome.REFUSED, "it begins like a refusal")
    if _MARKUP.search(text) or "\n" in text:
        return Checked(" ".join(text.split()), Outcome.MARKUP, "not one plain line")
    likely = languages.probability(text, language) if languages else None
    if likely is not None and likely < UNLIKELY:
        found = languages.recognise(text) if languages else None
        return Checked(text, Outcome.LANGUAGE, f"not in {language}, but {found or 'unclear'}")
    return Checked(text, Outcome.OK)


def _clean(answer: str) -> str:
    text = _LABEL.sub("", answer.strip()).replace("**", "").strip()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    text = "\n".join(line for line in lines if line)
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def repeats(text: str, within: str) -> bool:
    """Whether most of a text stands in another one, up to case, width and marks."""
    pieces = _pieces(text)
    return bool(pieces) and len(pieces & _pieces(within)) >= REPEATED * len(pieces)


def _pieces(text: str) -> set[str]:
    folded = fold(text)
    if not folded:
        return set()
    return {folded[start : start + PIECE] for start in range(max(len(folded) - PIECE + 1, 1))}
