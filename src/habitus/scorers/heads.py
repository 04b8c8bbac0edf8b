"""Reward heads: which output is the reward, which token is pooled, and in which precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from habitus.clients import hf
from habitus.errors import InputError
from habitus.scorers.runner import Batch
from habitus.types import Parameter

if TYPE_CHECKING:
    import torch

VALUE_HEADS = (
    "v_head.summary",
    "v_head",
    "value_head.summary",
    "value_head",
    "reward_head",
    "regression_head",
    "rm_head",
)
"""Names of heads that authors put on the last token of a causal model in classes of their own. The
name "score" is among them when it is more than one layer (the INF-ORM kind)."""

WEIGHTS_KEY = "reward_weights"
"""Key of `config.json` with one weight per output: the reward is the weighted sum."""


@dataclass
class Selection:
    """Which of a head's outputs is the reward."""

    label: int | None = None
    """The chosen output; None when there is one, or weights."""
    weights: Sequence[float] | None = None
    """A weight per output."""
    log_softmax: bool = False
    """Whether outputs are logits of exclusive classes: then the reward is a log-probability."""

    @classmethod
    def choose(cls, checkpoint: hf.Checkpoint, label: int | None, count: int) -> Self:
        """Choose among the outputs of a head.

        Args:
            checkpoint: The checkpoint, whose configuration may weigh outputs.
            label: The user's choice.
            count: How many outputs there are.

        Raises:
            InputError: When there are several and none was chosen, or no such one.
        """
        config = checkpoint.config
        if label is not None and not 0 <= label < count:
            raise InputError(f"--label {label}: the model's outputs are 0 to {count - 1}")
        weights = config.get(WEIGHTS_KEY)
        if label is None and weights is not None:
            if len(weights) != count:
                raise InputError(
                    f"config.json: {WEIGHTS_KEY} has {len(weights)} weights for {count} outputs"
                )
            return cls(weights=[float(weight) for weight in weights])
        if label is None and count > 1:
            names = config.get("id2label") or {}
            listed = ", ".join(f"{at} {names.get(str(at), '')}".strip() for at in range(count))
            raise InputError(
                f"{checkpoint.name} has {count} outputs ({listed}); "
                "say which is the reward: --label K"
            )
        exclusive = config.get("problem_type") == "single_label_classification" and count > 1
        return cls(label=label or 0, log_softmax=exclusive)

    def __call__(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the reward of each row, (rows,), of outputs, (rows, outputs)."""
        outputs = outputs.float()
        if self.weights is not None:
            return outputs @ outputs.new_tensor(self.weights)
        if self.log_softmax:
            outputs = outputs.log_softmax(-1)
        return outputs[:, self.label or 0]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """What the record holds of it."""
        if self.weights is not None:
            return {"output": "weighted sum", "weights": str(list(self.weights))}
        return {"output": "log-softmax" if self.log_softmax else "logit", "label": self.label or 0}


def last_hidden(body: Any, batch: Batch) -> torch.Tensor:
    """Return the last layer's state of each row's last real token, (rows, hidden), float32.

    Rows are padded on the right, so that a causal model never sees padding and needs no mask.
    """
    import torch

    mask = None if is_causal(body.config) else batch.mask()
    states = body(batch.ids, attention_mask=mask, use_cache=False).last_hidden_state
    rows = torch.arange(states.shape[0], device=states.device)
    found: torch.Tensor = states[rows, batch.last].float()
    return found


def is_causal(config: Any) -> bool:
    """Whether a decoder looks only back: some are turned into encoders by a switch."""
    text = config.get_text_config()
    return bool(getattr(text, "is_causal", True)) and not getattr(
        text, "use_bidirectional_attention", False
    )


def to_float32(name: str, head: Any, checkpoint: hf.Checkpoint) -> None:
    """Put a head into float32 with the values of the checkpoint, not those rounded on the way."""
    import torch

    head.float()
    with torch.no_grad():
        for inner, parameter in head.named_parameters():
            stored = f"{name}.{inner}"
            if stored in checkpoint.tensors and checkpoint.shape(stored) == parameter.shape:
                parameter.copy_(checkpoint.tensor(stored).float())


def float_inputs(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put a module's inputs into float32: a hook for heads on bodies that compute otherwise."""
    return tuple(
        arg.float() if hasattr(arg, "is_floating_point") and arg.is_floating_point() else arg
        for arg in args
    )


def value_head_name(tensors: Mapping[str, Any]) -> str | None:
    """Return the name of the head that authors' own classes have, if there is one."""
    if "score.0.weight" in tensors:
        return "score"
    names = (
        name for name in VALUE_HEADS for end in ("weight", "0.weight") if f"{name}.{end}" in tensors
    )
    return next(names, None)


def build_head(checkpoint: hf.Checkpoint, name: str) -> torch.nn.Sequential:
    """Rebuild a head of linear layers, ReLU between them, from its tensors."""
    from torch import nn

    keys = [key for key in checkpoint.tensors if key.startswith(f"{name}.")]
    numbers = sorted({int(n) for key in keys if (n := key.removeprefix(f"{name}.")[0]).isdigit()})
    layers: list[nn.Module] = []
    for prefix in [f"{name}.{number}" for number in numbers] or [name]:
        rows, columns = checkpoint.shape(f"{prefix}.weight")
        layer = nn.Linear(columns, rows, bias=f"{prefix}.bias" in checkpoint.tensors)
        to_float32(prefix, layer, checkpoint)
        layers += [layer] if not layers else [nn.ReLU(), layer]
    return nn.Sequential(*layers).eval()
