"""A budget of tokens that requests under way cannot overshoot by much.

What a request may cost is reserved before it is sent, and what it did cost is counted when it is
answered. There are no prices here: they change, and differ by hour, batch and contract.
"""

from __future__ import annotations

import asyncio
import math

from habitus.errors import HabitusError

FIRST_RATIO = 0.5
"""Tokens per UTF-8 byte that are assumed until the first answer shows the server's own ratio;
generous for every script but the rarest, so that the first requests do not overshoot."""


class TokenBudget:
    """Counts tokens, and says when no more may be spent. Used from one event loop."""

    def __init__(self, limit: int | None) -> None:
        """Start with nothing spent.

        Args:
            limit: Most tokens to spend, read and written; None counts without a limit.
        """
        self.limit = limit
        """Most tokens to spend."""
        self.prompt_tokens = 0
        """Tokens read so far."""
        self.completion_tokens = 0
        """Tokens written so far."""
        self._reserved = 0
        self._bytes = 0
        self._read = 0
        self._freed = asyncio.Condition()

    @property
    def spent(self) -> int:
        """Tokens read and written so far."""
        return self.prompt_tokens + self.completion_tokens

    def estimate(self, size: int, max_tokens: int) -> int:
        """Return how many tokens a request may cost.

        Args:
            size: UTF-8 bytes of its messages.
            max_tokens: Most tokens of its answer.
        """
        ratio = self._read / self._bytes if self._bytes else FIRST_RATIO
        return math.ceil(size * ratio) + max_tokens

    async def reserve(self, tokens: int) -> None:
        """Set tokens aside; where they do not fit, wait for requests under way to settle.

        Raises:
            HabitusError: When they do not fit although nothing is under way.
        """
        if self.limit is None:
            self._reserved += tokens
            return
        async with self._freed:
            while self.spent + self._reserved + tokens > self.limit:
                if not self._reserved:
                    raise HabitusError(
                        f"the budget of {self.limit:,} tokens is used up: {self.spent:,} are spent "
                        f"({self.prompt_tokens:,} read, {self.completion_tokens:,} written) and the "
                        f"next request may take {tokens:,}; what is finished is kept: "
                        "go on with --resume and a larger --budget-tokens"
                    )
                await self._freed.wait()
            self._reserved += tokens

    async def release(self, tokens: int) -> None:
        """Give back what was reserved for a request that has ended."""
        async with self._freed:
            self._reserved -= tokens
            self._freed.notify_all()

    def spend(self, size: int, prompt_tokens: int, completion_tokens: int) -> None:
        """Count the tokens of an answer.

        Args:
            size: UTF-8 bytes of the request's messages.
            prompt_tokens: Tokens read, as the server says.
            completion_tokens: Tokens written, as the server says.
        """
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if prompt_tokens:
            self._bytes += size
            self._read += prompt_tokens
