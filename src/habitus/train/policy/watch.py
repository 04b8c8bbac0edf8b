"""The hacking watch: what answers are like beside their grade. Needs no model.

All figures are shares, 0 to 1, of one answer or of one prompt's answers, so that they have the same
intervals and tests as the quality.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from habitus import taxonomy
from habitus.clients.recognise import UNLIKELY, Lingua
from habitus.diagnose.writing import find_lingua, script_share
from habitus.downstream.matching import flat
from habitus.downstream.model import Answer, ChoiceKey, GenerationStatus, TaskPrompt

MEASURES = ("length", "truncated", "language", "label", "repeats", "copies", "unread", "distinct")
"""The figures, in reading order:

length
    Tokens over the most that an answer may have.
truncated
    Cut by the token limit.
language
    In the prompt's language; texts too short to tell count by their script.
label
    Names the prompt's country, culture or language.
repeats
    Says the same four words three times or more.
copies
    Has eight words in a row of the prompt's last message.
unread
    Multiple choice: names no letter.
distinct
    Of a prompt's answers together: different texts over answers.
"""

REPEATED, TIMES, COPIED = 4, 3, 8
"""Words of a repetition, how often it comes, and words in a row of a copy. In scripts without
spaces a letter counts as a word."""


OTHERS = ("de", "en", "es", "fr", "zh")
"""Languages that an answer may be in beside those of the prompts."""


@dataclass(frozen=True)
class Watched:
    """One answer, measured; None where a figure does not apply or cannot be had."""

    values: Mapping[str, float | None]
    """Name in `MEASURES` to value; "distinct" is not of one answer."""


class Watch:
    """Measures answers to known prompts."""

    def __init__(self, prompts: Iterable[TaskPrompt], max_new_tokens: int) -> None:
        """Load what tells languages and names, as far as the extra `audit` is installed.

        Args:
            prompts: The prompts.
            max_new_tokens: Most tokens of an answer.
        """
        self._prompts = {prompt.id: prompt for prompt in prompts}
        self._most = max_new_tokens
        tags = {one.language for one in self._prompts.values() if one.language}
        self._lingua: Lingua | None = find_lingua(sorted(tags | set(OTHERS)))
        self._asked = {
            id: frozenset(_runs(_words(prompt.messages[-1].content), COPIED))
            for id, prompt in self._prompts.items()
        }
        self._told: dict[tuple[str, str], bool | None] = {}
        self.languages: str = self._lingua.name if self._lingua else "scripts"
        """What tells the language of an answer."""
        self.missing: dict[str, str] = {}
        """Figures that cannot be had, and why."""
        if importlib.util.find_spec("babel") is None:
            self.missing["label"] = "names of countries need the extra audit"

    def measure(self, answer: Answer, tokens: int) -> Watched:
        """Measure an answer; what is no candidate has no figures.

        Args:
            answer: The answer.
            tokens: Its tokens.
        """
        if not answer.status.candidate:
            return Watched(dict.fromkeys(MEASURES))
        prompt = self._prompts[answer.prompt]
        words = _words(answer.text)
        choice = isinstance(prompt.key, ChoiceKey)
        counts = Counter(_runs(words, REPEATED))
        return Watched(
            {
                "length": min(1.0, tokens / self._most),
                "truncated": float(answer.status is GenerationStatus.CUT),
                "language": _share(self._in_language(answer.text, prompt.language)),
                "label": _share(self._names(answer.text, prompt)),
                "repeats": float(any(times >= TIMES for times in counts.values())),
                "copies": float(not self._asked[prompt.id].isdisjoint(_runs(words, COPIED))),
                "unread": float(answer.matched is None) if choice else None,
                "distinct": None,
            }
        )

    def of_prompt(self, answers: Sequence[Answer], tokens: Sequence[int]) -> dict[str, float]:
        """Return the means over a prompt's answers, without figures that none of them has.

        Args:
            answers: The answers to one prompt.
            tokens: Their tokens.
        """
        rows = [self.measure(one, size) for one, size in zip(answers, tokens, strict=True)]
        found: dict[str, float] = {}
        for name in MEASURES:
            known = [value for row in rows if (value := row.values[name]) is not None]
            if known:
                found[name] = sum(known) / len(known)
        texts = [one.text for one in answers if one.status.candidate]
        if texts:
            found["distinct"] = len(set(texts)) / len(texts)
        return found

    def _in_language(self, text: str, tag: str | None) -> bool | None:
        """Tell whether a text is in a language; None for texts that say nothing about it."""
        if tag is None:
            return None
        key = (text, tag)
        if key not in self._told:
            self._told[key] = self._look(text, tag)
        return self._told[key]

    def _look(self, text: str, tag: str) -> bool | None:
        known = taxonomy.lookup(tag)
        share = script_share(text, known.script) if known else None
        if share is not None and share < 0.5:
            return False
        likely = self._lingua.probability(text, tag) if self._lingua else None
        if likely is not None:
            return likely >= UNLIKELY
        return None if share is None else True

    def _names(self, text: str, prompt: TaskPrompt) -> bool | None:
        if self.missing.get("label"):
            return None
        from habitus.audit.labels import mentions

        found = mentions(text, prompt.culture, prompt.country, prompt.language)
        return None if found is None else found > 0


def _share(found: bool | None) -> float | None:
    return None if found is None else float(found)


def _words(text: str) -> list[str]:
    """Return the words of a text in normal form, letter by letter where none are written apart."""
    return [
        part for word in flat(text).split() for part in ([*word] if _unspaced(word) else [word])
    ]


def _unspaced(word: str) -> bool:
    """True for scripts that write no spaces between words."""
    point = ord(word[0])
    return 0x0E00 <= point <= 0x109F or 0x1780 <= point <= 0x17FF or 0x3040 <= point <= 0x9FFF


def _runs(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
