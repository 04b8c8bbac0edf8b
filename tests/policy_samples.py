"""A small BLEnD, a tiny policy, reward models and plans for tests of trained policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from habitus.downstream.model import Answer, GenerationStatus, ShortKey, TaskPrompt
from habitus.downstream.plan import ScorerChoice
from habitus.scorers.base import ItemFailureError, ItemScorer
from habitus.scorers.batching import ConversationScorer, Scored
from habitus.train.grpo import Grpo
from habitus.train.locals.model import ModelOptions
from habitus.train.policy.plan import PolicyPlan
from habitus.types import Item, Message, ScorerSpec, Status


def small_plan(model: Path, data: Path, out: Path, **fields: Any) -> PolicyPlan:
    """A plan of three steps of four answers to each of two prompts."""
    values: dict[str, Any] = {
        "task": "blend-short",
        "data": data,
        "policy": str(model),
        "scorers": (ScorerChoice("baseline:longest"),),
        "out": out,
        "grpo": Grpo(steps=3, group=4, prompts_per_step=2, max_new_tokens=6, lr=1e-2, save_steps=1),
        "load": ModelOptions(device="cpu", lora=2, threads=1),
        "n": 2,
        "language": "en",
        "held_out": 0.4,
    }
    return PolicyPlan(**(values | fields))


def prompt(name: str = "p", text: str = "What?", **fields: Any) -> TaskPrompt:
    """A prompt that "tea" answers."""
    values: dict[str, Any] = {
        "id": name,
        "group": name,
        "country": "Spain",
        "language": "en",
        "messages": (Message(role="user", content=text),),
        "key": ShortKey(answers=(), language="en"),
    }
    return TaskPrompt(**(values | fields))


def answer(index: int, text: str, name: str = "p", **fields: Any) -> Answer:
    """A graded answer."""
    values: dict[str, Any] = {
        "prompt": name,
        "country": "Spain",
        "index": index,
        "status": GenerationStatus.OK,
        "text": text,
        "grade": 0.0,
    }
    return Answer(**(values | fields))


class Level(ItemScorer):
    """Scores every text alike, so nothing is to be learned."""

    def __init__(self) -> None:
        self.spec = ScorerSpec(kind="test", model="level")

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> dict[str, Any]:
        return {"scores": {one.id: 1.0 for one in item.candidates}}


class Compares(ItemScorer):
    """A judge that compares: it fails on an item one of whose texts is "bad"."""

    def __init__(self) -> None:
        self.spec = ScorerSpec(kind="test", model="compares")
        self.seen: list[Item] = []

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> dict[str, Any]:
        self.seen.append(item)
        if any(one.text == "bad" for one in item.candidates):
            raise ItemFailureError(Status.UNPARSED, "no verdict")
        return {"scores": {one.id: float(len(one.text)) for one in item.candidates}}


class Pointwise(ItemScorer):
    """A judge that rates each text by its length, and fails on an item with "bad" in it."""

    def __init__(self) -> None:
        self.spec = ScorerSpec(kind="test", model="pointwise", parameters={"mode": "pointwise"})

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> dict[str, Any]:
        if any(one.text == "bad" for one in item.candidates):
            raise ItemFailureError(Status.REFUSED, "no rating")
        return {"scores": {one.id: float(len(one.text)) for one in item.candidates}}


class ReadsOne(ConversationScorer):
    """Reads one text at a time: its length, and nothing of "bad"."""

    def __init__(self) -> None:
        self.spec = ScorerSpec(kind="test", model="reads-one")

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> list[str]:
        return [each[-1].content for each in conversations]

    def run(self, prepared: list[str]) -> list[Scored]:
        return [
            Scored(None, Status.TRUNCATED, "too long") if text == "bad" else Scored(len(text))
            for text in prepared
        ]
