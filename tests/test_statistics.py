"""Intervals and tests against values worked out by hand, and by simulation."""

import math

import numpy as np
import pytest
from scipy import sparse

from habitus.metrics import bootstrap, statistics
from habitus.metrics.bootstrap import (
    cluster_sums,
    difference_interval,
    estimate,
    merge_clusters,
    resample,
)
from habitus.metrics.compare import paired
from habitus.metrics.statistics import (
    agresti_min,
    chance_p,
    detectable_correlation,
    detectable_difference,
    holm,
    sign_flip_p,
    wilson,
)

ONE = sparse.csr_array(np.ones((1, 1)))


def counts(*numbers):
    return np.array(numbers, dtype=np.int64)


def merged(values, cluster=None, cell=None, n_cells=1):
    values = np.asarray(values, dtype=np.float64)
    cluster = np.arange(len(values)) if cluster is None else np.asarray(cluster)
    cell = np.zeros(len(values), dtype=np.int64) if cell is None else np.asarray(cell)
    return merge_clusters(cluster, cell, values, n_cells)


def test_wilson_by_hand():
    # z^2 = 3.8415; p = 1/2, n = 10: half width = z sqrt(0.025 + z^2/400) / (1 + z^2/10) = 0.2634.
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    # All right: lower bound n / (n + z^2) = 4 / 7.8415.
    assert wilson(1.0, 4) == pytest.approx((0.5101, 1.0), abs=1e-4)
    assert wilson(0.0, 4) == pytest.approx((0.0, 0.4899), abs=1e-4)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03 times 3, 2, 1 gives 0.03, 0.04, 0.03, made monotone: 0.03, 0.04, 0.04.
    assert holm([0.03, None, 0.01, 0.02]) == pytest.approx((0.04, None, 0.03, 0.04))
    assert holm([0.6, 0.5]) == (1.0, 1.0)
    assert holm([]) == ()
    assert holm([None]) == (None,)


def test_detectable_difference_by_hand():
    # (1.95996 + 0.84162) sqrt(2 x 0.25 / 392) = 2.80159 x 0.035714.
    assert detectable_difference(0.5, 392) == pytest.approx(0.10006, abs=1e-5)
    for accuracy, n in ((None, 0), (0.5, 0), (0.0, 9), (1.0, 9)):
        assert detectable_difference(accuracy, n) is None


def test_detectable_correlation_by_hand():
    # tanh(2.80159 / sqrt(12)).
    assert detectable_correlation(15) == pytest.approx(0.66882, abs=1e-4)
    assert detectable_correlation(3) is None


def test_agresti_min_by_hand():
    # b = 3, c = 1, n = 10: centre 2/12, variance (4 + 1)/12 - 1/36 = 14/36, over 12.
    low, high = agresti_min(np.array([1.0, -1.0, 0.0]), counts(3, 1, 6), 10)
    half = 1.959964 * math.sqrt(14 / 36 / 12)
    assert (low, high) == pytest.approx((1 / 6 - half, 1 / 6 + half))
    low, high = agresti_min(np.array([0.0]), counts(5), 5)
    assert low == -high < 0


def test_sign_flip_is_exact_mcnemar_for_one_size():
    # 5 against 1: 2 (1 + 6) / 64.
    assert sign_flip_p(np.array([1.0, -1.0, 0.0]), counts(5, 1, 50), 0, "x") == pytest.approx(
        14 / 64
    )
    assert sign_flip_p(np.array([0.0]), counts(50), 0, "x") == 1.0
    assert sign_flip_p(np.array([1.0, -1.0]), counts(3, 3), 0, "x") == 1.0
    assert sign_flip_p(np.zeros(0), counts(), 0, "x") is None


def test_sign_flip_monte_carlo_by_hand():
    # Sums 1, 1, 0.5: of the 8 sign patterns two reach |2.5|: p = 1/4.
    assert sign_flip_p(np.array([1.0, 0.5]), counts(2, 1), 0, "x") == pytest.approx(0.25, abs=0.006)
    # Sums 1, -0.5: every pattern gives 0.5 or 1.5, all at least 0.5.
    assert sign_flip_p(np.array([1.0, -0.5]), counts(1, 1), 0, "x") == 1.0
    # Thirds: 1/3 + 2/3 against 1 is 0, whatever the rounding.
    sums = np.array([1 / 3, 2 / 3, -1.0])
    assert sign_flip_p(sums, counts(1, 1, 1), 0, "x") == 1.0


def test_chance_by_hand():
    one, quarter = counts(1), np.array([0.25])
    # Four of four right at 1/4: distance 3, reached from above only: 1/256.
    assert chance_p(4.0, one, quarter, counts(4), 0, "x") == pytest.approx(1 / 256)
    # None of four right: distance 1, so 0 right (81/256) or 2 and more (54 + 12 + 1)/256.
    assert chance_p(0.0, one, quarter, counts(4), 0, "x") == pytest.approx(148 / 256)
    # Exactly as expected, and shared credit that no count of right picks gives.
    assert chance_p(1.0, one, quarter, counts(4), 0, "x") == 1.0
    assert chance_p(2.5, one, quarter, counts(4), 0, "x") == pytest.approx(13 / 256)
    assert chance_p(0.0, counts(), np.zeros(0), counts(), 0, "x") is None
    # A cluster of four that is right together counts as one pick: p = 1/4.
    assert chance_p(4.0, counts(4), quarter, counts(1), 0, "x") == pytest.approx(0.25)
    # Picks at 1/4 and at 1/2, both right: 1/8; expected 3/4, so 0 right is as far off only
    # when 3/4 >= 5/4, which it is not.
    mixed = chance_p(2.0, counts(1, 1), np.array([0.25, 0.5]), counts(1, 1), 0, "x")
    assert mixed == pytest.approx(1 / 8, abs=0.005)


def test_equal_clusters_are_merged():
    # Clusters: {0: 1, 1: 0}, {0: 1, 1: 0} in another order of items, {0: 1}.
    found = merged([1, 0, 0, 1, 1], [7, 7, 3, 3, 5], [0, 1, 1, 0, 0], 2)
    assert sorted(found.multiplicity.tolist()) == [1, 2]
    assert found.n == 3
    assert (found.multiplicity @ found.sums).tolist() == [3.0, 0.0]
    assert (found.multiplicity @ found.counts).tolist() == [3.0, 2.0]


def test_order_of_items_changes_nothing():
    random = np.random.default_rng(1)
    values, cluster = random.choice([0, 0.5, 1], 500), random.integers(0, 90, 500)
    cell = random.integers(0, 3, 500)
    order = random.permutation(500)
    weights = sparse.csr_array(np.eye(3))
    one = estimate(merged(values, cluster, cell, 3), weights, 4, "x")
    renamed = 1000 - cluster
    two = estimate(merged(values[order], renamed[order], cell[order], 3), weights, 4, "x")
    assert one == two
    assert one != estimate(merged(values, cluster, cell, 3), weights, 5, "x")


@pytest.mark.parametrize("cost", [0, 10**9])
def test_merged_bootstrap_agrees_with_a_loop(monkeypatch, cost):
    """Both ways of drawing, against resampling the clusters one by one."""
    monkeypatch.setattr(bootstrap, "_MULTINOMIAL_COST", cost)
    random = np.random.default_rng(2)
    cluster = np.repeat(np.arange(60), random.integers(1, 5, 60))
    values = np.where(random.random(60)[cluster] < 0.6, 1.0, random.choice([0, 0.25], len(cluster)))
    cell = random.integers(0, 2, len(cluster))
    weights = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 0.0]]))
    fast = resample(merged(values, cluster, cell, 2), weights, 0, "x", 4000)
    loop = np.empty((4000, 2))
    members = [np.flatnonzero(cluster == name) for name in range(60)]
    for row in loop:
        picked = np.concatenate([members[name] for name in random.integers(0, 60, 60)])
        row[:] = values[picked].mean(), values[picked][cell[picked] == 0].mean()
    assert fast.mean(axis=0) == pytest.approx(loop.mean(axis=0), abs=0.005)
    assert fast.std(axis=0) == pytest.approx(loop.std(axis=0), rel=0.06)
    assert np.corrcoef(fast.T)[0, 1] == pytest.approx(np.corrcoef(loop.T)[0, 1], abs=0.05)


def test_correlated_clusters_widen_the_interval():
    values = np.repeat(np.tile([1.0, 0.0], 50), 4)  # 100 clusters of 4 alike
    [alone] = estimate(merged(values), ONE, 0, "x")
    [together] = estimate(merged(values, np.arange(400) // 4), ONE, 0, "x")
    assert alone.interval == together.interval == "bootstrap"
    # Four alike items are worth one: twice as wide.
    ratio = (together.high - together.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ([1.0] * 20 + [0.0] * 20, "bootstrap"),
        ([1.0] * 14 + [0.0] * 15, "wilson"),  # 29 clusters
        ([1.0] * 100, "wilson"),
        ([1.0] * 91 + [0.0] * 9, "wilson"),  # 9 wrong
        ([1.0] * 90 + [0.0] * 10, "bootstrap"),
        ([0.25] * 100, "wilson"),  # no spread
    ],
)
def test_interval_fits_the_group(values, interval):
    [found] = estimate(merged(values), ONE, 0, "x")
    assert found.interval == interval
    assert found.value == pytest.approx(np.mean(values))
    assert found.low < found.value
    assert found.value < found.high or found.high == 1
    if interval == "wilson":
        assert (found.low, found.high) == wilson(found.value, len(values))


def test_effective_clusters_by_hand():
    # Sizes 3, 1: (3 + 1)^2 / (9 + 1) = 1.6.
    [found] = estimate(merged([1, 1, 1, 0], [0, 0, 0, 1]), ONE, 0, "x")
    assert found.clusters == pytest.approx(1.6)


def test_empty_group_and_empty_input():
    [one, two] = estimate(merged([1.0], n_cells=2), sparse.csr_array(np.eye(2)), 0, "x")
    assert (one.value, two.value, two.low, two.interval) == (1.0, None, None, None)
    [none] = estimate(merged([]), ONE, 0, "x")
    assert none.value is None
    assert difference_interval(merged([]), 0, "x") is None


def test_difference_interval_of_identical_runs_has_width():
    low, high = difference_interval(merged([0.0] * 100), 0, "x")
    assert low == -high < 0


def test_a_difference_of_no_shares_has_the_bootstraps_interval_or_none():
    few = [0.0] * 98 + [20.0] * 2  # agresti_min's would end at 1
    assert difference_interval(merged(few), 0, "x", share=False) is None
    assert difference_interval(merged([5.0] * 20), 0, "x", share=False) is None  # clusters
    values = np.random.default_rng(0).normal(3.0, 1.0, 100)
    low, high = difference_interval(merged(values), 0, "x", share=False)
    assert low < values.mean() < high < 4
    assert (low, high) == difference_interval(merged(values), 0, "x")
    row = paired("a", "b", np.array(few), np.arange(100), 0, 0, share=False)
    assert (row.difference, row.ci_low, row.ci_high, row.detectable) == (0.4, None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
def test_paired_test_rejects_a_true_null_about_one_time_in_twenty(monkeypatch, size):
    monkeypatch.setattr(statistics, "MAX_DRAWS", 9_999)
    random = np.random.default_rng(3)
    cluster = np.arange(200) // size
    rejected = 0
    for seed in range(400):
        shares = random.random(200 // size)[cluster]
        both = random.random((2, 200)) < shares
        half = random.choice([0.5, 1.0], 200)
        found = merged((both[0].astype(float) - both[1]) * half, cluster)
        sums, _ = cluster_sums(found)
        rejected += sign_flip_p(sums, found.multiplicity, seed, "x") <= 0.05
    assert 0.025 < rejected / 400 < 0.08


@pytest.mark.parametrize("few", [[20], [10, 10]])
def test_chance_test_has_its_size_under_random_picking(monkeypatch, few):
    """Every possible total, weighted with its exact probability."""
    monkeypatch.setattr(statistics, "MAX_DRAWS", 9_999)
    chances, numbers = np.array([0.25, 0.5])[: len(few)], counts(*few)
    probabilities = np.ones(1)
    for n, chance in zip(few, chances.tolist(), strict=True):
        picks = [math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1)]
        probabilities = np.convolve(probabilities, picks)
    ones = np.ones_like(numbers)
    mean, size = float(numbers @ chances), 0.0
    for total, probability in enumerate(probabilities):
        p = chance_p(float(total), ones, chances, numbers, 0, "x")
        far = np.abs(np.arange(21) - mean) >= abs(total - mean) - 1e-9
        assert p == pytest.approx(probabilities[far].sum(), abs=0.02)
        size += probability * (p <= 0.05)
    assert 0.01 < size <= 0.05


def test_a_coin_is_drawn_as_the_binomial_draws_it():
    """Figures made before the shortcut stay what they were, to the byte."""
    for seed in range(5):
        coin, binomial = np.random.default_rng(seed), np.random.default_rng(seed)
        assert ((coin.random(9999) > 0.5) == binomial.binomial(1, 0.5, 9999)).all()
        assert coin.random() == binomial.random()
