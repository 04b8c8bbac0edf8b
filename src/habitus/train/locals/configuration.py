"""What a training of a judge was asked for, as its `run.json` says, and when two are the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from habitus.errors import InputError, RunError
from habitus.pairs import pairs_digest
from habitus.train import study
from habitus.train.locals.model import Policy
from habitus.train.locals.plan import LocalsPlan
from habitus.train.locals.prompting import Prompting
from habitus.train.study import MODEL, RUN

METHOD = "think-as-locals"
WARMUP = "warmup"
"""Folder of the warm-up."""

OF_WARMUP = (
    *("model", "sampling", "supervised", "warmup_pairs", "prompts", "translated", "seed", "limit"),
    "pairs_digest",
)
"""What of a configuration a warm-up depends on."""
COUNTED = (
    *("n_criteria", "n_criteria_both_orders", "n_sampled", "shown_after_criteria"),
    "warmup_seconds",
)
"""What `run.json` says of a warm-up."""


def configuration(plan: LocalsPlan, policy: Policy, prompting: Prompting) -> dict[str, Any]:
    """Return all that can change a result.

    Args:
        plan: What was asked for.
        policy: The model.
        prompting: Makes the judge's requests.
    """
    return study.as_json(
        {
            "stage": plan.stage,
            "model": policy.about(),
            "rewards": asdict(plan.rewards),
            "grpo": asdict(plan.grpo),
            "sampling": asdict(plan.sampling),
            "supervised": asdict(plan.supervised),
            "warmup_pairs": plan.warmup_pairs,
            "prompts": prompting.digests,
            "translated": plan.translated,
            "seed": plan.seed,
            "limit": plan.limit,
            "pairs_digest": pairs_digest(plan.pairs),
            "evaluate_digest": None if plan.evaluate is None else pairs_digest(plan.evaluate),
            "evaluate_limit": plan.evaluate_limit,
        }
    )


def same_warm_up(other: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return what another run's `run.json` says, if its warm-up is what this one's would be.

    Raises:
        HabitusError: When it is not, or there is none.
    """
    before = study.read_json(other / RUN)
    theirs = (before or {}).get("config")
    if (
        before is None
        or not isinstance(theirs, dict)
        or before.get("method") != METHOD
        or not before.get("warmed_up")
        or not (other / WARMUP / MODEL).is_dir()
    ):
        raise RunError(
            f"--warmup-from {other}: no run of --stage both whose warm-up is done; let it come to "
            "its reinforcement first"
        )
    ours, theirs = identity(config), identity(theirs)
    differing = [name for name in OF_WARMUP if ours.get(name) != theirs.get(name)]
    if ours["grpo"]["max_new_tokens"] != theirs["grpo"].get("max_new_tokens"):
        differing.append("max_new_tokens")  # the most of what is sampled
    if differing:
        raise InputError(
            f"--warmup-from {other}: its warm-up is another, because these differ: "
            f"{', '.join(differing)}; give the same options, or leave it out"
        )
    return before


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what may change on resume: whether collapse ends a run.

    What older runs do not name is what it was then.
    """
    grpo = {key: value for key, value in config.get("grpo", {}).items() if key != "on_collapse"}
    supervised = {"verdict_steps": 0} | config.get("supervised", {})
    return config | {"grpo": grpo, "supervised": supervised}
