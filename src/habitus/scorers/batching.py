"""Scoring many conversations with any reward model that reads one conversation at a time.

All candidates of a chunk of items are encoded at once and handed to a `Runner`, which sorts and
batches them; the judgements of a chunk are given out before the next one is computed.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from habitus.clients.encode import Encoded, Encoder
from habitus.scorers.base import ItemFailureError, conclude
from habitus.scorers.ranks import Ranks
from habitus.scorers.runner import BUDGET, Runner
from habitus.types import Item, Judgement, Message, ScorerSpec, Status

CHUNKS = {"cpu": 16}
"""Batches that are planned together, by device type: judgements are written after each chunk."""

CHUNK = 32
"""The same on an accelerator; more texts to sort leave less padding."""

BYTES_PER_TOKEN = 4
"""Rough length of a token, to cut work into chunks before it is encoded."""


@dataclass(frozen=True)
class Scored:
    """The reward of one conversation, or why it has none."""

    value: float | None
    """The reward, at 6 significant digits; None on failure."""
    status: Status = Status.OK
    """`ok`, `truncated` or `error`."""
    error: str | None = None
    """Why it failed, for people."""
    tokens: int = 0
    """Tokens read."""
    cut: int = 0
    """Tokens cut off, where the user asked for that."""
    read: int | None = None
    """Where something was cut: a hash of the tokens that were left, to find equal texts."""


class ConversationScorer(ABC):
    """A scorer whose judgements are the rewards of an item's conversations, one per candidate."""

    spec: ScorerSpec
    chunk_tokens: int = CHUNK * BUDGET
    """About how many tokens are planned together."""
    weights: int | None = None
    """Number of the model's weights, where known; it is no part of the spec."""

    @abstractmethod
    def prepare(self, conversations: Sequence[Sequence[Message]]) -> Any:
        """Do what needs no model, such as encoding; runs beside the model, in another thread."""

    @abstractmethod
    def run(self, prepared: Any) -> list[Scored]:
        """Score what `prepare` made."""

    def score(self, conversations: Sequence[Sequence[Message]]) -> list[Scored]:
        """Score conversations, in their order; the last message of each is the response."""
        return self.run(self.prepare(conversations))

    def judge(self, items: Sequence[Item], seed: int) -> Iterator[Judgement]:
        """Judge items in their order (see `habitus.types.Scorer.judge`)."""
        cut = 0
        for chunk, prepared in self._ahead(_chunks(items, self.chunk_tokens)):
            begin = time.perf_counter()
            scored = iter(self.run(prepared))
            groups = [[next(scored) for _ in item.candidates] for item in chunk]
            seconds = time.perf_counter() - begin
            tokens = sum(each.tokens for group in groups for each in group) or 1
            for item, group in zip(chunk, groups, strict=True):
                share = sum(each.tokens for each in group) / tokens
                yield conclude(item, self.spec, seed, _outcome(item, group), seconds * share)
                cut += sum(each.cut > 0 for each in group)
        if cut:
            self.say(f"{cut} texts were over the limit and were cut, as asked")

    def say(self, line: str) -> None:  # noqa: B027 - many stay silent
        """Tell the user something; scorers that can say otherwise."""

    def _ahead(self, chunks: Iterable[list[Item]]) -> Iterator[tuple[list[Item], Any]]:
        """Prepare each chunk while the one before it is scored."""
        with ThreadPoolExecutor(1) as pool:
            waiting: tuple[list[Item], Future[Any]] | None = None
            for chunk in chunks:
                following = pool.submit(self.prepare, _conversations(chunk))
                if waiting is not None:
                    yield waiting[0], waiting[1].result()
                waiting = chunk, following
            if waiting is not None:
                yield waiting[0], waiting[1].result()

    def close(self) -> None:  # noqa: B027 - some hold nothing
        """Release nothing; scorers that hold a model say otherwise."""


def _conversations(items: Sequence[Item]) -> list[tuple[Message, ...]]:
    return [
        (*item.prompt, Message(role="assistant", content=candidate.text))
        for item in items
        for candidate in item.candidates
    ]


def _chunks(items: Sequence[Item], tokens: int) -> Iterator[list[Item]]:
    """Cut items into chunks of about so many tokens."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        prompt = sum(len(message.content.encode()) for message in item.prompt)
        size += sum(prompt + len(candidate.text.encode()) for candidate in item.candidates)
        chunk.append(item)
        if size >= tokens * BYTES_PER_TOKEN:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _outcome(item: Item, scored: Sequence[Scored]) -> dict[str, Any] | ItemFailureError:
    """Make an item's scores from its candidates', or say why it has none."""
    named = list(zip(item.candidates, scored, strict=True))
    failed = [(candidate.id, each) for candidate, each in named if each.value is None]
    if failed:
        long = all(each.status is Status.TRUNCATED for _, each in failed)
        name, first = failed[0]
        message = f"candidate {name!r}: {first.error}"
        if len(failed) > 1:
            message += f"; {len(failed)} of {len(named)} candidates failed"
        return ItemFailureError(Status.TRUNCATED if long else Status.ERROR, message)
    seen: dict[int, tuple[str, str]] = {}
    for candidate, each in named:
        if each.read is None:
            continue
        name, text = seen.setdefault(each.read, (candidate.id, candidate.text))
        if text != candidate.text:
            message = f"candidates {name!r} and {candidate.id!r} are the same text after the cut"
            return ItemFailureError(Status.TRUNCATED, message)
    return {
        "scores": {candidate.id: each.value for candidate, each in named},
        "prompt_tokens": sum(each.tokens for each in scored),
    }


class BatchedScorer(ConversationScorer):
    """Rewards of encoded texts, in batches, on one device or on several."""

    def __init__(
        self,
        spec: ScorerSpec,
        encoder: Encoder,
        runner: Runner,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Make a scorer.

        Args:
            spec: What it is.
            encoder: Makes token ids of conversations.
            runner: Computes their rewards.
            say: Called with lines for the user.
        """
        self.spec = spec
        self._encoder = encoder
        self._ranks = Ranks(runner)
        self._say = say
        batches = CHUNKS.get(runner.device.type, CHUNK)
        self.chunk_tokens = batches * runner.budget * self._ranks.count

    def say(self, line: str) -> None:
        """Tell the user something."""
        self._say(line)

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> list[Encoded]:
        """Encode conversations."""
        return self._encoder.encode(conversations)

    def run(self, prepared: list[Encoded]) -> list[Scored]:
        """Score encoded texts, in their order; equal ones once, as copies with one edit have many."""
        first: dict[tuple[Any, ...], int] = {}
        same = {
            index: first.setdefault((tuple(text.ids), tuple(text.types or ()), text.start), index)
            for index, text in enumerate(prepared)
            if text.status is Status.OK
        }
        asked = list(first.values())
        rewards = self._ranks.run([prepared[index] for index in asked])
        values = dict(zip(asked, rewards, strict=True))
        return [_scored(text, values.get(same.get(at, -1))) for at, text in enumerate(prepared)]

    def close(self) -> None:
        """Let the other processes go, if there are any."""
        self._ranks.close()


def _scored(text: Encoded, value: float | str | None) -> Scored:
    if value is None:
        return Scored(None, text.status, text.error)
    if isinstance(value, str):
        return Scored(None, Status.ERROR, value, len(text.ids))
    if not math.isfinite(value):
        message = f"the reward is not a finite number ({value})"
        return Scored(None, Status.ERROR, message, len(text.ids))
    read = hash(tuple(text.ids)) if text.cut else None
    return Scored(float(f"{value:.6g}"), Status.OK, None, len(text.ids), text.cut, read)
