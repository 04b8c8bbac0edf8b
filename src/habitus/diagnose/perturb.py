"""Make a cue benchmark: edits of any benchmark's responses, mechanical and by a writer.

Tasks are worked off in their order: each parent, the edits that it has already, then the new ones.
A task ends as one line, of FILE or of FILE.failures.jsonl, so that a killed run's files are the
beginnings of an unbroken one's, and what has a line is not asked for again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.clients.engine import Engine, Reply, Request, answers
from habitus.clients.recognise import Lingua
from habitus.data import Benchmark, take
from habitus.diagnose.edits import (
    MECHANICAL,
    Target,
    choose,
    default_target,
    edit_id,
    edited_item,
    mechanical_text,
)
from habitus.diagnose.output import Failure, Output
from habitus.diagnose.writing import PROMPTS, Checked, Outcome, ask, check, load_prompt
from habitus.errors import InputError, RunError
from habitus.metrics.cues import CUES
from habitus.progress import progress
from habitus.store import hold, refuse_changes, write_atomic
from habitus.types import Candidate, Item, benchmark_digest, digest


@dataclass(frozen=True)
class WantedCue:
    """A kind of edit, and which candidate it edits."""

    cue: str
    """A key of `CUES`."""
    target: Target
    """The best candidate or a wrong one."""

    @property
    def name(self) -> str:
        """The name as given on the command line."""
        return self.cue if self.target == default_target(self.cue) else f"{self.cue}@{self.target}"


def parse_cues(text: str) -> tuple[WantedCue, ...]:
    """Read a list of cues such as "RC,LN,IN@best".

    Raises:
        InputError: When a cue or target is unknown or named twice.
    """
    found = []
    for part in (part.strip() for part in text.split(",")):
        cue, _, target = part.partition("@")
        if cue not in CUES:
            raise InputError(f"unknown cue {cue!r}; known: {', '.join(CUES)}")
        if target not in ("", "best", "rival"):
            raise InputError(f"{part}: the target is best or rival, found {target!r}")
        chosen: Target = "best" if target == "best" else "rival" if target else default_target(cue)
        wanted = WantedCue(cue, chosen)
        if wanted in found:
            raise InputError(f"cue {part} is named twice; name each once")
        found.append(wanted)
    return tuple(found)


@dataclass(frozen=True)
class PerturbPlan:
    """What to make, resolved."""

    benchmark: Benchmark
    """Whose responses to edit."""
    cues: tuple[WantedCue, ...]
    """The kinds of edits."""
    out: Path
    """The cue benchmark to write, JSONL."""
    writer: Engine | None = None
    """What writes the edits that are not mechanical; the caller closes it."""
    languages: tuple[str, ...] = ("en",)
    """BCP 47 tags that CL translates into; a response is not translated into its own language."""
    lingua: Lingua | None = None
    """Recognises languages; None checks the script alone."""
    limit: int | None = None
    """Edit only so many items, spread over cultures and domains."""
    seed: int = 0
    """Seed of the writer, of `limit` and of which wrong response is edited."""
    attempts: int = 3
    """How often a text is asked for before the edit is dropped."""
    temperature: float = 0.7
    """Sampling temperature of the writer."""
    max_tokens: int = 1024
    """Most tokens of one text, thinking included."""
    resume: bool = False
    """Go on in an existing file."""


@dataclass(frozen=True)
class Perturbed:
    """What was made."""

    path: Path
    """The cue benchmark."""
    n_items: int
    """Items in it, parents included."""
    made: Mapping[str, int]
    """Cue to the number of edits."""
    failed: Mapping[tuple[str, str], int]
    """Cue and status to the number of edits that could not be made."""


@dataclass(frozen=True)
class _Task:
    """One line to write."""

    id: str
    ready: Item | None = None
    """A line that is there already; else an edit of `parent`."""
    parent: Item | None = None
    candidate: Candidate | None = None
    cue: str = ""
    suffix: str = ""
    language: str | None = None
    """What to write in."""


def perturb(plan: PerturbPlan, say: Callable[[str], None] = lambda line: None) -> Perturbed:
    """Write a cue benchmark, and what could not be made beside it.

    Args:
        plan: What to do.
        say: Called with lines for the user.

    Raises:
        InputError: When a cue needs a writer and there is none.
        RunError: When FILE exists without `resume`, or was made otherwise.
        HabitusError: When the writer cannot go on at all. What was made before is kept.
    """
    tasks = list(_tasks(plan))
    output = Output(plan.out, plan.out.with_name(f"{plan.out.name}.failures.jsonl"))
    with hold(plan.out.with_name(f".{plan.out.name}.lock"), plan.out):
        _prepare(plan)
        output.open()
        strange = output.done.keys() - {task.id for task in tasks}
        if strange:
            raise RunError(
                f"{plan.out}: item {min(strange)!r} is not of this run; name another --out"
            )
        pending = [task for task in tasks if task.id not in output.done]
        if len(pending) < len(tasks):
            say(f"resuming {plan.out}: {len(tasks) - len(pending)} of {len(tasks)} lines are done")
        if pending:
            with progress(
                "perturb", len(tasks), len(tasks) - len(pending), unit="lines"
            ) as advance:
                for record in _work(plan, pending):
                    output.append(record)
                    advance(1)
    return _result(plan, output)


def _prepare(plan: PerturbPlan) -> None:
    """Write what makes the file, or check that an existing one is made the same way."""
    config = _config(plan)
    record = plan.out.with_name(f"{plan.out.name}.run.json")
    if plan.out.exists() and not plan.resume:
        raise RunError(f"{plan.out} exists; add --resume to go on, or name another --out")
    if record.exists() and plan.resume:
        try:
            old = json.loads(record.read_bytes())
        except ValueError as error:
            raise RunError(f"{record} is unreadable; name another --out") from error
        refuse_changes(old, config, plan.out)
        return
    if plan.out.exists():
        raise RunError(f"{plan.out} is there without {record.name}; name another --out")
    plan.out.with_name(f"{plan.out.name}.failures.jsonl").unlink(missing_ok=True)
    text = json.dumps(config, ensure_ascii=False, indent=2)
    write_atomic(record, [text.encode(), b"\n"])


def _config(plan: PerturbPlan) -> dict[str, Any]:
    written = [wanted.cue for wanted in plan.cues if wanted.cue in PROMPTS]
    writer = plan.writer
    return {
        "benchmark": plan.benchmark.name,
        "digest": benchmark_digest(plan.benchmark.items),
        "cues": ",".join(wanted.name for wanted in plan.cues),
        "languages": ",".join(plan.languages) if "CL" in written else None,
        "limit": plan.limit,
        "seed": plan.seed,
        "writer": None
        if writer is None
        else {
            "model": writer.model,
            "revision": writer.revision,
            "parameters": dict(writer.parameters),
            "attempts": plan.attempts,
            "temperature": plan.temperature,
            "max_tokens": plan.max_tokens,
            "prompts": digest([load_prompt(cue).digest for cue in written]),
        },
        "language_check": "lingua" if plan.lingua else "script",
    }


def _tasks(plan: PerturbPlan) -> Iterator[_Task]:
    needing = [w.name for w in plan.cues if w.cue not in MECHANICAL]
    if needing and plan.writer is None:
        raise InputError(
            f"{', '.join(needing)} need --writer MODEL; without one: {', '.join(MECHANICAL)}"
        )
    items = plan.benchmark.items
    parents = take([item for item in items if item.cue is None], plan.limit, plan.seed)
    if not parents:
        raise InputError(f"{plan.benchmark.name} has no items that are not edits themselves")
    known: dict[str, list[Item]] = {}
    for item in items:
        if item.cue is not None and item.parent_id:
            known.setdefault(item.parent_id, []).append(item)
    for parent in parents:
        edits = known.get(parent.id, [])
        taken = {edit.id for edit in edits}
        yield _Task(parent.id, parent)
        yield from (_Task(edit.id, edit) for edit in edits)
        for wanted in plan.cues:
            yield from (task for task in _edits(plan, parent, wanted) if task.id not in taken)


def _edits(plan: PerturbPlan, parent: Item, wanted: WantedCue) -> Iterator[_Task]:
    """Yield the tasks of one cue of one parent; CL has one for each language."""
    candidate = choose(parent, wanted.target, plan.seed)
    spoken = parent.language if candidate is None else candidate.language or parent.language
    suffix = "" if wanted.target == default_target(wanted.cue) else wanted.target
    languages = plan.languages if wanted.cue == "CL" else (spoken,)
    for language in languages:
        if wanted.cue == "CL" and _same_language(language, spoken):
            continue
        parts = [suffix, language if wanted.cue == "CL" else ""]
        ending = "-".join(part for part in parts if part)
        name = edit_id(parent.id, wanted.cue, ending)
        yield _Task(name, None, parent, candidate, wanted.cue, ending, language)


def _same_language(a: str | None, b: str | None) -> bool:
    return bool(a and b) and str(a).split("-")[0].lower() == str(b).split("-")[0].lower()


def _work(plan: PerturbPlan, pending: Sequence[_Task]) -> Iterator[Item | Failure]:
    """Yield each task's line, in order; writers get as many texts at once as they like."""
    window = 1 if plan.writer is None else max(1, plan.writer.window)
    batch: list[_Task] = []
    texts = 0
    for task in pending:
        batch.append(task)
        texts += _written(plan, task)
        if texts >= window or (not texts and len(batch) >= window):
            yield from _finish(plan, batch)
            batch, texts = [], 0
    yield from _finish(plan, batch)


def _written(plan: PerturbPlan, task: _Task) -> bool:
    """Whether a task is for the writer."""
    if task.ready is not None or task.candidate is None or task.parent is None:
        return False
    if task.cue not in PROMPTS or plan.writer is None:
        return False
    return task.cue != "RC" or mechanical_text(task.parent, task.candidate, "RC") is None


def _finish(plan: PerturbPlan, batch: Sequence[_Task]) -> Iterator[Item | Failure]:
    found: dict[str, tuple[Checked, int]] = {}
    left = [task for task in batch if _written(plan, task)]
    for attempt in range(1, plan.attempts + 1):
        if not left:
            break
        replies = _execute(plan, left, attempt)
        for task, reply in zip(left, replies, strict=True):
            assert task.parent is not None
            assert task.candidate is not None
            checked = check(
                reply, task.parent, task.candidate, task.cue, task.language, plan.lingua
            )
            found[task.id] = (checked, attempt)
        left = [task for task in left if found[task.id][0].status is not Outcome.OK]
    for task in batch:
        yield task.ready or _line(plan, task, found.get(task.id))


def _line(plan: PerturbPlan, task: _Task, written: tuple[Checked, int] | None) -> Item | Failure:
    parent, candidate = task.parent, task.candidate
    assert parent is not None
    if candidate is None:
        checked, attempts = Checked(Outcome.NOTHING, None, "the item has no wrong response"), 0
    elif written is not None:
        checked, attempts = written
    else:
        text = mechanical_text(parent, candidate, task.cue)
        nothing = Checked(Outcome.NOTHING, None, "no label of the list; a --writer can look closer")
        checked, attempts = (Checked(Outcome.OK, text) if text else nothing), 0
    if candidate is None or checked.status is not Outcome.OK or checked.text is None:
        return Failure(
            id=task.id,
            parent_id=parent.id,
            cue=task.cue,
            status=checked.status,
            reason=checked.reason,
            attempts=attempts,
            text=checked.text,
        )
    fields = {}
    if written is not None and plan.writer is not None:
        fields["source_model"] = plan.writer.model
    if task.cue == "CL" and task.language:
        fields["language"] = task.language
    return edited_item(parent, candidate.id, checked.text, task.cue, suffix=task.suffix, **fields)


def _execute(plan: PerturbPlan, tasks: Sequence[_Task], attempt: int) -> list[Reply]:
    assert plan.writer is not None
    return answers(plan.writer, [_request(plan, task, attempt) for task in tasks])


def _request(plan: PerturbPlan, task: _Task, attempt: int) -> Request:
    assert task.parent is not None
    assert task.candidate is not None
    unit = digest([plan.seed, task.id, task.parent.content_digest, attempt])
    return Request(
        group=unit,  # nothing is shared, so a reply does not depend on what came before
        chat=ask(task.parent, task.candidate, task.cue, task.language),
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        seed=int(unit[:8], 16) >> 1,
    )


def _result(plan: PerturbPlan, output: Output) -> Perturbed:
    made: Counter[str] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    for ending in output.done.values():
        cue, _, status = ending.partition("/")
        if status:
            failed[cue, status] += 1
        elif cue:
            made[cue] += 1
    n_items = sum("/" not in ending for ending in output.done.values())
    return Perturbed(plan.out, n_items, dict(made), dict(failed))
