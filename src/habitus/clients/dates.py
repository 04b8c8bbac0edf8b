"""The day that chat templates are told, so that a prompt is the same on every day."""

from __future__ import annotations

from datetime import date

TODAY = date(2024, 7, 26)
"""What templates that write today's date are told: the day that Llama 3.1's own falls back to."""

_DAY = {"-d": str(TODAY.day), "-m": str(TODAY.month)} | {
    code: TODAY.strftime(f"%{code}") for code in "aAbBdeFHIjmMpSyY"
}
"""What the directives of strftime that templates use are replaced by."""


def pinned(template: str) -> str:
    """Return a template in which `strftime_now` tells `TODAY`, whatever the day is."""
    if "strftime_now" not in template:
        return template
    day = "format" + "".join(f" | replace('%{code}', '{text}')" for code, text in _DAY.items())
    # The empty expression keeps a line break at the template's start, which a block would eat.
    macro = "{%- macro strftime_now(format) -%}{{ " + day + " }}{%- endmacro %}{{ '' }}"
    return macro + template
