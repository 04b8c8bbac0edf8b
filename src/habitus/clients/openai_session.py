"""A connection to an OpenAI-compatible server: retries, budget, and an event loop of its own.

The one module that asks chat models through the `openai` package. Its event loop runs in a thread of its own, so
that judges are plain functions, work inside notebooks too, and stop at once on Ctrl-C.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import random
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

from habitus.clients.budget import TokenBudget
from habitus.clients.openai_address import DEFAULT_KEY, Address
from habitus.clients.openai_wire import (
    Fault,
    answer_limit,
    error_message,
    fault_in_answer,
    fault_of_status,
    message_bytes,
    usage,
)
from habitus.errors import HabitusError
from habitus.types import Status

LISTING = 20.0
"""Seconds to wait for a server's list of models, which is a help but no need."""

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server that fails."""

    tries: int = 6
    """Most times that one request is sent."""
    empty_tries: int = 3
    """Most times when all that comes back is empty: greedy decoding will not change its mind."""
    timeout: float = 300.0
    """Seconds to wait for one answer."""
    total: float = 900.0
    """Seconds after which no further try of a request is begun."""
    first: float = 0.5
    """Seconds before the second try, at most; doubled for each further one."""
    longest: float = 30.0
    """Seconds between tries, at most, unless the server asks for more."""
    failures: int = 40
    """After so many requests in a row that were given up, the server counts as down."""


class RequestFailure(Exception):  # noqa: N818 - a failure is a status, not an error of the run
    """One request cannot be answered."""

    def __init__(self, status: Status, message: str) -> None:
        """Say how and why."""
        super().__init__(message)
        self.status = status


def _before_sending(error: Exception) -> bool:
    """Return whether a time-out happened while connecting."""
    return "Connect" in type(error.__cause__).__name__


class Session:
    """Sends bodies and returns answers. `run` works from any thread; the rest runs in its loop."""

    def __init__(
        self,
        address: Address,
        *,
        key: str | None,
        variable: str | None,
        concurrency: int,
        budget: int | None,
        patience: Patience,
    ) -> None:
        """Start the loop and the client; nothing is sent yet.

        Args:
            address: The server.
            key: Its key; None for a server that needs none.
            variable: The environment variable that the user named for it.
            concurrency: Most requests under way at once.
            budget: Most tokens to spend.
            patience: How long to go on with failures.
        """
        import openai  # takes half a second

        self.address = address
        """The server."""
        self.client_version = f"openai {version('openai')}"
        """The client library."""
        self.budget = TokenBudget(budget)
        """What was spent."""
        self.slots = asyncio.Semaphore(concurrency)
        """Held by each request under way."""
        self._openai = openai
        self._key = key
        self._variable = variable or DEFAULT_KEY
        self._patience = patience
        self._fatal: HabitusError | None = None
        self._ended = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        options: dict[str, Any] = {}
        if address.loopback:  # a proxy of the environment does not lead to this machine
            options["http_client"] = openai.DefaultAsyncHttpxClient(trust_env=False)
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=address.url,
            timeout=openai.Timeout(patience.timeout, connect=10.0),
            max_retries=0,
            **options,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="habitus-server", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it; Ctrl-C cancels it.

        Raises:
            HabitusError: As the coroutine does.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not future.done():  # wakes up now and then: for Ctrl-C, on every system
                concurrent.futures.wait([future], timeout=0.5)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def check(self) -> None:
        """Raise what ended the session, if anything did."""
        if self._fatal is not None:
            raise self._fatal

    def stop(self, error: HabitusError) -> HabitusError:
        """End the session: requests under way end, no other is sent. Returns the first error."""
        self._fatal = self._fatal or error
        self._ended.set()
        return self._fatal

    def scrub(self, text: str) -> str:
        """Return text without the key, should a server repeat it."""
        return text.replace(self._key, "***") if self._key else text

    async def models(self) -> list[dict[str, Any]]:
        """Return the server's list of models; empty when it has none to show."""
        try:
            raw = await self._client.models.with_raw_response.list(timeout=LISTING)
            listed = json.loads(raw.content).get("data")
        except (self._openai.APIStatusError, ValueError, AttributeError):
            return []
        except self._openai.APIConnectionError as error:
            if isinstance(error, self._openai.APITimeoutError) and not _before_sending(error):
                return []
            raise self.unreachable(error) from None
        return [entry for entry in listed or [] if isinstance(entry, dict)]

    async def tokenize(self, model: str, text: str) -> list[int] | None:
        """Return the token ids of a text; None where the server does not say (vLLM and llama.cpp do)."""
        root = self.address.url.rstrip("/").removesuffix("/v1")
        body = {  # the names of both
            "model": model,
            "prompt": text,
            "content": text,
            "add_special_tokens": False,
            "add_special": False,
        }
        try:
            async with asyncio.timeout(LISTING):
                found = await self._client.post(f"{root}/tokenize", cast_to=dict, body=body)
        except (self._openai.APIError, TimeoutError):
            return None
        ids = found.get("tokens") if isinstance(found, dict) else None
        right = isinstance(ids, list) and all(isinstance(one, int) for one in ids)
        return ids if right else None

    def unreachable(self, error: Exception) -> HabitusError:
        """Return the error of a server that cannot be reached."""
        cause = self.scrub(" ".join(str(error.__cause__ or error).split())[:200])
        return HabitusError(
            f"no server answers at {self.address.host} ({cause}); start it, or correct --base-url"
        )

    async def ask(self, body: Mapping[str, Any]) -> Any:
        """Send a body until it is answered.

        Args:
            body: The request.

        Returns:
            The server's answer, well formed.

        Raises:
            RequestFailure: When it is given up.
            HabitusError: When the budget is spent, or the server serves nobody.
        """
        self.check()
        amount = self.budget.estimate(message_bytes(body), answer_limit(body))
        try:
            await self.budget.reserve(amount)
        except HabitusError as error:
            raise self.stop(error) from None
        try:
            answer = await self._try(body)
        except RequestFailure as failure:
            if failure.status is Status.ERROR:
                self._count_failure(failure)
            raise
        finally:
            await self.budget.release(amount)
        self._failures = 0
        return answer

    def _count_failure(self, failure: RequestFailure) -> None:
        self._failures += 1
        if self._failures >= self._patience.failures:
            message = (
                f"{self.address.host} failed {self._failures} requests in a row, the last one so: "
                f"{failure}; what is finished is kept: mend the server, then go on with --resume"
            )
            raise self.stop(HabitusError(message))

    async def _try(self, body: Mapping[str, Any]) -> Any:
        patience, loop = self._patience, asyncio.get_running_loop()
        jitter = random.Random(json.dumps(body, sort_keys=True))  # noqa: S311 - spreads, hides nothing
        end = loop.time() + patience.total
        empty = 0
        for attempt in range(1, patience.tries + 1):
            await self._pause(self._not_before - loop.time())
            answer, fault = await self.post(body)
            if fault is None:
                return answer
            message = self.scrub(fault.message)
            if fault.scope == "engine":
                raise self.stop(self.refused(fault, body["model"]))
            if fault.scope == "item":
                raise RequestFailure(fault.status, message)
            empty += fault.empty
            wait = min(patience.longest, patience.first * 2 ** (attempt - 1))
            wait *= jitter.uniform(0.5, 1)
            if fault.wait is not None:  # the server speaks for all requests, not for this one
                wait = fault.wait * jitter.uniform(1, 1.1)
            late = loop.time() + wait > end
            if fault.wait is not None and not late:
                self._not_before = max(self._not_before, loop.time() + fault.wait)
            if late or attempt == patience.tries or empty == patience.empty_tries:
                break
            await self._pause(wait)
        times = f"{attempt} {'try' if attempt == 1 else 'tries'}"
        raise RequestFailure(Status.ERROR, f"given up after {times}: {message}")

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than the session lasts."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        self.check()

    async def post(self, body: Mapping[str, Any]) -> tuple[Any, Fault | None]:
        """Send a body once and return the answer, or what went wrong."""
        rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
        try:
            async with asyncio.timeout(self._patience.timeout):
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=body["model"], messages=body["messages"], extra_body=rest
                )
        except self._openai.APIStatusError as error:
            headers = {name.lower(): value for name, value in error.response.headers.items()}
            return None, fault_of_status(error.status_code, error.body, headers)
        except TimeoutError:
            return None, Fault("again", f"no answer within {self._patience.timeout:g} seconds")
        except self._openai.APIConnectionError as error:
            if isinstance(error, self._openai.APITimeoutError) and not _before_sending(error):
                return None, Fault("again", f"no answer within {self._patience.timeout:g} seconds")
            cause = error.__cause__ or error
            said = error_message(str(cause) or type(cause).__name__)
            return None, Fault("again", f"the connection failed: {said}")
        try:
            answer = json.loads(raw.content)
        except ValueError:
            return None, Fault("again", "the server's answer is no JSON")
        fault = fault_in_answer(answer, labels="logprobs" in body)
        if isinstance(answer, dict) and answer.get("choices"):
            self._count(body, answer)
        return answer, fault

    def _count(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        size, counts = message_bytes(body), usage(answer)
        if not any(counts):  # this server does not say: count what it may have been
            counts = (self.budget.estimate(size, 0), answer_limit(body))
        self.budget.spend(size, *counts)

    def refused(self, fault: Fault, model: str) -> HabitusError:
        """Return the error of a server that will answer no request, with what mends it."""
        said = f"({fault.code}: {self.scrub(fault.message)})"
        host = self.address.host
        if fault.code == 401:
            have = f"the key in {self._variable}" if self._key else "requests without a key"
            mend = f"put a valid key into {self._variable}, or name another with --api-key-env"
            return HabitusError(f"{host} refuses {have} {said}; {mend}")
        if fault.code in (402, 429):
            mend = "what is finished is kept: add credit, then go on with --resume"
            return HabitusError(f"the account at {host} has nothing left to spend {said}; {mend}")
        if fault.code == 403:
            mend = f"ask for access, or use another key than that in {self._variable}"
            return HabitusError(f"{host} does not allow the use of {model!r} {said}; {mend}")
        mend = "check the model's name, and that --base-url ends like http://127.0.0.1:8000/v1"
        return HabitusError(f"{host} has no chat model {model!r} at this address {said}; {mend}")

    def close(self) -> None:
        """Close the connections and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self.run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut_down(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._client.close()
        await asyncio.get_running_loop().shutdown_default_executor()
