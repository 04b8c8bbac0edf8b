"""The sample of items as the page shows it: bounded texts, outcomes, and what is folded away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from habitus.report.text import Budget, Clip, one_line
from habitus.types import Candidate, Item, Judgement, Reference

ITEMS_BYTES = 9_000_000
"""Bytes of HTML that all items of a page may take for their texts."""

MAX_ITEMS, MAX_MESSAGES, MAX_CANDIDATES, MAX_REFERENCES = 500, 12, 16, 8
"""How many of each a page shows; what is left out is said."""

_HARMFUL = ("safety", "harm", "toxic", "hate", "jail", "offens", "kosbi", "square")


@dataclass(frozen=True)
class CandidateView:
    """One candidate on the page."""

    id: str
    """Its id."""
    letter: str
    """Its position when first shown, as a letter or number; empty when it was not shown."""
    text: Clip
    """The response."""
    score: str
    """Its score, or "–"."""
    best: bool
    """True for a right response."""
    picked: bool
    """True when the scorer picked it."""
    about: tuple[str, ...]
    """Where it comes from: culture, source model."""
    note: Clip | None
    """Why it is right or wrong."""
    gloss: Clip | None
    """The response in English."""


@dataclass(frozen=True)
class ItemView:
    """One item on the page."""

    id: str
    """Its id, cut."""
    culture: str
    """Its culture or ""."""
    domain: str
    """Its domain or ""."""
    language: str
    """Its BCP 47 tag or ""."""
    tags: tuple[str, ...]
    """Culture, country, domain, source: what stands in its first line."""
    outcome: str
    """right, partly, wrong, failed, or unjudged."""
    status: str
    """The judgement's status, or "not judged"."""
    sensitive: bool
    """True when the texts are folded away once more."""
    excerpt: str
    """Start of the prompt; empty for sensitive items."""
    messages: tuple[tuple[str, Clip], ...]
    """Role and text of each turn."""
    candidates: tuple[CandidateView, ...]
    """The responses in the order first shown."""
    references: tuple[tuple[Clip, str], ...]
    """Fact, and where it is documented."""
    reason: Clip | None
    """Why the best response is best."""
    gloss: Clip | None
    """The prompt in English."""
    error: Clip | None
    """Why the judgement failed."""
    raw: Clip | None
    """What the judge wrote."""
    left_out: tuple[str, ...]
    """What is not shown, in words."""
    provenance: tuple[str, ...]
    """Author, validation, licence, parent, seed."""


def item_views(
    examples: Sequence[tuple[Item, Judgement | None]], size: int = ITEMS_BYTES
) -> tuple[ItemView, ...]:
    """Return the items for the page, each with an equal part of `size` bytes for its texts."""
    shown = examples[:MAX_ITEMS]
    each = size // max(1, len(shown))
    return tuple(_view(item, judgement, Budget(each)) for item, judgement in shown)


def is_sensitive(item: Item) -> bool:
    """True when an item's domain or source says that its text may offend or do harm."""
    return names_harm(item.domain, item.source)


def names_harm(*names: str | None) -> bool:
    """True when a domain or source says that a text may offend or do harm."""
    joined = " ".join(name or "" for name in names).casefold()
    return any(word in joined for word in _HARMFUL)


def outcome(item: Item, judgement: Judgement | None) -> str:
    """Return right, partly (a tie that holds a wrong pick too), wrong, failed, or unjudged."""
    if judgement is None:
        return "unjudged"
    if not judgement.status.judged:
        return "failed"
    picked, best = set(judgement.winner_ids), set(item.best_ids)
    if picked <= best:
        return "right"
    return "partly" if picked & best else "wrong"


def _view(item: Item, judgement: Judgement | None, budget: Budget) -> ItemView:
    def clip(text: str | None, each: int | None = None) -> Clip | None:
        return None if text is None else budget.clip(text, each)

    sensitive = is_sensitive(item)
    messages = tuple((m.role, budget.clip(m.content)) for m in item.prompt[-MAX_MESSAGES:])
    candidates = _candidates(item, judgement, budget)
    left_out = []
    for what, total, limit in (
        ("messages", len(item.prompt), MAX_MESSAGES),
        ("responses", len(item.candidates), MAX_CANDIDATES),
        ("references", len(item.references), MAX_REFERENCES),
    ):
        if total > limit:
            left_out.append(f"{total - limit:,} more {what}")
    return ItemView(
        id=one_line(item.id, 120),
        culture=one_line(item.culture or "", 60),
        domain=one_line(item.domain or "", 60),
        language=one_line(item.language or "", 35),
        tags=tuple(
            one_line(tag, 60)
            for tag in dict.fromkeys((item.culture, item.country, item.domain, item.source))
            if tag
        ),
        outcome=outcome(item, judgement),
        status=judgement.status.value if judgement else "not judged",
        sensitive=sensitive,
        excerpt="" if sensitive else one_line(item.prompt[-1].content, 110),
        messages=messages,
        candidates=candidates,
        references=tuple(_reference(r, budget) for r in item.references[:MAX_REFERENCES]),
        reason=clip(item.reason),
        gloss=clip(item.gloss.prompt if item.gloss else None),
        error=clip(judgement.error if judgement else None, 1000),
        raw=clip(judgement.raw if judgement else None),
        left_out=tuple(left_out),
        provenance=_provenance(item, judgement),
    )


def _candidates(
    item: Item, judgement: Judgement | None, budget: Budget
) -> tuple[CandidateView, ...]:
    order = list(judgement.order) if judgement else []
    place = {candidate_id: index for index, candidate_id in enumerate(order)}
    picked = set(judgement.winner_ids) if judgement else set()
    best = set(item.best_ids)
    ordered = sorted(item.candidates, key=lambda c: place.get(c.id, math.inf))
    if len(ordered) > MAX_CANDIDATES:
        # What matters for the verdict is kept, the others fill the rest in order.
        first = sorted(ordered, key=lambda c: c.id not in picked and c.id not in best)
        kept = {candidate.id for candidate in first[:MAX_CANDIDATES]}
        ordered = [candidate for candidate in ordered if candidate.id in kept]
    scores = judgement.scores if judgement else {}
    views = []
    for candidate in ordered:
        gloss = item.gloss.candidates.get(candidate.id) if item.gloss else None
        views.append(
            CandidateView(
                id=one_line(candidate.id, 60),
                letter=_letter(place.get(candidate.id)),
                text=budget.clip(candidate.text),
                score=f"{scores[candidate.id]:.4g}" if candidate.id in scores else "–",
                best=candidate.id in best,
                picked=candidate.id in picked,
                about=_about(candidate),
                note=None if candidate.note is None else budget.clip(candidate.note, 1000),
                gloss=None if gloss is None else budget.clip(gloss, 2000),
            )
        )
    return tuple(views)


def _letter(place: int | None) -> str:
    if place is None:
        return ""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def _about(candidate: Candidate) -> tuple[str, ...]:
    parts = []
    if candidate.culture:
        parts.append(f"fits {one_line(candidate.culture, 60)}")
    if candidate.source_model:
        parts.append(f"written by {one_line(candidate.source_model, 60)}")
    return tuple(parts)


def _reference(reference: Reference, budget: Budget) -> tuple[Clip, str]:
    share = "" if reference.share is None else f" ({100 * reference.share:.0f}\u00a0% of people)"
    work = f"{one_line(reference.title, 200)}, {one_line(reference.publisher, 120)}"
    return budget.clip(reference.fact, 1000), work + share


def _provenance(item: Item, judgement: Judgement | None) -> tuple[str, ...]:
    parts = [
        "checked by people of the culture"
        if item.human_validated
        else "not checked by people of the culture"
    ]
    if item.author:
        parts.insert(0, f"author: {one_line(item.author, 60)}")
    if item.licence:
        parts.append(f"licence: {one_line(item.licence, 60)}")
    if item.parent_id:
        parts.append(f"made from: {one_line(item.parent_id, 120)}")
    if item.cue:
        parts.append(f"edit: {one_line(item.cue, 20)}")
    if judgement is not None:
        parts.append(f"seed: {judgement.seed}")
        if len(judgement.passes) > 1:
            parts.append(f"looks: {len(judgement.passes)}")
        if judgement.seconds is not None:
            parts.append(f"{judgement.seconds:.2f} s")
    return tuple(parts)
