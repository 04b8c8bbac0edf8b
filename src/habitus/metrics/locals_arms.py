"""Trainings of a judge that differ in their seed only, put together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from habitus.metrics.locals_read import LocalsRun

WORDS = {
    "with": "with criteria",
    "without": "without criteria",
    "borrowed": "with borrowed criteria",
}
"""`WAYS` for readers."""


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed only: one way of training."""

    label: str
    """That of its run; of several, what their labels begin with, and how many they are."""
    runs: tuple[LocalsRun, ...]
    """The runs."""

    @property
    def side(self) -> str:
        """Names the arm in a comparison: its label, and its way where that is without criteria."""
        return self.label if self.runs[0].way == "with" else f"{self.label}, {WORDS['without']}"


def arms_of(runs: Sequence[LocalsRun]) -> tuple[Arm, ...]:
    """Put runs together that differ in their seed only.

    Args:
        runs: The runs; those without held-out pairs are left out.
    """
    alike: dict[tuple[tuple[str, str], ...], list[LocalsRun]] = {}
    for run in runs:
        if run.held_out:
            alike.setdefault(run.twin, []).append(run)
    groups = list(alike.values())
    names = [_common_name([run.label for run in group]) for group in groups]
    return tuple(
        Arm(
            name if names.count(name) == 1 else ", ".join(run.label for run in group),
            tuple(group),
        )
        for name, group in zip(names, groups, strict=True)
    )


def _common_name(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    columns = zip(*labels, strict=False)
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, columns)
    shared = "".join(letters[0] for letters in same).rstrip("-_./ ") or labels[0]
    return f"{shared} ({len(labels)} runs)"
