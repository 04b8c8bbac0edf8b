"""Read the folders that `habitus train scpo` writes: a study of country reward models.

A study is one set of pairs, one base (global) reward model, and units: one training each, of one
country, variant, fold, seed and share of the data. Several folders of one study, such as its
shards, are read as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from habitus.errors import InputError
from habitus.metrics.preferences_files import Schema, read_lines, read_object

STUDY, PAIRS, GLOBAL, UNITS = "study.json", "pairs.jsonl", "global.jsonl", "units"
RUN, SCORES, FILTER, CURVE = "run.json", "scores.jsonl", "filter.jsonl", "curve.jsonl"
BENCHMARK = "benchmark.json"

SPLIT = "split"
"""Written in place of a fold's number where the pairs' own train and test parts are used."""

VARIANTS = ("finetune", "filter", "inverse", "weight", "scpo")
"""Variants of training in reading order (papers: SCPO, the table of variants)."""

_PAIRS: Schema = {
    "pair": pl.String,
    "country": pl.String,
    "group": pl.String,
    "fold": pl.Int64,
    "split": pl.String,
    "source": pl.String,
}
_SCORES: Schema = {"pair": pl.String, "chosen": pl.Float64, "rejected": pl.Float64}
_FILTER: Schema = {
    "pair": pl.String,
    "p": pl.Float64,
    "weight": pl.Float64,
    "kept": pl.Boolean,
}
_CURVE: Schema = {"step": pl.Int64, "loss": pl.Float64}

Key = tuple[str, str, int | None, int, float]
"""Country, variant, fold, seed, share."""


@dataclass(frozen=True)
class Unit:
    """One finished training."""

    folder: Path
    """Its folder."""
    country: str
    """The country whose pairs it was trained on."""
    variant: str
    """One of `VARIANTS`."""
    fold: int | None
    """The fold that was held out; None where the pairs' own split is used."""
    seed: int
    """Seed of the training."""
    share: float
    """Share of the training data that was used, above 0 to 1."""
    run: Mapping[str, Any]
    """All of `run.json`."""

    @property
    def key(self) -> Key:
        """What tells it from the others."""
        return self.country, self.variant, self.fold, self.seed, self.share


@dataclass(frozen=True)
class Study:
    """One study, read from one or more folders."""

    folders: tuple[Path, ...]
    """Where it was read from."""
    about: tuple[Mapping[str, Any], ...]
    """`study.json` of each folder."""
    countries: tuple[str, ...]
    """Countries with models, in the studies' order."""
    variants: tuple[str, ...]
    """Variants, in the order of `VARIANTS`."""
    folds: tuple[int | None, ...]
    """Folds that are held out in turn; None stands for the pairs' own split."""
    pairs: pl.DataFrame
    """The held-out pairs of the countries: `pair`, `country`, `group`, `fold`, `split`,
    `source`, and the base's `chosen` and `rejected` scores (null where it failed)."""
    units: tuple[Unit, ...]
    """Finished units."""
    unfinished: tuple[Key, ...]
    """Units that the studies name and that are not finished."""
    scores: pl.DataFrame
    """Scores of held-out pairs: `model` (the country), `variant`, `fold`, `seed`, `share`, `pair`,
    `chosen`, `rejected`; null where the scorer failed."""

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the finished units."""
        return tuple(sorted({unit.seed for unit in self.units}))

    @cached_property
    def filters(self) -> pl.DataFrame:
        """What the filter saw of each training pair, once for each country and variant.

        `country`, `variant`, `pair`, `p` (how sure the base is of the preference), `weight`,
        `kept`. Units of one country and variant agree on a pair, so its first row stands for all.
        """
        return _filters(self.units)

    @property
    def non_commercial(self) -> bool:
        """True when any of the data may not be used commercially."""
        return any(bool(about.get("non_commercial")) for about in self.about)

    @property
    def base(self) -> str:
        """Name of the base reward model."""
        return _name(self.about[0].get("base"))

    @property
    def base_revision(self) -> str:
        """Revision of the base's weights."""
        base = self.about[0].get("base")
        return str(base.get("revision") or "not recorded") if isinstance(base, Mapping) else "-"

    @property
    def sources(self) -> tuple[str, ...]:
        """Data sets of the held-out pairs."""
        return tuple(sorted(self.pairs["source"].drop_nulls().unique().to_list()))


def read_study(paths: Sequence[Path]) -> Study:
    """Read one study from its folders.

    Args:
        paths: Folders written by `habitus train scpo`, one or more.

    Raises:
        InputError: When a folder or file is missing or broken, two folders are not of one study or
            hold the same unit, or a unit scored a pair that it was trained on.
    """
    if not paths:
        raise InputError("no study was named; give a folder of habitus train scpo")
    about = tuple(_about(path) for path in paths)
    _same(paths, about)
    units = [unit for path in paths for unit in _units(path)]
    _distinct(units)
    countries = _union(about, "countries")
    folds = _union(about, "folds") or tuple(dict.fromkeys(unit.fold for unit in units))
    named = _union(about, "variants")
    variants = tuple(name for name in VARIANTS if name in named)
    done = {unit.key for unit in units}
    unfinished = tuple(key for key in _expected(about) if key not in done)
    pairs = _held_out(_pairs(paths), countries, folds)
    parts = [_unit_scores(unit, pairs) for unit in units]
    scores = pl.concat([_no_scores(), *parts])
    return Study(
        tuple(paths),
        about,
        countries,
        variants,
        folds,
        _tested(pairs, scores, units),
        tuple(units),
        unfinished,
        scores,
    )


def _filters(units: Sequence[Unit]) -> pl.DataFrame:
    parts = [
        read_lines(unit.folder / FILTER, _FILTER, ("pair",)).with_columns(
            country=pl.lit(unit.country), variant=pl.lit(unit.variant)
        )
        for unit in units
        if (unit.folder / FILTER).is_file()
    ]
    empty = pl.DataFrame(schema={**_FILTER, "country": pl.String, "variant": pl.String})
    table = pl.concat([empty, *parts])
    return table.unique(["country", "variant", "pair"], keep="first", maintain_order=True)


def read_curves(study: Study) -> pl.DataFrame:
    """Return the loss by step of all finished units: `unit`, `variant`, `share`, `step`, `loss`."""
    parts = [
        read_lines(unit.folder / CURVE, _CURVE, ("step",)).with_columns(
            unit=pl.lit(number, pl.Int64), variant=pl.lit(unit.variant), share=pl.lit(unit.share)
        )
        for number, unit in enumerate(study.units)
        if (unit.folder / CURVE).is_file()
    ]
    schema = {**_CURVE, "unit": pl.Int64, "variant": pl.String, "share": pl.Float64}
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def read_benchmarks(study: Study) -> list[tuple[Unit, Mapping[str, Any]]]:
    """Return the benchmark of each unit that has one: the base before, the model after.

    Raises:
        InputError: When a file has no accuracy before or after.
    """
    found: list[tuple[Unit, Mapping[str, Any]]] = []
    for unit in study.units:
        path = unit.folder / BENCHMARK
        if not path.is_file():
            continue
        record = read_object(path)
        for part in ("before", "after"):
            inner = record.get(part)
            if not isinstance(inner, Mapping) or "value" not in inner:
                raise InputError(f"{path}: {part!r} holds no accuracy; run the unit again")
        found.append((unit, record))
    return found


def _name(value: Any) -> str:
    """Return a model's name, whether it is given as text or with its revision."""
    return str(value.get("name", value)) if isinstance(value, Mapping) else str(value or "unnamed")


def _fold(value: Any) -> int | None:
    """Return a fold's number; None for the pairs' own split."""
    return None if value is None or value == SPLIT else int(value)


def _about(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise InputError(f"no such folder: {path}; give a folder written by habitus train scpo")
    about = read_object(path / STUDY)
    for key in ("countries", "variants", "folds", "seeds", "shares"):
        if not isinstance(about.get(key), list):
            raise InputError(f"{path / STUDY}: {key!r} must be a list; run the training again")
    about["folds"] = [_fold(fold) for fold in about["folds"]]
    unknown = [name for name in about["variants"] if name not in VARIANTS]
    if unknown:
        raise InputError(
            f"{path / STUDY}: unknown variant {unknown[0]!r}; known: {', '.join(VARIANTS)}"
        )
    return about


def _same(paths: Sequence[Path], about: Sequence[Mapping[str, Any]]) -> None:
    """Refuse folders of different pairs or bases: their figures would not be of one thing."""
    for key in ("pairs_digest", "base"):
        for path, other in zip(paths, about, strict=True):
            if other.get(key) != about[0].get(key):
                raise InputError(
                    f"{paths[0]} and {path} differ in {key} ({about[0].get(key)!r}, "
                    f"{other.get(key)!r}); make a report of each"
                )


def _union(about: Sequence[Mapping[str, Any]], key: str) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(value for each in about for value in each[key]))


def _expected(about: Sequence[Mapping[str, Any]]) -> list[Key]:
    keys = ("countries", "variants", "folds", "seeds", "shares")
    found = [key for each in about for key in product(*(each[name] for name in keys))]
    return list(dict.fromkeys(found))


def _units(path: Path) -> list[Unit]:
    """Return the finished units of a folder."""
    root = path / UNITS
    if not root.is_dir():
        return []
    found = []
    for folder in sorted(child for child in root.iterdir() if child.is_dir()):
        if not (folder / RUN).is_file():
            continue  # it was not finished: `run.json` says when it is
        run = read_object(folder / RUN)
        if not run.get("done"):
            continue
        try:
            found.append(
                Unit(
                    folder,
                    str(run["country"]),
                    str(run["variant"]),
                    _fold(run["fold"]),
                    int(run["seed"]),
                    float(run["share"]),
                    run,
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{folder / RUN}: country, variant, fold, seed and share are needed ({error}); "
                "delete the unit's folder and resume"
            ) from error
    return found


def _distinct(units: Sequence[Unit]) -> None:
    seen: dict[Key, Unit] = {}
    for unit in units:
        other = seen.setdefault(unit.key, unit)
        if other is not unit:
            raise InputError(
                f"{other.folder} and {unit.folder} are the same unit; leave one of them out"
            )


def _pairs(paths: Sequence[Path]) -> pl.DataFrame:
    """Return all pairs of the folders with the base's scores."""
    parts, bases = [], []
    for path in paths:
        parts.append(read_lines(path / PAIRS, _PAIRS, ("pair", "country", "group")))
        bases.append(read_lines(path / GLOBAL, _SCORES, ("pair",)))
    pairs = pl.concat(parts).unique(maintain_order=True)
    repeated = pairs.filter(pl.col("pair").is_duplicated())
    if repeated.height:
        raise InputError(
            f"{paths[0] / PAIRS}: pair {repeated['pair'][0]!r} is there twice with different "
            "content; give folders of one study"
        )
    base = pl.concat(bases).unique("pair", keep="first", maintain_order=True)
    return pairs.join(base, on="pair", how="left", maintain_order="left")


def _held_out(
    pairs: pl.DataFrame, countries: Sequence[str], folds: Sequence[int | None]
) -> pl.DataFrame:
    """Return the countries' pairs that some unit holds out."""
    held = pl.col("fold").is_in([fold for fold in folds if fold is not None])
    if None in folds:
        held = held | (pl.col("split") == "test")
    return pairs.filter(pl.col("country").is_in(list(countries)) & held.fill_null(False))


def _tested(pairs: pl.DataFrame, scores: pl.DataFrame, units: Sequence[Unit]) -> pl.DataFrame:
    """Leave out pairs that finished units could have been tested on and, by a limit, were not."""
    done = {unit.fold for unit in units}
    waiting = ~pl.col("fold").is_in([fold for fold in done if fold is not None])
    if None in done:
        waiting = waiting & (pl.col("split") != "test")
    tested = pl.col("pair").is_in(scores["pair"].unique().implode())
    return pairs.filter(tested | waiting.fill_null(None not in done))


def _no_scores() -> pl.DataFrame:
    schema: Schema = {
        "model": pl.String,
        "variant": pl.String,
        "fold": pl.Int64,
        "seed": pl.Int64,
        "share": pl.Float64,
        **_SCORES,
    }
    return pl.DataFrame(schema=schema)


def _unit_scores(unit: Unit, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return a unit's scores, after a look at whether it held those pairs out."""
    path = unit.folder / SCORES
    scores = read_lines(path, _SCORES, ("pair",))
    repeated = scores["pair"].is_duplicated()
    if repeated.any():
        name = scores["pair"].filter(repeated)[0]
        raise InputError(f"{path}: pair {name!r} is scored twice; delete the unit and resume")
    joined = scores.join(pairs.select("pair", "fold", "split"), on="pair", how="inner")
    seen = (pl.col("split") == "train") if unit.fold is None else (pl.col("fold") != unit.fold)
    leaked = joined.filter(seen.fill_null(False))
    if leaked.height:
        raise InputError(
            f"{path}: pair {leaked['pair'][0]!r} was not held out from this unit, so its score "
            "proves nothing; delete the unit and run the training again"
        )
    return joined.select(
        model=pl.lit(unit.country),
        variant=pl.lit(unit.variant),
        fold=pl.lit(unit.fold, pl.Int64),
        seed=pl.lit(unit.seed, pl.Int64),
        share=pl.lit(unit.share, pl.Float64),
        pair="pair",
        chosen="chosen",
        rejected="rejected",
    )
