"""The loop of `supervised`, on transformers' own `Trainer`. Imports torch."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from habitus.progress import processes
from habitus.train._trl import LOGGED_STEPS, on_one_gpu, shared_arguments

if TYPE_CHECKING:
    from habitus.train.graphs import StepGraphs
    from habitus.train.locals.model import Policy
    from habitus.train.locals.supervised import Example, SupervisedSettings

# Without types on purpose: the checks are then the same whether the extra is installed or not.
_transformers: Any = import_module("transformers")
_Trainer: Any = _transformers.Trainer
Callback: Any = _transformers.TrainerCallback


WHOLE, AFTER = 64, 32
"""Widths of batches and of their answers are multiples of these where steps are recorded."""


LAYERS, LOGITS = 16, 3
"""About how many numbers a layer keeps for each of a token's hidden state, and how many copies of a
token's logits there are. Guesses: only which batch takes more than another counts."""


class ExampleTrainer(_Trainer):  # type: ignore[misc]
    """Trains on what comes after prompts, in the order of the data set."""

    def __init__(self, *, graphs: StepGraphs | None = None, **kwargs: Any) -> None:
        """Make the trainer.

        Args:
            graphs: Recorded passes of the model, where it has some; it is one without windows then.
            **kwargs: As of transformers.
        """
        self._graphs = graphs
        super().__init__(data_collator=partial(collate, rounded=graphs is not None), **kwargs)
        # every micro-batch has as many examples, so the mean of their means is the step's
        self.model_accepts_loss_kwargs = False

    def settle(self) -> None:
        """Print nothing."""
        self.remove_callback(_transformers.PrinterCallback)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Do both passes of a micro-batch: recorded ones where there are some for such a batch."""
        if self._graphs is None:
            return super().training_step(model, inputs, *args, **kwargs)
        model.train()
        tensors = self._prepare_inputs(inputs)
        parts = self.args.gradient_accumulation_steps

        def compute(kept: Mapping[str, Any]) -> Any:
            return self.compute_loss(model, dict(kept)) / parts

        whole = tensors | {"attention_mask": whole_mask(tensors["attention_mask"])}
        loss = self._graphs.run(whole, compute, "", taken(model, tensors))
        if loss is None:
            step = partial(super().training_step, model, tensors, *args, **kwargs)
            return self._graphs.unrecorded(step)
        return loss

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the mean over examples of their tokens' weighted negative log-likelihoods."""
        labels, weights = inputs.pop("labels"), inputs.pop("weights")
        width = labels.shape[1]
        outputs = model(**inputs, use_cache=False, logits_to_keep=width + 1)
        logits = outputs.logits[:, -(width + 1) : -1].float()
        # one row a token: with the vocabulary in the middle it takes several times as long
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none"
        )
        loss = (losses.view_as(weights) * weights).sum(1).mean()
        return (loss, outputs) if return_outputs else loss


def collate(examples: Sequence[dict[str, Any]], *, rounded: bool = False) -> dict[str, Any]:
    """Return a batch: prompts padded on the left, answers on the right.

    So all answers begin at one place, and only their logits are computed.

    Args:
        examples: Token ids, and the verdict's place among those of the answer.
        rounded: Round widths up, so that there are few shapes.
    """
    before = max(len(each["prompt"]) for each in examples)
    after = max(len(each["answer"]) for each in examples)
    if rounded:
        after = -(-after // AFTER) * AFTER if after > 1 else 1  # a verdict alone stays alone
        before = -(-(before + after) // WHOLE) * WHOLE - after
    ids = torch.zeros((len(examples), before + after), dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full((len(examples), after), -100)
    weights = torch.zeros((len(examples), after))
    for row, each in enumerate(examples):
        start, size = before - len(each["prompt"]), len(each["answer"])
        ids[row, start : before + size] = torch.tensor([*each["prompt"], *each["answer"]])
        mask[row, start : before + size] = 1
        labels[row, :size] = torch.tensor(each["answer"])
        weights[row, :size] = 1 / max(1, size - 1)  # a mean over all tokens but the verdict
        weights[row, each["verdict"]] = 1.0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "labels": labels,
        "weights": weights,
    }


def taken(model: Any, batch: Mapping[str, Any]) -> int:
    """Return about how much memory both passes of a batch take, in numbers.

    Args:
        model: What computes them.
        batch: As of `collate`.
    """
    config = model.config.get_text_config()
    rows, width = batch["labels"].shape
    layers = batch["input_ids"].numel() * config.num_hidden_layers * config.hidden_size * LAYERS
    return int(layers + rows * (width + 1) * config.vocab_size * LOGITS)


def whole_mask(mask: Any) -> Any:
    """Return which tokens each token looks at: the real ones up to itself, and itself.

    The library would make the same of the mask, but looks at its values, which cannot be recorded.

    Args:
        mask: 1 for real tokens, (rows, width).

    Returns:
        Booleans, (rows, 1, width, width).
    """
    width = mask.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool, device=mask.device).tril()
    itself = torch.eye(width, dtype=torch.bool, device=mask.device)
    return causal & (mask[:, None, None, :].bool() | itself)


def dataset(examples: Sequence[Example]) -> Any:
    """Return examples as a data set."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "prompt": [list(each.prompt) for each in examples],
            "answer": [list(each.answer) for each in examples],
            "verdict": [each.verdict for each in examples],
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
