"""References: documented facts about cultures, and which of them mislead about which.

One JSON object a line. Whatever is wrong ends here, with the file and the line; what comes out is
normalised: white space collapsed, languages as BCP 47 tags, ids given where there were none.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from habitus.data import fields
from habitus.data.answers import fold
from habitus.data.source import Row, Source
from habitus.errors import InputError, UnknownNameError
from habitus.types import Frozen, canonical_json, digest

REJECTED = 3
"""Rejected answers of an item, each from a mismatched reference (papers: CARB A1)."""


def _collapse(value: Any) -> Any:
    """Return text on one line, in the normal form NFC."""
    if not isinstance(value, str):
        return value
    return unicodedata.normalize("NFC", " ".join(value.split()))


Text = Annotated[str, BeforeValidator(_collapse), Field(min_length=1)]
"""Text on one line that is not blank."""


class Work(Frozen):
    """The work that documents a fact."""

    title: Text
    """Its title."""
    publisher: Text
    """Who published it."""


class CulturalReference(Frozen):
    """One documented fact about a culture: a line of a file of references."""

    id: Text
    """Unique among all references; derived from the content where it is not given."""
    culture: Text
    """The cultural group, such as "Arabic" or "Korean"."""
    country: Text | None = None
    """A country or region by its English short name, where the fact is about one."""
    language: Text
    """BCP 47 tag of the language that questions and answers are written in."""
    text_language: Text | None = None
    """BCP 47 tag of the language that `text` is written in."""
    domain: Text
    """What is tested, such as "commonsense", "values", "safety" or "linguistics"."""
    topic: Text
    """What the fact is about, such as "tea"; mismatched references of the same topic mislead."""
    text: Text
    """The documented fact."""
    source: Work
    """Where it is documented."""
    licence: Text
    """Licence of the text, as an SPDX identifier where there is one."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """For survey facts: the share of people who gave the answer."""


@dataclass(frozen=True)
class Target:
    """One item that is to be made."""

    key: str
    """The item's id: the reference's id and the number of the question."""
    reference: CulturalReference
    """The fact that the question is about."""
    wrong: tuple[CulturalReference, ...]
    """The mismatched references, one for each rejected answer."""


@dataclass(frozen=True)
class ReferenceSet:
    """References as read."""

    references: tuple[CulturalReference, ...]
    """Those that items are made of."""
    mismatch: tuple[CulturalReference, ...] = ()
    """Further ones, which only mislead."""
    duplicates: int = 0
    """Lines left out because another says the same of the same culture."""

    @property
    def pool(self) -> tuple[CulturalReference, ...]:
        """All of them."""
        return (*self.references, *self.mismatch)


def read_references(
    path: Path,
    mismatch: Path | None = None,
    recognise: Callable[[str], str | None] = lambda text: None,
) -> ReferenceSet:
    """Read references.

    Args:
        path: JSONL, JSON or Parquet: the references that items are made of.
        mismatch: A second file, whose references only mislead.
        recognise: Returns the language of a text, or None when it cannot tell; asked where
            `text_language` is not given. Otherwise the text is taken to be in `language`.

    Raises:
        InputError: Naming the file, the line and what to mend.
    """
    seen: dict[str, str] = {}
    said: set[tuple[str, str, str]] = set()
    kept: list[list[CulturalReference]] = []
    duplicates = 0
    for file in (path, mismatch):
        kept.append([])
        for row in Source(file).rows() if file else ():
            one = _parse(row, recognise)
            content = (one.culture.casefold(), one.language.lower(), fold(one.text))
            if content in said:
                duplicates += 1
                continue
            if one.id in seen:
                raise row.error(f"id {one.id!r} is also that of {seen[one.id]}; ids must be unique")
            said.add(content)
            seen[one.id] = str(row.place)
            kept[-1].append(one)
    if not kept[0]:
        raise InputError(f"{path}: holds no reference")
    return ReferenceSet(tuple(kept[0]), tuple(kept[1]), duplicates)


def _parse(row: Row, recognise: Callable[[str], str | None]) -> CulturalReference:
    tag = fields.language(row)
    if tag is None:
        raise row.error("language is missing; give a BCP 47 tag such as th")
    values = dict(row.values) | {"language": tag}
    given = fields.language(Row({"language": row.values.get("text_language")}, row.place))
    text = values.get("text")
    if given is None and isinstance(text, str):
        given = recognise(text)
    values["text_language"] = given or tag
    if values.get("id") is None:
        named = [values.get(name) for name in ("culture", "country", "language", "domain", "text")]
        values["id"] = f"ref-{digest(_collapse_all(named), 12)}"
    elif isinstance(values["id"], int) and not isinstance(values["id"], bool):
        values["id"] = str(values["id"])
    try:
        return CulturalReference.model_validate(values)
    except ValidationError as error:
        raise row.error(
            f"{fields.first_problem(error)}; a reference has culture, language, domain, topic, "
            "text, source (title, publisher) and licence"
        ) from error


def _collapse_all(values: Iterable[Any]) -> list[Any]:
    return [str(_collapse(value)) for value in values]


def targets(
    references: ReferenceSet,
    *,
    culture: str | None = None,
    per_reference: int = 1,
    limit: int | None = None,
    seed: int = 0,
) -> tuple[Target, ...]:
    """Return the items that are to be made, in the order of the references.

    Args:
        references: What was read.
        culture: Make items of this culture's references only.
        per_reference: Questions for each reference.
        limit: At most so many items, spread evenly over cultures and domains; a smaller limit
            draws a part of a larger one's.
        seed: Seed of the draws.

    Raises:
        UnknownNameError: When no reference has the culture.
        InputError: When fewer than four distinct references are there for an item.
    """
    usable = _of_culture(references.references, culture)
    pool = Mismatches(references.pool, seed)
    wrong = {one.id: pool.of(one) for one in usable}
    made = [
        Target(f"{one.id}-{number}", one, wrong[one.id])
        for one in usable
        for number in range(1, per_reference + 1)
    ]
    return tuple(made if limit is None else _take(made, limit, seed))


def _of_culture(
    references: Sequence[CulturalReference], culture: str | None
) -> Sequence[CulturalReference]:
    if culture is None:
        return references
    found = [one for one in references if one.culture.casefold() == culture.strip().casefold()]
    if not found:
        raise UnknownNameError("culture", culture, {one.culture for one in references})
    return found


class _Other(NamedTuple):
    """A reference that can mislead."""

    culture: str
    key: int
    reference: CulturalReference


class Mismatches:
    """Chooses the references that rejected answers are written from (papers: CARB A1).

    First the same topic in another culture, then the same domain, then any of another culture,
    then other facts of the same culture; among equals a culture that is not there yet, then an
    order of hash(seed, id).
    """

    def __init__(self, pool: Sequence[CulturalReference], seed: int) -> None:
        """Sort the pool.

        Args:
            pool: All references; of those that say the same, the first is used.
            seed: Seed of the order among equals.
        """
        self._seed = seed
        distinct: dict[str, CulturalReference] = {}
        for one in pool:
            distinct.setdefault(fold(one.text), one)
        self._by_text = distinct
        self._all = [
            _Other(one.culture.casefold(), self._key(one.id), one) for one in distinct.values()
        ]
        self._topics: dict[str, list[_Other]] = defaultdict(list)
        self._domains: dict[str, list[_Other]] = defaultdict(list)
        for other in self._all:
            self._topics[other.reference.topic.casefold()].append(other)
            self._domains[other.reference.domain.casefold()].append(other)

    def _key(self, id: str) -> int:
        text = canonical_json([self._seed, id]).encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8])

    def of(self, reference: CulturalReference) -> tuple[CulturalReference, ...]:
        """Return three references that say something else.

        Raises:
            InputError: When there are fewer.
        """
        culture, own = reference.culture.casefold(), self._key(reference.id)
        mine = self._by_text.get(fold(reference.text))
        tiers = (
            (self._topics.get(reference.topic.casefold(), []), True),
            (self._domains.get(reference.domain.casefold(), []), True),
            (self._all, True),
            (self._all, False),
        )
        chosen: list[_Other] = []
        for tier, foreign in tiers:
            taken = {other.key for other in chosen}
            fitting = [
                other
                for other in tier
                if (other.culture != culture) == foreign
                and other.reference is not mine
                and other.key not in taken
            ]
            _draw(fitting, own, chosen)
            if len(chosen) == REJECTED:
                return tuple(other.reference for other in chosen)
        raise InputError(
            f"reference {reference.id}: only {len(chosen)} others say something else, and an item "
            f"needs {REJECTED} to mislead; add references, or give more with --mismatch"
        )


def _draw(fitting: list[_Other], own: int, chosen: list[_Other]) -> None:
    """Add to `chosen` from one tier, as long as there are any and it is not full."""
    while fitting and len(chosen) < REJECTED:
        used = [other.culture for other in chosen]
        # The exclusive or gives each reference an order of its own, without hashing again.
        best = min(fitting, key=lambda other: (used.count(other.culture), other.key ^ own))
        fitting.remove(best)
        chosen.append(best)


def _take(made: Sequence[Target], limit: int, seed: int) -> list[Target]:
    """Draw by strata that take turns, as `habitus.data.take` does with items."""
    strata: dict[tuple[str, str], list[tuple[bytes, str]]] = defaultdict(list)
    for one in made:
        key = hashlib.sha256(canonical_json([seed, one.key]).encode()).digest()
        strata[one.reference.culture, one.reference.domain].append((key, one.key))
    turns = sorted(sorted(stratum) for stratum in strata.values())
    longest = max(map(len, turns), default=0)
    order = [turn[place][1] for place in range(longest) for turn in turns if place < len(turn)]
    drawn = set(order[:limit])
    return [one for one in made if one.key in drawn]
