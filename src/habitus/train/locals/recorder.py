"""What is written of each step of reinforcement, and when training is stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from habitus.errors import HabitusError
from habitus.train.curve import CURVE, SAMPLES, append_lines, finite, keep_steps, mean
from habitus.train.locals._grpo import IdsGRPOTrainer, TrainerCallback
from habitus.train.locals.rewards import RewardSettings, group_statistics
from habitus.train.texts import shared

if TYPE_CHECKING:
    from habitus.train.locals.watched import Watcher

SHOWN = 8
"""Completions that are kept of a step."""

LOGGED = ("loss", "kl", "entropy", "grad_norm")
"""What the curve takes from TRL's log."""


class Recorded(Protocol):
    """A reward function that keeps what it was asked about."""

    records: list[dict[str, Any]]
    """The last step's completions, those of all processes."""
    seconds: float
    """Seconds spent since it was last set to 0."""


def step_figures(
    records: Sequence[Mapping[str, Any]], group: int, settings: RewardSettings
) -> dict[str, Any]:
    """Return what the curve says of a step's completions.

    Args:
        records: The completions, those of a prompt side by side.
        group: Completions of a prompt.
        settings: Weights and ranges.

    Returns:
        Means of rewards over completions with the form (None when there are none), accuracies over
        all (one without the form is wrong), and the spread within groups. `both_orders` is the
        chance that one completion of each order are both right, over pairs with both.
    """
    valid = [record for record in records if record["verdict"] is not None]
    right = [float(record["verdict"] == record["right"]) for record in records]
    groups = group_statistics([float(record["total"]) for record in records], group)
    shares: dict[str, list[float]] = {}
    for start in range(0, len(records), group):
        share = sum(right[start : start + group]) / group
        shares.setdefault(str(records[start]["pair"]), []).append(share)
    both = [math.prod(values) for values in shares.values() if len(values) == 2]
    clipped = [
        record["r_appr"]
        for record in valid
        if not settings.appr_low <= record["r_appr"] <= settings.appr_high
    ]
    return {
        "r_corr": mean([record["r_corr"] for record in valid]),
        "r_appr": mean([record["r_appr"] for record in valid]),
        "appr_clipped": len(clipped) / len(valid) if valid else None,
        "total": mean([record["total"] for record in records]),
        "accuracy": mean(right),
        "both_orders": mean(both),
        "p_a": mean([float(record["verdict"] == "A") for record in valid]),
        "p_a_model": mean([record["p_a"] for record in valid]),
        "criteria_chars": mean([float(record["characters"]) for record in records]),
        "parse_rate": len(valid) / len(records) if records else None,
        "reward_std": mean([each.std for each in groups]),
        "flat_groups": mean([float(each.flat) for each in groups]),
        "completions": len(records),
        "tokens": sum(int(record["tokens"]) for record in records),
    }


DIVERGED = (
    "training diverged in step {step}: {what} finite, so nothing can be learned any more; begin "
    "again in another --out with a lower --lr"
)


class StepRecorder(TrainerCallback):  # type: ignore[misc]
    """Writes curve and samples, and stops training: out of time, or collapsed."""

    def __init__(
        self,
        folder: Path,
        reward: Recorded,
        figures: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]],
        *,
        title: str = "locals",
        shown: int | None = SHOWN,
        logged: Sequence[str] = LOGGED,
        find_collapse: Callable[[Sequence[Mapping[str, Any]]], str | None] = lambda curve: None,
        boundary: int = 1,
        deadline: float | None = None,
        stop_on_collapse: bool = True,
        watcher: Watcher | None = None,
        say: Callable[[str], None] = lambda line: None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Make a recorder.

        Args:
            folder: Where the files go.
            reward: What knows the completions.
            figures: Makes of a step's completions what the curve says of them, `tokens` (their
                number) among it.
            title: Name of the curves on TensorBoard.
            shown: Completions that are kept of a step; None keeps all.
            logged: What the curve takes from TRL's log.
            find_collapse: Says what has collapsed by the curve so far, or None.
            boundary: Training is stopped after a multiple of so many steps: resume is exact there.
            deadline: `time.monotonic()` after which training is stopped; None is never.
            stop_on_collapse: Stop on collapse, rather than say so once and go on.
            watcher: What writes about the same pairs over training, if anything does.
            say: Called with lines for the user.
            advance: Called with 1 after each step; what it raises ends the training.
        """
        self._folder = folder
        self._reward = reward
        self._figures = figures
        self._title = title
        self._shown = shown
        self._logged = logged
        self._find_collapse = find_collapse
        self._boundary = boundary
        self._deadline = deadline
        self._stop_on_collapse = stop_on_collapse
        self._watcher = watcher
        self._say = say
        self._advance = advance
        self._trainer: Any = None
        self._curve: list[dict[str, Any]] = []
        self._board: Any = None
        self._begin = 0.0
        self.steps = 0
        """Steps done, once training has ended."""
        self.collapsed: str | None = None
        """What collapsed, if training was stopped for it."""
        self.out_of_time = False
        """Whether training was stopped because its time was over."""

    def attach(self, trainer: IdsGRPOTrainer) -> None:
        """Say whose steps these are."""
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forget what was written after the checkpoint that training goes on from."""
        for name in (CURVE, SAMPLES):
            kept = keep_steps(self._folder / name, state.global_step, state.is_world_process_zero)
            if name == CURVE:
                self._curve = kept
        if self._watcher is not None:
            self._watcher.begin(state.global_step, state.is_world_process_zero)
        self._board = _board(self._folder) if state.is_world_process_zero else None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clocks."""
        self._begin = time.perf_counter()
        self._reward.seconds = 0.0
        self._trainer.seconds_generating = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write the step's line and samples.

        Raises:
            HabitusError: When the step's gradient is not a number: all weights are none then, and
                no checkpoint is to be written of them.
        """
        records = self._reward.records
        if not logs or "loss" not in logs or not records:
            return
        seconds = time.perf_counter() - self._begin
        generate, score = self._trainer.seconds_generating, self._reward.seconds
        figures = self._figures(records)
        line = {
            "step": state.global_step,
            **figures,
            **{name: finite(logs.get(name)) for name in self._logged},
            "clipped_ratio": finite(logs.get("clip_ratio/region_mean")),
            "lr": logs.get("learning_rate"),
            "seconds": round(seconds, 4),
            "seconds_generate": round(generate, 4),
            "seconds_score": round(score, 4),
            "seconds_train": round(max(0.0, seconds - generate - score), 4),
            "tokens_per_second": round(figures["tokens"] / generate, 1) if generate else None,
        }
        self._curve.append(line)
        if state.is_world_process_zero:
            append_lines(self._folder / CURVE, [line])
            most = self._shown or len(records)
            stride = max(1, len(records) // most)
            shown = [{"step": state.global_step} | record for record in records[::stride][:most]]
            append_lines(self._folder / SAMPLES, shown)
            if self._board is not None:
                for name, value in line.items():
                    if isinstance(value, int | float) and name != "step":
                        self._board.add_scalar(f"{self._title}/{name}", value, state.global_step)
        norm = logs.get("grad_norm")
        if norm is not None and not math.isfinite(norm):
            raise HabitusError(DIVERGED.format(step=state.global_step, what="its gradient is not"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for the log of this step, and look at the weights and the clock.

        Raises:
            HabitusError: When the weights have grown out of all numbers: no text can be drawn from
                them, and no checkpoint is to be written of them.
        """
        trained = [each.detach() for each in kwargs["model"].parameters() if each.requires_grad]
        if not bool(torch.nn.utils.get_total_norm(trained).isfinite()):
            raise HabitusError(DIVERGED.format(step=state.global_step, what="its weights are not"))
        self._advance(1)
        if self._watcher is not None and state.is_world_process_zero:
            self._watcher.look(state.global_step)
        if state.global_step >= state.max_steps:
            return
        # all processes must stop after the same step
        late = self._deadline is not None and shared(time.monotonic() > self._deadline)
        if late and state.global_step % self._boundary == 0:
            self.out_of_time = True
            control.should_save = control.should_training_stop = True
        problem = self._find_collapse(
            self._curve
        )  # of the steps before; this one is not logged yet
        if problem is not None and self.collapsed is None:
            self.collapsed = problem
            if self._stop_on_collapse:
                control.should_save = control.should_training_stop = True
            else:
                self._say(f"warning: {problem}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what TensorBoard's files do not have yet."""
        if self._board is not None:
            self._board.close()


def _board(folder: Path) -> Any:
    """Return a writer of TensorBoard's files, where it is installed."""
    import importlib.util

    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))
