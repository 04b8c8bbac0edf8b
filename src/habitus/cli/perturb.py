"""`habitus perturb`: counterfactual edits of a benchmark's responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from habitus.cli.options import (
    COUNT,
    SECTIONS,
    GroupedCommand,
    GroupedOption,
    writer_options,
)
from habitus.errors import InputError

FILE = click.Path(path_type=Path)

WRITER_OPTIONS = (
    *("--base-url", "--api-key-env", "--concurrency", "--budget-tokens", "--cache", "--context"),
    *("--threads", "--revision", "--dtype", "--device", "--batch-tokens", "--template"),
    *("--no-system", "--trust-remote-code"),
)
"""Options that engines read; an engine refuses those that it has no use for."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _writer_options(command: Function) -> Function:
    """Give a command the engines' options, as other commands have them."""
    decorated: Any = command
    known = {name: settings for options in SECTIONS.values() for name, settings in options}
    for name in reversed(WRITER_OPTIONS):
        option = click.option(
            name, cls=GroupedOption, section="Engine of the writer", **known[name]
        )
        decorated = option(decorated)
    found: Function = decorated
    return found


@click.command(cls=GroupedCommand)
@click.argument("bench", metavar="BENCH")
@click.option(
    "--cue",
    "cues",
    required=True,
    metavar="CUE,CUE...",
    help="Edits to make: RC, LN, FM, IN without a model; CC, CL, RP, GN, OP with a writer. "
    "CUE@rival or CUE@best names the response to edit.  [default: the best; of IN a wrong one]",
)
@click.option(
    "--out", type=FILE, required=True, metavar="FILE.jsonl", help="The cue benchmark to write."
)
@click.option("--format", "data_format", metavar="NAME", help="Format of BENCH.")
@click.option(
    "--to",
    "languages",
    multiple=True,
    metavar="LANG",
    help="Language that CL translates into, as a BCP 47 tag; repeatable.  [default: en]",
)
@click.option("--limit", type=COUNT, metavar="N", help="Edit N items, spread evenly.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn.")
@click.option("--resume", is_flag=True, help="Go on in an existing file.")
@click.option("--writer", metavar="MODEL", help="The model that writes edits.")
@click.option(
    "--writer-engine",
    metavar="NAME",
    help="What runs the writer: openai, vllm, embedded or transformers.  [default: openai with "
    "--base-url, else embedded]",
)
@writer_options
@_writer_options
def perturb(
    bench: str,
    cues: str,
    out: Path,
    data_format: str | None,
    languages: tuple[str, ...],
    limit: int | None,
    seed: int,
    resume: bool,
    writer: str | None,
    writer_engine: str | None,
    attempts: int,
    temperature: float,
    max_tokens: int,
    **engine_options: Any,
) -> None:
    """Edit the responses of BENCH, one cue at a time, for habitus diagnose.

    FILE gets the items and their edits; FILE.failures.jsonl says which edits could not be made.
    """
    from habitus.cli.console import out as console
    from habitus.cli.console import say
    from habitus.data import load
    from habitus.diagnose.perturb import PerturbPlan, parse_cues
    from habitus.diagnose.perturb import perturb as run_plan
    from habitus.diagnose.writing import find_lingua

    wanted = parse_cues(cues)
    given = {name: value for name, value in engine_options.items() if value is not None}
    if writer is None and (given or writer_engine):
        raise InputError("options of an engine need --writer MODEL")
    loaded = load(bench, format=data_format, seed=seed)
    targets = languages or ("en",)
    translates = any(one.cue == "CL" for one in wanted)
    spoken = {item.language for item in loaded.items if item.language}
    engine = None if writer is None else _start(writer, writer_engine, given)
    try:
        plan = PerturbPlan(
            loaded,
            wanted,
            out,
            writer=engine,
            languages=targets,
            lingua=find_lingua([*targets, *spoken]) if engine and translates else None,
            limit=limit,
            seed=seed,
            attempts=attempts,
            temperature=temperature,
            max_tokens=max_tokens,
            resume=resume,
        )
        found = run_plan(plan, say)
    finally:
        if engine is not None:
            engine.close()
    made = ", ".join(f"{count} {cue}" for cue, count in found.made.items()) or "no edits"
    console.print(f"{found.n_items} items: {made}", highlight=False)
    for (cue, status), count in sorted(found.failed.items()):
        console.print(f"failed: {count} {cue} {status}", highlight=False)
    say(f"next: habitus diagnose MODEL --benchmark {out}")


def _start(writer: str, name: str | None, given: dict[str, Any]) -> Any:
    from habitus.cli.console import say
    from habitus.scorers import ScorerOptions, engines

    chosen = name or ("openai" if "base_url" in given else engines.DEFAULT)
    options = ScorerOptions(**given, say=say)
    engines.check_options(f"{chosen} writer", chosen, options, ())
    return engines.start(chosen, writer, options)
