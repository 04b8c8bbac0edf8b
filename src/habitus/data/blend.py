"""BLEnD (Myung, Lee et al. 2024): everyday-life questions, answered by local people.

The same 500 questions were asked in 16 regions. Each (question, region) gives one item: the
English question as it is; best is what most local people answered; the rejected ones are what
most people of three other regions answered and no local person did. All is in English, so that
the language gives nothing away; the form of the answers is kept equal for the same reason.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from habitus.data.answers import clean, form, kind, same
from habitus.data.fields import first_problem
from habitus.data.formats import annotation_files
from habitus.data.source import Place, Source
from habitus.errors import InputError
from habitus.types import Candidate, Item, Message, canonical_json

MIN_VOTES = 2
"""How many local people must agree on the majority answer."""

N_REJECTED = 3
"""Rejected candidates per item."""

UNANSWERED = "no local person answered"
UNCLEAR = "no clear majority answer"
NAMED = "the majority answer names the region"
TOO_FEW = "fewer than three usable answers from other regions"


@dataclass(frozen=True)
class Region:
    """One of BLEnD's regions."""

    country: str
    """The region's English short name."""
    culture: str
    """Its people, as an adjective."""
    names: tuple[str, ...] = ()
    """Words by which an answer names the region, in lower case."""
    overlaps: tuple[str, ...] = ()
    """Regions whose answers may be right here too."""
    language: str = "en"
    """BCP 47 tag of the language that people were asked in."""


REGIONS = {
    "Algeria": Region("Algeria", "Algerian", ("algeria", "algerian"), language="ar"),
    "Assam": Region("Assam", "Assamese", ("assam", "assamese"), language="as"),
    "Azerbaijan": Region(
        "Azerbaijan", "Azerbaijani", ("azerbaijan", "azerbaijani", "azeri"), language="az"
    ),
    "China": Region("China", "Chinese", ("china", "chinese"), language="zh-Hans"),
    "Ethiopia": Region("Ethiopia", "Ethiopian", ("ethiopia", "ethiopian"), language="am"),
    "Greece": Region("Greece", "Greek", ("greece", "greek", "hellenic"), language="el"),
    "Indonesia": Region(
        "Indonesia",
        "Indonesian",
        ("indonesia", "indonesian"),
        overlaps=("West_Java",),
        language="id",
    ),
    "Iran": Region("Iran", "Iranian", ("iran", "iranian", "persian"), language="fa"),
    "Mexico": Region("Mexico", "Mexican", ("mexico", "mexican"), language="es"),
    "North_Korea": Region(
        "North Korea", "North Korean", ("korea", "korean", "dprk"), language="ko"
    ),
    "Northern_Nigeria": Region(
        "Northern Nigeria", "Northern Nigerian", ("nigeria", "nigerian", "hausa"), language="ha"
    ),
    "South_Korea": Region("South Korea", "South Korean", ("korea", "korean"), language="ko"),
    "Spain": Region("Spain", "Spanish", ("spain", "spanish"), language="es"),
    "UK": Region(
        "United Kingdom", "British", ("uk", "britain", "british", "england", "english", "kingdom")
    ),
    "US": Region("United States", "American", ("us", "usa", "america", "american")),
    "West_Java": Region(
        "West Java",
        "Sundanese",
        ("java", "sunda", "sundanese"),
        overlaps=("Indonesia",),
        language="su",
    ),
}
"""BLEnD's regions by the beginning of their file's name. A region is no culture; BLEnD asked
people who had lived there for most of their lives."""


class Votes(BaseModel):
    """What some local people answered, in several wordings."""

    en_answers: list[str]
    """In English."""
    answers: list[str] = Field(default_factory=list)
    """In their own language."""
    count: int = Field(ge=0)
    """How many people."""


class Entry(BaseModel):
    """One question in one region; other keys are not needed."""

    en_question: str = Field(min_length=1)
    """In English."""
    question: str = ""
    """In the region's language."""
    annotations: list[Votes]
    """What people answered."""
    idks: dict[str, int] = Field(default_factory=dict)
    """Why people did not answer, and how many."""

    @property
    def said(self) -> list[str]:
        """All that local people answered, in English."""
        return [w for vote in self.annotations for w in vote.en_answers if clean(w)]


@dataclass(frozen=True)
class Answer:
    """A region's majority answer."""

    text: str
    """As shown."""
    wordings: tuple[str, ...]
    """All wordings that were published for it."""
    votes: int
    """How many local people gave it."""
    own: tuple[str, ...] = ()
    """All wordings in the region's language."""


@dataclass(frozen=True)
class Published:
    """BLEnD as published, or a part of it."""

    questions: Mapping[str, Mapping[str, Entry]]
    """Question id to region to what was asked and answered there."""
    places: Mapping[tuple[str, str], Place]
    """Question id and region to the place of it."""
    wanted: tuple[str, ...]
    """The regions that items are asked for of; the others give rejected answers."""


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    """Read a BLEnD checkout, its folder of annotations, or one region's file there.

    Given one file, only that region's items are made; the others beside it give the rejected
    answers. The item's `parent_id` is the question's id, which all regions share.

    A question is left out, and counted, where nobody answered; where no answer was given by at
    least `MIN_VOTES` people, or fewer gave it than had no answer; where the answer names the
    region; and where fewer than three other regions' answers can be used. An equal vote is
    decided by the seed. An answer of another region can be used when it is such a clear majority
    answer, has the same form (number, time, date, words), and is not the same as any answer of
    any local person, nor as another candidate (see `answers.same`).

    Raises:
        InputError: When there are no annotation files, or one is not as published.
    """
    found = published(source)
    for question, entries in found.questions.items():
        answers = majorities(question, entries, source.seed)
        for region in found.wanted:
            if region in entries:
                item = _item(question, region, entries, answers, source)
                if item is not None:
                    yield item, found.places[question, region]


def published(source: Source) -> Published:
    """Read and check the annotation files.

    Raises:
        InputError: When there are none, or one is not as published.
    """
    files = annotation_files(source)
    if not files:
        raise InputError(
            f"{source.path}: no <Region>_data.json here, in annotations or in data/annotations; "
            "give the folder of a BLEnD checkout"
        )
    questions: dict[str, dict[str, Entry]] = defaultdict(dict)
    places: dict[tuple[str, str], Place] = {}
    for region, file in files.items():
        for number, (question, entry) in enumerate(_entries(source, file).items(), start=1):
            questions[question][region] = entry
            places[question, region] = Place(file, number, "entry")
    one = source.path.name if source.path.is_file() else None
    wanted = tuple(region for region, file in files.items() if one in (None, file.name))
    return Published(questions, places, wanted)


def _entries(source: Source, file: Path) -> dict[str, Entry]:
    """Read and check one region's file."""
    document = source.document(file)
    if not isinstance(document, dict) or not document:
        raise InputError(f"{file}: expected an object of question id to question, as in BLEnD")
    entries = {}
    for question, value in document.items():
        try:
            entries[question] = Entry.model_validate(value)
        except ValidationError as error:
            raise InputError(f"{file}, question {question!r}: {first_problem(error)}") from error
    return entries


def majorities(question: str, entries: Mapping[str, Entry], seed: int) -> dict[str, Answer | None]:
    """Return each region's clear majority answer, or None where there is none.

    Of an answer's wordings the one that most regions use is shown, so that a rare spelling
    does not point to a region.
    """
    usage: Counter[str] = Counter()
    for entry in entries.values():
        usage.update({form(w).joined for vote in entry.annotations for w in vote.en_answers})
    answers: dict[str, Answer | None] = {}
    for region, entry in entries.items():
        votes = [v for v in entry.annotations if any(clean(w) for w in v.en_answers)]
        top = max((vote.count for vote in votes), default=0)
        if top < MIN_VOTES or top < sum(entry.idks.values()):
            answers[region] = None
            continue
        tied = [vote for vote in votes if vote.count == top]
        winner = min(tied, key=lambda v: draw(seed, question, region, *v.en_answers))
        wordings = [w for w in winner.en_answers if clean(w)]
        shown = max(wordings, key=lambda w: usage[form(w).joined])
        answers[region] = Answer(
            clean(shown), tuple(wordings), top, tuple(w for w in winner.answers if clean(w))
        )
    return answers


def draw(*parts: str | int) -> bytes:
    """Return a number that depends on `parts` only, to order things by."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).digest()


def _item(
    question: str,
    region: str,
    entries: Mapping[str, Entry],
    majorities: Mapping[str, Answer | None],
    source: Source,
) -> Item | None:
    """Make the item of a question in a region, or count why there is none."""
    best = clear_answer(region, entries[region], majorities[region], source)
    if best is None:
        return None
    rejected: dict[str, Answer] = {}
    for other in shuffled(question, region, majorities, source.seed):
        answer = majorities[other]
        taken = [w for chosen in rejected.values() for w in chosen.wordings]
        present = (*entries[region].said, *taken)
        if answer is not None and usable(answer, other, region, best, present):
            rejected[other] = answer
        if len(rejected) == N_REJECTED:
            return _build(question, region, entries[region].en_question, best, rejected)
    source.skipped[TOO_FEW] += 1
    return None


def clear_answer(region: str, entry: Entry, best: Answer | None, source: Source) -> Answer | None:
    """Return a region's majority answer, or count in `source.skipped` why there is none to use."""
    if not entry.said:
        source.skipped[UNANSWERED] += 1
    elif best is None:
        source.skipped[UNCLEAR] += 1
    elif _names_region(best, region):
        source.skipped[NAMED] += 1
    else:
        return best
    return None


def shuffled(question: str, region: str, regions: Iterable[str], seed: int) -> list[str]:
    """Return the other regions in the order in which their answers are tried."""
    others = (other for other in regions if other != region)
    return sorted(others, key=lambda other: draw(seed, question, region, other))


def usable(answer: Answer, region: str, here: str, best: Answer, present: Iterable[str]) -> bool:
    """Tell whether another region's answer can be a rejected candidate."""
    if kind(answer.text) != kind(best.text):
        return False
    if _names_region(answer, region) or _names_region(answer, here):
        return False  # the question's words alone would tell
    if region in region_of(here).overlaps:
        return False
    return not any(same(mine, theirs) for mine in answer.wordings for theirs in present)


def region_of(name: str) -> Region:
    """Return what is known of a region."""
    plain = name.replace("_", " ")
    return REGIONS.get(name) or Region(plain, plain)


def _names_region(answer: Answer, region: str) -> bool:
    """Tell whether any wording names the region, so that the question's words give it away."""
    names = {form(name).joined for name in region_of(region).names}
    return any(not names.isdisjoint(form(w).words) for w in answer.wordings)


def _build(
    question: str, region: str, text: str, best: Answer, rejected: Mapping[str, Answer]
) -> Item:
    about = region_of(region)
    candidates = [Candidate(id="chosen", text=best.text, culture=about.culture)]
    for index, (other, answer) in enumerate(rejected.items(), start=1):
        them = region_of(other)
        candidates.append(
            Candidate(
                id=f"rejected-{index}",
                text=answer.text,
                culture=them.culture,
                note=f"majority answer in {them.country} ({answer.votes} votes)",
            )
        )
    return Item(
        id=f"{question}:{region}",
        prompt=(Message(role="user", content=text),),
        candidates=tuple(candidates),
        best_ids=("chosen",),
        culture=about.culture,
        country=about.country,
        language="en",
        domain="commonsense",
        source="blend",
        licence="CC-BY-SA-4.0",
        parent_id=question,
        reason=f"majority answer in {about.country} ({best.votes} votes)",
        author="human",
    )
