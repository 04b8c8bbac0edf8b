"""Build best-of-four items for a culture from documented facts (papers: CARB A1).

A writer asks what a reference decides and answers from it; a pool of writers answers the same
question from mismatched references; an embedding filter keeps answers that are nearest to their own
reference; and all four are brought to nearly the same length. The folder can be resumed: what was
asked once is not asked again, and the files have the bytes of an unbroken build.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from habitus.build.card import make_card, write_card
from habitus.build.checks import Languages, find_languages
from habitus.build.embedders import Embedder, EmbedderOptions, make_embedder
from habitus.build.filtering import Filter
from habitus.build.flights import Flight, Rules
from habitus.build.items import make_item
from habitus.build.pipeline import Pipeline
from habitus.build.records import StageLogs
from habitus.build.references import (
    CulturalReference,
    ReferenceSet,
    Target,
    read_references,
    targets,
)
from habitus.build.writers import Writers
from habitus.clients.engine import Engine, describe
from habitus.errors import InputError, RunError
from habitus.prompts import Prompt
from habitus.prompts.building import load_build_prompts
from habitus.scorers import ScorerOptions, engines
from habitus.store import dump_line, hold, refuse_changes, versions, write_atomic
from habitus.types import Item, digest

__all__ = [
    "BuildPlan",
    "BuildResult",
    "CulturalReference",
    "WriterOptions",
    "build",
    "read_references",
    "start_writer",
]

BUILD, REFERENCES, ITEMS, STAGES, ANSWERS = (
    *("build.json", "references.jsonl", "items.jsonl", "stages", ".answers"),
)
"""Names in a build's folder: configuration, references as read, the benchmark, the records of the
stages, and a server's answers."""

LIBRARIES = (
    *("lingua-language-detector", "numpy", "openai", "pydantic", "scikit-learn"),
    *("sentence-transformers", "torch", "transformers", "xllamacpp"),
)
"""Libraries whose versions a build records."""

SERVERS = ("openai", "vllm")
"""Engines that ask a server."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class WriterOptions:
    """How writers are run."""

    engine: str | None = None
    """Name of the engine; None is "openai" where there is an address, else "embedded"."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key."""
    concurrency: int | None = None
    """Most requests under way at once."""
    context: int | None = None
    """Tokens of context."""
    threads: int | None = None
    """CPU threads of an embedded model."""


@dataclass(frozen=True)
class BuildPlan:
    """What to build, and with what."""

    references: Path
    """File of references that items are made of."""
    out: Path
    """The folder."""
    writer: str
    """Model that writes questions, chosen answers, translations and rewrites: `MODEL`, or
    `MODEL@URL` for one at a server of its own."""
    pool: tuple[str, ...] = ()
    """Models that write rejected answers; empty is the writer."""
    options: WriterOptions = field(default_factory=WriterOptions)
    """How writers are run."""
    culture: str | None = None
    """Make items of this culture's references only."""
    mismatch: Path | None = None
    """File of references that only mislead."""
    per_reference: int = 1
    """Questions for each reference."""
    attempts: int = 3
    """How often a text is asked for."""
    embedder: str = "tfidf"
    """What compares texts: "tfidf", "openai:MODEL" or "st:FOLDER"."""
    embedder_url: str | None = None
    """Address of the embedder's server; None is that of the writers."""
    near: float | None = None
    """Least cosine of an answer to its own reference; None is the embedder's own."""
    margin: float = 0.0
    """By how much more the cosine to any other reference must be lower."""
    seed: int = 0
    """Seed of texts, mismatches, orders and `limit`."""
    limit: int | None = None
    """Make at most so many items, spread over cultures and domains."""
    temperature: float = 0.7
    """Sampling temperature of the writers."""
    max_tokens: int = 1024
    """Most tokens of one text, thinking included."""
    budget_tokens: int | None = None
    """Most tokens of the build, over all calls."""
    resume: bool = False
    """Go on in an existing folder."""
    command: str | None = None
    """The command line that does this, for the record."""

    @property
    def writers(self) -> tuple[str, ...]:
        """All writers, each once."""
        return tuple(dict.fromkeys([self.writer, *self.pool]))


@dataclass(frozen=True)
class BuildResult:
    """What came of a build."""

    items: tuple[Item, ...]
    """The benchmark."""
    card: Mapping[str, Any]
    """The data card."""
    path: Path
    """The benchmark's file."""


def start_writer(plan: BuildPlan, name: str, say: Say = lambda line: None) -> Engine:
    """Start the engine of one of a plan's writers.

    Args:
        plan: The plan.
        name: `MODEL` or `MODEL@URL`.
        say: Called with lines for the user.

    Raises:
        HabitusError: When the model cannot be had, or an option does not apply to its engine.
    """
    model, at, url = name.rpartition("@")
    own = bool(at) and url.startswith(("http://", "https://"))
    model, address = (model, url) if own else (name, plan.options.base_url)
    engine = plan.options.engine or ("openai" if address else engines.DEFAULT)
    given = plan.options
    options = ScorerOptions(
        engine=engine,
        base_url=address,
        api_key_env=given.api_key_env,
        concurrency=given.concurrency,
        context=given.context,
        threads=given.threads,
        cache=str(plan.out / ANSWERS) if engine in SERVERS else None,
        say=say,
    )
    engines.check_options(engine, engine, options, ("engine",))
    return engines.start(engine, model, options)


def build(
    plan: BuildPlan,
    say: Say = lambda line: None,
    *,
    start: Callable[[str], Engine] | None = None,
    languages: Callable[[Sequence[str]], Languages | None] | None = None,
) -> BuildResult:
    """Build a benchmark into `plan.out`.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        start: Makes the engine of a writer; None goes by the plan's options.
        languages: Makes what recognises the languages with these tags, or gives None; left out, it
            is lingua where that is installed.

    Returns:
        The items, also when there are none: the card then says why.

    Raises:
        InputError: When a reference, a name or an option is wrong.
        RunError: When the folder is locked, exists without `resume`, or was made otherwise.
        HabitusError: When a model cannot go on or the budget is used up. What is there is kept.
    """
    _check(plan)
    references = read_references(plan.references, plan.mismatch)
    make = languages or find_languages
    known = make(sorted({one.language for one in references.pool}))
    if known is not None:  # again, now that the languages are known
        references = read_references(plan.references, plan.mismatch, known.recognise)
    made = targets(
        references,
        culture=plan.culture,
        per_reference=plan.per_reference,
        limit=plan.limit,
        seed=plan.seed,
    )
    speaks = make(_written(made))
    _refuse_existing(plan)
    begin = start or (lambda name: start_writer(plan, name, say))
    with ExitStack() as stack:
        started: dict[str, Engine] = {}
        for name in plan.writers:
            started[name] = begin(name)
            stack.callback(started[name].close)
        embedder = _embedder(plan)
        stack.callback(embedder.close)
        prompts = load_build_prompts()
        config = _config(plan, references, started, embedder, prompts, speaks)
        with hold(plan.out / ".lock", plan.out):
            _prepare(plan, config, references, say)
            with _said(plan, say):
                return _run(plan, config, references, made, started, embedder, prompts, speaks)


def _check(plan: BuildPlan) -> None:
    least = {"per_reference": 1, "attempts": 1, "max_tokens": 1, "limit": 1, "budget_tokens": 1}
    for name, low in least.items():
        value = getattr(plan, name)
        if value is not None and value < low:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be {low} or more")
    if plan.temperature < 0:
        raise InputError(f"--temperature {plan.temperature:g}: must be 0 or more")
    for option, cosine in (("near", plan.near), ("margin", plan.margin)):
        if cosine is not None and not -1 <= cosine <= 1:
            raise InputError(f"--{option} {cosine:g}: a cosine is between -1 and 1")


def _written(made: Sequence[Target]) -> list[str]:
    """Return the languages that a writer is asked for or reads notes in.

    Not those of all mismatched references: one Malay fact among them would make lingua take half of
    the Indonesian texts for Malay.
    """
    asked = {target.reference.language for target in made}
    notes = {one.text_language for target in made for one in (target.reference, *target.wrong)}
    return sorted(asked | {tag for tag in notes if tag})


def _refuse_existing(plan: BuildPlan) -> None:
    """Refuse to write over a build, before a model is loaded."""
    if (plan.out / BUILD).exists() and not plan.resume:
        raise RunError(f"{plan.out} holds a build; add --resume to go on, or name another --out")
    if (plan.out / STAGES).exists() and not (plan.out / BUILD).exists():
        raise RunError(f"{plan.out} holds records without {BUILD}; name another --out")


def _embedder(plan: BuildPlan) -> Embedder:
    kind = plan.embedder.partition(":")[0]
    url = plan.embedder_url or (plan.options.base_url if kind == "openai" else None)
    options = EmbedderOptions(
        url, plan.options.api_key_env, plan.options.concurrency or 8, plan.out / ANSWERS
    )
    return make_embedder(plan.embedder, options)


def _config(
    plan: BuildPlan,
    references: ReferenceSet,
    started: Mapping[str, Engine],
    embedder: Embedder,
    prompts: Mapping[str, Prompt],
    speaks: Languages | None,
) -> dict[str, Any]:
    """Return everything that can change the result."""

    def fingerprint(rows: Sequence[CulturalReference]) -> str:
        return digest([row.model_dump(mode="json") for row in rows])

    names = ("culture", "per_reference", "limit", "attempts", "seed", "temperature", "max_tokens")
    return {
        **{name: getattr(plan, name) for name in names},
        "references": fingerprint(references.references),
        "mismatch": fingerprint(references.mismatch),
        "writer": plan.writer,
        "pool": list(plan.pool or (plan.writer,)),
        "writers": {name: describe(engine) for name, engine in started.items()},
        "embedder": embedder.name,
        "near": embedder.near if plan.near is None else plan.near,
        "margin": plan.margin,
        "prompts": {name: prompt.digest for name, prompt in prompts.items()},
        "languages": speaks.name if speaks else None,
    }


def _prepare(
    plan: BuildPlan, config: Mapping[str, Any], references: ReferenceSet, say: Say
) -> None:
    """Write configuration and references first, or check that an existing build is the same."""
    file = plan.out / BUILD
    _refuse_existing(plan)
    if file.exists():
        try:
            old = json.loads(file.read_bytes())["config"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} is no record of a build; name another --out") from error
        refuse_changes(old, json.loads(json.dumps(config)), plan.out)
        return
    if plan.resume:
        say(f"nothing to resume in {plan.out}: starting anew")
    write_atomic(plan.out / REFERENCES, (dump_line(one) for one in references.pool))
    whole = {
        "config": config,
        "versions": versions(LIBRARIES),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": plan.command,
    }
    text = json.dumps(whole, ensure_ascii=False, indent=2)
    write_atomic(file, [text.encode(), b"\n"])


@contextmanager
def _said(plan: BuildPlan, say: Say) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped: what is written is kept in {plan.out}; go on with --resume")
        raise


def _run(
    plan: BuildPlan,
    config: Mapping[str, Any],
    references: ReferenceSet,
    made: Sequence[Target],
    started: Mapping[str, Engine],
    embedder: Embedder,
    prompts: Mapping[str, Prompt],
    speaks: Languages | None,
) -> BuildResult:
    """Run the stages over all items, and write benchmark and card."""
    writers = Writers(
        started,
        seed=plan.seed,
        temperature=plan.temperature,
        max_tokens=plan.max_tokens,
        budget=plan.budget_tokens,
    )
    rules = Rules(plan.writer, plan.pool or (plan.writer,), plan.attempts, plan.seed)
    flights = [Flight(target) for target in made]

    def left() -> list[Flight]:
        return [flight for flight in flights if flight.dropped is None]

    logs = StageLogs(plan.out / STAGES)
    try:
        pipeline = Pipeline(rules, prompts, writers, logs, speaks)
        if not embedder.across_languages:
            pipeline.translate(flights)
        pipeline.ask_questions(left())
        facts = pipeline.facts(flights) if left() else []
        tokens = embedder.fit(facts) if facts else 0
        writers.spend("".join(facts), tokens)
        compare = Filter(embedder, float(config["near"]), plan.margin, writers.spend)
        pipeline.choose(left(), compare)
        pipeline.reject(left(), compare)
        pipeline.match(left(), compare)
        items = tuple(make_item(flight, plan.seed) for flight in left())
        card = make_card(config, references, flights, items, logs, (len(facts), tokens))
    finally:
        logs.close()
    write_atomic(plan.out / ITEMS, (dump_line(item) for item in items))
    write_card(plan.out, card)
    return BuildResult(items, card, plan.out / ITEMS)
