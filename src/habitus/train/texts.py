"""The texts of a study's pairs: each encoded once, scored once, whoever needs it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from habitus.clients import hf
from habitus.clients.encode import Encoded, Encoder
from habitus.progress import is_first, progress
from habitus.scorers.batching import BatchedScorer, Scored
from habitus.store import os_errors, write_atomic
from habitus.types import Message, PreferencePair, Status, digest

CHUNK = 4096
"""Texts that are encoded or scored between two signs of progress."""


def text_digest(prompt: Sequence[Message], response: str) -> str:
    """Name a text by what a reward model can see of it."""
    return digest([[[each.role, each.content] for each in prompt], response])


class Texts:
    """The different texts of pairs, encoded."""

    def __init__(self, pairs: Iterable[PreferencePair], encoder: Encoder) -> None:
        """Encode the texts of pairs.

        Args:
            pairs: The pairs.
            encoder: The one of the scorer: training and scoring read the same token ids.
        """
        texts: dict[str, tuple[Message, ...]] = {}
        self.of: dict[str, tuple[str, str]] = {}
        """Pair id to the digests of its preferred and its other text."""
        for pair in pairs:
            both = []
            for response in (pair.chosen, pair.rejected):
                name = text_digest(pair.prompt, response)
                texts.setdefault(name, (*pair.prompt, Message(role="assistant", content=response)))
                both.append(name)
            self.of[pair.id] = (both[0], both[1])
        self.encoded: dict[str, Encoded] = {}
        """Digest of each text to its token ids, or to why it has none."""
        names = list(texts)
        for start in range(0, len(names), CHUNK):
            part = names[start : start + CHUNK]
            found = encoder.encode([texts[name] for name in part])
            self.encoded |= dict(zip(part, found, strict=True))

    def problem(self, pair_id: str) -> str | None:
        """Return why a pair cannot be trained on, or None."""
        for name in self.of[pair_id]:
            text = self.encoded[name]
            if text.status is Status.TRUNCATED:
                return f"too long: {text.error}"
            if text.status is not Status.OK:
                return text.error or "not encoded"
            if not text.ids:
                return "no tokens"
        return None

    def ids(self, pair_id: str) -> tuple[Encoded, Encoded]:
        """Return both texts of a pair."""
        chosen, rejected = self.of[pair_id]
        return self.encoded[chosen], self.encoded[rejected]

    def score(self, scorer: BatchedScorer, pair_ids: Iterable[str]) -> dict[str, Scored]:
        """Score the texts of pairs, each once.

        Returns:
            Digest of each text to its reward, or to why it has none.
        """
        names = list(dict.fromkeys(name for each in pair_ids for name in self.of[each]))
        return dict(zip(names, scorer.run([self.encoded[name] for name in names]), strict=True))

    def records(
        self, pair_ids: Iterable[str], scores: Mapping[str, Scored]
    ) -> list[dict[str, object]]:
        """Return a line of `scores.jsonl` or `global.jsonl` for each pair."""
        found: list[dict[str, object]] = []
        for pair_id in pair_ids:
            both = [scores[name] for name in self.of[pair_id]]
            record: dict[str, object] = {"pair": pair_id}
            record |= {"chosen": both[0].value, "rejected": both[1].value}
            failed = next((each for each in both if each.value is None), None)
            if failed is not None:
                record |= {"status": str(failed.status), "error": failed.error}
            found.append(record)
        return found


def cache_folder(folder: Path | None) -> Path:
    """Return where scores are kept: `folder`, or a place in the user's cache."""
    return folder or user_cache_path("habitus") / "rewards"


def cached_scores(
    texts: Texts,
    scorer: BatchedScorer,
    folder: Path,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Scored]:
    """Score all texts with the base, or take from the cache what it has scored before.

    The cache goes by the digests of the text and of the scorer, with all its settings. Failures are
    not kept.

    Args:
        texts: The texts.
        scorer: The base.
        folder: The cache.
        say: Called with lines for the user.

    Raises:
        RunError: When the cache cannot be written.
    """
    path = folder / f"{scorer.spec.digest}.jsonl"
    with os_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
    # The processes of a launch work on it together; other launches wait.
    with FileLock(path.with_suffix(".lock")) if is_first() else nullcontext():
        kept = shared(_read_cache(path) if is_first() else None)
        found = {name: value for name, value in kept.items() if name in texts.encoded}
        left = [name for name in texts.encoded if name not in found]
        if found:
            say(f"{len(found):,} of {len(texts.encoded):,} scores of the base are in the cache")
        if left:
            # The longest first: what does not fit into memory shows at once.
            left.sort(key=lambda name: -len(texts.encoded[name].ids))
            with progress("scores of the base", len(left), unit="texts") as advance:
                for start in range(0, len(left), CHUNK):
                    part = left[start : start + CHUNK]
                    scored = dict(
                        zip(part, scorer.run([texts.encoded[at] for at in part]), strict=True)
                    )
                    found |= scored
                    if is_first():
                        _append_cache(path, scored)
                    advance(len(part))
    return found


def shared(value: Any) -> Any:
    """Return the first process's value in all processes of a launch."""
    if not hf.launched():
        return value
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value], from_process=0)[0]


def first_alone(work: Callable[[], Any], marker: Path) -> Any:
    """Return what `work` gives in the first process of a launch, in all of them.

    The others wait for a file and not for a message, which would be given up after some minutes.

    Args:
        work: What only the first process does.
        marker: The file; its folder is one that all processes see.
    """
    if not hf.launched():
        return work()
    token = shared(uuid.uuid4().hex)  # a marker of an earlier launch says nothing
    found = None
    if is_first():
        try:
            found = work()
        finally:
            write_atomic(marker, [token.encode()])
    else:
        while not marker.is_file() or marker.read_text(encoding="utf-8") != token:
            time.sleep(0.5)
    return shared(found)


def _read_cache(path: Path) -> dict[str, Scored]:
    found: dict[str, Scored] = {}
    if path.is_file():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError):  # torn by a kill: scored again
                    name, value = json.loads(line)
                    found[name] = Scored(float(value))
    return found


def _append_cache(path: Path, scores: Mapping[str, Scored]) -> None:
    lines = [
        json.dumps([name, each.value]) for name, each in scores.items() if each.value is not None
    ]
    with os_errors(path), path.open("a", encoding="utf-8") as file:
        # The break in front ends a line that a kill has torn.
        file.write("\n" + "".join(f"{line}\n" for line in lines))
