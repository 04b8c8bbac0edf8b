"""A policy's answers: drawn once, kept in a file that every reward model and run reuses.

An answer is named by all that it depends on: the policy, the prompt, the sampling settings, the
seed and its index. Each has random numbers and a request group of its own, so it does not depend
on the others, and a larger N keeps the answers of a smaller one. Answers are written in chunks,
and a resumed run keeps whole chunks only: it asks in the same batches as an unbroken one, and so
writes the same bytes also where a batch shows in the last digits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from habitus.clients.engine import Engine, Reply, Request, Turn, answers
from habitus.downstream.model import Generation, GenerationStatus, Sampling, TaskPrompt
from habitus.errors import RunError
from habitus.progress import progress
from habitus.prompts import Segment
from habitus.store import (
    append_whole,
    dump_line,
    hold,
    os_errors,
    safe_name,
    write_json,
)
from habitus.types import Status, digest

CHUNK = 512
"""Answers that are asked for at once, at most; at least those of one prompt."""

_FAILED = {Status.TRUNCATED: GenerationStatus.LONG, Status.REFUSED: GenerationStatus.REFUSED}


def file_name(task: str, policy: str, key: str) -> str:
    """Return the name of a generations file, with only letters that every file system takes."""
    return f"{safe_name(f'{task}__{policy}')[:100]}__{key}.jsonl"


def unit_of(policy: str, prompt: str, sampling: Sampling, seed: int, index: int) -> str:
    """Name an answer by all that it depends on.

    Args:
        policy: Digest of the policy.
        prompt: Digest of the prompt.
        sampling: How it is drawn.
        seed: The run's seed.
        index: Which of the prompt's answers.
    """
    return digest([policy, prompt, sampling.model_dump(mode="json"), seed, index])


def generation_file(
    folder: Path,
    task: str,
    name: str,
    policy: str,
    sampling: Sampling,
    seed: int,
    *,
    retry_failed: bool = False,
) -> GenerationFile:
    """Return the file of a policy's answers to a task, drawn in one way, in a folder of such files.

    Args:
        folder: The folder.
        task: The task's name.
        name: The policy's name.
        policy: Digest of the policy.
        sampling: How answers are drawn.
        seed: The run's seed.
        retry_failed: As in `GenerationFile`.
    """
    key = digest([policy, sampling.model_dump(mode="json"), seed], 12)
    return GenerationFile(folder / file_name(task, name, key), retry_failed=retry_failed)


class GenerationFile:
    """An append-only file of one policy's answers with one way of sampling and one seed."""

    def __init__(self, path: Path, *, retry_failed: bool = False) -> None:
        """Name the file; nothing is read or written before `open`.

        Args:
            path: The file.
            retry_failed: Forget answers whose status is "error".
        """
        self.path = path
        self._retry = retry_failed
        self._found: dict[tuple[str, int], Generation] = {}
        self._end = 0

    def open(self) -> None:
        """Read what is there; what follows the last whole chunk is left out.

        Raises:
            RunError: When a complete line is not a generation.
        """
        self._found, self._end = {}, 0
        if not self.path.exists():
            return
        chunk: list[Generation] = []
        offset = 0
        with os_errors(self.path), self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # torn by a kill
                offset += len(line)
                try:
                    chunk.append(Generation.model_validate_json(line))
                except ValidationError as error:
                    raise RunError(
                        f"{self.path}, line {number}: not a line of habitus downstream; delete it "
                        "and all after it, and --resume"
                    ) from error
                if chunk[-1].last:
                    self._keep(chunk)
                    chunk, self._end = [], offset

    def _keep(self, chunk: Iterable[Generation]) -> None:
        for one in chunk:
            key = (one.prompt, one.index)
            if self._retry and one.status is GenerationStatus.ERROR:
                self._found.pop(key, None)
            else:
                self._found[key] = one

    def missing(self, prompts: Iterable[str], n: int) -> list[tuple[str, list[int]]]:
        """Return the prompts that lack answers, each with the indices that it lacks."""
        lacking = (
            (prompt, [index for index in range(n) if (prompt, index) not in self._found])
            for prompt in dict.fromkeys(prompts)
        )
        return [(prompt, indices) for prompt, indices in lacking if indices]

    def answers(self, prompt: str, n: int) -> list[Generation]:
        """Return a prompt's first n answers, as far as they are there."""
        found = (self._found.get((prompt, index)) for index in range(n))
        return [one for one in found if one is not None]

    def append(self, chunk: Sequence[Generation]) -> None:
        """Write a chunk; it survives the process from here on.

        Raises:
            RunError: When it cannot be written. What was there before is still whole.
        """
        data = b"".join(map(dump_line, chunk))
        kept = f"; {len(self._found):,} answers are kept: make room and --resume"
        with os_errors(self.path, kept):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            os.truncate(self.path, self._end)
            with self.path.open("ab", buffering=0) as file:
                append_whole(file, self.path, self._end, data, kept)
        self._end += len(data)
        self._found |= {(one.prompt, one.index): one for one in chunk}

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write beside the file what its answers are made of, unless that is there."""
        beside = self.path.with_suffix(".json")
        if not beside.exists():
            write_json(beside, about, indent=2)


def generate(
    file: GenerationFile,
    prompts: Sequence[TaskPrompt],
    n: int,
    engine: Engine,
    policy: str,
    sampling: Sampling,
    seed: int,
    say: Callable[[str], None] = lambda line: None,
    *,
    numbers: str | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Ask a policy for the answers that a file lacks.

    Args:
        file: Where answers are kept.
        prompts: What is asked, in the order in which it is.
        n: Answers to each.
        engine: Runs the policy.
        policy: Digest of the policy.
        sampling: How answers are drawn.
        seed: The run's seed.
        say: Called with lines for the user.
        numbers: Digest of the policy whose random numbers are drawn with; None is its own. Two
            policies that are alike then say the same, and their difference has less noise.
        go_on: Asked after each chunk; False ends the asking early.

    Raises:
        RunError: When another process writes the file, or it cannot be written.
        HabitusError: When the engine cannot go on at all. What was answered before is kept.
    """
    with hold(file.path.with_name(f".{file.path.name}.lock"), file.path):
        file.open()
        by_digest = {prompt.digest: prompt for prompt in prompts}
        missing = file.missing(by_digest, n)
        if not missing:
            return
        done = len(by_digest) - len(missing)
        if done:
            say(f"{file.path}: the answers to {done:,} of {len(by_digest):,} prompts are there")
        with progress(f"answers of {engine.model}", len(by_digest), done, "prompts") as advance:
            for chunk in _chunks(missing, max(1, min(engine.window, CHUNK // n))):
                wanted = [(by_digest[name], index) for name, indices in chunk for index in indices]
                file.append(list(_ask(wanted, engine, policy, sampling, seed, numbers or policy)))
                advance(len(chunk))
                if not go_on():
                    return


def chat_of(prompt: TaskPrompt) -> tuple[Turn, ...]:
    """Return what a policy reads: the prompt's text is data, never a template."""
    return tuple(Turn(m.role, (Segment(m.content, False),)) for m in prompt.messages)


def _chunks(
    missing: Sequence[tuple[str, list[int]]], size: int
) -> Iterator[Sequence[tuple[str, list[int]]]]:
    return (missing[start : start + size] for start in range(0, len(missing), size))


def _ask(
    wanted: Sequence[tuple[TaskPrompt, int]],
    engine: Engine,
    policy: str,
    sampling: Sampling,
    seed: int,
    numbers: str,
) -> Iterator[Generation]:
    def units_of(policy: str) -> list[str]:
        return [unit_of(policy, prompt.digest, sampling, seed, index) for prompt, index in wanted]

    units = units_of(policy)
    requests = [
        Request(
            group=unit,  # nothing is shared, so an answer does not depend on what came before
            chat=chat_of(prompt),
            max_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=int(drawn[:8], 16) >> 1,
        )
        for (prompt, _), unit, drawn in zip(wanted, units, units_of(numbers), strict=True)
    ]
    replies = answers(engine, requests)
    for place, ((prompt, index), unit, reply) in enumerate(
        zip(wanted, units, replies, strict=True), 1
    ):
        yield Generation(
            unit=unit,
            prompt=prompt.digest,
            index=index,
            **outcome(reply),
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            last=True if place == len(wanted) else None,
        )


def outcome(reply: Reply) -> dict[str, Any]:
    """Return how a reply ended, with its text or why there is none, as a generation's fields."""
    if reply.status is not None:
        status = _FAILED.get(reply.status, GenerationStatus.ERROR)
        return {"status": status, "error": reply.error}
    text = (reply.text or "").encode("utf-8", "replace").decode()
    if not reply.finished:
        return {"status": GenerationStatus.CUT, "text": text}
    return {"status": GenerationStatus.OK if text.strip() else GenerationStatus.EMPTY, "text": text}


def published(
    prompts: Sequence[TaskPrompt], found: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, list[Generation]]:
    """Return published answers as generations: prompt's id to answers, in the order of models."""
    result = {}
    for prompt in prompts:
        result[prompt.id] = [
            Generation(
                unit=digest(["published", prompt.digest, model, text]),
                prompt=prompt.digest,
                index=index,
                status=GenerationStatus.OK if text.strip() else GenerationStatus.EMPTY,
                text=text,
                model=model,
            )
            for index, (model, text) in enumerate(found.get(prompt.id, ()))
        ]
    return result
