"""From a conversation to token ids, in one place for scoring and for training.

What a reward model reads decides what it says, so everything here is explicit and recorded: the
chat template, exactly one beginning-of-sequence token, the end-of-sequence token as trained, and
what happens to a text that is too long. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from habitus.clients.chat_template import (
    HELD,
    ChatTemplate,
    Rendered,
    any_of,
    control_tokens,
)
from habitus.errors import InputError
from habitus.prompts import conversation_text
from habitus.types import Message, Parameter, Status

SANE_LENGTH = 10_000_000
"""A `model_max_length` above this is a placeholder for "no limit"."""

COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Model types that count positions from the padding id on, and so read fewer tokens."""


@dataclass(frozen=True)
class Encoded:
    """One conversation as token ids, or why it has none."""

    ids: Sequence[int]
    """Token ids, no padding; empty on failure."""
    start: int | None = None
    """Index in `ids` of the response's first token; None where it was not asked for."""
    length: int = 0
    """Tokens before any cut."""
    types: Sequence[int] | None = None
    """Token type ids, for text pairs of models that have them."""
    status: Status = Status.OK
    """`truncated` or `error` on failure."""
    error: str | None = None
    """Why it failed, for people."""

    @property
    def cut(self) -> int:
        """How many tokens were cut off on request."""
        return self.length - len(self.ids) if self.status is Status.OK else 0


class Encoder(Protocol):
    """Turns conversations into token ids."""

    parameters: dict[str, Parameter]
    """Everything here that can change a token."""

    def encode(self, conversations: Sequence[Sequence[Message]]) -> list[Encoded]:
        """Encode conversations, in their order; the last message is the response."""
        ...


@dataclass(frozen=True)
class Length:
    """How long a text may be, and what to do with a longer one."""

    limit: int | None = None
    """Most tokens; None is no limit."""
    truncate: str | None = None
    """"left" drops the oldest of the prompt, "right" the end of the response; None and "error"
    cut nothing: the text fails with the status `truncated`."""


def length_limit(config: Any, tokenizer: Any, context: int | None) -> int | None:
    """Return the most tokens that a model reads: the least of its limits and `context`.

    Args:
        config: The model's configuration.
        tokenizer: Its tokenizer.
        context: The user's own limit.

    Raises:
        InputError: When the user's limit is above the model's.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limits = []
    positions = getattr(text, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        counts = text.model_type in COUNTS_FROM_PADDING
        limits.append(positions - (text.pad_token_id or 0) - 1 if counts else positions)
    declared = getattr(tokenizer, "model_max_length", None)
    if isinstance(declared, int) and 0 < declared < SANE_LENGTH:
        limits.append(declared)
    own = min(limits, default=None)
    if context is not None and own is not None and context > own:
        raise InputError(f"--context {context}: the model reads {own} tokens at most")
    return context if context is not None else own


class ChatEncoder:
    """Conversations through the model's own chat template."""

    def __init__(
        self, tokenizer: Any, template: ChatTemplate, length: Length, *, spans: bool = False
    ) -> None:
        """Learn what the template lacks at either end of a text.

        A token that the tokenizer by itself puts before a text (the beginning of sequence) is
        there exactly once, whether the template writes it or not. One that it puts after a text
        (the end of sequence) is added when the template ends a response without any control
        token; otherwise the template's ending is what the model was trained with.

        Args:
            tokenizer: A transformers tokenizer.
            template: The chat template.
            length: The length limit.
            spans: Whether to find where each response starts; slower.
        """
        self._tokenizer = tokenizer
        self._template = template
        self._length = length
        self._spans = spans
        prefix, suffix = _surrounding(tokenizer)
        probe = self._ids([template.probe])[0]
        tail = self._ids([template.tail])[0] if template.tail else []
        bos = tokenizer.bos_token_id
        written = probe[:1] == [bos] if bos is not None else probe[: len(prefix)] == prefix
        control = set(tokenizer.convert_tokens_to_ids(control_tokens(tokenizer)))
        ended = bool(control & set(tail))
        self._prefix = [] if written else prefix
        self._suffix = [] if ended else suffix
        self._head = 1 if written and bos is not None else len(prefix)
        self._tail = len(tail) + len(self._suffix)
        self.parameters: dict[str, Parameter] = {
            "encoding": "chat",
            "bos": _from(bool(written and probe and (bos is not None or prefix)), prefix),
            "eos": _from(ended, suffix),
            "limit": length.limit,
            "truncate": length.truncate or "error",
            **template.parameters,
        }

    def _call(self, texts: list[str], **kwargs: Any) -> Any:
        return self._tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
            **kwargs,
        )

    def _ids(self, texts: list[str], **kwargs: Any) -> list[list[int]]:
        return list(self._call(texts, **kwargs)["input_ids"])

    def encode(self, conversations: Sequence[Sequence[Message]]) -> list[Encoded]:
        """Encode conversations, in their order; the last message is the response.

        A conversation that the template refuses, or that is too long, is a failure of its own.
        """
        found: dict[int, Encoded] = {}
        texts: dict[int, Rendered] = {}
        for index, messages in enumerate(conversations):
            try:
                texts[index] = self._template.render(messages)
            except Exception as error:  # noqa: BLE001 - a bad conversation is data
                reason = str(error) or type(error).__name__
                message = f"not encoded: {reason}"[:300]
                found[index] = Encoded((), status=Status.ERROR, error=message)
        found |= self._plain({at: text for at, text in texts.items() if not text.held})
        found |= {at: self._literal(text) for at, text in texts.items() if text.held}
        return [found[index] for index in range(len(conversations))]

    def _plain(self, texts: dict[int, Rendered]) -> dict[int, Encoded]:
        """Encode texts in one call of the tokenizer."""
        if not texts:
            return {}
        offsets = self._spans and self._tokenizer.is_fast
        batch = self._call([text.text for text in texts.values()], return_offsets_mapping=offsets)
        found = {}
        for row, (index, text) in enumerate(texts.items()):
            ids = batch["input_ids"][row]
            start = None
            if offsets:
                start = _first_after(batch["offset_mapping"][row], text.start)
            elif self._spans or self._cuts(ids):
                start = self._start(text)
            found[index] = self._finish(ids, start)
        return found

    def _cuts(self, ids: Sequence[int]) -> bool:
        """Whether a text has to be cut, so that it matters where its response starts."""
        size = len(self._prefix) + len(ids) + len(self._suffix)
        over = self._length.limit is not None and size > self._length.limit
        return over and self._length.truncate in ("left", "right")

    def _start(self, text: Rendered) -> int:
        if not self._tokenizer.is_fast:
            return len(self._ids([text.text[: text.start]])[0])
        batch = self._call([text.text], return_offsets_mapping=True)
        return _first_after(batch["offset_mapping"][0], text.start)

    def _literal(self, text: Rendered) -> Encoded:
        """Encode a text in which control tokens were held back; they become plain characters."""
        ids: list[int] = []
        start = 0
        for part in (text.text[: text.start], text.text[text.start :]):
            start = len(ids)
            for number, piece in enumerate(HELD.split(part)):
                if number % 2:
                    ids += self._ids([text.held[int(piece)]], split_special_tokens=True)[0]
                elif piece:
                    ids += self._ids([piece])[0]
        return self._finish(ids, start)

    def _finish(self, ids: Sequence[int], start: int | None) -> Encoded:
        """Add what the template lacks at either end, and hold to the limit."""
        shift = len(self._prefix)
        whole = [*self._prefix, *ids, *self._suffix]
        bos = self._tokenizer.bos_token_id
        if bos is not None and whole[:2] == [bos, bos]:
            whole = whole[1:]
            shift -= 1
        start = None if start is None else start + shift
        return fit(whole, start, self._length, head=self._head, tail=self._tail)


class PairEncoder:
    """Question and answer as a text pair, for encoders of the OpenAssistant DeBERTa kind."""

    def __init__(self, tokenizer: Any, length: Length) -> None:
        """Make the encoder.

        Args:
            tokenizer: A fast transformers tokenizer whose post-processor knows pairs.
            length: The length limit.
        """
        self._tokenizer = tokenizer
        self._length = length
        self._control = any_of(control_tokens(tokenizer))
        self.parameters: dict[str, Parameter] = {
            "encoding": "pair",
            "limit": length.limit,
            "truncate": length.truncate or "error",
        }

    def encode(self, conversations: Sequence[Sequence[Message]]) -> list[Encoded]:
        """Encode conversations, in their order; the last message is the answer."""
        return [self._encode(messages) for messages in conversations]

    def _encode(self, messages: Sequence[Message]) -> Encoded:
        if len(messages) < 2 or messages[-1].role != "assistant":
            message = "not encoded: a question and then the assistant's response are needed"
            return Encoded((), status=Status.ERROR, error=message)
        question, answer = conversation_text(messages[:-1]), messages[-1].content
        batch = self._tokenizer(
            question,
            answer,
            verbose=False,
            split_special_tokens=bool(self._control.search(f"{question} {answer}")),
        )
        ids = batch["input_ids"]
        types = batch.get("token_type_ids")
        limit = self._length.limit
        if limit is None or len(ids) <= limit:
            return Encoded(ids, length=len(ids), types=types)
        over = len(ids) - limit
        which = {"left": 0, "right": 1}.get(self._length.truncate or "")
        places = [at for at, part in enumerate(batch.sequence_ids(0)) if part == which]
        if which is None or over >= len(places):
            return _too_long(len(ids), self._length)
        gone = set(places[:over] if which == 0 else places[-over:])
        kept = [at for at in range(len(ids)) if at not in gone]
        return Encoded(
            [ids[at] for at in kept],
            length=len(ids),
            types=None if types is None else [types[at] for at in kept],
        )


def fit(ids: Sequence[int], start: int | None, length: Length, *, head: int, tail: int) -> Encoded:
    """Hold token ids to the limit.

    A cut on the left never reaches the response, a cut on the right never reaches the prompt:
    a text that would need it fails.

    Args:
        ids: Token ids of the whole text.
        start: Index of the response's first token; needed for a cut.
        length: The limit.
        head: Tokens at the beginning that a cut on the left keeps (the beginning of sequence).
        tail: Tokens at the end that a cut on the right keeps (the end of the turn).
    """
    size = len(ids)
    if length.limit is None or size <= length.limit:
        return Encoded(ids, start, size)
    over = size - length.limit
    if start is None or length.truncate not in ("left", "right"):
        return _too_long(size, length)
    if length.truncate == "left":
        if head + over > start:
            return _too_long(size, length)
        return Encoded([*ids[:head], *ids[head + over :]], start - over, size)
    end = size - tail
    if end - over <= start:
        return _too_long(size, length)
    return Encoded([*ids[: end - over], *ids[end:]], start, size)


def _too_long(size: int, length: Length) -> Encoded:
    message = f"{size} tokens; the limit is {length.limit}"
    if length.truncate in ("left", "right"):
        message += f", and a cut on the {length.truncate} would not be enough"
    return Encoded((), length=size, status=Status.TRUNCATED, error=message)


def _from(written: bool, added: Sequence[int]) -> str:
    """Say where a token at the end of a text comes from."""
    return "template" if written else "added" if added else "none"


def _first_after(offsets: Sequence[tuple[int, int]], at: int) -> int:
    """Return the index of the first token that reaches beyond character `at`."""
    return next((index for index, (_, end) in enumerate(offsets) if end > at), len(offsets))


def _surrounding(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer by itself puts before and after a text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return full[:at], full[at + len(bare) :]
    return [], []
