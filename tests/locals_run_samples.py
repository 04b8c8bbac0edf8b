"""Run folders of Think-as-Locals, written by hand. Needs no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from habitus.metrics.locals_heldout import figures
from habitus.metrics.locals_read import read_runs
from habitus.metrics.locals_summary import summarise_runs
from habitus.report.locals_figures import View

HALF = math.log(0.5)


def look(first: float | None, second: float | None, **fields: Any) -> dict[str, Any]:
    """A judge's looks: the probability of the right response shown first, and shown second."""
    if first is None or second is None:
        return {"first": None, "second": None, "status": "error", **fields}
    return {"first": math.log(first), "second": math.log(second), "status": "ok", **fields}


def held_out(number: int, criteria: Sequence[Any], plain: Sequence[Any], **fields: Any) -> Any:
    """A record of a held-out pair."""
    values = {
        "pair": f"p{number}",
        "group": f"g{number}",
        "source": "test",
        "language": "en" if number % 2 else "th",
        "country": "Chile" if number % 2 else "Thailand",
        "culture": None,
        "domain": "values",
        "question": f"Question {number}?",
        "criteria": look(*criteria, text=f"<criteria>\n1. Text {number}."),
        "plain": look(*plain),
        "borrowed": look(None, None),
    }
    return values | fields


def step(number: int, **fields: Any) -> dict[str, Any]:
    """A line of a curve."""
    values = {
        "step": number, "r_corr": 0.0, "r_appr": 0.1, "appr_clipped": 0.0, "total": 0.1,
        "accuracy": 0.5, "both_orders": 0.25, "p_a": 0.5, "p_a_model": 0.5, "criteria_chars": 100.0,
        "parse_rate": 1.0, "reward_std": 1.0, "flat_groups": 0.0, "completions": 8, "tokens": 80,
        "loss": 0.0, "kl": 0.0, "entropy": 1.0, "grad_norm": 1.0, "clipped_ratio": 0.0, "lr": 1e-5,
        "seconds": 4.0, "seconds_generate": 2.0, "seconds_score": 0.5, "seconds_train": 1.5,
        "tokens_per_second": 40.0,
    }  # fmt: skip
    return values | fields


def text(number: int, pair: str = "p", **fields: Any) -> dict[str, Any]:
    """A line of what was sampled or watched."""
    values = {
        "step": number, "pair": pair, "culture": "Chile", "language": "es", "source": "test",
        "right": "A", "verdict": "A", "text": f"text of step {number}", "characters": 9,
        "problem": None, "r_corr": 1.0, "r_appr": 0.25, "r_swap": None, "r_length": None,
        "p_a": 0.6, "total": 1.25, "tokens": 9,
    }  # fmt: skip
    return values | fields


def watched(number: int, pair: str = "p", **fields: Any) -> dict[str, Any]:
    """A line of what was watched."""
    shown = {"domain": "values", "question": "Who?", "chosen": "One.", "rejected": "Two."}
    return text(number, pair, **(shown | fields))


def write_run(
    folder: Path,
    *,
    stage: str = "both",
    curve: Sequence[Any] = (),
    samples: Sequence[Any] = (),
    watched: Sequence[Any] = (),
    records: Sequence[Any] | None = None,
    config: dict[str, Any] | None = None,
    **record: Any,
) -> Path:
    """Write a run's folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "stage": stage,
        "model": {"model": "tiny"},
        "grpo": {"steps": 4, "lr": 1e-5},
        "seed": 0,
        "pairs_digest": "abc",
        "evaluate_digest": "def",
    }
    about = {"method": "think-as-locals", "config": settings | (config or {}), "done": True}
    about |= {"non_commercial": False, "versions": {"habitus": "0"}, "seconds": 90.0} | record
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    for name, lines in (("curve", curve), ("samples", samples), ("watched", watched)):
        if lines:
            whole = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(whole, encoding="utf-8")
    if records is not None:
        found = {"n": len(records), "seed": 0, "pairs": list(records)}
        found["figures"] = figures(records, resamples=100)
        (folder / "heldout.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def view_of(*folders: Path, resamples: int = 200) -> View:
    """Read runs with their figures."""
    runs = read_runs(folders)
    return View(runs, summarise_runs(runs, 0, resamples))
