"""What a judge wrote about the same pair early, midway and late in training, and after each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from habitus.metrics.locals_read import LocalsRun
from habitus.report.items import names_harm
from habitus.report.locals_figures import signed
from habitus.report.text import Budget, Clip, one_line

MOST_PAIRS = 6
"""Pairs of a run, and held-out pairs, that a page shows."""

TEXT_CHARACTERS = 1_200
"""Characters of one text that are shown."""

BYTES = 1_500_000
"""Bytes of HTML that all texts of a page together may take."""


@dataclass(frozen=True)
class Column:
    """One text."""

    title: str
    """When it was written, or by which run."""
    text: Clip
    """The text."""
    right: bool | None
    """Whether its verdict is right; None where it has none."""
    figures: str
    """Verdict and rewards for readers."""


@dataclass(frozen=True)
class PairView:
    """One pair with its texts, side by side."""

    title: str
    """The question, or the pair's name where the question is not known."""
    tags: tuple[str, ...]
    """Run, culture, language and the like."""
    chosen: Clip | None
    """The preferred response."""
    rejected: Clip | None
    """The other response."""
    language: str
    """BCP 47 tag, or ""."""
    columns: tuple[Column, ...]
    """The texts."""
    sensitive: bool
    """True when the texts are folded away."""


def training_views(runs: Sequence[LocalsRun], budget: Budget) -> list[PairView]:
    """Return, for each run, the same pairs early, midway and late.

    Pairs that training watched come first; where it watched none, those that were sampled at two
    steps or more; where there are none either, the first samples of three steps.
    """
    views = []
    for run in runs:
        if run.watched.height:
            views += _recurring(run, run.watched, budget)
        elif run.samples.height:
            views += _recurring(run, run.samples, budget) or [_others(run, budget)]
    return views


def _recurring(run: LocalsRun, table: pl.DataFrame, budget: Budget) -> list[PairView]:
    by_pair: dict[str, list[dict[str, Any]]] = {}
    for row in table.iter_rows(named=True):
        by_pair.setdefault(row["pair"], []).append(row)
    spans: list[tuple[int, int, list[dict[str, Any]]]] = []
    for rows in by_pair.values():
        # One order of a pair, so that only training changes from text to text.
        own = [row for row in rows if row["right"] == rows[0]["right"]]
        steps = list({row["step"]: row for row in own}.values())
        if len(steps) > 1:
            spans.append((steps[0]["step"] - steps[-1]["step"], len(spans), steps))
    widest = [steps for _, _, steps in sorted(spans)[:MOST_PAIRS]]
    return [_view(run, _three(steps), budget, same=True) for steps in widest]


def _others(run: LocalsRun, budget: Budget) -> PairView:
    first = run.samples.unique("step", keep="first", maintain_order=True)
    return _view(run, _three(first.to_dicts()), budget, same=False)


def _three(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first, the middle and the last row, fewer where there are fewer."""
    places = dict.fromkeys((0, (len(rows) - 1) // 2, len(rows) - 1))
    return [rows[place] for place in places]


def _view(
    run: LocalsRun, rows: Sequence[Mapping[str, Any]], budget: Budget, *, same: bool
) -> PairView:
    first = rows[0]
    tags = [run.label, *(first.get(name) for name in ("culture", "language", "source"))]
    columns = []
    for row in rows:
        step = row["step"]
        title = "before reinforcement" if step == 0 else f"after step {step:,}" if same else (
            f"step {step:,}, {row['pair']}"
        )  # fmt: skip
        text = budget.clip(row["text"])
        columns.append(Column(one_line(title, 120), text, _right(row), _rewards(row)))
    known = first.get("question")
    title = known or (first["pair"] if same else "Other pairs: none was sampled at two steps")
    return PairView(
        title=one_line(title, 300),
        tags=tuple(one_line(tag, 60) for tag in tags if tag),
        chosen=budget.clip(first["chosen"]) if first.get("chosen") else None,
        rejected=budget.clip(first["rejected"]) if first.get("rejected") else None,
        language=(first.get("language") or "") if same else "",
        columns=tuple(columns),
        sensitive=any(names_harm(row.get("domain"), row.get("source")) for row in rows),
    )


def _right(row: Mapping[str, Any]) -> bool | None:
    return None if row["verdict"] is None else row["verdict"] == row["right"]


def _rewards(row: Mapping[str, Any]) -> str:
    if row["verdict"] is None:
        return f"no verdict: {one_line(row['problem'] or 'no form', 120)}; reward {signed(row['total'])}"
    return (
        f"verdict {one_line(row['verdict'], 4)}, right is {one_line(row['right'] or '?', 4)}; "
        f"R_corr {signed(row['r_corr'])}, R_appr {signed(row['r_appr'])}, "
        f"reward {signed(row['total'])}"
    )


def held_out_views(runs: Sequence[LocalsRun], budget: Budget) -> list[PairView]:
    """Return what each run writes about the same held-out pairs, of different languages first."""
    measured = [run for run in runs if run.held_out]
    if not measured:
        return []
    tables = [{str(each["pair"]): each for each in run.held_out or ()} for run in measured]
    shared = [each for name, each in tables[0].items() if all(name in one for one in tables)]
    chosen = _varied(shared)
    return [
        _held_out_view(measured, [table[str(each["pair"])] for table in tables], budget)
        for each in chosen
    ]


def _varied(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a few records of as many languages and groups as there are."""
    times: dict[Any, int] = {}
    ranked = []
    groups: set[str] = set()
    for place, record in enumerate(records):
        if record["group"] in groups:
            continue
        groups.add(record["group"])
        key = (record["language"], record["culture"])
        times[key] = times.get(key, 0) + 1
        ranked.append((times[key], place, record))
    return [record for _, _, record in sorted(ranked, key=lambda each: each[:2])[:MOST_PAIRS]]


def _held_out_view(
    runs: Sequence[LocalsRun], records: Sequence[Mapping[str, Any]], budget: Budget
) -> PairView:
    first = records[0]
    tags = [first["culture"] or first["country"], first["language"], first["source"]]
    columns = []
    for run, record in zip(runs, records, strict=True):
        look = record["criteria"]
        text = budget.clip(str(look.get("text") or ""))
        right, figures = None, "no verdict"
        if look["first"] is not None:
            ps = [math.exp(look[order]) for order in ("first", "second")]
            right = sum(ps) > 1
            figures = f"p of the right response: {ps[0]:.2f} shown first, {ps[1]:.2f} shown second"
        columns.append(Column(one_line(run.label, 80), text, right, figures))
    return PairView(
        title=one_line(str(first.get("question") or first["pair"]), 300),
        tags=tuple(one_line(str(tag), 60) for tag in tags if tag),
        chosen=None,
        rejected=None,
        language=str(first["language"] or ""),
        columns=tuple(columns),
        sensitive=names_harm(first.get("domain"), first["source"]),
    )
