"""The one token that tells each answer label from the others, after a prompt.

A tokenizer may join a label with what stands before it: in many, `<judgement>A` ends in one token
for ">A". Then the prompt must end before the ">", and ">A" and ">B" are what is asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.errors import ModelError

JOINED = 2
"""Most tokens at a prompt's end that labels may be joined with."""


@dataclass(frozen=True)
class LabelTokens:
    """How labels follow a prompt."""

    joined: tuple[int, ...]
    """The prompt's last tokens that the labels' own tokens stand for; often none."""
    shared: tuple[int, ...]
    """Tokens that come in their place, and that all labels begin with; often none."""
    first: tuple[int, ...]
    """For each label, the token that tells it from the others."""

    def after(self, prompt: Sequence[int]) -> list[int]:
        """Return the ids after which each label is one token.

        Args:
            prompt: The prompt's ids.

        Raises:
            ModelError: When the prompt does not end as the labels were looked at.
        """
        kept = len(prompt) - len(self.joined)
        if tuple(prompt[kept:]) != self.joined:
            raise ModelError("the prompt's last token depends on what stands before it")
        return [*prompt[:kept], *self.shared]


def last_line(answer: str) -> str:
    """Return the part of a begun answer that labels can be joined with."""
    return answer[max(answer.rfind("\n"), 0) :]


def common_length(sequences: Sequence[list[int]]) -> int:
    """Return how many tokens all sequences begin with."""
    low, high = min(sequences), max(sequences)  # those between them share at least as much
    pairs = enumerate(zip(low, high, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(low), len(high)))


def tell_apart(stem: list[int], whole: Sequence[list[int]]) -> LabelTokens:
    """Find each label's token.

    Args:
        stem: The ids of a prompt's end.
        whole: The ids of the same text with each label behind it.

    Raises:
        ModelError: When the tokenizer cannot tell the labels apart by one token.
    """
    shared = whole[0][: common_length(whole)]
    kept = common_length([stem, shared])
    first = [tokens[len(shared)] for tokens in whole if len(tokens) > len(shared)]
    if len(stem) - kept > JOINED or len(set(first)) != len(whole):
        raise ModelError("this model's tokenizer has no single token for each answer letter")
    return LabelTokens(tuple(stem[kept:]), tuple(shared[kept:]), tuple(first))
