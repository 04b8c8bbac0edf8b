"""`habitus train`: reward models from preference pairs, plain or one for each country."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from habitus.cli.options import COUNT, SEED, GroupedCommand, add_options, command_line, python_name
from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.train.base import LoadOptions
    from habitus.train.fitting import Settings

FILE = click.Path(path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)

TRAINING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--lr", {"type": POSITIVE, "metavar": "RATE", "help": "Learning rate."}),
    ("--epochs", {"type": COUNT, "metavar": "N", "help": "Times that every pair is seen."}),
    (
        "--batch-size",
        {"type": COUNT, "default": 8, "show_default": True, "metavar": "N", "help": "Pairs of one step."},
    ),
    (
        "--micro-batch",
        {"type": COUNT, "metavar": "N", "help": "Pairs of one forward pass: less memory, the same step."},
    ),
    ("--max-steps", {"type": COUNT, "metavar": "N", "help": "Stop early, after so many steps."}),
    ("--lora", {"is_flag": True, "help": "Train a LoRA adapter and the head, not all weights."}),
    (
        "--lora-rank",
        {"type": COUNT, "metavar": "N", "help": "Rank of the adapter.  [default: 16; alone it means --lora]"},
    ),
    ("--weight-decay", {"type": click.FloatRange(min=0), "default": 0.0, "metavar": "W", "help": "Weight decay."}),
    ("--dropout", {"is_flag": True, "help": "Leave dropout on in training. It is never on when measuring."}),
    (
        "--save-steps",
        {"type": COUNT, "default": 200, "show_default": True, "metavar": "N", "help": "Steps between checkpoints, and at most lost by a kill."},
    ),
    (
        "--context",
        {"type": COUNT, "metavar": "N", "help": "Most tokens of a text; a longer pair is left out and listed.  [default: 512, or the model's limit]"},
    ),
    (
        "--precision",
        {"type": click.Choice(["fp32", "bf16"]), "default": "fp32", "show_default": True, "help": "bf16 is autocast: weights stay float32. For GPUs."},
    ),
    ("--graphs/--no-graphs", {"default": True, "help": "Record steps as CUDA graphs, on one NVIDIA GPU: small steps are several times faster.  [default: graphs]"}),
    ("--device", {"metavar": "DEVICE", "help": "cpu, or the accelerator.  [default: the best there is]"}),
    ("--threads", {"type": COUNT, "metavar": "N", "help": "CPU threads.  [default: all cores]"}),
    ("--batch-tokens", {"type": COUNT, "metavar": "N", "help": "Tokens in a batch when scoring."}),
    ("--revision", {"metavar": "REVISION", "help": "Revision of the base on the Hugging Face Hub."}),
)  # fmt: skip
"""Options of how to train, under a heading of their own."""


def training_options(*, lr: float, epochs: int) -> Callable[[Any], Any]:
    """Give a command the options of training.

    Args:
        lr: The command's default learning rate.
        epochs: The command's default number of epochs.
    """
    defaults = {"--lr": lr, "--epochs": epochs}
    options = [
        (name, settings | {"default": defaults[name], "show_default": True})
        if name in defaults
        else (name, settings)
        for name, settings in TRAINING
    ]

    def decorate(command: Any) -> Any:
        @functools.wraps(command)
        def wrapper(**kwargs: Any) -> Any:
            given = {key: kwargs.pop(key) for key in (python_name(name) for name, _ in TRAINING)}
            return command(training=given, **kwargs)

        return add_options(wrapper, "Options of training", options)

    return decorate


def _settings(given: dict[str, Any]) -> Settings:
    from habitus.train.fitting import Settings

    names = ("lr", "epochs", "batch_size", "micro_batch", "max_steps", "weight_decay")
    rank = given["lora_rank"] or (16 if given["lora"] else None)
    return Settings(
        **{name: given[name] for name in names},
        lora=rank,
        dropout=given["dropout"],
        save_steps=given["save_steps"],
    )


def _load(given: dict[str, Any], **fields: Any) -> LoadOptions:
    from habitus.cli.console import say
    from habitus.train.base import LoadOptions

    names = ("revision", "context", "device", "precision", "graphs", "threads", "batch_tokens")
    return LoadOptions(**{name: given[name] for name in names}, **fields, say=say)


@click.group()
def train() -> None:
    """Train reward models on preference pairs."""


PAIRS = click.option(
    "--pairs", type=FILE, required=True, metavar="PAIRS", help="Pairs, as of habitus pairs."
)
OUT = click.option("--out", type=FILE, required=True, metavar="FOLDER", help="Where it goes.")
LIMIT = click.option(
    "--limit", type=COUNT, metavar="N", help="At most N training pairs, and N test pairs."
)
EVALUATE = click.option(
    "--evaluate", metavar="BENCHMARK", help="Evaluate on a benchmark before and after training."
)
RESUME = click.option("--resume", is_flag=True, help="Go on in an existing folder.")
LEFT_OUT = ("out", "resume", "shard")


@train.command(cls=GroupedCommand)
@PAIRS
@click.option(
    "--base",
    required=True,
    metavar="MODEL",
    help="A classifier or a causal model: a folder, ORG/NAME, or smollm2-135m.",
)
@OUT
@click.option(
    "--seed", type=SEED, default=0, show_default=True, metavar="N", help="Seed of training."
)
@LIMIT
@EVALUATE
@RESUME
@training_options(lr=1e-5, epochs=1)
def rm(
    pairs: Path,
    base: str,
    out: Path,
    seed: int,
    limit: int | None,
    evaluate: str | None,
    resume: bool,
    training: dict[str, Any],
) -> None:
    """Train one reward model on pairs (Bradley-Terry); pairs of the part test are held out."""
    from habitus.cli.console import say
    from habitus.pairs import read_pairs
    from habitus.train.base import require

    require()
    from habitus.train.rm import RmPlan, train_rm

    plan = RmPlan(
        pairs=read_pairs(pairs),
        base=base,
        out=out,
        settings=_settings(training),
        load=_load(training, new_head=True),
        seed=seed,
        limit=limit,
        evaluate=evaluate,
        resume=resume,
        command=command_line(LEFT_OUT),
    )
    found = train_rm(plan, say)
    for when in ("before", "after"):
        figures = found["test"][when]
        value = "none" if figures["value"] is None else f"{figures['value']:.3f}"
        say(f"accuracy on {figures['n']} held-out pairs {when} training: {value}")
    say(f"reward model: {out} (classifier:{out})")


@train.command(cls=GroupedCommand)
@PAIRS
@click.option(
    "--base",
    required=True,
    metavar="MODEL",
    help="The global reward model: a classifier with one output, a folder or ORG/NAME.",
)
@OUT
@click.option(
    "--country",
    "countries",
    multiple=True,
    metavar="NAME",
    help="Whose; repeatable.  [default: all]",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    default=("scpo",),
    show_default=True,
    help="scpo, filter, weight, inverse, finetune or all; repeatable.",
)
@click.option("--tau", type=float, default=0.7, show_default=True, help="Keep pairs with p < TAU.")
@click.option("--beta", type=POSITIVE, default=1.1, show_default=True, help="Scale of the weights.")
@click.option(
    "--fold",
    "folds",
    multiple=True,
    metavar="K",
    help="Fold to hold out, all, or split for the parts train and test; repeatable.  "
    "[default: all folds, or split where there are none]",
)
@click.option(
    "--seed",
    "seeds",
    type=SEED,
    multiple=True,
    default=(0,),
    show_default=True,
    metavar="N",
    help="Repeatable.",
)
@click.option(
    "--share",
    "shares",
    type=float,
    multiple=True,
    default=(1.0,),
    show_default=True,
    help="Part of a country's training groups to use; repeatable.",
)
@LIMIT
@EVALUATE
@click.option("--keep-model/--no-model", default=False, help="Keep the trained models.")
@click.option("--shard", metavar="I/N", help="Do only every N-th unit, from the I-th on.")
@click.option(
    "--cache",
    type=FILE,
    metavar="FOLDER",
    help="Where scores of the base are kept.  [default: the user's cache]",
)
@RESUME
@training_options(lr=1e-6, epochs=3)
def scpo(
    pairs: Path,
    base: str,
    out: Path,
    countries: tuple[str, ...],
    variants: tuple[str, ...],
    tau: float,
    beta: float,
    folds: tuple[str, ...],
    seeds: tuple[int, ...],
    shares: tuple[float, ...],
    limit: int | None,
    evaluate: str | None,
    keep_model: bool,
    shard: str | None,
    cache: Path | None,
    resume: bool,
    training: dict[str, Any],
) -> None:
    """Train one reward model for each country from a global one, by SCPO and its variants."""
    from habitus.cli.console import say
    from habitus.pairs import read_pairs
    from habitus.train.base import require

    require()
    from habitus.train.scpo import ScpoPlan, train_scpo
    from habitus.train.study import choose

    read = read_pairs(pairs)
    plan = ScpoPlan(
        pairs=read,
        base=base,
        out=out,
        grid=choose(read, countries, variants, folds, seeds, shares),
        tau=tau,
        beta=beta,
        settings=_settings(training),
        load=_load(training),
        limit=limit,
        evaluate=evaluate,
        keep_model=keep_model,
        shard=parse_shard(shard),
        resume=resume,
        cache=cache,
        command=command_line(LEFT_OUT),
    )
    train_scpo(plan, say)
    say(f"study: {out}; read it with: habitus scpo-report {out}")


def parse_shard(text: str | None) -> tuple[int, int]:
    """Read "I/N".

    Raises:
        InputError: When it is something else.
    """
    if text is None:
        return 1, 1
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit()):
        raise InputError(f"--shard {text}: write I/N, such as 1/4")
    return int(first), int(second)
