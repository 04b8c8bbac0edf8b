"""Options of judges: what goes together, what an engine can do, and how a judge is made."""

import pytest

from habitus.errors import InputError, ModelError
from habitus.scorers import ScorerOptions, engines, resolve
from habitus.scorers.judge_settings import check, parse_scale
from tests.conftest import make_item
from tests.judge_fakes import Fake, by_length, make_judge, user_text


def settings(engine=None, **options):
    return make_judge(engine or Fake(by_length), **options).settings


def test_defaults_follow_the_engine():
    assert settings().verdict == "logprobs"
    assert settings(Fake(by_length, prefill=False)).verdict == "text"
    assert settings(Fake(by_length, logprobs=False)).verdict == "text"
    assert settings(votes=3).verdict == "text"
    assert settings(votes=3, criteria=True).verdict == "logprobs"
    assert settings(Fake(by_length, prefill=False), verdict="logprobs").verdict == "logprobs"
    assert settings(verdict="text").temperature == 0
    assert settings(votes=2).temperature == 1
    assert settings(votes=2, temperature=0.3).temperature == 0.3
    assert settings(criteria=True).max_tokens == 400
    assert settings(verdict="text").max_tokens == 2048
    assert settings(verdict="text", max_tokens=7).max_tokens == 7


def test_criteria_is_listwise_with_criteria():
    assert check(ScorerOptions(mode="criteria")) == ("listwise", True)
    assert settings(mode="criteria") == settings(criteria=True)
    assert settings(mode="pairwise", criteria=True).name == "pairwise-criteria"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "listwize"}, "unknown mode of a judge 'listwize'; did you mean listwise"),
        ({"verdict": "letters"}, "unknown value of --verdict"),
        ({"instructions": "thai"}, "unknown value of --instructions"),
        ({"pairs": "some", "mode": "pairwise"}, "unknown value of --pairs"),
        ({"mode": "criteria", "criteria": False}, "--mode criteria is listwise with criteria"),
        ({"pairs": "all"}, "--pairs does not apply to the mode listwise"),
        ({"scale": "1-5", "mode": "pairwise"}, "--scale does not apply to the mode pairwise"),
        ({"scale": "5", "mode": "pointwise"}, "--scale 5: not LOW-HIGH"),
        ({"prompt": "x.txt", "instructions": "item"}, "leave out --prompt"),
        ({"votes": 0}, "--votes 0: must be 1 or more"),
        ({"max_tokens": 0}, "--max-tokens 0"),
        ({"votes": 3, "temperature": 0.0}, "would all be equal"),
        ({"temperature": -1.0}, "--temperature -1.0"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"verdict": "logprobs", "votes": 3}, "--votes has no effect"),
        ({"temperature": 0.5}, "--temperature has no effect"),
        ({"max_tokens": 9}, "--max-tokens has no effect"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(InputError, match=message) as caught:
        make_judge(Fake(by_length), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("traits", "options", "message"),
    [
        ({"logprobs": False}, {"verdict": "logprobs"}, "fake gives no log-probabilities"),
        ({"prefill": False}, {"verdict": "logprobs", "criteria": True}, "cannot go on after"),
        ({}, {"verdict": "logprobs", "mode": "pointwise"}, "no single token for each rating"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(traits, options, message):
    with pytest.raises(InputError, match=message):
        make_judge(Fake(by_length, **traits), **options)


def test_scales():
    assert parse_scale("1-10") == (1, 10)
    assert parse_scale(" 0 - 100 ") == (0, 100)
    for wrong in ("10-1", "3-3", "1-1000", "a-b", "", "1-10-20", "-1-5", "1.5-2"):
        with pytest.raises(InputError, match="not LOW-HIGH"):
            parse_scale(wrong)


@pytest.fixture
def fake_engine(monkeypatch):
    """A registered engine "fake" with options of any kind; the last one made is kept."""
    made = []

    def create(model, options):
        made.append(Fake(by_length, parameters=dict(traits)))
        return made[-1]

    traits = {}
    targets = engines.ENGINES.targets() | {"fake": "x:y"}
    monkeypatch.setattr(engines.ENGINES, "targets", lambda: targets)
    monkeypatch.setattr(engines.ENGINES, "get", lambda name: create)
    return traits, made


def test_a_judge_by_name_runs_on_the_engine_that_is_named(fake_engine):
    _, made = fake_engine
    judge = resolve("judge:some-model", ScorerOptions(engine="fake", mode="pairwise"))
    assert judge.engine is made[0]
    assert judge.spec.kind == "judge"
    (found,) = judge.judge([make_item()], 0)
    assert len(found.passes) == 12


def test_a_system_section_without_a_system_role_is_refused_when_asked(fake_engine, tmp_path):
    traits, made = fake_engine
    traits["system_role"] = "error"
    with pytest.raises(ModelError, match="no system role, and the prompt listwise has a"):
        resolve("judge:m", ScorerOptions(engine="fake", no_system="error"))
    assert made[0].closed
    mine = tmp_path / "mine.txt"
    mine.write_text(
        "[user]\n{question}\n{candidates}\n[candidate]\n{letter}. {text}\n[assistant]\nIs:"
    )
    resolve("judge:m", ScorerOptions(engine="fake", no_system="error", prompt=str(mine)))


def test_an_engine_is_closed_when_it_cannot_do_what_is_asked(fake_engine):
    _, made = fake_engine
    with pytest.raises(InputError, match="--votes has no effect"):
        resolve("judge:m", ScorerOptions(engine="fake", votes=2, verdict="logprobs"))
    assert made == []  # found before the engine was started
    options = ScorerOptions(engine="fake", mode="pointwise", verdict="logprobs")
    with pytest.raises(InputError, match="no single token"):
        resolve("judge:m", options)
    assert made[0].closed


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("judge:m", {"engine": "vlm"}, "unknown engine 'vlm'; did you mean vllm"),
        ("judge:m", {"engine": "openai", "threads": 2}, "--threads does not apply to openai judge"),
        ("judge:m", {"engine": "transformers", "base_url": "x"}, "--base-url does not apply"),
        ("judge:m", {"label": 1}, "--label does not apply to embedded judge models"),
        ("embedded", {"engine": "vllm"}, "--engine does not apply to embedded models"),
        ("embedded", {"dtype": "float32"}, "--dtype does not apply to embedded models"),
        ("embedded", {"mode": "x"}, "unknown mode of an embedded judge 'x'"),
        ("embedded", {"context": 100}, "--context 100 is too short"),
        ("embedded", {"no_system": "drop"}, "--no-system drop: not one of merge, error"),
        ("embedded", {"template": "/none.jinja"}, "--template /none.jinja: cannot be read"),
    ],
)
def test_options_that_do_not_apply(name, options, message):
    with pytest.raises((InputError, ModelError), match=message):
        resolve(name, ScorerOptions(**options))


def test_instructions_in_the_items_language():
    engine = Fake(by_length)
    judge = make_judge(engine, instructions="item")
    items = [
        make_item(number, language=language)
        for number, language in enumerate(["th", "en", "zh-TW", "es-MX", None, "sw"])
    ]
    list(judge.judge(items, 0))
    by_item = {request.group.split(":")[1]: request for request in engine.asked}
    answers = {name: request.answer for name, request in by_item.items()}
    assert answers == {
        "item-0": "คำตอบที่ดีที่สุด:",
        "item-1": "Best answer:",
        "item-2": "Best answer:",
        "item-3": "Mejor respuesta:",
        "item-4": "Best answer:",
        "item-5": "Best answer:",
    }
    assert "ตอบด้วยตัวอักษรตัวเดียว: A, B, C, D" in user_text(by_item["item-0"])
    noted = judge.spec.parameters["instructions"]
    assert noted == "item (ar, de, en, es, ja, ko, ru, th, vi, zh-Hans; others in English)"
    english = make_judge(engine)
    assert english.spec.prompt_digest != judge.spec.prompt_digest
