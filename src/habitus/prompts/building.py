"""Prompts of `habitus build`: what writers are asked when a benchmark is made (papers: CARB A1).

The files are in the folder `build`: `fact` translates a reference, `question` asks what a reference
decides, `answer` answers from a reference (the chosen and the rejected ones alike, so that no
instruction tells them apart), and `length` rewrites an answer to a length. Each has a `[user]`
section and may have a `[system]` section; replacement is that of `habitus.prompts.fill`.
"""

from __future__ import annotations

from habitus.errors import InputError
from habitus.prompts import Prompt, parse_writer_prompt, placeholders, read_writer_prompt

BUILD_PROMPTS: dict[str, frozenset[str]] = {
    "fact": frozenset({"fact", "language"}),
    "question": frozenset({"fact", "language", "place", "topic"}),
    "answer": frozenset({"fact", "question", "language"}),
    "length": frozenset({"text", "target", "length", "language"}),
}
"""Name of each prompt to the placeholders that it must have, and has no others."""


def load_build_prompts() -> dict[str, Prompt]:
    """Load all prompts of the builder, by name.

    Raises:
        InputError: When a file is missing, lacks `[user]`, or has other placeholders than it must.
    """
    return {
        name: parse_build_prompt(name, read_writer_prompt("build", name)) for name in BUILD_PROMPTS
    }


def parse_build_prompt(name: str, data: bytes) -> Prompt:
    """Parse one of the builder's prompt files.

    Args:
        name: Its name, a key of `BUILD_PROMPTS`.
        data: The file's bytes.

    Raises:
        InputError: When `[user]` is missing, or the placeholders are not those of `BUILD_PROMPTS`.
    """
    prompt = parse_writer_prompt(name, data)
    if "user" not in prompt.sections:
        raise InputError(f"prompt build/{name}: no section [user]")
    used = {found for body in prompt.sections.values() for found in placeholders(body)}
    differing = used ^ BUILD_PROMPTS[name]
    if differing:
        wanted = ", ".join(sorted(BUILD_PROMPTS[name]))
        raise InputError(
            f"prompt build/{name}: placeholder {{{min(differing)}}} is missing or unknown; "
            f"it has exactly: {wanted}"
        )
    return prompt
