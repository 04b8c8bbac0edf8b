"""References, and a writer that replays recorded answers, for tests of `habitus build`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from habitus.build import BuildPlan, build
from habitus.clients.engine import Reply, Request
from habitus.prompts import plain

FACTS = {
    "jp": "Guests take off their shoes in the entrance hall and step up in slippers.",
    "de": "Guests arrive on the minute and hand the host unwrapped flowers at the door.",
    "ru": "Guests never shake hands across the threshold and wait until they are inside.",
    "th": "Guests greet elders with palms pressed together and a bow of the head.",
    "kr": "Younger people turn their head aside and cover the glass beside seniors.",
}
CULTURES = {"jp": "Japanese", "de": "German", "ru": "Russian", "th": "Thai", "kr": "Korean"}
QUESTIONS = {
    "jp": "I am invited to a home in Osaka. What do I do first?",
    "de": "Dinner at a colleague's flat in Bonn: how do I turn up?",
    "ru": "My neighbour in Perm opens the door. How do we say hello?",
    "th": "I meet my friend's grandmother in Chiang Mai. What is polite?",
    "kr": "My boss in Busan pours me soju. How do I drink it?",
}
ANSWERS = {
    "jp": "You take off your shoes in the entrance hall and wear slippers.",
    "de": "You arrive on the minute and hand the host unwrapped flowers.",
    "ru": "You never shake hands across the threshold but wait until inside.",
    "th": "You greet elders with palms pressed together and bow your head.",
    "kr": "You turn your head aside and cover the glass beside seniors.",
}
KINDS = {
    "You translate notes": "fact",
    "You write short test questions": "question",
    "You answer questions": "answer",
    "You rewrite sentences": "length",
}


def reference(name: str, **fields: Any) -> dict[str, Any]:
    """A line of a file of references."""
    return {
        "id": name,
        "culture": CULTURES[name],
        "language": "en",
        "domain": "commonsense",
        "topic": "drinks" if name == "kr" else "visiting",
        "text": FACTS[name],
        "source": {"title": f"Guide {name}", "publisher": "Test Press"},
        "licence": "CC-BY-4.0",
    } | fields


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    """Write JSONL."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def recording(path: Path, **changes: Sequence[str]) -> Path:
    """Write what the writer answers: JSONL of kind, name and the texts of each try.

    Args:
        path: The file.
        **changes: Such as `answer_jp=["first try", "second try"]`; the last try is repeated.
    """
    texts = {f"question_{name}": [text] for name, text in QUESTIONS.items()}
    texts |= {f"answer_{name}": [text] for name, text in ANSWERS.items()}
    lines = []
    for key, tries in (texts | changes).items():
        kind, _, name = key.partition("_")
        lines.append({"kind": kind, "name": name, "tries": list(tries)})
    return write_lines(path, lines)


def kind_of(system: str) -> str:
    return next(kind for start, kind in KINDS.items() if system.startswith(start))


def name_of(kind: str, user: str) -> str:
    """Which fact is shown, or, for a rewrite, whose answer by its first words."""
    if kind == "length":
        text = user.split("<answer>\n")[1].split("\n</answer>")[0]
        return next(name for name, answer in ANSWERS.items() if text[:12] == answer[:12])
    note = user.split("<note>\n")[1].split("\n</note>")[0]
    return next(name for name, fact in FACTS.items() if note == fact)


class Replay:
    """Answers from a recording; equal requests with equal seeds get equal answers."""

    revision = None
    prefill = logprobs = labels_exact = False

    def __init__(self, recorded: Path, model: str = "writer", window: int = 1) -> None:
        self.model = model
        self.window = window
        self.parameters = {"engine": "replay 1"}
        self.asked: list[tuple[str, str, int]] = []
        """Kind, name and seed of each request."""
        self.requests: list[Request] = []
        self.stop_at: int | None = None
        """Raise KeyboardInterrupt at the request with this number, counted from 0."""
        rows = [json.loads(line) for line in recorded.read_text(encoding="utf-8").splitlines()]
        self._tries = {(row["kind"], row["name"]): row["tries"] for row in rows}
        self._given: dict[tuple[str, int], str] = {}
        self._count: dict[str, int] = defaultdict(int)

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        if self.stop_at is not None and len(self.asked) == self.stop_at:
            raise KeyboardInterrupt
        system, user = (plain(turn.segments) for turn in request.chat)
        kind = kind_of(system)
        name = name_of(kind, user)
        self.asked.append((kind, name, request.seed))
        self.requests.append(request)
        key = (system + user, request.seed)
        if key not in self._given:
            tries = self._tries[kind, name]
            self._given[key] = tries[min(self._count[key[0]], len(tries) - 1)]
            self._count[key[0]] += 1
        text = self._given[key]
        finished = not text.endswith("...")
        return Reply(text=text, finished=finished, prompt_tokens=100, completion_tokens=10)

    def close(self) -> None:
        pass


class Case:
    """A build in a temporary folder."""

    def __init__(self, folder: Path, lines: Sequence[Any] | None = None, **changes: Any) -> None:
        given = [reference(name) for name in FACTS] if lines is None else lines
        self.folder = folder
        self.references = write_lines(folder / "references.jsonl", given)
        self.engine = Replay(recording(folder / "recorded.jsonl", **changes))

    def run(self, name: str = "out", engine: Any = None, languages: Any = None, **plan: Any) -> Any:
        settings = {"writer": "writer", "culture": "Japanese"} | plan
        made = BuildPlan(references=self.references, out=self.folder / name, **settings)
        writer = engine or self.engine
        return build(made, start=lambda _: writer, languages=lambda tags: languages)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a build but for the one that holds the time."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("build.json", ".lock")
    }
