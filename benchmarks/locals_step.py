"""What a step of `habitus train locals` costs, and what recorded tokens save.

    python benchmarks/locals_step.py --device cuda
    python benchmarks/locals_step.py --small

Runs `train_locals`, what `habitus train locals --stage rl` calls, for some steps: once as it is and,
on a GPU, once with the library's `generate` writing in place of tokens recorded as CUDA graphs. A
random model and made-up pairs, or a model and pairs of your own: no network. Needs torch,
transformers, trl, datasets, peft, pydantic.

Prints, without the first step (which sets up): seconds of a step and of its phases, tokens per
second of each (written ones; written and read ones for the others), the cost of R_appr as a share of
the step, and the ratio of the two ways of writing. A random model writes to the limit and never has
the form; R_appr is then asked for a stand-in of the same length, which costs as much. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import torch as typed_torch
import transformers as typed_transformers
from scpo_study import SHAPES, WORDS, make_tokenizer

from habitus.clients.transformers_engine import RECORD_VARIABLE
from habitus.pairs import read_pairs
from habitus.train.locals.model import ModelOptions
from habitus.train.locals.plan import GrpoSettings, LocalsPlan
from habitus.train.locals.run import train_locals
from habitus.types import Message, PreferencePair

torch: Any = typed_torch
transformers: Any = typed_transformers
"""Much of them has no types."""

TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def save_model(shape: str, folder: Path) -> None:
    """Save a random judge."""
    names = ("vocab_size", "hidden_size", "intermediate_size")
    more = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    fields: dict[str, Any] = dict(zip((*names, *more), SHAPES[shape], strict=True))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("qwen2", **fields, pad_token_id=0, eos_token_id=2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def make_pairs(count: int, words: int) -> list[PreferencePair]:
    """Return made-up pairs of a question and two responses of so many words together."""
    draw = random.Random(0)

    def text(share: float) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(max(1, round(share * words))))

    return [
        PreferencePair(
            id=f"p{number}", item_id=f"q{number}", group=f"q{number}",
            prompt=(Message(role="user", content=text(0.4)),),
            chosen=text(0.3), rejected=text(0.3), culture="Japanese", country="Japan",
        )
        for number in range(count)
    ]  # fmt: skip


def run(
    asked: argparse.Namespace, pairs: Sequence[PreferencePair], out: Path, *, recorded: bool
) -> list[dict[str, Any]]:
    """Train, and return the lines of the curve but the first."""
    grpo = GrpoSettings(
        steps=asked.steps + 1, group=asked.group, prompts_per_step=asked.prompts,
        micro_batch=asked.micro_batch, max_new_tokens=asked.tokens, on_collapse="warn",
        save_steps=10**6,
    )  # fmt: skip
    load = ModelOptions(device=asked.device, threads=asked.threads)
    plan = LocalsPlan(pairs=pairs, model=asked.model, out=out, grpo=grpo, load=load)
    with mock.patch.dict(os.environ, {RECORD_VARIABLE: str(int(recorded))}):
        train_locals(plan, print)
    lines = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    return lines[1:]


def means(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means of what steps cost."""
    names = ("seconds", "seconds_generate", "seconds_score", "seconds_train", "tokens")
    return {name: fmean(float(line[name]) for line in lines) for name in names}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--small", action="store_true", help="a tiny model and few short texts")
    parser.add_argument("--model", help=f"{', '.join(SHAPES)}, or a folder with a chat template")
    parser.add_argument("--pairs", help="a folder of pairs; else made-up ones")
    parser.add_argument("--words", type=int, help="of a made-up pair (80)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, help="of a step (16)")
    parser.add_argument("--tokens", type=int, help="of a completion (160)")
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    asked.prompts = asked.prompts or (4 if asked.small else 16)
    asked.tokens = asked.tokens or (16 if asked.small else 160)
    asked.model = asked.model or ("tiny" if asked.small else "qwen2-0.5b")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if asked.model in SHAPES:
            save_model(asked.model, work / "model")
            asked.model = str(work / "model")
        words = asked.words or (20 if asked.small else 80)
        pairs = read_pairs(Path(asked.pairs)) if asked.pairs else make_pairs(64, words)
        found = {"ours": means(run(asked, pairs, work / "ours", recorded=True))}
        if asked.device == "cuda":
            found["generate"] = means(run(asked, pairs, work / "plain", recorded=False))
    show(found, asked)


def show(found: Mapping[str, Mapping[str, float]], asked: argparse.Namespace) -> None:
    """Print the table and the line of JSON."""
    print(f"{'':12}{'step':>9}{'writing':>9}{'scoring':>9}{'learning':>9}{'tokens/s written':>18}")
    for name, each in found.items():
        phases = [each[f"seconds{what}"] for what in ("", "_generate", "_score", "_train")]
        rate = each["tokens"] / each["seconds_generate"]
        print(f"{name:12}" + "".join(f"{value:8.2f}s" for value in phases) + f"{rate:18,.0f}")
    ours = found["ours"]
    record: dict[str, Any] = {"benchmark": "locals_step", "device": asked.device, **found}
    record["scoring_share"] = ours["seconds_score"] / ours["seconds"]
    print(f"R_appr: {record['scoring_share']:.1%} of a step")
    if "generate" in found:
        plain = found["generate"]
        record["writing_ratio"] = plain["seconds_generate"] / ours["seconds_generate"]
        record["step_ratio"] = plain["seconds"] / ours["seconds"]
        print(
            f"writing: {record['writing_ratio']:.1f} times as fast as the library's loop, "
            f"a step {record['step_ratio']:.1f} times"
        )
    print(json.dumps(record))


if __name__ == "__main__":
    main()
