"""Shared helpers of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from habitus.scorers import ScorerOptions, resolve
from habitus.types import Item, Scorer


def make_item(number: int = 1, **fields: Any) -> Item:
    """An item with four candidates "a" to "d", of which "a" is best."""
    texts = ("Soba noodles, for a long life.", "A goose.", "Twelve grapes at midnight.", "Borscht.")
    values = {
        "id": f"item-{number}",
        "prompt": [{"role": "user", "content": f"{number}: what is eaten on New Year's Eve?"}],
        "candidates": [
            {"id": name, "text": text} for name, text in zip("abcd", texts, strict=True)
        ],
        "best_ids": ["a"],
        "culture": "Japanese",
        "country": "Japan",
        "language": "en",
        "domain": "commonsense",
        "source": "test",
    }
    return Item.model_validate(values | fields)


@pytest.fixture
def write_items(tmp_path: Path) -> Callable[[Sequence[Item]], Path]:
    """Write items to a JSONL file and return its path."""

    def write(items: Sequence[Item]) -> Path:
        path = tmp_path / "bench.jsonl"
        lines = [item.model_dump_json(exclude_none=True) for item in items]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def embedded() -> Iterator[Scorer]:
    """The default embedded judge, loaded once."""
    judge = resolve("embedded", ScorerOptions(threads=2))
    yield judge
    judge.close()


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
