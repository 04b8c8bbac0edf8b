"""A mix's sources on their way into it: what is kept of them, and which groups belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from habitus.data.cards import non_commercial
from habitus.data.countries import country
from habitus.errors import InputError, UnknownNameError
from habitus.pairs.mix import Axis, MixSource
from habitus.pairs.sources import Found
from habitus.pairs.splits import conversation_key, normalise, prompt_key
from habitus.types import PreferencePair

REPEATED = "another pair has the same prompt, responses and people"
CONTRADICTED = "another pair of the same people has the responses the other way round"
NOT_NAMED = "not of the countries, cultures or languages that the source is divided by"


@dataclass
class Pool:
    """One source's pairs on their way into the mix."""

    name: str
    """Name in the mix file."""
    spec: MixSource
    """What the mix file says of it."""
    found: Found
    """What was read."""
    pairs: list[PreferencePair]
    """What is left of it so far."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Why pairs are not left, and how many."""


def marked(pair: PreferencePair, name: str, licence: str | None) -> PreferencePair:
    """Return a pair of a source: its id begins with the name, its licence is told.

    Args:
        pair: The pair as read.
        name: The source's name.
        licence: Licence where the pair names none.
    """
    licence = pair.licence or licence
    told = non_commercial([licence]) if licence else "unknown"
    return pair.model_copy(
        update={
            "id": f"{name}:{pair.id}",
            "licence": licence,
            "non_commercial": None if told == "unknown" else told == "yes",
        }
    )


def divide(pool: Pool) -> None:
    """Keep what the source's share is divided by.

    Raises:
        UnknownNameError: When the source has no pair of a name.
        InputError: When two names stand for the same pairs.
    """
    if pool.spec.division is None:
        return
    axis, shares = pool.spec.division
    known = {value for pair in pool.pairs if (value := value_of(pair, axis))}
    for name in shares:
        if not any(matches(value, name, axis) for value in known):
            raise UnknownNameError(axis, name, known)
    for value in sorted(known):
        if len(both := [name for name in shares if matches(value, name, axis)]) > 1:
            raise InputError(f"{axis}: {' and '.join(both)} both stand for {value}; name one")
    leave_out(
        [pool],
        lambda pair: not any(matches(value_of(pair, axis), name, axis) for name in shares),
        NOT_NAMED,
    )


def value_of(pair: PreferencePair, axis: Axis) -> str | None:
    """Return a pair's country, culture or language."""
    return {"countries": pair.country, "cultures": pair.culture, "languages": pair.language}[axis]


def matches(value: str | None, name: str, axis: Axis) -> bool:
    """Tell whether a pair's country, culture or language is the one named."""
    if value is None:
        return False
    one, other = value.casefold(), name.casefold()
    if axis == "countries":
        other = country(name)[0].casefold()
    return one == other or (axis == "languages" and one.startswith(other + "-"))


def leave_out(
    pools: Iterable[Pool], problem: Callable[[PreferencePair], str | bool], reason: str
) -> None:
    """Leave out pairs that have a problem, which is counted by `reason` or by what it is."""
    for pool in pools:
        kept = []
        for pair in pool.pairs:
            found = problem(pair)
            if found:
                pool.dropped[found if isinstance(found, str) else reason] += 1
            else:
                kept.append(pair)
        pool.pairs = kept


@dataclass(frozen=True)
class Excluded:
    """Tells pairs whose prompt or group stands in a benchmark or set that is left out."""

    groups: frozenset[str]
    """Its groups."""
    prompts: frozenset[str]
    """Its prompts, normalised."""

    def __call__(self, pair: PreferencePair) -> bool:
        """Tell whether a pair is to be left out."""
        return pair.group in self.groups or prompt_key(pair) in self.prompts


class Repeats:
    """Tells pairs that were seen before, whatever their source."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, ...]] = set()

    def __call__(self, pair: PreferencePair) -> str:
        """Return what is wrong with a pair after those that were asked about before, or ""."""
        who = (conversation_key(pair.prompt), pair.country or "", pair.annotator or "")
        chosen, rejected = normalise(pair.chosen), normalise(pair.rejected)
        if (*who, chosen, rejected) in self.seen:
            return REPEATED
        if (*who, rejected, chosen) in self.seen:
            return CONTRADICTED
        self.seen.add((*who, chosen, rejected))
        return ""


def joined_groups(pairs: Iterable[PreferencePair]) -> dict[str, str]:
    """Return each question's group to the group that it is joined to: the first by name."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    first: dict[str, str] = {}
    for pair in pairs:
        if pair.annotator == pair.group:
            continue
        parents.setdefault(pair.group, pair.group)
        one, other = root(pair.group), root(first.setdefault(prompt_key(pair), pair.group))
        parents[max(one, other)] = min(one, other)
    return {name: root(name) for name in parents}
