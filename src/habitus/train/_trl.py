"""All that Habitus takes from the insides of TRL and transformers' `Trainer`, in one place.

`tests/test_train_trl_contract.py` says what must hold; TRL is pinned to one minor version.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from importlib import import_module
from typing import Any

# Without types on purpose: the checks are then the same whether the extra is installed or not.
_transformers: Any = import_module("transformers")
_trl: Any = import_module("trl")
_reward: Any = import_module("trl.trainer.reward_trainer")

RewardConfig = _trl.RewardConfig
"""Arguments of the trainer."""
TrainerCallback: Any = _transformers.TrainerCallback
"""Base of what is told of each step."""
_Trainer: Any = _trl.RewardTrainer
_Collator: Any = _reward.DataCollatorForPreference


def on_one_gpu(arguments: Any) -> Any:
    """Keep a process that sees several GPUs on its first one, and return the trainer's arguments.

    The trainer would use all of them (`DataParallel`), with as many times the batch; TRL refuses
    that. Several GPUs are for `accelerate launch`.
    """
    arguments._n_gpu = min(arguments.n_gpu, 1)  # as transformers does for models in parts
    return arguments


COLUMNS = ("chosen_ids", "rejected_ids", "weight", "row")
"""Columns of a prepared data set: token ids of both responses, the pair's weight, and its number.
TRL takes a data set with the first two as tokenised and leaves it as it is."""

TYPES = ("chosen_types", "rejected_types")
"""Further columns of models that read text pairs."""


class WeightedCollator(_Collator):  # type: ignore[misc]
    """TRL's collator, with the weights and numbers of the pairs kept."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch: chosen responses first, then the rejected ones, padded on the right.

        Raises:
            ValueError: When a pair has no weight: it would be trained on unweighted.
        """
        import torch

        for name in ("weight", "row"):
            if any(name not in example for example in examples):
                raise ValueError(f"a pair in the batch has no {name}; nothing is trained without")
        batch: dict[str, Any] = super().torch_call(examples)
        batch["weight"] = torch.tensor([float(each["weight"]) for each in examples])
        batch["row"] = torch.tensor([int(each["row"]) for each in examples])
        if "chosen_types" in examples[0]:
            types = torch.zeros_like(batch["input_ids"])
            rows = [each[name] for name in TYPES for each in examples]
            for at, row in enumerate(rows):
                types[at, : len(row)] = torch.tensor(row)
            batch["token_type_ids"] = types
        return batch


class WeightedRewardTrainer(_Trainer):  # type: ignore[misc]
    """TRL's trainer with the hooks that a weighted loss needs."""

    loss_is_scaled_for_ga = True
    """The loss is divided by the pairs of the whole step, so nobody divides it again."""

    last_grad_norm: Any = None
    """Norm of the last step's gradient, before it was clipped."""

    def __init__(self, *args: Any, pad_token_id: int, **kwargs: Any) -> None:
        """Make the trainer, and print nothing.

        Args:
            *args: As of TRL.
            pad_token_id: What batches are padded with, and what the model's pooling looks for.
            **kwargs: As of TRL.
        """
        super().__init__(*args, **kwargs)
        self.model.config.get_text_config().pad_token_id = pad_token_id
        self.remove_callback(_transformers.PrinterCallback)

    def _set_signature_columns_if_needed(self) -> None:
        # TRL's own list would have the weights removed without a word.
        self._signature_columns = [*COLUMNS, *TYPES]

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
