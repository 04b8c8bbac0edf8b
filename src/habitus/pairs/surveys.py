"""Pairs from the answer shares of a survey: GlobalOpinionQA (papers: SCPO, data)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from habitus.data import globalopinionqa as published
from habitus.data.countries import country, with_article
from habitus.data.source import Source
from habitus.data.survey import (
    BROKEN,
    REPEATED,
    answers_of,
    fit,
    name_place,
    question_id,
    unusable,
)
from habitus.pairs.splits import normalise
from habitus.types import Message, PreferencePair, digest

MIN_MARGIN = 0.05
"""By how much of all asked one answer must lead another, where `--min-margin` is not given."""

OTHER_SAMPLE = "another sample of the country answers the question"
"""Why a row is left out: the national sample, or the first one, is kept."""

TOO_CLOSE = "pairs of answers whose shares differ by less than the least margin"
"""Why a pair is left out."""


@dataclass(frozen=True)
class _Answers:
    """What one country's people answered to one question."""

    question: str
    """As published."""
    country: str
    """English short name."""
    sample: str | None
    """What the label says of the sample."""
    shares: tuple[tuple[str, float], ...]
    """Option as shown, and its share of all asked; what stands for no answer is left out."""


def read_surveys(source: Source, min_margin: float | None = None) -> Iterator[PreferencePair]:
    """Pair the options of each question: chosen is what more of a country's people answered.

    The prompt is the question as it was published, so that only the country's answers tell what
    is preferred. Left out, and counted in `source.skipped`: rows whose shares do not fit the
    options, repeated rows, and pairs closer than the least margin. "Don't know" and the like are
    no responses. All countries' pairs of a question share `group`, and so do questions whose words
    differ in case, spacing or punctuation only.

    Args:
        source: GlobalOpinionQA in any of its published forms.
        min_margin: Least difference of the shares, 0 to 1; None for `MIN_MARGIN`.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    least = MIN_MARGIN if min_margin is None else min_margin
    kept: dict[tuple[str, str], _Answers] = {}
    for answers in _rows(source):
        key = (question_id(answers.question), answers.country)
        first = kept.setdefault(key, answers)
        if first is answers:
            continue
        source.skipped[REPEATED if first.sample == answers.sample else OTHER_SAMPLE] += 1
        if _rank(answers) < _rank(first):
            kept[key] = answers
    for (question, _), answers in kept.items():
        yield from _pairs(source, question, answers, least)


def _rank(answers: _Answers) -> int:
    """Order samples: of the whole nation, then the current one, then any other."""
    if answers.sample is None:
        return 0
    return 1 if answers.sample.startswith("current national") else 2


def _rows(source: Source) -> Iterator[_Answers]:
    for row in source.rows():
        # One reader of the published forms: what a benchmark is made of, pairs are made of.
        question, surveys = published.surveys_of(row)
        options = [
            published.option_text(row, option) for option in published.list_of(row, "options")
        ]
        for label, value in surveys.items():
            shares = published.shares_of(row, value)
            answers = _answers(question, label, options, shares)
            if isinstance(answers, str):
                source.skipped[answers] += 1
            else:
                yield answers


def _answers(question: str, label: str, options: list[str], shares: list[float]) -> _Answers | str:
    """Return a country's answers, or say why there are none to compare."""
    if not fit(options, shares):
        return BROKEN
    name, sample = country(label)
    found = answers_of(options, shares, with_article(name))
    return unusable(found) or _Answers(question, name, sample, tuple(found))


def _pairs(
    source: Source, question: str, answers: _Answers, least: float
) -> Iterator[PreferencePair]:
    asked = name_place(answers.question.strip(), with_article(answers.country))
    prompt = (Message(role="user", content=asked),)
    group = digest(normalise(answers.question))
    where = answers.country + (f" ({answers.sample})" if answers.sample else "")
    numbered = list(enumerate(answers.shares, start=1))
    for one, other in combinations(numbered, 2):
        (better, (chosen, more)), (worse, (rejected, fewer)) = (
            (one, other) if one[1][1] >= other[1][1] else (other, one)
        )
        # Shares are published with two or three digits: 0.3 - 0.25 must count as 0.05.
        margin = round(more - fewer, 6)
        if margin <= 0 or margin < least:
            source.skipped[TOO_CLOSE] += 1
            continue
        yield PreferencePair(
            id=f"{question}:{where}:{better}>{worse}",
            item_id=question,
            prompt=prompt,
            chosen=chosen,
            rejected=rejected,
            margin=margin,
            country=answers.country,
            language="en",
            domain="values",
            group=group,
            source="globalopinionqa",
            licence=published.LICENCE,
        )
