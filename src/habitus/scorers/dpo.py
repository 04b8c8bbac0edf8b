"""Implicit rewards: how much more a policy likes a response than its reference model does.

`dpo:POLICY --reference REFERENCE`. The reward is the sum (or mean) over the response's tokens, the
end of the turn among them, of log policy - log reference (Rafailov et al. 2023, equation 5, without
the factor beta, which changes no ranking). Both models read the policy's chat template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from habitus.clients import hf
from habitus.clients.chat_template import ChatTemplate, read_template
from habitus.clients.encode import ChatEncoder, Length, length_limit
from habitus.errors import InputError, ModelError
from habitus.scorers import ScorerOptions
from habitus.scorers.batching import BatchedScorer
from habitus.scorers.classifier import (
    SHARED,
    check_options,
    compiled,
    count_weights,
    make_spec,
    model_parameters,
)
from habitus.scorers.heads import is_causal
from habitus.scorers.runner import Batch, Runner, to_device
from habitus.types import Parameter

if TYPE_CHECKING:
    import torch

SLICE = 2048
"""Response tokens whose logits over the whole vocabulary are held at once."""

TOLERANCE = 1e-3
"""How far the logits of body and head apart may be from the model's own, relative to the largest,
in float32 (rounding); more in narrower formats."""


class ResponseLogProbs:
    """Log-probabilities of responses under a causal language model."""

    def __init__(self, model: Any) -> None:
        """Choose how logits are computed.

        Most models are a body and a linear head; then logits are computed for the response's
        tokens only. Where that is not the whole of it (soft caps, scales), which is found by
        trying, the model's own forward is used.

        Args:
            model: A causal language model of transformers, in evaluation mode.
        """
        self._model = model
        self._body = model.base_model
        self._head = model.get_output_embeddings()
        self.direct = self._is_direct()
        """Whether body and head are run apart."""

    def _is_direct(self) -> bool:
        import torch

        device = self._head.weight.device
        ids = torch.arange(1, 9, device=device)[None] % self._head.weight.shape[0]
        with torch.inference_mode():
            own = self._model(ids, use_cache=False).logits.float()
            apart = self._head(self._states(ids, None)).float()
        if own.shape != apart.shape:
            return False
        precise = self._head.weight.dtype == torch.float32
        allowed = (TOLERANCE if precise else 10 * TOLERANCE) * float(own.abs().max())
        return float((own - apart).abs().max()) <= allowed

    def _states(self, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        found: torch.Tensor = self._body(
            ids, attention_mask=mask, use_cache=False
        ).last_hidden_state
        return found

    def sums(self, batch: Batch, spans: list[tuple[int, int]]) -> torch.Tensor:
        """Return the summed log-probability of each row's response, (rows,), float32.

        Args:
            batch: The texts, padded on the right.
            spans: First and one past the last token of each row's response; the first is never 0.
        """
        import torch
        from torch.nn import functional

        rows, width = batch.ids.shape
        places = np.concatenate(
            [row * width + np.arange(begin, end) for row, (begin, end) in enumerate(spans)]
        )
        where = to_device(places, batch.ids.device)
        targets = batch.ids.reshape(-1)[where]
        mask = None if is_causal(self._model.config) else batch.mask()
        if self.direct:
            states = self._states(batch.ids, mask)
        else:
            states = self._model(batch.ids, attention_mask=mask, use_cache=False).logits
        # The token at a place is predicted by the state one before it.
        states = states.reshape(rows * width, -1)[where - 1]
        found = torch.zeros(rows * width, device=states.device)
        for begin in range(0, len(places), SLICE):
            part = slice(begin, begin + SLICE)
            logits = self._head(states[part]) if self.direct else states[part]
            found[where[part]] = -functional.cross_entropy(
                logits.float(), targets[part], reduction="none"
            )
        return found.reshape(rows, width).sum(1)


def implicit_rewards(
    policy: ResponseLogProbs, reference: ResponseLogProbs, *, mean: bool
) -> Callable[[Batch], torch.Tensor]:
    """Return a function that gives the implicit reward of each row of a batch.

    Args:
        policy: The trained model.
        reference: What it was trained from.
        mean: Whether to divide by the number of response tokens.
    """

    def rewards(batch: Batch) -> torch.Tensor:
        spans = [
            (max(start or 0, 1), size)
            for start, size in zip(batch.starts, batch.lengths, strict=True)
        ]
        if any(begin >= end for begin, end in spans):
            raise ValueError("the response has no tokens")
        ratio = policy.sums(batch, spans) - reference.sums(batch, spans)
        if mean:
            ratio = ratio / ratio.new_tensor([end - begin for begin, end in spans])
        return ratio

    return rewards


def create(model: str, options: ScorerOptions) -> BatchedScorer:
    """Load a policy and its reference as a reward model.

    Args:
        model: The policy: a folder, or an id on the Hugging Face Hub.
        options: `reference` is needed; `average` and the options of `classifier.SHARED` apply.

    Raises:
        InputError: When the reference is missing, an option is wrong, or vocabularies differ.
        ModelError: When a model cannot be had.
        MissingExtraError: When torch or transformers is not installed.
    """
    check_options("dpo", model, options, (*SHARED, "reference", "average"))
    if not options.reference:
        raise InputError(
            "an implicit reward needs the model that was trained from: --reference REF"
        )
    if options.average not in (None, "sum", "mean"):
        raise InputError(f"--average {options.average}: one of sum, mean")
    hf.require("an implicit reward")
    trust = bool(options.trust_remote_code)
    placement = hf.place(options.device, options.dtype, options.threads)
    policy = hf.locate(model, options.revision, options.say)
    reference = hf.locate(options.reference, None, options.say)
    tokenizer = hf.load_tokenizer(policy, trust_remote_code=trust)
    _check_vocabularies(tokenizer, hf.load_tokenizer(reference, trust_remote_code=trust), options)
    models = [_load(checkpoint, placement, trust) for checkpoint in (policy, reference)]
    limits = [length_limit(each.config, tokenizer, options.context) for each in models]
    length = Length(
        min((each for each in limits if each is not None), default=None), options.truncate
    )
    template = read_template(options.template) if options.template else None
    encoder = ChatEncoder(
        tokenizer, ChatTemplate(tokenizer, template, options.no_system, model), length, spans=True
    )
    mean = options.average == "mean"
    about: dict[str, Parameter] = {
        "reference": make_spec("dpo", reference, {}).model,
        "reference_revision": reference.revision,
        "average": "mean" if mean else "sum",
        **encoder.parameters,
        **model_parameters(models[0], placement, trust),
    }
    policy_probs, reference_probs = map(ResponseLogProbs, models)
    runner = Runner(
        implicit_rewards(policy_probs, reference_probs, mean=mean),
        placement.device,
        budget=options.batch_tokens,
        pad_id=tokenizer.pad_token_id or 0,
        vocabulary=min(each.get_input_embeddings().num_embeddings for each in models),
        say=options.say,
    )
    about |= compiled(options, runner, models)
    scorer = BatchedScorer(make_spec("dpo", policy, about), encoder, runner, options.say)
    scorer.weights = count_weights(models[0])
    return scorer


def _load(checkpoint: hf.Checkpoint, placement: hf.Placement, trust: bool) -> Any:
    model, missing = hf.load_model(
        checkpoint, "AutoModelForCausalLM", placement, trust_remote_code=trust
    )
    if missing:
        raise ModelError(
            f"{checkpoint.name} lacks {len(missing)} weights of a language model, "
            f"{min(missing)} among them"
        )
    return model


def _check_vocabularies(policy: Any, reference: Any, options: ScorerOptions) -> None:
    """Refuse two models whose token ids mean different things; a policy may have added tokens."""
    one, other = policy.get_vocab(), reference.get_vocab()
    if one.items() >= other.items():
        return
    shared = one.keys() & other.keys()
    moved = sum(one[token] != other[token] for token in shared)
    raise InputError(
        f"--reference {options.reference}: its vocabulary ({len(other)} tokens) is not the policy's "
        f"({len(one)} tokens): {len(one.keys() ^ other.keys())} tokens are in one only, {moved} have "
        "other ids; a reference is the model that the policy was trained from"
    )
