"""Synthetic runs and downstream runs with a known relation, for the tests of `correlate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from habitus.evaluate.summary import write_metrics
from habitus.store import JUDGEMENTS, RunFolder, dump_line, write_atomic
from habitus.types import (
    Item,
    Judgement,
    RunInfo,
    ScorerSpec,
    Status,
    benchmark_digest,
    unit_digest,
    winners,
)
from tests.conftest import make_item

COUNTRIES = {"Japanese": "Japan", "Spanish": "Spain"}
"""Culture to the country of its items and prompts."""


def make_items(number: int, mark: str = "") -> list[Item]:
    """Items of two cultures and two domains in turn; "a" is best, each is longest in turn."""
    found = []
    for index in range(number):
        culture = list(COUNTRIES)[index % 2]
        fields = {
            "id": f"{mark}item-{index}",
            "culture": culture,
            "country": COUNTRIES[culture],
            "domain": ("values", "safety")[index // 2 % 2],
            "candidates": [
                {"id": name, "text": "a long answer" if name == "abcd"[index % 4] else name}
                for name in "abcd"
            ],
        }
        found.append(make_item(index, **fields))
    return found


def spec(name: str, **parameters: Any) -> ScorerSpec:
    """A made-up classifier."""
    return ScorerSpec(kind="classifier", model=name, parameters=parameters)


def write_run(
    path: Path,
    scorer: ScorerSpec,
    items: Sequence[Item],
    picks: Sequence[str | None],
    benchmark: str = "bench",
) -> Path:
    """Write a run folder in which each item's winner is `picks`; None is a failure."""
    info = RunInfo(
        id=path.name,
        config={
            "model": scorer.name,
            "benchmark": {"name": benchmark, "format": "x", "digest": benchmark_digest(items)},
            "limit": None,
        },
        scorer=scorer,
        seed=0,
        n_items=len(items),
        versions={},
        started="2026-01-01T00:00:00+00:00",
    )
    folder = RunFolder(path)
    folder.start(info, items)
    lines = []
    for item, pick in zip(items, picks, strict=True):
        common = {
            "item_id": item.id,
            "unit": unit_digest(item, scorer, 0),
            "scorer": scorer.digest,
            "seed": 0,
        }
        if pick is None:
            judgement = Judgement(**common, status=Status.ERROR, error="failed")
        else:
            scores = {one.id: float(one.id == pick) for one in item.candidates}
            best = winners(scores)
            judgement = Judgement(**common, status=Status.OK, scores=scores, winner_ids=best)
        lines.append(dump_line(judgement))
    write_atomic(path / JUDGEMENTS, lines)
    write_metrics(folder)
    return path


def write_downstream(
    path: Path,
    task: str,
    scorers: Sequence[tuple[str, str]],
    qualities: Mapping[str, Sequence[float | None]],
    **about: Any,
) -> Path:
    """Write a downstream run.

    Args:
        path: The folder.
        task: The task.
        scorers: Name and digest of each reward model.
        qualities: Digest to the quality on each prompt; countries take turns.
        **about: More of downstream.json.
    """
    path.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": name, "digest": digest, "kind": "classifier", "parameters": None}
        for name, digest in scorers
    ]
    countries = list(COUNTRIES.values())
    body = {
        "task": task,
        "policy": {"name": "policy", "digest": "p"},
        "n": 16,
        "seed": 0,
        "countries": countries,
        "prompts": max(map(len, qualities.values()), default=0),
        "scorers": rows,
    }
    (path / "downstream.json").write_text(json.dumps(body | about), encoding="utf-8")
    lines = [
        json.dumps(
            {
                "scorer": digest,
                "prompt": f"prompt-{index}",
                "country": countries[index % 2],
                "picked": 0,
                "quality": quality,
            }
        )
        for digest, found in qualities.items()
        for index, quality in enumerate(found)
        if quality is not None
    ]
    (path / "picks.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def simulate(
    folder: Path,
    truths: Sequence[tuple[float, float]],
    *,
    items: int = 200,
    prompts: int = 100,
    seed: int = 0,
    task: str = "blend-short",
    general: Sequence[float] | None = None,
) -> tuple[list[Path], Path, list[Path]]:
    """Write runs and a downstream run of reward models with these true accuracies and qualities.

    Returns:
        The run folders, the downstream folder, and the run folders on a general benchmark.
    """
    random = np.random.default_rng(seed)
    made, makes = make_items(items), make_items(items, "general-")
    specs = [spec(f"org/rm-{index:02}") for index in range(len(truths))]

    def picks(accuracy: float) -> list[str]:
        right = random.random(items) < accuracy
        return [("a" if one else "bcd"[random.integers(3)]) for one in right]

    runs, others, qualities = [], [], {}
    for index, (scorer, (accuracy, quality)) in enumerate(zip(specs, truths, strict=True)):
        runs.append(write_run(folder / f"run-{index:02}", scorer, made, picks(accuracy)))
        if general is not None:
            path = folder / f"general-{index:02}"
            others.append(write_run(path, scorer, makes, picks(general[index]), "general"))
        drawn = random.random(prompts) < quality
        qualities[scorer.digest] = drawn.astype(float).tolist()
    named = [(scorer.name, scorer.digest) for scorer in specs]
    return runs, write_downstream(folder / task, task, named, qualities), others
