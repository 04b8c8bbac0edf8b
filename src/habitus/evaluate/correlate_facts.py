"""What is known of reward models beyond their runs: size, family, a general benchmark's score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from habitus.errors import InputError
from habitus.evaluate.correlate_model import FAMILY, Model, Request
from habitus.evaluate.matching import Facts, read_facts
from habitus.evaluate.outcomes import Outcome
from habitus.metrics.correlation_rivals import GENERAL, LENGTH, SIZE
from habitus.metrics.correlation_scores import Scores, known_scores
from habitus.metrics.statistics import Floats


def add_sizes(
    models: Sequence[Model], outcomes: Sequence[Outcome], pairs: Sequence[Mapping[int, int]]
) -> tuple[Model, ...]:
    """Give each reward model the number of weights that a downstream run recorded."""
    found = list(models)
    for outcome, matched in zip(outcomes, pairs, strict=True):
        for i, j in matched.items():
            size = outcome.models[j].parameters
            if found[i].parameters is None and size is not None:
                found[i] = replace(found[i], parameters=float(size))
    return tuple(found)


def facts_of(request: Request) -> tuple[tuple[Facts, ...], str | None] | None:
    """Read the facts file, where there is one.

    Returns:
        Its rows and the column that groups reward models; None without a file.

    Raises:
        InputError: When the file is wrong, or `--group` names none of its columns.
    """
    if request.facts is None:
        if request.group is not None:
            raise InputError("--group names a column of --facts FILE.csv; give that file too")
        return None
    rows, columns = read_facts(request.facts)
    column = request.group or (FAMILY if FAMILY in columns else None)
    if column is not None and column not in columns:
        known = ", ".join(columns) or "none that could group"
        raise InputError(f"{request.facts}: no column {column!r} to group by; it has {known}")
    return rows, column


def add_facts(
    models: Sequence[Model], known: tuple[tuple[Facts, ...], str | None] | None
) -> tuple[tuple[Model, ...], Scores | None, str | None, list[str]]:
    """Give each reward model what the facts file says.

    Args:
        models: The reward models.
        known: What `facts_of` returned.

    Returns:
        The reward models; the general score, where the file has any; the column that groups; and
        notes.
    """
    if known is None:
        return tuple(models), None, None, []
    facts, column = known
    rows = [_fact(model, facts) for model in models]
    found = tuple(
        model
        if row is None
        else replace(
            model,
            parameters=model.parameters if row.parameters is None else row.parameters,
            family=None if column is None else row.columns.get(column),
        )
        for model, row in zip(models, rows, strict=True)
    )
    scores = [None if row is None else row.general for row in rows]
    general = None if scores.count(None) == len(scores) else known_scores(GENERAL, scores)
    return found, general, column, _notes(models, facts, rows)


def _fact(model: Model, facts: Sequence[Facts]) -> Facts | None:
    names = (model.label, *model.named.names, model.named.digest, model.folder.name)
    return next((row for name in names for row in facts if row.name == name), None)


def _notes(
    models: Sequence[Model], facts: Sequence[Facts], rows: Sequence[Facts | None]
) -> list[str]:
    notes = []
    used = {row.name for row in rows if row is not None}
    strange = [row.name for row in facts if row.name not in used]
    if strange:
        notes.append(f"In the facts file but not among the runs: {', '.join(strange)}.")
    without = [model.label for model, row in zip(models, rows, strict=True) if row is None]
    if without:
        notes.append(f"Not in the facts file: {', '.join(without)}.")
    shared = Counter(row.name for row in rows if row is not None)
    for name, times in shared.items():
        if times > 1:
            notes.append(f"The facts of {name} are used for {times} runs.")
    return notes


def related_notes(models: Sequence[Model]) -> list[str]:
    """Say which reward models share a name and still count as independent."""
    alone = Counter(
        model.named.names[1]
        for model in models
        if model.family is None and len(model.named.names) > 1
    )
    return [
        f"{times} reward models are {name} in several modes or settings and count as independent; "
        "give --facts with a family column to count them as one."
        for name, times in alone.items()
        if times > 1
    ]


def confounders(models: Sequence[Model], general: Scores | None) -> dict[str, Floats]:
    """Return the confounders by name, NaN where a reward model has none (papers: CARB A3)."""
    bias = [np.nan if model.length_bias is None else model.length_bias for model in models]
    sizes = [np.nan if model.parameters is None else model.parameters for model in models]
    nothing = np.full(len(models), np.nan)
    return {
        LENGTH: np.array(bias),
        SIZE: np.log10(np.array(sizes)),
        GENERAL: nothing if general is None else general.values,
    }
