"""Best-of-n into a folder: answers once, grades once, then each reward model's scores.

The folder grows: going on with `resume` finishes what a kill left, and further reward models are
added to those that are there, each at the cost of its own scores. Figures are computed anew from
the files each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from habitus.clients.engine import describe
from habitus.downstream import model as files
from habitus.downstream.entries import add_entry, entry_of, read_entries
from habitus.downstream.generate import GenerationFile, generate, generation_file, published
from habitus.downstream.grading import answer_of
from habitus.downstream.model import (
    Generation,
    ScorerEntry,
    TaskPrompt,
)
from habitus.downstream.pick import (
    AnswerSet,
    check_grader,
    check_size,
    complete,
    items_of,
    judge_sets,
    score_lines,
    units_of,
    win_rates,
)
from habitus.downstream.plan import PUBLISHED, BestOfNPlan, ScorerChoice
from habitus.downstream.result import Downstream, PolicyResult
from habitus.downstream.summary import Scored, answer_counts, distinct_texts, figures_of
from habitus.downstream.tasks import Task, TaskOptions, choose, load_task, without_questions
from habitus.errors import InputError, RunError
from habitus.scorers import engines, resolve
from habitus.store import (
    dump_line,
    hold,
    read_judgements,
    refuse_changes,
    versions,
    write_atomic,
    write_json,
)
from habitus.types import Frozen, Item, ScorerSpec, digest

LIBRARIES = ("numpy", "openai", "polars", "scipy", "torch", "transformers", "xllamacpp")
"""Libraries whose versions are recorded."""

GRADES = "grades.jsonl"
"""The grader's judgements."""

Say = Callable[[str], None]


def best_of_n(plan: BestOfNPlan, say: Say = lambda line: None) -> Downstream:
    """Run a plan, or what is left of it.

    Args:
        plan: What to do.
        say: Called with lines for the user.

    Returns:
        The figures, which are in `downstream.json` too.

    Raises:
        InputError: When the plan or the data are wrong.
        RunError: When the folder is locked, exists without `resume`, or was made otherwise.
        HabitusError: When the policy or a reward model cannot go on at all. What was done before
            is kept.
    """
    plan.check()
    options = TaskOptions(plan.data, plan.seed, plan.language, plan.part)
    task = load_task(plan.task, options)
    if plan.policy == PUBLISHED:
        task = _only_published(task)
    if plan.trained_on:
        task = without_questions(task, plan.trained_on)
    task = choose(task, plan.countries, plan.limit, plan.seed)
    say(f"data: {task.source}, {task.licence}; {len(task.prompts):,} prompts")
    if task.judged != (plan.grader is not None):
        raise InputError(
            f"{plan.task} is graded by a judge: name one that is no reward model under test, with "
            "--grader MODEL"
            if task.judged
            else f"--grader does not apply to {plan.task}, whose answers have a key"
        )
    with hold(plan.out / ".lock", plan.out):
        return _Run(plan, task, say).go()


def _only_published(task: Task) -> Task:
    kept = tuple(prompt for prompt in task.prompts if len(task.published.get(prompt.id, ())) > 1)
    if not kept:
        raise InputError(f"{task.name} has no published answers here; name a --policy that answers")
    note = f"{len(task.prompts) - len(kept):,} prompts left out: no published answers"
    notes = (*task.notes, note) if len(kept) < len(task.prompts) else task.notes
    return Task(task.name, task.source, task.licence, kept, notes, task.published)


class _Run:
    """One run of a plan whose folder is locked."""

    def __init__(self, plan: BestOfNPlan, task: Task, say: Say) -> None:
        self._plan = plan
        self._task = task
        self._say = say
        self._out = plan.out
        self._config: dict[str, Any] = {}
        self._made: dict[bool, dict[str, Item]] = {}

    def go(self) -> Downstream:
        generations = self._generations()
        sets = [self._answers(prompt, found) for prompt, found in generations]
        grader = self._grade(sets) if self._plan.grader else None
        if grader is not None:
            sets = self._with_grades(sets, grader)
        _write_lines(self._out / files.ANSWERS, (one for s in sets for one in s.answers))
        entries = read_entries(self._out)
        for choice in self._plan.scorers:
            self._score(choice, sets, entries, grader)
        return self._summarise(sets, entries, grader, [found for _, found in generations])

    # --- the configuration ---

    def _resolve(self, policy: Mapping[str, Any]) -> None:
        """Write what the folder is made of, or check that an existing one is made the same way."""
        plan, task = self._plan, self._task
        config = {
            "task": plan.task,
            "data": {"source": task.source, "licence": task.licence, "digest": task.digest},
            "language": plan.language,
            "part": plan.part,
            "countries": list(plan.countries),
            "limit": plan.limit,
            "prompts": len(task.prompts),
            "policy": dict(policy),
            "grader": plan.grader.asked if plan.grader else None,
            "n": plan.n,
            "seed": plan.seed,
        }
        old = self._old()
        if old is None:
            self._config = config | {"versions": versions(LIBRARIES), "command": plan.command}
            _write_lines(self._out / files.PROMPTS, task.prompts)
            write_json(self._out / files.CONFIG, self._config, indent=2)
        else:
            refuse_changes({key: old.get(key) for key in config}, config, self._out)
            self._config = old

    def _old(self) -> dict[str, Any] | None:
        path = self._out / files.CONFIG
        if not path.exists():
            return None
        if not self._plan.resume:
            raise RunError(
                f"{self._out} holds a run; add --resume to go on or to add reward models, or name "
                "another --out"
            )
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise RunError(f"{path} is unreadable; name another --out") from error
        return found

    # --- the policy ---

    def _generations(self) -> list[tuple[TaskPrompt, list[Generation]]]:
        """Return all answers, drawing those that are missing."""
        if self._plan.policy == PUBLISHED:
            return self._published()
        old = self._old()
        known = old["policy"] if old else None
        asked = self._plan.asked_policy()
        if isinstance(known, dict) and {key: known.get(key) for key in asked} == asked:
            self._resolve(known)
            file = self._file(known["name"], known["digest"])
            file.open()
            if not file.missing(self._digests(), self._plan.n):
                self._say("the policy's answers are all there; it is not loaded")
                return self._read(file)
        return self._draw()

    def _draw(self) -> list[tuple[TaskPrompt, list[Generation]]]:
        plan = self._plan
        engines.check_options(f"{plan.engine} policies", plan.engine, plan.options, ("engine",))
        with closing(engines.start(plan.engine, plan.policy, plan.options)) as engine:
            about = describe(engine)
            policy = digest(about)
            self._resolve({**plan.asked_policy(), "name": engine.model, "digest": policy})
            file = self._file(engine.model, policy)
            generate(
                file,
                self._task.prompts,
                plan.n,
                engine,
                policy,
                plan.sampling,
                plan.seed,
                self._say,
            )
            sampling = plan.sampling.model_dump(mode="json")
            file.describe({"policy": about, "sampling": sampling, "seed": plan.seed})
        return self._read(file)

    def _file(self, name: str, policy: str) -> GenerationFile:
        plan = self._plan
        folder = plan.generations or plan.out / files.GENERATIONS
        about = (plan.task, name, policy, plan.sampling, plan.seed)
        return generation_file(folder, *about, retry_failed=plan.retry_failed)

    def _digests(self) -> list[str]:
        return [prompt.digest for prompt in self._task.prompts]

    def _read(self, file: GenerationFile) -> list[tuple[TaskPrompt, list[Generation]]]:
        return [
            (prompt, file.answers(prompt.digest, self._plan.n)) for prompt in self._task.prompts
        ]

    def _published(self) -> list[tuple[TaskPrompt, list[Generation]]]:
        found = published(self._task.prompts, self._task.published)
        models = sorted({one.model or "" for each in found.values() for one in each})
        units = [one.unit for each in found.values() for one in each]
        name = f"published: {', '.join(models)}"
        asked: dict[str, Any] = {
            "asked": PUBLISHED,
            "engine": None,
            "options": {},
            "sampling": None,
        }
        self._resolve({**asked, "name": name, "digest": digest(units)})
        n = max(map(len, found.values()))
        if n != self._plan.n:
            self._say(f"note: {n} published answers to a prompt; --n does not apply")
        return [(prompt, found[prompt.id]) for prompt in self._task.prompts]

    def _answers(self, prompt: TaskPrompt, found: Iterable[Generation]) -> AnswerSet:
        return AnswerSet(prompt, tuple(answer_of(prompt, one) for one in found))

    # --- grades and scores ---

    def _grade(self, sets: Sequence[AnswerSet]) -> ScorerSpec:
        """Have the grader judge all sets; return what it is."""
        choice = self._plan.grader
        assert choice is not None
        path, about = self._out / GRADES, self._out / "grader.json"
        known = _read_model(about, ScorerEntry)
        if known is not None and not self._plan.retry_failed:
            units = units_of(self._items(sets, known.spec), known.spec, self._plan.seed)
            if complete(path, units):
                return known.spec
        with closing(resolve(choice.name, choice.options)) as grader:
            if grader.spec.kind == "baseline":
                raise InputError(f"--grader {choice.name}: a baseline is no judge of quality")
            check_size(grader.spec, self._plan.n)
            if known is not None and known.spec != grader.spec:
                refuse_changes(
                    known.spec.model_dump(mode="json"),
                    grader.spec.model_dump(mode="json"),
                    about,
                )
            write_json(about, entry_of(choice.asked, grader).model_dump(mode="json"), indent=2)
            items = self._items(sets, grader.spec)
            retry = self._plan.retry_failed
            judge_sets(path, grader, items, self._plan.seed, self._say, retry_failed=retry)
            return grader.spec

    def _with_grades(self, sets: Sequence[AnswerSet], grader: ScorerSpec) -> list[AnswerSet]:
        lines = {
            line.prompt: line
            for line in score_lines(
                sets, self._items(sets, grader), grader, read_judgements(self._out / GRADES)
            )
        }
        result = []
        for one in sets:
            line = lines.get(one.prompt.id)
            rates: Sequence[float | None] = [None] * len(one.answers)
            reason = None
            if line is not None and line.scores:
                rates = win_rates(line.scores)
            elif line is not None:
                reason = f"the grader failed ({line.status}): {line.error or 'no reason given'}"
            graded = tuple(
                answer.model_copy(update={"grade": rate, "reason": answer.reason or reason})
                for answer, rate in zip(one.answers, rates, strict=True)
            )
            result.append(AnswerSet(one.prompt, graded))
        return result

    def _score(
        self,
        choice: ScorerChoice,
        sets: Sequence[AnswerSet],
        entries: list[ScorerEntry],
        grader: ScorerSpec | None,
    ) -> None:
        """Have a reward model score all sets, and note it in the folder."""
        known = next((entry for entry in entries if entry.name == choice.asked), None)
        if known is not None and not self._plan.retry_failed and self._complete(known, sets):
            return
        with closing(resolve(choice.name, choice.options)) as scorer:
            spec = scorer.spec
            check_size(spec, self._plan.n)
            if grader is not None:
                check_grader(grader, spec)
            add_entry(self._out, entries, choice.asked, scorer, self._say)
            items, retry = self._items(sets, spec), self._plan.retry_failed
            judge_sets(
                self._log(spec), scorer, items, self._plan.seed, self._say, retry_failed=retry
            )

    def _items(self, sets: Sequence[AnswerSet], spec: ScorerSpec) -> dict[str, Item]:
        """Return what a reward model has to judge: the same for all, but for baselines."""
        apart = spec.kind == "baseline"
        if apart not in self._made:
            self._made[apart] = items_of(sets, distinct=not apart)
        return self._made[apart]

    def _log(self, spec: ScorerSpec) -> Path:
        return self._out / "scores" / f"{spec.digest}.jsonl"

    def _complete(self, entry: ScorerEntry, sets: Sequence[AnswerSet]) -> bool:
        units = units_of(self._items(sets, entry.spec), entry.spec, self._plan.seed)
        return complete(self._log(entry.spec), units)

    # --- the figures ---

    def _summarise(
        self,
        sets: Sequence[AnswerSet],
        entries: Sequence[ScorerEntry],
        grader: ScorerSpec | None,
        generations: Sequence[Sequence[Generation]],
    ) -> Downstream:
        scored = []
        for entry in entries:
            items = self._items(sets, entry.spec)
            wanted = set(units_of(items, entry.spec, self._plan.seed).values())
            judged = [one for one in read_judgements(self._log(entry.spec)) if one.unit in wanted]
            if len(judged) < len(wanted):
                self._say(f"note: {entry.name} has not scored all prompts: --resume with it")
            scored.append(
                Scored(entry, tuple(score_lines(sets, items, entry.spec, judged)), tuple(judged))
            )
        self._say("computing the figures")
        found = figures_of(sets, scored, self._plan.seed)
        _write_lines(self._out / files.SCORES, (line for one in scored for line in one.lines))
        _write_lines(self._out / files.PICKS, found.picks)
        config = self._config
        policy = config["policy"]
        candidates = [answer for one in sets for answer in one.candidates]
        choice = not self._task.judged and self._plan.task != "blend-short"
        result = Downstream(
            task=self._plan.task,
            data={**config["data"], "notes": list(self._task.notes)},
            language=self._plan.language if self._plan.task == "blend-short" else None,
            policy=PolicyResult(
                name=policy["name"], digest=policy["digest"], engine=policy["engine"]
            ),
            sampling=self._plan.sampling if policy["sampling"] else None,
            grader={"name": config["grader"], "digest": grader.digest} if grader else None,
            n=max((len(one.answers) for one in sets), default=0),
            seed=self._plan.seed,
            countries=found.countries,
            prompts=len(sets),
            prompts_graded=sum(one.graded for one in sets),
            answers=answer_counts(sets),
            ungraded=sum(answer.grade is None for answer in candidates),
            unread=sum(answer.matched is None for answer in candidates) if choice else 0,
            distinct=distinct_texts(sets),
            tokens=sum(
                one.prompt_tokens + one.completion_tokens for each in generations for one in each
            ),
            scorers=found.scorers,
            references=found.references,
            versions=config["versions"],
            command=config["command"],
        )
        write_json(self._out / files.RESULT, result.model_dump(mode="json"), indent=2)
        return result


def _write_lines(path: Path, records: Iterable[Frozen]) -> None:
    write_atomic(path, (dump_line(record) for record in records))


def _read_model(path: Path, kind: type[ScorerEntry]) -> ScorerEntry | None:
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise RunError(f"{path} is unreadable; name another --out") from error
