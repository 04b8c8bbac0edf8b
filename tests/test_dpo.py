"""Implicit rewards: log-ratios over the response's tokens, as a plain forward gives them."""

import pytest

pytest.importorskip("torch")

from habitus.errors import InputError, ModelError
from habitus.scorers import ScorerOptions, resolve
from habitus.scorers.dpo import ResponseLogProbs, create
from habitus.types import Message, Status
from tests.conftest import make_item
from tests.test_classifier import SEVEN, values
from tests.tiny_models import (
    make_classifier,
    make_language_model,
    make_tokenizer,
    torch,
    transformers,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    policy = make_language_model(tmp_path_factory.mktemp("policy"), seed=1)
    return policy, make_language_model(tmp_path_factory.mktemp("reference"), seed=2)


def response_log_probs(folder, messages):
    """Log-probability of each of the response's tokens, by the definition."""
    tokenizer = make_tokenizer()
    question, answer = (message.content for message in messages)
    before = f"<s><|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    prompt, whole = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (before, f"{before}{answer}<|im_end|>\n")
    )
    assert whole[: len(prompt)] == prompt
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        logs = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    return [logs[at - 1, whole[at]].item() for at in range(len(prompt), len(whole))]


@pytest.mark.parametrize("average", [None, "sum", "mean"])
@pytest.mark.parametrize("batch_tokens", [1, 200, 4000])
def test_the_reward_is_the_log_ratio_over_the_response(models, average, batch_tokens):
    policy, reference = models
    options = ScorerOptions(reference=str(reference), average=average, batch_tokens=batch_tokens)
    expected = []
    for messages in SEVEN:
        ours = response_log_probs(policy, messages)
        ratio = sum(ours) - sum(response_log_probs(reference, messages))
        expected.append(ratio / len(ours) if average == "mean" else ratio)
    scorer = create(str(policy), options)
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert scorer.spec.parameters["average"] == (average or "sum")


@pytest.mark.parametrize(
    ("kind", "direct"), [("gemma2", False), ("gemma3_text", True), ("qwen3", True)]
)
def test_soft_caps_are_not_left_out(tmp_path, kind, direct):
    caps = {"final_logit_softcapping": 0.5} if kind == "gemma2" else {}
    folders = [
        make_language_model(tmp_path / name, kind, seed=seed, **caps)
        for seed, name in enumerate(("policy", "reference"))
    ]
    scorer = create(str(folders[0]), ScorerOptions(reference=str(folders[1]), batch_tokens=300))
    model = transformers.AutoModelForCausalLM.from_pretrained(folders[0])
    assert ResponseLogProbs(model.eval()).direct is direct
    expected = [
        sum(response_log_probs(folders[0], messages))
        - sum(response_log_probs(folders[1], messages))
        for messages in SEVEN
    ]
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_a_policy_that_is_its_reference_has_no_preference(models):
    policy, _ = models
    scorer = resolve(f"dpo:{policy}", ScorerOptions(reference=str(policy)))
    (judgement,) = scorer.judge([make_item()], 0)
    assert judgement.status is Status.TIE
    assert set(judgement.scores.values()) == {0.0}


def test_the_prompt_does_not_count(models):
    policy, reference = models
    scorer = create(str(policy), ScorerOptions(reference=str(reference), context=60))
    long = [Message(role="user", content="What? " * 40), SEVEN[0][1]]
    short, failed = scorer.score([SEVEN[0], long])
    assert short.value == pytest.approx(
        sum(response_log_probs(policy, SEVEN[0])) - sum(response_log_probs(reference, SEVEN[0])),
        rel=1e-5,
    )
    assert failed.status is Status.TRUNCATED


def test_what_is_refused(models, tmp_path):
    policy, reference = models
    with pytest.raises(InputError, match="--reference REF"):
        create(str(policy), ScorerOptions())
    with pytest.raises(InputError, match="--average median: one of sum, mean"):
        create(str(policy), ScorerOptions(reference=str(reference), average="median"))
    with pytest.raises(InputError, match="--label does not apply to dpo"):
        create(str(policy), ScorerOptions(reference=str(reference), label=0))
    classifier = make_classifier(tmp_path / "classifier")
    with pytest.raises(ModelError, match=r"lacks 1 weights of a language model, lm_head\.weight"):
        create(str(policy), ScorerOptions(reference=str(classifier)))


def test_another_vocabulary_is_refused_and_added_tokens_are_not(models, tmp_path):
    policy, reference = models
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    more = make_language_model(tmp_path / "more", tokenizer=tokenizer, vocab_size=401)
    assert create(str(more), ScorerOptions(reference=str(reference))).score(SEVEN)[0].value
    with pytest.raises(InputError, match=r"its vocabulary \(401 tokens\) is not the policy's"):
        create(str(policy), ScorerOptions(reference=str(more)))


def test_the_record_names_both_models(models):
    policy, reference = models
    spec = create(str(policy), ScorerOptions(reference=str(reference))).spec
    assert spec.kind == "dpo"
    assert spec.parameters["reference"] == reference.name
    assert spec.parameters["reference_revision"].startswith("sha256:")
    assert spec.parameters["reference_revision"] != spec.revision
