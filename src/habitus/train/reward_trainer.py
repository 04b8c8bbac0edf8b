"""The reward trainer: weighted pairs, exact reduction, and steps that are not finite skipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from habitus.errors import HabitusError
from habitus.scorers.heads import is_causal
from habitus.train._trl import TrainerCallback, WeightedRewardTrainer
from habitus.train.curve import CURVE, append_lines, finite, keep_steps
from habitus.train.graphs import StepGraphs
from habitus.train.losses import weighted_loss

SKIPPED = "skipped.jsonl"
"""A line for each step that was skipped, with its pairs."""

MOST_SKIPPED = 3
"""So many skipped steps end a run: something is wrong with the data, the model or the rate."""


class PairTrainer(WeightedRewardTrainer):
    """Trains a reward model on weighted pairs; measures nothing by TRL's own metrics."""

    def __init__(
        self,
        *args: Any,
        autocast: Callable[[], Any] = nullcontext,
        causal: bool,
        graphs: StepGraphs | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a trainer.

        Args:
            *args: As of TRL.
            autocast: Makes the context in which the model computes.
            causal: Whether the model is a decoder, which is told to keep no cache, and needs no
                mask: padding is on the right, where no token looks.
            graphs: Recorded passes of the model, where it has some.
            **kwargs: As of TRL.
        """
        self._graphs = graphs
        self._autocast = autocast
        self._causal = causal
        self._masked = not (causal and is_causal(kwargs["model"].config))
        self.step: list[tuple[Any, Any, Any]] = []
        """Of each micro-batch of the step: pair numbers, its part of the loss, sum of weights."""
        super().__init__(*args, **kwargs)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return this micro-batch's part of the step's mean weighted loss (`weighted_loss`).

        Raises:
            KeyError: When the batch has no weights.
        """
        inputs, weight, rows = self._parts(inputs)
        outputs, loss = self._loss(model, inputs, weight, num_items_in_batch)
        # Nothing here may wait for the device: the backward pass is to be under way first.
        self.step.append((rows, loss.detach(), weight.sum()))
        # Gradients are averaged over processes; each part is of the whole step already.
        whole = loss * self.accelerator.num_processes
        return (whole, outputs) if return_outputs else whole

    def passes(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> Any:
        """Do both passes: a recorded one where there is one for such a batch."""
        if self._graphs is None:
            return super().passes(model, inputs, num_items_in_batch)
        tensors, weight, rows = self._parts(inputs)

        def compute(kept: Mapping[str, Any]) -> Any:
            texts = {name: value for name, value in kept.items() if name != "weight"}
            return self._loss(model, texts, kept["weight"], 1)[1]

        loss = self._graphs.run(
            tensors | {"weight": weight / num_items_in_batch},
            compute,
            model.config.get_text_config().pad_token_id,  # pooling looks for it
        )
        if loss is None:
            before, own = len(self.step), super().passes

            def again() -> Any:
                del self.step[before:]  # what a first try left, where memory ran out in it
                return own(model, inputs, num_items_in_batch)

            return self._graphs.unrecorded(again)
        self.step.append((rows, loss, weight.sum()))
        return loss

    def _parts(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
        """Return what the model reads, and the weights and numbers of the pairs."""
        tensors = dict(inputs)
        weight, rows = tensors.pop("weight"), tensors.pop("row")
        if not self._masked:
            del tensors["attention_mask"]
        return tensors, weight, rows

    def _loss(
        self, model: Any, tensors: dict[str, Any], weight: Any, count: float | None
    ) -> tuple[Any, Any]:
        with self._autocast():
            outputs = model(**tensors, **({"use_cache": False} if self._causal else {}))
        chosen, rejected = outputs.logits.squeeze(-1).float().chunk(2)
        return outputs, weighted_loss(chosen, rejected, weight, count)


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Writes the learning curve, and keeps steps that are not finite from the weights."""

    def __init__(
        self, folder: Path, pair_ids: Sequence[str], advance: Callable[[int], None]
    ) -> None:
        """Make a recorder.

        Args:
            folder: Where `curve.jsonl` and `skipped.jsonl` go.
            pair_ids: Id of each pair by its number.
            advance: Called with 1 after each step; what it raises ends the training.
        """
        self._folder = folder
        self._pair_ids = pair_ids
        self._advance = advance
        self._trainer: Any = None
        self._found: dict[str, Any] = {}
        self.skipped = 0
        """Steps skipped so far."""
        self.steps = 0
        """Steps done so far, skipped ones among them."""

    def attach(self, trainer: PairTrainer | None) -> None:
        """Say whose steps these are; None lets go of the trainer and its memory."""
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forget what was written after the checkpoint that training goes on from."""
        self.steps = state.global_step
        for name in (CURVE, SKIPPED):
            path = self._folder / name
            kept = keep_steps(path, state.global_step, state.is_world_process_zero)
            if name == SKIPPED:
                self.skipped = len(kept)
            if state.is_world_process_zero:
                path.touch()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the gradients away where loss or gradient is not finite: no step is made then."""
        import torch

        trainer = self._trainer
        batches, losses, weights = zip(*trainer.step, strict=True)
        trainer.step.clear()
        count = torch.full_like(losses[0], sum(map(len, batches)))
        norm = trainer.last_grad_norm.to(count)  # of the whole step: the same in all processes
        parts = torch.stack([torch.stack(losses).sum(), torch.stack(weights).sum(), count, norm])
        found = trainer.accelerator.gather(parts[None])
        # One wait for the device in a step.
        loss, weight, total, norm = torch.cat([found[:, :3].sum(0), found[0, 3:]]).tolist()
        self._found = {
            "step": state.global_step + 1,
            "loss": finite(loss),
            "lr": kwargs["optimizer"].param_groups[0]["lr"],
            "grad_norm": finite(norm),
            "mean_weight": weight / total,
        }
        if math.isfinite(loss) and math.isfinite(norm):
            return
        kwargs["model"].zero_grad(set_to_none=True)
        what = "gradient" if math.isfinite(loss) else "loss"
        self._skip(state, torch.cat(batches).tolist(), f"the {what} is not a finite number")

    def _skip(self, state: Any, rows: list[int], why: str) -> None:
        from accelerate.utils import gather_object

        pairs = [self._pair_ids[row] for row in gather_object(rows)]
        self.skipped += 1
        self._found |= {"skipped": True}
        self._write(SKIPPED, {"step": state.global_step + 1, "pairs": pairs, "why": why}, state)
        if self.skipped >= MOST_SKIPPED:
            raise HabitusError(
                f"training stopped: {why} in {self.skipped} steps, last at step "
                f"{state.global_step + 1} with the pairs {', '.join(pairs[:8])}; look at these in "
                f"{self._folder / SKIPPED}, take a smaller --lr, or --precision fp32"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write a line of the curve."""
        self.steps = state.global_step
        if state.global_step >= state.max_steps:
            control.should_save = False  # what comes next keeps the model, if it is to be kept
        self._write(CURVE, self._found, state)
        self._advance(1)

    def _write(self, name: str, record: dict[str, Any], state: Any) -> None:
        if state.is_world_process_zero:
            append_lines(self._folder / name, [record])
