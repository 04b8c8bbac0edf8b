"""SCPO's filter and weights, and which pairs a unit sees."""

import numpy as np
import pytest

from habitus.errors import InputError, UnknownNameError
from habitus.train.fitting import Settings
from habitus.train.losses import confidence_weight, filter_mask, preference_probability, weigh
from habitus.train.study import Unit, choose, held_out, shard_of, slim, training_pairs
from tests.training import make_pair, make_pairs

nan = float("nan")


def test_behaviour_19_weights():
    found = confidence_weight(np.array([0.0, 0.5, 0.0]), np.array([1.10, 0.0, 0.0]), 1.10)
    assert found == pytest.approx([0.367879, 1.0, 1.0], abs=1e-6)


def test_behaviour_19_exactly_tau_is_dropped():
    p = preference_probability(np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]))
    assert p == pytest.approx([0.5, 0.268941, 0.731059], abs=1e-6)
    assert filter_mask(p, 0.5).tolist() == [False, True, False]


def test_behaviour_19_large_scores_stay_numbers():
    chosen, rejected = np.array([1000.0, -1000.0]), np.array([-1000.0, 1000.0])
    found = weigh("scpo", chosen, rejected)
    assert found.p.tolist() == [1.0, 0.0]
    assert found.weight.tolist() == [1.0, 0.0]
    assert found.kept.tolist() == [False, True]


@pytest.mark.parametrize(
    ("variant", "weight", "kept"),
    [
        ("scpo", [1.0, 0.367879], [False, True]),
        ("filter", [1.0, 1.0], [False, True]),
        ("weight", [1.0, 0.367879], [True, True]),
        ("inverse", [0.367879, 1.0], [True, True]),
        ("finetune", [1.0, 1.0], [True, True]),
    ],
)
def test_variants(variant, weight, kept):
    found = weigh(variant, np.array([1.1, 0.0, nan]), np.array([0.0, 1.1, 0.0]))
    assert found.weight[:2] == pytest.approx(weight, abs=1e-6)
    # Without global rewards only plain fine-tuning can use a pair.
    assert found.kept.tolist() == [*kept, variant == "finetune"]


def test_wrong_names_and_numbers():
    with pytest.raises(UnknownNameError, match="did you mean scpo"):
        weigh("scop", np.zeros(1), np.zeros(1))
    with pytest.raises(InputError, match="--beta 0"):
        weigh("scpo", np.zeros(1), np.zeros(1), beta=0)
    with pytest.raises(InputError, match="--lr -1"):
        Settings(lr=-1).check()


def test_folds_and_parts_hold_out_what_they_say():
    pair = make_pair(1)  # question 0: fold 0, part "test"
    assert [held_out(pair, fold) for fold in (0, 1, "split")] == [True, False, True]
    bare = make_pair(1, fold=None, split=None)
    assert [held_out(bare, fold) for fold in (0, "split")] == [None, None]


def test_a_smaller_share_is_a_part_of_a_larger_one_in_whole_groups():
    pairs = make_pairs(80, ("Chile",))
    found = {}
    for share in (0.25, 0.5, 1.0):
        chosen = training_pairs(pairs, Unit("Chile", "scpo", 0, 0, share), None)
        found[share] = {pair.id for pair in chosen}
        assert all(pair.fold == 1 for pair in chosen)
    # 40 questions, 20 of them in fold 1, 2 pairs each.
    assert {share: len(ids) for share, ids in found.items()} == {0.25: 10, 0.5: 20, 1.0: 40}
    assert found[0.25] < found[0.5] < found[1.0]
    limited = training_pairs(pairs, Unit("Chile", "scpo", 0, 0, 1.0), 7)
    assert len(limited) == 7


def test_what_is_asked_for_is_checked_against_the_pairs():
    pairs = make_pairs()
    grid = choose(pairs, ["all"], ["all"], [], [1, 1, 2], [0.5, 1.0])
    assert grid.countries == ("Chile", "Israel")
    assert grid.folds == (0, 1)
    assert grid.seeds == (1, 2)
    assert grid.shares == (1.0, 0.5)
    assert len(grid.units()) == 2 * 5 * 2 * 2 * 2
    assert choose(pairs, [], ["weight"], ["split"], [], []).folds == ("split",)
    for asked, message in (
        ({"countries": ["Chille"]}, "did you mean Chile"),
        ({"folds": ["7"]}, "unknown fold '7'"),
        ({"variants": ["weights"]}, "did you mean weight"),
        ({"shares": [0.0]}, "--share 0: must be above 0"),
    ):
        values = {"countries": [], "variants": [], "folds": [], "seeds": [], "shares": []} | asked
        with pytest.raises(InputError, match=message):
            choose(pairs, **values)
    with pytest.raises(InputError, match="no pair has a country"):
        choose([], [], [], [], [], [])


def test_shards_and_names():
    units = choose(make_pairs(), [], [], [], [], [0.125]).units()
    assert [*shard_of(units, (1, 2)), *shard_of(units, (2, 2))] != units
    assert {*shard_of(units, (1, 2)), *shard_of(units, (2, 2))} == {*units}
    assert units[0].name == "Chile--scpo--fold0--seed0--share12.5"
    assert Unit("New Zealand", "scpo", "split", 0, 1).name.startswith(
        "New-Zealand--scpo--foldsplit"
    )
    assert "chosen" not in slim(make_pair(1))


def test_training_keeps_off_attention_whose_gradients_can_be_no_numbers():
    torch = pytest.importorskip("torch")
    from habitus.train.attention import sound_attention

    enabled = torch.backends.cuda.cudnn_sdp_enabled
    before = enabled()
    with sound_attention():
        assert not enabled()
    assert enabled() == before
