"""Grades of single answers, by a prompt's key; judges that grade are in `pick`."""

from __future__ import annotations

from habitus.downstream.matching import match
from habitus.downstream.model import (
    Answer,
    ChoiceKey,
    Generation,
    GenerationStatus,
    ShortKey,
    TaskPrompt,
)
from habitus.verdicts import parse_letter, split_thinking


def answer_of(prompt: TaskPrompt, generation: Generation) -> Answer:
    """Return a generation as an answer, with its grade where the key gives one.

    What is no candidate has no grade. A cut or empty text is graded like any other: no reward
    model is spared from picking it. An answer that names no letter, or several, grades 0.
    """
    text = (split_thinking(generation.text).answer or "").strip()
    status = generation.status
    if status is GenerationStatus.OK and not text:
        status = GenerationStatus.EMPTY
    fields = {
        "prompt": prompt.id,
        "country": prompt.country,
        "index": generation.index,
        "status": status,
        "text": text,
        "model": generation.model,
    }
    if not status.candidate:
        return Answer(**fields, reason=generation.error)
    key = prompt.key
    if isinstance(key, ShortKey):
        found = match(text, key)
        return Answer(**fields, grade=found.grade, votes=found.votes, matched=found.wording)
    if isinstance(key, ChoiceKey):
        verdict = parse_letter(text, key.letters)
        if verdict.value is None:
            return Answer(**fields, grade=0.0, reason=verdict.reason)
        return Answer(**fields, grade=float(verdict.value in key.right), matched=verdict.value)
    return Answer(**fields)
