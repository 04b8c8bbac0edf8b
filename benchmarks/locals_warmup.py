"""What a supervised step of `habitus train locals` costs beside transformers' own trainer.

    python benchmarks/locals_warmup.py --device cuda --pairs PAIRS --model MODEL
    python benchmarks/locals_warmup.py --small

The same examples in each step, 16 of the warm-up's: kept criteria, verdicts after others, and plain
verdicts. Once as `--stage warmup` learns them: passes of one kind, logits of the answers only,
recorded as CUDA graphs on a GPU. And once as transformers' `Trainer` learns causal language models:
padded on the right, the library's own loss. Both learn the same examples in the same steps, of the
same model with the same adapter. Criteria are made up; pairs too, unless a folder of them is given.
Needs habitus[train].

Prints seconds of a step, as the mean over the last half of the steps: what is recorded is recorded
then, mostly. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from locals_step import make_pairs, save_model
from scpo_study import SHAPES, WORDS

from habitus.pairs import read_pairs
from habitus.train._trl import on_one_gpu
from habitus.train.locals.model import ModelOptions, Policy
from habitus.train.locals.prompting import Prompting, all_views
from habitus.train.locals.supervised import Example, SupervisedSettings, learn, make_examples
from habitus.train.locals.warmup import Sampled

torch: Any = import_module("torch")
transformers: Any = import_module("transformers")


def examples_of(policy: Policy, pairs: Any, settings: SupervisedSettings) -> list[Example]:
    """Return the examples of a warm-up whose criteria are made up, one in four of them kept."""
    draw = random.Random(0)
    views = all_views([pair for pair in pairs if pair.split != "test"], 0)
    sampled = []
    for view in views[:2000]:
        claims = (" ".join(draw.choices(WORDS, k=draw.randint(6, 24))) for _ in range(3))
        lines = "\n".join(f"{place}. {claim}." for place, claim in enumerate(claims, 1))
        text = f"<criteria>\n{lines}\n</criteria>"
        sampled.append(Sampled(view.item.id, view.key, text, 0.1, kept=draw.random() < 0.25))
    prompting = Prompting(translated=False, max_tokens=160, seed=0)
    return make_examples(policy, prompting, views, sampled, settings, 0)


class Clock:
    """Notes when steps end."""

    def __init__(self) -> None:
        """Start."""
        self.ends: list[float] = []

    def __call__(self, count: int) -> None:
        """Note the end of a step."""
        if count:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.ends.append(time.perf_counter())

    def seconds(self) -> float:
        """Return the mean over the last half of the steps."""
        taken = [end - begin for begin, end in zip(self.ends, self.ends[1:], strict=False)]
        return fmean(taken[len(taken) // 2 :])


def ours(policy: Policy, examples: list[Example], settings: SupervisedSettings, out: Path) -> Clock:
    """Learn the examples as the warm-up does."""
    clock = Clock()
    learn(policy, examples, out, settings, 0, advance=clock)
    return clock


def peer(policy: Policy, examples: Sequence[Example], settings: SupervisedSettings) -> Clock:
    """Learn the examples with transformers' own trainer and loss."""
    clock = Clock()

    class Ends(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock(1)

    def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
        width = max(len(row["labels"]) for row in rows)
        return {
            name: torch.tensor([row[name] + [value] * (width - len(row[name])) for row in rows])
            for name, value in fill.items()
        }

    size, draw = settings.batch_size, random.Random(0)
    steps = [list(examples[first : first + size]) for first in range(0, len(examples), size)]
    shuffled = [one for step in steps for one in draw.sample(step, size)]

    class Ordered(transformers.Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    rows = [
        {
            "input_ids": [*one.prompt, *one.answer],
            "attention_mask": [1] * (len(one.prompt) + len(one.answer)),
            "labels": [-100] * len(one.prompt) + list(one.answer),
        }
        for one in shuffled
    ]
    with tempfile.TemporaryDirectory() as folder:
        asked = transformers.TrainingArguments(
            folder, per_device_train_batch_size=settings.micro, max_steps=settings.steps,
            gradient_accumulation_steps=settings.batch_size // settings.micro, report_to=[],
            learning_rate=settings.lr, bf16=policy.bf16, save_strategy="no", logging_steps=1,
            disable_tqdm=True, remove_unused_columns=False, use_cpu=policy.device.type == "cpu",
        )  # fmt: skip
        trainer = Ordered(
            model=policy.trained, args=on_one_gpu(asked), train_dataset=rows, data_collator=collate,
            callbacks=[Ends()],
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return clock


def main() -> None:
    """Print both ways' seconds and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--small", action="store_true", help="a tiny model and few steps")
    parser.add_argument("--model", help=f"{', '.join(SHAPES)}, a folder, or a known model")
    parser.add_argument("--pairs", help="a folder of pairs; else made-up ones")
    parser.add_argument("--steps", type=int, help="(100)")
    parser.add_argument("--micro-batch", type=int, default=8)
    asked = parser.parse_args()
    if asked.steps == 1:
        parser.error("--steps 1: take 2 or more, the first step has no beginning")
    model = asked.model or ("tiny" if asked.small else "qwen2-0.5b")
    steps = asked.steps or (8 if asked.small else 100)
    settings = SupervisedSettings(
        steps=steps, micro_batch=asked.micro_batch, verdict_share=0.2, save_steps=10**6
    )
    pairs = read_pairs(Path(asked.pairs)) if asked.pairs else make_pairs(400, 80)
    found: dict[str, float] = {}
    ways: dict[str, Callable[[Policy, list[Example], Path], Clock]] = {
        "ours": lambda policy, examples, out: ours(policy, examples, settings, out),
        "transformers": lambda policy, examples, out: peer(policy, examples, settings),
    }
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if model in SHAPES:
            save_model(model, work / "model")
            model = str(work / "model")
        for name, way in ways.items():
            policy = Policy(model, ModelOptions(device=asked.device, say=print), work / "merged")
            policy.start(0)
            examples = examples_of(policy, pairs, settings)
            found[name] = way(policy, examples, work / name).seconds()
            policy.release()
            print(f"{name:<14}{found[name]:8.3f} s a step")
    ratio = found["ours"] / found["transformers"]
    print(f"a step takes {ratio:.2f} of the time of transformers' own trainer")
    print(
        json.dumps({"benchmark": "locals_warmup", "device": asked.device, "ratio": ratio} | found)
    )


if __name__ == "__main__":
    main()
