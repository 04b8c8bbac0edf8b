"""What a judge asks of an engine, and what it gets back: one shape for every engine.

A judge hands over many requests at once; the engine orders, batches and parallelises them as it
likes and returns one reply for each, in order. A reply depends on its request's group alone, never
on other groups, so a resumed run has the results of an unbroken one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from habitus.errors import HabitusError
from habitus.prompts import Segment
from habitus.types import Parameter, Status

_OPEN_THINKING = re.compile(r"<think>\s*\Z")


def opens_thinking(rendered: str) -> bool:
    """Whether a rendered chat lets the model think before it answers."""
    return _OPEN_THINKING.search(rendered) is not None


def with_answer(rendered: str, answer: str) -> str:
    """Return a rendered chat with the beginning of the assistant's answer.

    What begins an answer is no thought, so a thought that the template opens is closed before it.
    """
    if answer:
        rendered = _OPEN_THINKING.sub("<think>\n\n</think>\n\n", rendered)
    return rendered + answer


@dataclass(frozen=True)
class Turn:
    """One turn of a chat before the model's template is applied."""

    role: str
    """"system", "user" or "assistant"."""
    segments: tuple[Segment, ...]
    """What is said; untrusted segments must reach the model as plain text."""


@dataclass(frozen=True)
class Request:
    """One thing to ask of a model: the distribution over labels, or text."""

    group: str
    """Requests of one item share a group, and so a prefix worth reusing."""
    chat: tuple[Turn, ...]
    """The conversation up to the assistant's turn."""
    answer: str = ""
    """How the assistant's turn begins; only for engines with `prefill`."""
    labels: tuple[str, ...] = ()
    """What may come next, such as " A" and " B": ask for their log-probabilities."""
    max_tokens: int = 0
    """Ask for text of at most so many tokens; 0 with `labels`."""
    temperature: float = 0.0
    """Sampling temperature of text; 0 is greedy."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that have this probability together (nucleus sampling,
    Holtzman et al. 2020); 1 draws among all."""
    seed: int = 0
    """Seed of sampled text."""
    grammar: str | None = None
    """llama.cpp's GBNF grammar of the text; engines without grammars ignore it."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request, or why there is none."""

    logprobs: tuple[float, ...] | None = None
    """Log-probability of each label among the labels; they sum to one as probabilities."""
    mass: float | None = None
    """Probability of any of the labels in the full distribution."""
    text: str | None = None
    """What the model wrote after `answer`."""
    finished: bool = True
    """False when the token budget ended the text."""
    prompt_tokens: int = 0
    """Tokens read."""
    completion_tokens: int = 0
    """Tokens written."""
    status: Status | None = None
    """A failure: `truncated`, `refused`, `unparsed` (no label among the likely tokens) or `error`;
    None when the request was answered."""
    error: str | None = None
    """Why it failed, for people."""


class Engine(Protocol):
    """A model that judges can ask."""

    model: str
    """The model's name, as it goes into the scorer's spec."""
    revision: str | None
    """Digest or revision of the weights."""
    parameters: Mapping[str, Parameter]
    """Everything of the engine that can change a result, its version among them."""
    prefill: bool
    """Whether the assistant's turn can be begun for the model."""
    logprobs: bool
    """Whether requests with `labels` are answered."""
    labels_exact: bool
    """Whether labels that begin with one token are known to be refused, not mixed up; only then is
    a scale past 9 read from log-probabilities."""
    window: int
    """How many items a judge should have in flight at once."""

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests, in their order.

        A request that cannot be answered gets a reply with a status.

        Raises:
            HabitusError: When the engine as a whole cannot go on.
        """
        ...

    def close(self) -> None:
        """Release the model."""
        ...


def describe(engine: Engine) -> dict[str, object]:
    """Return all of a model that can change what it writes."""
    return {
        "model": engine.model,
        "revision": engine.revision,
        "parameters": dict(engine.parameters),
    }


def answers(engine: Engine, requests: Sequence[Request]) -> list[Reply]:
    """Have requests answered; an engine that fails on them fails these requests only.

    Raises:
        HabitusError: When the engine as a whole cannot go on.
    """
    try:
        replies = engine.execute(requests)
        if len(replies) == len(requests):
            return replies
        message = f"the engine gave {len(replies)} replies to {len(requests)} requests"
    except HabitusError:
        raise
    except Exception as error:  # noqa: BLE001 - these requests fail; others may go well
        message = f"{type(error).__name__}: {error}"[:500]
    return [Reply(status=Status.ERROR, error=message) for _ in requests]
