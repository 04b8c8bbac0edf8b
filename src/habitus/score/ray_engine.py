"""The same scoring over Ray Data: chunks go to a pool of actors, each with its own reward model.

Workers are handed the places of chunks, not texts, and read the file themselves. So the file, and
whatever files the model is made of, must be readable under the same path on every node. Chunks are
those of a local run and come back in their order: equal models write equal bytes.

Ray's usage statistics are switched off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from habitus.errors import HabitusError, InputError, MissingExtraError
from habitus.score import LocalRunner, ScorePlan
from habitus.score.rows import Outcome
from habitus.score.source import Chunk, Start
from habitus.scorers import ScorerOptions
from habitus.types import ScorerSpec

if TYPE_CHECKING:
    import numpy as np

MAX_BLOCKS = 10_000
"""Most tasks that Ray Data is given; with more chunks than this, a task is several chunks."""


class RayRunner:
    """Scores chunks on a Ray cluster, or on this machine when there is none."""

    def __init__(
        self, plan: ScorePlan, *, actors: int | None = None, gpus: float | None = None
    ) -> None:
        """Connect to Ray.

        Args:
            plan: What to score. The environment variable RAY_ADDRESS names the cluster; without
                it a Ray of this process is used, or started and stopped again.
            actors: How many copies of the reward model to load; None is as many as there are GPUs
                for, or CPUs where there is no GPU.
            gpus: GPUs of each copy, such as 0.5; None is 1 where there are GPUs, else 0.

        Raises:
            MissingExtraError: When Ray is not installed.
            InputError: When the cluster has not got what was asked for.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise MissingExtraError("scoring with Ray", "ray") from error
        self._ray: Any = ray  # much of it has no annotations
        self._owner = not ray.is_initialized()
        if self._owner:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        # The callback for messages belongs to this process: downloads on workers stay silent.
        self._plan = replace(
            plan,
            file=plan.file.absolute(),
            options=replace(plan.options, say=ScorerOptions().say),
        )
        self._actors, self._gpus = self._size(actors, gpus)

    def _size(self, actors: int | None, gpus: float | None) -> tuple[int, float]:
        """Return the number of actors and the GPUs of each."""
        there = self._ray.cluster_resources()
        all_gpus, all_cpus = float(there.get("GPU", 0)), int(there.get("CPU", 1))
        if gpus is None:
            gpus = 1.0 if all_gpus else 0.0
        most = min(all_cpus, int(all_gpus / gpus) if gpus else all_cpus)
        wanted = most if actors is None else actors
        if wanted < 1 or wanted > most:
            self.close()
            raise InputError(
                f"{wanted} actors with 1 CPU and {gpus:g} GPUs each do not fit into a Ray of "
                f"{all_cpus} CPUs and {all_gpus:g} GPUs; it has room for {most}"
            )
        return wanted, gpus

    def spec(self) -> ScorerSpec:
        """Load the reward model once on a worker, and return what it is.

        Raises:
            HabitusError: When it cannot be loaded, or cannot score single responses.
        """
        describe = self._ray.remote(num_cpus=1, num_gpus=self._gpus)(_describe)
        spec, error = self._ray.get(describe.remote(self._plan))
        if spec is None:
            raise HabitusError(error)
        return ScorerSpec.model_validate(spec)

    def run(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Outcome]]:
        """Score chunks and yield them in their order."""
        listed = list(chunks)
        if not listed:
            return
        places = [_row(index, chunk) for index, chunk in enumerate(listed)]
        data = self._ray.data.from_items(places, override_num_blocks=min(len(places), MAX_BLOCKS))
        scored = data.map_batches(
            _Worker,
            fn_constructor_args=(self._plan,),
            batch_size=1,
            batch_format="numpy",
            compute=self._ray.data.ActorPoolStrategy(size=min(self._actors, len(listed))),
            num_cpus=1,
            num_gpus=self._gpus,
        )
        scored.context.execution_options.preserve_order = True
        scored.context.enable_progress_bars = False
        scored.context.print_on_execution_start = False
        for expected, (row, chunk) in enumerate(zip(scored.iter_rows(), listed, strict=True)):
            if row["index"] != expected:
                raise HabitusError(f"Ray returned chunk {row['index']} in place of {expected}")
            yield chunk, Outcome(bytes(row["lines"]), row["error"] or None)

    def close(self) -> None:
        """Stop Ray, where this run has started it."""
        if self._owner:
            self._ray.shutdown()


def _describe(plan: ScorePlan) -> tuple[dict[str, Any] | None, str]:
    """Return a reward model's spec, or what is wrong; exceptions do not travel well."""
    try:
        runner = LocalRunner(plan)
    except HabitusError as error:
        return None, str(error)
    try:
        return runner.spec().model_dump(mode="json"), ""
    finally:
        runner.close()


def _row(index: int, chunk: Chunk) -> dict[str, Any]:
    """Describe a chunk in plain columns."""
    ends = {
        f"{end}_{key}": value
        for end, start in (("first", chunk.first), ("end", chunk.end))
        for key, value in asdict(start).items()
    }
    return {"index": index, "sha256": chunk.sha256, "whole": chunk.whole} | ends


class _Worker:
    """One copy of the reward model, in an actor."""

    def __init__(self, plan: ScorePlan) -> None:
        self._runner = LocalRunner(plan)

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        """Score a batch of one chunk."""
        import numpy as np

        row = {key: values[0] for key, values in batch.items()}
        first, end = (
            Start(*(int(row[f"{name}_{key}"]) for key in ("rows", "lines", "position")))
            for name in ("first", "end")
        )
        chunk = Chunk(first, end, str(row["sha256"]), bool(row["whole"]))
        try:
            outcome = self._runner.score(chunk)
        except HabitusError as error:  # the driver says it, in one line
            outcome = Outcome(b"", str(error))
        lines = np.empty(1, dtype=object)
        lines[0] = outcome.lines
        return {"index": batch["index"], "lines": lines, "error": [outcome.error or ""]}
