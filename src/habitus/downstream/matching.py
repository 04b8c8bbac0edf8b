"""Soft match of a short answer against all voted answers, by BLEnD's public rule.

Questions count where fewer than three people said that there is no answer or that it does not
apply, fewer than five did not know, and someone answered. Answers are gone through by votes; the
first of which a wording matches gives the grade 1 (SEM-B), weighted by its votes over the most
votes (SEM-W). A wording matches when the response contains it, or when all its words are words of
the response.

Both are compared in normal form: NFKC, no case, no Arabic vowel marks, ASCII digits, hyphens as
spaces; words also without acute accents. English words are cut to a stem. The public scorer
lemmatises other languages with a tool for each; without them, an inflected answer that is no part
of the response does not match. As in the public scorer, "contains" is of letters, not words: "tea"
is in "steak".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from habitus.data.answers import form
from habitus.data.blend import Votes
from habitus.downstream.model import AnswerVotes, ShortKey
from habitus.verdicts import split_thinking
from habitus.verdicts.text import normal

NO_ANSWER, DONT_KNOW = 3, 5
"""People from which on a question without answer, or unknown, does not count."""

_MARKS = re.compile("[\u0640\u064b-\u0652\u0670]")
_HYPHENS = re.compile(r"[-‐-―_/]")


@dataclass(frozen=True)
class Match:
    """What a response earns."""

    grade: float
    """1 when a wording matches, else 0 (SEM-B)."""
    votes: float
    """The same weighted by votes (SEM-W)."""
    wording: str | None
    """The wording that matched."""


def countable(idks: Mapping[str, int], annotations: Sequence[Votes]) -> bool:
    """Tell whether a question counts, from how many people had no answer."""
    none = idks.get("no-answer", 0) + idks.get("not-applicable", 0)
    return none < NO_ANSWER and idks.get("idk", 0) < DONT_KNOW and bool(annotations)


def make_key(annotations: Sequence[Votes], language: str) -> ShortKey:
    """Return what responses are graded by.

    Args:
        annotations: What people answered.
        language: BCP 47 tag of the prompt; in English only English wordings count, in any other
            language both do.
    """
    ordered = sorted(annotations, key=lambda votes: -votes.count)
    most = max((votes.count for votes in ordered), default=0) or 1
    answers = []
    for votes in ordered:
        own = () if language == "en" else votes.answers
        wordings = tuple(dict.fromkeys(w.strip() for w in (*own, *votes.en_answers) if w.strip()))
        if wordings:
            answers.append(AnswerVotes(wordings=wordings, share=votes.count / most))
    return ShortKey(answers=tuple(answers), language=language)


def match(response: str, key: ShortKey) -> Match:
    """Grade a response; what a model thought before it answered is not read."""
    answer = split_thinking(response).answer or ""
    text, words, stems = flat(answer), frozenset(bare(answer).split()), None
    for voted in key.answers if text else ():
        for wording in voted.wordings:
            wanted = flat(wording)
            if not wanted:
                continue
            if wanted in text or frozenset(bare(wording).split()) <= words:
                return Match(1.0, voted.share, wording)
            if wanted.isascii():
                stems = form(text).words if stems is None else stems
                if form(wanted).words <= stems:
                    return Match(1.0, voted.share, wording)
    return Match(0.0, 0.0, None)


@lru_cache(maxsize=1 << 16)
def flat(text: str) -> str:
    """Return a text in normal form: words of letters, digits and marks, one space between."""
    plain = unicodedata.normalize("NFC", _HYPHENS.sub(" ", normal(text)).casefold())
    kept = (one if _counts(one) else " " for one in _MARKS.sub("", plain))
    return " ".join("".join(kept).split())


@lru_cache(maxsize=1 << 16)
def bare(text: str) -> str:
    """Return a text in normal form without acute accents."""
    return unicodedata.normalize("NFD", flat(text)).replace("\u0301", "")


def _counts(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"
