"""BLEnD in the people's own language: what they were asked and answered, not its translation.

Other regions answered in other languages. Their answers are worded by BLEnD itself: wherever
people of this language gave an answer, to any question, it was published in their words and in
English; so an answer's English wording leads to their words for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from habitus.data.answers import clean, form, kind, same
from habitus.data.blend import (
    N_REJECTED,
    Answer,
    Entry,
    Published,
    clear_answer,
    majorities,
    published,
    region_of,
    shuffled,
    usable,
)
from habitus.data.source import Place, Source
from habitus.types import Candidate, Item, Message

ENGLISH = "the region's language is English: read it as blend"
NO_WORDS = "no answer of another region has words in the region's language"

_Words = Mapping[str, Counter[str]]


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read BLEnD as `blend.read`, question and answers in the region's own language.

    Best is the majority answer as local people worded it; rejected are one to three regions'
    majority answers that `blend.read` could use, for which the language has words. Regions whose
    language is English are left out. `parent_id` is the question's id, as in `blend.read`, so that
    both languages' pairs of a question are split alike.

    Raises:
        InputError: As `blend.read`.
    """
    found = published(source)
    lexicon = _lexicon(found)
    for question, entries in found.questions.items():
        answers = majorities(question, entries, source.seed)
        for region in found.wanted:
            if region not in entries:
                continue
            if region_of(region).language == "en" or not entries[region].question.strip():
                source.skipped[ENGLISH] += 1
                continue
            best = clear_answer(region, entries[region], answers[region], source)
            if best is None or not best.own:
                continue
            item = _item(question, region, entries[region], answers, best, lexicon, source)
            if item is not None:
                yield item, found.places[question, region]


def _lexicon(found: Published) -> dict[str, dict[str, Counter[str]]]:
    """Return region, or language, to English wording to its wordings there, by votes."""
    lexicon: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for entries in found.questions.values():
        for region, entry in entries.items():
            for vote in entry.annotations:
                own = [clean(w) for w in vote.answers if clean(w)]
                for english in vote.en_answers:
                    for word in own:
                        # Several wordings on both sides: which belongs to which is not said.
                        votes = vote.count / (len(own) * len(vote.en_answers))
                        for key in (region, region_of(region).language):
                            lexicon[key][form(english).joined][word] += votes  # type: ignore[assignment]
    return lexicon


def _worded(answer: Answer, region: str, lexicon: Mapping[str, _Words]) -> str | None:
    """Return an answer in a region's words, else in those of another one of its language."""
    for key in (region, region_of(region).language):
        words = lexicon.get(key, {})
        for english in (answer.text, *answer.wordings):
            if found := words.get(form(english).joined):
                return max(found, key=lambda word: (found[word], word))
    return None


def _item(
    question: str,
    region: str,
    entry: Entry,
    answers: Mapping[str, Answer | None],
    best: Answer,
    lexicon: Mapping[str, _Words],
    source: Source,
) -> Item | None:
    """Make the item of a question in a region, or count why there is none."""
    words = lexicon.get(region, {})
    counts: Counter[str] = sum(
        (words.get(form(w).joined, Counter()) for w in best.wordings), Counter()
    )
    shown = max((clean(w) for w in best.own), key=lambda word: (counts[word], word))
    local = [w for vote in entry.annotations for w in vote.answers if clean(w)]
    rejected: dict[str, tuple[str, Answer]] = {}
    for other in shuffled(question, region, answers, source.seed):
        answer = answers[other]
        taken = [w for _, chosen in rejected.values() for w in chosen.wordings]
        if answer is None or not usable(answer, other, region, best, (*entry.said, *taken)):
            continue
        text = _worded(answer, region, lexicon)
        present = (*local, shown, *(text for text, _ in rejected.values()))
        if text is not None and _differs(text, shown, present):
            rejected[other] = text, answer
        if len(rejected) == N_REJECTED:
            break
    if not rejected:
        source.skipped[NO_WORDS] += 1
        return None
    return _build(question, region, entry.question, best, shown, rejected)


def _differs(text: str, shown: str, present: Iterable[str]) -> bool:
    return kind(text) == kind(shown) and not any(same(text, one) for one in present)


def _build(
    question: str,
    region: str,
    asked: str,
    best: Answer,
    shown: str,
    rejected: Mapping[str, tuple[str, Answer]],
) -> Item:
    about = region_of(region)
    candidates = [Candidate(id="chosen", text=shown, culture=about.culture)]
    for index, (other, (text, answer)) in enumerate(rejected.items(), start=1):
        them = region_of(other)
        candidates.append(
            Candidate(
                id=f"rejected-{index}",
                text=text,
                culture=them.culture,
                note=f"majority answer in {them.country} ({answer.votes} votes)",
            )
        )
    return Item(
        id=f"{question}:{region}",
        prompt=(Message(role="user", content=asked.strip()),),
        candidates=tuple(candidates),
        best_ids=("chosen",),
        culture=about.culture,
        country=about.country,
        language=about.language,
        domain="commonsense",
        source="blend-own",
        licence="CC-BY-SA-4.0",
        parent_id=question,
        reason=f"majority answer in {about.country} ({best.votes} votes)",
        author="human",
    )
