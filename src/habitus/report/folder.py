"""From run folders to pages: what is shown, read from the files alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from habitus.errors import InputError
from habitus.evaluate.summary import (
    RunFigures,
    compare_runs,
    load_run,
    read_metrics,
    run_labels,
)
from habitus.metrics import LabelledRun
from habitus.report.model import ReportData
from habitus.report.page import render_comparison, render_run
from habitus.store import ITEMS, JUDGEMENTS, REPORT, RunFolder, write_atomic
from habitus.types import Comparison, Item, Judgement

MAX_EXAMPLES = 400
"""Items that a page can browse; a larger run shows a sample, and says so."""


def write_report(folder: RunFolder, figures: RunFigures | None = None) -> ReportData:
    """Write `report.html` from a run folder that has its `metrics.json`.

    Args:
        folder: The run folder.
        figures: What `write_metrics` just returned, so that nothing is read twice.

    Returns:
        What the page shows, for the terminal.

    Raises:
        HabitusError: When a file of the run is missing or unreadable.
    """
    data = report_data(folder, folder.info.scorer.label, figures, examples=MAX_EXAMPLES)
    write_atomic(folder.path / REPORT, [render_run(data).encode()])
    return data


def write_comparison(
    folders: Sequence[RunFolder], page: Path
) -> tuple[list[ReportData], tuple[Comparison, ...]]:
    """Write the comparison page of several runs.

    Returns:
        What the page shows of each run, and the paired comparisons.

    Raises:
        InputError: When a run is named twice, or two runs of different benchmarks share no judged
            item. A run without any judgement is shown as that.
        HabitusError: When a file of a run is missing or unreadable.
    """
    for path, times in Counter(folder.path.resolve() for folder in folders).items():
        if times > 1:
            raise InputError(f"run {path} is named {times} times; name each run once")
    labels = run_labels(folders)
    data = [report_data(folder, label) for folder, label in zip(folders, labels, strict=True)]
    comparisons = compare_runs(folders, labels, seed=data[0].info.seed)
    benchmarks = {run.label: run.info.config["benchmark"]["digest"] for run in data}
    apart = next(
        (pair for pair in comparisons if pair.n == 0 and benchmarks[pair.a] != benchmarks[pair.b]),
        None,
    )
    if apart is not None:
        raise InputError(
            f"{apart.a} and {apart.b} have no judged item in common; "
            "compare runs on the same benchmark"
        )
    write_atomic(page, [render_comparison(data, comparisons, notes=_notes(data)).encode()])
    return data, comparisons


def report_data(
    folder: RunFolder, label: str, figures: RunFigures | None = None, *, examples: int = 0
) -> ReportData:
    """Gather what a page shows of a run.

    Args:
        folder: The run folder, with its `metrics.json`.
        label: What to call the run.
        figures: The run's figures and tables; None reads them from the folder.
        examples: Most items to show.

    Raises:
        HabitusError: When a file of the run is missing or unreadable.
    """
    info = folder.info
    if figures is None:
        figures = RunFigures(read_metrics(folder), load_run(folder, label))
    summary, run = figures.summary, figures.tables
    judged = run.judgements
    return ReportData(
        info=info,
        metrics=summary.metrics,
        comparisons=summary.comparisons,
        examples=_examples(folder, run, examples, info.seed),
        n_items=run.items.height,
        n_judged=judged.height,
        seconds=float(judged["seconds"].sum()) or None,
        prompt_tokens=int(judged["prompt_tokens"].sum()) or None,
        completion_tokens=int(judged["completion_tokens"].sum()) or None,
        label=label,
        notes=info.notes,
        command=info.command,
    )


def _notes(runs: Sequence[ReportData]) -> list[str]:
    benchmarks = {run.info.config["benchmark"]["digest"] for run in runs}
    if len(benchmarks) == 1:
        return []
    return ["The runs cover different items; each pair is compared on those that both judged."]


def _examples(
    folder: RunFolder, run: LabelledRun, most: int, seed: int
) -> tuple[tuple[Item, Judgement | None], ...]:
    """Read a sample of items with their judgements, drawn by hash(seed, item id)."""
    if most == 0:
        return ()
    rows = run.items.select("item_id").with_row_index("item_line")
    places = run.judgements.select("item_id").with_row_index("judgement_line")
    joined = rows.join(places, on="item_id", how="left", maintain_order="left")
    if joined.height > most:
        keys = pl.Series([_key(seed, name) for name in joined["item_id"]])
        joined = joined.filter(keys.rank("ordinal") <= most)
    items = _lines(folder.path / ITEMS, joined["item_line"].to_list())
    found = [line for line in joined["judgement_line"].to_list() if line is not None]
    judgements = _lines(folder.path / JUDGEMENTS, found)
    return tuple(
        (
            Item.model_validate_json(items[item_line]),
            None if line is None else Judgement.model_validate_json(judgements[line]),
        )
        for item_line, line in joined.select("item_line", "judgement_line").iter_rows()
    )


def _key(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]


def _lines(path: Path, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the lines with these numbers, from 0."""
    wanted = set(numbers)
    with path.open("rb") as lines:
        return {number: line for number, line in enumerate(lines) if number in wanted}
