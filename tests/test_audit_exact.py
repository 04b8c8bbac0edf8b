"""The exact test against chance, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from habitus.audit import exact
from habitus.audit.exact import combined, upper_p


def p(
    credit: list[float], sizes: list[int], best: list[int], tied: list[int], cluster: list[int]
) -> float | None:
    whole = [np.array(part, dtype=np.int64) for part in (sizes, best, tied, cluster)]
    return upper_p(np.array(credit), *whole, seed=0, purpose="test")


def test_two_right_of_two() -> None:
    assert p([1, 1], [4, 4], [1, 1], [1, 1], [0, 1]) == pytest.approx(1 / 16)
    assert p([1, 0], [4, 4], [1, 1], [1, 1], [0, 1]) == pytest.approx(7 / 16)
    assert p([0, 0], [4, 4], [1, 1], [1, 1], [0, 1]) == 1.0


def test_items_of_one_parent_are_one_pick() -> None:
    assert p([1, 1], [4, 4], [1, 1], [1, 1], [0, 0]) == pytest.approx(1 / 4)


def test_ties_share() -> None:
    # One of four is right, two tie: credit 1/2 with probability 1/2.
    assert p([0.5], [4], [1], [2], [0]) == pytest.approx(1 / 2)
    # With an item of no tie (1 with 1/4): 1.5 needs both, 1 needs the second.
    assert p([1, 0.5], [4, 4], [1, 1], [1, 2], [0, 1]) == pytest.approx(1 / 8)
    assert p([1, 0.0], [4, 4], [1, 1], [1, 2], [0, 1]) == pytest.approx(1 / 4)
    # All tie: the credit is chance whatever is right.
    assert p([0.25, 0.25], [4, 4], [1, 1], [4, 4], [0, 1]) == pytest.approx(1.0)


def test_several_right_ones_and_sizes() -> None:
    # Two of four right, two tie: both right 1/6, one right 4/6.
    assert p([1], [4], [2], [2], [0]) == pytest.approx(1 / 6)
    assert p([0.5], [4], [2], [2], [0]) == pytest.approx(5 / 6)
    # Two candidates and four candidates, both right: 1/2 x 1/4.
    assert p([1, 1], [2, 4], [1, 1], [1, 1], [0, 1]) == pytest.approx(1 / 8)
    # Thirds: three tie of four, one right among them in both items.
    third = 1 / 3
    assert p([third, third], [4, 4], [1, 1], [3, 3], [0, 1]) == pytest.approx(9 / 16)


def test_a_long_distribution_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MAX_LATTICE", 0)
    drawn = p([1, 0.5], [4, 4], [1, 1], [1, 2], [0, 1])
    assert drawn == pytest.approx(1 / 8, abs=0.006)  # five standard errors of 99,999 draws


def test_no_items_no_p() -> None:
    assert p([], [], [], [], []) is None


def test_many_items_do_not_lose_the_tail() -> None:
    # 200 right of 200 is (1/4)^200; what is below the floor is the floor.
    right = [1.0] * 200 + [0.5]
    ones = [1] * 200
    found = p(right, [4] * 201, [1] * 201, [*ones, 2], list(range(201)))
    assert found == exact.FLOOR


def test_p_values_of_parts_are_combined() -> None:
    assert combined([0.03], [5]) == 0.03
    # e times the geometric mean: e x 0.01, and e x 0.1^(1/4) x 0.001^(3/4).
    assert combined([0.01, 0.01], [5, 5]) == pytest.approx(0.0271828)
    assert combined([0.1, 0.001], [1, 3]) == pytest.approx(2.7182818 * 10**-2.5)
    assert combined([0.9, 0.9], [1, 1]) == 1.0
