"""The tasks: prompts from public data, each with what its answers are graded by.

blend-short
    BLEnD's questions, answered in a few words, in each country's own language or in English.
    Grade: soft match against all voted answers (see `matching`).
blend-choice
    BLEnD as multiple choice: a country's majority answer against those of three others, rebuilt
    from the annotations (see `habitus.data.blend`), in English. Grade: the letter.
include
    INCLUDE's exam questions in their languages. Grade: the letter.
omgeval
    OMGEval's open prompts. Grade: a judge that is none of the reward models under test.

A task of another package is a function of `TaskOptions` under the entry point group
`habitus.tasks`.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from habitus import taxonomy
from habitus.data import load, omgeval
from habitus.data.about import ABOUT
from habitus.data.blend import published, region_of
from habitus.data.countries import country
from habitus.data.source import Source
from habitus.downstream.matching import countable, make_key
from habitus.downstream.model import ChoiceKey, JudgeKey, TaskPrompt
from habitus.errors import InputError, UnknownNameError
from habitus.prompts import Prompt, Segment, fill, parse_writer_prompt, plain, read_writer_prompt
from habitus.registry import Registry
from habitus.types import Item, Message, candidate_order, canonical_json, digest

TASKS = Registry(
    "task",
    {
        "blend-short": "habitus.downstream.tasks:blend_short",
        "blend-choice": "habitus.downstream.tasks:blend_choice",
        "include": "habitus.downstream.tasks:include",
        "omgeval": "habitus.downstream.tasks:omgeval_open",
    },
    group="habitus.tasks",
)
"""Name to a function of `TaskOptions` that returns a `Task`."""

MAX_NEW_TOKENS = {"blend-short": 64, "blend-choice": 256, "include": 256, "omgeval": 512}
"""Most tokens of an answer, unless the user says otherwise; `DEFAULT_TOKENS` for other tasks."""

DEFAULT_TOKENS = 256

SHORT_LANGUAGES = ("ar", "el", "en", "es", "fa", "id", "ko", "zh-Hans")
"""Languages that the instruction of short answers is written in; others get it in English."""

LETTERS = string.ascii_uppercase


@dataclass(frozen=True)
class TaskOptions:
    """What a task is made of."""

    data: Path
    """The data set: a file or folder."""
    seed: int = 0
    """Seed of the order of options, and of what the data's format draws."""
    language: str = "own"
    """Of blend-short: "own", each country's language, or "en"."""
    part: str = "all"
    """Of omgeval: "all", or "local", the localised part."""


@dataclass(frozen=True)
class Task:
    """A task, loaded."""

    name: str
    """Its name."""
    source: str
    """The data set's name."""
    licence: str
    """The data's licence, an SPDX identifier."""
    prompts: tuple[TaskPrompt, ...]
    """What is asked."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as rows that were left out."""
    published: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Prompt to the models and texts of its published answers, where the data have some."""

    @property
    def digest(self) -> str:
        """Names what is asked and how it is graded."""
        return digest([prompt.model_dump(mode="json") for prompt in self.prompts])

    @property
    def judged(self) -> bool:
        """True when answers are graded by a judge."""
        return any(isinstance(prompt.key, JudgeKey) for prompt in self.prompts)


def load_task(name: str, options: TaskOptions) -> Task:
    """Load a task.

    Raises:
        UnknownNameError: When there is no such task.
        InputError: When the data are missing or wrong, or an option does not apply.
    """
    make = cast("Callable[[TaskOptions], Task]", TASKS.get(name))
    if options.language != "own" and name != "blend-short":
        raise InputError(f"--language does not apply to {name}; only to blend-short")
    if options.part != "all" and name != "omgeval":
        raise InputError(f"--part does not apply to {name}; only to omgeval")
    if not options.data.exists():
        raise InputError(f"no such file or folder: {options.data}")
    return make(options)


def without_questions(task: Task, groups: Collection[str]) -> Task:
    """Leave out questions that reward models have been trained on.

    Args:
        task: The task.
        groups: The questions, as `TaskPrompt.group` names them.

    Raises:
        InputError: When no prompt is left.
    """
    kept = tuple(prompt for prompt in task.prompts if prompt.group not in groups)
    if not kept:
        raise InputError(
            f"--exclude-questions-of leaves out all {len(task.prompts):,} prompts of {task.name}; "
            "keep questions for it when pairs are made (the part test of habitus pairs)"
        )
    left_out = len(task.prompts) - len(kept)
    note = f"{left_out:,} prompts left out: their questions are in the training pairs given"
    if not left_out:
        note = (
            f"no question of {task.name} is in the training pairs given, as far as the ids that the "
            "data sets give their questions tell"
        )
    return replace(task, prompts=kept, notes=(*task.notes, note))


def choose(
    task: Task, countries: Sequence[str] = (), limit: int | None = None, seed: int = 0
) -> Task:
    """Keep some of a task's prompts.

    Args:
        task: The task.
        countries: Names of the countries to keep, in any case; empty keeps all.
        limit: Most prompts of a country, drawn by question, so that countries share questions.
        seed: Seed of the draw.

    Raises:
        UnknownNameError: When the task has no such country.
    """
    known = {prompt.country.lower(): prompt.country for prompt in task.prompts}
    kept = []
    for name in countries:
        asked = " ".join(name.replace("_", " ").lower().split())
        asked = asked if asked in known else country(asked)[0].lower()
        if asked not in known:
            raise UnknownNameError("country", name, known.values())
        kept.append(known[asked])
    prompts: Iterable[TaskPrompt] = task.prompts
    if kept:
        prompts = [prompt for prompt in prompts if prompt.country in kept]
    if limit is not None:
        prompts = _limited(prompts, limit, seed)
    return replace(task, prompts=tuple(prompts))


def _limited(prompts: Iterable[TaskPrompt], limit: int, seed: int) -> list[TaskPrompt]:
    def key(prompt: TaskPrompt) -> bytes:
        name = canonical_json([seed, prompt.group, prompt.id])
        first = hashlib.sha256(canonical_json([seed, prompt.group]).encode()).digest()
        return first + name.encode()

    listed = list(prompts)
    ranks: Counter[str] = Counter()
    drawn = set()
    for prompt in sorted(listed, key=key):
        ranks[prompt.country] += 1
        if ranks[prompt.country] <= limit:
            drawn.add(prompt.id)
    return [prompt for prompt in listed if prompt.id in drawn]


def blend_short(options: TaskOptions) -> Task:
    """Make BLEnD's short-answer task."""
    source = Source(options.data, seed=options.seed)
    own = options.language == "own"
    prompts, skipped = [], Counter[str]()
    found = published(source)
    for region in found.wanted:
        about = region_of(region)
        tag = about.language if own else "en"
        prompt = _short_prompt(tag)
        for id, entries in found.questions.items():
            if region not in entries:
                continue
            entry = entries[region]
            text = entry.question if own else entry.en_question
            key = make_key(entry.annotations, tag)
            if not countable(entry.idks, entry.annotations) or not key.answers:
                skipped["too many had no answer, or none was given"] += 1
                continue
            if not text.strip():
                skipped["the question is not published in the region's language"] += 1
                continue
            values = {"question": text.strip(), "language": _language_name(tag)}
            prompts.append(
                TaskPrompt(
                    id=f"{id}:{region}",
                    group=id,
                    country=about.country,
                    culture=about.culture,
                    language=tag,
                    messages=_messages(prompt, values),
                    key=key,
                )
            )
    return _task("blend-short", "blend", "CC-BY-SA-4.0", prompts, skipped)


def _short_prompt(tag: str) -> Prompt:
    return _prompt(f"short.{tag}" if tag in SHORT_LANGUAGES else "short")


def _language_name(tag: str) -> str:
    known = taxonomy.lookup(tag)
    return known.name if known else tag


def blend_choice(options: TaskOptions) -> Task:
    """Make BLEnD's multiple-choice task."""
    return _choice("blend-choice", "blend", options)


def include(options: TaskOptions) -> Task:
    """Make INCLUDE's task."""
    return _choice("include", "include", options)


def _choice(name: str, format: str, options: TaskOptions) -> Task:
    """Make a task of a benchmark's items: candidates are options, in an order of the seed."""
    loaded = load(str(options.data), format=format, seed=options.seed)
    prompt = _prompt("choice")
    prompts = [_choice_prompt(item, prompt, options.seed) for item in loaded.items]
    licences = sorted({item.licence for item in loaded.items if item.licence})
    return _task(
        name, format, " AND ".join(licences) or "not named", prompts, Counter(loaded.skipped)
    )


def _choice_prompt(item: Item, prompt: Prompt, seed: int) -> TaskPrompt:
    order = candidate_order(item, seed)
    letters = tuple(LETTERS[: len(order)])
    texts = {candidate.id: candidate.text for candidate in item.candidates}
    shown = "\n".join(f"{letter}. {texts[id]}" for letter, id in zip(letters, order, strict=True))
    values = {"question": item.prompt[-1].content, "options": shown, "letters": ", ".join(letters)}
    right = tuple(
        letter for letter, id in zip(letters, order, strict=True) if id in set(item.best_ids)
    )
    return TaskPrompt(
        id=item.id,
        group=item.parent_id or item.id,
        country=item.country or item.culture or "not named",
        culture=item.culture,
        language=item.language,
        messages=(*item.prompt[:-1], *_messages(prompt, values)),
        key=ChoiceKey(letters=letters, right=right),
    )


def omgeval_open(options: TaskOptions) -> Task:
    """Make OMGEval's task; its countries are languages."""
    prompts, published = [], {}
    for found in omgeval.read(Source(options.data, seed=options.seed)):
        if options.part == "local" and not found.local:
            continue
        id = f"{found.tag}:{found.number}"
        prompts.append(
            TaskPrompt(
                id=id,
                group=str(found.number),
                country=found.language,
                language=found.tag,
                messages=(Message(role="user", content=found.text),),
                key=JudgeKey(),
            )
        )
        if found.answers:
            published[id] = found.answers
    task = _task("omgeval", "omgeval", "MIT", prompts, Counter())
    return replace(task, published=published)


def _task(
    name: str,
    source: str,
    licence: str,
    prompts: Sequence[TaskPrompt],
    skipped: Mapping[str, int],
) -> Task:
    reasons = [
        f"questions left out over all countries: {count:,} x {reason}"
        for reason, count in skipped.items()
    ]
    if not prompts:
        raise InputError(
            f"{name}: no prompt is left ({'; '.join(reasons) or 'the data are empty'})"
        )
    about = ABOUT.get(source)
    title = f"{about.title} ({about.paper})" if about else source
    return Task(name, title, licence, tuple(prompts), tuple(reasons))


def _prompt(name: str) -> Prompt:
    return parse_writer_prompt(name, read_writer_prompt("downstream", name))


def _messages(prompt: Prompt, values: Mapping[str, str | Sequence[Segment]]) -> tuple[Message, ...]:
    """Fill the user's section; what is filled in is never looked at again."""
    return (Message(role="user", content=plain(fill(prompt.sections["user"], values))),)
