"""What can score a response by itself: classifiers, implicit rewards, baselines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from habitus.errors import InputError
from habitus.scorers.batching import ConversationScorer, Scored
from habitus.types import Message, Scorer, canonical_json


class Responses(Protocol):
    """Scores single responses."""

    def score(self, conversations: Sequence[Sequence[Message]]) -> list[Scored]:
        """Score conversations, in their order; the last message of each is the response."""
        ...


def _random(conversation: Sequence[Message]) -> float:
    turns = [[message.role, message.content] for message in conversation]
    key = canonical_json(["baseline", turns]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:6]) / 2**48


def _longest(conversation: Sequence[Message]) -> float:
    return float(len(conversation[-1].content))


def _shortest(conversation: Sequence[Message]) -> float:
    return -float(len(conversation[-1].content))


_BASELINES = {"random": _random, "longest": _longest, "shortest": _shortest}


class BaselineResponses:
    """A baseline for single responses.

    "random" is drawn from the conversation itself, so it is the same wherever the row stands.
    """

    def __init__(self, rule: str) -> None:
        """Make the baseline that `rule` names."""
        self._rule = _BASELINES[rule]

    def score(self, conversations: Sequence[Sequence[Message]]) -> list[Scored]:
        """Score each conversation's last turn by the rule."""
        return [Scored(self._rule(each)) for each in conversations]


def response_scorer(scorer: Scorer) -> Responses:
    """Return what scores single responses with this reward model.

    Args:
        scorer: A classifier, an implicit reward, a baseline, or any scorer with a method
            `responses()` that returns such an object.

    Raises:
        InputError: When the model can only compare responses.
    """
    responses = getattr(scorer, "responses", None)
    if responses is not None:
        found: Responses = responses()
        return found
    if isinstance(scorer, ConversationScorer):
        return scorer
    if scorer.spec.kind == "baseline" and scorer.spec.model in _BASELINES:
        return BaselineResponses(scorer.spec.model)
    raise InputError(
        f"{scorer.spec.name} compares the responses to one prompt and cannot score a single one; "
        "score takes classifier, dpo and baseline models"
    )
