"""Classifiers score as a plain forward of one text does, and failures stay failures."""

import math

import pytest

pytest.importorskip("torch")

from habitus.scorers import ScorerOptions, resolve
from habitus.scorers.classifier import create
from habitus.types import Message, Scorer, Status
from tests.conftest import make_item
from tests.tiny_models import (
    CHATML,
    DECODERS,
    ENCODERS,
    edit_tensors,
    make_classifier,
    make_tokenizer,
    torch,
    transformers,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"  # DeBERTa, in older transformers
)

WORDS = (
    "Soba",
    "noodles,",
    "a",
    "goose,",
    "twelve",
    "grapes,",
    "Борщ",
    "и",
    "оливье,",
    "年越しそば.",
)


def conversation(length, seed=0):
    """A conversation whose response has `length` words; different lengths, different words."""
    answer = " ".join(WORDS[(seed + number * number) % len(WORDS)] for number in range(length))
    return [
        Message(role="user", content="What is eaten on New Year's Eve?"),
        Message(role="assistant", content=answer),
    ]


SEVEN = [conversation(length, seed) for seed, length in enumerate((3, 40, 1, 17, 17, 60, 9))]


def plain_scores(folder, conversations=SEVEN):
    """The model's own forward, one text at a time, without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    model.config.pad_token_id = None  # with one text, the library then takes its last token
    found = []
    for messages in conversations:
        chat = [message.model_dump() for message in messages]
        ids = [1, *tokenizer.apply_chat_template(chat, return_dict=False)]
        with torch.inference_mode():
            found.append(model(torch.tensor([ids])).logits[0, 0].item())
    return found


def values(scored):
    assert all(each.status is Status.OK for each in scored), scored
    return [each.value for each in scored]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS])
@pytest.mark.parametrize("side", ["left", "right"])
def test_behaviour_1_batches_of_1_2_7_equal_a_plain_forward(tmp_path, kind, side):
    tokenizer = make_tokenizer(side=side, cls=kind in ENCODERS)
    folder = make_classifier(tmp_path, kind, tokenizer=tokenizer)
    expected = plain_scores(folder)
    assert max(expected) - min(expected) > 0.05
    longest = 300
    for rows in (1, 2, 7):
        scorer = create(str(folder), ScorerOptions(batch_tokens=rows * longest))
        assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5), rows
        assert values(scorer.score(SEVEN[::-1])) == pytest.approx(expected[::-1], abs=1e-5)


def test_behaviour_1_order_is_restored_and_judgements_follow(llama):
    items = [
        make_item(
            number,
            candidates=[
                {"id": name, "text": conversation(5 * number + at, at)[1].content}
                for at, name in enumerate("abcd")
            ],
        )
        for number in range(1, 6)
    ]
    scorer = resolve(f"classifier:{llama}")
    assert isinstance(scorer, Scorer)
    judged = list(scorer.judge(items, 3))
    assert [j.item_id for j in judged] == [item.id for item in items]
    for item, judgement in zip(items, judged, strict=True):
        texts = [
            [*item.prompt, Message(role="assistant", content=candidate.text)]
            for candidate in item.candidates
        ]
        expected = dict(zip("abcd", plain_scores(llama, texts), strict=True))
        assert judgement.scores == pytest.approx(expected, abs=1e-5)
        assert judgement.winner_ids == (max(expected, key=expected.__getitem__),)
        assert judgement.prompt_tokens > 4 * 20
        assert judgement.scorer == scorer.spec.digest
    again = {j.item_id: j.scores for j in scorer.judge(items[3:], 3)}
    assert again == {j.item_id: j.scores for j in judged[3:]}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "mistral"])
def test_behaviour_3_the_last_real_token_is_pooled_when_pad_is_eos(tmp_path, kind, side):
    ended = CHATML.replace("<|im_end|>\n", "</s>")
    tokenizer = make_tokenizer(template=ended, pad="</s>", side=side)
    folder = make_classifier(tmp_path, kind, tokenizer=tokenizer, pad_token_id=2)
    scorer = create(str(folder))
    assert values(scorer.score(SEVEN)) == pytest.approx(plain_scores(folder), abs=1e-5)


def test_behaviour_4_no_pad_token_works(tmp_path):
    folder = make_classifier(tmp_path, tokenizer=make_tokenizer(pad=None), pad_token_id=None)
    scorer = create(str(folder))
    assert values(scorer.score(SEVEN)) == pytest.approx(plain_scores(folder), abs=1e-5)


LONG = "Soba noodles for a long life " * 4


def long_item(*ends):
    candidates = [{"id": name, "text": LONG + end} for name, end in zip("abcd", ends, strict=True)]
    return make_item(candidates=candidates)


def test_behaviour_5_too_long_is_a_status_with_its_count(llama):
    item = long_item("and luck.", "and health.", "and rain.", "")
    (judgement,) = create(str(llama), ScorerOptions(context=60)).judge([item], 0)
    assert judgement.status is Status.TRUNCATED
    assert judgement.scores == {}
    assert "candidate 'a': " in judgement.error
    assert "the limit is 60; 4 of 4 candidates failed" in judgement.error


def test_behaviour_5_one_candidate_too_long_is_enough(llama):
    short = make_item()
    item = short.model_copy(
        update={"candidates": (*short.candidates[:3], long_item(*"wxyz").candidates[3])}
    )
    (judgement,) = create(str(llama), ScorerOptions(context=70)).judge([item], 0)
    assert judgement.status is Status.TRUNCATED
    assert judgement.error.startswith("candidate 'd': ")
    assert "candidates failed" not in judgement.error


def test_behaviour_5_equal_after_a_cut_is_never_a_tie(llama):
    lines = []
    options = ScorerOptions(context=60, truncate="right", say=lines.append)
    scorer = create(str(llama), options)
    (judgement,) = scorer.judge([long_item("and luck.", "and health.", "and rain.", "")], 0)
    assert judgement.status is Status.TRUNCATED
    assert judgement.error == "candidates 'a' and 'b' are the same text after the cut"
    assert lines == ["4 texts were over the limit and were cut, as asked"]
    assert scorer.spec.parameters["truncate"] == "right"


def test_behaviour_5_a_cut_on_the_left_keeps_the_responses_apart(llama):
    item = make_item(prompt=[{"role": "user", "content": "Please answer. " * 20}])
    scorer = create(str(llama), ScorerOptions(context=80, truncate="left"))
    (judgement,) = scorer.judge([item], 0)
    assert judgement.status is Status.OK
    assert len(set(judgement.scores.values())) == 4
    assert judgement.prompt_tokens == 4 * 80


def test_behaviour_7_ties_share_and_are_counted(llama):
    same = {"text": "Soba."}
    item = make_item(candidates=[{"id": name, **same} for name in "abcd"])
    (judgement,) = create(str(llama)).judge([item], 0)
    assert judgement.status is Status.TIE
    assert set(judgement.winner_ids) == set("abcd")


def test_behaviour_7_the_head_is_in_float32_with_the_checkpoints_precision(tmp_path):
    folder = make_classifier(tmp_path)
    weight = torch.full((1, 32), 1 / 3)
    edit_tensors(folder, score__weight=weight)
    scorer = create(str(folder), ScorerOptions(dtype="bfloat16"))
    model = scorer._ranks._runner._rewards.__self__.model
    assert model.model.layers[0].mlp.up_proj.weight.dtype is torch.bfloat16
    assert model.score.weight.dtype is torch.float32
    assert torch.equal(model.score.weight.detach(), weight)
    found = values(scorer.score(SEVEN))
    assert len(set(found)) == 7
    assert any(torch.tensor(value).bfloat16().item() != value for value in found)
    assert scorer.spec.parameters["dtype"] == "bfloat16"


@pytest.mark.parametrize("kind", ENCODERS)
def test_behaviour_7_encoders_run_in_bfloat16_with_float32_heads(tmp_path, kind):
    folder = make_classifier(tmp_path, kind)
    scorer = create(str(folder), ScorerOptions(dtype="bfloat16"))
    found = values(scorer.score(SEVEN))
    assert found == pytest.approx(plain_scores(folder), abs=0.3)
    assert any(torch.tensor(value).bfloat16().item() != value for value in found)


def test_behaviour_8_nan_in_one_candidate_makes_the_item_invalid(tmp_path):
    folder = make_classifier(tmp_path)
    tokenizer = make_tokenizer()
    (bad,) = tokenizer("Z", add_special_tokens=False)["input_ids"]
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    weights[bad] = math.nan
    edit_tensors(folder, model__embed_tokens__weight=weights)
    candidates = [{"id": name, "text": text} for name, text in zip("abcd", "ABZD", strict=True)]
    items = [make_item(1), make_item(2, candidates=candidates), make_item(3)]
    first, second, third = create(str(folder)).judge(items, 0)
    assert (first.status, third.status) == (Status.OK, Status.OK)
    assert (second.status, second.scores) == (Status.ERROR, {})
    assert second.error == "candidate 'c': the reward is not a finite number (nan)"


def test_a_token_that_the_model_does_not_know_is_an_error_of_one_item(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["zzzz"])
    folder = make_classifier(tmp_path, tokenizer=tokenizer)
    odd = conversation(3)
    odd[1] = Message(role="assistant", content="zzzz")
    fine, failed = create(str(folder)).score([conversation(3), odd])
    assert fine.status is Status.OK
    assert failed.value is None
    assert "token id 400; the model knows 400 tokens" in failed.error


def test_scores_have_six_significant_digits(llama):
    for value in values(create(str(llama)).score(SEVEN)):
        assert value == float(f"{value:.5e}")
