"""What writers are asked, filled from the builder's prompt files; references and answers are data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from habitus import taxonomy
from habitus.build.references import CulturalReference
from habitus.clients.engine import Turn
from habitus.prompts import Prompt, Segment, fill


def _chat(prompt: Prompt, values: Mapping[str, str | Sequence[Segment]]) -> tuple[Turn, ...]:
    roles = [role for role in ("system", "user") if role in prompt.sections]
    return tuple(Turn(role, fill(prompt.sections[role], values)) for role in roles)


def language_name(tag: str) -> str:
    """Return a language's English name, with the tag where it says more: "Spanish (es-MX)"."""
    known = taxonomy.lookup(tag)
    if known is None:
        return f"the language with the BCP 47 tag {tag}"
    return known.name if known.tag.lower() == tag.lower() else f"{known.name} ({tag})"


def place_of(reference: CulturalReference) -> str:
    """Return whom a fact is about: "Egypt (Arabic culture)"."""
    culture = f"{reference.culture} culture"
    return f"{reference.country} ({culture})" if reference.country else culture


def translate(prompts: Mapping[str, Prompt], fact: str, language: str) -> tuple[Turn, ...]:
    """Ask for a fact in another language."""
    return _chat(prompts["fact"], {"fact": fact, "language": language_name(language)})


def ask_question(prompts: Mapping[str, Prompt], reference: CulturalReference) -> tuple[Turn, ...]:
    """Ask for a question that a reference decides."""
    values = {
        "fact": reference.text,
        "place": place_of(reference),
        "topic": reference.topic,
        "language": language_name(reference.language),
    }
    return _chat(prompts["question"], values)


def answer_from(
    prompts: Mapping[str, Prompt], fact: str, question: str, language: str
) -> tuple[Turn, ...]:
    """Ask for an answer from a reference, matching or mismatched alike."""
    values = {"fact": fact, "question": question, "language": language_name(language)}
    return _chat(prompts["answer"], values)


def rewrite(
    prompts: Mapping[str, Prompt], text: str, target: int, language: str
) -> tuple[Turn, ...]:
    """Ask for an answer in another length, in characters."""
    values: dict[str, str | Sequence[Segment]] = {
        "text": text,
        "target": (Segment(str(target), True),),
        "length": (Segment(str(len(text)), True),),
        "language": language_name(language),
    }
    return _chat(prompts["length"], values)
