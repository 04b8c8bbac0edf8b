"""An engine in memory for tests of judges."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from habitus.clients.engine import Reply, Request
from habitus.prompts import plain
from habitus.scorers import ScorerOptions
from habitus.scorers.judge import Judge
from habitus.scorers.judge_settings import check, load_judge_prompts, resolve_settings
from habitus.types import Status

Answer = Callable[[Request], Reply]


class Fake:
    """Answers each request by a function, and remembers what it was asked."""

    model = "fake"
    revision = "r1"

    def __init__(self, answer: Answer, **traits: Any) -> None:
        self._answer = answer
        self.prefill = traits.pop("prefill", True)
        self.logprobs = traits.pop("logprobs", True)
        self.labels_exact = traits.pop("labels_exact", False)
        self.window = traits.pop("window", 8)
        self.parameters = {"engine": "fake 1"} | traits.pop("parameters", {})
        self.__dict__ |= traits
        self.batches: list[list[Request]] = []
        self.closed = False

    @property
    def asked(self) -> list[Request]:
        return [request for batch in self.batches for request in batch]

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        self.batches.append(list(requests))
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        self.closed = True


def user_text(request: Request) -> str:
    """What the judge was shown."""
    return plain(request.chat[-1].segments)


def shown(request: Request) -> list[str]:
    """The candidates' texts under the letters, in their order."""
    return re.findall(r"^[A-Z]\. (.*)$", user_text(request), re.MULTILINE)


def distribution(weights: Sequence[float], mass: float = 0.9) -> Reply:
    """A reply with these probabilities, up to a factor."""
    total = math.fsum(weights)
    logprobs = tuple(round(math.log(weight / total), 6) for weight in weights)
    return Reply(logprobs=logprobs, mass=mass, prompt_tokens=10)


def text(written: str, **fields: Any) -> Reply:
    """A reply with text."""
    return Reply(text=written, prompt_tokens=10, completion_tokens=3, **fields)


def pick(request: Request, letter: str) -> Reply:
    """A reply, of either kind, for a letter."""
    if request.labels:
        return distribution([8.0 if one.strip() == letter else 1.0 for one in request.labels])
    return text(f"Best answer: {letter}")


def always_a(request: Request) -> Reply:
    """A judge that does not read."""
    return pick(request, "A")


def by_length(request: Request) -> Reply:
    """A judge that likes the longest candidate, the more the longer."""
    lengths = [len(one) for one in shown(request)]
    if request.labels:
        return distribution([float(length) for length in lengths])
    return pick(request, "ABCD"[lengths.index(max(lengths))])


def broken(request: Request) -> Reply:
    """A judge that cannot be asked."""
    return Reply(status=Status.TRUNCATED, error="too long")


def make_judge(engine: Fake, kind: str = "judge", **options: Any) -> Judge:
    """A judge over a fake engine, settled as `habitus.scorers.judge.build` does."""
    given = ScorerOptions(**options)
    mode, criteria = check(given)
    prompts = load_judge_prompts(given, mode, criteria)
    settings = resolve_settings(given, mode, criteria, engine, prompts)
    translated = given.instructions == "item"
    return Judge(engine, settings, prompts, kind=kind, item_language=translated)
