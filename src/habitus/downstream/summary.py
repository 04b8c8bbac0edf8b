"""From a run's answers and scores to its figures, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from habitus.downstream.model import GenerationStatus, Pick, ScoreLine, ScorerEntry
from habitus.downstream.pick import AnswerSet, pick
from habitus.downstream.result import CurvePoint, Fallen, Gain, PickerResult, Quality
from habitus.metrics.bestofn import BestOfN, PickerFigures, best_of_n
from habitus.types import Comparison, Judgement, Metric


@dataclass(frozen=True)
class Scored:
    """One reward model's part of a run."""

    entry: ScorerEntry
    """The reward model."""
    lines: tuple[ScoreLine, ...]
    """Its scores."""
    judgements: tuple[Judgement, ...]
    """What they were made of."""


@dataclass(frozen=True)
class Figures:
    """All figures of a run's answers."""

    countries: tuple[str, ...]
    """Countries of the averages."""
    scorers: tuple[PickerResult, ...]
    """The reward models."""
    references: tuple[PickerResult, ...]
    """The picks that need none."""
    picks: tuple[Pick, ...]
    """What each reward model picked."""


def figures_of(sets: Sequence[AnswerSet], scored: Sequence[Scored], seed: int) -> Figures:
    """Compute curves, gains and picks.

    Args:
        sets: The answers, with their grades.
        scored: The reward models.
        seed: Seed of the resampling.
    """
    graded = [one for one in sets if one.graded]
    table = pl.DataFrame(
        {
            "country": [one.prompt.country for one in graded],
            "group": [one.prompt.group for one in graded],
            "grades": [[answer.grade for answer in one.candidates] for one in graded],
            "lengths": [[float(len(a.text)) for a in one.candidates] for one in graded],
        },
        schema={
            "country": pl.String,
            "group": pl.String,
            "grades": pl.List(pl.Float64),
            "lengths": pl.List(pl.Float64),
        },
    )
    by_scorer = {one.entry.spec.digest: _by_prompt(one.lines) for one in scored}
    scores = {
        name: [_candidate_scores(one, lines.get(one.prompt.id)) for one in graded]
        for name, lines in by_scorer.items()
    }
    found = best_of_n(table, scores, seed)
    labels = labels_of([one.entry for one in scored])
    results, picks = [], []
    for one, figures, label in zip(scored, found.pickers, labels, strict=True):
        own = _picks(graded, by_scorer[one.entry.spec.digest])
        results.append(_result(one, figures, label, own, graded, found))
        picks += own
    references = tuple(
        PickerResult(
            name=name,
            label=name,
            kind="reference",
            quality=quality_of(each.curve[-1]),
            **_curves(each),
        )
        for name, each in found.references.items()
    )
    return Figures(found.countries, tuple(results), references, tuple(picks))


def _by_prompt(lines: Iterable[ScoreLine]) -> dict[str, ScoreLine]:
    return {line.prompt: line for line in lines}


def _candidate_scores(one: AnswerSet, line: ScoreLine | None) -> list[float] | None:
    if line is None or not line.scores:
        return None
    return [score for score in line.scores if score is not None]


def _picks(sets: Sequence[AnswerSet], lines: Mapping[str, ScoreLine]) -> list[Pick]:
    found = (pick(one, lines[one.prompt.id]) for one in sets if one.prompt.id in lines)
    return [one for one in found if one is not None]


def labels_of(entries: Sequence[ScorerEntry]) -> list[str]:
    """Return names for tables; those that are not unique get the beginning of their digest."""
    plain = [entry.spec.label for entry in entries]
    counts = Counter(plain)
    return [
        label if counts[label] == 1 else f"{label} {entry.spec.digest[:6]}"
        for label, entry in zip(plain, entries, strict=True)
    ]


def _result(
    one: Scored,
    figures: PickerFigures,
    label: str,
    picks: Sequence[Pick],
    sets: Sequence[AnswerSet],
    whole: BestOfN,
) -> PickerResult:
    entry = one.entry
    failed = Counter(line.status for line in one.lines if not line.scores)
    seconds = [judgement.seconds for judgement in one.judgements]
    return PickerResult(
        name=entry.name,
        label=label,
        digest=entry.spec.digest,
        kind=entry.spec.kind,
        quality=quality_of(figures.curve[-1]),
        **_curves(figures),
        gain_over_random=gain_of(figures.over_random),
        gain_over_longest=gain_of(figures.over_longest),
        gain_over_random_by={
            country: gain_of(found)
            for country, found in (figures.over_random_by or {}).items()
            if country in whole.countries
        },
        fallen=_fallen(figures),
        failed=dict(sorted(failed.items())),
        tied=sum(each.tied > 1 for each in picks),
        length_ratio=_length_ratio(picks, sets),
        parameters=entry.parameters,
        tokens=_tokens(one.judgements),
        seconds=round(sum(each or 0.0 for each in seconds), 2),
    )


def _curves(figures: PickerFigures) -> dict[str, object]:
    return {
        "curve": _points(figures.curve),
        "countries": {name: _points(curve) for name, curve in figures.countries.items()},
    }


def _points(curve: Iterable[Metric]) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(n=int(one.group["n"]), quality=quality_of(one)) for one in curve)


def quality_of(metric: Metric) -> Quality:
    """Return a figure as a result holds it."""
    return Quality(
        value=metric.value,
        low=metric.ci_low,
        high=metric.ci_high,
        n=metric.n,
        n_excluded=metric.n_excluded,
    )


def gain_of(found: Comparison | None) -> Gain:
    """Return a paired difference as a result holds it; None has no value."""
    if found is None:
        return Gain(value=None, low=None, high=None, p=None, p_holm=None, n=0)
    return Gain(
        value=found.difference,
        low=found.ci_low,
        high=found.ci_high,
        p=found.p,
        p_holm=found.p_holm,
        n=found.n,
    )


def _fallen(figures: PickerFigures) -> Fallen | None:
    """Return the largest of the falls that are told from noise."""
    clear = [fall for fall in figures.falls if fall.clear]
    if not clear:
        return None
    worst = min(clear, key=lambda fall: fall.comparison.difference or 0.0)
    return Fallen(since=worst.n, gain=gain_of(worst.comparison))


def _length_ratio(picks: Sequence[Pick], sets: Sequence[AnswerSet]) -> float | None:
    """Return the mean length of what was picked over the mean length of all answers."""
    known = {one.prompt.id: one for one in sets}
    picked = whole = 0.0
    for each in picks:
        one = known[each.prompt]
        lengths = [len(answer.text) for answer in one.candidates]
        picked += len(one.answers_by_index[each.picked].text)
        whole += sum(lengths) / len(lengths)
    return round(picked / whole, 4) if whole else None


def _tokens(judgements: Iterable[Judgement]) -> int | None:
    counts = [
        (one.prompt_tokens or 0) + (one.completion_tokens or 0)
        for one in judgements
        if one.prompt_tokens is not None
    ]
    return sum(counts) if counts else None


def answer_counts(sets: Sequence[AnswerSet]) -> dict[str, int]:
    """Return how the generations ended, by status."""
    counts = Counter(answer.status.value for one in sets for answer in one.answers)
    return {status.value: counts[status.value] for status in GenerationStatus}


def distinct_texts(sets: Sequence[AnswerSet]) -> float | None:
    """Return the mean number of distinct texts among a prompt's answers."""
    sizes = [len({answer.text for answer in one.candidates}) for one in sets if one.candidates]
    return round(sum(sizes) / len(sizes), 3) if sizes else None
