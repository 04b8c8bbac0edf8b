"""Small random checkpoints on disk, with a tokenizer trained on the spot. Needs torch."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)

TEXTS = (
    "What is eaten on New Year's Eve? Soba noodles, for a long life. A goose. Twelve grapes.",
    "ماذا يؤكل ليلة رأس السنة؟ คืนส่งท้ายปีเก่า 年越しそばを食べます。 Борщ и оливье.",
)
"""What the tokenizer is trained on."""

SPECIALS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
"""Ids 0 to 4."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template with a system role, and no beginning of sequence."""

LLAMA2 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system role') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content | trim }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""A template that writes the beginning of sequence itself, ends turns with the end of sequence, and
has no system role."""

ENCODERS = ("deberta-v2", "modernbert")
"""Model types that read both ways."""

DECODERS = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral")
"""Model types that look only back."""


def make_tokenizer(
    *, template: str | None = CHATML, bos: bool = True, eos: bool = False, pad: str | None = "<pad>",
    side: str = "right", cls: bool = False,
) -> Any:  # fmt: skip
    """A byte-level BPE tokenizer.

    Args:
        template: Its chat template.
        bos: Whether it puts "<s>" before a text by itself.
        eos: Whether it puts "</s>" after a text by itself.
        pad: Its padding token; None for none.
        side: Its padding side.
        cls: Whether it wraps pairs as encoders do, "<s> a </s> b </s>", with token types.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(TEXTS, trainer)
    before, after = ("<s> " if bos or cls else ""), (" </s>" if eos or cls else "")
    raw.post_processor = processors.TemplateProcessing(
        single=f"{before}$A{after}",
        pair=f"{before}$A:0 </s>:0 $B:1 </s>:1",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    names: dict[str, Any] = {"cls_token": "<s>", "sep_token": "</s>"} if cls else {}
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if cls else [])]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<s>",
        eos_token="</s>",
        pad_token=pad,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        padding_side=side,
        model_input_names=inputs,
        **names,
    )
    tokenizer.chat_template = template
    return tokenizer


def make_config(kind: str, **fields: Any) -> Any:
    """A configuration of 2 layers, 32 wide."""
    values = {
        "vocab_size": 400,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_labels": 1,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 512,
    }
    if kind in DECODERS:
        values |= {"num_key_value_heads": 2, "head_dim": 8}
    if kind in ("gemma2", "gemma3_text", "mistral"):
        values |= {"sliding_window": 16}
    if kind == "deberta-v2":
        values |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 2}
    if kind == "modernbert":
        values |= {"local_attention": 16, "cls_token_id": 1, "sep_token_id": 2}
    return transformers.AutoConfig.for_model(kind, **(values | fields))


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    """Save without the library's bars and warnings."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def make_classifier(
    folder: Path, kind: str = "llama", *, tokenizer: Any = None, seed: int = 0, **fields: Any
) -> Path:
    """A random sequence classifier of which every weight matters.

    Args:
        folder: Where it is saved.
        kind: Its model type.
        tokenizer: Its tokenizer; the default one if not given.
        seed: Seed of its weights.
        fields: Further fields of its configuration.
    """
    torch.manual_seed(seed)
    config = make_config(kind, **fields)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    randomise(model)
    return save(folder, model, tokenizer or make_tokenizer(cls=kind in ENCODERS))


def make_language_model(
    folder: Path, kind: str = "llama", *, tokenizer: Any = None, seed: int = 0, **fields: Any
) -> Path:
    """A random causal language model."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(make_config(kind, **fields))
    randomise(model)
    return save(folder, model, tokenizer or make_tokenizer())


def randomise(model: Any) -> None:
    """Draw large weights, so that scores of different texts are far apart."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                parameter.normal_(0, 0.2)


def edit_config(folder: Path, **fields: Any) -> None:
    """Change `config.json`; None removes a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    kept = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps(kept))


def edit_tensors(folder: Path, **tensors: Any) -> None:
    """Change tensors of `model.safetensors`, dots written as double underscores; None removes."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    found = load_file(path)
    for name, tensor in tensors.items():
        found.pop(name.replace("__", "."), None)
        if tensor is not None:
            found[name.replace("__", ".")] = tensor
    save_file(found, path, metadata={"format": "pt"})
