"""What sharing prefixes saves a judge: label requests with and without, same model, same prompts.

    python benchmarks/judge_prefix.py [--device cuda] [--items 16] [--prompt 300] [--shared 120]

Each item is asked listwise in four rotations. Prompts begin with the same system text (`--shared`
tokens, the instructions and criteria), then the item's question, then the candidates. The model is
random: about 27 M weights in float32 on a CPU, the shape of Qwen2-0.5B in bfloat16 on CUDA. The
tokenizer spells bytes, so lengths are what they are asked to be. Needs torch, transformers and
pydantic. For each number of items up to `--items`, in doubling steps: seconds of the plain way, of
sharing wherever it saves a token ("forced"), and of what the engine would choose ("engine"), each
the median of `--repeats` in alternating order; `ratio` is plain over the other. On a CPU, seconds
are of processor time, all threads together, so that other work on the machine shows less.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from habitus.clients.engine import Reply, Request, Turn
from habitus.clients.prompt_encoder import PromptEncoder
from habitus.clients.transformers_engine import TransformersEngine
from habitus.prompts import Segment

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FRAME = 100
"""Tokens of the template, the letters and the instruction in a prompt."""
ROTATIONS = 4


def byte_tokenizer() -> Any:
    """Return a tokenizer with a token for each byte and ChatML's control tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=core, eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def random_model(device: str, *, tiny: bool) -> Any:
    """Return a model with random weights for the device."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"max_position_embeddings": 32768}
    if device == "cpu":
        size = (64, 128, 2, 4, 512) if tiny else (384, 1024, 8, 6, 16384)
        keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        shape |= dict(zip((*keys, "vocab_size"), size, strict=True))
        causal: Any = transformers.LlamaForCausalLM
        return causal(transformers.LlamaConfig(**shape)).eval()
    shape |= {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    shape |= {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936}
    config = transformers.Qwen2Config(**shape, tie_word_embeddings=True)
    causal = transformers.Qwen2ForCausalLM
    return causal(config).to(device=device, dtype=torch.bfloat16).eval()


def make_requests(items: int, prompt: int, shared: int) -> list[Request]:
    """Return the requests of a listwise judge: all rotations of each item.

    Args:
        items: How many items.
        prompt: Tokens of a prompt, on average.
        shared: Tokens of the system's text.
    """
    draw = random.Random(0)

    def words(count: float) -> str:
        size = max(4, round(count * draw.uniform(0.6, 1.4)))
        return "".join(draw.choice("abcdefghij ") for _ in range(size))

    rest = max(prompt - shared - FRAME, 20)
    system = Turn("system", (Segment("You judge by criteria. ".ljust(shared, "x"), True),))
    found = []
    for number in range(items):
        question = words(rest / 3)
        answers = [words(rest / 6) for _ in range(ROTATIONS)]
        for shift in range(ROTATIONS):
            shown = [*answers[shift:], *answers[:shift]]
            parts = [Segment(question + "\n", False)]
            for letter, answer in zip("ABCD", shown, strict=True):
                parts += [Segment(f"\n{letter}. ", True), Segment(answer, False)]
            parts.append(Segment("\n\nWhich is best? One letter:", True))
            chat = (system, Turn("user", tuple(parts)))
            labels = (" A", " B", " C", " D")
            found.append(Request(f"item {number}", chat, answer="Best:", labels=labels))
    return found


def timed(engine: TransformersEngine, requests: Sequence[Request]) -> tuple[float, list[Reply]]:
    """Return the seconds that the engine takes, and its replies."""
    cuda = engine.parameters["device"] != "cpu"
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    start = clock()
    replies = engine.execute(requests)
    if cuda:
        torch.cuda.synchronize()
    return clock() - start, replies


def measure(
    engine: TransformersEngine, requests: Sequence[Request], repeats: int
) -> tuple[dict[str, float], float]:
    """Return the median seconds of each way, and the largest difference of a log-probability."""
    own = engine._pass_tokens
    ways = {"plain": (False, own), "forced": (True, 0), "engine": (True, own)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    replies: dict[str, list[Reply]] = {}
    for repeat in range(repeats + 1):
        for way in list(ways) if repeat % 2 else reversed(list(ways)):
            engine.share_prefix, engine._pass_tokens = ways[way]
            spent, replies[way] = timed(engine, requests)
            if repeat:  # the first round warms up
                seconds[way].append(spent)
    engine.share_prefix, engine._pass_tokens = True, own
    pairs = zip(replies["plain"], replies["forced"], strict=True)
    gaps = [
        abs(x - y)
        for a, b in pairs
        for x, y in zip(a.logprobs or (), b.logprobs or (), strict=True)
    ]
    return {way: statistics.median(spent) for way, spent in seconds.items()}, max(gaps)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=300, help="tokens of a prompt")
    parser.add_argument("--shared", type=int, default=120, help="tokens of the system's text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--tiny", action="store_true", help="a model of no size, for the test")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    model = random_model(args.device, tiny=args.tiny)
    encoder = PromptEncoder(byte_tokenizer(), context=32768)
    engine = TransformersEngine(
        model,
        encoder,
        name="random",
        parameters={"device": model.device.type},
        batch_tokens=args.batch_tokens,
    )
    place = torch.cuda.get_device_name() if args.device != "cpu" else f"{args.device}"
    weights = sum(weight.numel() for weight in model.parameters()) / 1e6
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{weights:.0f} M weights, {model.dtype}, {place}, {versions}")
    print("items  tokens  plain s  forced s  engine s  ratio forced  ratio engine  max difference")
    count = 1
    while count <= args.items:
        requests = make_requests(count, args.prompt, args.shared)
        tokens = sum(reply.prompt_tokens for reply in engine.execute(requests))
        spent, gap = measure(engine, requests, args.repeats)
        forced, chosen = spent["plain"] / spent["forced"], spent["plain"] / spent["engine"]
        print(
            f"{count:5d} {tokens:7d} {spent['plain']:8.3f} {spent['forced']:9.3f}"
            f" {spent['engine']:9.3f} {forced:13.2f} {chosen:13.2f} {gap:15.1e}"
        )
        rates = {way: tokens / value for way, value in spent.items()}
        count *= 2
    print("tokens/s: " + ", ".join(f"{way} {rate:,.0f}" for way, rate in rates.items()))


if __name__ == "__main__":
    main()
