"""The nouns: validation at the boundary, digests, candidate order."""

from collections import Counter

import pytest
from pydantic import ValidationError

from habitus.types import (
    Judgement,
    ScorerSpec,
    Status,
    benchmark_digest,
    candidate_order,
    unit_digest,
    winners,
)
from tests.conftest import make_item

SPEC = ScorerSpec(kind="baseline", model="random")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"best_ids": ["x"]}, "name no candidate"),
        ({"best_ids": []}, "at least 1"),
        ({"best_ids": ["a", "b", "c", "d"]}, "nothing can be measured"),
        ({"prompt": []}, "at least 1"),
        ({"candidates": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}, "not unique"),
        ({"gloss": {"prompt": "p", "candidates": {"a": "x"}}}, "exactly the candidates"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_an_item_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        make_item(**fields)


def test_digest_follows_what_a_scorer_sees_and_nothing_else():
    item = make_item()
    assert make_item(licence="MIT", reason="because").content_digest == item.content_digest
    assert make_item(language="ja").content_digest != item.content_digest
    assert make_item(2).content_digest != item.content_digest


def test_benchmark_digest_sees_the_key_and_the_order():
    one, two = make_item(1), make_item(2)
    assert benchmark_digest([one, two]) != benchmark_digest([two, one])
    assert benchmark_digest([one]) != benchmark_digest([make_item(1, best_ids=["b"])])


def test_a_unit_is_named_by_item_scorer_and_seed():
    item = make_item()
    names = {
        unit_digest(item, SPEC, 0),
        unit_digest(item, SPEC, 1),
        unit_digest(make_item(2), SPEC, 0),
        unit_digest(item, ScorerSpec(kind="baseline", model="longest"), 0),
    }
    assert len(names) == 4
    assert unit_digest(make_item(), SPEC, 0) in names


def test_candidate_order_depends_on_seed_and_id_only_and_is_balanced():
    item = make_item()
    shuffled = make_item(candidates=[c.model_dump() for c in reversed(item.candidates)])
    assert candidate_order(item, 7) == candidate_order(shuffled, 7)
    first = Counter(candidate_order(make_item(number), 0)[0] for number in range(2000))
    assert set(first) == set("abcd")
    assert all(400 < count < 600 for count in first.values())  # 500 expected, 5 sd = 97


def test_winners_share_the_highest_score():
    assert winners({"a": 2.0, "b": 2.0, "c": 1.5, "d": 1.0}) == ("a", "b")
    assert winners({}) == ()


def _judgement(**fields):
    base = {"item_id": "i", "unit": "u", "scorer": "s", "seed": 0}
    return Judgement.model_validate(base | fields)


def test_a_failure_carries_no_winner_and_a_verdict_carries_one():
    ok = {"status": "ok", "scores": {"a": 1.0, "b": 0.0}, "winner_ids": ["a"]}
    assert _judgement(**ok).status is Status.OK
    for wrong in (
        {"status": "error", "scores": {"a": 1.0}, "winner_ids": ["a"]},
        {"status": "ok"},
        ok | {"winner_ids": ["a", "b"]},
        ok | {"status": "tie"},
        ok | {"winner_ids": ["z"]},
        ok | {"scores": {"a": float("nan"), "b": 0.0}},
    ):
        with pytest.raises(ValidationError):
            _judgement(**wrong)
