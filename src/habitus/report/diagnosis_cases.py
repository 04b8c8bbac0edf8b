"""The edits that a reward model took worst, side by side with the difference marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from habitus.diagnose.model import Worst
from habitus.report.items import is_sensitive
from habitus.report.text import Budget, one_line
from habitus.types import Item

CASE_CHARACTERS = 1_500
"""Characters of one text that are shown."""

_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff]"  # signs that are words
    "|[\u0e00-\u0e7f][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*"  # Thai letters with their marks
    "|(?:\\w|[\u0300-\u036f\u064b-\u065f\u0900-\u0dff\u200c\u200d])+|\\s+|."
)


@dataclass(frozen=True)
class CaseView:
    """One edit on the page, side by side."""

    cue: str
    """The cue with what it does."""
    tags: tuple[str, ...]
    """Culture, domain and the like."""
    item_id: str
    """The edited item."""
    prompt: str
    """The last turn of the prompt."""
    before: tuple[tuple[str, bool], ...]
    """Pieces of the text before, with whether the edit took them away."""
    after: tuple[tuple[str, bool], ...]
    """Pieces of the text after, with whether the edit added them."""
    cut: bool
    """True when the texts are longer than what is shown."""
    languages: tuple[str, str]
    """BCP 47 tags of both texts, or ""."""
    scores: tuple[str, str, str]
    """Score before, after, and the change."""
    flipped: bool
    """True when the winners changed."""
    sensitive: bool
    """True when the texts are folded away."""


def difference(before: str, after: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Return two texts in pieces, each with whether it is in one of them only.

    Words are compared; signs in Chinese and Japanese, and letters in Thai.
    """
    first, second = _WORD.findall(before), _WORD.findall(after)
    old: list[tuple[str, bool]] = []
    new: list[tuple[str, bool]] = []
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    for kind, start, stop, begin, end in matcher.get_opcodes():
        changed = kind != "equal"
        if stop > start:
            old.append(("".join(first[start:stop]), changed))
        if end > begin:
            new.append(("".join(second[begin:end]), changed))
    return old, new


def case_views(worst: Iterable[Worst], items: Mapping[str, Item]) -> list[CaseView]:
    """Return the cases for the page.

    Args:
        worst: The edits.
        items: Edited items and their parents by id; a case without them is left out.
    """
    budget = Budget(2_000_000, CASE_CHARACTERS)
    found = []
    for case in worst:
        item, parent = items.get(case.item_id), items.get(case.parent_id)
        if item is None or parent is None:
            continue
        texts = [
            next(one for one in each.candidates if one.id == case.edited) for each in (parent, item)
        ]
        clips = [budget.clip(one.text) for one in texts]
        if case.cue == "CL":
            pieces = tuple([(clip.text, False)] for clip in clips)
        else:
            pieces = difference(clips[0].text, clips[1].text)
        tags = (item.culture, item.country, item.domain, item.language)
        found.append(
            CaseView(
                cue=case.cue,
                tags=tuple(one_line(tag, 60) for tag in tags if tag),
                item_id=one_line(case.item_id, 120),
                prompt=one_line(item.prompt[-1].content, 300),
                before=tuple(pieces[0]),
                after=tuple(pieces[1]),
                cut=any(clip.note for clip in clips),
                languages=(
                    texts[0].language or item.language or "",
                    texts[1].language or item.language or "",
                ),
                scores=(
                    f"{case.before:.4g}",
                    f"{case.after:.4g}",
                    f"{case.change:+.2f}".replace("-", "−"),
                ),
                flipped=case.flipped,
                sensitive=is_sensitive(item),
            )
        )
    return found
