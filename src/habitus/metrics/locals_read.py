"""Read the folders that `habitus train locals` writes, finished or still under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from habitus.errors import InputError
from habitus.metrics.locals_heldout import BY, WAYS
from habitus.metrics.preferences_files import Schema, read_lines, read_object
from habitus.store import flat
from habitus.types import Metric

RUN, HELD_OUT, CURVE, SAMPLES, WATCHED = (
    *("run.json", "heldout.json", "curve.jsonl", "samples.jsonl", "watched.jsonl"),
)
WARMUP, VERDICTS = "warmup", "verdicts"

WRITER = "habitus train locals"
"""The command that writes these folders."""

_FIGURES = (
    *("r_corr", "r_appr", "appr_clipped", "total", "accuracy", "both_orders", "p_a"),
    *("criteria_chars", "parse_rate", "reward_std", "flat_groups", "kl", "entropy", "loss"),
    *("tokens", "tokens_per_second", "seconds", "seconds_generate", "seconds_score"),
    "seconds_train",
)
_CURVE: Schema = {"step": pl.Int64, **dict.fromkeys(_FIGURES, pl.Float64())}
_WARMUP: Schema = {"step": pl.Int64, "loss": pl.Float64}
_TEXTS = ("pair", "culture", "language", "source", "right", "verdict", "text", "problem")
_SHOWN = ("domain", "question", "chosen", "rejected")
_REWARDS = ("r_corr", "r_appr", "total")
_SAMPLES: Schema = {
    "step": pl.Int64,
    **dict.fromkeys(_TEXTS, pl.String()),
    **dict.fromkeys(_REWARDS, pl.Float64()),
}
_WATCHED: Schema = _SAMPLES | dict.fromkeys(_SHOWN, pl.String())


@dataclass(frozen=True)
class LocalsRun:
    """One training of a judge."""

    label: str
    """Names it in tables: its folder's name."""
    folder: Path
    """Its folder."""
    record: Mapping[str, Any]
    """What `run.json` says."""
    curve: pl.DataFrame
    """A row for each step of reinforcement."""
    verdicts: pl.DataFrame
    """A row for each supervised step on verdicts before criteria are sampled: `step`, `loss`."""
    warmup: pl.DataFrame
    """A row for each other supervised step."""
    samples: pl.DataFrame
    """Completions sampled at each step."""
    watched: pl.DataFrame
    """What was written for the same few pairs over training, with their texts."""
    held_out: tuple[Mapping[str, Any], ...] | None
    """Records of the held-out pairs; None where none were measured."""
    figures: tuple[Metric, ...]
    """Their figures; the group says `criteria`, one of `WAYS`, beside the group's own key."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What can change a result."""
        found: Mapping[str, Any] = self.record["config"]
        return found

    @property
    def stage(self) -> str:
        """What was trained: "base" is the model as it was."""
        return str(self.config.get("stage"))

    @property
    def way(self) -> str:
        """How it judges at its best: "with" criteria, or "without" where it never learned them."""
        return "without" if self.stage in ("base", "verdict") else "with"

    @property
    def done(self) -> bool:
        """Whether it is finished."""
        return bool(self.record.get("done"))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as one level of names with dots."""
        return flat(self.config)

    @cached_property
    def twin(self) -> tuple[tuple[str, str], ...]:
        """The configuration without the seed: equal for runs that differ in it only."""
        found = sorted((key, repr(value)) for key, value in self.settings.items() if key != "seed")
        return tuple(found)


def read_runs(folders: Sequence[Path]) -> list[LocalsRun]:
    """Read runs; those of the model as it was come first.

    Raises:
        InputError: When a folder is named twice, is no such run, or a file of it is broken.
    """
    for path, times in Counter(folder.resolve() for folder in folders).items():
        if times > 1:
            raise InputError(f"{path} is named {times} times; name each folder once")
    runs = [_read(folder, label) for folder, label in zip(folders, _labels(folders), strict=True)]
    return sorted(runs, key=lambda run: run.stage != "base")


def _labels(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, and by more of the path where names are equal."""
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    for depth in range(2, max((len(path.parts) for path in paths), default=1) + 1):
        twice = {name for name, times in Counter(names).items() if times > 1}
        names = [
            "/".join(path.parts[-depth:]) if name in twice else name
            for path, name in zip(paths, names, strict=True)
        ]
    return names


def _read(folder: Path, label: str) -> LocalsRun:
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; give a folder written by {WRITER}")
    record = read_object(folder / RUN, WRITER)
    if record.get("method") != "think-as-locals" or not isinstance(record.get("config"), dict):
        raise InputError(f"{folder / RUN}: no run of {WRITER}")
    held_out, figures = _held_out(folder / HELD_OUT)
    return LocalsRun(
        label=label,
        folder=folder,
        record=record,
        curve=_lines(folder / CURVE, _CURVE, ("step",)),
        verdicts=_lines(folder / WARMUP / VERDICTS / CURVE, _WARMUP, ("step",)),
        warmup=_lines(folder / WARMUP / CURVE, _WARMUP, ("step",)),
        samples=_lines(folder / SAMPLES, _SAMPLES, ("step", "pair", "text")),
        watched=_lines(folder / WATCHED, _WATCHED, ("step", "pair", "text")),
        held_out=held_out,
        figures=figures,
    )


def _lines(path: Path, schema: Schema, required: Sequence[str]) -> pl.DataFrame:
    if not path.is_file():
        return pl.DataFrame(schema=schema)
    mend = "delete the line"
    return read_lines(path, schema, required, remedy=mend, torn=True).sort(
        "step", maintain_order=True
    )


def _held_out(path: Path) -> tuple[tuple[Mapping[str, Any], ...] | None, tuple[Metric, ...]]:
    if not path.is_file():
        return None, ()
    found = read_object(path, WRITER)
    try:
        pairs = tuple(found["pairs"])
        for place, record in enumerate(pairs, 1):
            for kind in WAYS.values():
                look = record[kind]
                if (look["first"] is None) != (look["second"] is None):
                    raise ValueError(f"pair {place} has a verdict in one order only")
            record["pair"], record["group"], *(record[name] for name in BY)
        figures = tuple(_metric(each) for each in found["figures"])
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(
            f"{path}: not held-out figures as {WRITER} writes them ({reason}); delete the file and "
            "run the training again with --resume"
        ) from error
    return pairs, figures


def _metric(figure: Mapping[str, Any]) -> Metric:
    if figure["criteria"] not in WAYS:
        raise ValueError(f"criteria is {figure['criteria']!r}, not one of {', '.join(WAYS)}")
    group = dict(figure["group"]) | {"criteria": str(figure["criteria"])}
    return Metric(group=group, **{key: figure[key] for key in _METRIC})


_METRIC = ("name", "value", "n", "n_excluded", "ci_low", "ci_high")
