"""Correlation over reward models: coefficients, tests, intervals, by numbers worked out by hand."""

import math

import numpy as np
import polars as pl
import pytest

from habitus.metrics.correlation import (
    coefficients,
    fit_band,
    leave_one_out,
    linear_fit,
    most_influential,
    partial_coefficients,
    partial_correlation,
    permutation_p,
    steiger_z,
    ties,
)
from habitus.metrics.correlation_bootstrap import (
    Bounds,
    basic,
    bca,
    draw_models,
    squared,
    without_families,
)
from habitus.metrics.correlation_rivals import hold_fixed, versus
from habitus.metrics.correlation_scores import (
    UNITS_SCHEMA,
    known_scores,
    make_scores,
    reliability,
    replicates,
)
from habitus.metrics.correlation_summary import correlate, family_codes, family_means, with_holm
from habitus.metrics.length_bias import length_bias

FOUR = np.array([1.0, 2, 3, 4])
SWAPPED = np.array([1.0, 3, 2, 4])
# Three contrasts of eight reward models that do not correlate with each other.
Z = np.array([-1.0, -1, -1, -1, 1, 1, 1, 1])
A = np.array([-1.0, -1, 1, 1, -1, -1, 1, 1])
B = np.array([-1.0, 1, -1, 1, -1, 1, -1, 1])


def test_coefficients_by_hand():
    # One of six pairs is discordant: tau = (5 - 1) / 6; squared rank differences sum to 2.
    assert coefficients(FOUR, SWAPPED)[0] == pytest.approx([0.8, 0.8, 2 / 3])


def test_ties_have_mid_ranks_and_tau_b():
    # Ranks 1.5 1.5 3 4 and 1 2.5 2.5 4: 3.75 / 4.5; four concordant pairs, five untied in each.
    x, y = np.array([1.0, 1, 2, 3]), np.array([1.0, 2, 2, 3])
    assert coefficients(x, y)[0, 1:] == pytest.approx([3.75 / 4.5, 4 / 5])
    assert ties(x) == 2


def test_values_that_differ_in_the_last_digit_are_ties():
    x = np.array([1 / 3, 1 - 2 / 3, 0.5, 0.9])
    assert x[0] != x[1]
    assert ties(x) == 2


def test_a_weight_repeats_a_model():
    weights = np.array([2.0, 0, 1, 1])
    repeated = coefficients(FOUR[[0, 0, 2, 3]], SWAPPED[[0, 0, 2, 3]])
    assert coefficients(FOUR, SWAPPED, weights)[0] == pytest.approx(repeated[0])


def test_constant_values_have_no_coefficient():
    assert np.isnan(coefficients(FOUR, np.ones(4))).all()
    assert np.isnan(coefficients(FOUR, SWAPPED, np.array([0.0, 4, 0, 0]))).all()


def test_fit_by_hand():
    fit = linear_fit(FOUR, SWAPPED)
    assert (fit.slope, fit.intercept, fit.r2) == pytest.approx((0.8, 0.5, 0.64))
    assert fit.p == pytest.approx(0.2)  # with two degrees of freedom p is 1 - |r|
    assert fit.sd == pytest.approx(math.sqrt(1.8 / 2))  # residuals -0.3, 0.9, -0.9, 0.3
    line, low, high = fit_band(fit, np.array([2.5]))
    assert line[0] == pytest.approx(2.5)
    half = 4.3027 * fit.sd / 2  # t at 97.5 % with two degrees of freedom, over the root of four
    assert (line[0] - low[0], high[0] - line[0]) == pytest.approx((half, half), rel=1e-4)


def test_leave_one_out_finds_the_model_that_r_hangs_on():
    x, y = np.array([0.0, 1, 0, 1, 9]), np.array([0.0, 0, 1, 1, 9])
    left = leave_one_out(x, y)
    assert left[4].r == pytest.approx(0.0)  # the square of the other four
    assert most_influential(left, coefficients(x, y)[0, 0]).model == 4
    assert leave_one_out(FOUR[:3], SWAPPED[:3]) == ()


def test_exact_permutation_test():
    # Of 24 orders, the identity and three neighbour swaps have r >= 0.8, and as many r <= -0.8.
    assert permutation_p(FOUR, SWAPPED, 0, "")[:2] == pytest.approx((8 / 24, 8 / 24))
    assert permutation_p(FOUR[:3], FOUR[:3], 0, "") == pytest.approx((1 / 3,) * 3)


def test_random_permutations_are_near_the_t_test_and_repeat():
    random = np.random.default_rng(1)
    x = random.normal(size=20)
    y = 0.5 * x + random.normal(size=20)
    p = permutation_p(x, y, 0, "a")
    assert p[0] == pytest.approx(linear_fit(x, y).p, abs=0.01)
    assert permutation_p(x, y, 0, "a") == p


def test_no_permutation_test_of_constants():
    assert permutation_p(FOUR, np.ones(4), 0, "") == (None, None, None)


def test_steiger_case_a():
    # Steiger 1980, page 249, prints -.8913 with roundings on the way; exact arithmetic -.8887.
    z, p = steiger_z(0.4, 0.5, 0.1, 103)
    assert z == pytest.approx(-0.8887185, abs=1e-6)
    assert p == pytest.approx(0.3742, abs=1e-4)


def test_steiger_second_published_value():
    # Silver, Hittner and May 2006 (depcor).
    assert steiger_z(0.3, 0.4, 0.5, 100) == pytest.approx((-1.0718, 0.2838), abs=1e-4)


def test_partial_correlation_by_hand():
    # Without z what is left is A and A + B: r = 1 / sqrt 2, t = sqrt 5 with 5 df, p = 0.0756.
    found = partial_correlation(Z + A, Z + A + B, Z[:, None])
    assert found.value == pytest.approx(math.sqrt(0.5))
    assert found.df == 5
    assert found.p == pytest.approx(0.07559, abs=1e-5)
    columns = np.column_stack([Z + A, Z + A + B, Z])
    assert partial_coefficients(columns, np.ones((1, 8)))[0] == pytest.approx(math.sqrt(0.5))


def test_a_confounder_can_explain_all_of_a_relation():
    assert coefficients(Z + A, Z + B)[0, 0] == pytest.approx(0.5)
    assert partial_correlation(Z + A, Z + B, Z[:, None]).value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("confounders", "reason"),
    [
        (np.ones((8, 1)), "constant"),
        (np.column_stack([Z, 2 * Z]), "follows from the others"),
        ((Z + A)[:, None], "explain all of the accuracy"),
        ((Z + B)[:, None], "explain all of the quality"),
        (np.column_stack([Z, A, B, Z * A, Z * B]), "needs 9 RMs, has 8"),
    ],
)
def test_partial_correlations_that_mean_nothing_are_refused(confounders, reason):
    found = partial_correlation(Z + A, Z + B, confounders)
    assert found.value is None
    assert reason in found.reason


def test_a_sample_without_enough_models_has_no_partial_correlation():
    weights = np.array([[8.0, 0, 0, 0, 0, 0, 0, 0], [1.0] * 8])
    found = partial_coefficients(np.column_stack([Z + A, Z + B, Z]), weights)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(0, abs=1e-12)


def units(table, part="items", share=1.0):
    """Rows of a table of values, one line for each model."""
    rows = [
        (model, part, share, str(item), value)
        for model, values in enumerate(table)
        for item, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=UNITS_SCHEMA, orient="row")


def test_reliability_is_cronbachs_alpha():
    # Mean squares 7/12 between models and 5/36 left over: 1 - 5/21.
    scores = make_scores("x", units([(1, 1, 1, 0), (1, 0, 1, 0), (0, 0, 0, 0)]), 3)
    assert scores.values == pytest.approx([0.75, 0.5, 0.0])
    assert reliability(scores) == pytest.approx(16 / 21)


def test_error_that_all_models_share_is_no_unreliability():
    easy_or_hard = [(1, 0.8, 0.4, 0.2), (0.8, 0.6, 0.2, 0.0)]
    assert reliability(make_scores("x", units(easy_or_hard), 2)) == pytest.approx(1.0)
    assert reliability(known_scores("x", [0.1, 0.4])) is None


def test_parts_count_alike_and_failures_are_counted():
    table = pl.concat(
        [units([(1.0, 1.0, 1.0), (1.0, None, 0.0)], "A", 0.5), units([(0.0,), (0.5,)], "B", 0.5)]
    )
    scores = make_scores("y", table, 3, "prompts")
    assert scores.values[:2] == pytest.approx([0.5, 0.5])
    assert math.isnan(scores.values[2])
    assert scores.n.tolist() == [4, 3, 0]
    assert scores.n_excluded.tolist() == [0, 1, 0]


def test_a_model_without_a_whole_part_has_no_value():
    table = pl.concat([units([(1.0,), (1.0,)], "A", 0.5), units([(0.0,)], "B", 0.5)])
    assert np.isnan(make_scores("y", table, 2).values).tolist() == [False, True]


def test_models_share_the_draws_of_items():
    values = np.random.default_rng(0).integers(0, 2, 50).astype(float)
    draws = replicates(make_scores("x", units([values, 1 - values]), 2), 0, 100)
    assert draws.sum(axis=1) == pytest.approx(np.ones(100))
    assert draws[:, 0].std() > 0.03


def test_families_are_drawn_whole():
    families = family_codes(["a", None, "a", None, "b"])
    assert families.tolist() == [0, 1, 0, 2, 3]
    draws = draw_models(families, 0, "", 200)
    assert (draws[:, 0] == draws[:, 2]).all()
    assert (draws[:, [0, 1, 3, 4]].sum(axis=1) == 4).all()
    assert without_families(families)[0].tolist() == [0, 1, 0, 1, 1]
    assert family_means(np.array([1.0, 2, 3, 4, 5]), families).tolist() == [2, 2, 4, 5]


def test_bca_without_bias_and_skew_is_the_percentile_interval():
    draws = np.linspace(0, 1, 1001)
    found = bca(draws, 0.5, np.array([0.4, 0.5, 0.6]))
    assert (found.low, found.high) == pytest.approx((0.025, 0.975), abs=1e-3)


def test_bca_moves_against_the_bias():
    # A quarter of the resamples lie below the value: both ends move up by twice ndtri(1 - 1/4).
    found = bca(np.linspace(0, 1, 10_001), 0.25, np.array([0.2, 0.25, 0.3]))
    expected = [
        0.5 * math.erfc(-(2 * -0.6744898 + z) / math.sqrt(2)) for z in (-1.959964, 1.959964)
    ]
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-3)


def test_basic_interval_turns_the_distances_around():
    found = basic(np.linspace(0.2, 0.6, 401), 0.6)
    assert (found.low, found.high) == pytest.approx((1.2 - 0.59, 1.2 - 0.21))
    assert basic(np.linspace(0.0, 0.6, 401), 0.9).high == 1.0


def test_no_interval_where_most_resamples_are_undefined():
    draws = np.array([np.nan, np.nan, np.nan, 0.1])
    assert bca(draws, 0.1, np.zeros(3)) is None
    assert basic(draws, 0.1) is None


def test_the_interval_of_a_square():
    assert squared(Bounds(-0.2, 0.5)) == Bounds(0.0, 0.25)
    assert squared(Bounds(-0.8, -0.5)) == Bounds(pytest.approx(0.25), pytest.approx(0.64))


def test_coverage_of_the_interval_over_models():
    random, hits = np.random.default_rng(5), 0
    for _ in range(80):
        x = random.normal(size=15)
        y = 0.7 * x + math.sqrt(1 - 0.49) * random.normal(size=15)
        weights = random.multinomial(15, np.full(15, 1 / 15), size=400).astype(float)
        r, left = coefficients(x, y)[0, 0], coefficients(x, y, 1 - np.eye(15))[:, 0]
        found = bca(coefficients(x, y, weights)[:, 0], r, left)
        hits += found.low <= 0.7 <= found.high
    assert hits >= 69  # 95 % of 80 is 76, with a standard error of 2


def pair(x, y, families=None, **options):
    names = [f"rm-{index}" for index in range(len(x))]
    measures = known_scores("bench", x), known_scores("task", y)
    return correlate(*measures, names, families or [None] * len(x), seed=0, **options)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([0.1, 0.2], [0.3, 0.4], "needs 3 RMs that have both, has 2"),
        ([0.1, 0.2, None], [0.3, 0.4, 0.5], "needs 3 RMs that have both, has 2"),
        ([0.2, 0.2, 0.2], [0.3, 0.4, 0.5], "all RMs have the same accuracy"),
        ([0.1, 0.2, 0.3], [0.5, 0.5, 0.5], "all RMs have the same quality"),
    ],
)
def test_what_cannot_be_correlated_has_a_reason(x, y, reason):
    found = pair(x, y)
    assert found.reason == reason
    assert found.pearson is None
    assert with_holm([found])[0].p_holm is None


def test_models_that_lack_a_value_are_named():
    found = pair([0.1, 0.2, 0.4, None], [0.3, None, 0.5, 0.6])
    assert found.missing == (("rm-1", "no task"), ("rm-3", "no bench"))
    assert [point.label for point in found.points] == ["rm-0", "rm-2"]


def test_fewer_than_five_models_have_no_interval_over_them():
    found = pair((FOUR / 10).tolist(), (SWAPPED / 10).tolist())
    assert found.pearson.value == pytest.approx(0.8)
    assert found.pearson.over_models is None
    assert found.pearson.over_items is None  # known values have no items to resample
    assert found.pearson.p == pytest.approx(8 / 24)


def test_the_permutation_test_of_families_is_of_their_means():
    # Three families with means in line: of six orders two are as extreme.
    x, y = [0.1, 0.3, 0.4, 0.6], [0.1, 0.3, 0.4, 0.6]
    found = pair(x, y, ["a", "a", None, None])
    assert found.n_families == 3
    assert found.pearson.p == pytest.approx(1 / 3)
    assert found.pearson.of_means == pytest.approx(1.0)
    assert pair(x, y).pearson.of_means is None
    assert pair(x, y).pearson.p == pytest.approx(2 / 24)


def test_a_family_widens_the_interval():
    random = np.random.default_rng(3)
    x = np.repeat(random.normal(size=6), 4) + 0.05 * random.normal(size=24)
    y = np.repeat(random.normal(size=6), 4) + 0.05 * random.normal(size=24)
    alone = pair(x.tolist(), y.tolist()).pearson.over_models
    grouped = pair(x.tolist(), y.tolist(), [str(i // 4) for i in range(24)]).pearson.over_models
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)


def test_disattenuation_divides_by_the_root_of_both_reliabilities():
    random = np.random.default_rng(2)
    table = [(random.random(60) < p).astype(float) for p in np.linspace(0.2, 0.8, 9)]
    x, y = make_scores("x", units(table), 9), make_scores("y", units(table[::-1]), 9)
    found = correlate(x, y, [str(i) for i in range(9)], [None] * 9, seed=0, resamples=50)
    r = found.pearson.value
    expected = r / math.sqrt(found.reliability_x * found.reliability_y)
    assert found.disattenuated == pytest.approx(expected)
    assert found.pearson.over_items.low <= r <= found.pearson.over_items.high


def test_confounders_alone_and_together():
    x, y = known_scores("bench", (Z + A).tolist()), known_scores("task", (Z + B).tolist())
    half = np.where(np.arange(8) < 4, A * B, np.nan)
    rows = hold_fixed(
        x, y, {"size": Z, "half": half, "none": np.full(8, np.nan)}, [None] * 8, seed=0
    )
    assert [row.confounders for row in rows] == [("size",), ("half",), ("none",), ("size", "half")]
    size = rows[0]
    assert (size.n, size.df, size.plain) == (8, 5, pytest.approx(0.5))
    assert (size.with_accuracy, size.with_quality) == pytest.approx((0.5**0.5, 0.5**0.5))
    assert size.value == pytest.approx(0, abs=1e-12)
    assert size.bounds.low < 0 < size.bounds.high
    assert "needs 5 RMs, has 4" in rows[1].reason
    assert "needs 5 RMs, has 0" in rows[2].reason
    assert "needs 6 RMs, has 4" in rows[3].reason


def test_two_benchmarks_on_the_same_models():
    random = np.random.default_rng(4)
    good = random.normal(size=12)
    outcome = good + 0.3 * random.normal(size=12)
    other = random.normal(size=12)
    scores = [
        known_scores(name, values.tolist())
        for name, values in (("good", good), ("other", other), ("task", outcome))
    ]
    found = versus(*scores, [None] * 12, seed=0)
    assert found.r_first == pytest.approx(np.corrcoef(good, outcome)[0, 1])
    assert found.difference == pytest.approx(found.r_first - found.r_second)
    expected = steiger_z(found.r_first, found.r_second, found.r_between, 12)
    assert (found.z, found.p) == expected
    assert found.over_models.low > 0
    turned = versus(scores[1], scores[0], scores[2], [None] * 12, seed=0)
    assert turned.z == pytest.approx(-found.z)


def test_comparisons_that_mean_nothing_are_refused():
    short = [known_scores(name, [0.1, 0.3, 0.2, None]) for name in "abc"]
    assert "needs 4 RMs" in versus(*short, [None] * 4, seed=0).reason
    same = [known_scores("a", FOUR.tolist()), known_scores("b", [1.0] * 4), short[2]]
    assert versus(*same[:2], known_scores("c", SWAPPED.tolist()), [None] * 4, seed=0).reason == (
        "b is the same for all RMs"
    )
    perfect = [known_scores(name, FOUR.tolist()) for name in "ab"]
    found = versus(*perfect, known_scores("c", SWAPPED.tolist()), [None] * 4, seed=0)
    assert found.z is None
    assert "not defined" in found.reason


def judged(picks, longest, best):
    """Tables of items with two candidates, "a" and "b"."""
    names = [str(index) for index in range(len(picks))]
    right = [1.0 if one == other else 0.0 for one, other in zip(longest, best, strict=True)]
    items = pl.DataFrame(
        {"item_id": names, "n_candidates": 2, "chance": 0.5, "longest_credit": right}
    )
    winners = [[] if pick is None else [pick] for pick in picks]
    judgements = pl.DataFrame(
        {"item_id": names, "winner_ids": winners},
        schema_overrides={"winner_ids": pl.List(pl.String)},
    )
    long = pl.DataFrame({"item_id": names, "longest_ids": [[one] for one in longest]})
    return items, judgements, long


def test_length_bias_of_an_accurate_model_is_none_whatever_the_benchmark():
    # The longest is right in one of four items only.
    assert length_bias(*judged("abbb", "aaaa", "abbb")) == pytest.approx(0.0)


def test_length_bias_of_always_and_never_the_longest():
    assert length_bias(*judged("aaaa", "aaaa", "abbb")) == pytest.approx(0.5)
    assert length_bias(*judged("bbbb", "aaaa", "abbb")) == pytest.approx(-0.5)


def test_length_bias_of_half_wrong_picks_by_hand():
    # Right where the longest is right; of three others the longest is picked once: 1/2 + 1/6 - 1/2.
    assert length_bias(*judged("aabb", "aaaa", "abbb")) == pytest.approx(1 / 6)


def test_length_bias_that_cannot_be_told():
    assert length_bias(*judged([None, None], "aa", "ab")) is None
    assert length_bias(*judged("ab", "aa", "aa")) is None
