"""Finds out, by a tiny first request, what an OpenAI-compatible server understands.

Servers differ in what they refuse: log-probabilities, a seed, a temperature, a system turn, the old
name of the token limit. What is refused is left out from then on, and recorded in the scorer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from habitus.clients.engine import Request, Turn
from habitus.clients.openai_address import DEFAULT_URL
from habitus.clients.openai_session import Session
from habitus.clients.openai_wire import (
    NO_LOGPROBS,
    TOP,
    Dialect,
    Fault,
    first_token_top,
    make_body,
    text_reply,
)
from habitus.errors import HabitusError, ModelError, UnknownNameError
from habitus.prompts import Segment
from habitus.types import Status

FEWER = 5
"""Alternatives to ask for where `TOP` are refused."""
ROUNDS = 10
"""Most requests until a server is understood."""
PAUSE = 0.5
"""Seconds before the first request is sent again to a server that fails."""
BEGUN = "My answer, as one letter:"
"""Beginning of the assistant's turn in the first request, where that is possible."""

_THINKING = ("<think", "<|channel")


@dataclass(frozen=True)
class Findings:
    """What is known of a server's model."""

    dialect: Dialect
    """What it understands."""
    served: str | None
    """What the server says that it serves, where that says more than the model's name."""
    context: int | None
    """Tokens of its context, where it says so."""
    thinks: bool
    """Whether it thinks before it answers, so that its first token is no answer."""


async def probe(session: Session, model: str, *, vllm: bool, merge: bool) -> Findings:
    """Ask a server for its models and send one small request, until it is answered.

    Args:
        session: The connection.
        model: The model's name.
        vllm: Whether to try to begin the assistant's turn.
        merge: Whether a system turn may be merged when the server refuses one.

    Raises:
        HabitusError: When the server cannot be reached or refuses all.
        ModelError: When it takes no system turn and merging is not wanted.
    """
    models = await session.models()
    entry = _entry(models, model)
    llama = entry.get("owned_by") == "llamacpp"
    dialect = Dialect(
        prefill=vllm,
        grammar=llama,
        limit="max_completion_tokens" if session.address.url == DEFAULT_URL else "max_tokens",
        # llama.cpp's answers else depend on what it was asked before, in their last digits
        extra=(("cache_prompt", False),) if llama else (),
    )
    failures = 0
    for _ in range(ROUNDS):
        answer, fault = await session.post(_body(model, dialect))
        if fault is None or fault.empty or fault.status is Status.TRUNCATED:
            return _findings(dialect, entry, model, None if fault else answer)
        if fault.scope == "again":
            failures += 1
            if failures == 3:
                break
            await asyncio.sleep(min(fault.wait or PAUSE * 2**failures, 30.0))
            continue
        changed = adapt(dialect, fault)
        if changed is None:
            break
        if dialect.system and not changed.system and not merge:
            raise ModelError(
                f"{model} at {session.address.host} takes no system turn "
                f"({session.scrub(fault.message)}); --no-system merge puts it into the user's turn"
            )
        dialect = changed
    assert fault is not None
    names = [str(other["id"]) for other in models if "id" in other]
    if fault.code == 404 and names and model not in names:
        raise UnknownNameError(f"model at {session.address.host}", model, names[:200])
    if fault.scope == "engine":
        raise session.refused(fault, model)
    said = session.scrub(fault.message)
    raise HabitusError(f"{session.address.host} does not answer a first small request: {said}")


def adapt(dialect: Dialect, fault: Fault) -> Dialect | None:
    """Return what to try after a refusal, or None when nothing is left to try."""
    said = fault.message.lower()
    if dialect.top and (fault.message == NO_LOGPROBS or (fault.code == 403 and "logprob" in said)):
        return replace(dialect, top=None)
    if fault.code not in (400, 422):
        return None
    if "max_completion_tokens" in said and dialect.limit == "max_tokens":
        return replace(dialect, limit="max_completion_tokens")
    if "logprob" in said and dialect.top:
        return replace(dialect, top=FEWER if dialect.top == TOP else None)
    for word, name in (("seed", "seed"), ("temperature", "temperature"), ("system", "system")):
        if word in said and getattr(dialect, name):
            return replace(dialect, **{name: False})  # type: ignore[arg-type]
    if dialect.prefill and re.search("continue_final|generation_prompt|assistant|prefill", said):
        return replace(dialect, prefill=False)
    return replace(dialect, top=None) if dialect.top else None


def _body(model: str, dialect: Dialect) -> dict[str, Any]:
    request = Request(
        group="",
        chat=(
            Turn("system", (Segment("You answer in one letter.", True),)),
            Turn("user", (Segment("Which letter comes first, A or B?", True),)),
        ),
        answer=BEGUN if dialect.prefill else "",
        max_tokens=8,
    )
    asked = {"logprobs": True, "top_logprobs": dialect.top} if dialect.top else {}
    return make_body(model, request, dialect) | asked


def _findings(
    dialect: Dialect, entry: Mapping[str, Any], model: str, answer: Mapping[str, Any] | None
) -> Findings:
    thinks = answer is None
    if answer is not None:
        text, top = text_reply(answer).text or "", first_token_top(answer)
        first = max(top, key=lambda pair: pair[1])[0].strip() if top else ""
        thinks = text.startswith("<think>") or first.startswith(_THINKING)
        dialect = replace(dialect, echo=dialect.prefill and text.startswith(BEGUN))
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    context = entry.get("max_model_len") or meta.get("n_ctx")
    name = str(entry.get("root") or entry.get("id") or model)
    if name.startswith("/") or "\\" in name or name.endswith(".gguf"):
        name = re.split(r"[/\\]", name)[
            -1
        ]  # a path says where the server keeps it: no one's matter
    if isinstance(meta.get("n_params"), int):
        name += f" ({meta['n_params']:,} weights)"
    return Findings(
        dialect=dialect,
        served=name if name != model else None,
        context=context if isinstance(context, int) else None,
        thinks=thinks,
    )


def _entry(models: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """Return the server's entry of a model; of its only model, when it has but one."""
    named = [entry for entry in models if entry.get("id") == model]
    if named:
        return named[0]
    return models[0] if len(models) == 1 else {}
