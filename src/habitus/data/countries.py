"""One English short name for each country, whatever a data set calls it."""

from __future__ import annotations

import re

_NAMES = {
    "bosnia": "Bosnia and Herzegovina",
    "bosnia herzegovina": "Bosnia and Herzegovina",
    "britain": "United Kingdom",
    "burma": "Myanmar",
    "cote d'ivoire": "Ivory Coast",
    "czech republic": "Czechia",
    "czech rep.": "Czechia",
    "great britain": "United Kingdom",
    "hong kong sar": "Hong Kong",
    "iran, islamic republic of": "Iran",
    "korea": "South Korea",
    "korea, republic of": "South Korea",
    "macau": "Macao",
    "macau sar": "Macao",
    "macedonia": "North Macedonia",
    "palest. ter.": "Palestinian territories",
    "palestine": "Palestinian territories",
    "palestinian territory": "Palestinian territories",
    "republic of korea": "South Korea",
    "russian federation": "Russia",
    "s. africa": "South Africa",
    "s. korea": "South Korea",
    "taiwan roc": "Taiwan",
    "türkiye": "Turkey",
    "turkiye": "Turkey",
    "u.k.": "United Kingdom",
    "uk": "United Kingdom",
    "u.s.": "United States",
    "us": "United States",
    "usa": "United States",
    "united states of america": "United States",
    "viet nam": "Vietnam",
}
_ARTICLE = frozenset(
    [
        "Dominican Republic",
        "Maldives",
        "Netherlands",
        "Palestinian territories",
        "Philippines",
        "United Arab Emirates",
        "United Kingdom",
        "United States",
    ]
)
_SAMPLE = re.compile(r"\s*\(([^)]*\bsample)\)\s*$", re.IGNORECASE)


def country(label: str) -> tuple[str, str | None]:
    """Return the English short name of a country, and what its label says of the sample.

    Args:
        label: As in the data, such as "S. Korea" or "India (Old national sample)".

    Returns:
        The name ("South Korea", "India"), unchanged where no other is known, and the sample
        ("old national sample") or None.
    """
    text = " ".join(label.split())
    found = _SAMPLE.search(text)
    bare = text[: found.start()] if found else text
    return _NAMES.get(bare.lower(), bare), found[1].lower() if found else None


def with_article(name: str) -> str:
    """Return a country's name as it stands in a sentence: "the Philippines", "Japan"."""
    return f"the {name}" if name in _ARTICLE else name
