"""Text for people: numbers, cleaned and cut strings.

Everything that comes from data passes :func:`clean` before it is shown, on the page (through
Jinja's `finalize`) and on the terminal.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from markupsafe import escape

from habitus.types import Metric

NO_DATA = "no data"
"""Shown for a figure that rests on nothing."""

NO_INTERVAL = "–"
"""Shown where a figure has no interval: it is exact, or there is no data."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")


def clean(text: str) -> str:
    """Replace control characters and lone surrogates, which no page can hold, by U+FFFD.

    The length stays the same. Line ends of every kind are kept: HTML reads them as one.
    """
    return _CONTROL.sub("\ufffd", text)


def one_line(text: str, limit: int = 80) -> str:
    """Return `text` cleaned, on one line, cut to `limit` characters with an ellipsis.

    Marks that turn the writing direction are taken out, because a cut could leave one open.
    """
    head = _DIRECTION.sub("", clean(text[: 8 * limit]))
    flat = " ".join(head.split())
    cut = len(flat) > limit or len(text) > 8 * limit
    return flat[: limit - 1].rstrip() + "…" if cut else flat


def unique_labels(labels: list[str], limit: int = 48) -> list[str]:
    """Cut labels for a chart in their middle, and number those that the cut has made equal.

    Names of models differ at either end: in the organisation, or in the mode and the run.
    """
    seen: dict[str, int] = {}
    result = []
    for label in labels:
        short = one_line(label, 8 * limit)
        if len(short) > limit:
            short = f"{short[: limit // 2].rstrip()}…{short[-((limit - 1) // 2) :].lstrip()}"
        short = short or "(empty)"
        seen[short] = seen.get(short, 0) + 1
        result.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return result


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage, such as "62.5 %"."""
    return NO_DATA if value is None else f"{100 * value:.{digits}f}\u00a0%"


def points(value: float | None, digits: int = 1, signed: bool = True) -> str:
    """Return a difference of two shares in percentage points, such as "+12.5"."""
    if value is None:
        return NO_DATA
    text = f"{100 * value:{'+' if signed else ''}.{digits}f}"
    return text.replace("-", "−")


def bounds(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval of shares in per cent, such as "46.3 to 76.8"."""
    if low is None or high is None:
        return NO_INTERVAL
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f}"


def point_bounds(low: float | None, high: float | None) -> str:
    """Return an interval of differences in percentage points, such as "−1.2 to +8.0"."""
    if low is None or high is None:
        return NO_INTERVAL
    return f"{points(low)} to {points(high)}"


def decimal(value: float | None, digits: int = 2) -> str:
    """Return a number such as a correlation, with a real minus sign: "−0.41"."""
    if value is None:
        return NO_DATA
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0 and text[0] == "-" else text).replace("-", "−")


def decimal_bounds(low: float | None, high: float | None, digits: int = 2) -> str:
    """Return an interval of such numbers: "−0.08 to 0.95"."""
    if low is None or high is None:
        return NO_INTERVAL
    return f"{decimal(low, digits)} to {decimal(high, digits)}"


def p_value(p: float | None) -> str:
    """Return a p-value as it is written: "0.034", or "< 0.001"."""
    if p is None:
        return NO_DATA
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 item", "1,200 items"."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def whole(metric: Metric | None) -> int:
    """Return a figure that counts something as a whole number; missing is 0."""
    return 0 if metric is None or metric.value is None else round(metric.value)


def duration(seconds: float | None) -> str:
    """Return a duration such as "2 h 05 min", "3 min 20 s" or "4.2 s"."""
    if seconds is None:
        return NO_DATA
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass(frozen=True)
class Clip:
    """A text cut for display."""

    text: str
    """What is shown."""
    total: int
    """Characters of the whole text."""

    @property
    def note(self) -> str | None:
        """What is left out, in words, or None when the text is whole."""
        if len(self.text) >= self.total:
            return None
        return f"shown: first {len(self.text):,} of {self.total:,} characters"


class Budget:
    """Cuts texts so that together they stay below a number of bytes of HTML."""

    def __init__(self, size: int, each: int = 4000) -> None:
        """Make a budget.

        Args:
            size: Bytes of escaped HTML in UTF-8 that all texts together may take.
            each: Characters that one text may have.
        """
        self._left = size
        self._each = each

    def clip(self, text: str, each: int | None = None) -> Clip:
        """Return `text`, cut to the limit of one text and to what is left of the budget."""
        shown = clean(text[: self._each if each is None else each])
        while shown and (cost := _html_bytes(shown)) > self._left:
            shown = shown[: min(len(shown) - 1, len(shown) * max(0, self._left) // cost)]
        # A cut must not part a letter from its marks, or an emoji from its joiner.
        for _ in range(16):
            if not shown or len(shown) == len(text) or not _joins(text[len(shown)]):
                break
            shown = shown[:-1]
        self._left -= _html_bytes(shown)
        return Clip(shown, len(text))


def _html_bytes(text: str) -> int:
    return len(str(escape(text)).encode("utf-8", "replace"))


def _joins(character: str) -> bool:
    return character in "\u200c\u200d\ufe0e\ufe0f" or unicodedata.category(character) in {
        "Mn",
        "Mc",
    }
