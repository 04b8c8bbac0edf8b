"""SCPO: one reward model per country, from the country's pairs and a global model (papers: SCPO).

`train_scpo` runs a study: every combination of countries, variants, folds, seeds and shares. See
`docs/scpo.md` for what it writes.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from habitus.errors import InputError, RunError
from habitus.pairs import non_commercial, pairs_digest
from habitus.progress import is_first, progress
from habitus.scorers.batching import Scored
from habitus.store import refuse_changes, versions, write_json
from habitus.train import study
from habitus.train.base import LoadOptions, load_base
from habitus.train.benchmark import Benchmarked
from habitus.train.fitting import CHECKPOINTS, Fitted, Row, Settings, fit, held
from habitus.train.losses import Weighting, weigh
from habitus.train.study import Grid, Unit
from habitus.train.texts import Texts, cache_folder, cached_scores
from habitus.types import PreferencePair

LIBRARIES = ("accelerate", "datasets", "numpy", "peft", "torch", "transformers", "trl")
"""Libraries whose versions a study records."""


@dataclass(frozen=True)
class ScpoPlan:
    """What to train."""

    pairs: Sequence[PreferencePair]
    """All pairs."""
    base: str
    """The global reward model: a folder, or an id on the Hub."""
    out: Path
    """Where the study goes."""
    grid: Grid
    """What is varied."""
    tau: float = 0.7
    """Pairs are kept where the global model gives them a probability below it."""
    beta: float = 1.1
    """How fast weights fall with the difference of the global rewards."""
    settings: Settings = field(default_factory=Settings)
    """How to train."""
    load: LoadOptions = field(default_factory=LoadOptions)
    """How the base is loaded."""
    limit: int | None = None
    """At most so many training pairs of a unit, and test pairs of a country."""
    evaluate: str | None = None
    """A benchmark that base and trained models are evaluated on."""
    keep_model: bool = False
    """Keep the trained models."""
    shard: tuple[int, int] = (1, 1)
    """(I, N): do only every N-th unit, from the I-th on."""
    resume: bool = False
    """Go on in an existing folder."""
    cache: Path | None = None
    """Where scores of the base are kept; None is the user's cache."""
    command: str | None = None
    """The command line, for the record."""


def train_scpo(
    plan: ScpoPlan,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[int], None] = lambda count: None,
) -> Path:
    """Train all units of a study that are not done yet.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        advance: Called with the number of steps just done, beside the progress that is shown.

    Returns:
        The study's folder.

    Raises:
        HabitusError: When a model or pairs cannot be used, or the folder was made otherwise.
    """
    plan.settings.check()
    if not 0 < plan.tau <= 1 or not plan.beta > 0:
        raise InputError(
            f"--tau {plan.tau:g} --beta {plan.beta:g}: tau must be in (0, 1], beta above 0"
        )
    part, parts = plan.shard
    if not 1 <= part <= parts:
        raise InputError(f"--shard {part}/{parts}: I must be in 1 to N")
    if is_first() and (plan.out / study.STUDY).exists() and not plan.resume and parts == 1:
        raise RunError(f"{plan.out} holds a study; add --resume to go on, or name another --out")
    with held(plan.out / f".lock-{part}-of-{parts}", plan.out):
        return _Study(plan, say, advance).run()


class _Study:
    """One process's work on a study."""

    def __init__(
        self, plan: ScpoPlan, say: Callable[[str], None], advance: Callable[[int], None]
    ) -> None:
        self.plan = plan
        self.say = say
        self.advance = advance
        wanted = set(plan.grid.countries)
        self.pairs = [pair for pair in plan.pairs if pair.country in wanted]
        self.units = plan.grid.units()
        self.versions = versions(LIBRARIES)
        own = {
            name: [pair for pair in self.pairs if pair.country == name]
            for name in plan.grid.countries
        }
        self.train = {
            unit: study.training_pairs(own[unit.country], unit, plan.limit) for unit in self.units
        }
        self.test = {
            fold: study.test_pairs(self.pairs, fold, plan.limit) for fold in plan.grid.folds
        }
        self._check()

    def _check(self) -> None:
        for unit, pairs in self.train.items():
            if not pairs:
                raise InputError(
                    f"{unit.country} has no training pairs with fold {unit.fold} held out; name "
                    "another --country or --fold"
                )

    def run(self) -> Path:
        plan = self.plan
        self.base = load_base(plan.base, plan.load)
        self._start()
        used = {pair.id for group in self.train.values() for pair in group}
        used |= {pair.id for group in self.test.values() for pair in group}
        pairs = [pair for pair in self.pairs if pair.id in used]
        self.texts = Texts(pairs, self.base.encoder)
        self.glo = cached_scores(self.texts, self.base.scorer(), cache_folder(plan.cache), self.say)
        if is_first():
            study.write_lines(plan.out / study.PAIRS, map(study.slim, pairs))
            ids = [pair.id for pair in pairs]
            study.write_lines(plan.out / study.GLOBAL, self.texts.records(ids, self.glo))
        self.benchmarked = Benchmarked(self.base, plan.evaluate, plan.out, self.say)
        self._units()
        return plan.out

    def _config(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "grid": asdict(plan.grid) | {"countries": list(plan.grid.countries)},
            "tau": plan.tau,
            "beta": plan.beta,
            **asdict(plan.settings),
            "limit": plan.limit,
            "evaluate": plan.evaluate,
            "keep_model": plan.keep_model,
            "pairs_digest": pairs_digest(plan.pairs),
            "base": self.base.spec.model_dump(mode="json"),
        }

    def _start(self) -> None:
        """Write `study.json`, or check that the one that is there says the same."""
        plan, path = self.plan, self.plan.out / study.STUDY
        # Through JSON and back: tuples become lists, as in the file.
        config = study.as_json(self._config())
        before = study.read_json(path)
        if before is not None:
            refuse_changes(before.get("config", {}), config, plan.out)
            return
        if not is_first():
            return
        spec = self.base.spec
        grid = plan.grid
        write_json(
            path,
            {
                "method": "scpo",
                "config": config,
                "pairs_digest": config["pairs_digest"],
                "base": {"name": spec.model, "revision": spec.revision, "digest": spec.digest},
                "countries": grid.countries,
                "variants": grid.variants,
                "folds": grid.folds,
                "seeds": grid.seeds,
                "shares": grid.shares,
                "n_units": len(self.units),
                "non_commercial": non_commercial(self.pairs),
                "versions": self.versions,
                "command": plan.command,
            },
        )

    def _units(self) -> None:
        units = study.shard_of(self.units, self.plan.shard)
        import_module("habitus.train.reward_trainer")
        # The trainer collects garbage in each unit; what is here by now stays to the end.
        gc.collect()
        gc.freeze()
        steps = {unit: self.plan.settings.steps(len(self._rows(unit)[0])) for unit in units}
        done = [unit for unit in units if self._is_done(unit)]
        if done:
            self.say(f"{len(done)} of {len(units)} units are done")
        before = sum(steps[unit] for unit in done)
        with progress(
            f"scpo, {len(units)} units", sum(steps.values()), before, unit="steps"
        ) as step:

            def advance(count: int) -> None:
                step(count)
                self.advance(count)

            for unit in units:
                if unit not in done:
                    self._unit(unit, advance)

    def _is_done(self, unit: Unit) -> bool:
        found = study.read_json(self._folder(unit) / study.RUN)
        return bool(found and found.get("done"))

    def _folder(self, unit: Unit) -> Path:
        return self.plan.out / study.UNITS / unit.name

    def _weigh(self, unit: Unit) -> Weighting:
        pairs = self.train[unit]
        both = np.array(
            [
                [np.nan if (value := self.glo[name].value) is None else value for name in names]
                for names in (self.texts.of[pair.id] for pair in pairs)
            ]
        )
        return weigh(unit.variant, both[:, 0], both[:, 1], tau=self.plan.tau, beta=self.plan.beta)

    def _rows(self, unit: Unit) -> tuple[list[Row], list[dict[str, Any]]]:
        """Return the rows of a unit, and a line of `filter.jsonl` for each of its pairs."""
        rows, records = [], []
        weighting = self._weigh(unit)
        for pair, p, weight, kept in zip(
            self.train[unit], weighting.p, weighting.weight, weighting.kept, strict=True
        ):
            problem = self.texts.problem(pair.id)
            record = {"pair": pair.id, "p": _rounded(p), "weight": _rounded(weight)}
            record["kept"] = bool(kept and problem is None)
            if problem is not None:
                record["why"] = problem
            elif not kept:
                known = not np.isnan(p)
                record["why"] = "p is not below tau" if known else "no score of the base"
            records.append(record)
            if record["kept"]:
                rows.append(Row(pair.id, *self.texts.ids(pair.id), float(weight) * pair.weight))
        return rows, records

    def _unit(self, unit: Unit, advance: Callable[[int], None]) -> None:
        plan, folder = self.plan, self._folder(unit)
        rows, records = self._rows(unit)
        if is_first():
            study.write_lines(folder / study.FILTER, records)
        test = [pair.id for pair in self.test[unit.fold]]
        with fit(self.base, rows, folder, plan.settings, unit.seed, advance) as (model, fitted):
            scores = self.texts.score(self.base.scorer(), test)
            if is_first():
                study.write_lines(folder / study.SCORES, self.texts.records(test, scores))
                if plan.keep_model:
                    self.base.save(model, folder / study.MODEL)
                self.benchmarked.run(folder, unit.name)
        if is_first():
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            write_json(folder / study.RUN, self._record(unit, rows, records, fitted, scores))

    def _record(
        self,
        unit: Unit,
        rows: Sequence[Row],
        records: Sequence[Mapping[str, Any]],
        fitted: Fitted,
        scores: Mapping[str, Scored],
    ) -> dict[str, Any]:
        plan = self.plan
        long = sum(str(each.get("why", "")).startswith("too long") for each in records)
        failed = sum(each.value is None for each in scores.values())
        return {
            **unit.identity,
            "tau": plan.tau,
            "beta": plan.beta,
            **asdict(plan.settings),
            "precision": plan.load.precision,
            "graphs": fitted.graphs,
            "context": self.base.encoder.parameters.get("limit"),
            "n_train": len(records),
            "n_kept": len(rows),
            "n_filtered": len(records) - len(rows) - long,
            "n_too_long": long,
            "n_test_texts": len(scores),
            "n_test_texts_failed": failed,
            "n_steps": fitted.n_steps,
            "n_skipped": fitted.n_skipped,
            "weights": weight_figures([row.weight for row in rows]),
            "seconds": fitted.seconds,
            "device": self.base.device.type,
            "versions": self.versions,
            "done": True,
        }


def weight_figures(weights: Sequence[float]) -> dict[str, float | None]:
    """Return least, quartiles, most and mean of weights; None where there are none."""
    names = ("min", "q25", "median", "q75", "max")
    if not weights:
        return dict.fromkeys((*names, "mean"))
    found = np.quantile(weights, [0, 0.25, 0.5, 0.75, 1])
    figures: dict[str, float | None] = {
        name: float(f"{value:.6g}") for name, value in zip(names, found, strict=True)
    }
    return figures | {"mean": float(f"{np.mean(weights):.6g}")}


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")
