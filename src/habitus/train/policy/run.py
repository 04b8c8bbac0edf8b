"""Policies trained against reward models, from start to end, in legs.

    habitus downstream policy --task blend-short --data BLEnD --policy MODEL --scorer RM --out DIR
    habitus downstream policy ... --max-seconds 500 --resume          # until it says that it is done

The folder grows: `--resume` with another reward model costs its own training only. The policy's
answers before training are drawn once. On a CPU a run that was killed ends in the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from habitus.clients import hf
from habitus.clients.engine import Reply
from habitus.clients.transformers_engine import free
from habitus.downstream import policy_result as files
from habitus.downstream.entries import add_entry, read_entries
from habitus.downstream.model import ANSWERS, CONFIG, PROMPTS, ScorerEntry, TaskPrompt
from habitus.downstream.pick import check_size
from habitus.downstream.plan import ScorerChoice
from habitus.downstream.policy_result import PolicyStudy
from habitus.downstream.run import LIBRARIES as DOWNSTREAM_LIBRARIES
from habitus.downstream.tasks import TaskOptions, load_task
from habitus.errors import InputError, RunError
from habitus.progress import progress
from habitus.scorers import resolve
from habitus.store import dump_line, hold, refuse_changes, versions, write_atomic, write_json
from habitus.train import study
from habitus.train.attention import sound_attention
from habitus.train.base import require
from habitus.train.fitting import CHECKPOINTS, last_checkpoint
from habitus.train.grpo import arguments, rounds
from habitus.train.locals.model import Policy
from habitus.train.policy.figures import summarise
from habitus.train.policy.heldout import (
    BaseLine,
    both_sets,
    draw_after,
    draw_before,
    read_answers,
    score_both,
)
from habitus.train.policy.plan import Parts, PolicyPlan, folder_of, split
from habitus.train.policy.reward import ScorerReward, encode
from habitus.train.policy.steps import LOGGED, step_figures
from habitus.train.scpo import LIBRARIES as TRAIN_LIBRARIES
from habitus.train.study import MODEL
from habitus.types import Scorer, ScorerSpec

MERGED = "base"
"""Folder of the merged weights of a policy that is an adapter."""

Say = Callable[[str], None]


def train_policies(
    plan: PolicyPlan,
    say: Say = lambda line: None,
    advance: Callable[[int], None] = lambda count: None,
) -> PolicyStudy | None:
    """Train a policy against each reward model, and measure all of them.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        advance: Called with the number of steps just done; what it raises ends the training.

    Returns:
        The figures, which are in `policy.json` too; None where time ran out before all was done.

    Raises:
        InputError: When the plan or the data are wrong.
        RunError: When the folder is locked, exists without `resume`, or was made otherwise.
        HabitusError: When the policy or a reward model cannot go on at all. What was done before
            is kept.
    """
    require()
    plan.check()
    task = load_task(plan.task, TaskOptions(plan.data, plan.seed, plan.language))
    parts = split(task, plan)
    say(
        f"data: {task.source}, {task.licence}; {len(parts.training.prompts):,} training prompts, "
        f"{len(parts.held_out.prompts):,} held out"
    )
    with hold(plan.out / ".lock", plan.out):
        return _Run(plan, parts, say, advance).go()


class _OutOfTimeError(Exception):
    """The leg is over."""


class _Run:
    """A run whose folder is locked."""

    def __init__(
        self, plan: PolicyPlan, parts: Parts, say: Say, advance: Callable[[int], None]
    ) -> None:
        self.plan, self.parts, self.say, self.advance = plan, parts, say, advance
        begin = time.monotonic()
        self.deadline = None if plan.max_seconds is None else begin + plan.max_seconds
        self.config: dict[str, Any] = {}
        self.worked = False
        """Whether this leg has done anything; it does not end before it has."""

    def go(self) -> PolicyStudy | None:
        plan = self.plan
        self._start()
        entries = read_entries(plan.out)
        try:
            base = self._before()
            for choice in plan.scorers:
                self._train_against(choice, entries, base)
        except _OutOfTimeError as stop:
            self.say(f"stopped {stop}; go on with the same command and --resume")
            return None
        done = [one for one in entries if self._record(one.spec).get("done")]
        for one in entries:
            if one not in done:
                self.say(f"note: the training against {one.name} is not finished: --resume with it")
        self.say("computing the figures")
        return summarise(plan.out, done, self.parts, self.config, plan.seed)

    # --- the configuration ---

    def _start(self) -> None:
        """Write what the folder is made of, or check that an existing one is made the same way."""
        plan, parts = self.plan, self.parts
        task = parts.training
        config = study.as_json(
            plan.asked()
            | {
                "data": {"source": task.source, "licence": task.licence},
                "training": {"prompts": len(task.prompts), "digest": task.digest},
                "held_out_prompts": {
                    "prompts": len(parts.held_out.prompts),
                    "digest": parts.held_out.digest,
                },
            }
        )
        path = plan.out / CONFIG
        if not path.exists():
            self.config = config | {
                "versions": versions(sorted({*DOWNSTREAM_LIBRARIES, *TRAIN_LIBRARIES})),
                "command": plan.command,
                "notes": self._notes(),
            }
            write_atomic(plan.out / files.TRAINING, map(dump_line, task.prompts))
            write_atomic(plan.out / PROMPTS, map(dump_line, parts.held_out.prompts))
            write_json(path, self.config, indent=2)
            return
        if not plan.resume:
            raise RunError(
                f"{plan.out} holds a run; add --resume to go on or to add reward models, or name "
                "another --out"
            )
        old = study.read_json(path)
        if old is None:
            raise RunError(f"{path} is unreadable; name another --out")
        refuse_changes({key: old.get(key) for key in config}, config, plan.out)
        self.config = old

    def _notes(self) -> list[str]:
        notes = list(self.parts.training.notes)
        if self.parts.shared:
            notes.append(
                f"{self.parts.shared:,} training prompts left out: a held-out question has the "
                "same text"
            )
        return notes

    def note(self, **fields: Any) -> None:
        """Add fields to the folder's configuration."""
        self.config |= fields
        write_json(self.plan.out / CONFIG, self.config, indent=2)

    def in_time(self) -> bool:
        """Say whether there is time left."""
        return self.deadline is None or time.monotonic() <= self.deadline

    def check_time(self, place: str) -> None:
        """End a leg that has done something when its time is over."""
        if self.worked and not self.in_time():
            raise _OutOfTimeError(place)

    # --- answers before training ---

    def _before(self) -> BaseLine:
        plan, known = self.plan, self.config.get("before")
        path = plan.out / files.BEFORE
        if known is not None and path.is_file() and not plan.retry_failed:
            return BaseLine.model_validate(known)
        base = draw_before(plan, self.parts.held_out.prompts, path, self.in_time, self.say)
        if base is None:
            raise _OutOfTimeError("while the policy answered before training")
        self.worked = True
        found = base.model_dump(mode="json")
        if known is not None:
            refuse_changes(known, found, plan.out)
        self.note(before=found)
        return base

    # --- one reward model ---

    def _folder(self, spec: ScorerSpec) -> Path:
        return self.plan.out / folder_of(spec)

    def _record(self, spec: ScorerSpec) -> dict[str, Any]:
        return study.read_json(self._folder(spec) / files.RUN) or {}

    def _train_against(
        self, choice: ScorerChoice, entries: list[ScorerEntry], base: BaseLine
    ) -> None:
        plan = self.plan
        known = next((entry for entry in entries if entry.name == choice.asked), None)
        if known is not None and not plan.retry_failed and self._record(known.spec).get("done"):
            return
        with closing(resolve(choice.name, choice.options)) as scorer:
            spec = scorer.spec
            check_size(spec, plan.grpo.group, f"--group {plan.grpo.group}")
            check_size(spec, 2 * plan.n, f"--n {plan.n} answers before training and as many after")
            add_entry(plan.out, entries, choice.asked, scorer, self.say)
            _Training(self, scorer, self._folder(spec)).go(base)


class _Training:
    """The training against one reward model, and what is measured of it."""

    def __init__(self, run: _Run, scorer: Scorer, folder: Path) -> None:
        self.run, self.plan, self.scorer, self.folder = run, run.plan, scorer, folder
        self.begin = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self.record: dict[str, Any] = study.read_json(folder / files.RUN) or {
            "scorer": scorer.spec.label,
            "digest": scorer.spec.digest,
            "seconds": 0.0,
            "trained": False,
            "done": False,
        }

    def note(self, **fields: Any) -> None:
        """Add fields to the training's record."""
        write_json(self.folder / files.RUN, self.record | fields)
        self.record |= fields

    def go(self, base: BaseLine) -> None:
        plan, run = self.plan, self.run
        if not self.record["trained"]:
            run.check_time(f"before the training against {self.scorer.spec.label}")
            self._train()
            free()  # before the trained policy is loaded anew, as everybody will
            run.worked = True
        answers = self.folder / ANSWERS
        prompts = run.parts.held_out.prompts
        if not answers.is_file() or plan.retry_failed:
            run.check_time("before a trained policy answered")
            model = self.folder / MODEL
            if not draw_after(plan, prompts, model, base, answers, run.in_time, run.say):
                raise _OutOfTimeError("while a trained policy answered")
            run.worked = True
        run.check_time("before answers were scored")
        sets = both_sets(prompts, read_answers(plan.out / files.BEFORE), read_answers(answers))
        retry, go_on = plan.retry_failed, None if run.deadline is None else run.in_time
        about = (self.scorer, self.folder, plan.seed, run.say)
        if not score_both(sets, *about, retry_failed=retry, go_on=go_on):
            raise _OutOfTimeError("while answers were scored")
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
        self.note(done=True)
        run.worked = True

    def _train(self) -> None:
        plan, run = self.plan, self.run
        policy = Policy(plan.policy, plan.load, plan.out / MERGED)
        about = study.as_json(policy.about())
        if "policy_model" in run.config:
            refuse_changes(run.config["policy_model"], about, plan.out)
        else:
            run.note(policy_model=about)
        prompts, ids = self._encoded(policy, run.parts.training.prompts)
        policy.start(plan.seed)
        before = last_checkpoint(self.folder / CHECKPOINTS)
        done = int(before.name.rpartition("-")[2]) if before else 0
        title = f"training against {self.scorer.spec.label}"
        try:
            with progress(title, plan.grpo.steps, done=done, unit="steps") as step:

                def both(count: int) -> None:
                    step(count)
                    run.advance(count)

                recorder = self._grpo(policy, prompts, ids, before, both)
        finally:
            spent = time.monotonic() - self.begin
            self.note(seconds=round(self.record["seconds"] + spent, 3))
        if recorder.out_of_time:
            raise _OutOfTimeError(f"after step {recorder.steps} of {plan.grpo.steps}: {title}")
        policy.save(self.folder / MODEL)
        self.note(trained=True)

    def _encoded(
        self, policy: Policy, prompts: Sequence[TaskPrompt]
    ) -> tuple[dict[str, TaskPrompt], dict[str, list[int]]]:
        """Return the prompts that fit into the context, with their token ids; list the others."""
        plan, run = self.plan, self.run
        room = policy.encoder.context - plan.grpo.max_new_tokens
        good: dict[str, TaskPrompt] = {}
        ids: dict[str, list[int]] = {}
        bad: list[dict[str, str]] = []
        for prompt, found in zip(prompts, encode(policy, prompts), strict=True):
            if isinstance(found, Reply):
                bad.append({"prompt": prompt.id, "why": found.error or "cannot be encoded"})
            elif len(found) > room:
                why = f"the prompt has {len(found):,} tokens, over {room:,}"
                bad.append({"prompt": prompt.id, "why": why})
            else:
                good[prompt.id], ids[prompt.id] = prompt, found
        study.write_lines(plan.out / files.EXCLUDED, bad)
        if run.config.get("excluded") != len(bad):
            run.note(excluded=len(bad))
        if bad:
            run.say(f"{len(bad)} training prompts are left out: {plan.out / files.EXCLUDED}")
        if len(good) < plan.grpo.prompts_per_step:
            raise InputError(
                f"only {len(good)} training prompts fit into the context, "
                f"{plan.grpo.prompts_per_step} are needed; lower --max-new-tokens or "
                f"--prompts-per-step, or raise --context up to the model's; the first that does "
                f"not: {bad[0]['why']}"
            )
        return good, ids

    def _grpo(
        self,
        policy: Policy,
        prompts: dict[str, TaskPrompt],
        ids: dict[str, list[int]],
        checkpoint: Path | None,
        advance: Callable[[int], None],
    ) -> Any:
        from datasets import Dataset

        from habitus.train.locals._grpo import MeasuredGRPOTrainer, quiet_failures
        from habitus.train.locals.recorder import StepRecorder

        plan = self.plan
        grpo = plan.grpo
        names = rounds(
            {name: [name] for name in ids}, grpo.prompts_per_step * grpo.steps, plan.seed
        )
        reward = ScorerReward(policy, self.scorer, prompts, ids, group=grpo.group, seed=plan.seed)
        recorder = StepRecorder(
            self.folder,
            reward,
            partial(step_figures, group=grpo.group),
            title="policy",
            shown=None,
            logged=LOGGED,
            deadline=self.run.deadline,
            say=self.run.say,
            advance=advance,
        )
        with hf.quiet(), hf.peft_warnings(), quiet_failures():
            trainer = MeasuredGRPOTrainer(
                model=policy.trained,
                reward_funcs=reward,
                args=arguments(policy, grpo, self.folder, plan.seed),
                train_dataset=Dataset.from_dict({"prompt": names}),
                processing_class=policy.tokenizer,
                callbacks=[recorder],
                prompt_ids=ids,
                beta=grpo.beta,
                reference=True,
                write=None if grpo.gradient_checkpointing else policy.writer,
            )
            recorder.attach(trainer)
            with sound_attention():
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            trainer.accelerator.free_memory()
        recorder.steps = int(trainer.state.global_step)
        return recorder
