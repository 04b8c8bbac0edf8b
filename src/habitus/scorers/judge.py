"""Judges: language models that say which response is best, over any engine.

A judge keeps several items in flight and hands all their open questions to the engine at once.
How an item is judged is in `judge_modes`, what one question is in `judge_looks`, and how verdicts
are read from text in `habitus.verdicts`. A judgement depends on the item, the settings, the seed
and the engine's replies, not on what else is in flight. An item of which any look fails, fails:
scores over fewer looks would not be fair to every candidate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from habitus.clients.engine import Engine, Reply, Request, answers
from habitus.errors import ModelError
from habitus.prompts import Prompt, PromptSet
from habitus.scorers import ScorerOptions, engines
from habitus.scorers.base import ItemFailureError, conclude
from habitus.scorers.judge_looks import Program, Questions, Record
from habitus.scorers.judge_modes import Bench, program_of
from habitus.scorers.judge_settings import (
    OPTIONS,
    Settings,
    check,
    load_judge_prompts,
    resolve_settings,
)
from habitus.types import (
    Item,
    Judgement,
    Parameter,
    ScorerSpec,
    candidate_order,
)


@dataclass
class _Flight:
    """An item under way."""

    item: Item
    program: Program[Mapping[str, Any]]
    requests: Sequence[Request] = ()
    """What it waits for."""
    seconds: float = 0.0
    """Its share of the time so far."""
    outcome: Mapping[str, Any] | Exception | None = None
    """How it ended, once it has."""

    def go_on(self, replies: list[Reply] | None) -> None:
        """Hand over replies, and learn what is asked next."""
        start = time.perf_counter()
        try:
            self.requests = next(self.program) if replies is None else self.program.send(replies)
        except StopIteration as stop:
            self.outcome = stop.value
        except Exception as error:  # noqa: BLE001 - a bad item is data, never the end of a run
            self.outcome = error
        self.seconds += time.perf_counter() - start


class Judge:
    """A language model as a judge (see `habitus.types.Scorer`)."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        prompts: PromptSet,
        *,
        kind: str = "judge",
        item_language: bool = False,
    ) -> None:
        """Make a judge.

        Args:
            engine: What runs the model; the judge closes it.
            settings: How to judge.
            prompts: The prompt files.
            kind: The scorer's kind.
            item_language: Instruct in the item's language, where there is a prompt in it.
        """
        self.engine = engine
        """What runs the model."""
        self.settings = settings
        """How it judges."""
        self._prompts = prompts
        self._item_language = item_language
        self._program = program_of(settings.mode, settings.pairs)
        self._groups = count()
        self.spec = ScorerSpec(
            kind=kind,
            model=engine.model,
            revision=engine.revision,
            parameters=dict(engine.parameters) | settings.parameters() | self._instructions(),
            prompt_digest=prompts.digest,
        )

    def _instructions(self) -> dict[str, Parameter]:
        if not self._item_language:
            return {"instructions": "english"}
        known = ", ".join(sorted(["en", *self._prompts.languages]))
        return {"instructions": f"item ({known}; others in English)"}

    def judge(self, items: Sequence[Item], seed: int) -> Iterator[Judgement]:
        """Judge items, each as soon as its questions are answered.

        Raises:
            HabitusError: When the engine cannot go on at all.
        """
        waiting = iter(items)
        flights: list[_Flight] = []
        while True:
            while len(flights) < max(self.engine.window, 1):
                item = next(waiting, None)
                if item is None:
                    break
                flight = _Flight(item, self._judge_one(item, seed))
                flight.go_on(None)
                flights.append(flight)
            if not flights:
                return
            self._answer([flight for flight in flights if flight.outcome is None])
            for flight in flights:
                if flight.outcome is not None:
                    yield conclude(flight.item, self.spec, seed, flight.outcome, flight.seconds)
            flights = [flight for flight in flights if flight.outcome is None]

    def _answer(self, flights: Sequence[_Flight]) -> None:
        """Have all open questions answered; each flight takes its share of the time."""
        requests = [request for flight in flights for request in flight.requests]
        if not requests:
            return
        start = time.perf_counter()
        replies = answers(self.engine, requests)
        each = (time.perf_counter() - start) / len(requests)
        for flight in flights:
            asked = len(flight.requests)
            flight.seconds += each * asked
            flight.go_on(replies[:asked])
            replies = replies[asked:]

    def _judge_one(self, item: Item, seed: int) -> Program[Mapping[str, Any]]:
        """Take an item's looks and return the judgement's fields."""
        group = f"{next(self._groups)}:{item.id}"
        questions = Questions(item, self._prompt_for(item), self.settings, seed, group)
        bench = Bench(questions, wide=self.engine.window > 1)
        try:
            scores = yield from self._program(bench, candidate_order(item, seed))
        except ItemFailureError as error:
            error.fields |= _kept(bench.records)
            raise
        return {"scores": scores, "passes": tuple(bench.passes)} | _kept(bench.records)

    def _prompt_for(self, item: Item) -> Prompt:
        found = self._prompts.find(item.language) if self._item_language else None
        return found or self._prompts.base

    def close(self) -> None:
        """Release the engine."""
        self.engine.close()


def _kept(records: Sequence[Record]) -> dict[str, Any]:
    """Return the fields that tell what was written and spent."""
    found: dict[str, Any] = {
        "prompt_tokens": sum(record.prompt_tokens for record in records),
        "completion_tokens": sum(record.completion_tokens for record in records),
    }
    written = "\n\n".join(record.written for record in records if record.written)
    return found | ({"raw": written} if written else {})


def build(model: str, options: ScorerOptions, *, kind: str, engine: str) -> Judge:
    """Make a judge from options.

    Args:
        model: The model's name, as the engine knows it.
        options: Options of the command line; `engine` is not read.
        kind: The scorer's kind.
        engine: Name of the engine.

    Raises:
        HabitusError: When an option is wrong, or the engine cannot be had.
    """
    mode, criteria = check(options, kind)
    prompts = load_judge_prompts(options, mode, criteria)
    started = engines.start(engine, model, options)
    try:
        if started.parameters.get("system_role") == "error" and "system" in prompts.base.sections:
            raise ModelError(
                f"the chat template of {started.model} has no system role, and the prompt "
                f"{prompts.base.name} has a [system] section; use --no-system merge, or a prompt "
                "without one"
            )
        settings = resolve_settings(options, mode, criteria, started, prompts)
    except BaseException:
        started.close()
        raise
    translated = options.instructions == "item"
    if translated:
        known = ", ".join(sorted(prompts.languages))
        options.say(f"note: instructions in the item's language ({known}), in English for others")
    return Judge(started, settings, prompts, kind=kind, item_language=translated)


def create(model: str, options: ScorerOptions) -> Judge:
    """Make a judge: `judge:NAME`, run by `options.engine` (default "embedded").

    Raises:
        UnknownNameError: When the engine, the model or the mode is not known.
        InputError: When options do not apply or do not go together.
        HabitusError: When the model cannot be had.
    """
    engine = options.engine or engines.DEFAULT
    engines.check_options(f"{engine} judge", engine, options, ("engine", *OPTIONS))
    return build(model, options, kind="judge", engine=engine)
