"""The chat template of a GGUF file, read without loading the model."""

from __future__ import annotations

import re
import struct
from pathlib import Path

HEADER_BYTES = 64 << 20
"""Where metadata is looked for: it stands first, and is a few megabytes at most."""

_KEY = struct.pack("<Q", len(b"tokenizer.chat_template")) + b"tokenizer.chat_template"
_STRING = 8  # GGUF's type number of a string
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
