"""From the answer shares of a survey to an item: what a country's people answered most often."""

from __future__ import annotations

import re
from collections.abc import Sequence

from habitus.data.countries import country, with_article
from habitus.data.source import Source
from habitus.types import Candidate, Item, Message, Reference, digest

MIN_MARGIN = 0.15
"""By how much of all asked the most frequent answer must lead the next; else the item is left out."""

MAX_OPTION = 300
"""Most characters in an answer."""

SUM_TOLERANCE = 0.05
"""How far the shares' sum may be from 1: published percentages are rounded."""

BROKEN = "the shares do not fit the options (their number or their sum)"
UNCLEAR = "no clear majority"
UNANSWERED = "most people gave no answer"
TOO_FEW = "fewer than two answers"
TOO_LONG = f"an answer is longer than {MAX_OPTION} characters"
SAME = "two answers have the same words"
REPEATED = "question and country are repeated"

_NO_ANSWER = re.compile(
    r"(don['’]?t know|do not know|dk|refused?|declined?( to answer)?|no answer|no response"
    r"|no opinion|(other )?missing|not (applicable|asked|available|sure)|unsure|hard to say"
    r"|can['’]?t (say|rate|choose)|n/?a)\s*($|[/;,.(\[])",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"\s*[(\[](vol\.?|volunteered|only if volunteered|do not read|or)[)\]]\s*$", re.IGNORECASE
)
_HERE = re.compile(r"\(survey country\)", re.IGNORECASE)


def is_answer(option: str) -> bool:
    """Tell an answer from what stands for none: "Don't know", "DK/Refused", "Missing; Unknown"."""
    return not _NO_ANSWER.match(option.strip())


def clean_option(option: str, place: str) -> str:
    """Return an option as it is shown.

    Notes to the interviewer, "(VOL)" or "(DO NOT READ)", are cut: they mark answers that few
    give. "(Survey country)" becomes the country.

    Args:
        option: As published.
        place: The country, as it stands in a sentence.
    """
    return name_place(_MARKER.sub("", " ".join(option.split())), place)


def name_place(text: str, place: str) -> str:
    """Return a text with the country for "(survey country)"; its article is capital at the start."""
    opening = place[:1].upper() + place[1:]
    return _HERE.sub(lambda match: place if match.start() else opening, text)


def question_id(question: str) -> str:
    """Name a question by its words, so that all countries' items share a `parent_id`."""
    return digest(" ".join(question.split()))


def survey_item(
    source: Source,
    seen: set[str],
    /,
    *,
    label: str,
    question: str,
    options: Sequence[str],
    shares: Sequence[float],
    publisher: str,
    **fields: str,
) -> Item | None:
    """Make the item of a question in a country, or count in `source.skipped` why there is none.

    Args:
        source: Where the tallies are kept.
        seen: Ids that were made before; the new one is added.
        label: The country as the data call it.
        question: The question as published.
        options: All options, those that stand for no answer among them.
        shares: The share of all asked for each option, adding up to 1.
        publisher: Whose survey it is.
        **fields: Further fields of the item.
    """
    name, sample = country(label)
    place, parent = with_article(name), question_id(question)
    id = f"{parent}:{name}" + (f" ({sample})" if sample else "")
    if not fit(options, shares):
        source.skipped[BROKEN] += 1
        return None
    answers = answers_of(options, shares, place)
    problem = REPEATED if id in seen else _problem(answers, sum(shares))
    seen.add(id)
    if problem:
        source.skipped[problem] += 1
        return None
    best = max(range(len(answers)), key=lambda index: answers[index][1])
    text, share = answers[best]
    fact = f"{share:.0%} of those asked in {place} answered: {text}"
    if sample:
        fact += f" ({sample})"
    asked = name_place(question.strip(), place)
    return Item(
        id=id,
        prompt=(
            Message(
                role="user",
                content=f"In a survey in {place}, people were asked the question below. "
                f"Which answer was given most often?\n\n{asked}",
            ),
        ),
        candidates=tuple(
            Candidate(
                id=f"option-{number}", text=answer, note=f"{part:.0%} of those asked in {place}"
            )
            for number, (answer, part) in enumerate(answers, start=1)
        ),
        best_ids=(f"option-{best + 1}",),
        country=name,
        language="en",
        domain="values",
        references=(
            Reference(fact=fact, title=question.strip(), publisher=publisher, share=min(share, 1)),
        ),
        parent_id=parent,
        reason=fact,
        author="human",
        **fields,
    )


def fit(options: Sequence[str], shares: Sequence[float]) -> bool:
    """Tell whether there is a share for each option, and whether they add up to 1."""
    return (
        len(options) == len(shares) > 0
        and all(0 <= share <= 1 + SUM_TOLERANCE for share in shares)
        and abs(sum(shares) - 1) <= SUM_TOLERANCE
    )


def answers_of(
    options: Sequence[str], shares: Sequence[float], place: str
) -> list[tuple[str, float]]:
    """Return each answer as shown, and its share; what stands for no answer is left out."""
    return [
        (clean_option(option, place), share)
        for option, share in zip(options, shares, strict=True)
        if is_answer(option)
    ]


def unusable(answers: Sequence[tuple[str, float]]) -> str | None:
    """Say why answers cannot be told apart or shown; None when they can."""
    texts = [text for text, _ in answers]
    if len(answers) < 2:
        return TOO_FEW
    if len({text.casefold() for text in texts}) < len(texts) or not all(texts):
        return SAME
    return TOO_LONG if max(map(len, texts)) > MAX_OPTION else None


def _problem(answers: Sequence[tuple[str, float]], total: float) -> str | None:
    """Say why the answers make no item; None when they do."""
    if problem := unusable(answers):
        return problem
    first, second = sorted((share for _, share in answers), reverse=True)[:2]
    if total - sum(share for _, share in answers) >= first:
        return UNANSWERED
    # Shares are published with two or three digits: 0.5 - 0.35 must count as 0.15.
    return None if round(first - second, 6) >= MIN_MARGIN else UNCLEAR
