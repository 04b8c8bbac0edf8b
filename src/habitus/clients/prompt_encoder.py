"""Chats to token ids with a model's own template: one BOS, data as plain text, pinned dates.

Works on any tokenizer of the transformers library and imports neither it nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from habitus.clients.dates import TODAY, pinned
from habitus.clients.embedded import LONGEST_TOKEN, MARK
from habitus.clients.engine import Reply, Request, Turn, opens_thinking, with_answer
from habitus.clients.labels import LabelTokens, tell_apart
from habitus.errors import InputError
from habitus.prompts import Segment
from habitus.types import Parameter, Status, digest


class UnspellableError(ValueError):
    """A text holds a control token that this tokenizer cannot write as plain text."""


@dataclass(frozen=True)
class _Chat:
    """A request's chat, rendered: text where the template's control tokens count, or untrusted."""

    pieces: tuple[tuple[str, bool], ...]
    """Text, and whether it is the template's own."""


MOST_LABELS = 1000
"""Answers whose labels are remembered: those that a model wrote itself are all different."""


class PromptEncoder:
    """Encodes the chats of requests for one tokenizer."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        context: int,
        template: str | None = None,
        merge_system: bool = True,
    ) -> None:
        """Look at what the tokenizer and its template do.

        Args:
            tokenizer: A tokenizer of the transformers library.
            context: Most tokens of a prompt, its answer included.
            template: A chat template that replaces the tokenizer's own.
            merge_system: Without a system role in the template, put the system's text before the
                user's; otherwise that is an error.

        Raises:
            InputError: When there is no template, or it cannot be used.
        """
        self._tokenizer = tokenizer
        self.context = context
        """Most tokens of a prompt, its answer included."""
        source = template or self._own_template()
        self._template = pinned(source)
        self._control = self._control_ids()
        bos = tokenizer.bos_token_id
        added = tokenizer("a", verbose=False)["input_ids"][:1]
        self._bos = bos
        self._adds_bos = bos is not None and list(added) == [bos]
        self.system_role = self._has_system_role()
        """False when the template has no system role."""
        if not self.system_role and not merge_system:
            raise InputError(
                "the chat template has no system role; allow it to be merged into the user's turn "
                "with --no-system merge, or give a template with --template FILE"
            )
        self._tail = self._after_user()
        self._labels: dict[tuple[str, tuple[str, ...]], LabelTokens] = {}
        self.parameters: dict[str, Parameter] = {
            "context": context,
            "template": digest(source),
            "template_from": "file" if template else "model",
            "system_role": "own" if self.system_role else "merge",
        }
        """Everything here that can change a token."""
        if "strftime_now" in source:
            self.parameters["date"] = TODAY.isoformat()

    def _own_template(self) -> str:
        try:
            found: str = self._tokenizer.get_chat_template()
        except ValueError as error:
            raise InputError(
                "the model has no chat template; give the one that it was trained with: "
                "--template FILE.jinja, or chat_template.jinja in the model's folder"
            ) from error
        return found

    def _control_ids(self) -> frozenset[int]:
        """Return the ids of special tokens, and of added tokens that the template writes."""
        special = set(self._tokenizer.all_special_ids)
        for number, token in self._tokenizer.added_tokens_decoder.items():
            text = token.content
            if token.special or (text.strip() and text in self._template):
                special.add(number)
        return frozenset(special)

    def _render(self, messages: Sequence[Mapping[str, str]], *, opens: bool = True) -> str:
        rendered: str = self._tokenizer.apply_chat_template(
            list(messages),
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=opens,
        )
        return rendered

    @property
    def opens_thinking(self) -> bool:
        """Whether the template begins the assistant's turn with an open <think>."""
        return opens_thinking(self._tail)

    def _has_system_role(self) -> bool:
        probe = f"{MARK}0{MARK}"
        messages = [{"role": "system", "content": probe}, {"role": "user", "content": "x"}]
        try:
            return probe in self._render(messages)
        except Exception:  # noqa: BLE001 - a template says no by raising whatever it likes
            return False

    def _after_user(self) -> str:
        """Return what the template writes after the last user turn, where the answer begins."""
        probe = f"{MARK}0{MARK}"
        try:
            rendered = self._render([{"role": "user", "content": probe}])
        except Exception as error:
            raise InputError(f"the chat template fails on a plain question: {error}") from error
        if probe not in rendered:
            raise InputError("the chat template leaves out the user's text; see --template")
        return rendered.rpartition(MARK)[2]

    def ends(self) -> set[int]:
        """Return the tokenizer's end token, and what the template writes right after an answer."""
        found = {self._tokenizer.eos_token_id, self._turn_end()}
        return {token for token in found if token is not None}

    def _turn_end(self) -> int | None:
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": f"{MARK}0{MARK}"},
        ]
        try:
            rendered = self._render(messages, opens=False)
        except Exception:  # noqa: BLE001 - a template without assistant turns has no end of them
            return None
        after = rendered.rpartition(MARK)[2].lstrip()
        (tokens,) = self._ids([after]) if after and MARK in rendered else ([],)
        return tokens[0] if tokens and tokens[0] in self._control else None

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts in which control tokens count."""
        if not texts:
            return []
        found: list[list[int]] = self._tokenizer(
            list(texts),
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return found

    @cached_property
    def _without_control(self) -> Callable[[str], list[int]]:
        """The tokenizer without its added tokens."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return lambda text: list(
                self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            )
        import json

        from tokenizers import Tokenizer

        described = json.loads(backend.to_str())
        bare = Tokenizer.from_str(json.dumps(described | {"added_tokens": []}))
        return lambda text: list(bare.encode(text, add_special_tokens=False).ids)

    def _plain_ids(self, text: str) -> list[int]:
        tokens = self._without_control(text)
        if not self._control.isdisjoint(tokens):
            raise UnspellableError("a text holds a control token that cannot be written as text")
        return tokens

    @cached_property
    def _newline(self) -> list[int]:
        """Ids of a newline when texts get a space put before them (SentencePiece), else nothing."""
        line, alone, after = self._ids(["\n", "a", "\na"])
        return line if after[: len(line)] == line and after[len(line) :] != alone else []

    def _inner_ids(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Encode a piece from within a text, where no space is to be put before it."""
        if self._newline:
            tokens = encode("\n" + text)
            if tokens[: len(self._newline)] == self._newline:
                return tokens[len(self._newline) :]
        return encode(text)

    def encode(self, requests: Sequence[Request]) -> list[list[int] | Reply]:
        """Return the prompt of each request up to where its answer goes on, or why there is none.

        Where an untrusted segment contains control tokens, it is encoded as plain text, so that
        no candidate can end its own turn.
        """
        unsafe = self._unsafe_texts(requests)
        found: list[list[int] | Reply] = []
        whole: dict[int, str] = {}
        for number, request in enumerate(requests):
            size = sum(len(segment.text) for turn in request.chat for segment in turn.segments)
            if size > self.context * LONGEST_TOKEN:
                found.append(self._too_long(f"the prompt has {size:,} characters"))
                continue
            try:
                chat = self._chat(request, unsafe)
                if len(chat.pieces) == 1:
                    whole[number] = chat.pieces[0][0]
                found.append([] if number in whole else self._join(chat))
            except Exception as error:  # noqa: BLE001 - templates raise whatever they like
                message = f"cannot encode the chat: {type(error).__name__}: {error}"[:300]
                found.append(Reply(status=Status.ERROR, error=message))
        for number, tokens in zip(whole, self._ids(list(whole.values())), strict=True):
            found[number] = tokens
        return [one if isinstance(one, Reply) else self._checked(one) for one in found]

    def _unsafe_texts(self, requests: Sequence[Request]) -> frozenset[str]:
        """Return the untrusted texts in which the tokenizer sees a control token."""
        limit = self.context * LONGEST_TOKEN
        texts = {
            segment.text
            for request in requests
            for turn in request.chat
            for segment in turn.segments
            if not segment.trusted and len(segment.text) <= limit
        }
        ordered = sorted(texts)
        encoded = zip(ordered, self._ids(ordered), strict=True)
        return frozenset(text for text, ids in encoded if not self._control.isdisjoint(ids))

    def _chat(self, request: Request, unsafe: frozenset[str]) -> _Chat:
        chat = self._merged(request.chat)
        guard = any(s.text in unsafe for turn in chat for s in turn.segments if not s.trusted)
        texts: list[str] = []
        messages = []
        for turn in chat:
            content = ""
            for segment in turn.segments:
                if guard and not segment.trusted:  # a mark stands for it while the template runs
                    content += f"{MARK}{len(texts)}{MARK}"
                    texts.append(segment.text)
                else:
                    content += segment.text
            messages.append({"role": turn.role, "content": content})
        rendered = with_answer(self._render(messages), request.answer)
        if not guard:
            return _Chat(((rendered, True),))
        pieces = enumerate(rendered.split(MARK))  # between two marks stands the number of a text
        return _Chat(tuple((texts[int(p)], False) if n % 2 else (p, True) for n, p in pieces))

    def _join(self, chat: _Chat) -> list[int]:
        tokens: list[int] = []
        for number, (text, ours) in enumerate(chat.pieces):
            encode = self._one if ours else self._plain_ids
            if text:
                tokens += self._inner_ids(text, encode) if number else encode(text)
        return tokens

    def _one(self, text: str) -> list[int]:
        return self._ids([text])[0]

    def _merged(self, chat: Sequence[Turn]) -> list[Turn]:
        if self.system_role or not chat or chat[0].role != "system":
            return list(chat)
        system, *rest = chat
        if not rest or rest[0].role != "user":
            return [Turn("user", system.segments), *rest]
        gap = (Segment("\n\n", True),)
        return [Turn("user", (*system.segments, *gap, *rest[0].segments)), *rest[1:]]

    def _checked(self, tokens: list[int]) -> list[int] | Reply:
        """Give a prompt exactly one BOS, where the model wants one, and check its length."""
        if self._bos is not None:
            while tokens[:2] == [self._bos, self._bos]:
                tokens = tokens[1:]
            if self._adds_bos and tokens[:1] != [self._bos]:
                tokens = [self._bos, *tokens]
        return tokens if len(tokens) < self.context else self.over(len(tokens))

    def over(self, count: int, what: str = "the prompt has") -> Reply:
        """Return the reply to a request of `count` tokens, which do not fit."""
        return self._too_long(f"{what} {count:,} tokens")

    def _too_long(self, message: str) -> Reply:
        return Reply(
            status=Status.TRUNCATED, error=f"{message}; the context holds {self.context:,}"
        )

    def label_tokens(self, answer: str, labels: Sequence[str]) -> LabelTokens:
        """Return how labels follow a prompt that ends in `answer`.

        Args:
            answer: How the assistant's turn begins.
            labels: What may follow, such as " A" and " B".

        Raises:
            ModelError: When the tokenizer cannot tell the labels apart by one token.
        """
        key = (answer, tuple(labels))
        if key not in self._labels:
            if len(self._labels) > MOST_LABELS:
                self._labels.clear()
            before = with_answer(self._tail, answer)
            stem, *whole = self._ids([before, *(before + label for label in labels)])
            self._labels[key] = tell_apart(stem, whole)
        return self._labels[key]

    def decode(self, before: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the text of tokens that were written after `before`."""
        keep = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        last = list(before[-1:])
        head: str = self._tokenizer.decode(last, **keep)
        whole: str = self._tokenizer.decode([*last, *tokens], **keep)
        if whole.startswith(head):  # a tokenizer may drop the space of the very first token
            return whole[len(head) :]
        alone: str = self._tokenizer.decode(list(tokens), **keep)
        return alone
