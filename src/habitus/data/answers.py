"""When two texts say the same, and whether an answer's form gives something away (for BLEnD)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache

SIMILAR = 0.8
"""Share of matching letters from which two spellings count as one word."""

_PATTERNS = (
    ("number", re.compile(r"\d+([.,]\d+)*\s?%?")),
    ("time", re.compile(r"\d{1,2}(:\d{2})?\s?[ap]\.?m\.?|\d{1,2}:\d{2}")),
    ("date", re.compile(r"\d{1,2}/\d{1,2}(/\d+)?")),
)
_STOP = frozenset(
    ["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"]
)
_ASIDE = re.compile(r"\s*\([^)]*\)")
_DASHES = re.compile(r"[-‐-―_/]")


@dataclass(frozen=True, slots=True)
class Form:
    """An answer without case, accents, punctuation and common endings."""

    joined: str
    """All letters and digits without spaces."""
    words: frozenset[str]
    """The words that matter."""


def fold(text: str) -> str:
    """Return a text without what tells no texts apart: case, width, white space, punctuation."""
    normal = unicodedata.normalize("NFKC", text).casefold()
    return "".join(
        char for char in normal if char.isalnum() or unicodedata.category(char)[0] == "M"
    )


def clean(text: str) -> str:
    """Return an answer as it is shown: lower case, no aside in brackets, no full stop.

    Most regions' answers are published in lower case, but not all; case must not tell them apart.
    """
    bare = _ASIDE.sub("", text).strip()
    return " ".join((bare or text).lower().split()).strip(" .,;\"'")


def kind(text: str) -> str:
    """Return the form of an answer: "number", "time", "date", "digits" (some) or "words"."""
    for name, pattern in _PATTERNS:
        if pattern.fullmatch(text.strip().lower()):
            return name
    return "digits" if any(character.isdigit() for character in text) else "words"


@cache
def form(text: str) -> Form:
    """Reduce an answer to what is compared."""
    decomposed = unicodedata.normalize("NFKD", _DASHES.sub(" ", text.casefold()))
    kept = "".join(
        character if character.isalnum() or character.isspace() else ""
        for character in decomposed
        if not unicodedata.combining(character)
    )
    words = [_stem(word) for word in kept.split()]
    return Form("".join(words), frozenset(words) - _STOP or frozenset(words))


def _stem(word: str) -> str:
    """Cut plural endings, -ing and a final e: "sandwiches", "running", "dance", "dancing"."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 5 and word.endswith("ing"):
        word = word[:-3]
        return word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word
    if len(word) > 4 and word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


@lru_cache(maxsize=1 << 16)
def same(one: str, other: str) -> bool:
    """Tell whether two answers may say the same, on the side of yes.

    Yes when they are equal but for case, spaces, punctuation, accents and the endings of plurals and -ing, when
    the words of one are among the words of the other ("tea", "green tea"), when one begins with
    the other ("swim", "swimming"), or when they are spelt almost alike. Numbers must be equal.
    """
    a, b = form(one), form(other)
    if a.joined == b.joined or a.words <= b.words or b.words <= a.words:
        return True
    if kind(one) != "words" or kind(other) != "words":
        return False
    short, long = sorted((a.joined, b.joined), key=len)
    if len(short) >= 4 and long.startswith(short):
        return True
    if len(short) < 5 or 2 * len(short) < SIMILAR * (len(short) + len(long)):
        return False
    matcher = SequenceMatcher(None, short, long, autojunk=False)
    return matcher.quick_ratio() >= SIMILAR and matcher.ratio() >= SIMILAR
