"""A study's units: which pairs each one trains and is tested on, and its files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from habitus.errors import InputError, UnknownNameError
from habitus.store import safe_name, write_atomic
from habitus.train.losses import VARIANTS, Variant
from habitus.types import PreferencePair

STUDY, PAIRS, GLOBAL, UNITS = "study.json", "pairs.jsonl", "global.jsonl", "units"
RUN, FILTER, SCORES, MODEL = "run.json", "filter.jsonl", "scores.jsonl", "model"

SPLIT = "split"
"""Written in place of a fold's number: the pairs' own parts, `train` and `test`."""

Fold = int | str
"""A fold's number, or `SPLIT`."""


@dataclass(frozen=True)
class Unit:
    """One reward model of a study."""

    country: str
    """Whose pairs it is trained on."""
    variant: Variant
    """How they are filtered and weighted."""
    fold: Fold
    """The fold that is held out."""
    seed: int
    """Seed of training, and of which part of the data a share is."""
    share: float
    """Part of the country's training groups that is used, in (0, 1]."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        share = f"{self.share * 100:g}"
        return (
            f"{safe_name(self.country)}--{self.variant}--fold{self.fold}--seed{self.seed}"
            f"--share{share}"
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What `run.json` says of it."""
        return {
            "country": self.country,
            "variant": self.variant,
            "fold": self.fold,
            "seed": self.seed,
            "share": self.share,
        }


@dataclass(frozen=True)
class Grid:
    """What a study varies; its units are all combinations."""

    countries: tuple[str, ...]
    """Countries."""
    variants: tuple[Variant, ...] = VARIANTS
    """Variants."""
    folds: tuple[Fold, ...] = (SPLIT,)
    """Folds to hold out."""
    seeds: tuple[int, ...] = (0,)
    """Seeds."""
    shares: tuple[float, ...] = (1.0,)
    """Parts of the training data."""

    def units(self) -> list[Unit]:
        """Return all units, the first seed and fold of all countries first."""
        return [
            Unit(country, variant, fold, seed, share)
            for seed, fold, share, country, variant in product(
                self.seeds, self.folds, self.shares, self.countries, self.variants
            )
        ]


def choose(
    pairs: Sequence[PreferencePair],
    countries: Sequence[str],
    variants: Sequence[str],
    folds: Sequence[str],
    seeds: Sequence[int],
    shares: Sequence[float],
) -> Grid:
    """Check what the user asked for against the pairs.

    Args:
        pairs: All pairs.
        countries: Names; "all", or none, is all that pairs have.
        variants: Names; "all", or none, is all of them.
        folds: Numbers or `split`; "all" is every fold; none is every fold, or `split` where pairs
            have no folds.
        seeds: Seeds; none is 0.
        shares: Parts of the training data; none is all of it.

    Raises:
        InputError: When one of them is not there or makes no sense.
    """
    known = sorted({pair.country for pair in pairs if pair.country})
    if not known:
        raise InputError("no pair has a country; SCPO needs them: see habitus pairs")
    chosen = known if not countries or "all" in countries else _unique(countries)
    for name in chosen:
        if name not in known:
            raise UnknownNameError("country", name, known)
    named = list(VARIANTS) if not variants or "all" in variants else _unique(variants)
    for name in named:
        if name not in VARIANTS:
            raise UnknownNameError("variant", name, [*VARIANTS, "all"])
    for share in shares:
        if not 0 < share <= 1:
            raise InputError(f"--share {share:g}: must be above 0 and at most 1")
    return Grid(
        countries=tuple(chosen),
        variants=tuple(each for each in VARIANTS if each in named),
        folds=_folds([pair for pair in pairs if pair.country in chosen], folds),
        seeds=tuple(_unique(seeds)) or (0,),
        shares=tuple(sorted(set(shares), reverse=True)) or (1.0,),
    )


def _folds(pairs: Sequence[PreferencePair], asked: Sequence[str]) -> tuple[Fold, ...]:
    known = sorted({pair.fold for pair in pairs if pair.fold is not None})
    parts = {pair.split for pair in pairs}
    if not asked and not known:
        asked = [SPLIT]
    found: list[Fold] = []
    for name in asked or ["all"]:
        if name == SPLIT:
            if not {"train", "test"} <= parts:
                raise InputError("--fold split: not all of train and test are among the pairs")
            found.append(SPLIT)
        elif name == "all":
            if len(known) < 2:
                raise InputError(
                    "--fold all: the pairs are not in two folds or more; use --fold split"
                )
            found += known
        elif not name.isdigit() or int(name) not in known:
            raise UnknownNameError("fold", name, [*map(str, known), SPLIT, "all"])
        else:
            found.append(int(name))
    return tuple(_unique(found))


def held_out(pair: PreferencePair, fold: Fold) -> bool | None:
    """Tell whether a pair is tested on (True), trained on (False), or neither (None)."""
    if fold == SPLIT:
        return None if pair.split is None else pair.split == "test"
    return None if pair.fold is None else pair.fold == fold


def training_pairs(
    pairs: Iterable[PreferencePair], unit: Unit, limit: int | None
) -> list[PreferencePair]:
    """Return the pairs that a unit may train on, before any filter.

    A smaller share is a part of a larger one, and whole groups: people or questions.

    Args:
        pairs: The study's pairs, of this country or of all.
        unit: The unit.
        limit: At most so many, by whole groups as long as they fit.
    """
    own = [
        pair
        for pair in pairs
        if pair.country == unit.country and held_out(pair, unit.fold) is False
    ]
    groups = sorted({pair.group for pair in own}, key=lambda group: _rank(group, unit.seed))
    kept = set(groups[: math.ceil(len(groups) * unit.share)])
    own = [pair for pair in own if pair.group in kept]
    return own if limit is None else take(own, limit, unit.seed)


def test_pairs(
    pairs: Iterable[PreferencePair], fold: Fold, limit: int | None
) -> list[PreferencePair]:
    """Return the held-out pairs of all countries, at most `limit` of each."""
    found = [pair for pair in pairs if held_out(pair, fold)]
    if limit is None:
        return found
    by_country: dict[str | None, list[PreferencePair]] = {}
    for pair in found:
        by_country.setdefault(pair.country, []).append(pair)
    return [pair for each in by_country.values() for pair in take(each, limit, 0)]


test_pairs.__test__ = False  # type: ignore[attr-defined]  # no test, whatever pytest takes it for


def take(pairs: Sequence[PreferencePair], limit: int, seed: int) -> list[PreferencePair]:
    """Return `limit` pairs, group by group in an order drawn from the seed, as they stand."""
    order = sorted(pairs, key=lambda pair: (_rank(pair.group, seed), _rank(pair.id, seed)))
    kept = {pair.id for pair in order[:limit]}
    return [pair for pair in pairs if pair.id in kept]


def shard_of(units: Sequence[Unit], shard: tuple[int, int]) -> list[Unit]:
    """Return the units of shard (I, N), I from 1 on: every N-th."""
    return list(units[shard[0] - 1 :: shard[1]])


def slim(pair: PreferencePair) -> dict[str, Any]:
    """Return what a study's `pairs.jsonl` holds of a pair: no text."""
    return {
        "pair": pair.id,
        "country": pair.country,
        "group": pair.group,
        "annotator": pair.annotator,
        "fold": pair.fold,
        "split": pair.split,
        "language": pair.language,
        "source": pair.source,
    }


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSONL file, whole or not at all."""
    write_atomic(path, _lines(records))


def _lines(records: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    for record in records:
        yield json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None where there is none, or it is torn."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _rank(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value as it comes back from a JSON file."""
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found
