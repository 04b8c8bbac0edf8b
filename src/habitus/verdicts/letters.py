"""Which of several candidates a judge chose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from habitus.types import Status
from habitus.verdicts import words
from habitus.verdicts.text import Verdict, answer_of, settle, tagged

_WRAP = r"[\s\"'“”„«»‘*_`~({\[<【「『《$\\]{0,12}"
_UNWRAP = r"[\"'“”«»‘*_`~)}\]>】」』》$\\]{0,12}"
_ALONE = rf"(?<![{words.ALPHABETIC}])(?P<letter>[A-Z])(?![{words.ALPHABETIC}]|'[a-z])"
_LOWER_TOO = _ALONE.replace("[A-Z]", "[A-Za-z]")
_TAIL = rf"(?:(?!{words.NEGATIONS}|(?<![{words.ALPHABETIC}])[A-Z](?![{words.ALPHABETIC}]))"
_NEAR = _TAIL + r"[^\n.:;!?。,\[]){0,40}?"
_FAR = _TAIL + r"[^\n.;!?。\[]){0,60}?"
_FILLER = rf"(?:{_WRAP}{words.FILLERS}){{0,3}}"
_LINK = rf"\s*{words.CONNECTORS}{_FILLER}"

_MARKED = re.compile(r"\[\[\s*([A-Za-z])\s*\]\]")
_BOXED = re.compile(
    r"\\boxed\s*\{\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*)?\(?\s*([A-Za-z])\s*[).]?\s*\}"
)


def _flexible(pattern: str) -> re.Pattern[str]:
    """Compile: words in any case, the verdict's letter in upper case."""
    for cue in ("FINAL", "NOUNS", "VERBS", "CONNECTORS", "FILLERS", "NEGATIONS", "COPULAS"):
        pattern = pattern.replace(getattr(words, cue), f"(?i:{getattr(words, cue)})")
    return re.compile(pattern)


_FINAL = _flexible(
    rf"{words.FINAL}(?:{_FAR}(?:{_LINK}|{words.VERBS}{_FILLER})|{_NEAR}(?=\[\[)){_WRAP}{_ALONE}"
)
_CUED = _flexible(rf"(?:{words.NOUNS}{_NEAR}{_LINK}|{words.VERBS}{_FILLER}){_WRAP}{_ALONE}")
_SAID = (
    r"{_ALONE}{_UNWRAP}\s{{0,3}}{copulas}\s*(?:\w+ly\s+)?(?:(?i:the|la|el|die|der)\s+)?(?i:{said})"
)
_BEST, _BETTER = (
    re.compile(
        _SAID.format(_ALONE=_ALONE, _UNWRAP=_UNWRAP, copulas=f"(?i:{words.COPULAS})", said=said)
    )
    for said in (words.BEST, words.BETTER)
)
_CHOSEN = re.compile(rf"{_ALONE}{_UNWRAP}\s?(?:[를을가이]\s*(?:선택|고르|택)|を(?:選|推))")
_NEGATED = re.compile(rf"(?i:{words.NEGATIONS})\W{{0,2}}(?i:the |my )?$")
_NEGATION = re.compile(rf"(?i:{words.NEGATIONS})")
_ALTERNATIVE = re.compile(
    rf"{_UNWRAP}\s*(?:(?i:{words.ALTERNATIVES})|[/&、]|,(?={_WRAP}[A-Z]\s*(?:[,.;)\n]|$|or|and))){_WRAP}"
    rf"(?i:{words.FILLERS})?{_WRAP}{_ALONE}"
)
_ARTICLE = re.compile(rf"\s+(?!(?i:{words.BEGINNINGS}))[a-zà-ỿ]")
_LINE = re.compile(rf"{_WRAP}(?i:{words.FILLERS})?{_WRAP}{_ALONE}{_UNWRAP}[.:,!。]?{_UNWRAP}\s*")
_ONLY = re.compile(rf"{_WRAP}{_LOWER_TOO}{_UNWRAP}[.:,!。]?{_UNWRAP}\s*")
_STARTS = re.compile(
    rf"{_WRAP}{_ALONE}{_UNWRAP}(?:[.:)](?=\s)|\s+[–—-]\s)(?!\s*(?i:{words.ALTERNATIVES}))"
)


def parse_letter(text: str, letters: Collection[str]) -> Verdict[str]:
    """Return the letter that a judge's text settles on (see `habitus.verdicts`).

    Args:
        text: What the judge wrote, thinking included.
        letters: The letters that were offered, upper case.

    Returns:
        `ok` with one of `letters`, `refused`, or `unparsed` with the reason. Never raises.
    """
    answer, failure = answer_of(text)
    if failure is not None:
        return Verdict(Status.UNPARSED, reason=failure)
    verdict = settle(_deciding(answer, letters), answer)
    if verdict.value is not None and verdict.value not in letters:
        offered = ", ".join(letters)
        return Verdict(Status.UNPARSED, reason=f"the verdict {verdict.value} is none of {offered}")
    return verdict


class _Found(NamedTuple):
    """A letter that may be a verdict."""

    letter: str
    marked: bool
    """Whether it stands in [[ ]]."""
    at: int
    """Where."""


def _deciding(answer: str, letters: Collection[str]) -> list[str]:
    """Return the letters of the first kind of verdict that the answer has."""
    marks = [_Found(match[1].upper(), True, match.start(1)) for match in _MARKED.finditer(answer)]
    declared = [match[1].upper() for match in _BOXED.finditer(answer)]
    for content in tagged(answer):
        declared += _within(content, letters)
    final = list(_cued(_FINAL, answer, letters))
    if declared:
        return declared + [found.letter for found in final]
    if final:  # a mark before it is an earlier thought, one after it takes it back
        return [found.letter for found in (*final, *marks) if found.at >= final[0].at]
    cued = [*_cued(_CUED, answer, letters), *_said(answer, letters)]
    if any(found.marked for found in cued):
        return [found.letter for found in cued if found.marked]
    return [found.letter for found in (*cued, *marks)] or _lines(answer, letters)


def _cued(pattern: re.Pattern[str], answer: str, letters: Collection[str]) -> Iterator[_Found]:
    """Yield the letters that a cue stands before."""
    for match in pattern.finditer(answer):
        start = match.start("letter")
        before = answer[max(0, match.start() - 20) : match.start()]
        negated = _NEGATED.search(before) or _NEGATION.search(answer, match.start(), start)
        if negated or _is_word(match, letters):
            continue
        yield _found(match)
        second = _ALTERNATIVE.match(answer, match.end("letter"))
        if second and not _is_word(second, letters):
            yield _found(second)


def _said(answer: str, letters: Collection[str]) -> Iterator[_Found]:
    """Yield the letters of which it is said that they are best."""
    patterns = [_BEST, _CHOSEN] + ([_BETTER] if len(letters) == 2 else [])
    for pattern in patterns:
        for match in pattern.finditer(answer):
            if match["letter"] in letters or match["letter"] != "I":
                yield _found(match)


def _found(match: re.Match[str]) -> _Found:
    start = match.start("letter")
    marked = match.string[max(0, start - 4) : start].rstrip().endswith("[[")
    return _Found(match["letter"], marked, start)


def _is_word(match: re.Match[str], letters: Collection[str]) -> bool:
    """Return whether the letter is the article "A" or the pronoun "I"."""
    letter = match["letter"]
    if letter == "I" and letter not in letters:
        return True
    after = match.string[match.end("letter") : match.end("letter") + 40]
    return letter in ("A", "I", "O", "Y", "E", "U") and bool(_ARTICLE.match(after))


def _within(content: str, letters: Collection[str]) -> list[str]:
    """Return the letters of a verdict tag's content."""
    marked = [match[1].upper() for match in _MARKED.finditer(content)]
    only = _ONLY.fullmatch(content)
    if marked or only:
        return marked or [only["letter"].upper()] if only else marked
    cued = [*_cued(_CUED, content, letters), *_said(content, letters)]
    if cued:
        return [found.letter for found in cued]
    alone = re.finditer(_ALONE, content)
    return [match["letter"] for match in alone if not _is_word(match, letters)]


def _lines(answer: str, letters: Collection[str]) -> list[str]:
    """Return the letters that have a line of their own, or that begin a line or the answer."""
    only = _ONLY.fullmatch(answer)
    if only:
        return [only["letter"].upper()]
    found = []
    for line in answer.splitlines():
        match = _LINE.fullmatch(line) or _STARTS.match(line)
        if match and not _is_word(match, letters):
            found.append(match["letter"])
    return found
