"""Benchmark accuracy before and after training, by the evaluation that `habitus evaluate` runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from habitus.data import load
from habitus.progress import is_first
from habitus.store import RunFolder, write_json
from habitus.train.base import Base
from habitus.types import ScorerSpec, benchmark_digest

BENCHMARK, BEFORE, AFTER = "benchmark.json", "benchmark-base", "benchmark"


class Benchmarked:
    """Evaluates models of a study on one benchmark; does nothing where none is named."""

    def __init__(
        self, base: Base, benchmark: str | None, out: Path, say: Callable[[str], None]
    ) -> None:
        """Evaluate the base.

        Args:
            base: The base, untrained.
            benchmark: The benchmark's name or file; None for none.
            out: The study's folder; the base's run goes there.
            say: Called with lines for the user.

        Raises:
            HabitusError: When the benchmark cannot be read, or the run folder not be used.
        """
        self._base = base
        self._say = say
        self._benchmark = load(benchmark) if benchmark else None
        self._before = None
        if self._benchmark is not None and is_first():
            with FileLock(out / f".{BEFORE}.lock"):  # of several shards, the first evaluates
                self._before = self._figures(out / BEFORE, base.spec)

    def run(self, folder: Path, name: str) -> None:
        """Evaluate the model as it is now, and write `benchmark.json` into `folder`.

        Args:
            folder: The unit's folder; its run goes there.
            name: What to call the model.
        """
        if self._benchmark is None or self._before is None:
            return
        spec = self._base.spec
        trained = trained_spec(spec, name, str(folder))
        after = self._figures(folder / AFTER, trained)
        about = {"name": self._benchmark.name, "digest": benchmark_digest(self._benchmark.items)}
        write_json(folder / BENCHMARK, {"before": self._before, "after": after, "benchmark": about})

    def _figures(self, out: Path, spec: ScorerSpec) -> dict[str, Any]:
        from habitus.evaluate import Plan, evaluate  # with tables and pages: only where asked for

        assert self._benchmark is not None
        scorer = self._base.scorer(spec, alone=True)
        plan = Plan(scorer=scorer, benchmark=self._benchmark, out=out, resume=True)
        return overall(evaluate(plan, self._quiet))

    def _quiet(self, line: str) -> None:
        if not line.startswith("nothing to resume"):
            self._say(line)


def trained_spec(spec: ScorerSpec, name: str, revision: str) -> ScorerSpec:
    """Name a trained model, so that its judgements are never taken for the base's."""
    return spec.model_copy(update={"model": name, "revision": revision})


def overall(folder: RunFolder) -> dict[str, Any]:
    """Return accuracy, number of items and interval over a whole run."""
    from habitus.evaluate.summary import read_metrics

    for metric in read_metrics(folder).metrics:
        if metric.name == "accuracy" and not metric.group:
            return metric.model_dump(mode="json")
    return {"value": None, "n": 0}
