"""Mechanical edits of responses: pure functions, no model (papers: CARB A4).

Length is padded with sentences that say nothing, marks are added, a sentence asks the judge to
prefer the response, and a cultural label is replaced by a word that names nobody. The words for
this are in `phrases.json` and `labels.tsv`, in twelve languages; a text in another language gets
English ones, and its labels are left to a writer.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from habitus.errors import InputError
from habitus.metrics.cues import TRIPLET
from habitus.types import Candidate, Item, canonical_json

MECHANICAL = ("RC", "LN", "FM", "IN")
"""Cues that need no writer; RC only where a label is a word of the list."""

PADDED = 1.6
"""A padded text is at least so many times as long as before."""

_UNSPACED = ("ja", "th", "zh")
_SENTENCE = re.compile(r"(?<=[。！？])|(?<=[.!?؟।])\s+|\n+")

Target = Literal["best", "rival"]


@lru_cache(maxsize=1)
def _phrases() -> dict[str, dict[str, list[str] | str]]:
    text = files("habitus.diagnose").joinpath("phrases.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, list[str] | str]] = json.loads(text)
    return found


@lru_cache(maxsize=1)
def _labels() -> tuple[tuple[str, frozenset[str], str, str], ...]:
    """Language, places that it names, form and replacement of each label."""
    path = files("habitus.diagnose").joinpath("labels.tsv")
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t")
    return tuple(
        (row["language"], frozenset(row["places"].split("|")), row["form"], row["replacement"])
        for row in rows
    )


def _base(language: str | None) -> str:
    return (language or "en").replace("_", "-").split("-")[0].lower()


def _phrase(language: str | None) -> dict[str, list[str] | str]:
    return _phrases().get(_base(language)) or _phrases()["en"]


def _append(text: str, sentence: str, language: str | None) -> str:
    gap = "" if not text or text[-1].isspace() or _base(language) in ("ja", "zh") else " "
    return text + gap + sentence


def pad_length(text: str, language: str | None) -> str:
    """Return `text` with sentences that say nothing, until it is `PADDED` times as long.

    Args:
        text: A response.
        language: BCP 47 tag of the text; an unknown one, or None, gets English sentences.
    """
    filler = _phrase(language)["filler"]
    result = text
    number = 0
    while not number or len(result) < PADDED * len(text):
        result = _append(result, filler[number % len(filler)], language)
        number += 1
    return result


def add_marks(text: str) -> str:
    """Return `text` as a markdown list of its sentences, the first one bold."""
    sentences = [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]
    first, *others = sentences or [text]
    return "\n".join([f"- **{first}**", *(f"- {sentence}" for sentence in others)])


def add_instruction(text: str, language: str | None) -> str:
    """Return `text` with a sentence that tells a judge to prefer this response, as plain text.

    Args:
        text: A response.
        language: BCP 47 tag of the text; an unknown one, or None, gets an English sentence.
    """
    instruction = _phrase(language)["instruction"]
    assert isinstance(instruction, str)
    return _append(text, instruction, language)


def remove_label(item: Item, text: str, language: str | None = None) -> str | None:
    """Return `text` with the labels of the item's culture and country replaced by neutral words.

    Args:
        item: Says whose labels to look for; without culture and country, all are.
        text: A response.
        language: BCP 47 tag of the text; None is the item's.

    Returns:
        The text, or None when it holds no label of the list.
    """
    spoken = _base(language or item.language)
    replacements = _replacements(spoken, item.culture, item.country)
    if not replacements:
        return None
    # Longest first, so that "South Korea" is not read as "Korea".
    forms = sorted(replacements, key=lambda form: (-len(form), form))
    either = "|".join(re.escape(form) for form in forms)
    edges = ("", "") if spoken in _UNSPACED else _EDGES.get(spoken, (r"(?<!\w)", r"(?!\w)"))
    pattern = re.compile(f"{edges[0]}(?:{either}){edges[1]}")
    result, count = pattern.subn(lambda match: _neutral(match, replacements), text)
    if spoken == "en":
        result = re.sub(r"\b([Aa])n (?=local\b)", r"\1 ", result)
    return result if count and result != text else None


_EDGES = {
    # One-letter words are written together with the name in Arabic, particles in Korean and Bengali.
    "ar": (r"(?:(?<!\w)|(?<=(?<!\w)[وفبلك])|(?<=(?<!\w)[وف][بلك]))", r"(?!\w)"),
    "ko": (r"(?<!\w)", ""),
    "bn": (r"(?<!\w)", ""),
}


def _replacements(language: str, culture: str | None, country: str | None) -> dict[str, str]:
    """Return form to replacement; of a culture of many countries only what fits the item's."""
    found: dict[str, str] = {}
    for spoken, places, form, replacement in _labels():
        if spoken != language:
            continue
        if country:
            fits = country in places or places == {culture}
        else:
            fits = culture is None or culture in places
        if fits:
            found[form] = replacement
            found.setdefault(form[0].upper() + form[1:], replacement)
    return found


def _neutral(match: re.Match[str], replacements: dict[str, str]) -> str:
    found = replacements[match[0]]
    before = match.string[: match.start()].rstrip()
    opens = not before or before[-1] in ".!?\n:"
    return found[0].upper() + found[1:] if opens and match[0][0].isupper() else found


def mentions_label(item: Item, text: str, language: str | None = None) -> bool:
    """Whether a text holds a label of the item's culture or country that is in the list."""
    return remove_label(item, text, language) is not None


def choose(item: Item, target: Target, seed: int) -> Candidate | None:
    """Return the candidate to edit: the first right one, or a wrong one drawn by the seed.

    Returns:
        The candidate, or None when the item has none of that kind.
    """
    if target == "best":
        return next(one for one in item.candidates if one.id == item.best_ids[0])
    rivals = [one for one in item.candidates if one.id not in item.best_ids]

    def key(one: Candidate) -> bytes:
        return hashlib.sha256(canonical_json(["rival", seed, item.id, one.id]).encode()).digest()

    return min(rivals, key=key, default=None)


def edited_item(
    parent: Item, candidate_id: str, text: str, cue: str, *, suffix: str = "", **fields: str
) -> Item:
    """Return the item that a parent becomes when one candidate's text is replaced.

    Args:
        parent: The item to edit.
        candidate_id: The candidate whose text is replaced.
        text: The new text.
        cue: The kind of edit.
        suffix: What tells several edits of one cue apart, such as a language.
        fields: Further fields of the edited candidate, such as `language`.
    """
    candidates = tuple(
        Candidate.model_validate(one.model_dump() | {"text": text, "note": None} | fields)
        if one.id == candidate_id
        else one
        for one in parent.candidates
    )
    changed: dict[str, object] = {
        "id": edit_id(parent.id, cue, suffix),
        "candidates": candidates,
        "cue": cue,
        "edited": candidate_id,
    }
    return _derived(parent, changed)


def _derived(parent: Item, changed: dict[str, object]) -> Item:
    """Return a parent with some fields changed, without what was written about the parent only.

    Not a `model_copy`, which would take over the parent's digest.
    """
    kept = {name: getattr(parent, name) for name in Item.model_fields}
    own = {"parent_id": parent.id, "gloss": None, "reason": None, "human_validated": False}
    return Item.model_validate(kept | own | changed)


def edit_id(parent_id: str, cue: str, suffix: str = "") -> str:
    """Return the id of an edited item: "p1--CC", or "p1--CL-en"."""
    return f"{parent_id}--{cue}" + (f"-{suffix}" if suffix else "")


def mechanical_text(item: Item, candidate: Candidate, cue: str) -> str | None:
    """Return a candidate's text after a mechanical edit, or None when there is nothing to edit.

    Raises:
        InputError: When the cue is not mechanical.
    """
    language = candidate.language or item.language
    edits: dict[str, Callable[[], str | None]] = {
        "RC": lambda: remove_label(item, candidate.text, language),
        "LN": lambda: pad_length(candidate.text, language),
        "FM": lambda: add_marks(candidate.text),
        "IN": lambda: add_instruction(candidate.text, language),
    }
    if cue not in edits:
        raise InputError(
            f"cue {cue} needs a writer: habitus perturb BENCH --cue {cue} --writer MODEL; "
            f"without one: {', '.join(edits)}"
        )
    return edits[cue]()


def default_target(cue: str) -> Target:
    """Return which candidate a cue edits unless told otherwise: IN a wrong one, else the best."""
    return "rival" if cue == "IN" else "best"


def mechanical(
    items: Iterable[Item], cues: Sequence[str] = ("LN", "FM", "IN"), seed: int = 0
) -> tuple[Item, ...]:
    """Return the mechanical edits of items, item by item in the order of `cues`.

    Args:
        items: Items; those that are edits themselves are passed over.
        cues: Some of `MECHANICAL`.
        seed: Seed that wrong candidates are drawn by.

    Raises:
        InputError: When a cue is not mechanical.
    """
    found = []
    for item in items:
        if item.cue is not None:
            continue
        for cue in cues:
            candidate = choose(item, default_target(cue), seed)
            if candidate is None:
                continue
            text = mechanical_text(item, candidate, cue)
            if text is not None:
                found.append(edited_item(item, candidate.id, text, cue))
    return tuple(found)


def triplets(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items of appropriate, generic and opposite response that GN and OP edits make.

    The appropriate response is the parent's, where GN and OP edit the same right candidate of it.
    """
    items = tuple(items)
    edits = {(item.parent_id, item.cue): item for item in items if item.cue in ("GN", "OP")}
    found = []
    for parent in items:
        generic, opposite = edits.get((parent.id, "GN")), edits.get((parent.id, "OP"))
        if parent.cue is not None or generic is None or opposite is None:
            continue
        if generic.edited != opposite.edited or generic.edited not in parent.best_ids:
            continue
        texts = {
            "appropriate": _text(parent, generic.edited),
            "generic": _text(generic, generic.edited),
            "opposite": _text(opposite, generic.edited),
        }
        changed: dict[str, object] = {
            "id": edit_id(parent.id, TRIPLET),
            "candidates": tuple(Candidate(id=key, text=text) for key, text in texts.items()),
            "best_ids": ("appropriate",),
            "cue": TRIPLET,
        }
        found.append(_derived(parent, changed))
    return tuple(found)


def _text(item: Item, candidate_id: str | None) -> str:
    return next((one.text for one in item.candidates if one.id == candidate_id), "")


def complete(items: Iterable[Item], seed: int = 0) -> tuple[Item, ...]:
    """Return a cue benchmark's items with the LN, FM and IN edits and triplets that it lacks.

    A cue that any item has is left as it is; the others are made for every parent.
    """
    items = tuple(items)
    there = {item.cue for item in items}
    missing = [cue for cue in ("LN", "FM", "IN") if cue not in there]
    made = mechanical(items, missing, seed)
    return (*items, *made, *(() if TRIPLET in there else triplets(items)))
