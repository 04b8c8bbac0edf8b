"""Writing with a static cache, recorded or not, is what the library's `generate` writes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from habitus.clients import hf  # noqa: E402
from habitus.clients.decoding import Decoder, can_decode  # noqa: E402
from habitus.clients.sampling import Draw, write  # noqa: E402
from tests.tiny_models import make_language_model  # noqa: E402

PROMPTS = [[5, 6, 7], [9], list(range(11, 29))]
DRAWS = [Draw(1.0, 1), Draw(0.0, 2), Draw(0.7, 3, 0.9)]


def load(folder, kind="llama", **fields):
    folder = make_language_model(folder, kind, **fields)
    with hf.quiet():
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def both(model, decoder, prompts=PROMPTS, draws=DRAWS, budget=20, stops=(3, 20, 40)):
    known = {"budget": budget, "stops": set(stops), "pad": 0}
    return write(model, prompts, draws, **known), write(
        model, prompts, draws, **known, decoder=decoder
    )


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_texts_are_those_of_generate(kind, tmp_path):
    model = load(tmp_path, kind)
    decoder = Decoder(model)
    for prompts in (PROMPTS, PROMPTS[:2], [[*range(5, 200)], [7]]):  # the last is wider
        expected, found = both(model, decoder, prompts, DRAWS[: len(prompts)])
        assert found == expected
        assert len({text.tokens for text in found}) == len(prompts)


def test_a_stop_ends_a_text_and_what_follows_is_dropped(tmp_path):
    model = load(tmp_path)
    free, _ = both(model, Decoder(model), stops=())
    tokens = free[1].tokens
    place = next(at for at in range(1, 20) if tokens[at] not in tokens[:at])
    expected, found = both(model, Decoder(model), stops=[tokens[place]])
    assert found == expected
    assert found[1].tokens == tokens[:place]
    assert found[1].finished


def test_texts_follow_the_weights(tmp_path):
    model = load(tmp_path)
    decoder = Decoder(model)
    before, _ = both(model, decoder)
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    expected, found = both(model, decoder)
    assert found == expected != before


def test_under_autocast_the_cache_holds_what_attention_reads(tmp_path):
    model = load(tmp_path)
    decoder = Decoder(model)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = both(model, decoder)
    # later tokens part where rounding to 8 bits decides
    assert [text.tokens[0] for text in found] == [text.tokens[0] for text in expected]
    (step,) = decoder._steps.values()
    assert {layer.keys.dtype for layer in step.cache.layers} == {torch.bfloat16}
    assert {layer.values.dtype for layer in step.cache.layers} == {torch.bfloat16}


def test_the_model_trains_on_as_it_did(tmp_path):
    model = load(tmp_path).train()
    Decoder(model).write([[5, 6]], lambda _, logits: logits.argmax(-1), budget=2, stops=[], pad=0)
    assert model.training


@pytest.mark.skipif(torch.cuda.is_available(), reason="recording works here")
def test_where_recording_fails_texts_are_written_without(tmp_path):
    model, lines = load(tmp_path), []
    decoder = Decoder(model, lines.append, record=True)
    expected, found = both(model, decoder)
    assert found == expected
    assert decoder.recorded == 0
    assert len(lines) == 1
    assert "cannot be recorded" in lines[0]


def test_models_with_windows_or_other_masks_are_left_to_generate(tmp_path):
    assert can_decode(load(tmp_path / "llama"))
    assert not can_decode(load(tmp_path / "mistral", "mistral"))
    model = load(tmp_path / "llama")
    model.set_attn_implementation("eager")
    assert not can_decode(model)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of NVIDIA's")
@pytest.mark.parametrize("bf16", [False, True])
def test_recorded_texts_are_those_of_generate_while_weights_change(bf16, tmp_path):
    peft = pytest.importorskip("peft")
    model = load(tmp_path).cuda()
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")
    adapted = peft.get_peft_model(model, settings)
    decoder = Decoder(model, pytest.fail)
    texts = []
    for step in range(3):
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            for rows in (40, 3):
                prompts = [PROMPTS[row % 3] for row in range(rows)]
                draws = [Draw(0.0, row) for row in range(rows)]
                expected, found = both(model, decoder, prompts, draws, budget=12)
                same = sum(a == b for a, b in zip(found, expected, strict=True))
                assert same >= (0.8 if bf16 else 1.0) * rows, step
        texts.append(found)
    assert texts[0] != texts[1] != texts[2]
    assert decoder.recorded == 2
