"""What a writer is asked for an edit, and what its text must be."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from habitus import taxonomy
from habitus.clients.engine import Reply, Turn
from habitus.clients.recognise import UNLIKELY, Lingua, installed
from habitus.diagnose.edits import mentions_label
from habitus.errors import InputError
from habitus.prompts import (
    Prompt,
    conversation_text,
    fill,
    parse_writer_prompt,
    read_writer_prompt,
)
from habitus.types import Candidate, Item, Status
from habitus.verdicts import split_thinking

PROMPTS = {
    "CC": "concept",
    "OP": "opposite",
    "GN": "generic",
    "RP": "paraphrase",
    "CL": "translate",
    "RC": "label",
}
"""Cue to the prompt file that asks a writer for it, in the folder `perturb`."""

COPY = 0.98
"""Texts whose letter triples are more alike than this (cosine) are copies."""

SHORTER, LONGER = 0.5, 2.0
"""How much shorter or longer an edit may be; translations may be any length."""

_SCRIPTS = {
    "Arabic": ("ARABIC",),
    "Bengali": ("BENGALI",),
    "Cyrillic": ("CYRILLIC",),
    "Devanagari": ("DEVANAGARI",),
    "Ethiopic": ("ETHIOPIC",),
    "Greek": ("GREEK",),
    "Han": ("CJK",),
    "Hangul": ("HANGUL",),
    "Hebrew": ("HEBREW",),
    "Japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "Latin": ("LATIN",),
    "Thai": ("THAI",),
}
_REFUSAL = re.compile(
    r"(?:sorry,? (?:but )?)?i(?:'m| am) (?:sorry|unable|not able)\b|i (?:cannot|can't|won't) "
    r"(?:help|assist|answer|provide|write|translate|edit)|as an? (?:ai|language model)\b",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "『": "』"}


class Outcome(StrEnum):
    """How an edit ended. All but `ok` are failures, which are kept and counted."""

    OK = "ok"
    """As asked."""
    EMPTY = "empty"
    """There is no text."""
    REFUSED = "refused"
    """The writer or its server declined."""
    TRUNCATED = "truncated"
    """The token limit or the context ended the text."""
    ERROR = "error"
    """The request failed; the reason says how."""
    COPY = "copy"
    """The text is that before the edit, or nearly."""
    DUPLICATE = "duplicate"
    """The text is another candidate's."""
    LANGUAGE = "language"
    """The text is in another language than asked for."""
    LENGTH = "length"
    """The text is much shorter or longer than before."""
    LABEL = "label"
    """A label was lost that should stay, or is left that should go."""
    NOTHING = "nothing"
    """There is nothing to edit: no label of the list, or no wrong response."""


@dataclass(frozen=True)
class Checked:
    """A writer's text, and what is wrong with it."""

    status: Outcome
    """How it ended."""
    text: str | None = None
    """The text, cleaned."""
    reason: str | None = None
    """Why it failed, for people."""


@cache
def load_prompt(cue: str) -> Prompt:
    """Load the prompt file of a cue.

    Raises:
        InputError: When the cue has none, or the file is missing from the installation.
    """
    if cue not in PROMPTS:
        raise InputError(
            f"cue {cue} is not written by a model; those that are: {', '.join(PROMPTS)}"
        )
    return parse_writer_prompt(PROMPTS[cue], read_writer_prompt("perturb", PROMPTS[cue]))


def ask(item: Item, candidate: Candidate, cue: str, language: str | None) -> tuple[Turn, ...]:
    """Return what a writer is asked.

    Args:
        item: The parent.
        candidate: The candidate to edit.
        cue: The kind of edit.
        language: BCP 47 tag of the language to write in; None is that of the response.
    """
    others = [one.text for one in item.candidates if one.id != candidate.id]
    values = {
        "question": conversation_text(item.prompt),
        "text": candidate.text,
        "culture": item.country or item.culture or "the place in question",
        "language": language_name(language),
        "others": " / ".join(others),
    }
    prompt = load_prompt(cue)
    roles = [role for role in ("system", "user") if role in prompt.sections]
    return tuple(Turn(role, fill(prompt.sections[role], values)) for role in roles)


def language_name(tag: str | None) -> str:
    """Return a language's English name, with the tag where it says more."""
    if tag is None:
        return "the language of the response"
    known = taxonomy.lookup(tag)
    if known is None:
        return f"the language with the BCP 47 tag {tag}"
    return known.name if known.tag.lower() == tag.lower() else f"{known.name} ({tag})"


_STATUS = {Status.TRUNCATED: Outcome.TRUNCATED, Status.REFUSED: Outcome.REFUSED}


def check(
    reply: Reply,
    item: Item,
    candidate: Candidate,
    cue: str,
    language: str | None,
    lingua: Lingua | None = None,
) -> Checked:
    """Return an edit's text, or why it cannot be used.

    Args:
        reply: What the writer gave.
        item: The parent.
        candidate: The candidate that was edited.
        cue: The kind of edit.
        language: BCP 47 tag of the language that it must be in; None is not checked.
        lingua: Recognises languages; None checks the script alone.
    """
    if reply.status is not None:
        return Checked(_STATUS.get(reply.status, Outcome.ERROR), None, reply.error)
    text = clean(split_thinking(reply.text or "").answer or "")
    if not reply.finished:
        return Checked(Outcome.TRUNCATED, text or None, "the token limit ended the text")
    if not any(letter.isalnum() for letter in text):
        return Checked(Outcome.EMPTY, None, "there is no text")
    if _REFUSAL.match(text) and not _REFUSAL.match(candidate.text):
        return Checked(Outcome.REFUSED, text, "it begins like a refusal")
    wrong = (
        _copied(text, item, candidate)
        or _wrong_language(text, language, lingua if cue == "CL" else None)
        or _wrong_length(text, candidate.text, cue)
        or _wrong_label(text, item, candidate, cue)
    )
    return Checked(wrong[0], text, wrong[1]) if wrong else Checked(Outcome.OK, text)


def clean(text: str) -> str:
    """Return a text without quotation marks or bold marks around the whole of it."""
    text = text.strip()
    if text.startswith("**") and text.endswith("**") and text.count("**") == 2:
        text = text[2:-2].strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def normal(text: str) -> str:
    """Return a text in comparable form: letters and digits only, width and case aside."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (one if unicodedata.category(one)[0] in "LNM" else " " for one in folded)
    return " ".join("".join(kept).split())


def similarity(a: str, b: str) -> float:
    """Return the cosine of two texts' counts of letter triples, in comparable form."""
    first, second = _triples(a), _triples(b)
    size = math.sqrt(sum(n * n for n in first.values()) * sum(n * n for n in second.values()))
    return sum(n * second[key] for key, n in first.items()) / size if size else 0.0


def _triples(text: str) -> Counter[str]:
    padded = f" {normal(text)} "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))


def is_copy(text: str, source: str) -> bool:
    """Whether an edit changed nothing that counts."""
    return normal(text) == normal(source) or similarity(text, source) > COPY


def _copied(text: str, item: Item, candidate: Candidate) -> tuple[Outcome, str] | None:
    if is_copy(text, candidate.text):
        return Outcome.COPY, "the text is that before the edit"
    for one in item.candidates:
        if one.id != candidate.id and is_copy(text, one.text):
            return Outcome.DUPLICATE, f"the text is that of candidate {one.id!r}"
    return None


def script_share(text: str, script: str) -> float | None:
    """Return the share of a text's letters that belong to a script; None when it is unknown."""
    prefixes = _SCRIPTS.get(script)
    letters = [one for one in text if unicodedata.category(one)[0] == "L"]
    if prefixes is None or not letters:
        return None
    own = [one for one in letters if unicodedata.name(one, "").startswith(prefixes)]
    return len(own) / len(letters)


def _wrong_language(
    text: str, language: str | None, lingua: Lingua | None
) -> tuple[Outcome, str] | None:
    known = taxonomy.lookup(language) if language else None
    if known is None or language is None:
        return None
    share = script_share(text, known.script)
    if share is not None and share < 0.5:
        return Outcome.LANGUAGE, f"not in {language}: {share:.0%} of the letters are {known.script}"
    kana = any(unicodedata.name(one, "").startswith(("HIRAGANA", "KATAKANA")) for one in text)
    if known.script == "Han" and kana:
        return Outcome.LANGUAGE, f"not in {language}: it has Japanese letters"
    if known.script == "Japanese" and not kana:
        return Outcome.LANGUAGE, f"not in {language}: it has no Japanese letters"
    likely = lingua.probability(text, language) if lingua else None
    if likely is not None and likely < UNLIKELY:
        return Outcome.LANGUAGE, f"not in {language}, says lingua"
    return None


def _wrong_length(text: str, source: str, cue: str) -> tuple[Outcome, str] | None:
    if cue == "CL" or not source:
        return None
    ratio = len(text) / len(source)
    if SHORTER <= ratio <= LONGER:
        return None
    return Outcome.LENGTH, f"{ratio:.1f} times as long as before; {SHORTER} to {LONGER} is allowed"


def _wrong_label(
    text: str, item: Item, candidate: Candidate, cue: str
) -> tuple[Outcome, str] | None:
    language = candidate.language or item.language
    after = mentions_label(item, text, language)
    if cue == "RC" and after:
        return Outcome.LABEL, "a label is left"
    if cue in ("CC", "RP") and mentions_label(item, candidate.text, language) and not after:
        return Outcome.LABEL, "the label is gone"
    return None


def find_lingua(tags: Iterable[str]) -> Lingua | None:
    """Return what recognises languages, or None when lingua is not installed."""
    return Lingua(tags) if installed() else None
