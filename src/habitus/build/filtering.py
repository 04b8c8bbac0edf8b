"""The embedding filter: an answer is nearest to the reference it is written from (papers: CARB A1).

A chosen answer must be nearer to its own reference than to each mismatched one; a rejected answer
must be nearer to its mismatched reference than to the right one. Both must be near enough at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from habitus.build.embedders import Embedder
from habitus.build.records import Outcome, StageLog, StageRecord
from habitus.progress import progress
from habitus.types import digest

WINDOW = 64
"""Answers that are embedded together."""


@dataclass(frozen=True)
class Case:
    """One answer to compare."""

    key: str
    """The item, and for rejected answers "/" and the number."""
    attempt: int
    """Which try of the answer it is."""
    text: str
    """The answer."""
    own: str
    """The reference that it is written from, as it is compared."""
    others: tuple[str, ...]
    """The references that it must be farther from."""
    origin: str
    """The stage that the answer is from; one answer is compared once in each."""


class Filter:
    """Compares answers with references."""

    def __init__(
        self,
        embedder: Embedder,
        near: float,
        margin: float,
        spend: Callable[[str, int], None] = lambda text, tokens: None,
    ) -> None:
        """Make a filter.

        Args:
            embedder: What compares texts, already fitted.
            near: Least cosine of an answer to its own reference.
            margin: By how much more than that the cosine to any other reference must be lower.
            spend: Called with each text that was compared and its tokens.
        """
        self._embedder = embedder
        self._near = near
        self._margin = margin
        self._spend = spend

    def judge(self, cases: Sequence[Case], log: StageLog) -> list[StageRecord]:
        """Return the record of each case, comparing those that have none.

        Raises:
            HabitusError: When an embedding cannot be had.
        """
        units = [self._unit(case) for case in cases]
        pending = [
            (case, unit) for case, unit in zip(cases, units, strict=True) if log.find(unit) is None
        ]
        for case, unit in zip(cases, units, strict=True):
            record = log.find(unit)
            if record is not None:
                log.use(record)
                self._spend(case.text, record.prompt_tokens)
        if pending:
            with progress("filtered", len(cases), len(cases) - len(pending), "texts") as advance:
                for start in range(0, len(pending), WINDOW):
                    window = pending[start : start + WINDOW]
                    self._embedder.prepare([case.text for case, _ in window])
                    for case, unit in window:
                        record = self._compare(case, unit)
                        log.append(record)
                        self._spend(case.text, record.prompt_tokens)
                    advance(len(window))
        found = [log.find(unit) for unit in units]
        return [record for record in found if record is not None]

    def _unit(self, case: Case) -> str:
        """Name a comparison by all that its outcome depends on."""
        settings = [self._embedder.name, self._near, self._margin]
        texts = [case.text, case.own, list(case.others)]
        return digest(["filtered", case.key, case.origin, case.attempt, settings, texts])

    def _compare(self, case: Case, unit: str) -> StageRecord:
        values, tokens = self._embedder.cosines(case.text, [case.own, *case.others])
        own, other = round(values[0], 6), round(max(values[1:]), 6)
        status, reason = Outcome.OK, None
        if own < self._near:
            status = Outcome.DISSIMILAR
            reason = f"{own:.3f} near its own reference; at least {self._near:g} is asked for"
        elif own - other <= self._margin:
            status = Outcome.DISSIMILAR
            reason = f"{own:.3f} near its own reference, {other:.3f} near another"
        return StageRecord(
            stage="filtered",
            key=case.key,
            unit=unit,
            attempt=case.attempt,
            status=status,
            reason=reason,
            model=self._embedder.name,
            similarities={"own": own, "other": other},
            prompt_tokens=tokens,
        )
