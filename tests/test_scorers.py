"""Baselines, the registry of kinds, and how a failing item is recorded."""

from collections import Counter

import pytest

from habitus.errors import InputError, UnknownNameError
from habitus.registry import Registry
from habitus.scorers import ScorerOptions, list_models, resolve
from habitus.scorers.base import ItemFailureError, ItemScorer
from habitus.types import Scorer, ScorerSpec, Status
from tests.conftest import make_item


def test_longest_and_shortest_follow_characters_and_share_ties():
    texts = [("a", "four"), ("b", "ไทยก"), ("c", "x"), ("d", "abc")]
    item = make_item(candidates=[{"id": name, "text": text} for name, text in texts])
    (longest,) = resolve("baseline:longest").judge([item], 0)
    (shortest,) = resolve("baseline:shortest").judge([item], 0)
    assert (longest.status, set(longest.winner_ids)) == (Status.TIE, {"a", "b"})
    assert (shortest.status, shortest.winner_ids) == (Status.OK, ("c",))


def test_random_is_seeded_uniform_and_blind_to_the_order_of_work():
    items = [make_item(number) for number in range(2000)]
    scorer = resolve("baseline:random")
    first = {j.item_id: j.winner_ids for j in scorer.judge(items, 5)}
    again = {j.item_id: j.winner_ids for j in scorer.judge(items[::-1], 5)}
    assert first == again
    assert first != {j.item_id: j.winner_ids for j in scorer.judge(items, 6)}
    picks = Counter(winner for (winner,) in first.values())
    assert all(400 < picks[name] < 600 for name in "abcd")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("embeded", "did you mean embedded"),
        ("baseline:longst", "did you mean longest"),
        ("baseline", "unknown baseline ''"),
        ("classifer:x/y", "unknown reward model"),
        ("", "unknown reward model"),
    ],
)
def test_unknown_models_get_near_names(name, message):
    with pytest.raises(UnknownNameError, match=message):
        resolve(name)


def test_an_option_that_does_not_apply_is_refused():
    with pytest.raises(InputError, match="--mode does not apply to baseline"):
        resolve("baseline:random", ScorerOptions(mode="criteria"))


def test_every_listed_baseline_resolves_and_is_a_scorer():
    names = [entry.name for entry in list_models()]
    assert "embedded:smollm2-135m" in names
    for name in names:
        if name.startswith("baseline:"):
            scorer = resolve(name)
            assert isinstance(scorer, Scorer)
            assert scorer.spec.name == name


class Moody(ItemScorer):
    spec = ScorerSpec(kind="test", model="moody")

    def scores_of(self, item, order, seed):
        if item.id == "item-1":
            raise ItemFailureError(Status.REFUSED, "I would rather not", raw="No.")
        if item.id == "item-2":
            return {"scores": {"a": float("nan"), "b": 1.0}}
        if item.id == "item-3":
            raise ZeroDivisionError("oops")
        return {"scores": {"a": 2.0, "b": 2.0, "c": 1.5, "d": 1.0}}


def test_failures_are_data_and_the_run_goes_on():
    found = {j.item_id: j for j in Moody().judge([make_item(n) for n in range(1, 5)], 0)}
    assert found["item-1"].status is Status.REFUSED
    assert (found["item-1"].error, found["item-1"].raw) == ("I would rather not", "No.")
    assert found["item-2"].status is Status.ERROR
    assert "not a finite number" in found["item-2"].error
    assert found["item-3"].error == "ZeroDivisionError: oops"
    assert found["item-4"].status is Status.TIE
    assert found["item-4"].winner_ids == ("a", "b")


def test_registry_is_lazy_and_suggests_near_names():
    registry = Registry("thing", {"path": "pathlib:Path", "absent": "no.such.module:x"}, "none")
    assert registry.get("path").__name__ == "Path"
    with pytest.raises(UnknownNameError, match="did you mean path"):
        registry.get("pth")
