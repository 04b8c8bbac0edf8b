"""One look of a judge: what is asked about candidates in one order, and what is read from it.

A look is a generator that yields requests, one at a time, receives their replies and returns a
`Pass`. What was written and spent is kept in its record, also when the look fails.
"""

from __future__ import annotations

import hashlib
import math
import re
import string
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from habitus.clients.engine import Reply, Request, Turn
from habitus.prompts import Prompt, Segment, conversation_text, fill
from habitus.scorers.base import ItemFailureError
from habitus.scorers.judge_settings import (
    RATING_TOKENS,
    Settings,
    rating_labels,
    verdict_start,
)
from habitus.types import Item, Pass, Status, canonical_json
from habitus.verdicts import Verdict, parse_letter, parse_rating

CRITERIA_GRAMMAR = r"""
root ::= " " claim "\n2. " claim ("\n3. " claim)? "\n</criteria>"
claim ::= [^\n<>0-9. ] [^\n<>]{8,120}
"""
"""Two or three one-line claims, for engines with grammars; the prompt has begun the first."""

CLOSING = "</criteria>"
"""Ends the criteria; what a model writes after it is not read when the verdict is asked for."""

LETTERS = string.ascii_uppercase
"""Labels of the candidates; more candidates than letters cannot be judged listwise."""

T = TypeVar("T")


@dataclass
class Record:
    """What a look has cost and brought so far."""

    written: str = ""
    """What the judge wrote, with the beginning that it was given."""
    prompt_tokens: int = 0
    """Tokens read."""
    completion_tokens: int = 0
    """Tokens written."""


@dataclass
class Look:
    """A look under way."""

    steps: Generator[Request, Reply, Pass]
    """Yields requests, receives replies, returns the pass."""
    record: Record = field(default_factory=Record)
    """What it has cost and brought."""


@dataclass(frozen=True)
class Questions:
    """Asks about one item."""

    item: Item
    """The item."""
    prompt: Prompt
    """The prompt file, in the language of the instructions."""
    settings: Settings
    """How to judge."""
    seed: int
    """The run's seed."""
    group: str
    """The group of all requests; never used before with this engine."""

    def compare(self, shown: Sequence[str], vote: int = 0) -> Look:
        """Ask which candidate is best, shown in this order under the letters A, B, ..."""
        record = Record()
        return Look(self._compare(tuple(shown), vote, record), record)

    def rate(self, candidate_id: str, vote: int = 0) -> Look:
        """Ask how good one candidate is."""
        record = Record()
        return Look(self._rate(candidate_id, vote, record), record)

    def _compare(
        self, shown: tuple[str, ...], vote: int, record: Record
    ) -> Generator[Request, Reply, Pass]:
        if len(shown) > len(LETTERS):
            message = f"{len(shown)} candidates; a listwise judge has {len(LETTERS)} letters"
            raise ItemFailureError(Status.ERROR, message)
        letters = tuple(LETTERS[: len(shown)])
        request = self._request(shown, vote)
        if self.settings.verdict == "text":
            text = yield from self._write(request, record)
            letter = _value(parse_letter(text, letters))
            scores = tuple(float(letter == one) for one in letters)
            return Pass(order=shown, scores=scores, pick=letters.index(letter))
        reply = yield from self._distribution(request, letters, record)
        assert reply.logprobs is not None
        pick = reply.logprobs.index(max(reply.logprobs))
        return Pass(order=shown, scores=reply.logprobs, pick=pick, mass=reply.mass)

    def _rate(
        self, candidate_id: str, vote: int, record: Record
    ) -> Generator[Request, Reply, Pass]:
        low, high = self.settings.scale
        request = self._request((candidate_id,), vote)
        mass = None
        if self.settings.verdict == "logprobs":
            labels = rating_labels(self.settings.scale, "")
            reply = yield from self._distribution(request, labels, record)
            assert reply.logprobs is not None
            values = zip(range(low, high + 1), reply.logprobs, strict=True)
            rating = round(math.fsum(value * math.exp(logprob) for value, logprob in values), 6)
            mass = reply.mass
        elif self.settings.prefill:
            rating = yield from self._short_rating(request, record)
        else:
            text = yield from self._write(request, record)
            rating = _value(parse_rating(text, low, high))
        return Pass(order=(candidate_id,), scores=(rating,), pick=0, mass=mass)

    def _request(self, shown: tuple[str, ...], vote: int) -> Request:
        """Return the request for text; those for labels are made of it."""
        key = canonical_json([self.seed, self.item.id, list(shown), vote])
        settings = self.settings
        return Request(
            group=self.group,
            chat=self._chat(shown),
            answer=self.prompt.sections["assistant"] if settings.prefill else "",
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) >> 1,
            grammar=CRITERIA_GRAMMAR if settings.criteria and settings.prefill else None,
        )

    def _chat(self, shown: tuple[str, ...]) -> tuple[Turn, ...]:
        texts = {candidate.id: candidate.text for candidate in self.item.candidates}
        sections = self.prompt.sections
        candidates: list[Segment] = []
        for number, candidate_id in enumerate(shown):
            gap = (Segment("\n", True),) if candidates else ()
            letter = (Segment(LETTERS[number], True),)
            filled = fill(sections["candidate"], {"letter": letter, "text": texts[candidate_id]})
            candidates += (*gap, *filled)
        low, high = self.settings.scale
        values: dict[str, str | Sequence[Segment]] = {
            "question": conversation_text(self.item.prompt),
            "candidates": candidates,
            "letters": (Segment(", ".join(LETTERS[: len(shown)]), True),),
            "low": (Segment(str(low), True),),
            "high": (Segment(str(high), True),),
            "culture": self.item.culture or "",
            "country": self.item.country or "",
            "language": self.item.language or "",
        }
        chat = [Turn("user", fill(sections["user"], values))]
        if "system" in sections:
            chat.insert(0, Turn("system", fill(sections["system"], values)))
        return tuple(chat)

    def _write(self, request: Request, record: Record) -> Generator[Request, Reply, str]:
        """Let the judge write everything, the verdict included."""
        reply = yield from _ask(request, record)
        record.written = request.answer + (reply.text or "")
        if not reply.finished:
            message = f"the text did not end within {request.max_tokens:,} tokens"
            raise ItemFailureError(Status.TRUNCATED, message)
        return record.written

    def _criteria(self, request: Request, record: Record) -> Generator[Request, Reply, Request]:
        """Let the judge write criteria; return the request that goes on after them."""
        reply = yield from _ask(request, record)
        text, closing, _ = (reply.text or "").partition(CLOSING)
        record.written = request.answer + text + closing
        if not closing and not reply.finished:
            message = f"the criteria did not end within {request.max_tokens:,} tokens"
            raise ItemFailureError(Status.TRUNCATED, message)
        if not closing:
            raise ItemFailureError(Status.UNPARSED, f"the criteria do not end with {CLOSING}")
        end, _ = verdict_start(True, True, request.answer)
        return replace(request, answer=record.written + end, grammar=None)

    def _distribution(
        self, request: Request, labels: Sequence[str], record: Record
    ) -> Generator[Request, Reply, Reply]:
        """Return the reply with the distribution over labels, after criteria if there are any."""
        settings = self.settings
        if settings.criteria:
            request = yield from self._criteria(request, record)
        _, space = verdict_start(settings.criteria, settings.prefill, request.answer)
        labelled = Request(
            group=request.group,
            chat=request.chat,
            answer=request.answer,
            labels=tuple(space + label for label in labels),
        )
        reply = yield from _ask(labelled, record)
        if reply.logprobs is None or len(reply.logprobs) != len(labels):
            raise ItemFailureError(Status.ERROR, "the engine gave no distribution over the labels")
        if not all(map(math.isfinite, reply.logprobs)):
            raise ItemFailureError(Status.ERROR, "a log-probability is not a finite number")
        return reply

    def _short_rating(self, request: Request, record: Record) -> Generator[Request, Reply, float]:
        """Read a rating that comes next, after a beginning such as "Rating:"."""
        if self.settings.criteria:
            request = yield from self._criteria(request, record)
            request = replace(request, max_tokens=RATING_TOKENS)
        reply = yield from _ask(request, record)
        text = reply.text or ""
        record.written = request.answer + text
        first = re.match(r"[^\n0-9]*[0-9]\S*", text.lstrip())
        cut = not reply.finished and (not first or len(text.lstrip()) == first.end())
        if cut:
            message = f"no rating ended within {request.max_tokens} tokens"
            raise ItemFailureError(Status.TRUNCATED, message)
        low, high = self.settings.scale
        return _value(parse_rating(f"<rating>{first[0]}" if first else text, low, high))


def _ask(request: Request, record: Record) -> Generator[Request, Reply, Reply]:
    reply = yield request
    record.prompt_tokens += reply.prompt_tokens
    record.completion_tokens += reply.completion_tokens
    if reply.status is not None:
        raise ItemFailureError(reply.status, reply.error or "the engine did not say why")
    return reply


def _value(verdict: Verdict[T]) -> T:
    if verdict.value is None:
        raise ItemFailureError(verdict.status, verdict.reason or "no verdict")
    return verdict.value


Program = Generator[list[Request], list[Reply], T]
"""Yields requests that may be answered at once, receives their replies, returns a result."""


def together(looks: Sequence[Look], kept: list[Record], *, wide: bool) -> Program[list[Pass]]:
    """Take looks side by side, or one after another.

    Args:
        looks: The looks, in the order of their passes.
        kept: Gets the records of all looks up to the first that fails. They are the same whether
            looks are taken side by side or not.
        wide: Side by side.

    Raises:
        ItemFailureError: Of the first look, in their order, that fails.
    """
    if not wide and len(looks) > 1:
        found = []
        for look in looks:
            found += yield from together([look], kept, wide=True)
        return found
    done: dict[int, Pass] = {}
    failed: dict[int, Exception] = {}
    waiting: dict[int, Request] = {}

    def advance(number: int, reply: Reply | None) -> None:
        steps = looks[number].steps
        try:
            waiting[number] = next(steps) if reply is None else steps.send(reply)
        except StopIteration as stop:
            done[number] = stop.value
        except Exception as error:  # noqa: BLE001 - raised below, when its turn comes
            failed[number] = error

    for number in range(len(looks)):
        advance(number, None)
    while waiting:
        asked, requests = list(waiting), list(waiting.values())
        waiting.clear()
        replies = yield requests
        for number, reply in zip(asked, replies, strict=True):
            if number < min(failed, default=len(looks)):
                advance(number, reply)
    first = min(failed, default=len(looks) - 1)
    kept += [look.record for look in looks[: first + 1]]
    if failed:
        raise failed[first]
    return [done[number] for number in range(len(looks))]
