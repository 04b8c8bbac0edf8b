"""The chat template of a GGUF file, read without loading the model."""

from __future__ import annotations

import re
import struct
from datetime import date
from pathlib import Path

HEADER_BYTES = 64 << 20
"""Where metadata is looked for: it stands first, and is a few megabytes at most."""

DATE = "2024-07-26"
"""The day that templates which ask for today's date are told (see `embedded.DATED`)."""

_KEY = struct.pack("<Q", len(b"tokenizer.chat_template")) + b"tokenizer.chat_template"
_STRING = 8  # GGUF's type number of a string
_DAY = {"-d": "26", "-m": "7"} | {
    code: date.fromisoformat(DATE).strftime(f"%{code}") for code in "aAbBdeFHIjmMpSyY"
}
_ASKS_FOR_DATE = re.compile(r"\b(?:strftime_now|date_string|datetime)\b")


def chat_template(path: Path) -> str | None:
    """Return the chat template that a GGUF file carries, or None.

    llama.cpp does not tell: for a file without one it silently uses ChatML.
    """
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    at = head.find(_KEY)
    start = at + len(_KEY) + 12
    if at < 0 or len(head) < start:
        return None
    kind, length = struct.unpack_from("<IQ", head, at + len(_KEY))
    if kind != _STRING or not length or len(head) < start + length:
        return None
    return head[start : start + length].decode("utf-8", "replace")


def dated(template: str) -> bool:
    """Return whether a template asks for today's date."""
    return bool(_ASKS_FOR_DATE.search(template))


def pinned(template: str) -> str:
    """Return a template in which `strftime_now` tells `DATE`, whatever the day is."""
    if "strftime_now" not in template:
        return template
    day = "format" + "".join(f" | replace('%{code}', '{text}')" for code, text in _DAY.items())
    # The empty expression keeps a line break at the template's start, which a block would eat.
    macro = "{%- macro strftime_now(format) -%}{{ " + day + " }}{%- endmacro %}{{ '' }}"
    return macro + template
