"""Prompts of `habitus build`: what writers are asked when a benchmark is made (papers: CARB A1).

The files are in the folder `build`: `fact` translates a reference, `question` asks what a reference
decides, `answer` answers from a reference (the chosen and the rejected ones alike, so that no
instruction tells them apart), and `length` rewrites an answer to a length. Each has a `[user]`
section and may have a `[system]` section; replacement is that of `habitus.prompts.fill`.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from habitus.errors import InputError
from habitus.prompts import Prompt

BUILD_PROMPTS: dict[str, frozenset[str]] = {
    "fact": frozenset({"fact", "language"}),
    "question": frozenset({"fact", "language", "place", "topic"}),
    "answer": frozenset({"fact", "question", "language"}),
    "length": frozenset({"text", "target", "length", "language"}),
}
"""Name of each prompt to the placeholders that it must have, and has no others."""

_SECTION = re.compile(r"^\[(system|user)\]\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def load_build_prompts() -> dict[str, Prompt]:
    """Load all prompts of the builder, by name.

    Raises:
        InputError: When a file is missing, lacks `[user]`, or has other placeholders than it must.
    """
    return {name: _load(name) for name in BUILD_PROMPTS}


def _load(name: str) -> Prompt:
    resource = files("habitus.prompts").joinpath("build").joinpath(f"{name}.txt")
    if not resource.is_file():
        raise InputError(f"the prompt build/{name} is missing from the installation; reinstall")
    data = resource.read_bytes()
    return parse_build_prompt(name, data)


def parse_build_prompt(name: str, data: bytes) -> Prompt:
    """Parse one of the builder's prompt files.

    Args:
        name: Its name, a key of `BUILD_PROMPTS`.
        data: The file's bytes.

    Raises:
        InputError: When `[user]` is missing, or the placeholders are not those of `BUILD_PROMPTS`.
    """
    pieces = _SECTION.split(data.decode("utf-8"))
    sections = {
        key: body.removesuffix("\n") for key, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    if "user" not in sections:
        raise InputError(f"prompt build/{name}: no section [user]")
    used = {found for body in sections.values() for found in _PLACEHOLDER.findall(body)}
    differing = used ^ BUILD_PROMPTS[name]
    if differing:
        wanted = ", ".join(sorted(BUILD_PROMPTS[name]))
        raise InputError(
            f"prompt build/{name}: placeholder {{{min(differing)}}} is missing or unknown; "
            f"it has exactly: {wanted}"
        )
    return Prompt(name, sections, hashlib.sha256(data).hexdigest()[:16])
