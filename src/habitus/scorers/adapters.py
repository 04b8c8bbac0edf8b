"""How the reward is read from each kind of classifier: one small class per kind.

An adapter loads a checkpoint and gives rewards of batches. Which one a checkpoint needs is seen
from its configuration and the names of its tensors, in the order of `ORDER`; other packages add
adapters through the entry point group `habitus.adapters`, and those are asked first. Heads compute
in float32 even when the body does not, so that close rewards stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from habitus.clients import hf
from habitus.errors import ModelError
from habitus.registry import Registry
from habitus.scorers.heads import (
    Selection,
    build_head,
    float_inputs,
    last_hidden,
    to_float32,
    value_head_name,
)
from habitus.scorers.runner import Batch
from habitus.types import Message, Parameter

if TYPE_CHECKING:
    import torch

ADAPTERS = Registry(
    "adapter",
    {
        name: f"habitus.scorers.adapters:{target}"
        for name, target in {
            "remote-score": "RemoteScore",
            "multi-objective": "MultiObjective",
            "value-head": "ValueHead",
            "text-pair": "TextPair",
            "encoder": "MaskedEncoder",
            "last-token": "LastToken",
            "whole-text": "WholeText",
        }.items()
    },
    group="habitus.adapters",
)
"""Kinds of classifiers. A target has `matches(asked)` and `load(asked)`; see `RewardModel`."""

ORDER = (
    "remote-score",
    "multi-objective",
    "value-head",
    "text-pair",
    "encoder",
    "last-token",
    "whole-text",
)
"""Built-in adapters, the most particular first."""


@dataclass(frozen=True)
class Asked:
    """What is to be loaded, and how."""

    checkpoint: hf.Checkpoint
    """The checkpoint."""
    placement: hf.Placement
    """Device and number format."""
    label: int | None = None
    """Which output is the reward; None when there is one."""
    allow_new_head: bool = False
    """Accept a head that the checkpoint lacks."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    has_template: bool = True
    """Whether there is a chat template, the model's or the user's."""


class RewardModel(Protocol):
    """A loaded classifier."""

    adapter: ClassVar[str]
    """The adapter's name."""
    padded: ClassVar[bool]
    """Whether texts of different lengths may share a batch."""
    pairs: ClassVar[bool]
    """Whether it reads a question and an answer instead of a chat."""
    model: Any
    """The transformers model."""
    parameters: dict[str, Parameter]
    """What an adapter adds to the scorer's record."""

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Whether this adapter is for that checkpoint."""
        ...

    @classmethod
    def load(cls, asked: Asked) -> RewardModel:
        """Load the checkpoint."""
        ...

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Return one reward per row, (rows,), float32, on the device."""
        ...


def load_reward_model(asked: Asked) -> RewardModel:
    """Load a checkpoint with the first adapter that matches it.

    Raises:
        ModelError: When it cannot be loaded, or lacks weights.
        InputError: When it has several outputs and none was chosen.
    """
    others = sorted(set(ADAPTERS.targets()) - set(ORDER))
    for name in (*others, *ORDER):
        adapter: type[RewardModel] = ADAPTERS.get(name)
        if adapter.matches(asked):
            return adapter.load(asked)
    raise ModelError(f"{asked.checkpoint.name}: no adapter knows this kind of model")


@dataclass
class _Classifier:
    """What the adapters on a sequence classification model share."""

    adapter: ClassVar[str]
    padded: ClassVar[bool] = True
    pairs: ClassVar[bool] = False
    model: Any
    select: Selection
    heads: Mapping[str, Any]
    parameters: dict[str, Parameter] = field(default_factory=dict)

    @classmethod
    def load(cls, asked: Asked) -> Self:
        """Load a model with its head, the head in float32."""
        checkpoint = asked.checkpoint
        count = _outputs(checkpoint)
        if count is None and asked.allow_new_head and "id2label" not in checkpoint.config:
            count = 1
        size: dict[str, Any] = {} if count is None else {"num_labels": count}
        model, missing = hf.load_model(
            checkpoint,
            "AutoModelForSequenceClassification",
            asked.placement,
            trust_remote_code=asked.trust_remote_code,
            **size,
        )
        heads = {
            name: child
            for name, child in model.named_children()
            if name != model.base_model_prefix and any(True for _ in child.parameters())
        }
        new = _check_missing(asked, missing, heads)
        select = Selection.choose(checkpoint, asked.label, int(model.config.num_labels))
        cls.fix_heads(heads, checkpoint)
        return cls(model, select, heads, select.parameters | ({"new_head": True} if new else {}))

    @classmethod
    def fix_heads(cls, heads: Mapping[str, Any], checkpoint: hf.Checkpoint) -> None:
        """Put heads into float32, with the checkpoint's own precision."""
        for name, head in heads.items():
            to_float32(name, head, checkpoint)
            head.register_forward_pre_hook(float_inputs)


class LastToken(_Classifier):
    """A causal model with a linear `score` on the last token: most reward models."""

    adapter = "last-token"

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match any model whose head is one layer named "score", or is to become one."""
        return "score.weight" in asked.checkpoint.tensors or (
            asked.allow_new_head and _type_among(asked, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
        )

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Pool the last real token, wherever the library would look for it."""
        pooled = last_hidden(getattr(self.model, self.model.base_model_prefix), batch)
        return self.select(self.model.score(pooled))


class MaskedEncoder(_Classifier):
    """An encoder that reads a chat and pools by its attention mask."""

    adapter = "encoder"

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match encoders of transformers."""
        config = asked.checkpoint.config
        return (
            _type_among(asked, "MODEL_FOR_MASKED_LM_MAPPING_NAMES")
            and not config.get("is_encoder_decoder")
            and not config.get("is_decoder")
            and config.get("model_type") not in ("bart", "mbart", "mvp")
        )

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Run the model's own pooling and head."""
        types = {} if batch.types is None else {"token_type_ids": batch.types}
        return self.select(self.model(batch.ids, attention_mask=batch.mask(), **types).logits)


class TextPair(MaskedEncoder):
    """An encoder that reads question and answer as a pair: the OpenAssistant DeBERTa kind."""

    adapter = "text-pair"
    pairs = True

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match encoders without a chat template."""
        return MaskedEncoder.matches(asked) and not asked.has_template


class WholeText(_Classifier):
    """Any other classifier: only texts of equal length share a batch, so nothing is padded."""

    adapter = "whole-text"
    padded = False

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match anything."""
        return True

    @classmethod
    def load(cls, asked: Asked) -> Self:
        """Load the model, and make sure that it takes no token for padding."""
        loaded = super().load(asked)
        # Its own search for padding finds none, also where the padding token ends a turn.
        loaded.model.config.get_text_config().pad_token_id = -1
        return loaded

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Run the model's own pooling and head."""
        return self.select(self.model(batch.ids).logits)


class MultiObjective(WholeText):
    """Code of its authors that mixes several objectives into a `score`: the ArmoRM kind."""

    adapter = "multi-objective"

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match classifiers with code of their own, where that code may run."""
        return asked.trust_remote_code and _foreign_code(asked)

    @classmethod
    def fix_heads(cls, heads: Mapping[str, Any], checkpoint: hf.Checkpoint) -> None:
        """Leave heads as their authors' code has them."""

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Return the model's `score`, or the chosen output where it has none."""
        found = self.model(batch.ids)
        score = getattr(found, "score", None)
        if score is not None:
            return score.float().reshape(len(batch.lengths))  # type: ignore[no-any-return]
        return self.select(found.logits)

    @classmethod
    def load(cls, asked: Asked) -> Self:
        """Load the model; its mixed score needs no choice of an output."""
        if asked.label is None:
            asked = Asked(**{**asked.__dict__, "label": 0})
        return super().load(asked)


@dataclass
class ValueHead:
    """A causal model whose authors put a head of their own name on the last token."""

    adapter: ClassVar[str] = "value-head"
    padded: ClassVar[bool] = True
    pairs: ClassVar[bool] = False
    model: Any
    head: Any
    select: Selection
    parameters: dict[str, Parameter]

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match checkpoints that have such a head."""
        return value_head_name(asked.checkpoint.tensors) is not None

    @classmethod
    def load(cls, asked: Asked) -> Self:
        """Load the body, and rebuild the head from its tensors."""
        checkpoint = asked.checkpoint
        name = value_head_name(checkpoint.tensors)
        if name is None:
            raise ModelError(f"{checkpoint.name} has no value head")
        model, missing = hf.load_model(
            checkpoint, "AutoModel", asked.placement, trust_remote_code=asked.trust_remote_code
        )
        _check_missing(asked, missing, ())
        head = build_head(checkpoint, name).to(asked.placement.device)
        select = Selection.choose(
            checkpoint, asked.label, next(reversed(list(head.parameters()))).shape[0]
        )
        return cls(model, head, select, {**select.parameters, "head": name})

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Apply the head to the last real token."""
        return self.select(self.head(last_hidden(self.model, batch)))


@dataclass
class RemoteScore:
    """A model whose own code scores conversations: `get_score(tokenizer, conversation)`."""

    adapter: ClassVar[str] = "remote-score"
    padded: ClassVar[bool] = False
    pairs: ClassVar[bool] = False
    model: Any
    parameters: dict[str, Parameter]

    @classmethod
    def matches(cls, asked: Asked) -> bool:
        """Match models that are no classifiers to transformers but bring their own code."""
        return (
            asked.trust_remote_code
            and "AutoModel" in asked.checkpoint.auto_map
            and not _foreign_code(asked)
        )

    @classmethod
    def load(cls, asked: Asked) -> Self:
        """Load the model.

        Raises:
            ModelError: When its code has no `get_score`.
        """
        model, missing = hf.load_model(
            asked.checkpoint, "AutoModel", asked.placement, trust_remote_code=True
        )
        _check_missing(asked, missing, ())
        if not hasattr(model, "get_score"):
            raise ModelError(
                f"the code of {asked.checkpoint.name} has no get_score and is no classifier"
            )
        return cls(model, {"output": "get_score"})

    def score(self, tokenizer: Any, messages: Sequence[Message]) -> float:
        """Return the reward of one conversation."""
        chat = [{"role": message.role, "content": message.content} for message in messages]
        return float(self.model.get_score(tokenizer, chat))

    def rewards(self, batch: Batch) -> torch.Tensor:
        """Refuse: such a model reads conversations, not token ids."""
        raise TypeError("get_score reads conversations, not token ids")


def _outputs(checkpoint: hf.Checkpoint) -> int | None:
    """Return the number of outputs of the head in the checkpoint."""
    for name in ("score.weight", "classifier.weight", "classifier.out_proj.weight"):
        if name in checkpoint.tensors:
            return checkpoint.shape(name)[0]
    return None


def _check_missing(asked: Asked, missing: set[str], heads: Iterable[str]) -> bool:
    """Refuse a model with weights that its checkpoint lacks; tell whether a new head is used.

    Raises:
        ModelError: When weights are missing and were not allowed to be.
    """
    name = asked.checkpoint.name
    head = {key for key in missing if key.split(".")[0] in set(heads)}
    if body := sorted(missing - head):
        raise ModelError(
            f"{name} lacks {len(body)} weights of its {asked.checkpoint.config.get('model_type')} "
            f"model, {body[0]} among them; is this the right folder?"
        )
    if head and not asked.allow_new_head:
        if asked.checkpoint.adapter is not None:
            raise ModelError(
                f"the adapter {name} has no trained reward head ({sorted(head)[0]}); save it with "
                'modules_to_save=["score"] or task_type="SEQ_CLS"'
            )
        hint = (
            "; it brings code of its own: --trust-remote-code" if asked.checkpoint.auto_map else ""
        )
        raise ModelError(
            f"{name} has no trained reward head ({sorted(head)[0]} is missing), so its scores would "
            f"be random{hint}; --allow-new-head scores all the same"
        )
    return bool(head)


def _foreign_code(asked: Asked) -> bool:
    """Whether the checkpoint brings a classifier class of its own that is to be used."""
    brings = "AutoModelForSequenceClassification" in asked.checkpoint.auto_map
    return brings and asked.trust_remote_code


def _type_among(asked: Asked, mapping: str) -> bool:
    from transformers.models.auto import modeling_auto

    return asked.checkpoint.config.get("model_type") in getattr(modeling_auto, mapping)
