"""Parts and folds by group, never by pair, and what could leak from one to the other."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from habitus.data.about import ABOUT
from habitus.data.answers import fold
from habitus.types import Frozen, Message, PreferencePair, canonical_json


@lru_cache(maxsize=1 << 12)  # one question has many pairs
def normalise(text: str) -> str:
    """Return a text as `fold` does, or whole where nothing would be left of it."""
    return fold(text) or unicodedata.normalize("NFKC", text).casefold()


def prompt_key(pair: PreferencePair) -> str:
    """Return a pair's whole conversation, normalised.

    Where a data set has one prompt for all its items, the responses are what tells them apart.
    """
    key = conversation_key(pair.prompt)
    about = ABOUT.get(pair.source or "")
    if about is not None and about.fixed_prompt:
        return "\n".join([key, *sorted((normalise(pair.chosen), normalise(pair.rejected)))])
    return key


def conversation_key(prompt: Iterable[Message]) -> str:
    """Return a conversation, normalised."""
    return "\n".join(f"{turn.role}:{normalise(turn.content)}" for turn in prompt)


def draw(*parts: str | int) -> float:
    """Return a number from 0 to below 1 that depends on `parts` only."""
    sha = hashlib.sha256(canonical_json(list(parts)).encode()).digest()
    return int.from_bytes(sha[:6]) / 2**48


@dataclass(frozen=True)
class Part:
    """Where a group belongs."""

    test: bool
    """Whether it is for testing."""
    fold: int
    """Its fold."""


def assign(
    pairs: Iterable[PreferencePair], *, test_share: float, folds: int, seed: int
) -> dict[str, Part]:
    """Give each group a part and a fold.

    Questions: by the hash of the question and the seed alone. So a question has one part and one
    fold in all countries, and whatever else is in the data or left out of them; parts have
    about, not exactly, the share asked for. People: those of a country are ordered by that hash;
    the first `test_share` of them, rounded, are for testing, and folds take turns. A group is a
    person where `group` is the pair's `annotator`.

    Args:
        pairs: All pairs of the source, before any are left out by country.
        test_share: Share of the groups for testing, 0 to below 1.
        folds: How many folds there are.
        seed: Seed of the hash.
    """
    people: dict[str, set[str]] = defaultdict(set)
    parts: dict[str, Part] = {}
    countries: dict[str, str] = {}
    for pair in pairs:
        countries.setdefault(pair.group, pair.country or "")
        if pair.annotator == pair.group:
            people[countries[pair.group]].add(pair.group)
        elif pair.group not in parts:
            parts[pair.group] = Part(
                test=draw(seed, "part", pair.group) < test_share,
                fold=int(draw(seed, "fold", pair.group) * folds),
            )
    for persons in people.values():
        ordered = sorted(persons, key=lambda person: (draw(seed, "part", person), person))
        n_test = round(test_share * len(ordered))
        for index, person in enumerate(ordered):
            parts[person] = Part(test=index < n_test, fold=index % folds)
    return parts


class Leakage(Frozen):
    """What stands on both sides of a border that training must not see across."""

    groups_in_both: int
    """Groups with pairs in both parts; 0, or the split is wrong."""
    prompts_in_both: int
    """Prompts that stand in both parts, but for case, spacing and punctuation."""
    test_pairs_affected: int
    """Pairs of the test part with such a prompt."""
    groups_in_several_folds: int
    """Groups with pairs in several folds; 0, or the folds are wrong."""
    prompts_in_several_folds: int
    """Prompts that stand in several folds."""
    fold_pairs_affected: int
    """Pairs with such a prompt."""


def leakage(pairs: Sequence[PreferencePair]) -> Leakage:
    """Count groups and near-identical prompts that stand in both parts, or in several folds."""
    keys = [prompt_key(pair) for pair in pairs]
    group_parts, group_folds = defaultdict(set), defaultdict(set)
    parts, folds = defaultdict(set), defaultdict(set)
    for key, pair in zip(keys, pairs, strict=True):
        group_parts[pair.group].add(pair.split)
        group_folds[pair.group].add(pair.fold)
        parts[key].add(pair.split)
        folds[key].add(pair.fold)
    both = {key for key, found in parts.items() if len(found) > 1}
    several = {key for key, found in folds.items() if len(found) > 1}
    return Leakage(
        groups_in_both=sum(len(found) > 1 for found in group_parts.values()),
        prompts_in_both=len(both),
        test_pairs_affected=sum(
            key in both and pair.split == "test" for key, pair in zip(keys, pairs, strict=True)
        ),
        groups_in_several_folds=sum(len(found) > 1 for found in group_folds.values()),
        prompts_in_several_folds=len(several),
        fold_pairs_affected=sum(key in several for key in keys),
    )
