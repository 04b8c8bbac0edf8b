"""Options that commands share: one definition of all options of reward models."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.scorers import ScorerOptions

COUNT = click.IntRange(min=1)
"""A whole number that cannot be 0."""

SEED = click.IntRange(0, 2**32 - 1)
"""A seed of training: what the libraries that train take."""

Function = TypeVar("Function", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option with a heading of its own in --help."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        """Make an option.

        Args:
            *args: As of `click.Option`.
            section: The heading.
            **kwargs: As of `click.Option`.
        """
        super().__init__(*args, **kwargs)
        self.section = section


class GroupedCommand(click.Command):
    """A command whose --help lists its own options first, then grouped ones under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, heading by heading, in the order in which headings first appear."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _text(name: str, metavar: str, help: str) -> tuple[str, dict[str, Any]]:
    return name, {"metavar": metavar, "help": help}


def _choice(name: str, choices: Collection[str], help: str) -> tuple[str, dict[str, Any]]:
    return name, {"type": click.Choice(list(choices)), "help": help}


def _count(name: str, help: str) -> tuple[str, dict[str, Any]]:
    return name, {"type": COUNT, "metavar": "N", "help": help}


def _flag(name: str, help: str) -> tuple[str, dict[str, Any]]:
    return name, {"is_flag": True, "default": None, "help": help}


SECTIONS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "Options of judges": (
        _text(
            "--mode",
            "MODE",
            "How a judge judges: listwise (default), pairwise or pointwise; criteria is listwise "
            "with criteria first.",
        ),
        _flag("--criteria", "Let the judge write criteria before its verdict."),
        _text("--prompt", "FILE.txt", "A prompt file of your own."),
        _choice(
            "--instructions",
            ("english", "item"),
            "Language of the instructions: English (default) or the item's own.",
        ),
        _choice(
            "--verdict",
            ("logprobs", "text"),
            "Read the verdict from log-probabilities or from the text.  [default: the engine's "
            "best]",
        ),
        _count("--votes", "Ask each question N times and average; needs a temperature."),
        (
            "--temperature",
            {
                "type": click.FloatRange(min=0),
                "metavar": "T",
                "help": "Sampling temperature.  [default: 0; 1 with several --votes]",
            },
        ),
        _count("--max-tokens", "Most tokens that a judge may write for one question."),
        _choice(
            "--pairs",
            ("all", "knockout"),
            "Pairs of a pairwise judge: all against all (default) or a knockout.",
        ),
        _text("--scale", "LOW-HIGH", "Scale of a pointwise rating, such as 1-10."),
    ),
    "Engines and servers": (
        _text("--engine", "NAME", "What runs a judge: embedded, transformers, vllm or openai."),
        _text(
            "--base-url", "URL", "An OpenAI-compatible server, such as http://127.0.0.1:8000/v1."
        ),
        _text(
            "--api-key-env",
            "VARIABLE",
            "Environment variable that holds the server's key.  [default: OPENAI_API_KEY]",
        ),
        _count("--concurrency", "Most requests under way at once."),
        _count("--budget-tokens", "Stop when so many tokens, read and written, are spent."),
        _text("--cache", "FOLDER", "Keep a server's answers here, and ask nothing twice."),
        _count("--context", "Tokens of context.  [default: the model's own, within a limit]"),
        _count("--threads", "CPU threads.  [default: all cores of the process]"),
    ),
    "Options of local models": (
        _text("--revision", "REVISION", "Revision of the model on the Hugging Face Hub."),
        _text(
            "--dtype",
            "TYPE",
            "Number format of the weights.  [default: float32 on a CPU, else bfloat16]",
        ),
        _text("--device", "DEVICE", "Such as cpu or cuda:1.  [default: the best there is]"),
        _count("--batch-tokens", "Tokens in a batch.  [default: what fits]"),
        _choice(
            "--truncate",
            ("error", "left", "right"),
            "What to do with a text over the model's limit: mark it as truncated (error, the "
            "default), or cut it on the left or right.",
        ),
        _text("--template", "FILE", "A chat template in place of the model's own."),
        _choice(
            "--no-system",
            ("merge", "error"),
            "When the template has no system role: merge the system message into the user's turn, "
            "or refuse.",
        ),
        _flag("--compile", "Compile a classifier's layers: faster on a GPU, after some seconds."),
        _flag("--trust-remote-code", "Run code that comes with the model."),
    ),
    "Options of classifiers and implicit rewards": (
        (
            "--label",
            {
                "type": click.IntRange(min=0),
                "metavar": "N",
                "help": "Which output of a head with several is the reward, counted from 0.",
            },
        ),
        _flag("--allow-new-head", "Score with a head that the checkpoint does not have."),
        _text("--reference", "MODEL", "Reference model of an implicit (DPO) reward."),
        _choice(
            "--average",
            ("sum", "mean"),
            "Sum (default) or mean of an implicit reward over the response's tokens.",
        ),
    ),
    "Options of steered mixtures": (
        _text(
            "--countries",
            "A=0.7,B=0.3",
            "Countries of a steer: mixture and their shares, which are normalised to sum 1.",
        ),
        _choice(
            "--steer-by",
            ("scores", "weights"),
            "Mix the countries' scores (default) or their models' weights.",
        ),
    ),
}
"""Heading to options. Each is named after a field of `ScorerOptions`; not given, it is None."""


def scorer_options(command: Function) -> Function:
    """Give a command all options of reward models.

    The command takes them as one keyword argument `options`, a `ScorerOptions`. Use it below
    `@app.command(cls=GroupedCommand)` and after the command's own options.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # Deferred: --help needs neither the reward models nor the console.
        from habitus.cli.console import say
        from habitus.scorers import ScorerOptions

        given = {name: kwargs.pop(name) for name in option_names()}
        return command(*args, options=ScorerOptions(**given, say=say), **kwargs)

    decorated: Any = wrapper
    for section, options in reversed(SECTIONS.items()):
        decorated = add_options(decorated, section, options)
    found: Function = decorated
    return found


ENGINE_OPTIONS = (
    *("base_url", "api_key_env", "concurrency", "budget_tokens", "cache", "context", "threads"),
    *("revision", "dtype", "device", "batch_tokens", "template", "no_system", "trust_remote_code"),
)
"""Options of reward models that say how an engine runs any model, by their keyword."""


def engine_options(section: str) -> Callable[[Function], Function]:
    """Give a command the options of an engine, under a heading.

    The command takes them as one keyword argument `options`, a `ScorerOptions`.

    Args:
        section: The heading.
    """

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            from habitus.cli.console import say
            from habitus.scorers import ScorerOptions

            given = {name: kwargs.pop(name) for name in ENGINE_OPTIONS}
            return command(*args, options=ScorerOptions(**given, say=say), **kwargs)

        known = [option for options in SECTIONS.values() for option in options]
        chosen = [option for option in known if python_name(option[0]) in ENGINE_OPTIONS]
        found: Function = add_options(wrapper, section, chosen)
        return found

    return decorate


def parse_model(text: str, option: str) -> tuple[str, ScorerOptions]:
    """Read a reward model with options of its own, as they would follow `habitus evaluate`.

    Args:
        text: Such as "judge:NAME --engine vllm --mode pairwise".
        option: What it was given to, for the message.

    Raises:
        InputError: When an option is unknown or wrong, or there is no model.
    """

    @click.command(add_help_option=False)
    @click.argument("model")
    @scorer_options
    def read(model: str, options: ScorerOptions) -> tuple[str, ScorerOptions]:
        return model, options

    try:
        found: tuple[str, ScorerOptions] = read.main(
            shlex.split(text), prog_name=option, standalone_mode=False
        )
    except (ValueError, click.ClickException) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise InputError(f"{option} {text!r}: {said}") from error
    return found


def add_options(command: Any, section: str, options: Sequence[tuple[str, dict[str, Any]]]) -> Any:
    """Give a command options under a heading.

    Args:
        command: The command's function.
        section: The heading.
        options: Name of each option and what `click.option` takes.
    """
    for name, settings in reversed(options):
        command = click.option(name, cls=GroupedOption, section=section, **settings)(command)
    return command


def writer_options(command: Function) -> Function:
    """Give a command the options of how a writer's texts are asked for."""

    def count(name: str, default: int, help: str) -> Any:
        return click.option(
            name, type=COUNT, default=default, show_default=True, metavar="N", help=help
        )

    attempts = count(
        "--attempts", 3, "How often a text is asked for before what needs it is dropped."
    )
    temperature = click.option(
        "--temperature",
        type=click.FloatRange(min=0),
        default=0.7,
        show_default=True,
        metavar="T",
        help="Sampling temperature of the writer.",
    )
    max_tokens = count("--max-tokens", 1024, "Most tokens of one text, thinking included.")
    found: Function = attempts(temperature(max_tokens(command)))
    return found


def option_names() -> list[str]:
    """Return the names of all options of reward models, as Python writes them."""
    return [python_name(name) for options in SECTIONS.values() for name, _ in options]


def python_name(option: str) -> str:
    """Return the keyword of an option: `batch_size` of `--batch-size`."""
    return option.partition("/")[0].removeprefix("--").replace("-", "_")


def command_line(leave_out: Collection[str] = ()) -> str:
    """Return the command line of this call, with what was given and the defaults that are set.

    Args:
        leave_out: Names of parameters that only say where to write and how to go on.
    """
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in leave_out or value is None or value is False or value == ():
            continue
        name = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        if value is True:
            words += name
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [*name, str(each)]
    return shlex.join(words)
