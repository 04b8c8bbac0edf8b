"""A PEFT adapter as a GGUF file that llama.cpp lays over a GGUF base.

The format is llama.cpp's own for adapters: two tensors for each adapted layer, `lora_a` (rank x
inputs) and `lora_b` (outputs x rank), and the scale's alpha. GGUF files of Llama models keep the
rows of the query and key projections in another order than transformers does (rotary halves are
interleaved), so the rows of their `lora_b` are reordered in the same way.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from habitus.clients.hf import Checkpoint, locate, require
from habitus.errors import InputError, MissingExtraError, ModelError
from habitus.store import os_errors

TYPES = ("f16", "q8_0", "f32")
"""Number formats. With `q8_0`, matrices whose rows are no multiple of 32 long stay `f16`."""

PERMUTED = {"llama": True, "qwen2": False}
"""Model types that can be exported: whether GGUF reorders the rows of their queries and keys."""

SETTINGS = "adapter_config.json"

_OTHER_KINDS = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")

_NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<side>[AB])\.weight")
_BLOCK = 32  # numbers that q8_0 packs together


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    """The file."""
    size: int
    """Bytes."""
    rank: int
    """Rank of the adapter."""
    layers: int
    """Adapted matrices."""


def export_adapter(folder: Path, out: Path, kind: str = "f16") -> Exported:
    """Write an adapter as GGUF.

    Args:
        folder: A PEFT adapter whose base is a Llama or Qwen 2 model.
        out: The file to write.
        kind: One of `TYPES`.

    Raises:
        MissingExtraError: When torch, transformers or gguf is not installed.
        InputError: When the folder holds no adapter, or the type is unknown.
        ModelError: When the adapter is of a kind that llama.cpp cannot take.
    """
    require("exporting an adapter")
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("exporting an adapter", "hf")
    import gguf

    if kind not in TYPES:
        raise InputError(f"--type {kind}: one of {', '.join(TYPES)}")
    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; name a file, such as {out / 'locals.gguf'}")
    found = locate(str(folder))
    if found.adapter is None:
        raise InputError(
            f"{folder} holds no adapter but a whole model (--full); convert it with llama.cpp's "
            "convert_hf_to_gguf.py"
        )
    settings = _settings(found.adapter)
    architecture = str(found.config.get("model_type"))
    if architecture not in PERMUTED:
        raise ModelError(
            f"{folder}: adapters of {architecture} models cannot be exported; known: "
            f"{', '.join(PERMUTED)}"
        )
    pairs = _pairs(found)
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, int(found.config["num_hidden_layers"]))
    tensors: dict[str, Any] = {}
    for layer, (a, b) in pairs.items():
        name = names.get_name(layer)
        if name is None:
            raise ModelError(f"{folder}: llama.cpp has no layer for {layer}")
        if PERMUTED[architecture]:
            b = _reordered(layer, b, found.config)
        tensors |= {f"{name}.weight.lora_a": a, f"{name}.weight.lora_b": b}
    _write(gguf, out, architecture, float(settings["lora_alpha"]), tensors, kind)
    return Exported(out, out.stat().st_size, int(settings["r"]), len(pairs))


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a plain LoRA adapter; all else is refused."""
    found: dict[str, Any] = json.loads((folder / SETTINGS).read_bytes())
    wrong = [name for name in _OTHER_KINDS if found.get(name)]
    if found.get("peft_type") != "LORA":
        wrong.insert(0, f"peft_type {found.get('peft_type')}")
    if found.get("bias", "none") != "none":
        wrong.append(f"bias {found['bias']}")
    if wrong:
        raise ModelError(f"{folder}: only plain LoRA adapters can be exported, not {wrong[0]}")
    return found


def _pairs(checkpoint: Checkpoint) -> dict[str, tuple[Any, Any]]:
    """Return the matrices A and B of each adapted layer, as float32."""
    from safetensors.torch import load_file

    sides: dict[str, dict[str, Any]] = {}
    files = sorted((checkpoint.adapter or checkpoint.folder).glob("*.safetensors"))
    for path in files:
        for name, tensor in load_file(path).items():
            match = _NAME.fullmatch(name)
            if match is None:
                raise ModelError(f"{path}: {name} is no matrix of a LoRA adapter on linear layers")
            sides.setdefault(match["layer"], {})[match["side"]] = tensor.float().numpy()
    half = next((layer for layer, found in sides.items() if len(found) != 2), None)
    if half is not None or not sides:
        raise ModelError(f"{checkpoint.name}: {half or 'the adapter'} lacks a matrix")
    return {layer: (found["A"], found["B"]) for layer, found in sorted(sides.items())}


def _reordered(layer: str, b: Any, config: Mapping[str, Any]) -> Any:
    """Return B with the rows of each head's two rotary halves interleaved, for queries and keys."""
    if layer.endswith("q_proj"):
        heads = int(config["num_attention_heads"])
    elif layer.endswith("k_proj"):
        heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])
    else:
        return b
    rows, rank = b.shape
    return b.reshape(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank)


def _write(
    gguf: Any,
    out: Path,
    architecture: str,
    alpha: float,
    tensors: Mapping[str, Any],
    kind: str,
) -> None:
    """Write the file beside its place, then put it there: whole, or not at all."""
    partial = out.with_name(f".{out.name}.partial")
    with os_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(partial, architecture)
        try:
            writer.add_type(gguf.GGUFType.ADAPTER)
            writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
            writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
            writer.add_string("general.name", out.stem)
            for name, tensor in tensors.items():
                fits = tensor.shape[-1] % _BLOCK == 0
                own = gguf.GGMLQuantizationType[
                    ("f16" if kind == "q8_0" and not fits else kind).upper()
                ]
                writer.add_tensor(name, gguf.quants.quantize(tensor, own), raw_dtype=own)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        partial.replace(out)
