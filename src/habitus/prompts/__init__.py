"""Prompt files: plain text with sections and placeholders, replaced in one pass.

A prompt file has sections `[system]`, `[user]`, `[candidate]` (repeated for each candidate) and
`[assistant]` (how the judge's answer begins). A placeholder is a name in braces, such as
`{question}`. Replacement is one pass over the file's own text: what is put in is never looked at
again, so a candidate that contains `{question}` or a chat marker is just text.

A bundled prompt is named by what is asked (`listwise`, `pairwise`, `pointwise`; `criteria`,
`pairwise-criteria` and `pointwise-criteria` with criteria first), and in another language than
English also by the language: `listwise.ar`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from habitus.errors import InputError
from habitus.types import Message

_SECTION = re.compile(r"^\[(system|user|candidate|assistant)\]\n", re.MULTILINE)
_WRITER_SECTION = re.compile(r"^\[(system|user)\]\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

ALLOWED = {
    "system": {"culture", "country", "language"},
    "user": {
        *("question", "candidates", "letters", "low", "high"),
        *("culture", "country", "language"),
    },
    "candidate": {"letter", "text"},
    "assistant": set[str](),
}
"""Placeholders that each section may use."""


@dataclass(frozen=True)
class Prompt:
    """A parsed prompt file."""

    name: str
    """File name without `.txt`."""
    sections: Mapping[str, str]
    """Section name to its text."""
    digest: str
    """Digest of the file's bytes."""


@dataclass(frozen=True)
class PromptSet:
    """One prompt in English, or in one's own file, and in further languages."""

    base: Prompt
    """What is used when there is none in the language that is wanted."""
    languages: Mapping[str, Prompt]
    """BCP 47 tag to the prompt in that language, English left out."""
    digest: str
    """Digest of all files; of one alone it is that file's."""

    def find(self, tag: str | None) -> Prompt | None:
        """Return the prompt in a language, or None when there is none.

        Args:
            tag: BCP 47 tag. Subtags that no prompt has are dropped from the right, and Chinese is
                in simplified characters unless script or region say otherwise.
        """
        subtags = (tag or "").replace("_", "-").lower().split("-")
        if subtags[0] == "en":
            return self.base
        if subtags[0] == "zh" and {"hant", "tw", "hk", "mo"}.isdisjoint(subtags):
            subtags = ["zh", "hans"]
        known = {name.lower(): prompt for name, prompt in self.languages.items()}
        names = ("-".join(subtags[:count]) for count in range(len(subtags), 0, -1))
        return next((known[name] for name in names if name in known), None)


def load_prompts(name_or_path: str, *, translated: bool = False) -> PromptSet:
    """Load a prompt, and all its translations when they are wanted.

    Args:
        name_or_path: As for `load_prompt`.
        translated: Load the bundled translations too; a path has none.

    Raises:
        InputError: As for `load_prompt`.
    """
    base = load_prompt(name_or_path)
    tags = translations(base.name) if translated else []
    languages = {tag: load_prompt(f"{base.name}.{tag}") for tag in tags}
    digests = [base.digest, *(prompt.digest for prompt in languages.values())]
    whole = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    return PromptSet(base, languages, whole if languages else base.digest)


def translations(name: str) -> list[str]:
    """Return the languages that a bundled prompt is translated into, sorted."""
    parts = (entry.partition(".") for entry in _bundled())
    return sorted(tag for base, _, tag in parts if base == name and tag)


def _bundled() -> list[str]:
    entries = files("habitus.prompts").iterdir()
    return sorted(entry.name.removesuffix(".txt") for entry in entries if ".txt" in entry.name)


def load_prompt(name_or_path: str) -> Prompt:
    """Load a bundled prompt by name, or one of the user's by path.

    Raises:
        InputError: When the file is missing, is not UTF-8, lacks a section, or uses a placeholder
            that its section does not have.
    """
    path = Path(name_or_path)
    if path.suffix == ".txt":
        if not path.is_file():
            raise InputError(f"no such prompt file: {path}")
        data = path.read_bytes()
    else:
        resource = files("habitus.prompts").joinpath(f"{name_or_path}.txt")
        if not resource.is_file():
            known = [name for name in _bundled() if "." not in name]
            raise InputError(
                f"no prompt named {name_or_path!r}; bundled: {', '.join(known)}; "
                "your own is a path that ends in .txt"
            )
        data = resource.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name_or_path}: not UTF-8 at byte {error.start}") from error
    sections = _parse(text, name_or_path)
    return Prompt(path.name.removesuffix(".txt"), sections, hashlib.sha256(data).hexdigest()[:16])


def read_writer_prompt(folder: str, name: str) -> bytes:
    """Read the file of a bundled prompt for writers, which makes or edits responses.

    Raises:
        InputError: When it is missing from the installation.
    """
    resource = files("habitus.prompts").joinpath(folder).joinpath(f"{name}.txt")
    if not resource.is_file():
        raise InputError(f"the prompt {folder}/{name} is missing from the installation; reinstall")
    return resource.read_bytes()


def parse_writer_prompt(name: str, data: bytes) -> Prompt:
    """Parse a prompt for writers: it has the sections [user] and, where wanted, [system]."""
    sections = _split(_WRITER_SECTION, data.decode("utf-8"))
    return Prompt(name, sections, hashlib.sha256(data).hexdigest()[:16])


def placeholders(text: str) -> set[str]:
    """Return the names of the placeholders in a section."""
    return set(_PLACEHOLDER.findall(text))


def _split(heading: re.Pattern[str], text: str) -> dict[str, str]:
    pieces = heading.split(text)
    return {
        key: body.removesuffix("\n") for key, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def _parse(text: str, name: str) -> dict[str, str]:
    sections = _split(_SECTION, text)
    missing = [section for section in ("user", "candidate", "assistant") if section not in sections]
    if missing:
        raise InputError(f"prompt {name}: no section [{missing[0]}]; see docs/prompts.md")
    for section, body in sections.items():
        unknown = placeholders(body) - ALLOWED[section]
        if unknown:
            allowed = ", ".join(sorted(ALLOWED[section])) or "none"
            raise InputError(
                f"prompt {name}, section [{section}]: unknown placeholder "
                f"{{{sorted(unknown)[0]}}}; allowed here: {allowed}"
            )
    for placeholder in ("question", "candidates"):
        if f"{{{placeholder}}}" not in sections["user"]:
            raise InputError(f"prompt {name}, section [user]: no {{{placeholder}}}")
    return sections


@dataclass(frozen=True)
class Segment:
    """A piece of a filled prompt."""

    text: str
    """The text."""
    trusted: bool
    """True for the prompt file's own text; False for what comes from data."""


def fill(template: str, values: Mapping[str, str | Sequence[Segment]]) -> tuple[Segment, ...]:
    """Replace `{name}` by `values[name]` in one pass; what is put in is not looked at again.

    Args:
        template: A section of a prompt file.
        values: A string is text from data and becomes an untrusted segment; segments stay as
            they are. A placeholder without a value stays in the text.
    """
    segments: list[Segment] = []
    end = 0
    for match in _PLACEHOLDER.finditer(template):
        value = values.get(match[1], (Segment(match[0], True),))
        segments.append(Segment(template[end : match.start()], True))
        segments += (Segment(value, False),) if isinstance(value, str) else value
        end = match.end()
    segments.append(Segment(template[end:], True))
    return tuple(segment for segment in segments if segment.text)


def plain(segments: Sequence[Segment]) -> str:
    """Return the text of segments."""
    return "".join(segment.text for segment in segments)


def conversation_text(messages: Sequence[Message]) -> str:
    """Return the question as the judge reads it: the text alone, or turns with their speakers."""
    if len(messages) == 1:
        return messages[0].content
    return "\n".join(f"{message.role.capitalize()}: {message.content}" for message in messages)
