"""All that Habitus takes from the insides of TRL's GRPOTrainer, in one place.

`tests/test_locals_grpo.py` says what must hold; TRL is pinned to one minor version.
"""

from __future__ import annotations

import copy
import logging
import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Without types on purpose: the checks are then the same whether the extra is installed or not.
_torch: Any = import_module("torch")
_transformers: Any = import_module("transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TRL and what it imports warn at import
    _trl: Any = import_module("trl")
    _trl_grpo: Any = import_module("trl.trainer.grpo_trainer")

GRPOConfig = _trl.GRPOConfig
"""Arguments of the trainer."""
TrainerCallback: Any = _transformers.TrainerCallback
"""Base of what is told of each step."""
_Trainer: Any = _trl.GRPOTrainer


class IdsGRPOTrainer(_Trainer):  # type: ignore[misc]
    """TRL's trainer on prompts that are token ids already, with a reference made from memory."""

    beta: Any
    ref_model: Any
    use_vllm: bool
    temperature: float
    max_completion_length: int

    def __init__(
        self,
        *args: Any,
        prompt_ids: Mapping[str, Sequence[int]],
        beta: float,
        reference: bool = False,
        write: Callable[..., list[list[int]]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make the trainer, and print nothing.

        Args:
            *args: As of TRL.
            prompt_ids: Token ids of each prompt by its name; the data set holds the names.
            beta: Weight of the KL penalty. The arguments of TRL must have the same where an
                adapter is trained, and 0 where all weights are: TRL would load the reference from
                the path in the model's configuration, whatever weights the model has.
            reference: Have a reference also where `beta` is 0.
            write: Writes in place of the library's `generate`: of prompts' ids, a function that
                picks tokens and the most tokens, the ids up to and with the token that ends each.
            **kwargs: As of TRL.
        """
        self._prompt_ids = prompt_ids
        self._writer = write
        self.seconds_generating = 0.0
        """Seconds spent on writing since it was last set to 0."""
        super().__init__(*args, **kwargs)
        if (beta and not self.beta) or (reference and not self.adapted):
            copied = copy.deepcopy(self.model).requires_grad_(False).eval()
            self.ref_model = self.accelerator.prepare_model(copied, evaluation_mode=True)
            self.beta = beta
        self.remove_callback(_transformers.PrinterCallback)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        # The template was applied by the judge's own encoder; TRL's would encode data as control.
        return [list(self._prompt_ids[name]) for name in prompts], None, {}

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            if self.use_vllm:
                return super()._generate_single_turn(prompt_ids, *args, **kwargs)
            if self._writer is None:
                with self.accelerator.autocast():  # as the policy computes everywhere else
                    return super()._generate_single_turn(prompt_ids, *args, **kwargs)
            return self._writer(prompt_ids, self._drawn, self.max_completion_length), None
        finally:
            self.seconds_generating += time.perf_counter() - begin

    def _drawn(self, place: int, logits: Any) -> Any:
        """Draw each row's token at the temperature, as `generate` does without top-k and top-p."""
        chances = (logits.float() / self.temperature).softmax(dim=-1)
        return _torch.multinomial(chances, num_samples=1)[:, 0]

    @contextmanager
    def as_reference(self) -> Iterator[Any]:
        """Give the model of the reference policy: another one, or this one with its adapter off."""
        if self.ref_model is not None:
            yield self.accelerator.unwrap_model(self.ref_model)
            return
        model = self.accelerator.unwrap_model(self.model)
        known = "ref" if "ref" in model.peft_config else None
        with _trl_grpo.use_adapter(model, adapter_name=known):
            yield model

    @property
    def adapted(self) -> bool:
        """Whether an adapter is trained, so that the reference is the model without it."""
        return hasattr(self.accelerator.unwrap_model(self.model), "peft_config")

    @property
    def sharded(self) -> bool:
        """Whether no process has the whole model."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write no card: checkpoints are not for publishing."""


class MeasuredGRPOTrainer(IdsGRPOTrainer):
    """The same, which also logs how far each answer is from the start, penalty or none.

    `kl_answer` is the sum over an answer's tokens of r - 1 - log r, r being the reference's
    probability over the policy's: an estimate of the divergence per answer, as `kl` is per token.
    """

    _logps: Any = None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "ref_per_token_logps" not in found:  # without a penalty TRL asks for none
            ids = [found["prompt_ids"], found["completion_ids"]]
            masks = [found["prompt_mask"], found["completion_mask"]]
            with _torch.no_grad(), self.as_reference() as reference:
                found["ref_per_token_logps"], _, _ = super()._get_per_token_logps_and_entropies(
                    reference,
                    _torch.cat(ids, dim=1),
                    _torch.cat(masks, dim=1),
                    found["completion_ids"].size(1),
                    batch_size=self.args.per_device_train_batch_size,
                )
        return found

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if _torch.is_grad_enabled():
            self._logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)
        mask = inputs["completion_mask"]
        ratio = inputs["ref_per_token_logps"] - self._logps
        distance = (_torch.exp(ratio) - ratio - 1) * mask
        self._metrics["train"]["kl_answer"].append(float(distance.sum(-1).mean()))
        if not self.beta:
            self._metrics["train"]["kl"].append(float(distance.sum() / mask.sum().clamp(min=1)))
        return loss


@contextmanager
def quiet_failures() -> Iterator[None]:
    """Keep TRL from printing the text of each answer that has no reward; they are counted."""
    logger = logging.getLogger("trl.trainer.grpo_trainer")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
