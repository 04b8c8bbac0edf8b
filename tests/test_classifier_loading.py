"""What is loaded, what is refused, and what is recorded of it."""

import json
import shutil

import pytest

pytest.importorskip("torch")

from habitus.clients import hf
from habitus.errors import InputError, ModelError
from habitus.scorers import ScorerOptions
from habitus.scorers.classifier import create
from habitus.types import Status
from tests.test_classifier import SEVEN, plain_scores, values
from tests.tiny_models import (
    CHATML,
    edit_config,
    edit_tensors,
    make_classifier,
    make_language_model,
    make_tokenizer,
    torch,
    transformers,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"  # PEFT asks for it
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that may be changed."""
    return shutil.copytree(saved, tmp_path / "model")


def test_behaviour_9_a_new_head_is_refused_unless_allowed(tmp_path):
    base = make_language_model(tmp_path / "base")
    with pytest.raises(ModelError, match=r"no trained reward head \(score.weight is missing\)"):
        create(str(base))
    options = ScorerOptions(allow_new_head=True)
    first, again = (create(str(base), options) for _ in range(2))
    assert first.spec.parameters["new_head"] is True
    assert values(first.score(SEVEN)) == values(again.score(SEVEN))


def test_behaviour_9_a_body_with_missing_weights_is_always_refused(folder):
    edit_tensors(folder, model__norm__weight=None)
    with pytest.raises(ModelError, match=r"lacks 1 weights .* model\.norm\.weight among them"):
        create(str(folder), ScorerOptions(allow_new_head=True))


def make_adapter(base, folder, *, head):
    peft = pytest.importorskip("peft")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    settings = peft.LoraConfig(
        r=2,
        target_modules=["q_proj", "v_proj"],
        init_lora_weights=False,
        **({"task_type": "SEQ_CLS"} if head else {}),
    )
    torch.manual_seed(1)
    adapted = peft.get_peft_model(model, settings)
    adapted.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return adapted.eval()


@pytest.mark.parametrize("trained_base", [False, True])
def test_an_adapter_is_scored_on_its_base_with_its_own_head(tmp_path, trained_base):
    make = make_classifier if trained_base else make_language_model
    base = make(tmp_path / "base")
    adapted = make_adapter(base, tmp_path / "adapter", head=True)
    scorer = create(str(tmp_path / "adapter"))
    tokenizer = make_tokenizer()
    expected = []
    for messages in SEVEN:
        chat = [message.model_dump() for message in messages]
        ids = [1, *tokenizer.apply_chat_template(chat, return_dict=False)]
        with torch.inference_mode():
            expected.append(adapted(torch.tensor([ids])).logits[0, 0].item())
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5)
    assert scorer.spec.revision.count("sha256:") == 2


def test_behaviour_9_an_adapter_without_its_head_is_refused(tmp_path):
    base = make_language_model(tmp_path / "base")
    make_adapter(base, tmp_path / "adapter", head=False)
    with pytest.raises(ModelError, match=r"adapter .* has no trained reward head .*SEQ_CLS"):
        create(str(tmp_path / "adapter"))


def test_an_adapter_of_an_absent_base_says_so(folder, tmp_path):
    make_adapter(folder, tmp_path / "adapter", head=True)
    shutil.rmtree(folder)
    with pytest.raises(ModelError, match=r"is an adapter of .*, which is missing: no such model"):
        create(str(tmp_path / "adapter"))


def test_pickled_weights_are_refused_with_the_remedy(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"only pickled weights \(pytorch_model.bin\).*save_pretr"):
        create(str(folder))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "is no model folder: it has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json: not readable as JSON"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 9), "not a whole safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
        (lambda f: (f / "tokenizer.json").unlink(), "the tokenizer of .* cannot be loaded"),
    ],
)
def test_a_damaged_folder_is_one_line(folder, break_it, message):
    break_it(folder)
    with pytest.raises(ModelError, match=message) as caught:
        create(str(folder))
    assert "\n" not in str(caught.value)


def test_a_name_that_is_nothing_is_one_line(monkeypatch):
    with pytest.raises(InputError, match=r"no such model folder: \./absent"):
        create("./absent")
    with pytest.raises(InputError, match="which model"):
        create("", ScorerOptions())


def test_the_hub_out_of_reach_is_one_line(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="is not in the cache, and the Hub cannot be reached"):
        create("some-org/some-model")


def test_a_model_of_the_hub_is_recorded_with_its_commit(monkeypatch, folder):
    commit = folder.parent / "snapshots" / ("f" * 40)
    shutil.copytree(folder, commit)
    asked = {}

    def fetch(name, revision=None, allow_patterns=None):
        asked.update(name=name, revision=revision, patterns=allow_patterns)
        return str(commit)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    scorer = create("some-org/some-model", ScorerOptions(revision="v2"))
    assert (asked["name"], asked["revision"]) == ("some-org/some-model", "v2")
    assert not any(pattern.endswith(".bin") for pattern in asked["patterns"])
    assert scorer.spec.name == "classifier:some-org/some-model"
    assert scorer.spec.revision == "commit:" + "f" * 40


def test_a_folder_is_called_by_its_name_and_one_called_model_by_what_holds_it(tmp_path):
    for name in ("mine", "Mexico--scpo/model"):
        (tmp_path / name).mkdir(parents=True)
    assert hf.shown_name(str(tmp_path / "mine")) == "mine"
    assert hf.shown_name(str(tmp_path / "Mexico--scpo" / "model")) == "Mexico--scpo"
    assert hf.shown_name("Org/name") == "Org/name"


def test_the_revision_of_a_folder_follows_its_files(folder):
    first = hf.locate(str(folder)).revision
    assert hf.locate(str(folder)).revision == first
    edit_config(folder, extra=1)
    assert hf.locate(str(folder)).revision != first
    with pytest.raises(InputError, match="--revision applies to models on the Hub"):
        hf.locate(str(folder), "main")


def test_several_outputs_need_a_choice(tmp_path):
    names = {"0": "helpful", "1": "verbose", "2": "safe"}
    folder = make_classifier(tmp_path, num_labels=3, problem_type="regression")
    edit_config(folder, id2label=names, label2id={name: int(at) for at, name in names.items()})
    with pytest.raises(InputError, match=r"3 outputs \(0 helpful, 1 verbose, 2 safe\).*--label K"):
        create(str(folder))
    with pytest.raises(InputError, match="--label 3: the model's outputs are 0 to 2"):
        create(str(folder), ScorerOptions(label=3))
    zero, two = (create(str(folder), ScorerOptions(label=k)) for k in (0, 2))
    assert values(zero.score(SEVEN)) == pytest.approx(plain_scores(folder), abs=1e-5)
    assert values(zero.score(SEVEN)) != values(two.score(SEVEN))
    assert (zero.spec.digest == two.spec.digest) is False


def test_exclusive_labels_give_a_log_probability(tmp_path):
    folder = make_classifier(tmp_path, num_labels=2, problem_type="single_label_classification")
    scorers = [create(str(folder), ScorerOptions(label=label)) for label in (0, 1)]
    one, other = (torch.tensor(values(scorer.score(SEVEN))) for scorer in scorers)
    assert torch.allclose(one.exp() + other.exp(), torch.ones(7), atol=1e-5)
    assert scorers[0].spec.parameters["output"] == "log-softmax"


def test_weights_of_outputs_come_from_the_configuration(tmp_path):
    folder = make_classifier(tmp_path, num_labels=2)
    parts = [
        values(create(str(folder), ScorerOptions(label=label)).score(SEVEN)) for label in (0, 1)
    ]
    edit_config(folder, reward_weights=[0.25, -2.0])
    scorer = create(str(folder))
    expected = [0.25 * a - 2.0 * b for a, b in zip(*parts, strict=True)]
    assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-4)
    edit_config(folder, reward_weights=[1.0])
    with pytest.raises(InputError, match="has 1 weights for 2 outputs"):
        create(str(folder))


def test_no_silent_default_template(tmp_path):
    folder = make_classifier(tmp_path / "m", tokenizer=make_tokenizer(template=None))
    with pytest.raises(InputError, match="no chat template; give the one"):
        create(str(folder))
    given = tmp_path / "own.jinja"
    given.write_text(CHATML)
    scorer = create(str(folder), ScorerOptions(template=str(given)))
    assert scorer.spec.parameters["template_from"] == "file"
    assert scorer.score(SEVEN)[0].status is Status.OK
    with pytest.raises(InputError, match=r"absent\.jinja: cannot be read"):
        create(str(folder), ScorerOptions(template=str(tmp_path / "absent.jinja")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ScorerOptions(mode="listwise"), "--mode does not apply to classifier"),
        (ScorerOptions(reference="x"), "--reference does not apply to classifier"),
        (ScorerOptions(truncate="middle"), "--truncate middle: one of error, left, right"),
        (ScorerOptions(no_system="drop"), "--no-system drop: one of merge, error"),
        (ScorerOptions(dtype="int8"), "--dtype int8: known are float32"),
        (ScorerOptions(device="toaster"), "--device toaster: not usable here"),
        (ScorerOptions(context=0), "--context 0: at least 1"),
        (ScorerOptions(batch_tokens=0), "--batch-tokens 0: at least 1"),
        (ScorerOptions(context=513), "--context 513: the model reads 512 tokens at most"),
    ],
)
def test_wrong_options_are_one_line(saved, options, message):
    with pytest.raises(InputError, match=message):
        create(str(saved), options)


def test_the_record_has_what_can_change_a_score(saved):
    spec = create(str(saved)).spec
    assert {
        name: spec.parameters[name] for name in ("adapter", "bos", "eos", "limit", "dtype")
    } == {
        "adapter": "last-token",
        "bos": "added",
        "eos": "template",
        "limit": 512,
        "dtype": "float32",
    }
    assert {"template", "truncate", "system_role", "attention", "torch", "transformers"} <= set(
        spec.parameters
    )
    assert spec.kind == "classifier"
    assert json.dumps(spec.parameters)
