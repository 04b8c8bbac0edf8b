"""Which language a text is in, by the library lingua, among a given few (extra `audit`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

SHORTEST = 8
"""Letters; the language of shorter texts is not looked at."""

UNLIKELY = 0.1
"""A text is in another language when the wanted one has less probability than this."""


def base(tag: str) -> str:
    """Return the language alone of a BCP 47 tag: "zh" of "zh-Hans"."""
    first = tag.replace("_", "-").split("-")[0].lower()
    return {"no": "nb", "fil": "tl"}.get(first, first)


def installed() -> bool:
    """Whether lingua can be imported."""
    return importlib.util.find_spec("lingua") is not None


class Lingua:
    """Recognises the languages that it was made for."""

    def __init__(self, tags: Iterable[str]) -> None:
        """Load the models of the languages, as far as lingua has them.

        Args:
            tags: BCP 47 tags. English and Spanish are always among them.
        """
        from lingua import IsoCode639_1, Language, LanguageDetectorBuilder

        codes = {base(tag) for tag in tags} | {"en", "es"}  # a detector needs two at least
        known: dict[str, Any] = {one.iso_code_639_1.name.lower(): one for one in Language.all()}
        self._known = {code: known[code] for code in sorted(codes & known.keys())}
        iso = [getattr(IsoCode639_1, code.upper()) for code in self._known]
        self._detector: Any = LanguageDetectorBuilder.from_iso_codes_639_1(*iso).build()
        self.name: str = f"lingua {version('lingua-language-detector')}"

    def letters(self, text: str) -> int:
        """Count what makes a text long enough to tell its language."""
        return sum(one.isalpha() for one in text)

    def recognise(self, text: str) -> str | None:
        """Return the base tag of a text's language; None for short or uncertain texts."""
        if self.letters(text) < SHORTEST:
            return None
        found = self._detector.compute_language_confidence_values(text)[0]
        return found.language.iso_code_639_1.name.lower() if found.value > 0.5 else None

    def probability(self, text: str, tag: str) -> float | None:
        """Return how probable a language is; None when it is not known or the text too short."""
        language = self._known.get(base(tag))
        if language is None or self.letters(text) < SHORTEST:
            return None
        return float(self._detector.compute_language_confidence(text, language))
