"""A small chat completion server for tests that misbehaves on command, and engines on it."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from habitus.clients.engine import Request, Turn
from habitus.clients.openai_engine import create
from habitus.clients.openai_session import Patience
from habitus.prompts import Segment
from habitus.scorers import ScorerOptions


@dataclass
class Act:
    """What to do with one request."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    hang: bool = False
    reset: bool = False


def chat(text: str | None = "A", *, top=None, finish="stop", used=(10, 1), **message: Any) -> Act:
    """A chat completion; `top` is {token: probability} of the first token."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    if top is not None:
        entries = [{"token": token, "logprob": math.log(p)} for token, p in top.items()]
        choice["logprobs"] = {"content": [entries[0] | {"top_logprobs": entries}]}
    answer: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if used:
        answer["usage"] = {"prompt_tokens": used[0], "completion_tokens": used[1]}
    return Act(body=answer)


def refuse(status: int, message: str, **headers: str) -> Act:
    """An error in the usual form."""
    return Act(status, {"error": {"message": message}}, headers)


def is_probe(body: dict[str, Any]) -> bool:
    return "Which letter comes first" in json.dumps(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # joined by close
    request_queue_size = 128  # a full queue costs a second


class DummyServer:
    """Answers the first small request by itself, all others as `respond` says."""

    def __init__(
        self,
        respond: Callable[[dict[str, Any]], Act] = lambda body: chat(),
        *,
        script: tuple[Act, ...] = (),
        probe: Callable[[dict[str, Any]], Act] | None = None,
        models: list[dict[str, Any]] | None = None,
        split: Callable[[str], list[int]] | None = None,
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        """Bodies of the requests, but for the first small one."""
        self.probes: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most = 0
        """Most requests under way at once."""
        self._respond = respond
        self._script = list(script)
        self._probe = probe or (lambda body: chat(top={"A": 0.9} if "logprobs" in body else None))
        self._models = models
        self._split = split
        self.splits: list[dict[str, Any]] = []
        """Bodies of the requests for a text's token ids."""
        self._busy = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def act(self, body: dict[str, Any]) -> Act:
        with self._lock:
            if is_probe(body):
                self.probes.append(body)
                return self._probe(body)
            self.asked.append(body)
            if self._script:
                return self._script.pop(0)
        return self._respond(body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                found = server._models
                self._send(Act(404 if found is None else 200, {"data": found}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    server.splits.append(body)
                    split = server._split
                    self._send(Act(body={"tokens": split(body["prompt"])}) if split else Act(404))
                    return
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                with server._lock:
                    server._busy += 1
                    server.most = max(server.most, server._busy)
                act = server.act(body)
                time.sleep(act.delay)
                if act.hang:
                    server._closing.wait(20)
                with server._lock:
                    server._busy -= 1
                if act.hang or act.reset:
                    linger = struct.pack("ii", 1, 0)  # close with a reset
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.connection.close()
                    self.close_connection = True
                    return
                self._send(act)

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()

            def _send(self, act: Act) -> None:
                raw = act.body if isinstance(act.body, bytes) else json.dumps(act.body).encode()
                try:
                    self.send_response(act.status)
                    for name, value in {"Content-Type": "application/json", **act.headers}.items():
                        self.send_header(name.replace("_", "-"), value)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except OSError:
                    self.close_connection = True

        return Handler

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


QUICK = Patience(timeout=5, first=0.01, longest=0.05)
KEY = "key-7391-do-not-show"
LABELS = ("A", "B", "C", "D")


def connecting(monkeypatch):
    """Yield a function that starts a server and an engine; close all after the test."""
    monkeypatch.setenv("TEST_KEY", KEY)
    opened = []

    def start(
        respond=None,
        *,
        script=(),
        probe=None,
        models=None,
        split=None,
        patience=QUICK,
        **options,
    ):
        given = {"respond": respond} if respond else {}
        server = DummyServer(script=script, probe=probe, models=models, split=split, **given)
        opened.append(server)
        options = {"base_url": server.url, "api_key_env": "TEST_KEY"} | options
        engine = create("m", ScorerOptions(**options), patience)
        opened.append(engine)
        return server, engine

    yield start
    for thing in reversed(opened):
        thing.close()


def text(prompt="Hello", **fields):
    """A request of text."""
    turns = (Turn("user", (Segment(prompt, True),)),)
    return Request(**({"group": "g", "chat": turns, "max_tokens": 20} | fields))


def label(prompt="Which?", labels=LABELS, **fields):
    """A request of labels."""
    return text(prompt, labels=labels, max_tokens=0, **fields)


def echo(body):
    """Repeat the prompt."""
    return chat(f"re {body['messages'][-1]['content']}")
