"""Pairs, a tiny judge and plans for the tests of Think-as-Locals. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from habitus.train.locals.model import ModelOptions
from habitus.train.locals.plan import GrpoSettings, LocalsPlan
from habitus.train.locals.rewards import RewardSettings
from habitus.train.locals.supervised import SupervisedSettings
from habitus.train.locals.warmup import SamplingSettings
from tests.tiny_models import make_language_model
from tests.training import make_pairs

CPU = ModelOptions(device="cpu", lora=2, threads=1)
TEXT = "<criteria>\n1. A long life.\n2. Soba noodles.\n</criteria>"


def tiny_judge(folder: Path, seed: int = 0) -> Path:
    """A random causal model with room for the judge's prompts."""
    return make_language_model(folder, "qwen2", seed=seed, max_position_embeddings=2048)


def small_plan(model: Path, out: Path, **fields: Any) -> LocalsPlan:
    """A plan of two steps of four completions for each of four prompts."""
    values: dict[str, Any] = {
        "pairs": make_pairs(8, ("Chile",)),
        "model": str(model),
        "out": out,
        "stage": "rl",
        "rewards": RewardSettings(),
        "grpo": GrpoSettings(
            steps=2, group=4, prompts_per_step=4, max_new_tokens=12, lr=1e-3, save_steps=1
        ),
        "sampling": SamplingSettings(samples=2, chunk=4),
        "supervised": SupervisedSettings(steps=4, batch_size=4, lr=1e-3, save_steps=2),
        "warmup_pairs": 3,
        "load": CPU,
    }
    return LocalsPlan(**(values | fields))
