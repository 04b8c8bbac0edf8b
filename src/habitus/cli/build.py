"""`habitus build`: best-of-four items for a culture from documented facts."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import COUNT, command_line, writer_options
from habitus.errors import HabitusError

FILE = click.Path(path_type=Path)
GOING_ON = ("out", "resume", "budget_tokens", "concurrency")
"""Parameters that only say where to write and how to go on."""


@click.command()
@click.argument("references", type=FILE)
@click.option(
    "--out", type=FILE, required=True, metavar="FOLDER", help="Where to write the benchmark."
)
@click.option(
    "--writer",
    required=True,
    metavar="MODEL",
    help="Writes questions, chosen answers and rewrites; MODEL@URL for a server of its own.",
)
@click.option(
    "--writer-engine",
    metavar="NAME",
    help="What runs the writers: openai, vllm, embedded or transformers.  [default: openai with "
    "--base-url, else embedded]",
)
@click.option(
    "--base-url",
    metavar="URL",
    help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.",
)
@click.option(
    "--api-key-env",
    metavar="VARIABLE",
    help="Environment variable that holds the server's key.  [default: OPENAI_API_KEY]",
)
@click.option(
    "--rejected-writer",
    "pool",
    multiple=True,
    metavar="MODEL",
    help="Writes rejected answers; repeatable, for a pool.  [default: the writer]",
)
@click.option("--culture", metavar="NAME", help="Make items of this culture's references only.")
@click.option(
    "--mismatch",
    type=FILE,
    metavar="REFERENCES",
    help="More references, from which only rejected answers are written.",
)
@click.option(
    "--per-reference",
    type=COUNT,
    default=1,
    show_default=True,
    metavar="N",
    help="Questions for each reference.",
)
@click.option("--limit", type=COUNT, metavar="N", help="Make at most N items.")
@click.option(
    "--embedder",
    default="tfidf",
    show_default=True,
    metavar="NAME",
    help="What compares answers with references: tfidf, openai:MODEL or st:FOLDER.",
)
@click.option(
    "--embedder-url",
    metavar="URL",
    help="Server of an openai:MODEL embedder.  [default: that of --base-url]",
)
@click.option(
    "--near",
    type=click.FloatRange(-1, 1),
    metavar="COSINE",
    help="Least cosine of an answer to its own reference.  [default: 0.1 with tfidf, else 0.3]",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="COSINE",
    help="By how much more the cosine to any other reference must be lower.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn.")
@writer_options
@click.option(
    "--budget-tokens",
    type=COUNT,
    metavar="N",
    help="Stop when the build has spent so many tokens, read and written.",
)
@click.option("--concurrency", type=COUNT, metavar="N", help="Most requests under way at once.")
@click.option("--context", type=COUNT, metavar="N", help="Tokens of context.")
@click.option("--threads", type=COUNT, metavar="N", help="CPU threads of an embedded model.")
@click.option("--resume", is_flag=True, help="Go on in an existing folder.")
def build(
    references: Path,
    out: Path,
    writer: str,
    writer_engine: str | None,
    base_url: str | None,
    api_key_env: str | None,
    pool: tuple[str, ...],
    culture: str | None,
    mismatch: Path | None,
    per_reference: int,
    limit: int | None,
    attempts: int,
    embedder: str,
    embedder_url: str | None,
    near: float | None,
    margin: float,
    seed: int,
    temperature: float,
    max_tokens: int,
    budget_tokens: int | None,
    concurrency: int | None,
    context: int | None,
    threads: int | None,
    resume: bool,
) -> None:
    """Build best-of-four items from REFERENCES, documented facts about cultures in JSONL.

    A writer asks what a fact decides and answers from it; rejected answers are written from facts
    about other cultures. FOLDER/items.jsonl is a benchmark, FOLDER/card.md says what was made,
    dropped and spent.
    """
    from habitus.build import BuildPlan, WriterOptions
    from habitus.build import build as run_plan
    from habitus.cli.console import out as console
    from habitus.cli.console import say

    plan = BuildPlan(
        references=references,
        out=out,
        writer=writer,
        pool=pool,
        options=WriterOptions(writer_engine, base_url, api_key_env, concurrency, context, threads),
        culture=culture,
        mismatch=mismatch,
        per_reference=per_reference,
        attempts=attempts,
        embedder=embedder,
        embedder_url=embedder_url,
        near=near,
        margin=margin,
        seed=seed,
        limit=limit,
        temperature=temperature,
        max_tokens=max_tokens,
        budget_tokens=budget_tokens,
        resume=resume,
        command=command_line(GOING_ON),
    )
    result = run_plan(plan, say)
    card = result.card
    console.print(f"{card['items']} of {card['planned']} items", highlight=False)
    for stage, reasons in card["dropped"].items():
        shown = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        console.print(f"dropped at {stage}: {shown}", highlight=False)
    read = sum(row["read"] for row in card["tokens"])
    written = sum(row["written"] for row in card["tokens"])
    console.print(f"tokens: {read:,} read, {written:,} written", highlight=False)
    say(f"card: {out / 'card.md'}")
    if not result.items:
        raise HabitusError(f"no item is left; {out / 'card.md'} says why")
    say(f"next: habitus audit {result.path}")
