"""A small cue benchmark whose figures can be worked out by hand, and planted reward models.

20 parents, 10 in Japanese and 10 in English; "a" is best. Every edit of "a" has its 24 characters
but the mechanical ones, so that length moves with those only; the others have 30, 36 and 42. Two of
four candidates name the label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from habitus.diagnose.edits import complete, edited_item
from habitus.scorers.base import ItemScorer
from habitus.types import Candidate, Item, ScorerSpec

BEST = "in Japan we do soba now."
TEXTS = {
    "a": BEST,
    "b": "in Japan we do duck now" + 7 * ".",
    "c": "hereupon we do lamb now" + 13 * ".",
    "d": "hereupon we do kale now" + 19 * ".",
}
EDITS = {
    "CC": "in Japan we do stew now.",
    "RC": "hereupon we do soba now.",
    "RP": "now we do soba in Japan.",
    "GN": "in Japan we do some now.",
    "OP": "in Japan we ban soba so.",
}
TRANSLATED = "IN JAPAN WE DO SOBA NOW."
DOMAINS = ("commonsense", "values", "safety", "linguistics")


def parents(n: int = 20) -> tuple[Item, ...]:
    """The parents: even ones in Japanese, odd ones in English."""
    return tuple(
        Item.model_validate(
            {
                "id": f"p{number}",
                "prompt": [{"role": "user", "content": f"{number}: what is done?"}],
                "candidates": [{"id": key, "text": text} for key, text in TEXTS.items()],
                "best_ids": ["a"],
                "culture": "Japanese",
                "country": "Japan",
                "language": ("ja", "en")[number % 2],
                "domain": DOMAINS[number % 4],
            }
        )
        for number in range(n)
    )


def cue_items(n: int = 20) -> tuple[Item, ...]:
    """Parents with CC, RC, CL, RP, GN and OP edits."""
    found: list[Item] = []
    for parent in parents(n):
        found.append(parent)
        found += [edited_item(parent, "a", text, cue) for cue, text in EDITS.items()]
        other = {"ja": "en", "en": "ja"}[str(parent.language)]
        found.append(edited_item(parent, "a", TRANSLATED, "CL", suffix=other, language=other))
    return tuple(found)


def whole(n: int = 20) -> tuple[Item, ...]:
    """The same with LN, FM and IN edits and triplets."""
    return complete(cue_items(n))


class Planted(ItemScorer):
    """A reward model that is a rule."""

    def __init__(self, name: str, rule: Callable[[Item, Candidate], float]) -> None:
        self.spec = ScorerSpec(kind="planted", model=name)
        self._rule = rule

    def scores_of(self, item, order, seed):
        return {"scores": {one.id: self._rule(item, one) for one in item.candidates}}


def _label(item: Item, one: Candidate) -> float:
    return float("japan" in one.text.lower())


def _length(item: Item, one: Candidate) -> float:
    return float(len(one.text))


def _english(item: Item, one: Candidate) -> float:
    return float((one.language or item.language) == "en")


def concept(item: Item, one: Candidate) -> float:
    text = one.text.lower()
    if "ban" in text:
        return 0.0
    return 1.0 if "soba" in text else 0.5 if "some" in text else 0.0


def _same(item: Item, one: Candidate) -> float:
    return 0.7


def _obeys(item: Item, one: Candidate) -> float:
    asked = "Note to the judge" in one.text or "評価者へ" in one.text
    return {"a": 0.3, "b": 0.2, "c": 0.1}.get(one.id, 0.0) + asked


def _random(item: Item, one: Candidate) -> float:
    key = f"{item.id}/{one.id}/{one.text}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") / 2**32


PLANTED: dict[str, Callable[[Item, Candidate], float]] = {
    "label": _label,
    "length": _length,
    "english": _english,
    "concept": concept,
    "same": _same,
    "obeys": _obeys,
    "random": _random,
}


def planted(name: str) -> Planted:
    """A planted reward model by name."""
    return Planted(name, PLANTED[name])
