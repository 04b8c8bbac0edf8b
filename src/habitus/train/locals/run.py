"""One training of a judge from start to end, in legs: warm-up, reinforcement, held-out pairs.

    habitus train locals --pairs PAIRS --model MODEL --out DIR --stage both --max-seconds 500
    habitus train locals ... --resume          # until it says that it is done

Departures from the paper are listed in `habitus.train.locals.trainer`.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from habitus.clients import hf
from habitus.clients.engine import Reply
from habitus.errors import HabitusError, InputError, RunError
from habitus.pairs import non_commercial
from habitus.progress import is_first, progress
from habitus.store import refuse_changes, versions, write_json
from habitus.train import study
from habitus.train.attention import sound_attention
from habitus.train.base import require
from habitus.train.fitting import CHECKPOINTS, held, last_checkpoint
from habitus.train.locals.configuration import (
    COUNTED,
    METHOD,
    WARMUP,
    configuration,
    identity,
    same_warm_up,
)
from habitus.train.locals.evaluation import evaluate_pairs, held_out_pairs
from habitus.train.locals.model import Policy, open_engine
from habitus.train.locals.plan import LocalsPlan, schedule
from habitus.train.locals.prompting import Prompting, View, all_views, by_key
from habitus.train.locals.supervised import SupervisedSettings, learn, make_examples
from habitus.train.locals.warmup import Sampled, sample_criteria, tally
from habitus.train.scpo import LIBRARIES
from habitus.train.study import MODEL, RUN
from habitus.train.texts import first_alone, shared

EXCLUDED, HELD_OUT, MERGED = "excluded.jsonl", "heldout.json", "base"
VERDICTS = "verdicts"  # in the warm-up's folder: what comes before criteria are sampled
ROWS = 512
"""Texts that are sampled at once where tokens are recorded: a row more costs little there."""
SHOWN = "shown.json"  # beside a curve of the warm-up: pairs, and how often its steps show them
SAMPLED = ".sampled"  # says to the other processes of a launch that criteria are sampled


def train_locals(
    plan: LocalsPlan,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Train a judge.

    Args:
        plan: What to do.
        say: Called with lines for the user.
        advance: Called with the number of steps of reinforcement just done, beside the progress
            that is shown; what it raises ends the training.

    Returns:
        What `run.json` says. `done` is False where time ran out: the same with `resume` goes on.

    Raises:
        HabitusError: When the model or the pairs cannot be used, the folder was made otherwise, or
            training collapsed.
    """
    require()
    plan.check()
    if is_first() and (plan.out / RUN).exists() and not plan.resume:
        raise RunError(f"{plan.out} holds a run; add --resume to go on, or name another --out")
    with held(plan.out / ".lock", plan.out):
        return _Run(plan, say, advance).go()


def _shown(folder: Path) -> Counter[str]:
    """Return how often the steps of a warm-up's folder showed each pair."""
    found = study.read_json(folder / SHOWN) or {}
    return Counter({pair: times for pair, times in found.items() if isinstance(times, int)})


class _OutOfTimeError(Exception):
    """The leg is over."""


class _Run:
    """A run under way."""

    def __init__(
        self, plan: LocalsPlan, say: Callable[[str], None], advance: Callable[[int], None]
    ) -> None:
        self.plan, self.say, self.advance = plan, say, advance
        self.begin = time.monotonic()
        self.deadline = None if plan.max_seconds is None else self.begin + plan.max_seconds
        self.prompting = Prompting(
            translated=plan.translated, max_tokens=plan.grpo.max_new_tokens, seed=plan.seed
        )
        self.record: dict[str, Any] = {}

    def go(self) -> dict[str, Any]:
        plan = self.plan
        policy = self._policy()
        self._start(policy)
        judge = policy.base_name if plan.stage == "base" else str(plan.out / MODEL)
        if self.record.get("done"):
            if plan.evaluate is not None and not (plan.out / HELD_OUT).exists():
                policy.release()
                self._evaluate(judge)
            self.say(f"{plan.out} is done")
            return self.record
        try:
            if plan.stage != "base":
                self._train(policy)
            policy.release()
            if plan.evaluate is not None:
                self._evaluate(judge)
        except _OutOfTimeError as stop:
            self._note()
            self.say(f"stopped {stop}; go on with the same command and --resume")
            return self.record
        if is_first():
            shutil.rmtree(plan.out / CHECKPOINTS, ignore_errors=True)
            shutil.rmtree(plan.out / WARMUP / CHECKPOINTS, ignore_errors=True)
            shutil.rmtree(plan.out / WARMUP / VERDICTS / CHECKPOINTS, ignore_errors=True)
            (plan.out / WARMUP / SAMPLED).unlink(missing_ok=True)
        self._note(done=True)
        return self.record

    def _train(self, policy: Policy) -> None:
        plan = self.plan
        views = self._views(policy)
        if plan.stage != "rl" and not self.record.get("warmed_up"):
            if plan.warmup_from is not None:
                self._take_warm_up(plan.warmup_from)
                if plan.stage == "warmup":
                    self._keep_warm_up(policy)
                policy.release()
            else:
                self._warm_up(policy, views)
            self._note(warmed_up=True)
            self._note(warmup_seconds=self.record.get("warmup_seconds", self.record["seconds"]))
            if plan.stage == "both":
                policy = self._policy()  # as a resumed leg would have it
        if plan.stage in ("rl", "both") and not self.record.get("reinforced"):
            self._reinforce(policy, views)
            self._note(reinforced=True)

    def _policy(self) -> Policy:
        return Policy(self.plan.model, self.plan.load, self.plan.out / MERGED)

    def _start(self, policy: Policy) -> None:
        """Write the configuration, or check that the one that is there is the same."""
        plan = self.plan
        config = configuration(plan, policy, self.prompting)
        before = study.read_json(plan.out / RUN)
        if before is not None:
            refuse_changes(identity(before.get("config", {})), identity(config), plan.out)
            self.record = before
            return
        if plan.warmup_from is not None:
            same_warm_up(plan.warmup_from, config)
        self.record = {
            "method": METHOD,
            "config": config,
            "reward_floor": plan.rewards.floor,
            "non_commercial": non_commercial(plan.pairs),
            "versions": versions(LIBRARIES),
            "device": policy.device.type,
            "command": plan.command,
            "seconds": 0.0,
            "done": False,
        }
        self._note()

    def _note(self, **fields: Any) -> None:
        now = time.monotonic()
        self.record["seconds"] = round(self.record["seconds"] + now - self.begin, 3)
        self.begin = now
        self.record |= fields
        if is_first():
            write_json(self.plan.out / RUN, self.record)

    def _views(self, policy: Policy) -> list[View]:
        """Return both orders of the pairs that can be trained on; the others are listed."""
        plan = self.plan
        pairs = [pair for pair in plan.pairs if pair.split != "test"]
        if not pairs:
            raise InputError("all pairs are of the part test; there is nothing to train on")
        if plan.limit is not None:
            pairs = study.take(pairs, plan.limit, plan.seed)
        views = all_views(pairs, plan.seed)
        room = policy.encoder.context - plan.grpo.max_new_tokens
        requests = [self.prompting.criteria_request(view) for view in views]
        bad: dict[str, str] = {}
        self.ids: dict[str, list[int]] = {}
        for view, found in zip(views, policy.encoder.encode(requests), strict=True):
            if isinstance(found, Reply):
                bad.setdefault(view.item.id, found.error or "cannot be encoded")
            elif len(found) > room:
                bad.setdefault(view.item.id, f"the prompt has {len(found):,} tokens, over {room:,}")
            else:
                self.ids[view.key] = found
        if is_first():
            lines = [{"pair": name, "why": why} for name, why in bad.items()]
            study.write_lines(plan.out / EXCLUDED, lines)
        if bad:
            self.say(f"{len(bad)} of {len(pairs)} pairs are left out: {plan.out / EXCLUDED}")
        good = [view for view in views if view.item.id not in bad]
        if not good:
            raise InputError(f"no pair can be trained on; the first: {next(iter(bad.values()))}")
        self.record |= {"n_train": len(pairs), "n_excluded": len(bad)}
        return good

    def _warm_up(self, policy: Policy, views: Sequence[View]) -> None:
        plan, folder = self.plan, self.plan.out / WARMUP
        criteria: list[Sampled] = []
        learned, begun = 0, None
        if plan.stage != "verdict":
            first = plan.supervised.verdict_steps
            if first:
                learned, begun = first * plan.supervised.batch_size, folder / VERDICTS / MODEL
                if not self.record.get("judges"):
                    settings = replace(plan.supervised, steps=first, verdict_share=1.0)
                    self._learn(policy, views, (), folder / VERDICTS, settings, begun)
                    self._note(judges=True)
                    policy = self._policy()
            policy = self._start_from(policy, begun) if begun else policy
            criteria = self._criteria(policy, views, folder)
            policy.release()
            policy = self._policy()  # without the hooks of sampling
        saved = folder / MODEL if plan.stage == "both" else plan.out / MODEL
        self._learn(policy, views, criteria, folder, plan.supervised, saved, begun, learned)

    def _take_warm_up(self, other: Path) -> None:
        """Take the warm-up of another run."""
        before = same_warm_up(other, self.record["config"])
        if is_first():
            out = self.plan.out
            ignore = shutil.ignore_patterns(CHECKPOINTS, SAMPLED)
            shutil.copytree(other / WARMUP, out / WARMUP, ignore=ignore, dirs_exist_ok=True)
        shared(None)
        self.record |= {name: before[name] for name in COUNTED if name in before}
        self.record["warmup_from"] = str(other)
        self.say(f"the warm-up is that of {other}")

    def _keep_warm_up(self, policy: Policy) -> None:
        """Let the warmed-up model be the judge: its base is this run's, not that of the other."""
        warmed = self.plan.out / WARMUP / MODEL
        policy = self._start_from(policy, warmed)
        if is_first():
            policy.save(self.plan.out / MODEL)
            shutil.rmtree(warmed)
        policy.release()
        shared(None)

    def _learn(
        self,
        policy: Policy,
        views: Sequence[View],
        criteria: Sequence[Sampled],
        folder: Path,
        settings: SupervisedSettings,
        saved: Path,
        begun: Path | None = None,
        learned: int = 0,
    ) -> None:
        """Learn criteria and verdicts, and save; the policy is released."""
        seed = self.plan.seed
        examples = make_examples(
            policy, self.prompting, views, criteria, settings, seed, learned=learned
        )
        if self.plan.stage in ("warmup", "both") and is_first():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / SHOWN, dict(Counter(example.pair for example in examples)))
        after = Counter(example.pair for example in examples if example.after)
        if after:
            times = {"pairs": len(after), "mean": after.total() / len(after)}
            self.record["shown_after_criteria"] = times | {"most": max(after.values())}
        policy = self._start_from(policy, begun)
        with progress("warm-up" if criteria else "verdicts", settings.steps, unit="steps") as step:
            done = learn(
                policy, examples, folder, settings, seed, deadline=self.deadline, advance=step
            )
        if not done.finished:
            raise _OutOfTimeError(f"after supervised step {done.steps} of {settings.steps}")
        if is_first():
            policy.save(saved)
        policy.release()
        shared(None)  # no process goes on from an adapter that is not there yet

    def _start_from(self, policy: Policy, saved: Path | None, *, merged: bool = False) -> Policy:
        """Return the policy, to be trained from what was saved, or from the model as it is."""
        plan = self.plan
        if plan.load.lora is None and saved is not None:
            policy.release()
            policy = Policy(str(saved), plan.load, plan.out / MERGED)
            saved = None
        policy.start(plan.seed, saved, merged=merged)
        return policy

    def _criteria(self, policy: Policy, views: Sequence[View], folder: Path) -> list[Sampled]:
        plan = self.plan
        ids = list(dict.fromkeys(view.item.id for view in views))
        random.Random(plan.seed).shuffle(ids)  # noqa: S311 - no secret
        chosen = set(ids[: plan.warmup_pairs])
        asked = [view for view in views if view.item.id in chosen]

        sampling = plan.sampling
        if policy.decoder is not None:  # what costs little by the row is done for many at once
            sampling = replace(sampling, chunk=max(sampling.chunk, ROWS // sampling.samples))

        def sample() -> list[Sampled] | None:
            with progress("criteria", len(asked), unit="prompts") as step:
                return sample_criteria(
                    policy.engine(),
                    self.prompting,
                    asked,
                    folder,
                    sampling,
                    deadline=self.deadline,
                    advance=step,
                )

        found: list[Sampled] | None = first_alone(sample, folder / SAMPLED)
        if found is None:
            raise _OutOfTimeError("while criteria were sampled")
        every, kept, both = tally(found).values()
        self.record |= {"n_criteria": kept, "n_criteria_both_orders": both, "n_sampled": every}
        self.say(f"{kept} of {every} criteria are kept; {both} of these help in both orders")
        if kept and not both and not plan.supervised.verdict_steps:
            self.say(
                "a model that cannot judge cannot tell which help: --verdict-steps comes first"
            )
        if not kept:
            self.say("with none kept the warm-up learns verdicts only, and no form of a text")
        return found

    def _reinforce(self, policy: Policy, views: Sequence[View]) -> None:
        plan = self.plan
        saved = plan.out / WARMUP / MODEL if plan.stage == "both" else None
        policy = self._start_from(policy, saved, merged=plan.grpo.vllm is not None)
        grpo = plan.grpo
        before = last_checkpoint(plan.out / CHECKPOINTS)
        done = int(before.name.rpartition("-")[2]) if before else 0
        with progress("reinforcement", grpo.steps, done=done, unit="steps") as step:

            def both(count: int) -> None:
                step(count)
                self.advance(count)

            recorder = self._grpo(policy, views, before, both)
        if recorder.collapsed is not None:
            self._note(collapsed=recorder.collapsed)
            if grpo.on_collapse == "stop":
                raise HabitusError(
                    f"training {recorder.collapsed}; the last checkpoint is in "
                    f"{plan.out / CHECKPOINTS} (--on-collapse warn goes on)"
                )
        if recorder.out_of_time:
            raise _OutOfTimeError(f"after step {recorder.steps} of {grpo.steps}")
        if is_first():
            policy.save(plan.out / MODEL)

    def _grpo(
        self,
        policy: Policy,
        views: Sequence[View],
        checkpoint: Path | None,
        advance: Callable[[int], None],
    ) -> Any:
        from datasets import Dataset

        from habitus.train.locals._grpo import IdsGRPOTrainer
        from habitus.train.locals.collapse import find_collapse
        from habitus.train.locals.recorder import StepRecorder, step_figures
        from habitus.train.locals.reward_function import LocalsReward
        from habitus.train.locals.trainer import arguments
        from habitus.train.locals.watched import Watcher, watched_views

        plan = self.plan
        grpo = plan.grpo
        shown = _shown(plan.out / WARMUP) + _shown(plan.out / WARMUP / VERDICTS)
        names = schedule(views, grpo.prompts_per_step, grpo.steps, plan.seed, shown)
        reward = LocalsReward(
            policy,
            self.prompting,
            by_key(views),
            plan.rewards,
            reference=grpo.policy == "reference",
        )
        recorder = StepRecorder(
            plan.out,
            reward,
            partial(step_figures, group=grpo.group, settings=plan.rewards),
            find_collapse=find_collapse,
            boundary=grpo.iterations,
            deadline=self.deadline,
            stop_on_collapse=grpo.on_collapse == "stop",
            watcher=Watcher(
                policy,
                reward,
                watched_views(views, plan.seed),
                self.ids,
                plan.out,
                steps=grpo.steps,
                max_tokens=grpo.max_new_tokens,
            ),
            say=self.say,
            advance=advance,
        )
        with hf.quiet(), hf.peft_warnings():
            trainer = IdsGRPOTrainer(
                model=policy.trained,
                reward_funcs=reward,
                args=arguments(policy, plan),
                train_dataset=Dataset.from_dict({"prompt": names}),
                processing_class=policy.tokenizer,
                callbacks=[recorder],
                prompt_ids=self.ids,
                beta=grpo.beta,
                write=None if grpo.gradient_checkpointing else policy.writer,
            )
            if trainer.sharded:
                raise InputError("FSDP and DeepSpeed split the model, and R_appr needs it whole")
            reward.attach(trainer)
            recorder.attach(trainer)
            with sound_attention():
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            trainer.accelerator.free_memory()
        recorder.steps = int(trainer.state.global_step)
        return recorder

    def _evaluate(self, judge: str) -> None:
        plan = self.plan
        if not is_first():
            return
        assert plan.evaluate is not None
        pairs = held_out_pairs(plan.evaluate)
        if plan.evaluate_limit is not None:
            pairs = study.take(pairs, plan.evaluate_limit, 0)  # the same ones whatever --seed
        with progress("held-out pairs", 3 * len(pairs), unit="judgements") as step:
            found = evaluate_pairs(
                open_engine(judge, plan.load),
                pairs,
                translated=plan.translated,
                max_tokens=plan.grpo.max_new_tokens,
                advance=step,
            )
        write_json(plan.out / HELD_OUT, found)
