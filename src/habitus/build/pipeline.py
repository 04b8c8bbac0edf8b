"""The stages of a build, in their order: facts, prompts, chosen, rejected, filtered, matched.

Each stage goes over all items, then again over those that failed, with another seed, until none is
left or the attempts are used up. What happens depends on the records alone, so a build that is
resumed replays them and goes on where they end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from habitus.build import chats
from habitus.build.checks import Checked, Languages, check_reply, repeats
from habitus.build.filtering import Case, Filter
from habitus.build.flights import CHOSEN, Answer, Flight, Rules, Slot
from habitus.build.records import Outcome, StageLogs, StageRecord
from habitus.build.references import REJECTED, CulturalReference
from habitus.build.writers import Task, Writers
from habitus.clients.engine import Reply
from habitus.clients.recognise import base
from habitus.data.answers import fold
from habitus.prompts import Prompt
from habitus.types import canonical_json, digest

RATIO = 1.15
"""The longest of the four answers has at most so many times the characters of the shortest."""

S = TypeVar("S")


class Pipeline:
    """Runs the stages over the items that are to be made."""

    def __init__(
        self,
        rules: Rules,
        prompts: Mapping[str, Prompt],
        writers: Writers,
        logs: StageLogs,
        languages: Languages | None,
    ) -> None:
        """Make a pipeline.

        Args:
            rules: What to go by.
            prompts: The builder's prompts, by name.
            writers: The models.
            logs: The records.
            languages: What recognises languages; None does not check.
        """
        self._rules = rules
        self._prompts = prompts
        self._writers = writers
        self._logs = logs
        self._languages = languages
        self._facts: dict[tuple[str, str], str] = {}

    def translate(self, flights: Sequence[Flight]) -> None:
        """Have each fact written in the language of the items that it is compared in.

        An item of which a fact cannot be translated is dropped.
        """
        wanted: dict[tuple[str, str], tuple[CulturalReference, str]] = {}
        for flight in flights:
            for one in flight.sources():
                if base(one.text_language or one.language) != base(flight.language):
                    wanted.setdefault((one.id, flight.language), (one, flight.language))

        def task(pair: tuple[CulturalReference, str], attempt: int) -> Task:
            one, language = pair
            chat = chats.translate(self._prompts, one.text, language)
            check = self._plain_check(language)
            key = f"{one.id}@{language}"
            return Task(key, attempt, self._rules.writer, chat, check, one.id)

        def accept(pair: tuple[CulturalReference, str], record: StageRecord) -> None:
            self._facts[pair[0].id, pair[1]] = record.text or ""

        failed = self._rounds("facts", list(wanted.values()), task, accept)
        bad = {(one.id, language): outcome for (one, language), (_, outcome) in failed}
        for flight in flights:
            lacking = [bad.get((one.id, flight.language)) for one in flight.sources()]
            outcome = next((one for one in lacking if one is not None), None)
            if outcome is not None:
                flight.dropped = ("facts", outcome)

    def fact(self, reference: CulturalReference, language: str) -> str:
        """Return a fact as it is compared with texts in a language."""
        return self._facts.get((reference.id, language), reference.text)

    def facts(self, flights: Sequence[Flight]) -> list[str]:
        """Return all facts that answers are compared with, each once."""
        texts = (self.fact(one, flight.language) for flight in flights for one in flight.sources())
        return list(dict.fromkeys(texts))

    def ask_questions(self, flights: Sequence[Flight]) -> None:
        """Have a question written for each item; no two are equal."""
        asked: dict[str, str] = {}

        def task(flight: Flight, attempt: int) -> Task:
            reference = flight.target.reference
            fact = self.fact(reference, flight.language)

            def check(reply: Reply) -> Checked:
                found = check_reply(reply, flight.language, self._languages)
                if found.status is not Outcome.OK or found.text is None:
                    return found
                if repeats(fact, found.text):
                    return replace(
                        found, status=Outcome.REVEALS, reason="the question tells the fact"
                    )
                first = asked.get(fold(found.text), flight.key)
                if first != flight.key:
                    return replace(
                        found, status=Outcome.DUPLICATE, reason=f"the question of {first}"
                    )
                return found

            chat = chats.ask_question(self._prompts, reference)
            return Task(flight.key, attempt, self._rules.writer, chat, check, reference.id)

        def seen(record: StageRecord) -> None:
            if record.status is Outcome.OK:
                asked.setdefault(fold(record.text or ""), record.key)

        def accept(flight: Flight, record: StageRecord) -> None:
            flight.question = record.text or ""

        failed = self._rounds("prompts", flights, task, accept, seen=seen)
        for flight, dropped in failed:
            flight.dropped = dropped

    def choose(self, flights: Sequence[Flight], compare: Filter) -> None:
        """Have the chosen answer of each item written from its own reference."""
        self._answer("chosen", [Slot(flight, CHOSEN) for flight in flights], compare)

    def reject(self, flights: Sequence[Flight], compare: Filter) -> None:
        """Have three rejected answers of each item written from mismatched references."""
        numbers = range(1, REJECTED + 1)
        slots = [Slot(flight, number) for flight in flights for number in numbers]
        self._answer("rejected", slots, compare)

    def _answer(self, stage: str, slots: Sequence[Slot], compare: Filter) -> None:
        def task(slot: Slot, attempt: int) -> Task:
            flight, source = slot.flight, slot.flight.sources()[slot.number]
            flight.written.clear()  # what was written and not accepted may be written again
            chat = chats.answer_from(self._prompts, source.text, flight.question, flight.language)
            writer = self._writer_of(slot, attempt)
            return Task(slot.key, attempt, writer, chat, self._answer_check(slot), source.id)

        by_key = {slot.key: slot for slot in slots}

        def seen(record: StageRecord) -> None:
            if record.status is Outcome.OK:
                slot = by_key[record.key]
                slot.flight.written.setdefault(fold(record.text or ""), slot.number)

        def accept(slot: Slot, record: StageRecord) -> None:
            answer = Answer(record.text or "", record.model or "")
            slot.flight.answers[slot.number] = answer

        failed = self._rounds(stage, slots, task, accept, seen=seen, compare=compare)
        for slot, dropped in failed:
            slot.flight.dropped = slot.flight.dropped or dropped

    def _writer_of(self, slot: Slot, attempt: int) -> str:
        """Return who writes: rejected answers go round the pool from a place of the seed."""
        if slot.number == CHOSEN:
            return self._rules.writer
        pool = self._rules.pool
        key = canonical_json([self._rules.seed, slot.flight.key]).encode()
        start = int.from_bytes(hashlib.sha256(key).digest()[:4])
        return pool[(start + slot.number + attempt) % len(pool)]

    def _plain_check(self, language: str) -> Callable[[Reply], Checked]:
        return lambda reply: check_reply(reply, language, self._languages)

    def _answer_check(self, slot: Slot) -> Callable[[Reply], Checked]:
        flight = slot.flight

        def check(reply: Reply) -> Checked:
            found = check_reply(reply, flight.language, self._languages)
            if found.status is not Outcome.OK or found.text is None:
                return found
            if repeats(found.text, flight.question):
                return replace(
                    found, status=Outcome.REVEALS, reason="the answer repeats the question"
                )
            first = flight.same_text(found.text, slot.number)
            if first is not None:
                return replace(
                    found, status=Outcome.DUPLICATE, reason=f"the same text as answer {first}"
                )
            return found

        return check

    def _rounds(
        self,
        stage: str,
        things: Sequence[S],
        task: Callable[[S, int], Task],
        accept: Callable[[S, StageRecord], None],
        *,
        seen: Callable[[StageRecord], None] = lambda record: None,
        compare: Filter | None = None,
    ) -> list[tuple[S, tuple[str, Outcome]]]:
        """Ask for a text for each thing, again where it fails; return what failed for good."""
        pending = list(things)
        failures: list[tuple[S, tuple[str, Outcome]]] = []
        for attempt in range(1, self._rules.attempts + 1):
            tasks = [task(thing, attempt) for thing in pending]
            records = self._writers.ask(stage, tasks, self._logs[stage], seen)
            pairs = list(zip(pending, records, strict=True))
            failures = [
                (thing, (stage, record.status))
                for thing, record in pairs
                if record.status is not Outcome.OK
            ]
            good = [(thing, record) for thing, record in pairs if record.status is Outcome.OK]
            if compare is not None:
                good, far = self._filter(stage, good, compare)
                failures += far
            for thing, record in good:
                accept(thing, record)
            left = {id(thing) for thing, _ in failures}
            pending = [thing for thing in pending if id(thing) in left]
            if not pending:
                break
        return failures

    def _filter(
        self, stage: str, good: Sequence[tuple[S, StageRecord]], compare: Filter
    ) -> tuple[list[tuple[S, StageRecord]], list[tuple[S, tuple[str, Outcome]]]]:
        """Return those that the filter lets pass, and the others."""
        cases = [
            self._case(thing, record.text or "", record.attempt, stage)
            for thing, record in good
            if isinstance(thing, Slot)
        ]
        judged = compare.judge(cases, self._logs["filtered"])
        both = list(zip(good, judged, strict=True))
        passed = [pair for pair, verdict in both if verdict.status is Outcome.OK]
        far: list[tuple[S, tuple[str, Outcome]]] = [
            (thing, ("filtered", verdict.status))
            for (thing, _), verdict in both
            if verdict.status is not Outcome.OK
        ]
        return passed, far

    def _case(self, slot: Slot, text: str, attempt: int, origin: str) -> Case:
        facts = [self.fact(one, slot.flight.language) for one in slot.flight.sources()]
        others = facts[1:] if slot.number == CHOSEN else facts[:1]
        return Case(slot.key, attempt, text, facts[slot.number], tuple(others), origin)

    def match(self, flights: Sequence[Flight], compare: Filter) -> None:
        """Have answers rewritten until the four of an item are nearly equally long."""
        targets = {flight.key: _target(flight) for flight in flights}
        pending = list(flights)
        for attempt in range(1, self._rules.attempts + 2):
            pending = [flight for flight in pending if not self._settled(flight, attempt)]
            slots = [
                Slot(flight, number)
                for flight in pending
                for number in sorted(flight.answers)
                if _off(len(flight.answers[number].text), targets[flight.key]) > _HALF
            ]
            if not pending:
                return
            tasks = [self._rewrite(slot, targets[slot.flight.key], attempt) for slot in slots]
            by_key = {slot.key: slot for slot in slots}

            def seen(record: StageRecord, by_key: dict[str, Slot] = by_key) -> None:
                if record.status is Outcome.OK:
                    slot = by_key[record.key]
                    slot.flight.written.setdefault(fold(record.text or ""), slot.number)

            records = self._writers.ask("matched", tasks, self._logs["matched"], seen)
            pairs = zip(slots, records, strict=True)
            good = [(slot, record) for slot, record in pairs if record.status is Outcome.OK]
            cases = [self._case(slot, one.text or "", attempt, "matched") for slot, one in good]
            judged = compare.judge(cases, self._logs["filtered"])
            for (slot, record), verdict in zip(good, judged, strict=True):
                if verdict.status is Outcome.OK:
                    _take(slot, record, targets[slot.flight.key])

    def _rewrite(self, slot: Slot, target: int, attempt: int) -> Task:
        flight = slot.flight
        flight.written.clear()
        text = flight.answers[slot.number].text
        chat = chats.rewrite(self._prompts, text, target, flight.language)
        source = flight.sources()[slot.number]
        check = self._answer_check(slot)
        return Task(slot.key, attempt, self._rules.writer, chat, check, source.id)

    def _settled(self, flight: Flight, attempt: int) -> bool:
        """Whether an item is matched, or given up; the records say which."""
        lengths = [len(flight.answers[number].text) for number in sorted(flight.answers)]
        fits = 100 * max(lengths) <= round(100 * RATIO) * min(lengths)  # exact
        if not fits and attempt <= self._rules.attempts:
            return False
        texts = [flight.answers[number].text for number in sorted(flight.answers)]
        unit = digest(["matched", "item", flight.key, attempt, texts])
        log = self._logs["matched"]
        record = log.find(unit)
        if record is not None:
            log.use(record)
        else:
            shown = ", ".join(map(str, lengths))
            log.append(
                StageRecord(
                    stage="matched",
                    key=flight.key,
                    unit=unit,
                    attempt=attempt,
                    status=Outcome.OK if fits else Outcome.LENGTH,
                    reason=None if fits else f"{shown} characters",
                )
            )
        if not fits:
            flight.dropped = ("matched", Outcome.LENGTH)
        return True


_HALF = math.log(RATIO) / 2
"""Two lengths that are each off by at most this are within `RATIO` of one another."""


def _off(length: int, target: int) -> float:
    """Return how far a length is from the target, as a ratio's logarithm."""
    return abs(math.log(max(length, 1) / max(target, 1)))


def _target(flight: Flight) -> int:
    """Return the length to aim at: the mean of the two middle ones of the four."""
    lengths = sorted(len(answer.text) for answer in flight.answers.values())
    return round((lengths[1] + lengths[2]) / 2)


def _take(slot: Slot, record: StageRecord, target: int) -> None:
    """Put a rewritten answer in the place of the old one where it is nearer to the target."""
    old, text = slot.flight.answers[slot.number], record.text or ""
    if _off(len(text), target) < _off(len(old.text), target):
        slot.flight.answers[slot.number] = Answer(text, old.model, record.model)
