"""What goes over the wire to an OpenAI-compatible server, and what comes back: no input or output.

Bodies, label distributions, replies and faults are plain functions of JSON, so that each can be
read and tested without a server.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from habitus.clients.engine import Reply, Request
from habitus.prompts import Segment
from habitus.types import Status

TOP = 20
"""Most alternatives to a token that OpenAI's API lists, and vLLM's default limit."""
SEEDS = 2**31 - 1
"""Seeds are taken modulo this: some servers hold them in 32 bits."""
NEVER = -9000.0
"""Servers write minus infinity as a log-probability of about -9999."""
NOISE = 1e-6
"""Probabilities that are sums of rounded ones are known to about this."""
NO_LOGPROBS = "the server gave no log-probabilities"
"""What is wrong with an answer without them, when they were asked for."""

_CONTROL = re.compile(
    r"<(?=\||｜|/?s>|/?(?:start_of_turn|end_of_turn|bos|eos|unk|pad)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])"
)
_CONTEXT = re.compile(
    r"context.?(?:length|size|window)|too long|too many tokens|maximum.{0,20}tokens"
    r"|must be <=|output limit was reached",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(?:filter|policy|management)|moderation|flagged", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """What a server understands, as the first request to it found out."""

    top: int | None = TOP
    """How many alternatives to ask for; None when it gives no log-probabilities."""
    limit: str = "max_tokens"
    """Name of the field that limits the answer's tokens."""
    seed: bool = True
    """Whether it takes a seed."""
    temperature: bool = True
    """Whether it takes a temperature."""
    system: bool = True
    """Whether it takes a system turn; otherwise the text is merged into the user's turn."""
    prefill: bool = False
    """Whether the assistant's turn can be begun, in the way that vLLM and llama.cpp do."""
    echo: bool = False
    """Whether the answer repeats what the assistant's turn was begun with."""
    grammar: bool = False
    """Whether it writes under llama.cpp's grammars."""
    extra: tuple[tuple[str, bool], ...] = ()
    """Further fields of every body."""


@dataclass(frozen=True)
class Fault:
    """Why a request was not answered."""

    scope: Literal["again", "item", "engine"]
    """Whether to try again, to give up this request, or to give up altogether."""
    message: str
    """What the server said, one line, not yet scrubbed of secrets."""
    status: Status = Status.ERROR
    """Status of the reply when the request is given up."""
    code: int | None = None
    """HTTP status, where there was one."""
    wait: float | None = None
    """Seconds to wait, where the server says so."""
    empty: bool = False
    """Whether the server did answer, but with no text."""


def defang(segments: Sequence[Segment]) -> str:
    """Return the text of segments; control tokens within data are broken by a zero-width space.

    A server applies the model's template to text and then finds control tokens anywhere in it, so
    that a candidate could end its own turn. Only text from data is changed, and only there.
    """
    return "".join(
        segment.text if segment.trusted else _CONTROL.sub(lambda m: m[0] + "\u200b", segment.text)
        for segment in segments
    )


def chat_messages(request: Request, dialect: Dialect) -> list[dict[str, str]]:
    """Return a request's turns as the API's messages."""
    messages = [{"role": turn.role, "content": defang(turn.segments)} for turn in request.chat]
    if not dialect.system and len(messages) > 1 and messages[0]["role"] == "system":
        system, user = messages[0]["content"], messages[1]
        messages[:2] = [{"role": user["role"], "content": f"{system}\n\n{user['content']}"}]
    if request.answer:
        if not dialect.prefill:
            raise ValueError("this server cannot begin the assistant's turn (prefill is False)")
        messages.append({"role": "assistant", "content": request.answer})
    return messages


def make_body(model: str, request: Request, dialect: Dialect) -> dict[str, Any]:
    """Return the JSON body of a request.

    Labels are asked for at temperature 1, at which processed and raw distributions are the same;
    the token that the server happens to sample is not looked at, so neither is the seed.
    """
    body: dict[str, Any] = {"model": model, "messages": chat_messages(request, dialect)}
    body |= dict(dialect.extra)
    if request.answer:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if request.labels:
        if dialect.top is None:
            raise ValueError("this server gives no log-probabilities (logprobs is False)")
        body |= {dialect.limit: 1, "logprobs": True, "top_logprobs": dialect.top}
        return body | ({"temperature": 1.0} if dialect.temperature else {})
    body[dialect.limit] = request.max_tokens
    body |= {"grammar": request.grammar} if dialect.grammar and request.grammar else {}
    if dialect.temperature:
        body["temperature"] = request.temperature
        body |= {"top_p": request.top_p} if request.top_p < 1 else {}
    return body | ({"seed": request.seed % SEEDS} if dialect.seed else {})


def message_bytes(body: Mapping[str, Any]) -> int:
    """Return the UTF-8 bytes of a body's messages."""
    return sum(len(message["content"].encode()) for message in body["messages"])


def first_token_top(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the likeliest first tokens with their log-probabilities; empty when not given."""
    content = ((answer["choices"][0].get("logprobs") or {}).get("content")) or []
    top = content[0].get("top_logprobs") or [] if content else []
    pairs = [(str(entry["token"]), float(entry["logprob"])) for entry in top]
    return [(token, value) for token, value in pairs if value > NEVER]


def find_labels(top: Sequence[tuple[str, float]], labels: Sequence[str]) -> dict[str, float]:
    """Return the log-probability of each label that is listed.

    A label's probability is that of all tokens that are the label once stripped of white space:
    "A" and " A" give the same answer.
    """
    found = {}
    for label in labels:
        wanted = label.strip()
        same = [value for token, value in top if token.strip(" \t\r\nĠ▁") == wanted]
        if same:
            found[label] = _log_sum(same)
    return found


def label_floor(top: Sequence[tuple[str, float]]) -> float:
    """Return the most that a token outside the list can have, as a log-probability.

    No more than the least likely token listed, nor than all that the listed ones leave over.
    """
    left = 1 - math.fsum(math.exp(value) for _, value in top)
    return min(min(value for _, value in top), math.log(max(left, NOISE)))


def normalise(found: Mapping[str, float], labels: Sequence[str], floor: float) -> tuple[float, ...]:
    """Return log-probabilities among the labels; those not found get `floor`."""
    raw = [found.get(label, floor) for label in labels]
    total = _log_sum(raw)
    return tuple(round(value - total, 6) for value in raw)


def mass_of(found: Mapping[str, float]) -> float:
    """Return the probability of any label found: a lower bound where some are not listed."""
    return min(1.0, round(math.fsum(math.exp(value) for value in found.values()), 6))


def _log_sum(values: Sequence[float]) -> float:
    high = max(values)
    return high + math.log(math.fsum(math.exp(value - high) for value in values))


def usage(answer: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens read and written, 0 where the server does not say."""
    counts = answer.get("usage")
    given = counts if isinstance(counts, dict) else {}
    read, written = given.get("prompt_tokens"), given.get("completion_tokens")
    return read if isinstance(read, int) else 0, written if isinstance(written, int) else 0


def answer_limit(body: Mapping[str, Any]) -> int:
    """Return the most tokens that the answer to a body may have."""
    return int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)


def text_reply(answer: Mapping[str, Any], begun: str = "") -> Reply:
    """Return the reply of a text request.

    What a model thought, which servers give in a field of its own, is put in front between
    <think> tags, so that one parser reads every server. Thoughts that the token limit cut off
    stay unclosed.

    Args:
        answer: The server's answer.
        begun: The beginning of the assistant's turn, when the server repeats it.
    """
    choice = answer["choices"][0]
    message = choice["message"]
    finished = choice.get("finish_reason") != "length"
    text = _plain(message.get("content")).removeprefix(begun)
    thoughts = _plain(message.get("reasoning_content") or message.get("reasoning"))
    if thoughts:
        closing = "</think>" if finished or text else ""
        text = f"<think>{thoughts}{closing}{text}"
    read, written = usage(answer)
    return Reply(text=text, finished=finished, prompt_tokens=read, completion_tokens=written)


def _plain(content: Any) -> str:
    """Return the text of a content field: a string, or a list of parts."""
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if "text" in part)
    text = content if isinstance(content, str) else ""
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair fits into no file


def fault_in_answer(answer: Any, *, labels: bool) -> Fault | None:
    """Return what is wrong with an answer that came with HTTP status 200, if anything.

    Args:
        answer: The parsed body, or None when it is no JSON.
        labels: Whether log-probabilities were asked for.
    """
    if isinstance(answer, dict) and not answer.get("choices") and answer.get("error"):
        error = answer["error"]
        code = error.get("code") if isinstance(error, dict) else None
        return fault_of_status(code if isinstance(code, int) else 500, answer, {})
    try:
        choice = answer["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        refusal = message.get("refusal")
        given = (
            bool(first_token_top(answer))
            if labels
            else bool((text_reply(answer).text or "").strip())
        )
    except (TypeError, KeyError, IndexError, AttributeError, ValueError):
        return Fault("again", "the server's answer is no chat completion")
    if refusal or reason == "content_filter":
        said = str(refusal or "the server's content filter stopped it")
        return Fault("item", said, Status.REFUSED)
    if labels:
        return None if given else Fault("item", NO_LOGPROBS)
    if given or reason == "length":
        return None
    return Fault("again", "the server's text is empty", empty=True)


def fault_of_status(code: int, body: Any, headers: Mapping[str, str]) -> Fault:
    """Return what an HTTP status other than 200 means.

    Args:
        code: The status.
        body: The parsed body, or its text.
        headers: The response's headers, with lower-case names.
    """
    message = error_message(body)
    text = json.dumps(body, default=str) if isinstance(body, dict) else str(body)
    if code in (400, 413, 422) and _CONTEXT.search(text):
        return Fault("item", message, Status.TRUNCATED, code)
    if code in (400, 403) and _FILTERED.search(text):
        return Fault("item", message, Status.REFUSED, code)
    if code in (401, 402, 403, 404, 405) or "insufficient_quota" in text:
        return Fault("engine", message, code=code)
    if code in (408, 409, 429) or code >= 500:
        return Fault("again", message, code=code, wait=retry_after(headers))
    return Fault("item", message, code=code)


def error_message(body: Any) -> str:
    """Return what the server says is wrong, in one line of at most 300 characters."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error or "no message").split())[:300]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number or a date."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
