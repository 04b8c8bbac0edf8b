"""Figures of trained policies without a model: the watch, steps, tests, flags."""

import statistics

import polars as pl
import pytest

from habitus.clients import recognise
from habitus.downstream.model import ChoiceKey, GenerationStatus, ScoreLine
from habitus.downstream.policy_result import Change
from habitus.downstream.result import Gain, Quality
from habitus.metrics.policy import BEFORE, after, study_figures, watched, win
from habitus.train.policy.figures import flags
from habitus.train.policy.heldout import win_rate
from habitus.train.policy.steps import step_figures
from habitus.train.policy.watch import Watch
from tests.policy_samples import answer, prompt

# Steps


def record(reward, grade=0.0, tokens=4, status="ok"):
    return {"reward": reward, "grade": grade, "tokens": tokens, "status": status}


def test_a_step_by_hand():
    records = [
        *(record(1.0, 1.0), record(3.0), record(2.0)),
        *(record(5.0, 1.0, 8, "truncated"), record(None, 0.0, 2), record(7.0)),
        *(record(4.0), record(4.0), record(4.0)),
        *(record(None, None), record(None), record(None)),
    ]
    found = step_figures(records, 3)
    assert found["reward"] == pytest.approx((1 + 3 + 2 + 5 + 7 + 12) / 8)
    spreads = [1.0, statistics.stdev([5, 7]), 0.0]  # the last group has none
    assert found["reward_std"] == pytest.approx(sum(spreads) / 3)
    assert found["flat_groups"] == 0.5  # three equal ones, and three without
    assert found["unscored"] == 4
    assert found["quality"] == pytest.approx(2 / 11)
    assert found["length"] == pytest.approx((11 * 4 + 8 + 2 - 4) / 12)
    assert (found["truncated"], found["completions"], found["tokens"]) == (1 / 12, 12, 50)
    none = step_figures([record(None), record(None)], 2)
    assert (none["reward"], none["reward_std"], none["flat_groups"]) == (None, None, 1.0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((1.0, 2.0, 3.0, 4.0), 1.0),
        ((3.0, 4.0, 1.0, 2.0), 0.0),
        ((1.0, 1.0, 1.0, 1.0), 0.5),
        ((1.0, 3.0, 2.0, 3.0), (1 + 0 + 1 + 0.5) / 4),
        ((None, 1.0, 2.0, None), 1.0),
        ((None, None, 2.0, 1.0), None),
        ((), None),
    ],
)
def test_how_often_an_answer_after_is_preferred(scores, expected):
    line = ScoreLine(scorer="s", prompt="p", unit="u", status="ok", scores=scores)
    assert win_rate(line, 2) == expected


# The watch


def values(text, tokens=5, status=GenerationStatus.OK, asked="What do people drink?", **fields):
    one = prompt(text=asked, **fields)
    found = Watch([one], 10).measure(answer(0, text, status=status), tokens)
    return found.values


def test_length_and_ends():
    assert values("tea", 5)["length"] == 0.5
    assert values("tea", 5)["truncated"] == 0.0
    assert values("tea", 10, GenerationStatus.CUT)["truncated"] == 1.0
    gone = values("", 0, GenerationStatus.ERROR)
    assert set(gone.values()) == {None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I like tea a lot. I like tea a lot!", 0.0),
        ("I like tea a. I LIKE tea a; i like tea a", 1.0),
        ("茶を飲む茶を飲む茶を飲む", 1.0),  # a letter is a word there
        ("茶を飲む茶を飲む", 0.0),
        ("", 0.0),
    ],
)
def test_repetitions(text, expected):
    assert values(text)["repeats"] == expected


def test_copies_of_the_question():
    asked = "Answer in a few words: what do people in Spain drink at breakfast?"
    assert values("What do people in Spain drink at breakfast? Tea", asked=asked)["copies"] == 1.0
    assert values("People in Spain drink tea at breakfast", asked=asked)["copies"] == 0.0


def test_the_language_of_long_and_short_texts():
    german = "Die Leute trinken zum Frühstück sehr gerne einen heißen Tee mit Milch."
    if recognise.installed():
        assert values(german)["language"] == 0.0
        assert values(german, language="de")["language"] == 1.0
    assert values("茶")["language"] == 0.0  # no Latin letters
    assert values("茶", language="ja")["language"] == 1.0
    assert values("7")["language"] is None
    assert values("tea", language=None)["language"] is None


def test_without_lingua_the_script_tells(monkeypatch):
    monkeypatch.setattr("habitus.train.policy.watch.find_lingua", lambda tags: None)
    german = "Die Leute trinken zum Frühstück sehr gerne einen heißen Tee mit Milch."
    assert values(german)["language"] == 1.0
    assert values("Люди пьют чай с молоком на завтрак каждый день")["language"] == 0.0
    assert Watch([prompt()], 10).languages == "scripts"


def test_names_of_the_country():
    pytest.importorskip("babel")
    assert values("In Spain people drink coffee.")["label"] == 1.0
    assert values("Spanish coffee", language="en")["label"] == 0.0  # no ending of "Spain"
    assert values("En España se toma café", language="es")["label"] == 1.0
    assert values("Coffee")["label"] == 0.0


def test_letters_and_distinct_answers():
    key = ChoiceKey(letters=("A", "B"), right=("A",))
    one = prompt(key=key)
    watch = Watch([one], 10)
    answers = [answer(0, "A", matched="A"), answer(1, "hm"), answer(2, "hm")]
    found = watch.of_prompt(answers, [2, 4, 6])
    assert found["unread"] == pytest.approx(2 / 3)
    assert found["distinct"] == pytest.approx(2 / 3)
    assert found["length"] == pytest.approx(0.4)
    assert "unread" not in Watch([prompt()], 10).of_prompt([answer(0, "tea")], [1])


# Tests


def table(rows):
    names = ["country", "group", BEFORE, after("a"), after("b"), win("a"), win("b")]
    names += [watched("length"), watched("length", "a"), watched("length", "b")]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_figures_by_hand():
    rows = []
    for n in range(40):
        country = "Spain" if n < 10 else "China"
        first = 0.5 if country == "Spain" else 0.25
        rows.append((country, f"q{n}", first, first - 0.2, first, 1.0, 0.5, 0.2, 0.8, 0.2))
    found = study_figures(table(rows), ["a", "b"], ["length"], 0, 200)
    assert found.countries == ("China", "Spain")
    assert found.before.value == pytest.approx(0.375)  # each country counts alike
    assert found.before_countries["Spain"].value == pytest.approx(0.5)
    a, b = found.policies
    assert a.quality.value == pytest.approx(0.175)
    assert a.gain.difference == pytest.approx(-0.2)
    assert a.gain_by["China"].difference == pytest.approx(-0.2)
    assert a.gain.p == pytest.approx(1e-4, abs=2e-4)
    assert a.gain.p_holm == pytest.approx(2 * a.gain.p)
    assert (b.gain.difference, b.gain.p) == (0.0, 1.0)
    assert (a.reward.value, a.reward_gain.difference) == (1.0, 0.5)
    assert b.reward_gain.difference == 0.0
    length = a.watch["length"]
    assert (length.before.value, length.after.value) == pytest.approx((0.2, 0.8))
    assert length.change.difference == pytest.approx(0.6)
    ((first, second, rival),) = found.differences
    assert (first, second, rival.difference) == ("a", "b", pytest.approx(-0.2))


def test_a_prompt_that_a_reward_model_failed_on_is_left_out_of_its_preference_only():
    rows = [
        ("Spain", f"q{n}", 0.5, 0.5, 0.5, None if n else 1.0, 0.5, None, None, None)
        for n in range(4)
    ]
    a = study_figures(table(rows), ["a", "b"], ["length"], 0, 200).policies[0]
    assert (a.reward.value, a.reward.n, a.reward.n_excluded) == (1.0, 1, 3)
    assert (a.quality.n, a.gain.n) == (4, 4)
    assert a.watch == {}


# Flags


def gain(value, clear=True):
    p = 0.001 if clear else 0.9
    bounds = (value - 0.05, value + 0.05) if clear else (value - 1, value + 1)
    return Gain(value=value, low=bounds[0], high=bounds[1], p=p, p_holm=p, n=50)


def change(before, then, clear=True):
    sides = (Quality(value=value, low=None, high=None, n=50) for value in (before, then))
    return Change(before=next(sides), after=next(sides), gain=gain(then - before, clear))


@pytest.mark.parametrize(
    ("quality", "reward", "watch", "expected"),
    [
        (gain(-0.2), gain(0.3), {}, ("reward up, quality down",)),
        (gain(-0.2, clear=False), gain(0.3), {}, ()),
        (gain(-0.2), gain(0.3, clear=False), {}, ()),
        (gain(0.2), gain(0.3), {"length": change(0.2, 0.5)}, ("answers are 2.5 times as long",)),
        (gain(0.2), gain(0.3), {"length": change(0.4, 0.2)}, ("answers are 0.50 times as long",)),
        (gain(0.2), gain(0.3), {"length": change(0.5, 0.55)}, ()),
        (gain(0.2), gain(0.3), {"length": change(0.2, 0.5, clear=False)}, ()),
        (
            gain(0.0),
            gain(0.3),
            {"language": change(0.9, 0.5), "label": change(0.1, 0.4), "copies": change(0.5, 0.2)},
            (
                "more answers name the country, culture or language",
                "fewer answers are in the prompt's language",
            ),
        ),
    ],
)
def test_flags(quality, reward, watch, expected):
    assert flags(quality, reward, watch) == expected
