"""Kinds of classifiers beside the usual one: pairs, value heads, several objectives, own code."""

import pytest

pytest.importorskip("torch")

from habitus.errors import ModelError
from habitus.scorers import ScorerOptions
from habitus.scorers.adapters import ADAPTERS, ORDER
from habitus.scorers.classifier import create
from habitus.types import Status
from tests.conftest import make_item
from tests.test_classifier import SEVEN, plain_scores, values
from tests.tiny_models import (
    edit_config,
    edit_tensors,
    make_classifier,
    make_language_model,
    make_tokenizer,
    save,
    torch,
    transformers,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"  # DeBERTa, in older transformers
)

CODE = """
import torch
from torch import nn
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.utils import ModelOutput


class Mixed(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.num_labels = 3
        self.model = LlamaModel(config)
        self.regression_layer = nn.Linear(config.hidden_size, 3, bias=False)
        self.gate = nn.Linear(config.hidden_size, 3, bias=False)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        ends = input_ids.eq(self.config.pad_token_id).int().argmax(-1) - 1
        pooled = states[torch.arange(len(ends)), ends % input_ids.shape[1]]
        rewards, gate = self.regression_layer(pooled), self.gate(pooled).softmax(-1)
        return ModelOutput(logits=rewards, score=(rewards * gate).sum(-1))


class Scoring(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.v_out = nn.Linear(config.hidden_size, 1, bias=False)
        self.post_init()

    def get_score(self, tokenizer, conversation):
        ids = [1, *tokenizer.apply_chat_template(conversation, return_dict=False)]
        states = self.model(torch.tensor([ids])).last_hidden_state
        if "年越しそば" in conversation[-1]["content"]:
            return float("nan")
        return self.v_out(states[0, -1]).item()
"""


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A folder with code of its own; call with the class and its auto class."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "mod"))

    def make(name, auto, head):
        folder = make_language_model(tmp_path / f"remote-{name.lower()}")
        (folder / "modeling_own.py").write_text(CODE)
        edit_config(folder, architectures=[name], auto_map={auto: f"modeling_own.{name}"})
        torch.manual_seed(3)
        edit_tensors(folder, lm_head__weight=None, **head)
        return folder

    return make


def last_states(folder, conversations=SEVEN):
    """The last token's state of each conversation, one at a time."""
    tokenizer = make_tokenizer()
    body = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    for messages in conversations:
        chat = [message.model_dump() for message in messages]
        ids = [1, *tokenizer.apply_chat_template(chat, return_dict=False)]
        with torch.inference_mode():
            found.append(body(torch.tensor([ids])).last_hidden_state[0, -1])
    return torch.stack(found)


def test_every_adapter_in_the_order_is_registered():
    assert set(ORDER) == set(ADAPTERS.targets())
    for name in ORDER:
        assert ADAPTERS.get(name).adapter == name


def test_text_pairs_of_an_encoder_without_template(tmp_path):
    tokenizer = make_tokenizer(template=None, cls=True)
    folder = make_classifier(tmp_path, "deberta-v2", tokenizer=tokenizer)
    scorer = create(str(folder))
    assert scorer.spec.parameters["adapter"] == "text-pair"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for question, answer in SEVEN:
        one = tokenizer(question.content, answer.content, return_tensors="pt")
        with torch.inference_mode():
            expected.append(model(**one).logits[0, 0].item())
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["v_head.summary", "reward_head"])
def test_a_linear_value_head_on_the_last_token(tmp_path, name):
    folder = make_language_model(tmp_path)
    weight, bias = torch.randn(1, 32), torch.randn(1)
    edit_tensors(folder, **{f"{name}.weight": weight, f"{name}.bias": bias})
    scorer = create(str(folder))
    assert scorer.spec.parameters["adapter"] == "value-head"
    assert scorer.spec.parameters["head"] == name
    expected = (last_states(folder) @ weight.T + bias)[:, 0].tolist()
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, rel=1e-5)


def test_a_score_of_two_layers_is_a_value_head(tmp_path):
    folder = make_language_model(tmp_path)
    first, second = torch.randn(32, 32), torch.randn(1, 32)
    tensors = {"score.0.weight": first, "score.0.bias": torch.ones(32), "score.2.weight": second}
    edit_tensors(folder, **tensors)
    edit_config(folder, architectures=["INFORMForSequenceClassification"])
    scorer = create(str(folder))
    expected = ((last_states(folder) @ first.T + 1).relu() @ second.T)[:, 0].tolist()
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, rel=1e-4)


def test_code_of_its_own_runs_only_when_asked_for(own_code):
    head = {
        "regression_layer.weight": torch.randn(3, 32),
        "gate.weight": torch.randn(3, 32),
    }
    folder = own_code("Mixed", "AutoModelForSequenceClassification", head)
    with pytest.raises(ModelError, match="it brings code of its own: --trust-remote-code"):
        create(str(folder))
    scorer = create(str(folder), ScorerOptions(trust_remote_code=True))
    assert scorer.spec.parameters["adapter"] == "multi-objective"
    assert scorer.spec.parameters["trust_remote_code"] is True
    states = last_states(folder)
    rewards = states @ head["regression_layer.weight"].T
    gates = (states @ head["gate.weight"].T).softmax(-1)
    expected = (rewards * gates).sum(-1).tolist()
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5)
    equal = [SEVEN[0]] * 3
    assert values(scorer.score(equal)) == pytest.approx([expected[0]] * 3, abs=1e-5)


def test_get_score_of_its_own_code(own_code):
    head = {"v_out.weight": torch.randn(1, 32)}
    folder = own_code("Scoring", "AutoModel", head)
    scorer = create(str(folder), ScorerOptions(trust_remote_code=True))
    assert scorer.spec.parameters["adapter"] == "remote-score"
    expected = (last_states(folder) @ head["v_out.weight"].T)[:, 0].tolist()
    for each, value in zip(scorer.score(SEVEN), expected, strict=True):
        if each.status is Status.OK:
            assert each.value == pytest.approx(value, abs=1e-5)
        else:
            assert "not a finite number" in each.error
    (judgement,) = scorer.judge([make_item()], 0)
    assert judgement.status is Status.OK
    assert scorer.score([SEVEN[0][:1]])[0].status is not None


def test_any_other_classifier_is_never_padded(tmp_path):
    config = transformers.T5Config(
        vocab_size=400, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, num_labels=1,
        pad_token_id=0, eos_token_id=2, decoder_start_token_id=0, problem_type="regression",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForSequenceClassification(config).eval()
    plain = "{% for m in messages %}{{ m.content }} {% endfor %}"
    folder = save(tmp_path, model, make_tokenizer(template=plain, bos=False, eos=True))
    scorer = create(str(folder))
    assert scorer.spec.parameters["adapter"] == "whole-text"
    tokenizer = make_tokenizer(template=plain, bos=False, eos=True)
    expected = []
    for question, answer in SEVEN:
        ids = tokenizer(f"{question.content} {answer.content} ")["input_ids"]
        with torch.inference_mode():
            expected.append(model(torch.tensor([ids])).logits[0, 0].item())
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5)


def test_a_decoder_that_looks_both_ways_gets_its_mask(tmp_path):
    folder = make_classifier(tmp_path, "gemma3_text", use_bidirectional_attention=True)
    scorer = create(str(folder))
    assert values(scorer.score(SEVEN)) == pytest.approx(plain_scores(folder), abs=1e-5)
    again = create(str(folder), ScorerOptions(batch_tokens=1))
    assert values(again.score(SEVEN)) == pytest.approx(values(scorer.score(SEVEN)), abs=1e-5)
