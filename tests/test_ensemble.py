"""Ensembles: z-scores and votes worked out by hand, ties, failing members, names."""

import pytest

from habitus.errors import InputError, UnknownNameError
from habitus.scorers import ScorerOptions, ensemble, resolve
from habitus.scorers.base import ItemFailureError, ItemScorer
from habitus.scorers.ensemble import Ensemble, split, z_scores
from habitus.types import Scorer, ScorerSpec, Status
from tests.conftest import make_item


class Fixed(ItemScorer):
    """Gives the scores that it was made with, or the status."""

    def __init__(self, name, *scores, fails=None):
        self.spec = ScorerSpec(kind="test", model=name)
        self.scores = scores
        self.fails = fails
        self.closed = False
        self.calls = []

    def judge(self, items, seed):
        self.calls.append(len(items))
        return super().judge(items, seed)

    def scores_of(self, item, order, seed):
        if self.fails:
            raise ItemFailureError(self.fails, "why not")
        ids = [candidate.id for candidate in item.candidates]
        return {
            "scores": dict(zip(ids, self.scores, strict=False)),
            "prompt_tokens": 7,
        }

    def close(self):
        self.closed = True


def decide(rule, *members):
    (judgement,) = Ensemble(members, rule).judge([make_item()], 0)
    return judgement


def test_mean_of_z_scores_by_hand():
    # 4, 2, 2, 0: mean 2, deviation sqrt(2); 10, 10, 30, 30: mean 20, deviation 10.
    found = decide("mean", Fixed("x", 4, 2, 2, 0), Fixed("y", 10, 10, 30, 30))
    assert found.status is Status.OK
    assert found.winner_ids == ("c",)
    assert found.scores == pytest.approx(
        {"a": 0.207106781, "b": -0.5, "c": 0.5, "d": -0.207106781}, abs=1e-9
    )
    assert found.prompt_tokens == 14
    assert found.completion_tokens is None


def test_a_members_scale_does_not_matter():
    near = decide("mean", Fixed("x", 4, 2, 2, 0), Fixed("y", 10, 10, 30, 30))
    far = decide("mean", Fixed("x", 4, 2, 2, 0), Fixed("y", -900, -900, 1100, 1100))
    assert near.scores == far.scores


def test_opposite_members_tie_and_share():
    found = decide("mean", Fixed("x", 4, 2, 2, 0), Fixed("y", 0, 20, 20, 40))
    assert found.status is Status.TIE
    assert found.winner_ids == ("a", "b", "c", "d")
    assert set(found.scores.values()) == {0.0}


@pytest.mark.parametrize(
    "equal",
    [
        (5, 5, 5, 5),
        (0, 0, 0, 0),
        (-1000.0, -1000.0001, -1000.0, -1000.0),  # noise of float32 is no opinion
    ],
)
def test_a_member_without_opinion_abstains(equal):
    found = decide("mean", Fixed("x", *equal), Fixed("y", 10, 10, 30, 30))
    assert found.scores == {"a": -0.5, "b": -0.5, "c": 0.5, "d": 0.5}
    assert found.winner_ids == ("c", "d")


def test_a_small_but_real_difference_counts():
    assert z_scores({"a": 1.0, "b": 1.001}) == pytest.approx({"a": -1.0, "b": 1.0})
    assert z_scores({"a": 1e-30, "b": 3e-30}) == pytest.approx({"a": -1.0, "b": 1.0})


def test_majority_counts_votes_and_splits_those_of_ties():
    x, y, z = Fixed("x", 9, 1, 0, 0), Fixed("y", 2, 2, 1, 1), Fixed("z", 0, 5, 4, 4)
    # x votes a; y half a, half b; z votes b: one and a half each of three.
    found = decide("majority", x, y, z)
    assert found.status is Status.TIE
    assert found.winner_ids == ("a", "b")
    assert found.scores == {"a": 0.5, "b": 0.5, "c": 0.0, "d": 0.0}
    # Without z: a has one and a half of two votes.
    found = decide("majority", x, y)
    assert (found.status, found.scores["a"], found.scores["b"]) == (Status.OK, 0.75, 0.25)


def test_votes_in_thirds_add_up_without_rounding():
    thirds = [Fixed(name, 1, 1, 1, 0) for name in "xyz"]
    whole = [Fixed("a", 1, 0, 0, 0), Fixed("b", 0, 1, 0, 0), Fixed("c", 0, 0, 1, 0)]
    found = decide("majority", *thirds, *whole)
    assert found.winner_ids == ("a", "b", "c")  # 1/3 + 1/3 + 1/3 + 1 each


def test_majority_and_mean_can_differ():
    members = [Fixed("x", 3, 2, -2, -3), Fixed("y", 6, 4, -4, -6), Fixed("z", -3, 3, 2, -2)]
    assert decide("majority", *members).winner_ids == ("a",)
    # Each has mean 0; in units of x the variance is (9 + 4 + 4 + 9) / 4 = 6.5.
    found = decide("mean", *members)
    assert found.winner_ids == ("b",)
    assert found.scores["a"] == pytest.approx((3 + 3 - 3) / 3 / 6.5**0.5)
    assert found.scores["b"] == pytest.approx((2 + 2 + 3) / 3 / 6.5**0.5)


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_a_failing_member_fails_the_item_and_is_named(rule):
    found = decide(rule, Fixed("x", 1, 2, 3, 4), Fixed("y", fails=Status.TRUNCATED))
    assert found.status is Status.TRUNCATED
    assert found.error == "test:y: why not"
    assert (found.scores, found.winner_ids) == ({}, ())
    found = decide(rule, Fixed("x", 1, 2, 3, 4), Fixed("y", 1, 2))
    assert found.status is Status.ERROR
    assert found.error == "test:y: no score for candidate 'c'"


def test_a_silent_member_and_overflow_are_errors_of_the_item():
    class Silent(Fixed):
        def judge(self, items, seed):
            return iter(())

    assert decide("mean", Fixed("x", 1, 2, 3, 4), Silent("y")).error == "test:y: gave no judgement"
    found = decide("mean", Fixed("x", 1, 2, 3, 4), Fixed("y", 1e308, -1e308, 0, 1e308))
    assert found.status is Status.ERROR


def test_items_go_to_members_in_chunks_and_come_back_in_order():
    x, y = Fixed("x", 1, 2, 3, 4), Fixed("y", 4, 2, 2, 0)
    items = [make_item(number) for number in range(300)]
    judged = list(Ensemble([x, y], "mean").judge(items, 0))
    assert [judgement.item_id for judgement in judged] == [item.id for item in items]
    assert x.calls == y.calls == [128, 128, 44]


def test_close_closes_all_members_whatever_one_of_them_does():
    class Stuck(Fixed):
        def close(self):
            raise RuntimeError("stuck")

    x, y = Fixed("x"), Fixed("y")
    with pytest.raises(RuntimeError, match="stuck"):
        Ensemble([x, Stuck("z"), y], "mean").close()
    assert x.closed
    assert y.closed


def test_the_spec_names_rule_and_members():
    one = resolve("ensemble:baseline:longest,baseline:random")
    assert isinstance(one, Scorer)
    assert one.spec.name == "ensemble:mean:baseline:longest,baseline:random"
    assert resolve(one.spec.name).spec == one.spec
    longest = resolve("baseline:longest").spec
    assert one.spec.parameters["member 1"] == f"baseline:longest {longest.digest}"
    other = resolve("ensemble:majority:baseline:longest,baseline:random")
    swapped = resolve("ensemble:baseline:random,baseline:longest")
    assert len({one.spec.digest, other.spec.digest, swapped.spec.digest}) == 3


def test_longest_and_shortest_cancel_out():
    judge = resolve("ensemble:baseline:longest,baseline:shortest")
    (found,) = judge.judge([make_item()], 0)
    assert found.status is Status.TIE
    assert len(found.winner_ids) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1,b:2", ("mean", ["a:1", "b:2"])),
        ("mean:a:1,b:2", ("mean", ["a:1", "b:2"])),
        ("majority:a:1, b:2", ("majority", ["a:1", "b:2"])),
        (r"a:x\,y,b:2", ("mean", ["a:x,y", "b:2"])),
        (r"a:C:\dir\m,b:2", ("mean", ["a:C:\\dir\\m", "b:2"])),
        (r"a,ensemble:majority:b\,c\,d", ("mean", ["a", "ensemble:majority:b,c,d"])),
        (r"a,ensemble:b\,ensemble:c\\\,d", ("mean", ["a", "ensemble:b,ensemble:c\\,d"])),
    ],
)
def test_names_of_members(text, expected):
    assert split(text) == expected


@pytest.mark.parametrize("text", ["", "a:1", "majority:a:1", "a:1,", ",a:1,b:1", "mean:"])
def test_too_few_members(text):
    with pytest.raises(InputError, match="two or more members"):
        resolve(f"ensemble:{text}")


def test_ensembles_nest_and_their_names_resolve_again():
    inner = r"ensemble:majority:baseline:longest\,baseline:shortest"
    outer = resolve(f"ensemble:baseline:random,{inner}")
    assert resolve(outer.spec.name).spec == outer.spec
    (found,) = outer.judge([make_item()], 3)
    (random,) = resolve("baseline:random").judge([make_item()], 3)
    # Inner votes: the longest, a, 1/2; the shortest, b and d, 1/4 each; c 0. The mean is 1/4, the
    # deviation sqrt(1/32), so a and c are 2 sqrt(2) apart, of which half enters the mean of two.
    blind = z_scores(random.scores)
    assert found.scores["a"] - found.scores["c"] == pytest.approx(
        (blind["a"] - blind["c"]) / 2 + 2**0.5, abs=1e-8
    )


def test_a_member_named_twice_is_refused():
    with pytest.raises(InputError, match="baseline:random is named twice"):
        resolve("ensemble:baseline:random,baseline:random")


def test_unknown_members_are_named_with_near_names():
    with pytest.raises(InputError, match=r"member baseline:longst: .* did you mean longest"):
        resolve("ensemble:baseline:random,baseline:longst")
    with pytest.raises(UnknownNameError):
        resolve("ensembel:baseline:random,baseline:longest")


def test_options_go_to_members_that_have_any(monkeypatch):
    given = {}
    made = []

    def fake(name, options):
        if name == "test:broken":
            raise InputError("no such thing")
        given[name] = options
        made.append(Fixed(name))
        return made[-1]

    monkeypatch.setattr(ensemble, "resolve", fake)
    options = ScorerOptions(mode="pairwise")
    ensemble.create(r"test:x,baseline:longest,ensemble:baseline:a\,baseline:b", options)
    assert given["test:x"] == options
    assert given["baseline:longest"] == ScorerOptions()
    assert given["ensemble:baseline:a,baseline:b"] == ScorerOptions()
    made.clear()
    with pytest.raises(InputError, match="ensemble member test:broken: no such thing"):
        ensemble.create("test:x,test:broken", options)
    assert [member.closed for member in made] == [True]


def test_options_that_no_member_has_are_refused():
    with pytest.raises(InputError, match="--mode does not apply to ensembles of baseline"):
        resolve("ensemble:baseline:longest,baseline:random", ScorerOptions(mode="listwise"))


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="accelerate launch"):
        resolve("ensemble:baseline:longest,baseline:random")
