"""Judges behind an OpenAI-compatible server: vLLM, llama.cpp, or a hosted API.

Requests are sent side by side, tried again when the server fails, kept within a budget of tokens,
and answered from a cache where they were asked before. Label requests read the log-probabilities
of the first token; see `docs/servers.md` for what a server's limits mean for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from habitus.clients.answer_cache import AnswerCache, answer_key
from habitus.clients.engine import Reply, Request
from habitus.clients.labels import last_line
from habitus.clients.openai_address import DEFAULT_URL, Address, find_key
from habitus.clients.openai_labels import joined_letters, without_joined
from habitus.clients.openai_probe import Findings, probe
from habitus.clients.openai_session import Patience, RequestFailure, Session
from habitus.clients.openai_wire import (
    find_labels,
    first_token_top,
    label_floor,
    make_body,
    mass_of,
    message_bytes,
    normalise,
    text_reply,
    usage,
)
from habitus.errors import HabitusError, InputError
from habitus.types import Parameter, Status

CONCURRENCY = 16
"""Requests under way at once, unless the user says otherwise."""
LONGEST_TOKEN = 256
"""Bytes; no vocabulary has longer tokens, so a text of more than this x context cannot fit."""
ALL = 0.99
"""Probability that the labels must have together for an answer to count as limited to them."""


class ServerOptions(Protocol):
    """The options that this engine reads; `habitus.scorers.ScorerOptions` has them."""

    @property
    def engine(self) -> str | None:
        """Either "openai" or "vllm"."""

    @property
    def base_url(self) -> str | None:
        """Address of the server."""

    @property
    def api_key_env(self) -> str | None:
        """Environment variable that holds the key."""

    @property
    def concurrency(self) -> int | None:
        """Most requests under way at once."""

    @property
    def budget_tokens(self) -> int | None:
        """Most tokens to spend, read and written."""

    @property
    def cache(self) -> str | Path | None:
        """Folder of cached answers."""

    @property
    def context(self) -> int | None:
        """Most tokens that a prompt and its answer may have together."""

    @property
    def no_system(self) -> str | None:
        """Either "merge" or "error": what to do when the server takes no system turn."""

    @property
    def say(self) -> Callable[[str], None]:
        """Called with lines for the user."""


class OpenAIEngine:
    """A model behind a server (see `habitus.clients.engine.Engine`)."""

    labels_exact = False

    def __init__(
        self,
        session: Session,
        model: str,
        findings: Findings,
        *,
        name: str = "openai",
        context: int | None = None,
        window: int = CONCURRENCY,
        cache: AnswerCache | None = None,
    ) -> None:
        """Make an engine; `create` does so from options.

        Args:
            session: The connection, which the engine closes.
            model: The model's name at the server.
            findings: What the server understands.
            name: The engine's name, "openai" or "vllm".
            context: Most tokens of a prompt and its answer, where the user limits them.
            window: How many items a judge should have in flight.
            cache: Where answers are kept, if they are; the engine closes it.
        """
        self._session = session
        self._findings = findings
        self._dialect = findings.dialect
        self._guided = name == "vllm"
        self._cache = cache
        self._joined: dict[tuple[str, tuple[str, ...]], asyncio.Future[int]] = {}
        self.context = context or findings.context
        """Most tokens of a prompt and its answer, where known."""
        self.model: str = model
        self.revision: str | None = None
        self.prefill: bool = self._dialect.prefill
        self.logprobs: bool = self._dialect.top is not None and (
            self.prefill or not findings.thinks
        )
        self.window: int = window
        self.parameters: Mapping[str, Parameter] = self._parameters(name)

    @property
    def spent(self) -> tuple[int, int]:
        """Tokens read and written by this engine so far, answers from the cache not counted."""
        return self._session.budget.prompt_tokens, self._session.budget.completion_tokens

    def _parameters(self, name: str) -> dict[str, Parameter]:
        dialect, address = self._dialect, self._session.address
        by_name = "" if name == "openai" else f"{name} through "
        found: dict[str, Parameter] = {
            "engine": by_name + self._session.client_version,
            "server": "this machine" if address.loopback else address.host,
            "logprobs": f"top {dialect.top}" if self.logprobs else "none",
            "system_role": "own" if dialect.system else "merged into the user's turn",
        }
        found |= {"grammars": True} if dialect.grammar else {}
        found |= {"served": self._findings.served} if self._findings.served else {}
        found |= {"context": self.context} if self.context else {}
        found |= {"temperature_field": "refused by the server"} if not dialect.temperature else {}
        return found | ({"seed_field": "refused by the server"} if not dialect.seed else {})

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests, in their order.

        Raises:
            HabitusError: When the budget is spent, the key is refused, or the server is down.
        """
        return self._session.run(self._execute(requests))

    async def _execute(self, requests: Sequence[Request]) -> list[Reply]:
        tasks = [asyncio.ensure_future(self._reply(request)) for request in requests]
        results = await asyncio.gather(*tasks, return_exceptions=True)  # what is paid for is kept
        raised = [result for result in results if isinstance(result, BaseException)]
        if raised:
            raise next((error for error in raised if isinstance(error, HabitusError)), raised[0])
        return [result for result in results if isinstance(result, Reply)]

    async def _reply(self, request: Request) -> Reply:
        if request.labels and request.answer:
            request = without_joined(request, await self._joined_letters(request))
        body = make_body(self.model, request, self._dialect)
        key = self._key(body, request)
        kept = self._cache.get(key) if self._cache else None
        if kept is not None:
            return kept
        too_long = self._too_long_to_send(body)
        if too_long is not None:
            return too_long
        async with self._session.slots:
            self._session.check()
            try:
                if request.labels:
                    reply = await self._labels(body, request.labels)
                else:
                    begun = request.answer if self._dialect.echo else ""
                    reply = text_reply(await self._session.ask(body), begun)
            except RequestFailure as failure:
                return Reply(status=failure.status, error=str(failure))
        reply = self._within_context(reply)
        if self._cache:
            self._cache.put(key, reply)
        return reply

    async def _joined_letters(self, request: Request) -> int:
        """Return how many letters of the begun answer labels are joined with; asked once for each."""
        before = last_line(request.answer)
        key = (before, request.labels)
        if key not in self._joined:
            asking = joined_letters(partial(self._session.tokenize, self.model), *key)
            self._joined[key] = asyncio.ensure_future(asking)
        return await asyncio.shield(self._joined[key])

    def _key(self, body: Mapping[str, Any], request: Request) -> str:
        """Return the cache key: all that was sent, and the server, down to its port."""
        return answer_key(
            {
                "url": self._session.address.url,
                "served": self._findings.served,
                "context": self.context,
                "guided": self._guided,
                "labels": list(request.labels),
                "body": body,
            }
        )

    def _too_long_to_send(self, body: Mapping[str, Any]) -> Reply | None:
        size = message_bytes(body)
        if self.context is None or size <= self.context * LONGEST_TOKEN:
            return None
        message = f"the prompt has {size:,} bytes; the context holds {self.context:,} tokens"
        return Reply(status=Status.TRUNCATED, error=message)

    def _within_context(self, reply: Reply) -> Reply:
        tokens = reply.prompt_tokens + reply.completion_tokens
        if self.context is None or tokens <= self.context:
            return reply
        message = f"prompt and answer have {tokens:,} tokens; the context holds {self.context:,}"
        return Reply(status=Status.TRUNCATED, error=message)

    async def _labels(self, body: Mapping[str, Any], labels: Sequence[str]) -> Reply:
        """Return the distribution over labels as the first token."""
        answer = await self._session.ask(body)
        top = first_token_top(answer)
        found = find_labels(top, labels)
        read, written = usage(answer)
        reply = Reply(mass=mass_of(found), prompt_tokens=read, completion_tokens=written)
        if len(found) < len(labels) and self._guided:
            limited = await self._guide(body, labels)
            if limited is not None:
                scores, (more_read, more_written) = limited
                read, written = read + more_read, written + more_written
                return replace(
                    reply, logprobs=scores, prompt_tokens=read, completion_tokens=written
                )
        if not found:
            likeliest = ", ".join(repr(token) for token, _ in top[:3])
            return replace(
                reply,
                mass=None,
                status=Status.UNPARSED,
                error=f"no label is among the {len(top)} likeliest first tokens ({likeliest}, ...); "
                "a judge that writes its verdict: --verdict text",
            )
        return replace(reply, logprobs=normalise(found, labels, label_floor(top)))

    async def _guide(
        self, body: Mapping[str, Any], labels: Sequence[str]
    ) -> tuple[tuple[float, ...], tuple[int, int]] | None:
        """Ask vLLM again, limited to the labels: exact among them. None when it does not obey."""
        try:
            answer = await self._session.ask(
                {**body, "structured_outputs": {"choice": list(labels)}}
            )
        except RequestFailure:
            return None
        found = find_labels(first_token_top(answer), labels)
        if len(found) < len(labels) or mass_of(found) < ALL:
            return None
        return normalise(found, labels, 0.0), usage(answer)

    def close(self) -> None:
        """Close the connections and the cache; a second call does nothing."""
        self._session.close()
        if self._cache:
            self._cache.close()


def create(model: str, options: ServerOptions, patience: Patience | None = None) -> OpenAIEngine:
    """Connect to a server and find out what it understands.

    Args:
        model: The model's name at the server.
        options: `engine`, `base_url`, `api_key_env`, `concurrency`, `budget_tokens`, `cache`,
            `context` and `no_system` apply.
        patience: How long to go on with a server that fails.

    Raises:
        InputError: When an option is wrong, or there is no key.
        HabitusError: When the server cannot be reached or refuses all.
    """
    name = options.engine or "openai"
    if not model:
        raise InputError("a judge at a server needs the model's name, such as judge:MODEL")
    if name == "vllm" and not options.base_url:
        raise InputError("--engine vllm needs --base-url, such as http://127.0.0.1:8000/v1")
    for option in ("concurrency", "budget_tokens", "context"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise InputError(f"--{option.replace('_', '-')} {value}: must be 1 or more")
    address = Address.parse(options.base_url or DEFAULT_URL)
    key = find_key(address, options.api_key_env)
    cache = AnswerCache(Path(options.cache), options.say) if options.cache else None
    session = Session(
        address,
        key=key,
        variable=options.api_key_env,
        concurrency=options.concurrency or CONCURRENCY,
        budget=options.budget_tokens,
        patience=patience or Patience(),
    )
    try:
        merge = options.no_system != "error"
        findings = session.run(probe(session, model, vllm=name == "vllm", merge=merge))
    except BaseException:
        session.close()
        if cache:
            cache.close()
        raise
    return OpenAIEngine(
        session,
        model,
        findings,
        name=name,
        context=options.context,
        window=options.concurrency or CONCURRENCY,
        cache=cache,
    )
