"""Classifier scoring: ours against the loop of other tools, on the same model and texts.

    python benchmarks/classifier_throughput.py --device cuda
    python benchmarks/classifier_throughput.py --device cpu --small
    torchrun --nproc-per-node 2 benchmarks/classifier_throughput.py --device cuda   # several GPUs

A random model (Qwen2-0.5B's shape; with --small 20 M parameters) and texts of random token ids with
lognormal lengths: no network. The other loop takes texts in their order, 8 at a time, all chosen
ones first and then all rejected ones, padded to the longest of the batch with an attention mask.
Ours is the `Runner` that `habitus evaluate classifier:...` uses. Loops alternate, after a warm-up;
the best of --repeats counts for each. With several processes ours runs on all of them, as under
`accelerate launch`, and the first one alone runs the other loop before. Needs torch, transformers, numpy and pydantic only.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from habitus.clients import hf
from habitus.clients.compiling import compile_layers
from habitus.clients.encode import Encoded
from habitus.scorers.adapters import LastToken
from habitus.scorers.batching import CHUNK, CHUNKS
from habitus.scorers.heads import Selection
from habitus.scorers.ranks import Ranks
from habitus.scorers.runner import Runner

SHAPES = {
    "qwen2-0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "small": {
        "vocab_size": 8192,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
    },
}
"""Shapes of the models; the second has about 20 M parameters."""

PEERS = 8
"""Batch size of the other loop."""

SAMPLE = 96
"""Texts whose rewards are compared with float32."""


def make_model(shape: str, device: torch.device, dtype: torch.dtype) -> Any:
    """Return a random classifier with its head in float32, as it is loaded by us."""
    torch.manual_seed(0)
    fields: dict[str, Any] = {**SHAPES[shape], "num_labels": 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model("qwen2", **fields)
    auto: Any = transformers.AutoModelForSequenceClassification
    with torch.device(device):
        model = auto.from_config(config)
    return model.to(dtype).eval()


def make_texts(count: int, vocabulary: int, longest: int) -> list[Encoded]:
    """Return texts of lognormal lengths, about 210 tokens on average."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.1, 0.7, count), 16, longest).astype(int)
    return [
        Encoded(rng.integers(1, vocabulary, size).tolist(), 1, size) for size in lengths.tolist()
    ]


def peers_loop(model: Any, texts: Sequence[Encoded], device: torch.device) -> list[float]:
    """Score as other tools do, and return rewards in the order of `texts`."""
    found = [0.0] * len(texts)
    for side in (0, 1):
        rows = range(side, len(texts), 2)
        for begin in range(0, len(rows), PEERS):
            batch = rows[begin : begin + PEERS]
            width = max(len(texts[row].ids) for row in batch)
            ids = torch.zeros(len(batch), width, dtype=torch.long)
            mask = torch.zeros(len(batch), width, dtype=torch.long)
            for at, row in enumerate(batch):
                ids[at, : len(texts[row].ids)] = torch.tensor(texts[row].ids)
                mask[at, : len(texts[row].ids)] = 1
            with torch.no_grad():
                logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
            for row, value in zip(batch, logits[:, 0].float().cpu().tolist(), strict=True):
                found[row] = value
    return found


def our_loop(ranks: Ranks, texts: Sequence[Encoded], chunk: int) -> list[float]:
    """Score chunk by chunk, as `judge` does."""
    found: list[float] = []
    begin = 0
    while begin < len(texts):
        end, tokens = begin, 0
        while end < len(texts) and tokens < chunk:
            tokens += len(texts[end].ids)
            end += 1
        found += [float(reward) for reward in ranks.run(texts[begin:end])]
        begin = end
    return found


def seconds(run: Callable[[], Any], device: torch.device) -> float:
    """Return the wall-clock time of a run."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the machine's rate of matrix products, in FLOP/s: 8192 cubed, 1024 on a CPU."""
    size = 1024 if device.type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    repeats = 20
    took = seconds(lambda: [a @ b for _ in range(repeats)], device)
    return float(2 * size**3 * repeats / took)


def flops_per_token(model: Any) -> int:
    """Return the floating point operations of a token's matrix products; attention not counted."""
    embeddings = model.get_input_embeddings().weight.numel()
    return int(2 * (sum(weight.numel() for weight in model.parameters()) - embeddings))


def report(name: str, took: float, tokens: int, count: int, share: float, waste: float) -> None:
    """Print a line of results."""
    print(
        f"{name:28} {took:8.2f} s  {count / took:8.0f} texts/s  {tokens / took:9.0f} "
        f"tokens/s  padding {waste:5.1%}  {share:5.1%} of the matmul rate"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default=None, help="float32 on a CPU, bfloat16 elsewhere")
    parser.add_argument("--small", action="store_true", help="a model of 20 M parameters")
    parser.add_argument("--count", type=int, default=None, help="texts: 4000, on a CPU 96")
    parser.add_argument("--budgets", type=int, nargs="*", help="batch tokens; default: ours")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="leave the other loop out")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile per layer")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    if hf.launched():
        device = torch.device(hf.launch_state(cpu=device.type == "cpu").device)
    default = "float32" if device.type == "cpu" else "bfloat16"
    dtype = getattr(torch, asked.dtype or default)
    count = asked.count or (96 if device.type == "cpu" else 4000)
    model = make_model("small" if asked.small else "qwen2-0.5b", device, dtype)
    texts = make_texts(count, model.config.vocab_size, 2048)
    tokens = sum(len(text.ids) for text in texts)
    rate = matmul_rate(device, dtype)
    work = flops_per_token(model) * tokens
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {dtype}")
    if device.type == "cuda":
        print(torch.cuda.get_device_name())
    print(f"{count} texts, {tokens} tokens; matmul rate {rate / 1e12:.2f} TFLOP/s")
    exact: list[float] = []
    theirs = math.inf
    if os.environ.get("RANK", "0") == "0":
        exact = float32_scores(asked.small, texts[:SAMPLE], device)
    if os.environ.get("RANK", "0") == "0" and not asked.alone:
        peers_loop(model, texts[:64], device)
        theirs = min(
            seconds(lambda: peers_loop(model, texts, device), device) for _ in range(asked.repeats)
        )
        waste = peers_waste(texts)
        report("other loop, batch 8", theirs, tokens, count, work / theirs / rate, waste)
        print(gap(peers_loop(model, texts[:SAMPLE], device), exact))
    model.score.float()
    model.score.register_forward_pre_hook(lambda module, args: (args[0].float(),))
    adapter = LastToken(model, Selection(0), {"score": model.score})
    once = hf.launched() or not asked.compile  # the other processes serve one runner, then end
    for compile_too in (asked.compile,) if once else (False, True):
        if compile_too:
            runner = Runner(adapter.rewards, device)
            took = seconds(lambda: compile_layers(model, runner.try_once, print), device)  # noqa: B023
            print(f"compiled in {took:.1f} s")
        for budget in asked.budgets or [None]:
            runner = Runner(adapter.rewards, device, budget=budget)
            ranks = Ranks(runner)  # serves, in all processes but the first
            chunk = CHUNKS.get(device.type, CHUNK) * runner.budget * ranks.count
            found = our_loop(ranks, texts[:SAMPLE], chunk)
            times = []
            for _ in range(asked.repeats):
                runner.tokens = runner.computed = 0
                times.append(seconds(lambda: our_loop(ranks, texts, chunk), device))  # noqa: B023
            ranks.close()
            rate_of_all = rate * ranks.count
            name = f"ours, {runner.budget} tokens, {ranks.count} processes" + (
                ", compiled" if compile_too else ""
            )
            waste = 1 - runner.tokens / runner.computed
            report(name, min(times), tokens, count, work / min(times) / rate_of_all, waste)
            ratio = "" if asked.alone else f"; {theirs / min(times):.2f} times the other loop"
            print(gap(found, exact) + ratio)


def float32_scores(small: bool, texts: Sequence[Encoded], device: torch.device) -> list[float]:
    """Return the rewards of the same weights in float32."""
    model = make_model("small" if small else "qwen2-0.5b", device, torch.float32)
    return peers_loop(model, texts, device)


def gap(found: Sequence[float], exact: Sequence[float]) -> str:
    """Say how far rewards are from float32."""
    off = np.abs(np.subtract(found, exact))
    return (
        f"{'':28} gap to float32: mean {off.mean():.1e}, largest {off.max():.1e}, "
        f"spread of rewards {np.std(exact):.1e}"
    )


def peers_waste(texts: Sequence[Encoded]) -> float:
    """Return the share of padding in the other loop."""
    lengths = [len(text.ids) for text in texts]
    area = 0
    for side in (0, 1):
        rows = lengths[side::2]
        for begin in range(0, len(rows), PEERS):
            batch = rows[begin : begin + PEERS]
            area += max(batch) * len(batch)
    return 1 - sum(lengths) / area


if __name__ == "__main__":
    main()
