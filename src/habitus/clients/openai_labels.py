"""Which letters of a begun answer a server's tokenizer joins with the labels that follow.

A server gets the beginning of an answer as text. Where `<judgement>A` ends in one token for ">A", a
prompt that ends in ">" is one that the model never saw, and "A" after it is nothing that it writes.
vLLM and llama.cpp say how they split a text, so the beginning can end before the ">".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from habitus.clients.engine import Request
from habitus.clients.labels import tell_apart
from habitus.errors import ModelError

MOST_LETTERS = 8
"""Most letters that are looked at."""

Tokenize = Callable[[str], Awaitable[list[int] | None]]
"""Returns the token ids of a text; None where the server does not say."""


async def joined_letters(tokenize: Tokenize, before: str, labels: Sequence[str]) -> int:
    """Return how many letters at the end of a begun answer are joined with each label.

    Args:
        tokenize: Asks the server.
        before: The begun answer's last line.
        labels: What follows.

    Returns:
        0 where nothing is joined, and where the server does not say.
    """
    texts = [before, *(before + label for label in labels)]
    ids = [await tokenize(text) for text in texts]
    known = [one for one in ids if one]
    if len(known) < len(texts):
        return 0
    stem, *whole = known
    try:
        found = tell_apart(stem, whole)
    except ModelError:
        return 0
    if not found.joined or found.shared:
        return 0
    kept = stem[: -len(found.joined)]
    for count in range(1, min(MOST_LETTERS, len(before) - 1) + 1):
        if await tokenize(before[:-count]) == kept:
            return count
    return 0


def without_joined(request: Request, count: int) -> Request:
    """Return a request that asks for labels together with the letters that they are joined with.

    Args:
        request: A request for labels after a begun answer.
        count: How many letters are joined.
    """
    if not count:
        return request
    begun, letters = request.answer[:-count], request.answer[-count:]
    return replace(request, answer=begun, labels=tuple(letters + label for label in request.labels))
