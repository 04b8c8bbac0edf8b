r"""Reading a judge's verdict: the one parser, for evaluation and for training.

A judge writes a letter or a rating somewhere in its text. What counts, in this order:

1. what is declared final: `<judgement>B</judgement>`, `\boxed{B}`, "final verdict: [[B]]";
2. a marked verdict with a cue, "the best answer is [[B]]";
3. a cue or a mark alone, "Best answer: B", "I choose B", "[[B]]";
4. a line that holds nothing else, "B.".

The first of these kinds that the text has decides. Two different verdicts of that kind are none,
and neither is one that was not offered: a wrong guess of ours would count as the judge's error.
What a model thinks is not read; a verdict stands after `</think>`, and a text that is still
thinking has none. Cues and refusals are known in the ten languages of the benchmark
(`habitus.verdicts.words`).
"""

from __future__ import annotations

from habitus.verdicts.letters import parse_letter
from habitus.verdicts.ratings import parse_rating
from habitus.verdicts.text import Split, Verdict, split_thinking

__all__ = ["Split", "Verdict", "parse_letter", "parse_rating", "split_thinking"]
