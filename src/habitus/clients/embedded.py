"""llama.cpp in this process, through xllamacpp: the one module that touches that library.

xllamacpp runs llama.cpp's own server. Completions are called directly; tokenisation and chat
templates, which the binding does not expose, go over the server's loopback port with a key that
only this process knows.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from habitus.clients.engine import Turn, opens_thinking, with_answer
from habitus.clients.labels import LabelTokens, tell_apart
from habitus.errors import ModelError
from habitus.prompts import Segment, plain

DEFAULT_CONTEXT = 8192
"""Tokens of context, unless the model has fewer or the user says otherwise."""
TOP = 500
"""How many log-probabilities are asked for at first; a second call covers what they miss."""
BIAS = 60.0
"""Added to the wanted tokens' logits in that second call, which makes all others negligible."""
CERTAIN = 1000.0
"""Added to a token's logit, makes sure that it is drawn."""
REPEAT_PENALTY = 1.1
"""Under a grammar: against the loops that small models fall into when they write greedily."""
LONGEST_TOKEN = 256
"""Bytes; no vocabulary has longer tokens, so a text of more than this x context cannot fit."""


class ContextExceededError(Exception):
    """A prompt is longer than the context; an item's failure, not the run's."""


DATED = {"date_string": "26 Jul 2024", "datetime": "Jul 26 2024"}
"""What llama.cpp tells chat templates of today, pinned: the day that Llama 3.1's own template falls
back to. Without this, prompts would differ from day to day."""

MARK = "\ue0f7"
"""Private-use character that stands around a text's number while a template is applied."""


@dataclass(frozen=True)
class LabelScores:
    """The next-token distribution restricted to a few labels."""

    logprobs: tuple[float, ...]
    """Log-probability of each label among the labels; they sum to one as probabilities."""
    mass: float
    """Probability of any of the labels in the full distribution (a lower bound when tiny)."""


@dataclass(frozen=True)
class Generation:
    """Text that the model wrote."""

    text: str
    """The text."""
    finished: bool
    """False when the token budget ended it."""
    tokens: int
    """How many tokens were written."""


def engine_version() -> str:
    """Return the version of the engine, which is part of a scorer's digest."""
    return f"xllamacpp {version('xllamacpp')}"


class EmbeddedModel:
    """A GGUF model, loaded. Results depend on the call's arguments alone, not on earlier calls.

    That is why `fresh=True` recomputes the whole prompt: a reused key-value cache was computed in
    batches of another shape, and its last bits may differ.
    """

    def __init__(
        self,
        path: Path,
        *,
        context: int | None = None,
        threads: int | None = None,
        template: str | None = None,
        adapter: Path | None = None,
    ) -> None:
        """Load the model.

        Args:
            path: A GGUF file.
            context: Tokens of context; default: the model's own, at most `DEFAULT_CONTEXT`.
            threads: CPU threads; default: the cores this process may use.
            template: A chat template, or the name of one that llama.cpp knows, in place of the
                file's own.
            adapter: A GGUF file of a LoRA adapter to lay over the model.

        Raises:
            ModelError: When llama.cpp cannot load the file, or the adapter is of another model.
        """
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_parallel = 1
        params.n_ctx = context or DEFAULT_CONTEXT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or _cores()
        params.cache_ram_mib = 0  # no reuse of other prompts' states: equal calls, equal bits
        params.ctx_shift = False  # nothing is cut silently
        params.warmup = False
        params.verbosity = -1
        params.chat_template = template or ""
        self._key = secrets.token_hex(16)
        params.api_keys = [self._key]
        if adapter is not None:
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            what = str(path) if adapter is None else f"{path} with the adapter {adapter}"
            what += " with this chat template" if template else ""
            raise ModelError(f"llama.cpp cannot load {what}: {error}") from error
        address = urlsplit(self._server.listening_address)
        self._connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port)
        meta = self._call("GET", "/v1/models")["data"][0]["meta"]
        self.context = min(int(meta["n_ctx"]), int(meta["n_ctx_train"]))
        """Tokens that a prompt and its answer may have together."""
        self.parameters = int(meta["n_params"])
        """Number of the model's weights."""
        props = self._call("GET", "/props")
        self.template = str(props.get("chat_template", ""))
        """The chat template that is used."""
        caps = props.get("chat_template_caps", {})
        self.system_role = bool(caps.get("supports_system_role", True))
        """False when the chat template has no system role; the text is then merged into the
        user's turn."""
        self.opens_thinking = self._opens_thinking()
        """Whether the chat template begins the assistant's turn with an open <think>."""
        self._bos = self._bos_tokens(str(props.get("bos_token", "")))

    def _opens_thinking(self) -> bool:
        try:
            rendered = self._apply_template([{"role": "user", "content": "x"}], "")
        except ModelError:  # a template says no by raising; the first question will tell
            return False
        return opens_thinking(rendered)

    def _bos_tokens(self, bos: str) -> list[int]:
        """Return the start token when the model wants one, else nothing."""
        added = self._tokenize("", add_special=True, parse_special=True)
        start = self._tokenize(bos, parse_special=True) if bos else []
        return start if start and added[:1] == start else []

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):
            self._connection.close()  # the server drops a connection that idles for seconds
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status != http.client.OK:
            raise ModelError(f"llama.cpp refused {path}: {_message(answer)}")
        return answer

    def _tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        tokens: list[int] = self._call("POST", "/tokenize", body)["tokens"]
        return tokens

    def encode_chat(self, chat: Sequence[Turn], answer: str) -> list[int]:
        """Return the token ids of a chat, with the model's own template and exactly one BOS.

        Where an untrusted segment contains the model's control tokens, it is encoded as plain
        text, so that no candidate can end its own turn.

        Args:
            chat: Roles and segments. A system turn is merged into the first user turn when the
                template has no system role.
            answer: How the assistant's turn begins.

        Raises:
            ContextExceededError: When the text does not fit.
        """
        segments = [segment for turn in chat for segment in turn.segments]
        size = sum(len(segment.text.encode()) for segment in segments)
        if size > self.context * LONGEST_TOKEN:
            raise ContextExceededError(f"the prompt has {size:,} bytes")
        chat = self._merge_system(chat)
        unsafe = [s for s in segments if not s.trusted and self._has_control_tokens(s.text)]
        if unsafe:
            tokens = self._encode_guarded(chat, answer)
        else:
            tokens = self._encode_control(
                self._apply_template([_whole(turn) for turn in chat], answer)
            )
        if tokens[: len(self._bos)] != self._bos:
            tokens = self._bos + tokens
        if len(tokens) >= self.context:
            raise ContextExceededError(f"the prompt has {len(tokens):,} tokens")
        return tokens

    def _apply_template(self, messages: Sequence[Mapping[str, str]], answer: str) -> str:
        body = {"messages": messages, "chat_template_kwargs": DATED}
        rendered: str = self._call("POST", "/apply-template", body)["prompt"]
        return with_answer(rendered, answer)

    def _encode_control(self, text: str) -> list[int]:
        return self._tokenize(text, parse_special=True)

    def _has_control_tokens(self, text: str) -> bool:
        return self._tokenize(text) != self._encode_control(text)

    def _encode_guarded(self, chat: Sequence[Turn], answer: str) -> list[int]:
        """Encode with a mark in the place of each untrusted text while the template is applied."""
        texts: list[str] = []
        messages = []
        for turn in chat:
            content = ""
            for segment in turn.segments:
                content += segment.text if segment.trusted else f"{MARK}{len(texts)}{MARK}"
                texts += [] if segment.trusted else [segment.text]
            messages.append({"role": turn.role, "content": content})
        tokens: list[int] = []
        for number, piece in enumerate(self._apply_template(messages, answer).split(MARK)):
            if number % 2:  # between two marks stands the number of a text
                tokens += self._tokenize(texts[int(piece)])
            elif piece:
                tokens += self._encode_control(piece)
        return tokens

    def _merge_system(self, chat: Sequence[Turn]) -> list[Turn]:
        if self.system_role or not chat or chat[0].role != "system":
            return list(chat)
        system, user, *rest = chat
        gap = (Segment("\n\n", True),)
        return [Turn("user", (*system.segments, *gap, *user.segments)), *rest]

    def encode_text(self, text: str) -> list[int]:
        """Return the token ids of a text of our own, without any special token added."""
        return self._tokenize(text)

    def label_tokens(self, before: str, labels: Sequence[str]) -> LabelTokens:
        """Return how labels follow a prompt that ends in `before`.

        Args:
            before: The end of the prompt, at a place where no token spans.
            labels: What may follow, such as " A" and " B".

        Raises:
            ModelError: When the tokenizer cannot tell the labels apart by one token.
        """
        return tell_apart(
            self._tokenize(before), [self._tokenize(before + label) for label in labels]
        )

    def label_scores(
        self, tokens: Sequence[int], labels: Sequence[int], *, fresh: bool
    ) -> LabelScores:
        """Return the log-probabilities of label tokens as the next token.

        Args:
            tokens: The prompt.
            labels: One token id per label.
            fresh: Compute the whole prompt; otherwise the prefix that it shares with the last
                call is reused.

        Raises:
            ContextExceededError: When the prompt is too long.
            ModelError: When llama.cpp fails.
        """
        request: dict[str, Any] = {"prompt": list(tokens), "n_predict": 1, "temperature": 1.0}
        # The token that is drawn changes no log-probability, but when it is half a character there
        # is no text, and llama.cpp then leaves out the log-probabilities. So it is a label.
        drawn = {"logit_bias": [[labels[0], CERTAIN]]}
        request |= {"n_probs": TOP, "logprobs": TOP, "cache_prompt": not fresh} | drawn
        top = self._complete(request)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = {entry["id"]: float(entry["logprob"]) for entry in top}
        mass = math.fsum(math.exp(found[label]) for label in labels if label in found)
        if all(label in found for label in labels):
            raw = [found[label] for label in labels]
        else:
            raw = self._biased(request, labels)
        norm = math.log(math.fsum(math.exp(value - max(raw)) for value in raw)) + max(raw)
        return LabelScores(tuple(round(value - norm, 6) for value in raw), round(mass, 6))

    def _biased(self, request: Mapping[str, Any], labels: Sequence[int]) -> list[float]:
        """Ask again with the labels lifted above all else: exact among themselves."""
        lifted = dict(request) | {
            "samplers": ["temperature"],
            "logit_bias": [[label, BIAS] for label in labels],
            "post_sampling_probs": True,
            "n_probs": len(labels),
            "logprobs": len(labels),
            "cache_prompt": False,  # one token after a reused prompt differs in the first decimals
        }
        content = self._complete(lifted)["choices"][0]["logprobs"]["content"][0]
        found = {entry["id"]: float(entry["prob"]) for entry in content["top_probs"]}
        return [math.log(max(found.get(label, 0.0), 1e-30)) for label in labels]

    def generate(
        self,
        tokens: Sequence[int],
        *,
        grammar: str | None,
        budget: int,
        fresh: bool,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> Generation:
        """Write, greedily or drawn from the distribution at a temperature.

        Args:
            tokens: The prompt.
            grammar: llama.cpp's GBNF grammar of what may be written; None is anything.
            budget: Most tokens to write.
            fresh: As in `label_scores`.
            temperature: 0 is greedy. Nothing but `top_p` narrows the distribution.
            top_p: As in `habitus.clients.engine.Request`; llama.cpp cuts before it applies the
                temperature.
            seed: Seed of the draw.

        Raises:
            ContextExceededError: When prompt and budget do not fit.
            ModelError: When llama.cpp fails.
        """
        if len(tokens) + budget > self.context:
            raise ContextExceededError(f"prompt and answer have {len(tokens) + budget:,} tokens")
        request: dict[str, Any] = {"prompt": list(tokens), "n_predict": budget}
        request |= {"temperature": temperature, "cache_prompt": not fresh}
        if grammar is not None:
            request |= {"grammar": grammar, "repeat_penalty": REPEAT_PENALTY, "repeat_last_n": 64}
        if temperature > 0:
            request |= {"seed": seed, "top_k": 0, "top_p": top_p, "min_p": 0.0, "typical_p": 1.0}
        answer = self._complete(request)
        choice = answer["choices"][0]
        written = int(answer["usage"]["completion_tokens"])
        return Generation(choice["text"], choice["finish_reason"] == "stop", written)

    def _complete(self, request: Mapping[str, Any]) -> Any:
        answer = self._server.handle_completions(dict(request))
        if "error" in answer:
            message = _message(answer)
            if answer["error"].get("type") == "exceed_context_size_error":
                raise ContextExceededError(message)
            raise ModelError(f"llama.cpp: {message}")
        return answer

    def close(self) -> None:
        """Unload the model."""
        self._connection.close()
        self._server = None


def _message(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)[:300]


def _whole(turn: Turn) -> dict[str, str]:
    return {"role": turn.role, "content": plain(turn.segments)}


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
