"""Benchmarks before and after training: does steering cost general ability?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.compare import paired, with_holm
from habitus.metrics.credit import codes, credits
from habitus.metrics.preferences import BASE
from habitus.metrics.preferences_read import Study, Unit, read_benchmarks
from habitus.metrics.read import read_items, read_judgements
from habitus.types import Comparison

BEFORE, AFTER = "benchmark-base", "benchmark"
"""Folders of the runs: of the base, in the study's folder, and of a model, in its unit's."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark before and after training."""

    benchmark: str
    """Its name."""
    country: str
    """Country of the models."""
    variant: str
    """Their variant."""
    units: int
    """Units that were evaluated."""
    before: float
    """Accuracy of the base."""
    after: float
    """Mean accuracy of the models."""
    lowest: float
    """Lowest accuracy of a model."""
    highest: float
    """Highest accuracy of a model."""
    n: int
    """Items."""
    before_interval: tuple[float, float] | None
    """95 % interval of the base's accuracy, for the size of the noise."""


@dataclass(frozen=True)
class BenchmarkTest:
    """A variant's models on a benchmark, against the base on the same items."""

    benchmark: str
    """Its name."""
    units: int
    """Models, of all countries; an item's credit is the mean over them."""
    comparison: Comparison
    """After minus before; Holm's correction is over all benchmarks and variants."""


def benchmarks(study: Study) -> tuple[Benchmark, ...]:
    """Return benchmark accuracy before and after, by benchmark, country and variant."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for unit, record in read_benchmarks(study):
        if unit.share == 1.0 and record["before"]["value"] is not None:
            groups.setdefault((_named(record), unit.country, unit.variant), []).append(record)
    found = []
    for (name, country, variant), records in groups.items():
        after = [float(r["after"]["value"]) for r in records if r["after"]["value"] is not None]
        if not after:
            continue
        first = records[0]["before"]
        low, high = first.get("ci_low"), first.get("ci_high")
        interval = None if low is None or high is None else (float(low), float(high))
        spread = (float(np.mean(after)), min(after), max(after))
        before = float(first["value"])
        n = int(first.get("n", 0))
        found.append(Benchmark(name, country, variant, len(after), before, *spread, n, interval))
    return tuple(found)


def benchmark_tests(
    study: Study, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[BenchmarkTest, ...]:
    """Test what each variant's models win or lose on each benchmark, item by item.

    Only units whose runs, and whose base's run, are in the folders are used.

    Args:
        study: The study.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    groups: dict[tuple[str, str], list[Unit]] = {}
    for unit, record in read_benchmarks(study):
        if unit.share == 1.0 and (unit.folder / AFTER).is_dir() and _base_run(unit).is_dir():
            groups.setdefault((_named(record), unit.variant), []).append(unit)
    found = []
    for (name, variant), units in groups.items():
        before, parents = _credits(_base_run(units[0]))
        parts = [_credits(unit.folder / AFTER)[0] for unit in units]
        after = pl.concat(parts).group_by("item_id").agg(pl.col("credit").mean().alias("after"))
        both = before.join(after, on="item_id", how="left", maintain_order="left").join(
            parents, on="item_id", how="left", maintain_order="left"
        )
        known = both.drop_nulls(["credit", "after"])
        difference = (known["after"] - known["credit"]).to_numpy()
        left_out = both.height - known.height
        test = paired(variant, BASE, difference, codes(known["parent"]), left_out, seed, resamples)
        found.append(BenchmarkTest(name, len(units), test))
    corrected = with_holm([each.comparison for each in found])
    return tuple(
        BenchmarkTest(old.benchmark, old.units, new)
        for old, new in zip(found, corrected, strict=True)
    )


def _named(record: Mapping[str, Any]) -> str:
    name = record.get("benchmark", "benchmark")
    return str(name.get("name", "benchmark")) if isinstance(name, Mapping) else str(name)


def _base_run(unit: Unit) -> Path:
    return unit.folder.parent.parent / BEFORE


def _credits(run: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return each item's credit, and the parent that it belongs to."""
    items = read_items(run / "items.jsonl")
    earned = credits(items, read_judgements(run / "judgements.jsonl"))
    return earned.select("item_id", "credit"), items.select("item_id", "parent")
