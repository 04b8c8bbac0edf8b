"""All that Habitus takes from the insides of TRL and transformers' `Trainer`, in one place.

`tests/test_train_trl_contract.py` says what must hold; TRL is pinned to one minor version.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

# Without types on purpose: the checks are then the same whether the extra is installed or not.
_transformers: Any = import_module("transformers")
_trl: Any = import_module("trl")
_datasets: Any = import_module("datasets")

RewardConfig = _trl.RewardConfig
"""Arguments of the trainer."""
TrainerCallback: Any = _transformers.TrainerCallback
"""Base of what is told of each step."""
_Trainer: Any = _trl.RewardTrainer


def on_one_gpu(arguments: Any) -> Any:
    """Keep a process that sees several GPUs on its first one, and return the trainer's arguments.

    The trainer would use all of them (`DataParallel`), with as many times the batch; TRL refuses
    that. Several GPUs are for `accelerate launch`.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)  # as transformers does for models in parts
    return arguments


def shared_arguments(*, seed: int, save_steps: int, on_cpu: bool) -> dict[str, Any]:
    """Return the arguments that all trainers have: seeds, where to compute, and nothing told."""
    return {
        "seed": seed,
        "data_seed": seed,
        "use_cpu": on_cpu,
        "dataloader_pin_memory": not on_cpu,
        "report_to": [],
        "save_steps": save_steps,
        "save_total_limit": 1,
        "disable_tqdm": True,
    }


LOGGED_STEPS = {
    "log_level_replica": "passive",
    "ddp_find_unused_parameters": False,
    "logging_strategy": "steps",
    "logging_steps": 1,
    "save_strategy": "steps",
}
"""Further arguments of trainers that tell their callbacks of every step."""


class WeightedCollator:
    """Makes a batch of prepared pairs: chosen responses first, then the rejected ones.

    A pair has `chosen_ids`, `rejected_ids`, `weight` and `row` (its number), and of models that
    read text pairs also `chosen_types` and `rejected_types`.
    """

    def __init__(self, pad_token_id: int, multiple: int = 1) -> None:
        """Make a collator.

        Args:
            pad_token_id: What token ids are padded with, on the right.
            multiple: The width of a batch is a multiple of it.
        """
        self._pad = pad_token_id
        self._multiple = multiple

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch as tensors.

        Raises:
            ValueError: When a pair has no weight: it would be trained on unweighted.
        """
        import torch

        for name in ("weight", "row"):
            if any(name not in example for example in examples):
                raise ValueError(f"a pair in the batch has no {name}; nothing is trained without")
        ids = [example[name] for name in ("chosen_ids", "rejected_ids") for example in examples]
        batch = {"input_ids": _padded(ids, self._pad, self._multiple)}
        lengths = torch.tensor([len(row) for row in ids])
        places = torch.arange(batch["input_ids"].shape[1])
        batch["attention_mask"] = (places < lengths[:, None]).long()
        batch["weight"] = torch.tensor([float(each["weight"]) for each in examples])
        batch["row"] = torch.tensor([int(each["row"]) for each in examples])
        if "chosen_types" in examples[0]:
            names = ("chosen_types", "rejected_types")
            batch["token_type_ids"] = _padded(
                [each[name] for name in names for each in examples], 0, self._multiple
            )
        return batch


def _padded(rows: Sequence[Any], fill: int, multiple: int) -> Any:
    import torch

    width = -(-max(map(len, rows)) // multiple) * multiple
    table = np.full((len(rows), width), fill, np.int64)
    for at, row in enumerate(rows):
        table[at, : len(row)] = row
    return torch.from_numpy(table)


class WeightedRewardTrainer(_Trainer):  # type: ignore[misc]
    """TRL's trainer with the hooks that a weighted loss needs.

    What it does in each step beside the passes, and with every parameter, is done without looking
    for the parameters again: a small model's step is mostly that.
    """

    last_grad_norm: Any = None
    """Norm of the last step's gradient, before it was clipped."""

    def __init__(
        self, *args: Any, pad_token_id: int, train_dataset: Sequence[Any], **kwargs: Any
    ) -> None:
        """Make the trainer, and print nothing.

        Args:
            *args: As of TRL.
            pad_token_id: What batches are padded with, and what the model's pooling looks for.
            train_dataset: What the collator takes, in memory.
            **kwargs: As of TRL.
        """
        # TRL looks at the columns only; rows of a list come without a table's formatting.
        tokenised = _datasets.Dataset.from_dict({"chosen_ids": [[0]], "rejected_ids": [[0]]})
        super().__init__(*args, train_dataset=tokenised, **kwargs)
        self.train_dataset = train_dataset
        self.model.config.get_text_config().pad_token_id = pad_token_id
        self.remove_callback(_transformers.PrinterCallback)
        self._trained = [each for each in self.model.parameters() if each.requires_grad]
        self._in_training_mode = False

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, as of TRL."""

        def zero_grad(set_to_none: bool = True) -> None:
            for parameter in self._trained:
                parameter.grad = None

        self._in_training_mode = False
        self.model.zero_grad = zero_grad  # the model's own looks for its parameters in each step
        try:
            return super().train(*args, **kwargs)
        finally:
            del self.model.zero_grad

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> Any:
        """Do the passes of a micro-batch, and return its part of the loss.

        The loss is of the whole step already (`loss_is_scaled_for_ga`): nobody divides it again.
        """
        if not self._in_training_mode:  # nothing measures while this trains
            model.train()
            self._in_training_mode = True
        return self.passes(model, self._prepare_inputs(inputs), num_items_in_batch)

    def passes(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> Any:
        """Do both passes, and return this micro-batch's part of the loss."""
        loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Count none: nobody reads it, and it walks over all modules."""
        return 0

    def _clip_grad_norm(self, model: Any) -> Any:
        import torch

        return torch.nn.utils.clip_grad_norm_(self._trained, self.args.max_grad_norm)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> int:
        import torch

        count = sum(len(batch["weight"]) for batch in batch_samples)
        if self.accelerator.num_processes > 1:
            count = int(self.accelerator.gather(torch.tensor([count], device=device)).sum())
        return count

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        self.last_grad_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        return self.last_grad_norm

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write no card: checkpoints are not for publishing."""
