"""`take`: a deterministic, nested, stratified sample in the benchmark's order."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from habitus.data import take
from habitus.errors import InputError
from habitus.types import Candidate, Item, Message


def item(id, culture=None, domain=None):
    return Item(
        id=id,
        prompt=(Message(role="user", content="?"),),
        candidates=(Candidate(id="a", text="1"), Candidate(id="b", text="2")),
        best_ids=("a",),
        culture=culture,
        domain=domain,
    )


ITEMS = [
    item(f"{culture}-{domain}-{n}", culture, domain)
    for culture, size in (("Thai", 50), ("Arabic", 5), (None, 5))
    for domain in ("values", "safety")
    for n in range(size)
]


@pytest.mark.parametrize("limit", [None, 120, 1000])
def test_all(limit):
    assert take(ITEMS, limit, 0) == tuple(ITEMS)


def test_spread_over_strata():
    # 6 strata; 24 = 4 rounds, and every stratum has at least 5 items.
    drawn = Counter((one.culture, one.domain) for one in take(ITEMS, 24, 0))
    assert len(drawn) == 6
    assert set(drawn.values()) == {4}


def test_small_strata_give_way():
    # 6 rounds of 6 strata would be 36, but four strata have 5 items: 4 * 5 + 2 * 8.
    drawn = Counter(one.culture for one in take(ITEMS, 36, 0))
    assert drawn == {"Thai": 16, "Arabic": 10, None: 10}


def test_deterministic_and_seeded():
    assert take(ITEMS, 10, 1) == take(ITEMS, 10, 1)
    assert take(ITEMS, 10, 1) != take(ITEMS, 10, 2)


def test_nested():
    samples = [{one.id for one in take(ITEMS, n, 3)} for n in range(1, 60)]
    assert [len(sample) for sample in samples] == list(range(1, 60))
    assert all(small < large for small, large in itertools.pairwise(samples))


def test_order_is_the_benchmarks():
    drawn = take(ITEMS, 17, 0)
    assert list(drawn) == [one for one in ITEMS if one in drawn]
    backwards = take(ITEMS[::-1], 17, 0)
    assert backwards == drawn[::-1]


def test_a_single_item_is_not_always_of_the_same_stratum():
    assert len({take(ITEMS, 1, seed)[0].culture for seed in range(30)}) > 1


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one(limit):
    with pytest.raises(InputError, match="at least 1"):
        take(ITEMS, limit, 0)


def test_empty():
    assert take([], 5, 0) == ()
