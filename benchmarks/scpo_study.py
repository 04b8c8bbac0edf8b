"""A study of countries x variants: ours against one run after the other, with the same result.

    python benchmarks/scpo_study.py --device cuda --peer-units 5
    python benchmarks/scpo_study.py --small

Ours is `train_scpo`, what `habitus train scpo` calls: the base loaded, its texts encoded and its
scores computed once for all units. The other way is what is known of SCPO's public code, each as an
option so that its cost shows: for every unit it loads the base from disk (`--peer-reload`), computes
the global scores of all the country's pairs (`--peer-rescore`), one text a forward pass when scoring
and evaluating (`--peer-one-by-one`), and pads every text to 512 tokens (`--peer-pad`). Where we do
not know, it does what is cheapest: a bare loop of PyTorch trains, one forward pass for both
responses, no checkpoint (`--peer-checkpoints` writes the Trainer's one at the end of each unit), and
it evaluates the unit's own country, while ours scores the held-out pairs of all countries.

Both train on the same pairs of the same folds, as many steps of as many pairs, in the same precision.
A random model and made-up questions of lognormal lengths (median about 60 tokens a text), or a folder
of pairs and a model of your own: no network. Needs torch, transformers, trl, datasets, pydantic, no
polars. Prints a table, how far both agree, and a line of JSON. On a CPU, seconds are of processor
time, all threads together, so that other work on the machine shows less.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch as typed_torch
import transformers as typed_transformers
from scpo_peer import PHASES, Clock, Outcome, Peer, Work, accuracy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from habitus.errors import HabitusError, InputError
from habitus.pairs import read_pairs
from habitus.train import scpo, study
from habitus.train.base import LoadOptions
from habitus.train.fitting import Settings
from habitus.train.losses import VARIANTS
from habitus.train.scpo import ScpoPlan, train_scpo
from habitus.train.study import Grid, Unit
from habitus.types import Message, PreferencePair

torch: Any = typed_torch
transformers: Any = typed_transformers
"""Much of them has no types."""

COUNTRIES = ("Australia", "Canada", "Chile", "Israel", "Mexico", "New Zealand", "South Africa")
FOLD, FOLDS = 0, 5
WORDS = ["".join(random.Random(at).choices("bdfgklmnprstaeiou", k=4)) for at in range(300)]
"""Made up."""
SHAPES = {
    "qwen2-0.5b": (151936, 896, 4864, 24, 14, 2),
    "small": (8192, 384, 1536, 8, 6, 6),
    "tiny": (2048, 256, 768, 2, 4, 4),
}
"""Vocabulary, width, width of the MLP, layers, heads, heads of keys and values. The last has about
2.2 M parameters."""
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}"
)


# --- what both are given ---------------------------------------------------------------------------


def make_tokenizer() -> Any:
    """Return a tokenizer that has a token for each made-up word.

    It is of bytes, as the models' own is: the library reads any tokenizer of a Qwen2 as such.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<pad>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([f" {word}" for word in (*WORDS, "user", "assistant")] * 3, trainer)
    fast = transformers.PreTrainedTokenizerFast
    made = fast(tokenizer_object=core, pad_token="<pad>", eos_token="<|im_end|>")
    made.chat_template = TEMPLATE
    return made


def save_model(shape: str, folder: Path, device: Any) -> None:
    """Save a random reward model whose rewards are spread enough for the filter to drop pairs."""
    names = [f"num_{what}" for what in ("hidden_layers", "attention_heads", "key_value_heads")]
    names = ["vocab_size", "hidden_size", "intermediate_size", *names]
    fields: dict[str, Any] = dict(zip(names, SHAPES[shape], strict=True))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("qwen2", **fields, num_labels=1, pad_token_id=0)
    auto = transformers.AutoModelForSequenceClassification
    with torch.device(device):
        model = auto.from_config(config).eval()
    texts = torch.randint(3, 2000, (32, 60), device=device)
    with torch.no_grad():
        spread = model(input_ids=texts, attention_mask=torch.ones_like(texts)).logits.std()
        model.score.weight.mul_(1.0 / spread)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


def make_pairs(per_country: int, countries: int) -> list[PreferencePair]:
    """Return made-up pairs, two of each question, in folds by question."""
    rng = np.random.default_rng(0)
    draw = random.Random(0)

    def words(count: float) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(max(2, round(count))))

    found = []
    for country in [*COUNTRIES, *(f"Country {n}" for n in range(8, countries + 1))][:countries]:
        for number in range(per_country):
            if number % 2 == 0:  # eight more tokens are the template's
                size = float(np.clip(rng.lognormal(math.log(52), 0.5), 12, 440))
                question = words(0.7 * size)
            pair = PreferencePair(
                id=f"{country}-{number}",
                item_id=f"{country}-q{number // 2}",
                prompt=(Message(role="user", content=question),),
                chosen=words(0.3 * size * draw.uniform(0.7, 1.3)),
                rejected=words(0.3 * size * draw.uniform(0.7, 1.3)),
                country=country,
                group=f"{country}-q{number // 2}",
                fold=number // 2 % FOLDS,
            )
            found.append(pair)
    return found


def usual_length(pairs: Sequence[PreferencePair], base: Path) -> float:
    """Return the median number of tokens of a text, as the base's tokenizer has it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    texts = [f"{pair.prompt[-1].content} {pair.chosen}" for pair in pairs[::7]]
    return float(np.median([len(ids) for ids in tokenizer(texts)["input_ids"]]))


def some_countries(pairs: Sequence[PreferencePair], count: int) -> tuple[str, ...]:
    """Return the countries with the most pairs."""
    sizes = Counter(pair.country for pair in pairs if pair.country)
    return tuple(name for name, _ in sizes.most_common(count) if name)


# --- ours ------------------------------------------------------------------------------------------


def ours(work: Work, out: Path) -> Outcome:
    """Run the study through the public API."""
    clock = Clock(work.device)
    load = LoadOptions(device=work.device.type, precision=work.precision)
    plan = ScpoPlan(
        pairs=work.pairs, base=str(work.base), out=out, grid=work.grid,
        settings=work.settings, load=load, cache=out / "cache",
    )  # fmt: skip
    module: Any = scpo
    real: Any = scpo.Texts  # type: ignore[attr-defined]
    watched = {
        (module, "load_base"): "loading",
        (module, "cached_scores"): "scoring",
        (real, "__init__"): "scoring",
        (real, "score"): "evaluation",
    }
    before = {place: getattr(*place) for place in [*watched, (module, "fit")]}
    for (owner, name), phase in watched.items():
        setattr(owner, name, clock.watched(phase, getattr(owner, name)))
    module.fit = partial(watched_fit, clock, module.fit)
    begin = clock.now()
    try:
        train_scpo(plan)
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)
    total = clock.now() - begin
    kept, right, steps = {}, {}, 0
    country = {pair.id: pair.country for pair in work.pairs}
    for unit in work.units:
        folder = out / study.UNITS / unit.name
        record = study.read_json(folder / study.RUN) or {}
        kept[unit.name] = record["n_kept"]
        steps += record["n_steps"]
        lines = [json.loads(line) for line in (folder / study.SCORES).open()]
        own = [line for line in lines if country[line["pair"]] == unit.country]
        right[unit.name] = accuracy([(line["chosen"], line["rejected"]) for line in own])
    clock.seconds["other"] = total - sum(clock.seconds.values())
    lines = [json.loads(line) for line in (out / study.GLOBAL).open()]
    scores = {line["pair"]: (line["chosen"], line["rejected"]) for line in lines}
    return Outcome(clock.seconds, kept, right, scores, steps)


@contextmanager
def watched_fit(clock: Clock, fit: Callable[..., Any], *args: Any) -> Iterator[Any]:
    """Train, as `fit`: what is done before it yields is the training."""
    with ExitStack() as stack:
        with clock.phase("training"):
            found = stack.enter_context(fit(*args))
        yield found


# --- what comes out --------------------------------------------------------------------------------


def spread(units: Sequence[Unit], count: int) -> list[Unit]:
    """Return so many units, evenly over all: of all variants and countries where there are enough."""
    count = min(count, len(units))
    return [units[at * len(units) // count] for at in range(count)]


def table(mine: Outcome, other: Outcome | None) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'seconds':12}{'ours':>10}" + (f"{'other':>10}{'ratio':>8}" if other else "")]
    for name in (*PHASES, "all"):
        sides = [
            each.total if name == "all" else each.seconds[name] for each in (mine, other) if each
        ]
        line = f"{name:12}" + "".join(f"{each:10.2f}" for each in sides)
        if len(sides) == 2 and min(sides) > 0:
            line += f"{sides[1] / sides[0]:8.1f}"
        lines.append(line)
    return lines


def agreement(mine: Outcome, other: Outcome, precision: str) -> dict[str, float]:
    """Print how far both did the same work, and return it."""
    same = sum(mine.kept[name] == kept for name, kept in other.kept.items())
    gaps = [abs(a - b) for name in other.scores for a, b in zip(mine.scores[name], other.scores[name], strict=True)]  # fmt: skip
    off = [abs(mine.accuracy[name] - value) for name, value in other.accuracy.items()]
    means = [float(np.mean([each.accuracy[name] for name in other.accuracy])) for each in (mine, other)]  # fmt: skip
    print(
        f"global scores ({precision}): largest gap {max(gaps):.1e}; pairs kept: equal in {same} of "
        f"{len(other.kept)} units\nheld-out accuracy, mean of these units: ours {means[0]:.3f}, "
        f"other {means[1]:.3f}; largest gap of one {max(off):.3f}"
    )
    return {"score_gap": max(gaps), "kept_equal": same, "accuracy_gap": max(off)}


def main() -> None:
    """Measure and print."""
    asked = arguments()
    device = torch.device(asked.device)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        work = make_work(asked, temporary / "base", device)
        if device.type == "cuda":
            print(torch.cuda.get_device_name())
        print(
            f"torch {torch.__version__}, transformers {transformers.__version__}, {work.precision}; "
            f"{asked.model}; {len(work.pairs)} pairs of {len(work.grid.countries)} countries, "
            f"median {usual_length(work.pairs, work.base):.0f} tokens; {len(work.units)} units",
            flush=True,
        )
        warm_up(work)
        mine = ours(work, temporary / "study")
        other, found = None, {}
        timed = spread(work.units, asked.peer_units) if asked.peer_units else []
        if timed:
            if len(timed) < len(work.units):
                print(f"the other way: {len(timed)} of {len(work.units)} units timed, and scaled")
            other = Peer(asked, work, temporary).run(timed, mine.steps)
        print("\n".join(table(mine, other)))
        print(
            f"ours: {1000 * mine.seconds['training'] / mine.steps:.1f} ms a step, {mine.steps} steps"
        )
        if other:
            found = agreement(mine, other, work.precision)
        print(json.dumps(record(asked, work, mine, other, len(timed)) | found))


def record(
    asked: argparse.Namespace, work: Work, mine: Outcome, other: Outcome | None, timed: int
) -> dict[str, Any]:
    """Return what the line of JSON says."""
    sides = {"ours": mine} | ({"other": other} if other else {})
    return {
        "device": torch.cuda.get_device_name() if work.device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "model": asked.model,
        "precision": work.precision,
        "pairs": len(work.pairs),
        "units": len(work.units),
        "units_timed": timed,
        "steps": mine.steps,
        **{key: value for key, value in vars(asked).items() if key.startswith("peer_")},
        **{name: {k: round(v, 3) for k, v in side.seconds.items()} for name, side in sides.items()},
        "ratio": round(other.total / mine.total, 2) if other else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def make_work(asked: argparse.Namespace, base: Path, device: Any) -> Work:
    """Make or read pairs and model."""
    if asked.pairs.isdigit():
        pairs = make_pairs(int(asked.pairs), asked.countries)
    else:
        pairs = read_pairs(asked.pairs)
    countries = some_countries(pairs, asked.countries)
    pairs = [pair for pair in pairs if pair.country in countries]
    if asked.model in SHAPES:
        save_model(asked.model, base, device)
    elif Path(asked.model, "config.json").is_file():
        base = Path(asked.model)
    else:
        raise InputError(f"--model {asked.model}: no folder of a model, nor {', '.join(SHAPES)}")
    settings = Settings(batch_size=asked.batch_size, epochs=asked.epochs, lr=asked.lr)
    grid = Grid(countries, VARIANTS, (FOLD,))
    return Work(pairs, grid, base, settings, device, asked.precision)


def warm_up(work: Work) -> None:
    """Import what both import, and start the device's libraries."""
    import_module("habitus.train.reward_trainer")
    matrix = torch.randn(256, 256, device=work.device, requires_grad=True)
    (matrix @ matrix).sum().backward()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--small", action="store_true", help="a tiny model, 16 pairs, one thread")
    parser.add_argument("--model", help=f"{', '.join(SHAPES)}, or a folder with a chat template")
    parser.add_argument("--pairs", help="made-up pairs of a country (600), or a folder of pairs")
    parser.add_argument("--countries", type=int, default=7, help="those with the most pairs")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: bf16 on a GPU")
    parser.add_argument("--batch-size", type=int, default=8, help="pairs of a step")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=Settings.lr)
    parser.add_argument("--threads", type=int, help="CPU threads of both")
    parser.add_argument("--peer-units", type=int, help="units of the other way; 0 leaves it out")
    parser.add_argument("--peer-pad", type=int, default=512, help="0: the longest of a batch")
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--peer-one-by-one", action=yes_or_no, default=True)
    parser.add_argument("--peer-reload", action=yes_or_no, default=True)
    parser.add_argument("--peer-rescore", action=yes_or_no, default=True)
    parser.add_argument("--peer-checkpoints", action=yes_or_no, default=False)
    asked = parser.parse_args()
    asked.model = asked.model or ("tiny" if asked.small else "qwen2-0.5b")
    asked.pairs = asked.pairs or ("16" if asked.small else "600")
    asked.precision = asked.precision or ("fp32" if asked.device == "cpu" else "bf16")
    if asked.small and asked.threads is None:
        asked.threads = 1
    if asked.peer_units is None:
        asked.peer_units = 5 if asked.small else 35
    return asked


if __name__ == "__main__":
    try:
        main()
    except HabitusError as error:
        sys.exit(str(error))
