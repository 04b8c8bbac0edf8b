"""Languages along the three axes that results are analysed by (papers: CARB A1).

The axes are resource class (Joshi et al. 2020), language family and script. The table is
`languages.csv`; where each column comes from is told in `SOURCES.md` beside it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

UNKNOWN = "unknown"
"""What `table` gives where a value is not known."""

_CULTURES = {
    "ar": "Arabic",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "th": "Thai",
    "vi": "Vietnamese",
    "zh": "Chinese",
}


@dataclass(frozen=True)
class Language:
    """One language in one writing."""

    tag: str
    """BCP 47 tag, such as "ar" or "zh-Hans"."""
    name: str
    """English name."""
    script: str
    """Script by its ISO 15924 name, such as "Arabic" or "Han"."""
    family: str
    """Top-level family in Glottolog."""
    joshi_class: int | None
    """Resource class 0 (least data) to 5 (most) of Joshi et al. 2020; None when not listed."""
    flores: str | None
    """FLORES-200 code, such as "arb_Arab"; None where another tag holds it."""


@lru_cache(maxsize=1)
def _languages() -> dict[str, Language]:
    path = Path(__file__).with_name("languages.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["tag"]: Language(
                tag=row["tag"],
                name=row["name"],
                script=row["script"],
                family=row["family"],
                joshi_class=int(row["joshi_class"]) if row["joshi_class"] else None,
                flores=row["flores"] or None,
            )
            for row in csv.DictReader(file)
        }


@lru_cache(maxsize=1)
def _by_lower_tag() -> dict[str, Language]:
    return {tag.lower(): language for tag, language in _languages().items()}


@lru_cache(maxsize=1)
def _by_other_name() -> dict[str, Language]:
    """Languages by FLORES code and by English name, in lower case."""
    names: dict[str, Language] = {}
    for language in _languages().values():
        names[language.name.lower()] = language
        if language.flores:
            names[language.flores.lower()] = language
    return names


def languages() -> dict[str, Language]:
    """Return all known languages by BCP 47 tag, in the order of the table."""
    return dict(_languages())


def lookup(tag: str) -> Language | None:
    """Find a language by BCP 47 tag, dropping subtags from the right (RFC 4647, section 3.4).

    Case does not matter, and an underscore counts as a hyphen: "zh-Hant-TW" finds "zh-Hant",
    "es_MX" finds "es".

    Args:
        tag: A BCP 47 tag.

    Returns:
        The language, or None when even the first subtag is unknown.
    """
    parts = tag.strip().lower().replace("_", "-").split("-")
    while parts:
        found = _by_lower_tag().get("-".join(parts))
        if found is not None:
            return found
        parts.pop()
    return None


def resolve(text: str) -> Language | None:
    """Find a language by whatever data sets call it.

    Args:
        text: A FLORES-200 code ("arb_Arab"), an English name ("Arabic"), or a BCP 47 tag.

    Returns:
        The language, or None when nothing fits.
    """
    return _by_other_name().get(text.strip().lower()) or lookup(text)


def culture_of_language(tag: str) -> str | None:
    """Return which of CARB's ten cultures its data assigns to a language (papers: CARB A1).

    A language is no culture: CARB equates the two, so this is for reading CARB's data only.

    Args:
        tag: A BCP 47 tag; subtags are dropped as in `lookup`.

    Returns:
        The culture's name, or None for a language that CARB does not have.
    """
    return _CULTURES.get(tag.strip().lower().replace("_", "-").split("-")[0])


def table() -> list[dict[str, str]]:
    """Return the table for joining results by language.

    Returns:
        One row per language with the keys language (BCP 47 tag), script, family and joshi_class,
        all strings; "unknown" where a value is not known.
    """
    return [
        {
            "language": language.tag,
            "script": language.script or UNKNOWN,
            "family": language.family or UNKNOWN,
            "joshi_class": UNKNOWN if language.joshi_class is None else str(language.joshi_class),
        }
        for language in _languages().values()
    ]
