"""`habitus downstream policy`: train a policy against reward models. Added to `downstream`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from habitus.cli.downstream import EXCLUDED, questions_trained_on
from habitus.cli.options import COUNT, SEED, GroupedCommand, add_options, command_line, parse_model

if TYPE_CHECKING:
    from habitus.train.policy.plan import PolicyPlan

PATH = click.Path(path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True)
WEIGHT = click.FloatRange(min=0)
GOING_ON = ("out", "resume", "retry_failed", "max_seconds")
"""Parameters that only say where to write and how to go on."""

SECTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "Options of the prompts": (
        ("--country", {"multiple": True, "metavar": "NAME", "help": "Keep this country's prompts only; repeatable."}),
        ("--limit", {"type": COUNT, "metavar": "K", "help": "Most training prompts of a country."}),
        ("--exclude-questions-of", {"multiple": True, "type": PATH, "metavar": "PAIRS", "help": EXCLUDED}),
        ("--held-out", {"type": click.FloatRange(0, 1, min_open=True, max_open=True), "default": 0.3, "show_default": True, "metavar": "SHARE", "help": "Share of the questions that answers are measured on and not trained on."}),
        ("--held-out-limit", {"type": COUNT, "metavar": "K", "help": "Most held-out prompts of a country."}),
        ("--language", {"type": click.Choice(["own", "en"]), "default": "own", "show_default": True, "help": "Of blend-short: each country's own language, or English."}),
        ("--n", {"type": click.IntRange(min=2), "default": 8, "show_default": True, "metavar": "N", "help": "Answers to each held-out prompt, before and after."}),
        ("--top-p", {"type": click.FloatRange(0, 1, min_open=True), "default": 1.0, "show_default": True, "metavar": "P", "help": "Probability of the tokens that held-out answers are drawn from; training draws from all."}),
        ("--generations", {"type": PATH, "metavar": "FOLDER", "help": "Keep the answers before training here, for several runs.  [default: DIR/generations]"}),
    ),
    "Options of training": (
        ("--steps", {"type": COUNT, "default": 100, "show_default": True, "metavar": "N", "help": "Steps."}),
        ("--group", {"type": click.IntRange(min=2), "default": 8, "show_default": True, "metavar": "N", "help": "Answers to a prompt."}),
        ("--prompts-per-step", {"type": COUNT, "default": 8, "show_default": True, "metavar": "N", "help": "Prompts of a step."}),
        ("--micro-batch", {"type": COUNT, "metavar": "N", "help": "Answers of one forward pass: less memory, the same step.  [default: 16]"}),
        ("--lr", {"type": POSITIVE, "metavar": "RATE", "help": "Learning rate.  [default: 1e-5; 1e-6 with --full]"}),
        ("--beta", {"type": WEIGHT, "default": 0.04, "show_default": True, "metavar": "B", "help": "Weight of the KL penalty."}),
        ("--epsilon", {"type": POSITIVE, "default": 0.2, "show_default": True, "metavar": "E", "help": "Where the ratio is clipped."}),
        ("--loss", {"type": click.Choice(["grpo", "dapo", "dr_grpo", "bnpo"]), "default": "grpo", "show_default": True, "help": "GRPO's loss, or one of TRL's later ones."}),
        ("--scale-rewards", {"type": click.Choice(["group", "batch", "none"]), "default": "group", "show_default": True, "help": "What advantages are divided by."}),
        ("--temperature", {"type": POSITIVE, "default": 1.0, "show_default": True, "metavar": "T", "help": "Sampling temperature, in training and after it."}),
        ("--max-new-tokens", {"type": COUNT, "metavar": "N", "help": "Most tokens of an answer, thinking included.  [default: 64 for blend-short, 256 for multiple choice]"}),
        ("--gradient-checkpointing", {"is_flag": True, "help": "Less memory, more time."}),
        ("--save-steps", {"type": COUNT, "default": 20, "show_default": True, "metavar": "N", "help": "Steps between checkpoints, and at most lost by a kill."}),
    ),
    "Options of the policy": (
        ("--lora-r", {"type": COUNT, "default": 16, "show_default": True, "metavar": "N", "help": "Rank of the LoRA adapter."}),
        ("--full", {"is_flag": True, "help": "Train all weights, not an adapter."}),
        ("--precision", {"type": click.Choice(["fp32", "bf16"]), "help": "bf16 is autocast: what is trained stays float32.  [default: bf16 on a GPU, fp32 on a CPU]"}),
        ("--device", {"metavar": "DEVICE", "help": "cpu, or the accelerator.  [default: the best there is]"}),
        ("--graphs/--no-graphs", {"default": True, "help": "Record tokens as CUDA graphs, on an NVIDIA GPU.  [default: graphs]"}),
        ("--threads", {"type": COUNT, "metavar": "N", "help": "CPU threads.  [default: all cores]"}),
        ("--context", {"type": COUNT, "metavar": "N", "help": "Most tokens of a prompt with its answer; longer prompts are left out.  [default: 1024, or the model's limit]"}),
        ("--batch-tokens", {"type": COUNT, "metavar": "N", "help": "Tokens in a batch when held-out answers are drawn."}),
        ("--revision", {"metavar": "REVISION", "help": "Revision of the policy on the Hugging Face Hub."}),
    ),
}  # fmt: skip
"""Heading to options: the name of each and what `click.option` takes."""


def _options(command: Any) -> Any:
    for section, options in reversed(SECTIONS.items()):
        command = add_options(command, section, options)
    return command


@click.command("policy", cls=GroupedCommand)
@click.option("--task", required=True, metavar="TASK", help="blend-short, blend-choice or include.")
@click.option(
    "--data", type=PATH, required=True, metavar="PATH", help="The task's data: a file or folder."
)
@click.option(
    "--policy",
    required=True,
    metavar="MODEL",
    help="The causal language model that is trained: a folder, ORG/NAME, or smollm2-135m.",
)
@click.option(
    "--scorer",
    "scorers",
    required=True,
    multiple=True,
    metavar="MODEL",
    help="A reward model to train against, as of habitus evaluate, in quotes with options of its "
    "own: 'judge:NAME --mode pairwise'; repeatable, a training for each.",
)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="The run's folder.")
@click.option(
    "--seed", type=SEED, default=0, show_default=True, metavar="N", help="Seed of everything."
)
@click.option(
    "--resume", is_flag=True, help="Go on in an existing folder, or add reward models to it."
)
@click.option(
    "--retry-failed",
    is_flag=True,
    help="With --resume: redo held-out answers and scores that ended in an error.",
)
@click.option(
    "--max-seconds",
    type=POSITIVE,
    metavar="S",
    help="Stop at the next point that can be gone on from after S seconds; --resume goes on.",
)
@_options
def policy(**given: Any) -> None:
    """Train a policy against reward models, and grade its answers before and after.

    GRPO trains one policy against each reward model, on the same prompts with the same seed. Does
    the task grade its answers to held-out questions better than before, or did it only learn what
    the reward model likes? DIR/policy.html shows quality, reward, drift and signs of hacking.
    """
    from habitus.cli.console import out as console
    from habitus.cli.console import say
    from habitus.downstream.policy_result import PAGE
    from habitus.report.policy import print_policy, write_policy
    from habitus.train.policy.run import train_policies

    result = train_policies(_plan(given), say)
    if result is None:
        return
    write_policy(given["out"])
    print_policy(result, console)
    say(f"page: {given['out'] / PAGE}")


def _plan(given: dict[str, Any]) -> PolicyPlan:
    from habitus.cli.console import say
    from habitus.downstream.plan import ScorerChoice
    from habitus.downstream.tasks import DEFAULT_TOKENS, MAX_NEW_TOKENS
    from habitus.train.grpo import Grpo
    from habitus.train.locals.model import ModelOptions
    from habitus.train.policy.plan import PolicyPlan

    full = given["full"]
    asked = [(text, *parse_model(text, "--scorer")) for text in given["scorers"]]
    grpo = (
        *("steps", "group", "prompts_per_step", "micro_batch", "beta", "epsilon"),
        *("scale_rewards", "temperature", "gradient_checkpointing", "save_steps"),
    )
    loading = ("revision", "context", "device", "precision", "graphs", "threads", "batch_tokens")
    same = (
        *("task", "data", "policy", "out", "n", "top_p", "seed", "limit", "held_out"),
        *("held_out_limit", "language", "generations", "max_seconds", "resume", "retry_failed"),
    )
    longest = given["max_new_tokens"] or MAX_NEW_TOKENS.get(given["task"], DEFAULT_TOKENS)
    return PolicyPlan(
        **{name: given[name] for name in same},
        scorers=tuple(ScorerChoice(name, own, " ".join(text.split())) for text, name, own in asked),
        countries=given["country"],
        trained_on=questions_trained_on(given["exclude_questions_of"]),
        grpo=Grpo(
            lr=given["lr"] or (1e-6 if full else 1e-5),
            loss_type=given["loss"],
            max_new_tokens=longest,
            **{name: given[name] for name in grpo},
        ),
        load=ModelOptions(
            lora=None if full else given["lora_r"],
            say=say,
            **{name: given[name] for name in loading},
        ),
        command=command_line(GOING_ON),
    )
