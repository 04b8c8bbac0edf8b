"""Loading a causal language model and its tokenizer with the transformers library.

Weights are read from safetensors, or from a GGUF file (dequantised), never from pickles.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from habitus.clients.hf import require
from habitus.errors import InputError, ModelError
from habitus.types import Parameter

DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}
"""Names of number formats, and torch's names for them."""
ROOM = 0.8
"""Share of a GPU's free memory that weights may take before the model is spread over several."""
HASHED = (".safetensors", ".json", ".model", ".jinja", ".txt", ".py")
"""Files of a model folder that can change a result."""


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


@dataclass(frozen=True)
class _Source:
    """Where a model is, as `from_pretrained` wants it."""

    place: str
    name: str
    revision: str | None
    extra: dict[str, Any]


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
    require("the transformers engine")
    import torch

    transformers: Any = importlib.import_module("transformers")  # partly typed

    if options.threads:
        torch.set_num_threads(options.threads)
    device, dtype = _device(options.device), _dtype(options)
    transformers.utils.logging.disable_progress_bar()
    try:
        source = _find(model, options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.place, **source.extra)
        where = _placement(source, device, dtype, spread=options.device is None)
        weights = _weights(transformers, source)
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
            source.place,
            dtype=dtype,
            device_map=where,
            output_loading_info=True,
            **weights,
            **source.extra,
        )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"cannot load {model}: {lines[0][:300]}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{model} lacks {len(missing)} weights of a causal language model, such as "
            f"{missing[0]}; is it one?"
        )
    loaded.eval()
    parameters: dict[str, Parameter] = {
        "engine": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "dtype": str(dtype).removeprefix("torch."),
        "device": loaded.device.type,
        "attention": getattr(loaded.config, "_attn_implementation", None),
        "weights": sum(weight.numel() for weight in loaded.parameters()),
    }
    return CausalLM(loaded, tokenizer, source.name, source.revision, parameters)


def _weights(transformers: Any, source: _Source) -> dict[str, Any]:
    """Return how weights are to be read: safetensors, or GGUF as plain numbers.

    Newer transformers keep GGUF packed unless told otherwise; plain weights compute the same on
    every device.
    """
    if "gguf_file" not in source.extra:
        return {"use_safetensors": True}
    packed = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": packed(dequantize=True)} if packed else {}


def _device(name: str | None) -> str:
    """Return the device by name, or the best there is.

    Raises:
        InputError: When torch does not know the name, or has no such device.
    """
    import torch

    if name == "auto":
        return name
    if name is None:
        if torch.cuda.is_available():
            return "cuda:0"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        line = str(error).strip().splitlines()[0]
        raise InputError(f"--device {name}: {line[:200]}") from error
    return name


def _dtype(options: LoadOptions) -> Any:
    import torch

    if options.dtype is None:
        alone = options.device == "cpu" or not (
            torch.cuda.is_available() or torch.backends.mps.is_available()
        )
        return torch.float32 if alone else torch.bfloat16
    if options.dtype not in DTYPES:
        raise InputError(f"--dtype {options.dtype}: not one of {', '.join(DTYPES)}")
    return getattr(torch, DTYPES[options.dtype])


def _find(model: str, options: LoadOptions) -> _Source:
    """Find a model and pin its revision, so that all its files are of one commit."""
    from transformers import AutoConfig

    from habitus.clients import weights

    trust = {"trust_remote_code": bool(options.trust_remote_code)}
    if not model:
        raise InputError("name a model: a folder, a GGUF file, or an id on the Hugging Face Hub")
    if model in weights.KNOWN or model.endswith(".gguf"):
        path, sha = weights.locate(model, options.say)
        if importlib.util.find_spec("gguf") is None:
            raise ModelError("reading GGUF with transformers needs a package: pip install gguf")
        name = model if model in weights.KNOWN else path.name
        extra = {"gguf_file": path.name, **trust}
        return _Source(str(path.parent), name, f"sha256:{sha}", extra)
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} is no model folder: it has no config.json")
        if not any(folder.glob("*.safetensors")):
            raise ModelError(f"{folder} has no *.safetensors; other weight files are not read")
        return _Source(str(folder), folder.resolve().name, _folder_digest(folder), trust)
    if model.startswith((".", "~", os.sep)) or model.count("/") > 1 or folder.exists():
        raise InputError(f"no such model folder: {model}")
    config = AutoConfig.from_pretrained(model, revision=options.revision, **trust)
    commit = getattr(config, "_commit_hash", None) or options.revision
    return _Source(model, model, commit, trust | ({"revision": commit} if commit else {}))


def _folder_digest(folder: Path) -> str:
    """Return a digest of the files of a model folder that can change a result."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in HASHED:
            with path.open("rb") as data:
                found = hashlib.file_digest(data, "sha256").hexdigest()
            whole.update(f"{path.name} {found}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _placement(source: _Source, device: str, dtype: Any, *, spread: bool) -> Any:
    """Return the `device_map`: one device, or "auto" when several GPUs are needed.

    Args:
        source: The model.
        device: The device that was chosen.
        dtype: Number format of the weights.
        spread: Whether the choice is ours.
    """
    import torch

    transformers: Any = importlib.import_module("transformers")  # partly typed

    if device == "cpu":
        return None
    if device == "auto" or not spread or torch.cuda.device_count() < 2:
        return "auto" if device == "auto" else {"": device}
    config = transformers.AutoConfig.from_pretrained(source.place, **source.extra)
    with torch.device("meta"):
        bare = transformers.AutoModelForCausalLM.from_config(
            config, trust_remote_code=source.extra["trust_remote_code"]
        )
    size = sum(weight.numel() for weight in bare.parameters()) * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    return "auto" if size > ROOM * free else {"": device}


def context_of(loaded: CausalLM, wanted: int | None, default: int) -> int:
    """Return the tokens of context: the model's own, or fewer when fewer are wanted.

    Raises:
        InputError: When more are wanted than the model reads.
    """
    text = loaded.model.config.get_text_config()
    limits = [
        getattr(text, "max_position_embeddings", None),
        getattr(loaded.tokenizer, "model_max_length", None),
    ]
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 10_000_000]
    if wanted is not None and known and wanted > min(known):
        raise InputError(f"--context {wanted}: the model reads {min(known)} tokens at most")
    return wanted or min(known, default=default)
