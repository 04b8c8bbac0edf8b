"""A small BLEnD, a policy in memory and a reward model, for tests of best-of-n."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from habitus.clients.engine import Reply, Request
from habitus.scorers.base import ItemScorer
from habitus.types import Item, ScorerSpec
from tests.judge_fakes import Fake, text, user_text

ANSWERS = ("tea", "Green tea!", "coffee", "a very long answer about water")
"""What the policy says, by its seed."""


def votes(count: int, own: Sequence[str], english: Sequence[str]) -> dict[str, Any]:
    return {"answers": list(own), "en_answers": list(english), "count": count}


def question(number: int, place: str, *annotations: dict[str, Any], **idks: int) -> dict[str, Any]:
    return {
        "question": f"¿{number}? ({place})",
        "en_question": f"What do people drink in {place}, question {number}?",
        "annotations": list(annotations),
        "idks": {"idk": 0, "no-answer": 0, "not-applicable": 0} | idks,
    }


def write_blend(folder: Path, questions: int = 3) -> Path:
    """Write annotations of two regions, of which tea is right in one and coffee in the other."""
    right = {"China": votes(4, ["茶"], ["tea"]), "Spain": votes(2, ["café"], ["coffee"])}
    place = folder / "annotations"
    place.mkdir(parents=True, exist_ok=True)
    for region, answer in right.items():
        found = {f"Q-{n}": question(n, region, answer) for n in range(questions)}
        text = json.dumps(found, ensure_ascii=False)
        (place / f"{region}_data.json").write_text(text, encoding="utf-8")
    return folder


def answer(request: Request) -> Reply:
    """Say one of `ANSWERS`, drawn by the request's seed."""
    return text(ANSWERS[request.seed % len(ANSWERS)])


class Policy(Fake):
    """A policy that ends like a kill at a given request."""

    def __init__(self, reply: Any = answer, *, stop_at: int | None = None, **traits: Any) -> None:
        super().__init__(reply, **({"window": 1} | traits))
        self.stop_at = stop_at

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        if self.stop_at is not None and len(self.asked) + len(requests) > self.stop_at:
            raise KeyboardInterrupt
        return super().execute(requests)


class LikesTea(ItemScorer):
    """Scores a text 1 when it has tea in it; fails on items with a word in the prompt."""

    def __init__(self, model: str = "likes-tea", fails_on: str = "", **fields: Any) -> None:
        self.spec = ScorerSpec(kind="test", model=model, **fields)
        self.fails_on = fails_on
        self.seen: list[Item] = []

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> dict[str, Any]:
        self.seen.append(item)
        if self.fails_on and self.fails_on in item.prompt[-1].content:
            raise ValueError("it will not")
        scores = {one.id: float("tea" in one.text.lower()) for one in item.candidates}
        return {"scores": scores, "prompt_tokens": 5}


def places(folder: Path) -> Iterator[Path]:
    """All files of a folder but locks."""
    return (
        path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name
    )


__all__ = ["ANSWERS", "LikesTea", "Policy", "answer", "places", "user_text", "write_blend"]
