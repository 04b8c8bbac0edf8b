"""Best-of-n curves: exact over all sets of n answers, ties shared, falls told from noise."""

import itertools

import polars as pl
import pytest

from habitus.metrics.bestofn import (
    LONGEST,
    ORACLE,
    RANDOM,
    SHORTEST,
    best_of_n,
    expected_qualities,
    sizes,
)


@pytest.mark.parametrize(
    ("n", "expected"), [(2, (1, 2)), (4, (1, 2, 4)), (12, (1, 2, 4, 8, 12)), (16, (1, 2, 4, 8, 16))]
)
def test_sizes(n, expected):
    assert sizes(n) == expected


@pytest.mark.parametrize(
    ("scores", "grades", "n", "expected"),
    [
        ([1, 2, 3], [0, 1, 0], 1, 1 / 3),  # any answer: the mean
        ([1, 2, 3], [0, 1, 0], 2, 1 / 3),  # of three pairs, only {1, 2} picks the good one
        ([1, 2, 3], [0, 1, 0], 3, 0.0),
        ([1, 1, 2], [1, 0, 0], 2, 1 / 6),  # the pair of equals gives 1/2
        ([5, 5, 5, 5], [1, 0, 0, 0], 4, 0.25),  # nothing is told apart
        ([2, 1], [1, 0], 4, 1.0),  # fewer answers than n: all of them
        ([7], [0.5], 2, 0.5),
    ],
)
def test_expected_qualities(scores, grades, n, expected):
    assert expected_qualities(scores, grades, [n]) == pytest.approx([expected])


def test_expected_qualities_are_the_mean_over_all_sets():
    scores, grades = [3.0, 1.0, 3.0, 2.0, 0.5, 3.0], [0.0, 1.0, 0.5, 0.25, 1.0, 1.0]
    for n in range(1, 7):
        picks = []
        for chosen in itertools.combinations(range(6), n):
            best = max(scores[at] for at in chosen)
            top = [grades[at] for at in chosen if scores[at] == best]
            picks.append(sum(top) / len(top))
        assert expected_qualities(scores, grades, [n]) == pytest.approx([sum(picks) / len(picks)])


def prompts(countries, grades, lengths=(1.0, 2.0, 3.0, 4.0)):
    return pl.DataFrame(
        {
            "country": list(countries),
            "group": [f"q{number}" for number in range(len(countries))],
            "grades": [list(map(float, grades))] * len(countries),
            "lengths": [list(lengths)] * len(countries),
        }
    )


def values(curve):
    return [point.value for point in curve]


def test_references_and_a_good_and_a_bad_reward_model():
    table = prompts(["Spain"] * 40, [1, 0, 0, 0])
    good, bad = [[4.0, 3, 2, 1]] * 40, [[0.0, 1, 2, 3]] * 40
    found = best_of_n(table, {"good": good, "bad": bad}, seed=0)
    assert found.ns == (1, 2, 4)
    shown = {name: values(found.references[name].curve) for name in found.references}
    assert shown[RANDOM] == pytest.approx([0.25] * 3)
    # The good answer is among 2 of 4 with probability 1/2.
    assert shown[ORACLE] == pytest.approx([0.25, 0.5, 1.0])
    assert shown[LONGEST] == pytest.approx([0.25, 0.0, 0.0])
    assert shown[SHORTEST] == pytest.approx([0.25, 0.5, 1.0])
    first, second = found.pickers
    assert first.over_random.difference == pytest.approx(0.75)
    assert first.over_longest.difference == pytest.approx(1.0)
    # Two models and two comparisons: Holm over four.
    assert second.over_random.p_holm == pytest.approx(4 * second.over_random.p)
    assert not any(fall.clear for fall in first.falls)
    assert [fall.n for fall in second.falls if fall.clear] == [1]  # from 1/4 to 0; n = 2 is 0 too


def test_countries_count_alike_and_failures_are_left_out():
    table = prompts(["Spain"] * 3 + ["Iran"], [1, 0, 0, 0])
    right, wrong = [4.0, 3, 2, 1], [0.0, 1, 2, 3]
    found = best_of_n(table, {"model": [right, right, None, wrong]}, seed=0)
    assert found.countries == ("Iran", "Spain")
    (model,) = found.pickers
    assert values(model.countries["Spain"]) == pytest.approx([0.25, 0.5, 1.0])
    assert model.countries["Spain"][-1].n == 2
    assert model.countries["Spain"][-1].n_excluded == 1
    assert model.curve[-1].value == pytest.approx(0.5)  # the mean of 1 and 0, not of 1, 1 and 0
    assert model.over_random.n == 3


def test_nothing_gives_no_figures():
    empty = prompts([], [1])
    schema = {"grades": pl.List(pl.Float64), "lengths": pl.List(pl.Float64), "country": pl.String}
    found = best_of_n(empty.cast(schema), {"model": []}, seed=0)
    assert found.pickers[0].curve[-1].value is None
    assert found.pickers[0].curve[-1].n == 0
    assert found.pickers[0].over_random.difference is None
