"""Loading a causal language model and its tokenizer with the transformers library.

Weights are read from safetensors (a PEFT adapter is merged into its base), or from a GGUF file
(dequantised), never from pickles.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from habitus.clients.hf import (
    Checkpoint,
    Placement,
    as_model_error,
    load_model,
    load_tokenizer,
    locate,
    place,
    quiet,
    quiet_gguf,
    require,
    shown_name,
)
from habitus.errors import InputError, ModelError
from habitus.types import Parameter

ROOM = 0.8
"""Share of a GPU's free memory that weights may take before the model is spread over several."""


class LoadOptions(Protocol):
    """The options that this engine reads; `habitus.scorers.ScorerOptions` has them."""

    @property
    def dtype(self) -> str | None:
        """Number format; None is float32 on a CPU and bfloat16 else."""

    @property
    def device(self) -> str | None:
        """Device, or "auto" to spread the model over all; None is the best there is."""

    @property
    def revision(self) -> str | None:
        """Revision on the Hugging Face Hub."""

    @property
    def trust_remote_code(self) -> bool | None:
        """Run code that comes with the model."""

    @property
    def threads(self) -> int | None:
        """CPU threads."""

    @property
    def context(self) -> int | None:
        """Most tokens of a prompt with its answer."""

    @property
    def template(self) -> str | None:
        """Path of a chat template."""

    @property
    def no_system(self) -> str | None:
        """Either "merge" or "error"."""

    @property
    def batch_tokens(self) -> int | None:
        """Tokens of a batch."""

    @property
    def say(self) -> Callable[[str], None]:
        """Called with lines for the user."""


@dataclass(frozen=True)
class CausalLM:
    """A loaded model."""

    model: Any
    """The model, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""
    name: str
    """Its name without folders, or its id on the Hub."""
    revision: str | None
    """`sha256:...` of the files, or the commit on the Hub."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """What can change a result: versions, number format, device."""


def load(model: str, options: LoadOptions) -> CausalLM:
    """Load a causal language model.

    Args:
        model: A folder, a GGUF file, a known name of `habitus.clients.weights`, or an id on the
            Hugging Face Hub.
        options: Options of the command line.

    Raises:
        MissingExtraError: When torch or transformers is not installed.
        InputError: When an option or the path is wrong.
        ModelError: When the model cannot be loaded, lacks weights, or is GGUF without the package
            gguf.
    """
    from habitus.clients import weights

    require("the transformers engine")
    if not model:
        raise InputError("name a model: a folder, a GGUF file, or an id on the Hugging Face Hub")
    automatic = options.device == "auto"
    placement = place(None if automatic else options.device, options.dtype, options.threads)
    if model in weights.KNOWN or model.endswith(".gguf"):
        return _load_gguf(model, placement, options)
    checkpoint = locate(model, options.revision, options.say)
    tokenizer = load_tokenizer(checkpoint, trust_remote_code=bool(options.trust_remote_code))
    loaded, missing = load_model(
        checkpoint,
        "AutoModelForCausalLM",
        placement,
        trust_remote_code=bool(options.trust_remote_code),
        spread=automatic or (options.device is None and too_large(checkpoint, placement)),
    )
    _complete(model, missing)
    return CausalLM(loaded, tokenizer, shown_name(model), checkpoint.revision, _parameters(loaded))


def _load_gguf(model: str, placement: Placement, options: LoadOptions) -> CausalLM:
    """Load a GGUF file as plain numbers.

    Newer transformers keep GGUF packed unless told otherwise; plain weights compute the same on
    every device.
    """
    from habitus.clients import weights

    transformers: Any = importlib.import_module("transformers")  # partly typed

    path, sha = weights.locate(model, options.say)
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("reading GGUF with transformers needs a package: pip install gguf")
    packed = getattr(transformers, "GgufConfig", None)
    plain = {"quantization_config": packed(dequantize=True)} if packed else {}
    with quiet(), quiet_gguf(), as_model_error(model, "model"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            dtype=placement.dtype,
            output_loading_info=True,
            **plain,
        )
        loaded = loaded.to(placement.device).eval()
    _complete(model, report["missing_keys"])
    name = model if model in weights.KNOWN else path.name
    return CausalLM(loaded, tokenizer, name, f"sha256:{sha}", _parameters(loaded))


def _complete(model: str, missing: set[str]) -> None:
    if missing:
        raise ModelError(
            f"{model} lacks {len(missing)} weights of a causal language model, such as "
            f"{min(missing)}; is it one?"
        )


def _parameters(loaded: Any) -> dict[str, Parameter]:
    import torch

    transformers: Any = importlib.import_module("transformers")  # partly typed

    return {
        "engine": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": loaded.device.type,
        "attention": getattr(loaded.config, "_attn_implementation", None),
        "weights": sum(weight.numel() for weight in loaded.parameters()),
    }


def too_large(checkpoint: Checkpoint, placement: Placement) -> bool:
    """Whether a checkpoint needs more than one of several GPUs."""
    import torch

    if placement.device.type == "cpu" or torch.cuda.device_count() < 2:
        return False
    elements = sum(math.prod(checkpoint.shape(tensor)) for tensor in checkpoint.tensors)
    free, _ = torch.cuda.mem_get_info(placement.device)
    return elements * placement.dtype.itemsize > ROOM * free
