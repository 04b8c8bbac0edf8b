"""Texts under way: written in stages, so that a long one holds no batch of short ones up.

A batch ends with its longest text, and a judge that repeats itself writes until its limit. So a text
gets some tokens, and goes on in a batch of those that need more, with twice as many each time. What
it has so far is read again then, which costs little beside writing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.clients.sampling import Draw, Written

STAGE = 128
"""Tokens of the first stage; most criteria and all short answers end within."""


@dataclass(frozen=True)
class Writing:
    """A text request, encoded, and what is written of its text."""

    place: int
    """Which request it is."""
    prompt: tuple[int, ...]
    """Token ids of the prompt."""
    draw: Draw
    """How to pick tokens; what is written has taken its share of the random numbers."""
    budget: int
    """Most tokens of the text."""
    opened: str
    """The thinking that the prompt has opened, for whoever reads the text."""
    text: tuple[int, ...] = ()
    """What is written."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return what is read before the next token: the prompt, and the text so far."""
        return self.prompt + self.text

    @property
    def stage(self) -> int:
        """Return the most tokens that come next."""
        return min(self.budget - len(self.text), max(STAGE, len(self.text)))

    def with_more(self, found: Written) -> Writing:
        """Return the same with what came next."""
        text = self.text + found.tokens
        return replace(self, text=text, draw=replace(self.draw, spent=len(text)))


def writing_batches(writings: Sequence[Writing], budget: int) -> list[list[Writing]]:
    """Batch texts of one stage and about one length, the longest first.

    Args:
        writings: The texts.
        budget: Most tokens of a batch, those to come included; a text over it is alone.
    """
    found: list[list[Writing]] = []
    for one in sorted(writings, key=lambda one: (one.stage, len(one.tokens)), reverse=True):
        batch = found[-1] if found else None
        size = (len(batch[0].tokens) + one.stage) * (len(batch) + 1) if batch else 0
        if batch and batch[0].stage == one.stage and size <= budget:
            batch.append(one)
        else:
            found.append([one])
    return found
