"""The rule of culture labels: responses that name the item's country, culture or language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from habitus.audit.surface import Scored
from habitus.audit.table import Table, normal
from habitus.types import Item

if TYPE_CHECKING:
    from babel import Locale

_ALIASES = {
    "cape verde": "CV",
    "czech republic": "CZ",
    "great britain": "GB",
    "hong kong": "HK",
    "iran, islamic republic of": "IR",
    "ivory coast": "CI",
    "korea": "KR",
    "macau": "MO",
    "palestine": "PS",
    "republic of korea": "KR",
    "russian federation": "RU",
    "swaziland": "SZ",
    "syrian arab republic": "SY",
    "turkey": "TR",
    "uk": "GB",
    "usa": "US",
    "us": "US",
    "viet nam": "VN",
}
"""Names of countries that CLDR lists under another name."""

_PREFIX = 5
"""A name of so many letters also counts with an ending, as in "Algeria" and "Algerian"."""

_SHORTEST = 3
"""Letters that a name in an alphabet must have; two signs are enough in Chinese or Thai."""


def labels(table: Table) -> list[Scored]:
    """Return the rules that pick the response with most, or fewest, mentions of the culture.

    A mention is the item's culture, country or language by name, in English or in the item's
    language (names from CLDR), with endings, so that demonyms of the same stem count.
    """
    what = "mentions of the item's country, culture, demonym or language"
    texts = iter(table.texts)
    counts, known = [], False
    for item in table.items:
        for _ in item.candidates:
            found = mentions(next(texts), item.culture, item.country, item.language)
            known = known or found is not None
            counts.append(found or 0)
    most = ("most-labels", "Most culture names", f"most {what}")
    fewest = ("fewest-labels", "Fewest culture names", f"fewest {what}")
    if not known:
        reason = "no item states a culture, a country or a language"
        return [Scored(*most, None, reason), Scored(*fewest, None, reason)]
    counted = np.array(counts, dtype=np.float64)
    return [Scored(*most, counted), Scored(*fewest, -counted)]


def mentions(
    text: str, culture: str | None, country: str | None, language: str | None
) -> int | None:
    """Return how often a text names a culture, a country or a language; None where none is given.

    Args:
        text: The text.
        culture: The cultural group.
        country: The country by its English short name.
        language: BCP 47 tag of the text's language, whose own names count too.
    """
    pattern = _pattern(culture, country, language)
    return None if pattern is None else len(pattern.findall(normal(text)))


def names(item: Item) -> tuple[str, ...]:
    """Return what an item's culture is called, in comparable form, longest first."""
    return _names(item.culture, item.country, item.language)


@lru_cache(maxsize=4096)
def _names(culture: str | None, country: str | None, language: str | None) -> tuple[str, ...]:
    found = [culture or "", country or ""]
    code = _territory(country)
    for locale in _locales(language):
        found += [locale.territories.get(code or "", ""), *_language_names(locale, language)]
    parts = {normal(part) for name in found for part in _parts(name)}
    return tuple(sorted((part for part in parts if part), key=lambda part: (-len(part), part)))


def _parts(name: str) -> Iterator[str]:
    """Yield a name, and both names of "Myanmar (Burma)"."""
    inner = re.fullmatch(r"(.+?)\s*[(（](.+)[)）]", name)
    yield from inner.groups() if inner else (name,)


def _locales(language: str | None) -> Iterator[Locale]:
    """Yield CLDR's English and, where there is one, the language's own locale."""
    from babel import Locale, UnknownLocaleError

    yield Locale("en")
    if language and not language.lower().startswith("en"):
        tag = language.replace("_", "-")
        for attempt in (tag, tag.split("-")[0]):
            try:
                yield Locale.parse(attempt, sep="-")
            except (UnknownLocaleError, ValueError):
                continue
            return


def _language_names(locale: Locale, language: str | None) -> Iterator[str]:
    if language:
        yield locale.languages.get(language.replace("_", "-").split("-")[0].lower(), "")


@lru_cache(maxsize=1)
def _english() -> dict[str, str]:
    """English name of a country to its code."""
    from babel import Locale

    found = dict(_ALIASES)
    for code, name in Locale("en").territories.items():
        if not code.isdigit():
            found |= {normal(part): code for part in _parts(name)}
    return found


def _territory(country: str | None) -> str | None:
    """Return the code of a country by its English name."""
    return _english().get(normal(country)) if country else None


@lru_cache(maxsize=4096)
def _pattern(
    culture: str | None, country: str | None, language: str | None
) -> re.Pattern[str] | None:
    parts = [part for name in _names(culture, country, language) if (part := _expression(name))]
    return re.compile("|".join(parts)) if parts else None


def _expression(name: str) -> str:
    """Return an expression that finds a name; empty for one too short to mean anything."""
    if _unspaced(name[0]):
        return re.escape(name) if len(name) >= 2 else ""
    if len(name) < _SHORTEST:
        return ""
    ending = r"\w*" if len(name) >= _PREFIX and not _begins_another(name) else r"(?!\w)"
    return rf"(?<!\w){re.escape(name)}{ending}"


def _begins_another(name: str) -> bool:
    """True when another country's name goes on with a letter, as Niger and Nigeria."""
    return any(
        other.startswith(name) and other[len(name) : len(name) + 1].isalpha()
        for other in _english()
    )


def _unspaced(letter: str) -> bool:
    """True for scripts in which a name does not stand between spaces, or takes prefixes."""
    point = ord(letter)
    return (
        0x0590 <= point <= 0x08FF  # Hebrew, Arabic: articles and prepositions are written together
        or 0x0E00 <= point <= 0x109F  # Thai to Burmese
        or 0x1780 <= point <= 0x17FF  # Khmer
        or 0x3040 <= point <= 0x9FFF  # Japanese, Chinese
        or 0xF900 <= point <= 0xFAFF
    )
