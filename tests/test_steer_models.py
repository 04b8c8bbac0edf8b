"""Steered mixtures of tiny random models against the plain classifiers and the plain sums."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("torch")

from habitus.errors import InputError, UnknownNameError
from habitus.scorers import ScorerOptions, resolve
from tests.conftest import make_item
from tests.test_classifier import SEVEN, values
from tests.tiny_models import make_classifier, make_tokenizer, save, torch, transformers

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"  # PEFT asks for it
)

COUNTRIES = ("Chile", "Israel", "South-Africa")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a full model for each country."""
    root = tmp_path_factory.mktemp("whole")
    for seed, name in enumerate(COUNTRIES):
        make_classifier(root / name, seed=seed)
    return root


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """A folder with a LoRA adapter, with its head, for each country; all of one base."""
    peft = pytest.importorskip("peft")
    root = tmp_path_factory.mktemp("adapters")
    base = make_classifier(root / "base" / "model")
    for seed, name in enumerate(COUNTRIES):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(base)
        settings = peft.LoraConfig(
            r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="SEQ_CLS"
        )
        torch.manual_seed(10 + seed)
        adapted = peft.get_peft_model(model, settings)
        with torch.no_grad():
            for key, parameter in adapted.named_parameters():
                if "modules_to_save" in key:
                    parameter.normal_(0, 0.2)
        save(root / name, adapted, make_tokenizer())
    return root


def steer(folder, countries, way="scores", **options):
    return resolve(f"steer:{folder}", ScorerOptions(countries=countries, steer_by=way, **options))


def scores(folder, name):
    return torch.tensor(values(resolve(f"classifier:{folder / name}").score(SEVEN)))


@pytest.mark.parametrize("way", ["scores", "weights"])
def test_one_country_alone_is_its_classifier(whole, way):
    found = values(steer(whole, "Israel=5", way).score(SEVEN))
    assert found == pytest.approx(scores(whole, "Israel").tolist(), abs=1e-6)


@pytest.mark.parametrize("way", ["scores", "weights"])
def test_one_adapter_alone_is_its_classifier(adapters, way):
    found = values(steer(adapters, "Israel=1", way).score(SEVEN))
    expected = scores(adapters, "Israel").tolist()
    # Scores have 6 digits; an adapter beside its base rounds otherwise than one merged into it.
    assert found == pytest.approx(expected, abs=1e-6 if way == "weights" else 1e-5)
    assert expected != pytest.approx(scores(adapters, "Chile").tolist(), abs=0.01)


@pytest.mark.parametrize("kind", ["whole", "adapters"])
def test_mixed_scores_are_the_weighted_sum(kind, request):
    folder = request.getfixturevalue(kind)
    chile, israel, africa = (scores(folder, name) for name in COUNTRIES)
    found = values(steer(folder, "Chile=1,south africa=3").score(SEVEN))
    assert found == pytest.approx((0.25 * chile + 0.75 * africa).tolist(), abs=1e-5)
    found = values(steer(folder, "Chile=0.5,Israel=0.3,South-Africa=0.2").score(SEVEN))
    mixed = 0.5 * chile + 0.3 * israel + 0.2 * africa
    assert found == pytest.approx(mixed.tolist(), abs=1e-5)


def test_mixed_weights_are_those_of_the_averaged_model(whole, tmp_path):
    models = [
        transformers.AutoModelForSequenceClassification.from_pretrained(whole / name)
        for name in ("Chile", "Israel")
    ]
    states = [model.state_dict() for model in models]
    models[0].load_state_dict(
        {key: 0.75 * states[0][key] + 0.25 * states[1][key] for key in states[0]}
    )
    save(tmp_path / "mixed", models[0], make_tokenizer())
    expected = scores(tmp_path, "mixed").tolist()
    found = values(steer(whole, "Chile=3,Israel=1", "weights").score(SEVEN))
    assert found == pytest.approx(expected, abs=1e-5)
    apart = values(steer(whole, "Chile=3,Israel=1", "scores").score(SEVEN))
    assert found != pytest.approx(apart, abs=1e-3)


def test_mixed_adapters_have_no_cross_terms(adapters, tmp_path):
    import peft

    states = []
    for name in ("Chile", "Israel"):
        base = transformers.AutoModelForSequenceClassification.from_pretrained(
            adapters / "base" / "model"
        )
        merged = peft.PeftModel.from_pretrained(base, adapters / name).merge_and_unload()
        states.append(merged.state_dict())
    merged.load_state_dict({key: (states[0][key] + states[1][key]) / 2 for key in states[0]})
    save(tmp_path / "mixed", merged, make_tokenizer())
    found = values(steer(adapters, "Chile=1,Israel=1", "weights").score(SEVEN))
    assert found == pytest.approx(scores(tmp_path, "mixed").tolist(), abs=1e-5)


def test_adapters_load_their_base_once(adapters, monkeypatch):
    from habitus.clients import hf

    loads = []
    plain = hf.load_model
    monkeypatch.setattr(hf, "load_model", lambda *a, **k: loads.append(1) or plain(*a, **k))
    for way in ("scores", "weights"):
        loads.clear()
        steer(adapters, "Chile=1,Israel=1,South-Africa=1", way)
        assert len(loads) == 1


def test_mixed_weights_run_in_the_format_asked_for(whole):
    exact = values(steer(whole, "Chile=1,Israel=1", "weights").score(SEVEN))
    scorer = steer(whole, "Chile=1,Israel=1", "weights", dtype="bfloat16")
    assert scorer.spec.parameters["dtype"] == "bfloat16"
    found = values(scorer.score(SEVEN))
    assert found != exact
    assert found == pytest.approx(exact, abs=0.3)


def test_the_record_holds_countries_shares_and_models(whole):
    one, same, other = (
        steer(whole, text).spec for text in ("Chile=1,Israel=1", "Chile=2,Israel=2", "Chile=1")
    )
    assert one.digest == same.digest != other.digest
    assert one.parameters["share of Chile"] == 0.5
    assert str(one.parameters["model of Israel"]).startswith("sha256:")
    assert one.label == f"steer:{whole.name}:Chile 0.5, Israel 0.5"
    assert steer(whole, "Chile=1,Israel=1", "weights").spec.digest != one.digest


def test_items_are_judged_and_shares_are_said(whole):
    said = []
    scorer = steer(whole, "Chile=1,Israel=1", say=said.append)
    (judgement,) = scorer.judge([make_item()], 0)
    assert judgement.status.judged
    assert "Chile 0.5, Israel 0.5 (shares are normalised to sum 1)" in said[0]
    scorer.close()


def test_models_that_do_not_go_together_are_refused(whole, adapters, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean Chile"):
        steer(whole, "Chille=1")
    with pytest.raises(InputError, match="one of scores, weights"):
        steer(whole, "Chile=1", "heads")
    shutil.copytree(whole / "Chile", tmp_path / "Chile")
    shutil.copytree(adapters / "Israel", tmp_path / "Israel")
    with pytest.raises(InputError, match="one is an adapter, the other is not"):
        steer(tmp_path, "Chile=1,Israel=1")
    make_classifier(tmp_path / "Peru", num_hidden_layers=1)
    with pytest.raises(InputError, match="Chile and Peru do not mix: their architectures differ"):
        steer(tmp_path, "Chile=1,Peru=1")
    make_classifier(tmp_path / "Cuba", tokenizer=make_tokenizer(bos=False))
    with pytest.raises(InputError, match="their tokenizers differ"):
        steer(tmp_path, "Chile=1,Cuba=1")
