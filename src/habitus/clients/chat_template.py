"""A model's own chat template: what it writes, what it leaves out, and rendering with it.

Templates are programs that their authors wrote for chatting. Before one decides what a reward
model reads, it is looked at once with a probe: does it keep the system message, does it keep both
turns, and what does it write after a response?
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.clients.dates import TODAY
from habitus.errors import InputError
from habitus.types import Message, Parameter, digest

HELD = re.compile("\ue000([0-9]+)\ue001")
"""Stands in a rendered text for a control token that a message spells out."""

_TODAY = re.compile(r"""strftime_now\s*\(\s*(['"])([^'"]*)\1\s*\)""")

_SYSTEM, _USER, _RESPONSE = "hbtsprobesystem", "hbtsprobeuser", "hbtsproberesponse"


@dataclass(frozen=True)
class Rendered:
    """A conversation as text."""

    text: str
    """The text, with `HELD` where a message spells out a control token."""
    start: int
    """Character at which the response starts."""
    held: tuple[str, ...] = ()
    """The control tokens that were held back, by number."""


class ChatTemplate:
    """A chat template, looked at once."""

    def __init__(
        self,
        tokenizer: Any,
        template: str | None = None,
        no_system: str | None = None,
        name: str = "the model",
    ) -> None:
        """Probe the template.

        Args:
            tokenizer: A transformers tokenizer.
            template: A template that replaces the tokenizer's own.
            no_system: "merge" (also None) puts a system message into the next user turn when the
                template has no system role; "error" fails such conversations.
            name: The model's name, for messages.

        Raises:
            InputError: When there is no template, or it loses the user's or the response's text.
        """
        if template is None and not getattr(tokenizer, "chat_template", None):
            raise InputError(
                f"{name} has no chat template; give the one that it was trained with: "
                "--template FILE.jinja"
            )
        self._tokenizer = tokenizer
        source = template or tokenizer.get_chat_template()
        self._source = _pin_date(source, name)
        self._no_system = no_system or "merge"
        self._control = any_of(control_tokens(tokenizer), HELD.pattern)
        self._own_system = self._keeps_system()
        self.probe = self._probe(name)
        """A short conversation as the template writes it."""
        self.tail = self.probe.rpartition(_RESPONSE)[2]
        """What the template writes after a response."""
        self.parameters: dict[str, Parameter] = {
            "template": digest(source),
            "template_from": "model" if template is None else "file",
            "system_role": "own" if self._own_system else self._no_system,
        }
        """Everything here that can change a text."""
        if self._source != source:
            self.parameters["date"] = TODAY.isoformat()

    def _write(self, messages: Sequence[Message]) -> str:
        text = self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            chat_template=self._source,
            tokenize=False,
        )
        return str(text)

    def _keeps_system(self) -> bool:
        messages = [
            Message(role="system", content=_SYSTEM),
            Message(role="user", content=_USER),
            Message(role="assistant", content=_RESPONSE),
        ]
        try:
            return _SYSTEM in self._write(messages)
        except Exception:  # noqa: BLE001 - templates raise whatever they like
            return False

    def _probe(self, name: str) -> str:
        messages = [
            Message(role="user", content=_USER),
            Message(role="assistant", content=_RESPONSE),
        ]
        try:
            text = self._write(messages)
        except Exception as error:
            raise InputError(f"the chat template of {name} fails: {error}") from error
        for part, turn in ((_USER, "user's"), (_RESPONSE, "assistant's")):
            if part not in text:
                raise InputError(f"the chat template of {name} leaves out the {turn} turn")
        return text

    def render(self, messages: Sequence[Message]) -> Rendered:
        """Write a conversation whose last message is the response.

        Raises:
            ValueError: When the conversation does not fit the template.
        """
        if not messages or messages[-1].role != "assistant":
            raise ValueError("the last message must be the assistant's response")
        system = [message.content for message in messages if message.role == "system"]
        if system and not self._own_system:
            if self._no_system == "error":
                raise ValueError("the chat template has no system role (see --no-system)")
            messages = merge_system(messages)
        messages, held = self._hold(messages)
        text = self._write(messages)
        if self._own_system:
            for content in system:
                if self._control.split(content)[0].strip() not in text:
                    raise ValueError("the chat template drops a system message")
        return Rendered(text, self._response_at(text, messages), held)

    def _hold(self, messages: Sequence[Message]) -> tuple[Sequence[Message], tuple[str, ...]]:
        """Replace control tokens that a message spells out, so that they stay plain text."""
        if not any(self._control.search(message.content) for message in messages):
            return messages, ()
        held: list[str] = []

        def keep(match: re.Match[str]) -> str:
            held.append(match[0])
            return f"\ue000{len(held) - 1}\ue001"

        kept = [
            Message(role=message.role, content=self._control.sub(keep, message.content))
            for message in messages
        ]
        return kept, tuple(held)

    def _response_at(self, text: str, messages: Sequence[Message]) -> int:
        before = text.removesuffix(self.tail)
        if text.endswith(self.tail):
            for response in (messages[-1].content, messages[-1].content.strip()):
                if before.endswith(response):
                    return len(before) - len(response)
        # The template rewrites responses or its end depends on them: see where one begins.
        probe = Message(role="assistant", content=_RESPONSE)
        return max(self._write([*messages[:-1], probe]).rfind(_RESPONSE), 0)


def read_template(path: str) -> str:
    """Read a chat template file.

    Raises:
        InputError: When it cannot be read as UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--template {path}: cannot be read: {error}") from error


def _pin_date(source: str, name: str) -> str:
    """Write `TODAY` where a template asks for today; templates cannot be given another clock."""

    def date(match: re.Match[str]) -> str:
        return f"{match[1]}{TODAY.strftime(match[2])}{match[1]}"

    pinned = _TODAY.sub(date, source)
    if re.search(r"strftime_now\s*\(", pinned):
        raise InputError(
            f"the chat template of {name} computes its date format, so scores would change from "
            "day to day; write the date into a copy of it and give that: --template FILE.jinja"
        )
    return pinned


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Put each system message in front of the next user's turn.

    Raises:
        ValueError: When no user's turn follows.
    """
    merged: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.content)
        elif message.role == "user" and waiting:
            content = "\n\n".join([*waiting, message.content])
            merged.append(Message(role="user", content=content))
            waiting = []
        else:
            merged.append(message)
    if waiting:
        raise ValueError("a system message is followed by no user turn to merge it into")
    return merged


def control_tokens(tokenizer: Any) -> list[str]:
    """Return the tokens that text from data must not be able to spell."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {str(token.content) for token in added if token.special}
    return sorted(names | {str(token) for token in tokenizer.all_special_tokens})


def any_of(tokens: Sequence[str], *patterns: str) -> re.Pattern[str]:
    """Return a pattern that matches any of `tokens` literally (the longest first), or `patterns`.

    It has no groups, and matches nothing when there is nothing to match.
    """
    longest_first = sorted((token for token in tokens if token), key=len, reverse=True)
    bare = [pattern.replace("(", "").replace(")", "") for pattern in patterns]
    return re.compile("|".join([*map(re.escape, longest_first), *bare]) or "(?!)")
