"""Figures of country reward models, all worked out by hand."""

from __future__ import annotations

import json
import math

import pytest
from pydantic_core import to_jsonable_python

from habitus.errors import InputError, UnknownNameError
from habitus.metrics.preferences import accuracy, credit_table
from habitus.metrics.preferences_benchmarks import benchmarks
from habitus.metrics.preferences_data import (
    curves,
    efficiency,
    kept_shares,
    share_reaching,
    weights,
)
from habitus.metrics.preferences_read import read_study
from habitus.metrics.preferences_steering import steering
from habitus.metrics.preferences_summary import summarise_study
from tests.preference_samples import lines, two_countries, unit_folder, write_study

RIGHT, WRONG, TIE = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)

# The base: right on A1, wrong on A2 and A3, a tie on A4; right on B1, B2, B3, wrong on B4.
BASE = {
    "A1": RIGHT, "A2": WRONG, "A3": WRONG, "A4": TIE,
    "B1": RIGHT, "B2": RIGHT, "B3": RIGHT, "B4": WRONG,
}  # fmt: skip


def score(country, variant, seed, share, pair):
    """scpo is right on its own country but for A1 under seed 1; elsewhere it says as the base.

    Fine-tuning says as the base, and fails on B1.
    """
    name = pair["pair"]
    if variant == "scpo" and pair["country"] == country:
        return WRONG if (name, seed) == ("A1", 1) else RIGHT
    if variant == "finetune" and name == "B1":
        return None
    return BASE[name]


@pytest.fixture
def out(tmp_path):
    return write_study(tmp_path / "out", two_countries(), BASE, score, seeds=(0, 1))


def value(found, name, **group):
    (metric,) = [each for each in found.metrics if each.name == name and each.group == group]
    return metric


def test_accuracy_by_hand(out):
    found = accuracy(read_study([out]), resamples=200)
    austria = {"country": "Austria"}
    # Base: right, wrong, wrong, tie is (1 + 0 + 0 + 1/2) / 4.
    assert value(found, "accuracy", variant="base", **austria).value == pytest.approx(0.375)
    # scpo: A1 is right under one of two seeds: (1/2 + 1 + 1 + 1) / 4.
    assert value(found, "accuracy", variant="scpo", **austria).value == pytest.approx(0.875)
    # Fine-tuning fails on B1: 2 of 3, one left out.
    brazil = value(found, "accuracy", variant="finetune", country="Brazil")
    assert (brazil.value, brazil.n, brazil.n_excluded) == (pytest.approx(2 / 3), 3, 1)
    # Macro average of 0.875 and 1.
    macro = value(found, "accuracy_macro", variant="scpo")
    assert macro.value == pytest.approx(0.9375)
    assert macro.n == 8
    assert macro.ci_low < 0.9375 < macro.ci_high


def test_the_second_layer_holds_no_ties_and_the_base_scores_0(out):
    found = accuracy(read_study([out]), resamples=200)
    layer = "accuracy_disagree"
    base = value(found, layer, variant="base", country="Austria")
    assert (base.value, base.n) == (0.0, 2)  # A2 and A3; the tie A4 is no disagreement
    assert value(found, layer, variant="scpo", country="Austria").value == 1.0
    assert value(found, layer, variant="finetune", country="Brazil").n == 1
    assert found.base_ties == {"Austria": 1, "Brazil": 0}


def test_counts_tell_failed_from_not_scored_yet(tmp_path):
    skip = [("Brazil", "scpo", 0)]  # fold 0 holds B2 and B4
    out = write_study(tmp_path / "out", two_countries(), BASE, score, skip=skip)
    study = read_study([out])
    assert study.unfinished == (("Brazil", "scpo", 0, 0, 1.0),)
    counts = {(each.country, each.variant): each for each in accuracy(study).counts}
    brazil = counts["Brazil", "scpo"]
    assert (brazil.n, brazil.scored, brazil.failed, brazil.unscored) == (4, 2, 0, 2)
    tuned = counts["Brazil", "finetune"]
    assert (tuned.scored, tuned.failed, tuned.unscored) == (3, 1, 0)
    assert counts["Austria", "base"].ties == 1


def test_paired_tests_by_hand(out):
    found = accuracy(read_study([out]), resamples=200)
    tests = {(t.country, t.comparison.a, t.comparison.b): t.comparison for t in found.tests}
    assert len(tests) == 9  # two variants against the base, one against the other, 3 rows each
    austria = tests["Austria", "scpo", "base"]
    # Differences: -1/2, 1, 1, 1/2.
    assert austria.difference == pytest.approx(0.5)
    brazil = tests["Brazil", "scpo", "base"]
    assert brazil.difference == pytest.approx(0.25)  # B4 alone
    assert brazil.p == 1.0  # one difference: either sign is as likely
    macro = tests[None, "scpo", "base"]
    assert macro.difference == pytest.approx(0.375)
    # On Brazil's three shared pairs B2, B3, B4 the difference is 1/3; on Austria's 1/2.
    against = tests[None, "scpo", "finetune"]
    assert against.difference == pytest.approx((0.5 + 1 / 3) / 2)
    assert (against.n, against.n_excluded) == (7, 1)
    assert all(each.p_holm >= each.p for each in tests.values())


def test_a_small_difference_between_small_samples_is_not_told(out):
    found = accuracy(read_study([out]), resamples=200)
    macro = [t.comparison for t in found.tests if t.country is None]
    assert all(each.ci_low < 0 < each.ci_high or each.difference == 0 for each in macro)
    assert all(each.p_holm > 0.05 for each in macro)


def test_a_clear_difference_is_told(tmp_path):
    pairs = [
        {"pair": f"p{number}", "country": "Chile", "group": f"q{number}", "fold": number % 2}
        for number in range(80)
    ]
    base = {pair["pair"]: WRONG if i < 40 else RIGHT for i, pair in enumerate(pairs)}
    right = lambda *_: RIGHT  # noqa: E731
    study = read_study([write_study(tmp_path / "out", pairs, base, right, variants=("scpo",))])
    (single, macro) = (test.comparison for test in accuracy(study, resamples=300).tests)
    assert single.difference == macro.difference == 0.5
    assert single.ci_low > 0.35
    assert single.ci_high < 0.65
    assert single.p == pytest.approx(2 * 0.5**40)  # all 40 differences have one sign


def test_groups_are_resampled_whole(tmp_path):
    # Ten people with ten pairs each, all right or all wrong: ten observations, not a hundred.
    pairs = [
        {"pair": f"p{n}-{k}", "country": "Chile", "group": f"person-{n}", "fold": 0}
        for n in range(10)
        for k in range(10)
    ]
    base = dict.fromkeys((pair["pair"] for pair in pairs), RIGHT)
    half = lambda c, v, s, share, pair: RIGHT if pair["group"] < "person-5" else WRONG  # noqa: E731
    study = read_study([write_study(tmp_path / "out", pairs, base, half, variants=("scpo",))])
    found = value(accuracy(study), "accuracy", variant="scpo", country="Chile")
    # Wilson on 10: 0.5 -+ 0.263.
    assert found.ci_low == pytest.approx(0.2366, abs=1e-3)
    assert found.ci_high == pytest.approx(0.7634, abs=1e-3)


def test_spread_over_seeds(out):
    spreads = {each.variant: each for each in accuracy(read_study([out])).seeds}
    # scpo: seed 0 is right throughout; seed 1 misses A1 of four: (3/4 + 1) / 2.
    assert spreads["scpo"].accuracies == pytest.approx({0: 1.0, 1: 0.875})
    assert spreads["scpo"].sd == pytest.approx(0.125 / math.sqrt(2))
    assert spreads["finetune"].sd == 0.0


def test_one_seed_has_no_spread(tmp_path):
    study = read_study([write_study(tmp_path / "out", two_countries(), BASE, score)])
    assert all(each.sd is None for each in accuracy(study).seeds)


def test_steering_by_hand(out):
    found = steering(read_study([out]), "scpo", resamples=200)
    cells = {(cell.model, cell.country): cell for cell in found.cells}
    assert cells["Austria", "Austria"].accuracy.value == pytest.approx(0.875)
    assert cells["Brazil", "Austria"].accuracy.value == pytest.approx(0.375)
    assert cells["Brazil", "Austria"].gain.difference == 0.0
    assert cells["Austria", "Brazil"].gain.difference == 0.0
    assert cells["Brazil", "Brazil"].gain.difference == pytest.approx(0.25)
    austria, brazil, macro = found.rows
    assert austria.difference.difference == pytest.approx(0.5)
    assert brazil.difference.difference == pytest.approx(0.25)
    assert macro.country is None
    assert macro.difference.difference == pytest.approx(0.375)
    assert macro.others.difference == 0.0
    assert macro.own.difference == pytest.approx(0.375)


def test_steering_needs_a_known_variant(out):
    with pytest.raises(UnknownNameError, match="did you mean scpo"):
        steering(read_study([out]), "scp")


def test_steering_with_one_country_has_no_summary(tmp_path):
    pairs = two_countries()[:4]
    study = read_study([write_study(tmp_path / "out", pairs, BASE, score)])
    found = steering(study, "scpo")
    assert len(found.cells) == 1
    assert found.rows == ()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (0.55, 0.1 * math.sqrt(10) ** 0.5),  # half of the way from 0.1 to 0.316 in the log
        (0.6, 0.1 * math.sqrt(10)),
        (0.65, math.sqrt(0.1 * math.sqrt(10))),
        (0.5, 0.0),
        (0.7, 1.0),
        (0.71, math.inf),
    ],
)
def test_share_reaching_by_hand(target, expected):
    shares, values = (0.1, 0.1 * math.sqrt(10), 1.0), (0.5, 0.6, 0.7)
    assert share_reaching(target, shares, values) == pytest.approx(expected)


def test_share_reaching_takes_the_first_crossing():
    assert share_reaching(0.6, (0.25, 0.5, 1.0), (0.5, 0.7, 0.55)) == pytest.approx(
        math.sqrt(0.25 * 0.5)
    )


def by_share(country, variant, seed, share, pair):
    """Fine-tuning has 1, 2, 3 of 4 right with a quarter, half, all; scpo 2, 3, 4."""
    right = {0.25: 1, 0.5: 2, 1.0: 3}[share] + (variant == "scpo")
    return RIGHT if int(pair["pair"][1:]) <= right else WRONG


def test_efficiency_by_hand(tmp_path):
    shares, low = (0.25, 0.5, 1.0), dict.fromkeys(BASE, WRONG)
    out = write_study(tmp_path / "out", two_countries(), low, by_share, shares=shares)
    found = efficiency(read_study([out]), resamples=200)
    assert found.reason == ""
    assert found.base.value == 0.0
    assert value(found, "accuracy_share", variant="finetune", share="0.5").value == 0.5
    assert value(found, "accuracy_share", variant="scpo", share="1").value == 1.0
    ratios = {each.share: each for each in found.ratios}
    # scpo has 0.5 with a quarter, which fine-tuning has with half.
    assert ratios[0.25].finetune_share == pytest.approx(0.5)
    assert ratios[0.25].ratio == pytest.approx(2.0)
    assert ratios[0.5].ratio == pytest.approx(2.0)
    assert ratios[1.0].ratio is None
    assert "never as accurate" in ratios[1.0].reason


def test_data_saved_on_the_way_to_less_than_the_base_is_no_efficiency(tmp_path):
    out = write_study(tmp_path / "out", two_countries(), BASE, by_share, shares=(0.25, 0.5, 1.0))
    found = efficiency(read_study([out]), resamples=50)
    # of A the base has 1.5 of 4, of B 3 of 4; scpo has 2 of 4 with a quarter
    assert found.base.value == pytest.approx((0.375 + 0.75) / 2)
    ratios = {each.share: each for each in found.ratios}
    assert (ratios[0.25].ratio, ratios[0.25].low, ratios[0.25].high) == (None, None, None)
    assert ratios[0.25].reason == "the base is as accurate, with 56.2 % and no data"
    assert ratios[0.5].ratio == pytest.approx(2.0)


def test_efficiency_without_shares_says_why(out):
    found = efficiency(read_study([out]))
    assert found.metrics == found.ratios == ()
    assert "more than one share" in found.reason


def test_kept_shares_and_weights_by_hand(out):
    rows = [
        {"pair": "A1", "p": 0.2, "weight": 0.5, "kept": True},
        {"pair": "A2", "p": 0.7, "weight": 1.0, "kept": False},  # exactly tau is not kept
        {"pair": "A3", "p": 0.69, "weight": 1.0, "kept": True},
        {"pair": "A4", "p": None, "weight": None, "kept": False},
    ]
    for seed in (0, 1):  # both folds and seeds say the same of a pair
        lines(unit_folder(out, "Austria", "scpo", 0, seed) / "filter.jsonl", rows)
        lines(unit_folder(out, "Austria", "scpo", 1, seed) / "filter.jsonl", rows)
    study = read_study([out])
    kept = {(each.country, each.tau): each for each in kept_shares(study, (0.5, 0.7, 0.75))}
    assert kept["Austria", 0.5].share == pytest.approx(1 / 3)
    assert kept["Austria", 0.7].share == pytest.approx(2 / 3)
    assert kept["Austria", 0.75].share == 1.0
    assert kept["Austria", 0.7].n == 3
    assert kept["Brazil", 0.7].share is None
    whole = next(each for each in weights(study) if each.country is None)
    assert (whole.n, whole.mean, whole.full) == (2, 0.75, 0.5)
    assert whole.quantiles == pytest.approx((0.5, 0.625, 0.75, 0.875, 1.0))
    assert (whole.histogram[10], whole.histogram[19]) == (1, 1)


def test_curves_and_benchmarks(out):
    folder = unit_folder(out, "Austria", "scpo")
    lines(folder / "curve.jsonl", [{"step": n, "loss": 1.0 / n, "lr": 1e-6} for n in (1, 2)])
    record = {
        "benchmark": {"name": "toy"},
        "before": {"value": 0.5, "n": 10, "ci_low": 0.2, "ci_high": 0.8},
        "after": {"value": 0.6, "n": 10},
    }
    (folder / "benchmark.json").write_text(json.dumps(record))
    study = read_study([out])
    (curve,) = curves(study)
    assert curve.points == ((0.5, 1.0, 1), (1.0, 0.5, 1))
    (bench,) = benchmarks(study)
    assert (bench.before, bench.after, bench.n, bench.units) == (0.5, 0.6, 10, 1)
    assert bench.before_interval == (0.2, 0.8)


def test_curves_sum_in_the_order_of_the_units(out):
    # In floating point (0.1 + 0.2) + 0.3 is not 0.1 + (0.2 + 0.3): one order gives one figure.
    losses = (0.1, 0.2, 0.3, 0.7)
    places = [(fold, seed) for fold in (0, 1) for seed in (0, 1)]  # as the folders are sorted
    for (fold, seed), loss in zip(places, losses, strict=True):
        folder = unit_folder(out, "Austria", "scpo", fold, seed)
        lines(folder / "curve.jsonl", [{"step": n, "loss": loss} for n in range(1, 21)])
    study = read_study([out])
    found = {loss for _ in range(20) for _, loss, _ in curves(study)[0].points}
    assert len(found) == 1


def test_a_study_by_split(tmp_path):
    pairs = [
        {"pair": name, "country": "Chile", "group": name, "split": split}
        for name, split in (("p1", "train"), ("p2", "test"), ("p3", "test"))
    ]
    base = dict.fromkeys(("p1", "p2", "p3"), RIGHT)
    wrong = lambda *_: WRONG  # noqa: E731
    study = read_study([write_study(tmp_path / "out", pairs, base, wrong, variants=("scpo",))])
    assert study.folds == (None,)
    assert credit_table(study)["pair"].to_list() == ["p2", "p3"]
    assert credit_table(study)["scpo"].to_list() == [0.0, 0.0]


def test_shards_are_one_study(tmp_path):
    first = write_study(tmp_path / "a", two_countries(), BASE, score, skip=[("Brazil", "scpo", 0)])
    rest = [("Austria", v, f) for v in ("scpo", "finetune") for f in (0, 1)]
    rest += [("Brazil", "finetune", 0), ("Brazil", "finetune", 1), ("Brazil", "scpo", 1)]
    second = write_study(tmp_path / "b", two_countries(), BASE, score, skip=rest)
    study = read_study([first, second])
    assert len(study.units) == 8
    assert study.unfinished == ()
    assert study.pairs.height == 8


def test_the_order_of_lines_changes_nothing(out, tmp_path):
    turned = write_study(tmp_path / "b", two_countries()[::-1], BASE, score, seeds=(0, 1))
    one, other = (accuracy(read_study([path]), resamples=200) for path in (out, turned))
    assert {str(m.group): m for m in one.metrics} == {str(m.group): m for m in other.metrics}


def test_broken_input_is_named(out, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_study([tmp_path / "none"])
    with pytest.raises(InputError, match=r"has no study\.json"):
        read_study([tmp_path])
    other = write_study(tmp_path / "b", two_countries(), BASE, score, pairs_digest="d2")
    with pytest.raises(InputError, match=r"differ in pairs_digest.*make a report of each"):
        read_study([out, other])
    with pytest.raises(InputError, match="are the same unit"):
        read_study([out, out])
    path = out / "global.jsonl"
    path.write_text(path.read_text() + "{torn\n")
    with pytest.raises(InputError, match=r"global\.jsonl, line 9: not a JSON object"):
        read_study([out])


def test_a_missing_key_is_named(out):
    lines(out / "pairs.jsonl", [{"pair": "A1", "country": "Austria", "group": "q"}, {"pair": "A2"}])
    with pytest.raises(InputError, match=r"pairs\.jsonl, line 2: no 'country'"):
        read_study([out])


def test_a_leak_is_refused(out):
    path = unit_folder(out, "Austria", "scpo", fold=0) / "scores.jsonl"
    path.write_text(path.read_text() + '{"pair": "A1", "chosen": 1.0, "rejected": 0.0}\n')
    with pytest.raises(InputError, match="'A1' was not held out from this unit"):
        read_study([out])


def test_an_unknown_variant_in_the_study_is_named(tmp_path):
    out = write_study(tmp_path / "b", two_countries(), BASE, score, variants=("scpo2",))
    with pytest.raises(InputError, match="unknown variant 'scpo2'"):
        read_study([out])


def test_no_unit_at_all_gives_no_data(tmp_path):
    skip = [(c, v, f) for c in ("Austria", "Brazil") for v in ("scpo", "finetune") for f in (0, 1)]
    out = write_study(tmp_path / "out", two_countries(), BASE, score, skip=skip)
    study = read_study([out])
    assert len(study.unfinished) == 8
    found = summarise_study(study)
    empty = value(found.accuracy, "accuracy", variant="scpo", country="Austria")
    assert (empty.value, empty.n, empty.n_excluded) == (None, 0, 4)
    assert found.steering.cells == ()
    json.dumps(to_jsonable_python(found), allow_nan=False)
