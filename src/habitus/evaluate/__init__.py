"""Evaluate a reward model on a benchmark, into a run folder that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from habitus.data import Benchmark, take
from habitus.errors import RunError
from habitus.evaluate.summary import write_metrics
from habitus.progress import progress
from habitus.store import (
    JUDGEMENTS,
    RUN,
    JudgementLog,
    RunFolder,
    check_same,
    default_path,
    versions,
)
from habitus.types import Item, RunInfo, Scorer, benchmark_digest, unit_digest

LIBRARIES = (
    "accelerate",
    "numpy",
    "openai",
    "peft",
    "polars",
    "scipy",
    "torch",
    "transformers",
    "xllamacpp",
)
"""Libraries whose versions a run records."""


@dataclass(frozen=True)
class Plan:
    """What to evaluate, resolved."""

    scorer: Scorer
    """The reward model."""
    benchmark: Benchmark
    """The benchmark, whole."""
    out: Path | None = None
    """The run folder; None derives one from the names."""
    limit: int | None = None
    """Judge only so many items, spread over cultures and domains."""
    seed: int = 0
    """Seed of candidate orders and of `limit`."""
    resume: bool = False
    """Go on in an existing run folder."""
    retry_failed: bool = False
    """On resume, judge items again whose status is "error"."""
    command: str | None = None
    """The command line that does this, for the report."""

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.out or default_path(self.benchmark.name, self.scorer.spec.label, self.seed)


def evaluate(plan: Plan, say: Callable[[str], None] = lambda line: None) -> RunFolder:
    """Judge every item of the plan's benchmark and write the run folder.

    Args:
        plan: What to do.
        say: Called with lines for the user.

    Returns:
        The finished run folder, with `metrics.json` written.

    Raises:
        RunError: When the folder is locked, exists without `resume`, or was made otherwise.
        HabitusError: When the scorer cannot judge at all. What was judged before is kept.
    """
    folder = RunFolder(plan.path)
    items = plan.benchmark.items
    if plan.limit is not None:
        items = take(items, plan.limit, plan.seed)
    info = _resolve(plan, items)
    with folder.lock():
        _prepare(folder, info, items, plan, say)
        _judge(folder, info, items, plan, say)
        write_metrics(folder)
    return folder


def _resolve(plan: Plan, items: Sequence[Item]) -> RunInfo:
    spec = plan.scorer.spec
    return RunInfo(
        id=plan.path.name,
        config={
            "model": spec.name,
            "benchmark": {
                "name": plan.benchmark.name,
                "format": plan.benchmark.format,
                "digest": benchmark_digest(items),
            },
            "limit": plan.limit,
        },
        scorer=spec,
        seed=plan.seed,
        n_items=len(items),
        versions=versions(LIBRARIES),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=plan.command,
        notes=benchmark_notes(plan.benchmark),
    )


def benchmark_notes(benchmark: Benchmark) -> tuple[str, ...]:
    """Return what a reader must know of how the benchmark was read."""
    skipped = (f"{count} rows left out: {reason}" for reason, count in benchmark.skipped.items())
    return (*benchmark.notes, *skipped)


def _prepare(
    folder: RunFolder,
    info: RunInfo,
    items: Sequence[Item],
    plan: Plan,
    say: Callable[[str], None],
) -> None:
    """Write the configuration first, or check that an existing one is the same."""
    exists = (folder.path / RUN).exists()
    if exists and not plan.resume:
        raise RunError(f"{folder.path} holds a run; add --resume to go on, or name another --out")
    if exists:
        check_same(folder.info, info, folder.path)
        return
    if (folder.path / JUDGEMENTS).exists():
        raise RunError(f"{folder.path} holds judgements without {RUN}; name another --out")
    if plan.resume:
        say(f"nothing to resume in {folder.path}: starting anew")
    folder.start(info, items)


def _judge(
    folder: RunFolder,
    info: RunInfo,
    items: Sequence[Item],
    plan: Plan,
    say: Callable[[str], None],
) -> None:
    units = {item.id: unit_digest(item, info.scorer, info.seed) for item in items}
    log = JudgementLog(folder.path / JUDGEMENTS, units, retry_failed=plan.retry_failed)
    try:
        pending = [item for item in items if item.id not in log.done]
        if len(pending) < len(items):
            say(f"resuming {folder.path}: {len(log.done)} of {len(items)} items are done")
        if pending:
            with progress(info.scorer.name, len(items), len(log.done)) as advance:
                for judgement in plan.scorer.judge(pending, info.seed):
                    log.append(judgement)
                    advance(1)
        log.finish()
    except KeyboardInterrupt:
        say(f"stopped: {len(log.done)} of {len(items)} items are kept; go on with --resume")
        raise
    finally:
        log.close()
