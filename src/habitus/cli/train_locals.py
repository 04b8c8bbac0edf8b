"""`habitus train locals`: train a judge that reasons like a local. Added to the group `train`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from habitus.cli.options import COUNT, SEED, GroupedCommand, add_options, command_line
from habitus.cli.train import FILE, PAIRS, POSITIVE, RESUME
from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.train.locals.plan import GrpoSettings, LocalsPlan

WEIGHT = click.FloatRange(min=0)

SECTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "Options of the warm-up": (
        ("--warmup-pairs", {"type": COUNT, "default": 256, "show_default": True, "metavar": "N", "help": "Pairs that criteria are sampled for."}),
        ("--warmup-samples", {"type": COUNT, "default": 8, "show_default": True, "metavar": "N", "help": "Criteria that are sampled for each pair and order."}),
        ("--strict-criteria", {"is_flag": True, "help": "Keep only criteria that help in both orders, also where there are none."}),
        ("--verdict-steps", {"type": click.IntRange(min=0), "default": 0, "show_default": True, "metavar": "N", "help": "Supervised steps on verdicts alone before criteria are sampled."}),
        ("--warmup-steps", {"type": COUNT, "default": 100, "show_default": True, "metavar": "N", "help": "Supervised steps."}),
        ("--warmup-batch", {"type": COUNT, "default": 16, "show_default": True, "metavar": "N", "help": "Examples of a supervised step."}),
        ("--warmup-lr", {"type": POSITIVE, "metavar": "RATE", "help": "Learning rate of the warm-up.  [default: 1e-4; 1e-5 with --full]"}),
        ("--warmup-from", {"type": FILE, "metavar": "FOLDER", "help": "Take the warm-up of another run of --stage both with the same options, as to compare rewards; with --stage warmup it is measured."}),
        ("--verdict-share", {"type": click.FloatRange(0, 1), "default": 0.5, "show_default": True, "metavar": "SHARE", "help": "Part of the examples that are verdicts without criteria."}),
    ),
    "Options of the rewards": (
        ("--rewards", {"default": "corr,appr", "show_default": True, "metavar": "NAMES", "help": "Which of corr and appr count."}),
        ("--w-corr", {"type": WEIGHT, "default": 1.0, "show_default": True, "metavar": "W", "help": "Weight of a right verdict."}),
        ("--w-appr", {"type": WEIGHT, "default": 1.0, "show_default": True, "metavar": "W", "help": "Weight of criteria that make the right verdict likelier."}),
        ("--w-swap", {"type": WEIGHT, "default": 0.0, "show_default": True, "metavar": "W", "help": "Weight of one verdict in both orders; costs a forward pass more."}),
        ("--w-length", {"type": WEIGHT, "default": 0.0, "show_default": True, "metavar": "W", "help": "Weight of criteria being long enough."}),
        ("--length-floor", {"type": click.IntRange(min=0), "default": 0, "show_default": True, "metavar": "N", "help": "Characters that criteria should have."}),
        ("--appr-clip", {"default": "-2,2", "show_default": True, "metavar": "LOW,HIGH", "help": "Range of what appr can be."}),
        ("--labels", {"type": click.Choice(["two", "all"]), "default": "two", "show_default": True, "help": "Normalise verdicts over the two letters, or over all tokens."}),
        ("--policy", {"type": click.Choice(["current", "reference"]), "default": "current", "show_default": True, "help": "Whose log-probabilities appr is made of."}),
    ),
    "Options of reinforcement": (
        ("--steps", {"type": COUNT, "default": 100, "show_default": True, "metavar": "N", "help": "Steps."}),
        ("--group", {"type": COUNT, "default": 8, "show_default": True, "metavar": "N", "help": "Completions of a prompt."}),
        ("--prompts-per-step", {"type": COUNT, "default": 16, "show_default": True, "metavar": "N", "help": "Prompts of a step; even, because both orders of a pair go together."}),
        ("--micro-batch", {"type": COUNT, "metavar": "N", "help": "Completions of one forward pass: less memory, the same step.  [default: 16]"}),
        ("--lr", {"type": POSITIVE, "metavar": "RATE", "help": "Learning rate.  [default: 1e-5; 1e-6 with --full]"}),
        ("--beta", {"type": WEIGHT, "default": 0.04, "show_default": True, "metavar": "B", "help": "Weight of the KL penalty."}),
        ("--epsilon", {"type": POSITIVE, "default": 0.2, "show_default": True, "metavar": "E", "help": "Where the ratio is clipped."}),
        ("--loss", {"type": click.Choice(["grpo", "dapo", "dr_grpo", "bnpo", "luspo", "cispo", "vespo"]), "default": "grpo", "show_default": True, "help": "The paper's loss, or one of TRL's later ones."}),
        ("--scale-rewards", {"type": click.Choice(["group", "batch", "none"]), "default": "group", "show_default": True, "help": "What advantages are divided by."}),
        ("--iterations", {"type": COUNT, "default": 1, "show_default": True, "metavar": "N", "help": "Updates from each batch of completions."}),
        ("--temperature", {"type": POSITIVE, "default": 1.0, "show_default": True, "metavar": "T", "help": "Sampling temperature."}),
        ("--max-new-tokens", {"type": COUNT, "default": 160, "show_default": True, "metavar": "N", "help": "Most tokens of a completion."}),
        ("--vllm", {"type": click.Choice(["colocate", "server"]), "help": "Let vLLM write.  [default: transformers]"}),
        ("--gradient-checkpointing", {"is_flag": True, "help": "Less memory, more time."}),
        ("--save-steps", {"type": COUNT, "default": 20, "show_default": True, "metavar": "N", "help": "Steps between checkpoints, and at most lost by a kill."}),
        ("--on-collapse", {"type": click.Choice(["stop", "warn"]), "default": "stop", "show_default": True, "help": "What to do when training collapses."}),
    ),
    "Options of the model": (
        ("--lora-r", {"type": COUNT, "default": 16, "show_default": True, "metavar": "N", "help": "Rank of the LoRA adapter."}),
        ("--full", {"is_flag": True, "help": "Train all weights, not an adapter."}),
        ("--precision", {"type": click.Choice(["fp32", "bf16"]), "help": "bf16 is autocast: what is trained stays float32.  [default: bf16 on a GPU, fp32 on a CPU]"}),
        ("--device", {"metavar": "DEVICE", "help": "cpu, or the accelerator.  [default: the best there is]"}),
        ("--graphs/--no-graphs", {"default": True, "help": "Record tokens and the warm-up's steps as CUDA graphs, on an NVIDIA GPU.  [default: graphs]"}),
        ("--threads", {"type": COUNT, "metavar": "N", "help": "CPU threads.  [default: all cores]"}),
        ("--context", {"type": COUNT, "metavar": "N", "help": "Most tokens of a prompt with its answer; a longer pair is left out.  [default: 1024, or the model's limit]"}),
        ("--batch-tokens", {"type": COUNT, "metavar": "N", "help": "Tokens in a batch when scoring."}),
        ("--revision", {"metavar": "REVISION", "help": "Revision of the model on the Hugging Face Hub."}),
    ),
}  # fmt: skip
"""Heading to options: the name of each and what `click.option` takes."""


def _options(command: Any) -> Any:
    for section, options in reversed(SECTIONS.items()):
        command = add_options(command, section, options)
    return command


@click.command("locals", cls=GroupedCommand)
@PAIRS
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="A causal language model: a folder, ORG/NAME, or smollm2-135m.",
)
@click.option("--out", type=FILE, required=True, metavar="FOLDER", help="Where the run goes.")
@click.option(
    "--stage",
    type=click.Choice(["warmup", "rl", "both", "verdict", "base"]),
    default="both",
    show_default=True,
    help="Supervised warm-up, reinforcement, or both; verdict learns verdicts only, base nothing.",
)
@click.option(
    "--evaluate-pairs",
    type=FILE,
    metavar="PAIRS",
    help="Measure on the test part of these pairs at the end.",
)
@click.option(
    "--evaluate-limit",
    type=COUNT,
    metavar="N",
    help="Measure on at most N of them, the same ones for every --seed.",
)
@click.option("--limit", type=COUNT, metavar="N", help="At most N training pairs.")
@click.option(
    "--instructions",
    type=click.Choice(["english", "item"]),
    default="english",
    show_default=True,
    help="Language of the instructions; item is the pair's own.",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, metavar="N", help="Seed of everything."
)
@RESUME
@click.option(
    "--max-seconds",
    type=POSITIVE,
    metavar="S",
    help="Stop at the next checkpoint after S seconds; --resume goes on.",
)
@_options
def train_locals(**given: Any) -> None:
    """Train a judge that writes what matters to people there before it judges."""
    from habitus.cli.console import say
    from habitus.pairs import read_pairs
    from habitus.train.locals import run
    from habitus.train.study import MODEL

    left_out = ("out", "resume", "max_seconds")
    command = command_line(left_out)
    evaluate = given["evaluate_pairs"]
    plan = _plan(given)
    plan = replace(
        plan,
        pairs=read_pairs(given["pairs"]),
        evaluate=None if evaluate is None else read_pairs(evaluate),
        command=command,
        load=replace(plan.load, say=say),
    )
    record = run.train_locals(plan, say)
    if not record["done"]:
        return
    if plan.stage != "base":
        say(f"the judge: judge:{plan.out / MODEL} --engine transformers --mode pairwise --criteria")
    say(f"curves and figures: habitus locals-report {plan.out}")


def _plan(given: dict[str, Any]) -> LocalsPlan:
    """Return the plan without its pairs.

    Raises:
        InputError: When a reward has an unknown name, or the range is none.
    """
    from habitus.train.locals.model import ModelOptions
    from habitus.train.locals.plan import LocalsPlan
    from habitus.train.locals.rewards import RewardSettings
    from habitus.train.locals.supervised import SupervisedSettings
    from habitus.train.locals.warmup import SamplingSettings

    named = [name.strip() for name in given["rewards"].split(",")]
    unknown = [name for name in named if name not in ("corr", "appr")]
    if unknown:
        raise InputError(f"--rewards {given['rewards']}: {unknown[0]!r} is neither corr nor appr")
    full = given["full"]
    try:
        low, high = map(float, given["appr_clip"].split(","))
    except ValueError as error:
        raise InputError(
            f"--appr-clip {given['appr_clip']}: not two numbers with a comma, such as -2,2"
        ) from error
    loading = ("revision", "context", "device", "precision", "graphs", "threads", "batch_tokens")
    return LocalsPlan(
        pairs=(),
        model=given["model"],
        out=given["out"],
        stage=given["stage"],
        rewards=RewardSettings(
            w_corr=given["w_corr"] if "corr" in named else 0.0,
            w_appr=given["w_appr"] if "appr" in named else 0.0,
            w_swap=given["w_swap"],
            w_length=given["w_length"],
            length_floor=given["length_floor"],
            appr_low=low,
            appr_high=high,
            labels=given["labels"],
        ),
        grpo=_grpo(given),
        sampling=SamplingSettings(samples=given["warmup_samples"], strict=given["strict_criteria"]),
        supervised=SupervisedSettings(
            steps=given["warmup_steps"],
            batch_size=given["warmup_batch"],
            micro_batch=given["micro_batch"],
            lr=given["warmup_lr"] or (1e-5 if full else 1e-4),
            verdict_share=given["verdict_share"],
            verdict_steps=given["verdict_steps"],
        ),
        warmup_pairs=given["warmup_pairs"],
        warmup_from=given["warmup_from"],
        load=ModelOptions(
            lora=None if full else given["lora_r"],
            **{name: given[name] for name in loading},
        ),
        translated=given["instructions"] == "item",
        seed=given["seed"],
        limit=given["limit"],
        evaluate_limit=given["evaluate_limit"],
        max_seconds=given["max_seconds"],
        resume=given["resume"],
    )


def _grpo(given: dict[str, Any]) -> GrpoSettings:
    from habitus.train.locals.plan import GrpoSettings

    names = (
        *("steps", "group", "prompts_per_step", "micro_batch", "beta", "epsilon", "scale_rewards"),
        *("iterations", "temperature", "max_new_tokens", "policy", "vllm", "save_steps"),
        *("gradient_checkpointing", "on_collapse"),
    )
    return GrpoSettings(
        lr=given["lr"] or (1e-6 if given["full"] else 1e-5),
        loss_type=given["loss"],
        **{name: given[name] for name in names},
    )
