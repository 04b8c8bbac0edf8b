"""From a run folder's files to `metrics.json`, without a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from pydantic import ValidationError

from habitus import metrics, taxonomy
from habitus.errors import RunError
from habitus.store import ITEMS, JUDGEMENTS, METRICS, RunFolder, write_json
from habitus.types import Comparison, Metric


@dataclass(frozen=True)
class RunFigures:
    """All figures of a run, with the tables that they were computed from."""

    summary: metrics.Summary
    """The figures."""
    tables: metrics.LabelledRun
    """Items and judgements as the statistics see them."""


def load_run(folder: RunFolder, label: str) -> metrics.LabelledRun:
    """Read what the statistics need of a run.

    Args:
        folder: The run folder.
        label: What to call the run in comparisons.

    Raises:
        HabitusError: When a file is missing or unreadable.
    """
    for name in (ITEMS, JUDGEMENTS):
        if not (folder.path / name).is_file():
            raise RunError(f"{folder.path} has no {name}; evaluate it again")
    return metrics.LabelledRun(
        label=label,
        items=metrics.read_items(folder.path / ITEMS),
        judgements=metrics.read_judgements(folder.path / JUDGEMENTS),
    )


def run_labels(folders: Sequence[RunFolder]) -> list[str]:
    """Name runs by their scorers, and by their folders too where that is not enough."""
    names = [folder.info.scorer.label for folder in folders]
    times = Counter(names)
    return [
        f"{name} [{folder.path.name}]" if times[name] > 1 else name
        for name, folder in zip(names, folders, strict=True)
    ]


def write_metrics(folder: RunFolder) -> RunFigures:
    """Compute all figures of a run and write `metrics.json`.

    Equal runs give equal bytes: there are no times in it.

    Raises:
        HabitusError: When the run's files are unreadable or the folder cannot be written.
    """
    info = folder.info
    run = load_run(folder, info.scorer.label)
    summary = metrics.summarise(
        run.items,
        run.judgements,
        languages=pl.DataFrame(taxonomy.table()),
        seed=info.seed,
        label=run.label,
    )
    body = {
        "metrics": [metric.model_dump(mode="json") for metric in summary.metrics],
        "comparisons": [item.model_dump(mode="json") for item in summary.comparisons],
    }
    write_json(folder.path / METRICS, body)
    return RunFigures(summary, run)


def read_metrics(folder: RunFolder) -> metrics.Summary:
    """Read `metrics.json` back.

    Raises:
        RunError: When it is missing or is not what `write_metrics` writes.
    """
    path = folder.path / METRICS
    try:
        body = json.loads(path.read_bytes())
        return metrics.Summary(
            metrics=tuple(Metric.model_validate(row) for row in body["metrics"]),
            comparisons=tuple(Comparison.model_validate(row) for row in body["comparisons"]),
        )
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise RunError(
            f"{path} is missing or unreadable; make it again with: habitus report {folder.path}"
        ) from error


def compare_runs(
    folders: Sequence[RunFolder], labels: Sequence[str], seed: int
) -> tuple[Comparison, ...]:
    """Compare every pair of runs on the items that both judged.

    Raises:
        HabitusError: When a run's files are unreadable.
    """
    runs = [load_run(folder, label) for folder, label in zip(folders, labels, strict=True)]
    return metrics.compare(runs, seed=seed)
