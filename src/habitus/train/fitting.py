"""One training run: from weighted pairs of token ids to trained weights, resumable at any kill."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from habitus.clients import hf
from habitus.clients.encode import Encoded
from habitus.errors import InputError
from habitus.progress import is_first, processes
from habitus.store import hold
from habitus.train.attention import sound_attention
from habitus.train.base import Base

CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints; it goes when the run is done."""


@dataclass(frozen=True)
class Settings:
    """How to train. The defaults are the paper's where it names them."""

    lr: float = 1e-6
    """Learning rate at the first step; it falls linearly to 0 at the last."""
    epochs: int = 3
    """Times that every pair is seen."""
    batch_size: int = 8
    """Pairs of one step, over all processes."""
    micro_batch: int | None = None
    """Pairs of one forward pass; None is the whole step's share of the process. Less memory, and
    the same step."""
    max_steps: int | None = None
    """Stop after so many steps, where the epochs would take more; None is no cap."""
    lora: int | None = None
    """Rank of a LoRA adapter on all linear layers, trained with the head; None trains all."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    dropout: bool = False
    """Whether dropout is on in training; it never is when measuring."""
    save_steps: int = 200
    """Steps between checkpoints."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When one of them makes no sense.
        """
        for name in (
            "lr",
            "epochs",
            "batch_size",
            "micro_batch",
            "max_steps",
            "lora",
            "save_steps",
        ):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InputError(f"--{name.replace('_', '-')} {value}: must be above 0")
        shares = processes()
        if self.batch_size % (shares * (self.micro_batch or 1)):
            raise InputError(
                f"--batch-size {self.batch_size}: must be a multiple of --micro-batch "
                f"{self.micro_batch or 1} times the {shares} processes"
            )

    def steps(self, pairs: int) -> int:
        """Return how many steps a run on so many pairs takes."""
        whole = math.ceil(pairs / self.batch_size) * self.epochs
        return whole if self.max_steps is None else min(whole, self.max_steps)


@dataclass(frozen=True)
class Row:
    """A pair to train on."""

    pair_id: str
    """The pair."""
    chosen: Encoded
    """The preferred text."""
    rejected: Encoded
    """The other text."""
    weight: float
    """Its weight in the loss: the pair's own times the method's."""


@dataclass(frozen=True)
class Fitted:
    """What a run was."""

    n_steps: int
    """Steps, skipped ones among them."""
    n_skipped: int
    """Steps that were skipped because loss or gradient was not finite."""
    seconds: float
    """Wall-clock time of training in this process; what a killed one took is not in it."""
    graphs: bool
    """Whether steps were replayed as CUDA graphs."""


@contextmanager
def fit(
    base: Base,
    rows: Sequence[Row],
    folder: Path,
    settings: Settings,
    seed: int,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[tuple[Any, Fitted]]:
    """Train the base on pairs; it is put back when the context ends.

    A checkpoint in the folder is gone on from; it was written by the same settings or is not used
    by the caller. On a CPU a run that was killed ends in the same weights, bit for bit.

    Args:
        base: What to start from.
        rows: The pairs.
        folder: Where the curve, the skipped steps and the checkpoints go.
        settings: How.
        seed: Seed of the order of pairs, of an adapter's weights and of dropout.
        advance: Called with the number of steps just done.

    Yields:
        The trained model, and what the run was.

    Raises:
        HabitusError: When too many steps were not finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    with base.fresh(lora=settings.lora, seed=seed) as model:
        steps, skipped, recorded = 0, 0, False
        if rows:
            steps, skipped, recorded = _train(base, model, rows, folder, settings, seed, advance)
        model.eval()
        seconds = round(time.perf_counter() - begin, 3)
        yield model, Fitted(steps, skipped, seconds, recorded)


def _train(
    base: Base,
    model: Any,
    rows: Sequence[Row],
    folder: Path,
    settings: Settings,
    seed: int,
    advance: Callable[[int], None],
) -> tuple[int, int, bool]:
    from habitus.train._trl import WeightedCollator
    from habitus.train.graphs import WIDTH
    from habitus.train.reward_trainer import PairTrainer, Recorder

    pad_id = base.pad_id([text for row in rows for text in (row.chosen, row.rejected)])
    recorder = Recorder(folder, [row.pair_id for row in rows], advance)
    tokenizer = base.opened.tokenizer
    own_pad = tokenizer.pad_token
    graphs = None if settings.dropout else base.graphs(model)
    with hf.quiet():
        trainer = PairTrainer(
            model=model,
            args=_arguments(base, folder, settings, seed, len(rows)),
            train_dataset=_dataset(rows),
            data_collator=WeightedCollator(pad_id, 1 if graphs is None else WIDTH),
            processing_class=tokenizer,
            callbacks=[recorder],
            autocast=base.autocast,
            causal=base.causal,
            graphs=graphs,
            pad_token_id=pad_id,
        )
        recorder.attach(trainer)
        try:
            checkpoint = last_checkpoint(folder / CHECKPOINTS)
            if checkpoint is not None:
                done = int(checkpoint.name.rpartition("-")[2])
                advance(done)
            with sound_attention():
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        finally:
            tokenizer.pad_token = own_pad
            recorder.attach(None)
    return recorder.steps, recorder.skipped, graphs is not None and graphs.replayed


def _arguments(base: Base, folder: Path, settings: Settings, seed: int, pairs: int) -> Any:
    from habitus.train._trl import RewardConfig, on_one_gpu, shared_arguments

    share = settings.batch_size // processes()
    micro = settings.micro_batch or share
    on_cpu = base.device.type == "cpu"
    arguments = RewardConfig(
        output_dir=str(folder / CHECKPOINTS),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=share // micro,
        num_train_epochs=settings.epochs,
        max_steps=settings.steps(pairs),  # never more than the epochs
        learning_rate=settings.lr,
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        **shared_arguments(seed=seed, save_steps=settings.save_steps, on_cpu=on_cpu),
        bf16=False,  # the trainer's own autocast would wrap the model anew in every run
        gradient_checkpointing=None,  # off; False is a deprecated way to say it
        max_length=None,
        disable_dropout=not settings.dropout,
        accelerator_config={"non_blocking": not on_cpu},
        remove_unused_columns=False,  # weights are no argument of the model
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it waits for the loss of each micro-batch; Recorder looks
        save_strategy="steps" if settings.steps(pairs) > settings.save_steps else "no",
    )
    return on_one_gpu(arguments)


def _dataset(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what the collator takes: a list, so that a row costs a look-up and nothing else."""
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        texts = {"chosen": row.chosen, "rejected": row.rejected}
        each = {f"{name}_ids": np.array(text.ids) for name, text in texts.items()}
        if row.chosen.types is not None:
            each |= {f"{name}_types": np.array(text.types) for name, text in texts.items()}
        found.append({**each, "weight": row.weight, "row": number})
    return found


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; torn ones are removed.

    The trainer's state is written last, so a checkpoint with it is whole.
    """
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and (path / "trainer_state.json").is_file():
            found.append((int(number), path))
        elif is_first():
            shutil.rmtree(path)
    return max(found)[1] if found else None


def held(lock: Path, path: Path) -> AbstractContextManager[None]:
    """Hold what is written at `path` (see `store.hold`), in the one process that writes."""
    return hold(lock, path) if is_first() else nullcontext()
