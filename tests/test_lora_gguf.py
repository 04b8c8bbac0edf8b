"""Adapters as GGUF: names, order of rows, number formats, and the embedded judge that takes them."""

import json

import pytest

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")

import numpy as np  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from habitus.cli.export import export  # noqa: E402
from habitus.clients.lora_gguf import export_adapter  # noqa: E402
from habitus.clients.weights import split_adapter  # noqa: E402
from habitus.errors import InputError, ModelError  # noqa: E402
from habitus.scorers import ScorerOptions, resolve  # noqa: E402
from tests.conftest import make_item  # noqa: E402

TINY = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2}
TINY |= {"num_key_value_heads": 1, "hidden_size": 8}
SMOLLM = {"model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9}
SMOLLM |= {"num_key_value_heads": 3, "hidden_size": 576}


def make_adapter(folder, layers, config=None, **settings):
    """An adapter on a base of which there is no more than a configuration.

    Args:
        folder: Where to.
        layers: Name of each layer to its matrices A and B.
        config: The base's configuration.
        settings: Of the adapter.
    """
    base = folder / "base"
    base.mkdir(parents=True)
    (base / "config.json").write_text(json.dumps(config or TINY))
    save_file({"x": torch.zeros(1)}, base / "model.safetensors")
    about = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none"}
    about |= {"base_model_name_or_path": str(base)} | settings
    adapter = folder / "model"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps(about))
    tensors = {
        f"base_model.model.model.layers.{layer}.lora_{side}.weight": torch.as_tensor(matrix)
        for layer, pair in layers.items()
        for side, matrix in zip("AB", pair, strict=True)
    }
    save_file({name: matrix.contiguous() for name, matrix in tensors.items()},
              adapter / "adapter_model.safetensors")  # fmt: skip
    return adapter


def pair(inputs=8, outputs=8, rank=2):
    """Matrices A and B; the rows of B are 0, 1, 2, ..."""
    rows = torch.arange(outputs, dtype=torch.float32)[:, None].expand(outputs, rank)
    return torch.arange(rank * inputs, dtype=torch.float32).reshape(rank, inputs), rows


def read(path):
    reader = gguf.GGUFReader(path)
    return reader, {tensor.name: tensor for tensor in reader.tensors}


def test_queries_and_keys_of_llama_are_reordered_and_nothing_else(tmp_path):
    layers = {
        "0.self_attn.q_proj": pair(outputs=8),  # two heads of 4
        "0.self_attn.k_proj": pair(outputs=4),  # one head of 4
        "0.self_attn.v_proj": pair(outputs=4),
        "0.mlp.down_proj": pair(inputs=12),
    }
    done = export_adapter(make_adapter(tmp_path, layers), tmp_path / "out" / "a.gguf", "f32")
    assert (done.rank, done.layers, done.size) == (2, 4, done.path.stat().st_size)
    reader, found = read(done.path)
    assert len(found) == 8
    # of each head of 4 rows, the halves 0, 1 and 2, 3 become 0, 2, 1, 3
    rows = {name: tensor.data[:, 0].tolist() for name, tensor in found.items() if "lora_b" in name}
    assert rows == {
        "blk.0.attn_q.weight.lora_b": [0, 2, 1, 3, 4, 6, 5, 7],
        "blk.0.attn_k.weight.lora_b": [0, 2, 1, 3],
        "blk.0.attn_v.weight.lora_b": [0, 1, 2, 3],
        "blk.0.ffn_down.weight.lora_b": [0, 1, 2, 3, 4, 5, 6, 7],
    }
    a = found["blk.0.ffn_down.weight.lora_a"]
    assert np.array_equal(a.data, np.arange(24, dtype=np.float32).reshape(2, 12))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama"
    assert (fields["general.type"], fields["adapter.type"]) == ("adapter", "lora")
    assert fields["adapter.lora.alpha"] == 6.0


def test_qwen_keeps_its_rows(tmp_path):
    config = TINY | {"model_type": "qwen2"}
    adapter = make_adapter(tmp_path, {"0.self_attn.q_proj": pair()}, config)
    _, found = read(export_adapter(adapter, tmp_path / "a.gguf", "f16").path)
    b = found["blk.0.attn_q.weight.lora_b"]
    assert b.data[:, 0].tolist() == list(range(8))
    assert b.tensor_type == gguf.GGMLQuantizationType.F16


def test_rows_that_cannot_be_packed_stay_f16(tmp_path):
    adapter = make_adapter(tmp_path, {"0.mlp.up_proj": pair(inputs=64)})
    _, found = read(export_adapter(adapter, tmp_path / "a.gguf", "q8_0").path)
    types = [tensor.tensor_type.name for tensor in found.values()]
    assert types == ["Q8_0", "F16"]  # rows of 64, and of the rank


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_rslora": True}, "not use_rslora"),
        ({"modules_to_save": ["lm_head"]}, "not modules_to_save"),
        ({"peft_type": "IA3"}, "not peft_type IA3"),
        ({"bias": "all"}, "not bias all"),
    ],
)
def test_other_adapters_are_refused(tmp_path, settings, message):
    adapter = make_adapter(tmp_path, {"0.self_attn.q_proj": pair()}, **settings)
    with pytest.raises(ModelError, match=message):
        export_adapter(adapter, tmp_path / "a.gguf")
    assert not (tmp_path / "a.gguf").exists()


def test_other_models_and_folders_are_refused(tmp_path):
    layers = {"0.self_attn.q_proj": pair()}
    adapter = make_adapter(tmp_path / "a", layers, TINY | {"model_type": "gemma2"})
    with pytest.raises(ModelError, match="adapters of gemma2 models cannot be exported"):
        export_adapter(adapter, tmp_path / "a.gguf")
    with pytest.raises(InputError, match="holds no adapter but a whole model"):
        export_adapter(tmp_path / "a" / "base", tmp_path / "a.gguf")
    with pytest.raises(InputError, match="no such model folder"):
        export_adapter(tmp_path / "none", tmp_path / "a.gguf")
    with pytest.raises(InputError, match="is a folder; name a file"):
        export_adapter(adapter, tmp_path)
    odd = make_adapter(tmp_path / "b", {"0.odd": pair()})
    with pytest.raises(ModelError, match=r"llama\.cpp has no layer for model\.layers\.0\.odd"):
        export_adapter(odd, tmp_path / "a.gguf")


def test_the_command(tmp_path):
    adapter = make_adapter(tmp_path, {"0.self_attn.q_proj": pair()})
    out = tmp_path / "a.gguf"
    done = CliRunner().invoke(export, [str(adapter), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    first = out.read_bytes()
    run = str(adapter.parent)  # the folder that model/ is in
    assert not CliRunner().invoke(export, [run, "--out", str(out)]).exit_code
    assert out.read_bytes() == first
    assert f"embedded:MODEL+{out}" in done.stderr.replace("\n", "")


def test_names_of_adapters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.gguf", "a+b.gguf"):
        (tmp_path / name).touch()
    assert split_adapter("smollm2-135m") == ("smollm2-135m", None)
    assert split_adapter("smollm2-135m+x+y.gguf") == ("smollm2-135m", "x+y.gguf")
    assert split_adapter("a+b.gguf") == ("a+b.gguf", None)
    assert split_adapter("a+b.gguf+c.gguf") == ("a+b.gguf", "c.gguf")
    assert split_adapter("a.gguf+b.gguf") == ("a.gguf", "b.gguf")
    assert split_adapter("none+b.gguf") == ("none", "b.gguf")


@pytest.mark.slow
def test_the_embedded_judge_takes_an_adapter(tmp_path, embedded):
    torch.manual_seed(0)
    layers = {
        f"{block}.self_attn.o_proj": (torch.randn(2, 576) / 24, torch.randn(576, 2) / 2)
        for block in range(30)
    }
    adapter = make_adapter(tmp_path, layers, SMOLLM)
    path = export_adapter(adapter, tmp_path / "a.gguf").path
    judge = resolve(f"embedded:smollm2-135m+{path}", ScorerOptions(threads=2))
    try:
        assert judge.spec.digest != embedded.spec.digest
        assert judge.spec.label.startswith("embedded:smollm2-135m+a.gguf")
        (changed,) = judge.judge([make_item()], 0)
    finally:
        judge.close()
    (plain,) = embedded.judge([make_item()], 0)
    moved = [
        abs(a - b) for a, b in zip(changed.passes[0].scores, plain.passes[0].scores, strict=True)
    ]
    assert max(moved) > 0.05


@pytest.mark.slow
def test_adapters_that_do_not_fit_are_refused(tmp_path):
    adapter = make_adapter(tmp_path, {"0.self_attn.o_proj": pair()})
    path = export_adapter(adapter, tmp_path / "a.gguf").path
    other = tmp_path / "x.txt"
    other.write_text("x")
    for name, error, message in (
        (path, ModelError, r"llama\.cpp cannot load .* with the adapter .*a\.gguf"),
        (tmp_path / "none.gguf", InputError, "no such adapter file"),
        (other, ModelError, "is no GGUF file"),
        (adapter, InputError, "is a folder; make it a GGUF file: habitus export"),
    ):
        with pytest.raises(error, match=message):
            resolve(f"embedded:smollm2-135m+{name}", ScorerOptions(threads=2))
