"""Plain Bradley-Terry training of one reward model, weights of pairs honoured."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from habitus.errors import InputError, RunError
from habitus.pairs import non_commercial, pairs_digest
from habitus.progress import is_first, progress
from habitus.scorers.batching import Scored
from habitus.store import refuse_changes, versions, write_json
from habitus.train import study
from habitus.train.base import Base, LoadOptions, load_base
from habitus.train.benchmark import Benchmarked
from habitus.train.fitting import CHECKPOINTS, Row, Settings, fit, held
from habitus.train.scpo import LIBRARIES
from habitus.train.texts import Texts
from habitus.types import PreferencePair

TRAINING = "training"
"""Folder, inside the model's, of everything about its training."""

EXCLUDED = "excluded.jsonl"
"""Pairs that could not be trained on, and why."""


@dataclass(frozen=True)
class RmPlan:
    """What to train."""

    pairs: Sequence[PreferencePair]
    """All pairs; those of the part `test` are held out."""
    base: str
    """A folder, an id on the Hub or a known model: a classifier, or a causal model that gets a new
    reward head."""
    out: Path
    """Where the model goes: a folder for `classifier:`."""
    settings: Settings = field(default_factory=lambda: Settings(lr=1e-5, epochs=1))
    """How to train."""
    load: LoadOptions = field(default_factory=lambda: LoadOptions(new_head=True))
    """How the base is loaded."""
    seed: int = 0
    """Seed of the order of pairs, and of `limit`."""
    limit: int | None = None
    """At most so many training pairs, and so many test pairs."""
    evaluate: str | None = None
    """A benchmark that the model is evaluated on before and after."""
    resume: bool = False
    """Go on in an existing folder."""
    command: str | None = None
    """The command line, for the record."""


def train_rm(
    plan: RmPlan,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Train a reward model and save it.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        advance: Called with the number of steps just done, beside the progress that is shown.

    Returns:
        What `training/run.json` says.

    Raises:
        HabitusError: When the model or the pairs cannot be used, or the folder was made otherwise.
    """
    plan.settings.check()
    folder = plan.out / TRAINING
    if is_first() and (folder / study.STUDY).exists() and not plan.resume:
        raise RunError(f"{plan.out} holds a model; add --resume to go on, or name another --out")
    with held(folder / ".lock", plan.out):
        return _train(plan, folder, say, advance)


def _train(
    plan: RmPlan, folder: Path, say: Callable[[str], None], advance: Callable[[int], None]
) -> dict[str, Any]:
    found = study.read_json(folder / study.RUN)
    base = load_base(plan.base, plan.load)
    _start(plan, base, folder)
    if found and found.get("done"):
        say(f"{plan.out} is done")
        return found
    train, test = _parts(plan)
    texts = Texts([*train, *test], base.encoder)
    problems = {pair.id: texts.problem(pair.id) for pair in train}
    bad = [{"pair": name, "why": why} for name, why in problems.items() if why is not None]
    good = [pair for pair in train if problems[pair.id] is None]
    if not good:
        raise InputError(f"no pair can be trained on; the first: {bad[0]['why']}")
    rows = [Row(pair.id, *texts.ids(pair.id), pair.weight) for pair in good]
    if bad:
        say(f"{len(bad)} of {len(train)} pairs are left out: {folder / EXCLUDED}")
    if is_first():
        study.write_lines(folder / EXCLUDED, bad)
    ids = [pair.id for pair in test]
    before = texts.score(base.scorer(), ids)
    benchmarked = Benchmarked(base, plan.evaluate, folder, say)
    with progress("reward model", plan.settings.steps(len(rows)), unit="steps") as step:

        def both(count: int) -> None:
            step(count)
            advance(count)

        with fit(base, rows, folder, plan.settings, plan.seed, both) as (model, fitted):
            after = texts.score(base.scorer(), ids)
            if is_first():
                study.write_lines(folder / study.SCORES, texts.records(ids, after))
                base.save(model, plan.out)
                benchmarked.run(folder, plan.out.name)
    record = {
        **asdict(plan.settings),
        "seed": plan.seed,
        "precision": plan.load.precision,
        "graphs": fitted.graphs,
        "context": base.encoder.parameters.get("limit"),
        "new_head": bool(base.spec.parameters.get("new_head")),
        "n_train": len(train),
        "n_kept": len(rows),
        "n_excluded": len(bad),
        "n_steps": fitted.n_steps,
        "n_skipped": fitted.n_skipped,
        "test": {
            "before": accuracy(ids, texts, before),
            "after": accuracy(ids, texts, after),
        },
        "seconds": fitted.seconds,
        "device": base.device.type,
        "versions": versions(LIBRARIES),
        "done": True,
    }
    if is_first():
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        write_json(folder / study.RUN, record)
    return record


def _start(plan: RmPlan, base: Base, folder: Path) -> None:
    """Write the configuration, or check that the one that is there is the same."""
    config = study.as_json(
        {
            **asdict(plan.settings),
            "seed": plan.seed,
            "limit": plan.limit,
            "evaluate": plan.evaluate,
            "pairs_digest": pairs_digest(plan.pairs),
            "base": base.spec.model_dump(mode="json"),
        }
    )
    before = study.read_json(folder / study.STUDY)
    if before is not None:
        refuse_changes(before.get("config", {}), config, plan.out)
    elif is_first():
        spec = base.spec
        write_json(
            folder / study.STUDY,
            {
                "method": "bradley-terry",
                "config": config,
                "pairs_digest": config["pairs_digest"],
                "base": {"name": spec.model, "revision": spec.revision, "digest": spec.digest},
                "non_commercial": non_commercial(plan.pairs),
                "versions": versions(LIBRARIES),
                "command": plan.command,
            },
        )


def _parts(plan: RmPlan) -> tuple[list[PreferencePair], list[PreferencePair]]:
    train = [pair for pair in plan.pairs if pair.split != "test"]
    test = [pair for pair in plan.pairs if pair.split == "test"]
    if not train:
        raise InputError("all pairs are of the part test; there is nothing to train on")
    if plan.limit is not None:
        train = study.take(train, plan.limit, plan.seed)
        test = study.take(test, plan.limit, plan.seed)
    return train, test


def accuracy(
    pair_ids: Sequence[str], texts: Texts, scores: Mapping[str, Scored]
) -> dict[str, float | int | None]:
    """Return how often the preferred response has the higher reward.

    Args:
        pair_ids: The pairs.
        texts: Their texts.
        scores: Digest of each text to its reward.

    Returns:
        `value`: correct pairs, ties counting one half, over the pairs with both rewards (None when
        there are none); `n`, those pairs; `ties`; `n_excluded`, pairs without both rewards.
    """
    correct, ties, n = 0, 0, 0
    for pair_id in pair_ids:
        chosen, rejected = (scores[name].value for name in texts.of[pair_id])
        if chosen is None or rejected is None:
            continue
        n += 1
        correct += chosen > rejected
        ties += chosen == rejected
    value = (correct + ties / 2) / n if n else None
    return {"value": value, "n": n, "ties": ties, "n_excluded": len(pair_ids) - n}
