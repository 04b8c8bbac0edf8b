"""What a judge wrote: numbered criteria, then a verdict. One reading for training and evaluation.

The form is `<criteria>` with 2 to 5 numbered criteria, `</criteria>`, then `<judgement>` with one
letter. The letter is read by `habitus.verdicts`, as in evaluation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from habitus.scorers.judge_looks import CLOSING
from habitus.verdicts import parse_letter

OPENING = "<criteria>"
JUDGEMENT, JUDGED = "<judgement>", "</judgement>"

FEWEST, MOST = 2, 5
"""How many criteria there may be."""

LETTERS = ("A", "B")
"""Labels of the two responses, in the order shown."""

_NUMBERED = re.compile(r"\s*(\d{1,2})\s*[.):、．]\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A text, read."""

    criteria: tuple[str, ...]
    """The claims without their numbers; empty where they cannot be read."""
    verdict: int | None
    """Place of the response that the text settles on, 0 or 1; None unless `problem` is."""
    problem: str | None
    """What is wrong with the form, for people; None where nothing is."""
    characters: int
    """Characters of the text between the tags, or up to its end where none closes it."""


def read_written(text: str) -> Written:
    """Read a judge's text, from `<criteria>` on.

    Never raises: a text without the form has a `problem`, and that is data.
    """
    before, opening, rest = text.partition(OPENING)
    body, closing, tail = rest.partition(CLOSING)
    size = len(body.strip())
    if not opening or before.strip():
        return Written((), None, f"does not begin with {OPENING}", size)
    if not closing:
        return Written((), None, f"no {CLOSING}", size)
    claims, problem = _claims(body)
    if problem is None and not tail.lstrip().startswith(JUDGEMENT):
        problem = f"no {JUDGEMENT} after the criteria"
    if problem is not None:
        return Written(claims, None, problem, size)
    verdict = parse_letter(text, LETTERS)
    if verdict.value is None:
        return Written(claims, None, verdict.reason or "no verdict", size)
    return Written(claims, LETTERS.index(verdict.value), None, size)


def _claims(body: str) -> tuple[tuple[str, ...], str | None]:
    """Return the numbered claims and what is wrong with them."""
    claims: list[str] = []
    for line in filter(None, map(str.strip, body.splitlines())):
        match = _NUMBERED.fullmatch(line)
        if match and int(match[1]) == len(claims) + 1:
            claims.append(match[2].strip())
        elif match:
            return tuple(claims), f"criterion {len(claims) + 1} is numbered {int(match[1])}"
        elif claims:
            claims[-1] = f"{claims[-1]} {line}".strip()
        else:
            return (), "the criteria are not numbered"
    if not FEWEST <= len(claims) <= MOST:
        return tuple(claims), f"{len(claims)} criteria; {FEWEST} to {MOST} are wanted"
    empty = [number for number, claim in enumerate(claims, 1) if not any(map(str.isalpha, claim))]
    return tuple(claims), f"criterion {empty[0]} says nothing" if empty else None


def mended(text: str) -> str | None:
    """Return the criteria of a text in the right form, up to `</criteria>`, or None.

    A model that was never trained on the form seldom closes its criteria. Its first lines that are
    numbered in order and end are taken; the last line of an unclosed text may be cut, so it is left
    out.

    Args:
        text: From `<criteria>` on.
    """
    body, closing, _ = text.partition(OPENING)[2].partition(CLOSING)
    lines = body.splitlines() if closing else body.splitlines()[:-1]
    claims: list[str] = []
    for line in filter(None, map(str.strip, lines)):
        match = _NUMBERED.fullmatch(line)
        if not match or int(match[1]) != len(claims) + 1 or len(claims) == MOST:
            break
        if not any(map(str.isalpha, match[2])) or match[2].strip() in claims or "<" in match[2]:
            break
        claims.append(match[2].strip())
    if len(claims) < FEWEST:
        return None
    listed = "".join(f"{number}. {claim}\n" for number, claim in enumerate(claims, 1))
    return f"{OPENING}\n{listed}{CLOSING}"
