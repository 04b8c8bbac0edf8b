"""Warm-up, second part: the model learns from examples.

They are kept criteria with their verdict, verdicts after the other criteria, and plain verdicts.

Loss: the mean over a step's examples. One without criteria counts its verdict's negative
log-likelihood; one with criteria that too, and the mean over its other tokens. So a verdict counts
as much after criteria as without: as one token of a mean, fifty tokens of criteria would hide it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from habitus.clients import hf
from habitus.clients.engine import Request
from habitus.errors import HabitusError, InputError
from habitus.progress import processes
from habitus.train.attention import sound_attention
from habitus.train.curve import CURVE, append_lines, keep_steps
from habitus.train.fitting import CHECKPOINTS, last_checkpoint
from habitus.train.locals.model import Policy
from habitus.train.locals.prompting import Prompting, View, by_key
from habitus.train.locals.warmup import Sampled
from habitus.train.locals.written import JUDGED
from habitus.train.texts import shared

T = TypeVar("T")


@dataclass(frozen=True)
class SupervisedSettings:
    """How to learn from examples."""

    steps: int = 100
    """Steps."""
    batch_size: int = 16
    """Examples of a step, over all processes."""
    micro_batch: int | None = None
    """Examples of a forward pass; None is the whole step's share of the process."""
    lr: float = 1e-4
    """Learning rate at the first step; it falls linearly to 0 at the last."""
    verdict_share: float = 0.5
    """Part of the examples that are verdicts without criteria. Of the rest one half is kept criteria with
    their verdict, the other verdicts after criteria that are not learned, where there are some."""
    verdict_steps: int = 0
    """Steps on verdicts alone before criteria are sampled, with a schedule of their own: which
    criteria help is told by the judge, and one that cannot judge cannot tell."""
    save_steps: int = 50
    """Steps between checkpoints."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When the batch cannot be divided.
        """
        share, rest = divmod(self.batch_size, processes())
        if rest or share % self.micro:
            raise InputError(
                f"--warmup-batch {self.batch_size}: must be a multiple of --micro-batch times the "
                "processes"
            )

    @property
    def micro(self) -> int:
        """Examples of a forward pass."""
        share = self.batch_size // processes()
        return min(self.micro_batch or share, share)


@dataclass(frozen=True)
class Example:
    """Token ids."""

    prompt: tuple[int, ...]
    """What is read."""
    answer: tuple[int, ...]
    """What is learned."""
    verdict: int = 0
    """Place of the verdict in it."""
    pair: str = ""
    """Id of the pair."""
    after: bool = False
    """Whether the verdict comes after criteria."""


class Examples:
    """Makes examples of views, many at a time."""

    def __init__(self, policy: Policy, prompting: Prompting) -> None:
        """Make none yet.

        Args:
            policy: Whose token ids they are.
            prompting: Makes the judge's requests.
        """
        self._encoder = policy.encoder
        self._prompting = prompting
        ends = policy.encoder.ends()
        others = ends - {policy.tokenizer.eos_token_id}
        # what ends a turn: the template's token, or the tokenizer's
        self._end = min(others or ends, default=None)

    def verdicts(self, views: Sequence[View]) -> list[Example | None]:
        """Return the right letter without criteria for each view; None where it does not fit."""
        requests = [self._prompting.plain_request(view) for view in views]
        found: list[Example | None] = []
        encoded = self._encoder.encode(requests)
        for view, request, ids in zip(views, requests, encoded, strict=True):
            if isinstance(ids, list):
                labels = self._encoder.label_tokens(request.answer, request.labels)
                prompt, letter = labels.after(ids), labels.first[view.right]
                found.append(Example(tuple(prompt), (letter,), pair=view.item.id))
            else:
                found.append(None)
        return found

    def criteria(self, asked: Sequence[tuple[View, str]]) -> list[Example | None]:
        """Return criteria with the right verdict, after the prompt; None where they do not fit.

        The answer's ids are those of the whole text after the prompt's, and then what ends a turn.

        Args:
            asked: Views with their criteria.
        """
        requests = [self._prompting.criteria_request(view) for view, _ in asked]
        encoded = self._encoder.encode(requests)
        return [
            self._after(view, text, request, ids) if isinstance(ids, list) else None
            for (view, text), request, ids in zip(asked, requests, encoded, strict=True)
        ]

    def verdicts_after(self, asked: Sequence[tuple[View, str]]) -> list[Example | None]:
        """Return the right letter after criteria that are read, not learned."""
        found = self.criteria(asked)
        return [
            None
            if each is None
            else replace(
                each,
                prompt=(*each.prompt, *each.answer[: each.verdict]),
                answer=(each.answer[each.verdict],),
                verdict=0,
            )
            for each in found
        ]

    def _after(self, view: View, text: str, request: Request, before: list[int]) -> Example | None:
        after = self._prompting.verdict_request(view, text)
        if after is None or not text.startswith(request.answer):
            return None
        labels = self._encoder.label_tokens(after.answer, after.labels)
        criteria = labels.after(self._ids(after.answer.removeprefix(request.answer)))
        answer = (
            *criteria,
            labels.first[view.right],  # the very token that is asked about
            *self._ids(JUDGED),
            *(() if self._end is None else (self._end,)),
        )
        if len(before) + len(answer) > self._encoder.context:
            return None
        return Example(tuple(before), answer, len(criteria), view.item.id, after=True)

    def _ids(self, text: str) -> list[int]:
        return self._encoder._inner_ids(text, self._encoder._plain_ids)


def make_examples(
    policy: Policy,
    prompting: Prompting,
    views: Sequence[View],
    criteria: Sequence[Sampled],
    settings: SupervisedSettings,
    seed: int,
    *,
    learned: int = 0,
) -> list[Example]:
    """Return the examples of all steps, in order: all kinds shuffled and repeated as needed.

    Within a step those that learn one token come first, and the shorter before the longer: a
    forward pass is as wide as its longest example, and so is what it computes for the answers.
    Of several processes the one with the longest still decides.

    Args:
        policy: Whose token ids they are.
        prompting: Makes the judge's requests.
        views: What verdicts are learned of.
        criteria: Those that were sampled; each is used in both orders.
        settings: How many, and of which kind.
        seed: Seed of the order.
        learned: Verdicts that were learned before, with the same seed: these go on after them.

    Raises:
        InputError: When there is nothing to learn from.
    """
    named = by_key(views)
    make = Examples(policy, prompting)
    parts = {
        kept: [
            (view, each.criteria)
            for each in criteria
            if each.kept == kept and each.view in named
            for view in (named[each.view], named[each.view].swapped)
        ]
        for kept in (True, False)
    }
    texts = [example for example in make.criteria(parts[True]) if example is not None]
    others = [example for example in make.verdicts_after(parts[False]) if example is not None]
    wanted = settings.steps * settings.batch_size
    n_verdicts = round(wanted * settings.verdict_share) if texts or others else wanted
    n_texts = math.ceil((wanted - n_verdicts) / (2 if others else 1)) if texts else 0
    shuffle = random.Random(seed)  # noqa: S311 - no secret
    chosen = [
        *_drawn(views, make.verdicts, n_verdicts, shuffle, learned),
        *_drawn(texts, list, n_texts, shuffle),
        *_drawn(others, list, wanted - n_verdicts - n_texts, shuffle),
    ]
    shuffle.shuffle(chosen)
    size = settings.batch_size
    steps = (chosen[first : first + size] for first in range(0, wanted, size))
    return [each for step in steps for each in sorted(step, key=_width)]


def _width(example: Example) -> tuple[bool, int]:
    return len(example.answer) > 1, len(example.prompt) + len(example.answer)


def _drawn(
    things: Sequence[T],
    make: Callable[[list[T]], Sequence[Example | None]],
    count: int,
    shuffle: random.Random,
    skipped: int = 0,
) -> list[Example]:
    """Return examples of things, each thing once before any comes again; only these are made.

    Args:
        things: What examples are made of.
        make: Makes them; None where a thing makes none.
        count: How many.
        shuffle: Draws the order of each round.
        skipped: Things at the beginning that are passed over.

    Raises:
        InputError: When nothing makes an example.
    """
    made: dict[int, Example | None] = {}
    found: list[Example] = []
    while len(found) < count:
        order = shuffle.sample(range(len(things)), len(things))
        order, skipped = order[skipped:], max(0, skipped - len(order))
        while order and len(found) < count:
            part, order = order[: count - len(found)], order[count - len(found) :]
            new = [place for place in part if place not in made]
            made.update(zip(new, make([things[place] for place in new]), strict=True))
            found += [example for place in part if (example := made[place]) is not None]
        if not found and len(made) == len(things):
            raise InputError(
                "no pair fits into the model's context; there is nothing to learn from"
            )
    return found


@dataclass
class Learned:
    """What a run was."""

    steps: int
    """Steps done."""
    finished: bool
    """False where time ran out first."""


def learn(
    policy: Policy,
    examples: Sequence[Example],
    folder: Path,
    settings: SupervisedSettings,
    seed: int,
    *,
    deadline: float | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Learned:
    """Train on examples, going on from a checkpoint in the folder.

    Args:
        policy: What is trained.
        examples: Examples of all steps, in order.
        folder: Where curve and checkpoints go.
        settings: How.
        seed: Seed of dropout, if any.
        deadline: `time.monotonic()` after which training is stopped; None is never.
        advance: Called with the number of steps just done.

    Raises:
        HabitusError: When the batch cannot be divided, or the loss is not a finite number.
    """
    from habitus.train.locals._supervised import Callback, ExampleTrainer, arguments, dataset

    settings.check()

    class Recorder(Callback):  # type: ignore[misc]
        """Writes the curve and looks at the clock."""

        steps = 0
        out_of_time = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps = state.global_step
            keep_steps(folder / CURVE, state.global_step, state.is_world_process_zero)
            advance(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps = state.global_step
            # all processes must stop after the same step
            late = deadline is not None and shared(time.monotonic() > deadline)
            if late and state.global_step < state.max_steps:
                self.out_of_time = True
                control.should_save = control.should_training_stop = True
            advance(1)

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            if not logs or "loss" not in logs:
                return
            if not math.isfinite(logs["loss"]):
                raise HabitusError(
                    f"warm-up stopped: the loss is not a finite number at step {state.global_step}"
                    "; take a smaller --warmup-lr, or --precision fp32"
                )
            if state.is_world_process_zero:
                line = {
                    "step": state.global_step,
                    "loss": logs["loss"],
                    "lr": logs.get("learning_rate"),
                }
                append_lines(folder / CURVE, [line])

    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder()
    graphs = policy.graphs()
    with hf.quiet(), hf.peft_warnings():
        trainer = ExampleTrainer(
            model=policy.trained,
            args=arguments(policy, folder / CHECKPOINTS, settings, seed),
            train_dataset=dataset(examples),
            callbacks=[recorder],
            graphs=graphs,
        )
        trainer.settle()
        checkpoint = last_checkpoint(folder / CHECKPOINTS)
        try:
            with sound_attention():
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        finally:
            if graphs is not None:  # what comes next needs the memory
                graphs.forget()
        trainer.accelerator.free_memory()
    return Learned(recorder.steps, not recorder.out_of_time)
