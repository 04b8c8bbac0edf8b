"""From four accepted answers to an item in native format, with where everything comes from."""

from __future__ import annotations

import hashlib

from habitus.build.flights import CHOSEN, Flight
from habitus.types import Candidate, Item, Message, Reference, canonical_json

SOURCE = "habitus build"
"""The `source` of the items."""
IDS = "abcd"
"""Ids of the candidates, in the order that the seed gives."""


def order_of(key: str, seed: int) -> list[int]:
    """Return the numbers of an item's answers in the order drawn from hash(seed, item id)."""

    def rank(number: int) -> bytes:
        return hashlib.sha256(canonical_json([seed, key, number]).encode()).digest()

    return sorted(range(len(IDS)), key=rank)


def make_item(flight: Flight, seed: int) -> Item:
    """Return the item of a flight that has a question and four answers.

    Args:
        flight: The flight.
        seed: Seed of the candidates' order.
    """
    own = flight.target.reference
    order = order_of(flight.key, seed)
    licences = sorted({one.licence for one in flight.sources()})
    return Item(
        id=flight.key,
        prompt=(Message(role="user", content=flight.question),),
        candidates=tuple(
            _candidate(flight, number, name) for name, number in zip(IDS, order, strict=True)
        ),
        best_ids=(IDS[order.index(CHOSEN)],),
        culture=own.culture,
        country=own.country,
        language=own.language,
        domain=own.domain,
        source=SOURCE,
        licence=" AND ".join(licences),
        references=(
            Reference(
                fact=own.text,
                title=own.source.title,
                publisher=own.source.publisher,
                share=own.share,
            ),
        ),
        parent_id=own.id,
        reason=f"What {own.source.title} ({own.source.publisher}) documents.",
        author="language-model",
        human_validated=False,
    )


def _candidate(flight: Flight, number: int, name: str) -> Candidate:
    answer, source = flight.answers[number], flight.sources()[number]
    right = "Right" if number == CHOSEN else "Wrong here"
    note = f"{right}: written from {source.id} ({source.culture}; {source.source.title})."
    if answer.rewritten_by:
        note += f" Rewritten to length by {answer.rewritten_by}."
    return Candidate(
        id=name, text=answer.text, source_model=answer.model, culture=source.culture, note=note
    )
