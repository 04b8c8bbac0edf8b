"""Numbers and cut texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from habitus.report.items import is_sensitive, item_views, outcome
from habitus.report.text import (
    Budget,
    bounds,
    clean,
    duration,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
    unique_labels,
)
from habitus.types import Candidate, Item, Judgement, Message


def test_numbers():
    assert percent(0.625) == "62.5\u00a0%"
    assert percent(None) == "no data"
    assert points(-0.125) == "−12.5"
    assert points(0.1) == "+10.0"
    assert bounds(0.1, 0.25) == "10.0 to 25.0"
    assert bounds(None, 0.25) == "–"
    assert point_bounds(-0.01, 0.08) == "−1.0 to +8.0"
    assert p_value(0.0004) == "< 0.001"
    assert p_value(0.0341) == "0.034"
    assert [duration(s) for s in (4.2, 200, 7500)] == ["4.2 s", "3 min 20 s", "2 h 05 min"]


def test_clean_keeps_length_and_line_ends():
    assert clean("a\x00b\x1b\ud800\r\n\t") == "a\ufffdb\ufffd\ufffd\r\n\t"


def test_one_line():
    assert one_line("a\n  b\u202e c") == "a b c"
    assert one_line("x" * 81) == "x" * 79 + "…"
    assert one_line("x" * 80) == "x" * 80
    assert one_line(" " * 10_000 + "x").endswith("…")


def test_labels_stay_apart_when_cut():
    assert unique_labels(["a" * 30, "a" * 35, "", "b"], 5) == ["aa…aa", "aa…aa (2)", "(empty)", "b"]
    assert unique_labels(["judge:model:listwise [http]", "judge:model:listwise [disk]"], 17) == [
        "judge:mo…e [http]",
        "judge:mo…e [disk]",
    ]


def test_a_budget_counts_escaped_bytes():
    budget = Budget(10, each=100)
    first = budget.clip("&&&")  # 5 bytes each
    assert (first.text, first.total) == ("&&", 3)
    assert first.note == "shown: first 2 of 3 characters"
    assert budget.clip("a").text == ""


def test_a_cut_keeps_letters_whole():
    assert Budget(1000, each=3).clip("abe\u0301x").text == "ab"
    assert Budget(1000, each=1).clip("\U0001f469\u200d\U0001f4bb").text == ""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=4), st.integers(0, 60))
def test_a_budget_is_never_exceeded(texts, size):
    budget = Budget(size)
    shown = [budget.clip(text).text for text in texts]
    assert sum(len(str(escape(text)).encode()) for text in shown) <= size


def item(n=4, **extra):
    return Item(
        id="i",
        prompt=(Message(role="user", content="q"),),
        candidates=tuple(Candidate(id=str(k), text=f"t{k}") for k in range(n)),
        best_ids=(str(n - 1),),
        **extra,
    )


def judged(status="ok", winners=("3",), order=()):
    good = status in ("ok", "tie")
    return Judgement(
        item_id="i",
        unit="u",
        scorer="s",
        seed=0,
        status=status,
        scores={str(k): 1.0 for k in range(4)} if good else {},
        winner_ids=winners if good else (),
        order=order,
    )


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        (None, "unjudged"),
        (judged(), "right"),
        (judged(winners=("0",)), "wrong"),
        (judged("tie", ("0", "3")), "partly"),
        (judged("tie", ("0", "1")), "wrong"),
        (judged("refused"), "failed"),
    ],
)
def test_outcomes(judgement, expected):
    assert outcome(item(), judgement) == expected


def test_candidates_come_as_shown_with_letters():
    (view,) = item_views([(item(), judged(order=("3", "0", "2", "1")))])
    assert [(c.letter, c.id, c.best, c.picked) for c in view.candidates] == [
        ("A", "3", True, True),
        ("B", "0", False, False),
        ("C", "2", False, False),
        ("D", "1", False, False),
    ]


def test_the_best_of_many_candidates_is_kept():
    (view,) = item_views([(item(1000), None)])
    assert len(view.candidates) == 16
    assert view.candidates[-1].id == "999"
    assert "984 more responses" in view.left_out


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"domain": "safety"}, True),
        ({"domain": "cultural_toxicity"}, True),
        ({"source": "hh-rlhf-harmless"}, True),
        ({"domain": "values", "source": "mine"}, False),
        ({}, False),
    ],
)
def test_what_is_folded_away(fields, expected):
    assert is_sensitive(item(**fields)) is expected
