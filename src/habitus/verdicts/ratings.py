"""How a judge rates on a declared scale."""

from __future__ import annotations

import re
from collections.abc import Iterator

from habitus.types import Status
from habitus.verdicts import words
from habitus.verdicts.text import Verdict, answer_of, settle, tagged

_NUMBER = (
    rf"(?<![{words.ALPHABETIC}])(?<![{words.ALPHABETIC}][.,/-])(?P<number>[-−+]?[0-9]+(?:[.,٫][0-9]+)?)"
    rf"(?![.,٫]?[{words.ALPHABETIC}%٪‰])"
)
_WRAP = r"[\s\"'“”„«»*_`~({\[<【「『$\\]{0,12}"
_TAIL = r"[^\n.;!?。0-9]{0,40}?"
_FINAL = re.compile(rf"(?i:{words.FINAL}){_TAIL}{_WRAP}{_NUMBER}")
_CUED = re.compile(rf"(?i:{words.RATING_NOUNS}){_TAIL}{_WRAP}{_NUMBER}")
_MARKED = re.compile(rf"\[\[\s*{_NUMBER}\s*\]\]")
_BOXED = re.compile(rf"\\boxed\s*\{{\s*(?:\\(?:text|mathrm)\s*\{{\s*)?{_NUMBER}\s*\}}")
_LINE = re.compile(
    rf"{_WRAP}{_NUMBER}[\"'“”«»*_`~)}}\]>】」』$\\.!。]{{0,12}}\s*(?:점|分|点|คะแนน)?[.。]?\s*"
)
_ANY = re.compile(_NUMBER)
_FRACTION = re.compile(rf"{_NUMBER}{words.OUT_OF}\s*(?P<top>[0-9]+)(?![{words.ALPHABETIC}])", re.I)
_RANGE = re.compile(
    rf"{_NUMBER}{words.TO}(?P<top>[0-9]+(?:[.,][0-9]+)?)(?![{words.ALPHABETIC}])", re.I
)


def parse_rating(text: str, low: float, high: float) -> Verdict[float]:
    """Return the rating that a judge's text settles on (see `habitus.verdicts`).

    "8/10" and "8 out of 10" are ratings when the scale ends at 10; "8/5", "80 %" and "7-8" are
    none. A comma with one or two digits after it is a decimal comma.

    Args:
        text: What the judge wrote, thinking included.
        low: Lowest rating of the declared scale.
        high: Highest rating.

    Returns:
        `ok` with a number from `low` to `high`, `refused`, or `unparsed` with the reason. Never
        raises.
    """
    answer, failure = answer_of(text)
    if failure is not None:
        return Verdict(Status.UNPARSED, reason=failure)
    answer = _without_scale(answer, low, high)
    other = next((match for match in _FRACTION.finditer(answer)), None)
    span = next((match for match in _RANGE.finditer(answer)), None)
    if other or span:
        found = (other or span or [""])[0]
        return Verdict(Status.UNPARSED, reason=f"{found.strip()!r} is no rating on this scale")
    verdict = settle(_deciding(answer), answer)
    if verdict.value is not None and not low <= verdict.value <= high:
        return Verdict(
            Status.UNPARSED,
            reason=f"the rating {verdict.value:g} is not within {low:g} to {high:g}",
        )
    return verdict


def _without_scale(answer: str, low: float, high: float) -> str:
    """Remove the scale's own ends: "from 1 to 10", and "/10" after a rating."""
    ends = rf"(?<![0-9]){low:g}{words.TO}{high:g}(?![0-9])"
    answer = re.sub(ends, " ", answer, flags=re.I)
    top = rf"(?<=[0-9\]*_)]){words.OUT_OF}\s*[*_]*{high:g}(?:\.0+)?(?![0-9.,%])"
    return re.sub(top, " ", answer, flags=re.I)


def _deciding(answer: str) -> list[float]:
    """Return the numbers of the first kind of verdict that the answer has."""
    declared = list(_numbers(_BOXED, answer))
    for content in tagged(answer):
        declared += list(_numbers(_MARKED, content)) or list(_numbers(_ANY, content))
    if declared:
        return declared
    for pattern in (_FINAL, _MARKED, _CUED):
        found = list(_numbers(pattern, answer))
        if found:
            return found
    lines = (_LINE.fullmatch(line) for line in answer.splitlines())
    return [_value(match["number"]) for match in lines if match]


def _numbers(pattern: re.Pattern[str], text: str) -> Iterator[float]:
    return (_value(match["number"]) for match in pattern.finditer(text))


def _value(number: str) -> float:
    """Return a number's value; a comma before three digits separates thousands."""
    plain = number.replace("−", "-").replace("٫", ".")
    whole, comma, part = plain.partition(",")
    return float(whole + ("" if len(part) == 3 else "." if comma else "") + part)
