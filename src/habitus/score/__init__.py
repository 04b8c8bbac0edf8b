"""Score the responses in a file of any size with a reward model.

Rows are read, scored and written in chunks, so memory does not grow with the file. The scores are
in the order of the rows, and a killed run that is resumed writes the same bytes as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from habitus.errors import InputError, RunError
from habitus.progress import progress
from habitus.score.record import (
    Checkpoint,
    ScoreLog,
    ScoreRecord,
    read_record,
    record_path,
    written,
)
from habitus.score.responses import response_scorer
from habitus.score.rows import OWN_KEYS, Outcome, Prepared, finish, prepare, request
from habitus.score.source import Chunk, RowFile, Start, open_rows
from habitus.scorers import ScorerOptions, resolve
from habitus.store import hold, refuse_changes, versions
from habitus.types import ScorerSpec

__all__ = [
    "CHUNK_ROWS",
    "LocalRunner",
    "Runner",
    "ScorePlan",
    "response_scorer",
    "score_file",
]

CHUNK_ROWS = 1024
"""Rows that are scored together, and at most lost by a kill."""

LIBRARIES = ("ray", "tokenizers", "torch", "transformers")
"""Libraries whose versions the record holds, where they are installed."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ScorePlan:
    """What to score, and with what."""

    file: Path
    """JSONL or Parquet: rows of `prompt` and `response`, or of `prompt` and `responses`."""
    model: str
    """The reward model, as in `habitus.scorers.resolve`."""
    out: Path
    """Where the scores go; `OUT.run.json` beside it records what they are made of."""
    options: ScorerOptions = field(default_factory=ScorerOptions)
    """Options of the reward model."""
    keep: tuple[str, ...] = ()
    """Columns to copy to the scores."""
    limit: int | None = None
    """Score only the first so many rows. A resumed run may raise it."""
    chunk: int = CHUNK_ROWS
    """Rows that are scored together."""
    resume: bool = False
    """Go on in an existing file of scores."""

    def rows(self) -> RowFile:
        """Open the input.

        Raises:
            InputError: When it is no readable file.
        """
        return open_rows(self.file, {"id", "prompt", "response", "responses", *self.keep})


class Runner(Protocol):
    """Where chunks are scored."""

    def spec(self) -> ScorerSpec:
        """Return what the reward model is.

        Raises:
            HabitusError: When it cannot be loaded, or cannot score single responses.
        """
        ...

    def run(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Outcome]]:
        """Score chunks and yield them in their order."""
        ...

    def close(self) -> None:
        """Release the reward model."""
        ...


class LocalRunner:
    """Scores chunks one after the other, in this process."""

    def __init__(self, plan: ScorePlan) -> None:
        """Load the plan's reward model.

        Raises:
            HabitusError: When it cannot be loaded, or cannot score single responses.
        """
        self._plan = plan
        self._rows = plan.rows()
        self._scorer = resolve(plan.model, plan.options)
        try:
            self._responses = response_scorer(self._scorer)
        except InputError:
            self._scorer.close()
            raise

    def spec(self) -> ScorerSpec:
        """Return what the reward model is."""
        return self._scorer.spec

    def score(self, chunk: Chunk) -> Outcome:
        """Read and score one chunk."""
        return finish(self._prepare(chunk), self._responses)

    def _prepare(self, chunk: Chunk) -> Prepared:
        rows = self._rows.read(chunk)
        return prepare(rows, chunk.first.rows, self._responses, self._plan.keep)

    def run(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Outcome]]:
        """Score chunks in their order; each is read and encoded while the one before is scored."""
        with ThreadPoolExecutor(1) as pool:
            waiting: tuple[Chunk, Future[Prepared]] | None = None
            for chunk in chunks:
                following = (chunk, pool.submit(self._prepare, chunk))
                if waiting is not None:
                    yield waiting[0], finish(waiting[1].result(), self._responses)
                waiting = following
            if waiting is not None:
                yield waiting[0], finish(waiting[1].result(), self._responses)

    def close(self) -> None:
        """Release the reward model."""
        self._scorer.close()


def score_file(
    plan: ScorePlan,
    say: Say = lambda line: None,
    runner: Callable[[ScorePlan], Runner] | None = None,
) -> int:
    """Score a file.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        runner: Makes what scores the chunks; None scores them in this process.

    Returns:
        The number of rows whose scores are in `plan.out`.

    Raises:
        InputError: When the input is wrong. The scores of the rows before a bad one are kept.
        RunError: When the scores are locked, exist without `resume`, or were made otherwise.
        HabitusError: When the model cannot score at all. What was scored before is kept.
    """
    rows = plan.rows()
    _check(plan, rows)
    with closing((runner or LocalRunner)(plan)) as engine:
        new = ScoreRecord(
            scorer=engine.spec(),
            chunk=plan.chunk,
            keep=plan.keep,
            input=plan.file.name,
            versions=versions(LIBRARIES),
        )
        with hold(plan.out.with_name(f".{plan.out.name}.lock"), plan.out):
            old = _existing(plan, new, rows, say)
            if old and old.end and _complete(plan, old.end, rows):
                say(f"{plan.out} is complete: {old.end.rows:,} rows")
                return old.end.rows
            if old:
                new = new.model_copy(update={"boundary": old.boundary})
            return _score(plan, new, rows, engine, say)


def _check(plan: ScorePlan, rows: RowFile) -> None:
    """Refuse what is wrong from the start, before a model is loaded or a file is written."""
    clash = [name for name in plan.keep if name in OWN_KEYS]
    if clash:
        raise InputError(f"column {clash[0]} cannot be kept: the scores have a key of that name")
    if plan.out.resolve() in (plan.file.resolve(), record_path(plan.file).resolve()):
        raise InputError(f"--out {plan.out} would overwrite the input; name another file")
    first = next(rows.chunks(Start(), 1, 1), None)
    if first is None:
        raise InputError(f"{plan.file}: is empty; expected at least one row")
    for row in rows.read(first):
        request(row, 1, plan.keep)
    _refuse_existing(plan)


def _refuse_existing(plan: ScorePlan) -> None:
    """Refuse to write over anything: a file without a record, or scores without `resume`."""
    record = record_path(plan.out)
    if plan.out.exists() and not record.exists():
        raise RunError(f"{plan.out} exists and has no {record.name}; name another --out")
    if record.exists() and not plan.resume:
        raise RunError(f"{plan.out} holds scores; add --resume to go on, or name another --out")


def _existing(plan: ScorePlan, new: ScoreRecord, rows: RowFile, say: Say) -> ScoreRecord | None:
    """Return the record of the scores that are there already, checked; None when there are none.

    Raises:
        RunError: When they cannot be gone on with.
    """
    _refuse_existing(plan)  # once more: another process may have finished in the meantime
    old = read_record(plan.out)
    if old is None:
        if plan.resume:
            say(f"nothing to resume in {plan.out}: starting anew")
        return None
    refuse_changes(old.identity(), new.identity(), plan.out)
    at = old.boundary
    if at.rows and rows.sha256(at.position) != at.input_sha256:
        raise RunError(
            f"{plan.out} was made with another configuration: input ({plan.file}) differs in the "
            f"{at.rows:,} rows that are scored already; give the old file, or name another --out"
        )
    return old


def _complete(plan: ScorePlan, end: Checkpoint, rows: RowFile) -> bool:
    """Tell whether nothing is left to score and the scores are all there."""
    if not plan.out.exists() or plan.out.stat().st_size != end.scores_bytes:
        return False
    if written(plan.out, end) is None or rows.sha256(end.position) != end.input_sha256:
        return False
    if plan.limit is not None and end.rows >= plan.limit:
        return True
    return next(rows.chunks(end.start, 1), None) is None


def _score(plan: ScorePlan, record: ScoreRecord, rows: RowFile, engine: Runner, say: Say) -> int:
    """Score what is left, and write it down as it comes."""
    log = ScoreLog(plan.out, record)
    try:
        if log.rows:
            say(f"resuming {plan.out}: {log.rows:,} rows are done")
        chunks = rows.chunks(record.boundary.start, plan.chunk, plan.limit)
        total = rows.count(plan.limit)
        with progress(record.scorer.name, total, log.rows, unit="rows") as advance:
            for chunk, outcome in engine.run(chunks):
                log.append(outcome.lines, chunk)
                if outcome.error is not None:
                    raise InputError(outcome.error)
                advance(chunk.rows)
    except BaseException:
        with suppress(RunError):  # what went wrong first is what the user must hear
            log.close()
        say(f"stopped: {log.rows:,} rows are scored in {plan.out}; go on with --resume")
        raise
    log.close()
    return log.rows
