"""Lines of what a training writes as it goes: a curve, and samples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from habitus.train.study import write_lines

CURVE = "curve.jsonl"
"""A line for each step."""

SAMPLES = "samples.jsonl"
"""What was written in each step, or some of it."""


def keep_steps(path: Path, step: int, write: bool) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file up to a step, and drop the later and torn ones."""
    kept: list[dict[str, Any]] = []
    # as bytes: a kill may tear a letter, and a text may hold what Python takes for the end of a line
    lines = path.read_bytes().splitlines() if path.exists() else []
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn by a kill
        if line["step"] <= step:
            kept.append(line)
    if write and lines:
        write_lines(path, kept)
    return kept


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append lines to a JSONL file."""
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> float | None:
    """Return a number with 6 digits; None where it is none."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of what a step has; None where it has none."""
    return math.fsum(values) / len(values) if values else None
