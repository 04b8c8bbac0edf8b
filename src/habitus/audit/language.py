"""Which language each prompt and response is in, by lingua, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from habitus.audit.surface import Scored
from habitus.audit.table import Floats, Table
from habitus.progress import progress

if TYPE_CHECKING:
    from lingua import Language, LanguageDetector

MIN_LETTERS = 8
"""A text with fewer letters is too short to tell its language."""

CLEAR = 0.8
"""Confidence from which on a language counts as told; below, the text is uncertain."""

MAX_CHARACTERS = 300
"""Characters of a text that are read: more makes the answer no surer, only slower."""

_CHUNK = 1000
_ALIKE = (frozenset({"bs", "hr", "sr"}), frozenset({"nb", "nn", "no"}), frozenset({"id", "ms"}))
"""Languages that are not told from one another."""
_SAME = {"fil": "tl", "iw": "he", "in": "id", "mo": "ro"}

Kind = Literal["told", "uncertain", "too short"]


@dataclass(frozen=True)
class Found:
    """What lingua says of one text."""

    kind: Kind
    """Whether the language was told."""
    language: str | None = None
    """Base language (ISO 639-1), the most likely one; None when there is none."""
    confidence: float = 0.0
    """lingua's confidence, 0 to 1."""


def base(tag: str | None) -> str | None:
    """Return the base language of a tag, such as "zh" of "zh-Hans"."""
    if not tag:
        return None
    first = tag.replace("_", "-").split("-")[0].lower()
    return _SAME.get(first, first)


def same(a: str | None, b: str | None) -> bool:
    """True when two base languages are one, or are not told from each other."""
    return a == b or any(a in group and b in group for group in _ALIKE)


def code(language: Language) -> str:
    """Return the base language of one of lingua's."""
    name: str = language.iso_code_639_1.name
    return name.lower()


@cache
def known() -> frozenset[str]:
    """Return the base languages that lingua knows."""
    from lingua import Language

    codes = {code(language) for language in Language.all()}
    return frozenset(codes | {"no"})


def detector() -> LanguageDetector:
    """Return lingua's detector of all its languages in high accuracy; models load when needed."""
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().build()


def identify(texts: Sequence[str]) -> dict[str, Found]:
    """Tell the language of each distinct text.

    Args:
        texts: The texts, repeated as they may be.

    Returns:
        Text to what was found.
    """
    found: dict[str, Found] = {}
    long = []
    for text in dict.fromkeys(texts):
        if sum(letter.isalpha() for letter in text[:MAX_CHARACTERS]) < MIN_LETTERS:
            found[text] = Found("too short")
        else:
            long.append(text)
    if not long:
        return found
    lingua = detector()
    with progress("telling languages", len(long), unit="texts") as advance:
        for start in range(0, len(long), _CHUNK):
            part = long[start : start + _CHUNK]
            values = lingua.compute_language_confidence_values_in_parallel(
                [text[:MAX_CHARACTERS] for text in part]
            )
            for text, confidences in zip(part, values, strict=True):
                first = confidences[0]
                kind: Kind = "told" if first.value >= CLEAR else "uncertain"
                language = code(first.language) if first.value > 0 else None
                found[text] = Found(kind, language, round(first.value, 4))
            advance(len(part))
    lingua.unload_language_models()  # type: ignore[no-untyped-call,unused-ignore]
    return found


def prompt_language(table: Table, found: dict[str, Found]) -> Scored:
    """Return the rule that prefers responses in the language of their prompt.

    The prompt's language is the one told from its text, else the one that the item states. A
    response counts as in another language only when that is told clearly, so short responses tie.
    """
    title, description = "Prompt’s language", "responses in the language of the prompt"
    asked = []
    for item, prompt in zip(table.items, table.prompts, strict=True):
        told = found[prompt]
        asked.append(told.language if told.kind == "told" else base(item.language))
    if not any(asked):
        reason = "no prompt's language could be told, and no item states one"
        return Scored("prompt-language", title, description, None, reason)
    scores: Floats = np.ones(len(table.owner))
    for row, (text, owner) in enumerate(zip(table.texts, table.owner.tolist(), strict=True)):
        told, wanted = found[text], asked[owner]
        if wanted is not None and told.kind == "told" and not same(told.language, wanted):
            scores[row] = 0.0
    return Scored("prompt-language", title, description, scores)
