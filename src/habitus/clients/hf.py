"""Checkpoints of the Hugging Face kind: where they are, what is in them, and loading them.

Weights come from safetensors only, are named by a digest or a commit, and a checkpoint that lacks
weights says so instead of being filled with random numbers. Needs the extra `hf`; importing this
module does not.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib
import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.errors import InputError, MissingExtraError, ModelError
from habitus.progress import processes

if TYPE_CHECKING:
    import torch

FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py")
"""Files that are fetched from the Hub, and that name a local folder's revision."""

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
"""Weight files that are never read: unpickling runs whatever code they hold."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Number formats of weights, which may be named by either name."""


def require(feature: str) -> None:
    """Check that torch and transformers are installed.

    Raises:
        MissingExtraError: When one of them is not.
    """
    names = ("torch", "transformers", "safetensors")
    if any(importlib.util.find_spec(name) is None for name in names):
        raise MissingExtraError(feature, "hf")


@dataclass(frozen=True)
class Checkpoint:
    """A model folder, or a PEFT adapter with the folder of its base."""

    name: str
    """As given: an id on the Hub or a path."""
    folder: Path
    """Where the model's files are; an adapter's base."""
    revision: str
    """`commit:...` on the Hub, `sha256:...` of local files."""
    config: Mapping[str, Any]
    """The model's `config.json`."""
    tensors: Mapping[str, Path]
    """Name of each tensor to its file; an adapter's own tensors replace its base's."""
    adapter: Path | None = None
    """Folder of the PEFT adapter, if it is one."""

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer is: an adapter may bring its own."""
        own = self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file()
        return self.adapter if own and self.adapter is not None else self.folder

    @property
    def auto_map(self) -> Mapping[str, str]:
        """Classes of code that comes with the model."""
        return self.config.get("auto_map") or {}

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        from safetensors import safe_open

        path, stored = self._stored(tensor)
        with safe_open(path, framework="pt") as file:
            return tuple(file.get_slice(stored).get_shape())

    def tensor(self, tensor: str) -> torch.Tensor:
        """Read a tensor, in the number format it was saved in."""
        from safetensors import safe_open

        path, stored = self._stored(tensor)
        with safe_open(path, framework="pt") as file:
            found: torch.Tensor = file.get_tensor(stored)
        return found

    def _stored(self, tensor: str) -> tuple[Path, str]:
        path = self.tensors[tensor]
        for stored in _tensor_names(path):
            if _plain_name(stored) == tensor:
                return path, stored
        raise KeyError(tensor)


@dataclass(frozen=True)
class Placement:
    """Where a model runs and in which number format."""

    device: torch.device
    """The device."""
    dtype: torch.dtype
    """Number format of the body's weights."""

    @property
    def names(self) -> dict[str, str]:
        """What a record holds of it."""
        return {"device": self.device.type, "dtype": str(self.dtype).removeprefix("torch.")}


def shown_name(name: str) -> str:
    """Return what tables call a model: a folder by its own name, an id on the Hub as it is.

    A folder called `model`, as trainings write it, goes by the one that holds it.

    Args:
        name: A path, or an id.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return name
    folder = folder.resolve()
    return (folder.parent.name if folder.name == "model" else "") or folder.name


def locate(
    name: str, revision: str | None = None, say: Callable[[str], None] = lambda line: None
) -> Checkpoint:
    """Find a checkpoint, fetching it from the Hub when it is not a local folder.

    Args:
        name: A path, or an id on the Hugging Face Hub.
        revision: Branch, tag or commit on the Hub; what it stands for today is recorded.
        say: Called with lines for the user.

    Raises:
        InputError: When the name is neither a folder nor an id.
        ModelError: When the checkpoint cannot be had, or has no safetensors weights.
    """
    folder, commit = _folder(name, revision, say)
    if (folder / "adapter_config.json").is_file():
        return _locate_adapter(name, folder, commit, say)
    config = _json(folder / "config.json", name)
    return Checkpoint(
        name=name,
        folder=folder,
        revision=f"commit:{commit}" if commit else f"sha256:{_digest(folder)}",
        config=config,
        tensors=_tensors(folder, name),
    )


def _locate_adapter(
    name: str, folder: Path, commit: str | None, say: Callable[[str], None]
) -> Checkpoint:
    settings = _json(folder / "adapter_config.json", name)
    base_name = settings.get("base_model_name_or_path")
    if not base_name:
        raise ModelError(f"{name}: adapter_config.json names no base model")
    try:
        base = locate(str(base_name), settings.get("revision"), say)
    except (InputError, ModelError) as error:
        raise ModelError(
            f"{name} is an adapter of {base_name}, which is missing: {error}"
        ) from error
    own = f"commit:{commit}" if commit else f"sha256:{_digest(folder)}"
    return Checkpoint(
        name=name,
        folder=base.folder,
        revision=f"{own}+{base.revision}",
        config=base.config,
        tensors={**base.tensors, **_tensors(folder, name)},
        adapter=folder,
    )


def _folder(name: str, revision: str | None, say: Callable[[str], None]) -> tuple[Path, str | None]:
    """Return the folder of a checkpoint and its commit, if it has one."""
    path = Path(name).expanduser()
    if path.is_dir():
        if revision is not None:
            raise InputError(f"--revision applies to models on the Hub; {name} is a folder")
        return path, None
    if path.is_file() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(f"no such model folder: {name}; on the Hub a model is ORG/NAME")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    say(f"looking for {name} on the Hugging Face Hub")
    try:
        found = Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except GatedRepoError as error:
        raise ModelError(
            f"{name} asks for a consent: give it on its page on the Hub, then `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{name} has no revision {revision!r} on the Hub") from error
    except RepositoryNotFoundError as error:
        raise ModelError(f"no model {name} on the Hub, and no folder of that name") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ModelError(
            f"{name} is no folder, is not in the cache, and the Hub cannot be reached; "
            "give the path of a downloaded folder"
        ) from error
    except Exception as error:
        raise ModelError(f"{name} cannot be fetched from the Hub: {_line(error)}") from error
    return found, found.name


def _tensors(folder: Path, name: str) -> dict[str, Path]:
    """Return the name of each tensor of a folder's safetensors files and its file."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        found = (
            f"only pickled weights ({pickled[0]}), which can run code" if pickled else "no weights"
        )
        raise ModelError(
            f"{name} has {found}; save it as safetensors: load it where you trust it and call "
            "model.save_pretrained(FOLDER)"
        )
    return {_plain_name(stored): path for path in files for stored in _tensor_names(path)}


def _tensor_names(path: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a whole safetensors file: {_line(error)}") from error


def _plain_name(stored: str) -> str:
    """Return the name that a tensor has in the model, whatever PEFT wrapped it in."""
    plain = stored.removeprefix("base_model.model.")
    return plain.replace(".modules_to_save.default", "").replace(".modules_to_save", "")


def _json(path: Path, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{name} is no model folder: it has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON: {_line(error)}") from error
    return found


def _digest(folder: Path) -> str:
    """Digest of the files of a folder that can change a score."""
    sha = hashlib.sha256()
    for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        sha.update(f"{path.name}\n{inner}\n".encode())
    return sha.hexdigest()[:16]


def place(device: str | None, dtype: str | None, threads: int | None = None) -> Placement:
    """Choose device and number format.

    Args:
        device: Such as "cpu" or "cuda:1"; None is the best there is, or this process's own under
            `accelerate launch`.
        dtype: A name in `DTYPES`; None is float32 on a CPU and bfloat16 elsewhere.
        threads: CPU threads; None leaves torch's choice.

    Raises:
        InputError: When there is no such device or number format.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    dtype = DTYPES.get(dtype or "", dtype)
    if dtype is not None and dtype not in DTYPES.values():
        raise InputError(f"--dtype {dtype}: known are {', '.join(DTYPES.values())}")
    if launched() and device not in (None, "cpu"):
        raise InputError(f"--device {device}: under accelerate launch each process has its own")
    try:
        chosen = torch.device(device) if device else _best_device()
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device}: not usable here: {_line(error)}") from error
    if launched():
        launch_state(cpu=chosen.type == "cpu")  # made once: without it processes on CPUs stay apart
    default = "float32" if chosen.type == "cpu" else "bfloat16"
    return Placement(chosen, getattr(torch, dtype or default))


def _best_device() -> torch.device:
    import torch

    best = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    return torch.device(launch_state(cpu=best.type == "cpu").device) if launched() else best


def launched() -> bool:
    """Whether this is one of several processes of `accelerate launch`."""
    return processes() > 1


def launch_state(*, cpu: bool) -> Any:
    """Join the other processes of this launch, once, and return accelerate's view of them.

    Args:
        cpu: Whether the processes compute on CPUs.

    Raises:
        MissingExtraError: When accelerate is not installed.
    """
    try:
        state = importlib.import_module("accelerate").PartialState(cpu=cpu)
    except ImportError as error:
        raise MissingExtraError("scoring on several devices", "hf") from error
    _leave_at_exit()
    return state


@functools.cache
def _leave_at_exit() -> None:
    """Leave the other processes in order: torch's threads must not outlast the interpreter."""
    atexit.register(importlib.import_module("accelerate").PartialState().destroy_process_group)


def load_tokenizer(checkpoint: Checkpoint, *, trust_remote_code: bool = False) -> Any:
    """Load a checkpoint's tokenizer.

    Raises:
        ModelError: When it has none, or one that needs code of its own.
    """
    from transformers import AutoTokenizer

    with quiet(), as_model_error(checkpoint.name, "tokenizer"):
        return AutoTokenizer.from_pretrained(
            checkpoint.tokenizer_folder, trust_remote_code=trust_remote_code
        )


def load_model(
    checkpoint: Checkpoint,
    kind: str,
    placement: Placement,
    *,
    trust_remote_code: bool = False,
    spread: bool = False,
    **kwargs: Any,
) -> tuple[Any, set[str]]:
    """Load a checkpoint's model, an adapter merged into its base.

    Args:
        checkpoint: The checkpoint.
        kind: Name of an auto class of transformers.
        placement: Where it runs.
        trust_remote_code: Run code that comes with the model.
        spread: Use all GPUs of this process, a part of the model on each.
        kwargs: Passed to `from_pretrained`.

    Returns:
        The model in evaluation mode, and the names of the weights that the checkpoint lacks.

    Raises:
        ModelError: When it cannot be loaded.
    """
    import torch
    import transformers

    # An adapter is merged in float32, so that it is rounded once.
    dtype = placement.dtype if checkpoint.adapter is None else torch.float32
    torch.manual_seed(0)  # a new head, where it is allowed, is the same one each time
    with quiet(), as_model_error(checkpoint.name, "model"):
        model, info = getattr(transformers, kind).from_pretrained(
            checkpoint.folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            **({"device_map": "auto"} if spread else {}),
            **kwargs,
        )
        missing = set(info["missing_keys"])
        if checkpoint.adapter is not None:
            model = _merge(model, checkpoint.adapter)
            missing -= checkpoint.tensors.keys()
            model = model.to(placement.dtype)
        if not spread:
            model = model.to(placement.device)
    return model.eval(), missing


def _merge(model: Any, adapter: Path) -> Any:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise MissingExtraError("a PEFT adapter", "hf") from error
    with peft_warnings():
        return PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()


@contextmanager
def peft_warnings() -> Iterator[None]:
    """Leave out PEFT's warning about a name in transformers that is to go (PEFT up to 0.21)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from writing reports and bars to the terminal."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def quiet_gguf() -> Iterator[None]:
    """Keep transformers from showing a bar while it reads GGUF: it does, whatever it is told."""
    module: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    bar = module.tqdm
    module.tqdm = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar


@contextmanager
def as_model_error(name: str, part: str) -> Iterator[None]:
    """Name what could not be loaded when a library fails.

    Raises:
        ModelError: Instead of whatever the library raised.
    """
    try:
        yield
    except (ModelError, MissingExtraError):
        raise
    except Exception as error:
        line = _line(error)
        if "trust_remote_code" in str(error):
            line = "it brings its own code; read that code, then add --trust-remote-code"
        raise ModelError(f"the {part} of {name} cannot be loaded: {line}") from error


def _line(error: Exception) -> str:
    """Return the first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
