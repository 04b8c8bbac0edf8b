"""Pairs from people's ratings: PRISM (Kirk et al. 2024), CARE (Guo et al. 2025), HelpSteer3."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from habitus.data import care, helpsteer3
from habitus.data.countries import country
from habitus.data.fields import EMPTY, IDENTICAL, REPEATED, rating_of, require, text
from habitus.data.source import Row, Source, kind_of
from habitus.errors import InputError
from habitus.pairs.items import group_of, item_pairs
from habitus.pairs.splits import normalise
from habitus.types import Message, PreferencePair, digest

PersonCountry = Literal["reside", "birth"]
"""Which of a person's countries counts: where they live, or where they were born."""

UTTERANCES, SURVEY = "utterances.jsonl", "survey.jsonl"
"""PRISM's files: the rated responses, and who rated them."""

COLUMNS = (
    "utterance_id",
    "interaction_id",
    "conversation_id",
    "user_id",
    "turn",
    "user_prompt",
    "model_response",
    "if_chosen",
    "score",
)
"""Columns of PRISM's utterances that are needed."""

LICENCE = "CC-BY-4.0 AND CC-BY-NC-4.0"
"""PRISM: what people wrote, and the models' responses."""

TIED = "pairs of responses with one rating"
CLOSE = "pairs of responses whose ratings differ by less than the least margin"
WEAK = "preferences weaker than the least margin"
UNRATED = "a response has no rating"
NO_PERSON = "the person is not in the survey"
NO_COUNTRY = "the person names no country"
NO_HISTORY = "an earlier turn of the conversation has no response to continue from"


@dataclass(frozen=True)
class _Response:
    """One rated response."""

    id: str
    text: str
    rating: float


_UNSAID = re.compile(r"prefer not to say|unknown|other|n/?a", re.IGNORECASE)


def prism_files(path: Path) -> tuple[Path, Path] | None:
    """Return PRISM's utterances and survey where `path` is its folder or one of the two files.

    Raises:
        InputError: When only one of them is there.
    """
    if path.is_file():
        folders = [path.parent] if path.name in (UTTERANCES, SURVEY) else []
    else:
        folders = [path, path / "data"]
    for folder in folders:
        files = folder / UTTERANCES, folder / SURVEY
        missing = [file.name for file in files if not file.is_file()]
        if len(missing) == 1:
            raise InputError(
                f"{folder}: {missing[0]} is missing; PRISM's pairs need {UTTERANCES} and {SURVEY} "
                "in one folder"
            )
        if not missing:
            return files
    return None


def read_prism(
    source: Source, survey: Path, *, person_country: PersonCountry, min_margin: float | None = None
) -> Iterator[PreferencePair]:
    """Pair the responses that one person rated in one turn; chosen is the higher rated one.

    The prompt is the conversation so far: in each earlier turn, what the person asked and the
    response that was chosen to go on with. Left out, and counted in `source.skipped`: ties,
    responses without text or rating, identical ones, people without a country, and turns whose
    earlier turns are not all there. `group` and `annotator` are the person.

    Args:
        source: PRISM's utterances.
        survey: PRISM's survey, for the people's countries.
        person_country: Which of a person's countries counts.
        min_margin: Least difference of two ratings (1 to 100); None for any.

    Raises:
        InputError: When a column is missing or of another kind.
    """
    countries = _countries(Source(survey), person_country)
    turns: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in source.rows():
        require(row, COLUMNS, "prism")
        turns[text(row, "conversation_id"), _turn(row)].append(row)
    for (conversation, turn), rows in turns.items():
        person = text(rows[0], "user_id")
        if any(text(row, "user_id") != person for row in rows):
            raise rows[0].error(f"the conversation {conversation!r} is of several people")
        if countries.get(person) is None:
            source.skipped[NO_COUNTRY if person in countries else NO_PERSON] += len(rows)
            continue
        prompt = _prompt([turns.get((conversation, index), []) for index in range(turn + 1)])
        if prompt is None:
            source.skipped[NO_HISTORY] += len(rows)
            continue
        yield from _rated(
            source,
            _said(source, rows),
            min_margin,
            item_id=text(rows[0], "interaction_id"),
            prompt=prompt,
            country=countries[person],
            language="en",
            annotator=person,
            group=person,
            source="prism",
            licence=LICENCE,
        )


def _countries(survey: Source, which: PersonCountry) -> dict[str, str | None]:
    """Return each person's country by English short name; None where it is not told."""
    found: dict[str, str | None] = {}
    for row in survey.rows():
        require(row, ("user_id", "location"), "prism")
        location = row.values["location"]
        if not isinstance(location, dict | None):
            raise row.error(f"column location must be an object, found {kind_of(location)}")
        name = (location or {}).get(f"{which}_country")
        if name is not None and not isinstance(name, str):
            raise row.error(f"location.{which}_country must be text, found {kind_of(name)}")
        told = name and name.strip() and not _UNSAID.fullmatch(name.strip())
        found[text(row, "user_id")] = country(str(name))[0] if told else None
    return found


def _turn(row: Row) -> int:
    value = row.values["turn"]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise row.error(f"column turn must be a number from 0, found {str(value)[:40]!r}")
    return value


def _prompt(turns: Sequence[Sequence[Row]]) -> tuple[Message, ...] | None:
    """Return the conversation up to the last turn's responses; None where a part is missing."""
    messages: list[Message] = []
    for number, rows in enumerate(turns, start=1):
        asked = rows[0].values["user_prompt"] if rows else None
        if not isinstance(asked, str) or not asked.strip():
            return None
        messages.append(Message(role="user", content=asked))
        if number == len(turns):
            return tuple(messages)
        chosen = [row.values["model_response"] for row in rows if row.values["if_chosen"] is True]
        if len(chosen) != 1 or not isinstance(chosen[0], str) or not chosen[0].strip():
            return None
        messages.append(Message(role="assistant", content=chosen[0]))
    return None


def _said(source: Source, rows: Iterable[Row]) -> list[_Response]:
    """Return the responses of a turn that can be compared."""
    found = []
    for row in rows:
        said, score = row.values["model_response"], row.values["score"]
        if not isinstance(said, str | None):
            raise row.error(f"column model_response must be text, found {kind_of(said)}")
        if said is None or not said.strip():
            source.skipped[EMPTY] += 1
        elif score is None:
            source.skipped[UNRATED] += 1
        else:
            found.append(_Response(text(row, "utterance_id"), said, rating_of(row, "score", 100)))
    return found


def read_care(source: Source, min_margin: float | None = None) -> Iterator[PreferencePair]:
    """Pair the rated responses to each question; chosen is the higher rated one.

    CARE's raters are of one culture for each language; it does not say who rated what, so `group`
    is the question. `culture` is the question's, where CARE calls it native.

    Args:
        source: CARE's rated responses.
        min_margin: Least difference of two ratings (1 to 10); None for any.

    Raises:
        InputError: As `care.questions`.
    """
    for question in care.questions(source, REPEATED):
        yield from _rated(
            source,
            [
                _Response(f"{question.id}:{number}", said, rating)
                for number, (said, rating) in enumerate(question.ratings.items(), start=1)
            ],
            min_margin,
            item_id=question.id,
            prompt=question.prompt,
            group=digest(normalise(question.text)),
            **question.facts(),
        )


def read_helpsteer3(source: Source, min_margin: float | None = None) -> Iterator[PreferencePair]:
    """Pair the two responses of each row; the margin is the strength of the preference, 1 to 3.

    `group` is the conversation that the responses answer. It has a language and no country.

    Args:
        source: HelpSteer3's preference part.
        min_margin: Least strength; None for any.

    Raises:
        InputError: As `helpsteer3.preferences`.
    """
    several = len(source.files) > 1
    for item, strength, place in helpsteer3.preferences(source):
        if min_margin is not None and strength < min_margin:
            source.skipped[WEAK] += 1
            continue
        yield from item_pairs(
            item,
            prefix=f"{source.label(place)}:" if several else "",
            item_id=group_of(item),
            group=group_of(item),
            licence=item.licence,
            margin=strength,
        )


def _rated(
    source: Source, responses: Sequence[_Response], least: float | None, /, **fields: Any
) -> Iterator[PreferencePair]:
    """Pair responses to one prompt, each with every other that has another rating."""
    for one, other in combinations(responses, 2):
        better, worse = (one, other) if one.rating >= other.rating else (other, one)
        margin = better.rating - worse.rating
        problem = None
        if margin == 0:
            problem = TIED
        elif better.text == worse.text:
            problem = IDENTICAL
        elif least is not None and margin < least:
            problem = CLOSE
        if problem:
            source.skipped[problem] += 1
            continue
        yield PreferencePair(
            id=f"{better.id}>{worse.id}",
            chosen=better.text,
            rejected=worse.text,
            margin=margin,
            **fields,
        )
