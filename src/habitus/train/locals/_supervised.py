"""The loop of `supervised`, on transformers' own `Trainer`. Imports torch."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from habitus.progress import processes
from habitus.train._trl import LOGGED_STEPS, on_one_gpu, shared_arguments

if TYPE_CHECKING:
    from habitus.train.locals.model import Policy
    from habitus.train.locals.supervised import Example, SupervisedSettings

# Without types on purpose: the checks are then the same whether the extra is installed or not.
_transformers: Any = import_module("transformers")
_Trainer: Any = _transformers.Trainer
Callback: Any = _transformers.TrainerCallback


class ExampleTrainer(_Trainer):  # type: ignore[misc]
    """Trains on what comes after prompts, in the order of the data set."""

    def __init__(self, **kwargs: Any) -> None:
        """Make the trainer.

        Args:
            **kwargs: As of transformers.
        """
        super().__init__(data_collator=collate, **kwargs)
        # every micro-batch has as many examples, so the mean of their means is the step's
        self.model_accepts_loss_kwargs = False

    def settle(self) -> None:
        """Print nothing."""
        self.remove_callback(_transformers.PrinterCallback)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the mean over examples of their mean negative log-likelihood per token."""
        labels = inputs.pop("labels")
        width = labels.shape[1]
        outputs = model(**inputs, use_cache=False, logits_to_keep=width + 1)
        logits = outputs.logits[:, -(width + 1) : -1].float()
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), labels, ignore_index=-100, reduction="none"
        )
        loss = (losses.sum(1) / (labels != -100).sum(1)).mean()
        return (loss, outputs) if return_outputs else loss


def collate(examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch: prompts padded on the left, answers on the right.

    So all answers begin at one place, and only their logits are computed.
    """
    before = max(len(each["prompt"]) for each in examples)
    after = max(len(each["answer"]) for each in examples)
    ids = torch.zeros((len(examples), before + after), dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(examples), after), -100)
    for row, each in enumerate(examples):
        start, size = before - len(each["prompt"]), len(each["answer"])
        ids[row, start : before + size] = torch.tensor([*each["prompt"], *each["answer"]])
        mask[row, start : before + size] = 1
        labels[row, :size] = torch.tensor(each["answer"])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "labels": labels,
    }


def dataset(examples: Sequence[Example]) -> Any:
    """Return examples as a data set."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "prompt": [list(each.prompt) for each in examples],
            "answer": [list(each.answer) for each in examples],
        }
    )


def arguments(policy: Policy, folder: Path, settings: SupervisedSettings, seed: int) -> Any:
    """Return the trainer's arguments, for settings that were checked."""
    on_cpu = policy.device.type == "cpu"
    found = _transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.micro,
        gradient_accumulation_steps=settings.batch_size // processes() // settings.micro,
        num_train_epochs=1,
        max_steps=settings.steps,
        learning_rate=settings.lr,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=1.0,
        bf16=policy.bf16,
        remove_unused_columns=False,
        **LOGGED_STEPS,
        **shared_arguments(seed=seed, save_steps=settings.save_steps, on_cpu=on_cpu),
    )
    return on_one_gpu(found)
