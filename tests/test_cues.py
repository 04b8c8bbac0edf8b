"""Figures of counterfactual edits on scores that are worked out by hand."""

import math

import numpy as np
import polars as pl
import pytest

from habitus.diagnose.edits import edited_item
from habitus.errors import InputError
from habitus.metrics.cue_contrast import auc, causal_minus_surface, causal_to_spurious
from habitus.metrics.cue_figures import change_test, changes, expanded, flips, injection, triplet
from habitus.metrics.cue_languages import consistency, language_pairs
from habitus.metrics.cues import (
    beyond_length,
    candidate_scores,
    effects,
    form_of,
    forms_of,
    read_cues,
)
from habitus.types import Item, Judgement, ScorerSpec, Status, winners
from tests.conftest import make_item
from tests.cue_samples import cue_items, whole


def judgement(item_id: str, **scores: float) -> Judgement:
    best = winners(scores)
    return Judgement(
        item_id=item_id,
        unit="u",
        scorer="s",
        seed=0,
        status=Status.TIE if len(best) > 1 else Status.OK,
        scores=scores,
        winner_ids=best,
        order=tuple(scores),
    )


def failed(item_id: str) -> Judgement:
    return Judgement(item_id=item_id, unit="u", scorer="s", seed=0, status=Status.UNPARSED)


def two(number: int, **fields) -> Item:
    """A parent with two candidates."""
    texts = [{"id": "a", "text": "Soba."}, {"id": "b", "text": "A goose."}]
    return make_item(number, candidates=texts, **fields)


def edit(parent: Item, cue: str, text: str = "Other.", on: str = "a", **fields) -> Item:
    return edited_item(parent, on, text, cue, **fields)


def value(metrics, name, **group):
    [found] = [m for m in metrics if m.name == name and m.group == group]
    return found


# Two parents, scores 3, 1 and 1, 1: mean 1.5, SD sqrt((2.25 + 3 * 0.25) / 4) = sqrt(0.75).
SD = math.sqrt(0.75)
FIRST, SECOND = two(1, domain="values"), two(2)
SCORES = {"item-1": judgement("item-1", a=3, b=1), "item-2": judgement("item-2", a=1, b=1)}
CC1, CC2 = edit(FIRST, "CC"), edit(SECOND, "CC")
RC1, RP1 = edit(FIRST, "RC"), edit(FIRST, "RP", "Another.")


def measured(items, judgements, form="raw"):
    cues = read_cues([FIRST, SECOND, *items])
    found = SCORES | {one.item_id: one for one in judgements}
    return effects(cues, found, form), cues, found


def test_changes_are_in_the_models_own_standard_deviations():
    found, _, _ = measured([CC1, CC2], [judgement(CC1.id, a=0, b=1), judgement(CC2.id, a=2, b=1)])
    assert found.sd == pytest.approx(SD)
    assert found.n_scores == 4
    metrics = changes(found, seed=0, resamples=50)
    group = {"form": "raw", "cue": "CC", "target": "best"}
    # -3 and +1 over the SD; relative to 3 and 1.
    assert value(metrics, "change_sd", **group).value == pytest.approx(-1 / SD)
    assert value(metrics, "change_sd_abs", **group).value == pytest.approx(2 / SD)
    assert value(metrics, "relative_change", **group).value == pytest.approx((3 / 3 + 1 / 1) / 2)
    one = value(metrics, "change_sd", **group, domain="values")
    assert (one.value, one.n) == (pytest.approx(-3 / SD), 1)
    # One parent has no spread to make an interval of.
    assert (one.ci_low, one.ci_high, one.interval) == (None, None, None)


def test_scores_near_zero_have_no_relative_change():
    items = [two(3), two(4)]
    edits = [edit(one, "CC") for one in items]
    scores = [judgement("item-3", a=0, b=1), judgement("item-4", a=1, b=0)]
    scores += [judgement(one.id, a=0.5, b=1) for one in edits]
    cues = read_cues([*items, *edits])
    found = effects(cues, {one.item_id: one for one in scores}, "raw")
    metric = value(
        changes(found, seed=0, resamples=50), "relative_change", form="raw", cue="CC", target="best"
    )
    assert (metric.value, metric.n, metric.n_excluded) == (0.5, 1, 1)


def test_failures_are_left_out_and_counted():
    found, _, _ = measured([CC1, CC2], [failed(CC1.id)])  # CC2 has no judgement at all
    metric = value(
        changes(found, seed=0, resamples=50), "change_sd", form="raw", cue="CC", target="best"
    )
    assert (metric.value, metric.n, metric.n_excluded) == (None, 0, 2)
    flip = value(flips(found, seed=0, resamples=50), "flip_rate", cue="CC", target="best")
    assert (flip.value, flip.n_excluded) == (None, 2)


def test_a_flip_is_another_set_of_winners():
    # a wins before and still; a and b tie before, then b wins.
    found, _, _ = measured([CC1, CC2], [judgement(CC1.id, a=9, b=1), judgement(CC2.id, a=0, b=1)])
    flip = value(flips(found, seed=0, resamples=50), "flip_rate", cue="CC", target="best")
    assert (flip.value, flip.n, flip.interval) == (0.5, 2, "wilson")


def test_margins_and_verdicts():
    one = judgement("x", a=3, b=1, c=2)
    assert candidate_scores(one, "raw") == {"a": 3, "b": 1, "c": 2}
    assert candidate_scores(one, "margin") == {"a": 1, "b": -2, "c": -1}
    assert candidate_scores(one, "verdict") == {"a": 1, "b": 0, "c": 0}
    tie = judgement("x", a=2, b=2, c=0)
    assert candidate_scores(tie, "margin") == {"a": 0, "b": 0, "c": -2}
    assert candidate_scores(tie, "verdict") == {"a": 0.5, "b": 0.5, "c": 0}
    assert candidate_scores(failed("x"), "raw") is None
    assert candidate_scores(None, "raw") is None


@pytest.mark.parametrize(
    ("kind", "parameters", "form"),
    [
        ("classifier", {}, "raw"),
        ("baseline", {}, "raw"),
        ("ensemble", {}, "margin"),
        ("judge", {"mode": "listwise", "verdict": "logprobs"}, "margin"),
        ("embedded", {"mode": "criteria", "verdict": "logprobs"}, "margin"),
        ("judge", {"mode": "pairwise", "verdict": "logprobs"}, "margin"),
        ("judge", {"mode": "pointwise", "verdict": "logprobs"}, "raw"),
        ("judge", {"mode": "pointwise-criteria", "verdict": "text"}, "raw"),
        ("judge", {"mode": "listwise", "verdict": "text"}, "verdict"),
    ],
)
def test_the_form_fits_the_model(kind, parameters, form):
    spec = ScorerSpec(kind=kind, model="m", parameters=parameters)
    assert form_of(spec) == form
    assert forms_of(spec)[0] == form
    assert len(forms_of(spec)) == (1 if form == "verdict" else 3)


def test_the_ratio_weighs_cues_alike():
    # |CC| 3 and 1; |RC| 1, |RP| 0.5: 2 / 0.75 whatever the SD. CL has no items.
    found, _, _ = measured(
        [CC1, CC2, RC1, RP1],
        [
            judgement(CC1.id, a=0, b=1),
            judgement(CC2.id, a=2, b=1),
            judgement(RC1.id, a=2, b=1),
            judgement(RP1.id, a=3.5, b=1),
        ],
    )
    metrics = causal_to_spurious(found, seed=0, resamples=200)
    ratio = value(metrics, "causal_to_spurious", form="raw")
    assert ratio.value == pytest.approx(2 / 0.75)
    assert ratio.n == 4
    log = value(metrics, "causal_to_spurious_log", form="raw")
    assert log.value == pytest.approx(math.log(2 / 0.75))
    if ratio.ci_low is not None:
        assert ratio.ci_low == pytest.approx(math.exp(log.ci_low))
    # Drops: CC 3 and -1 against 1 and -0.5: 3 beats both, -1 beats none.
    metric = value(auc(found, seed=0, resamples=200), "auc", form="raw")
    assert (metric.value, metric.n) == (0.5, 4)
    # Parent 1: 3 - (1 + 0.5) / 2; parent 2 has no surface edit.
    difference, parents = causal_minus_surface(found)
    assert difference == pytest.approx([2.25 / SD])
    assert parents.tolist() == [0]


def test_equal_drops_count_half():
    found, _, _ = measured([CC1, RC1], [judgement(CC1.id, a=2, b=1), judgement(RC1.id, a=2, b=1)])
    assert value(auc(found, seed=0, resamples=50), "auc", form="raw").value == 0.5


def test_edits_of_wrong_responses_count_for_themselves():
    rival = edit(FIRST, "CC", on="b")
    found, _, _ = measured([rival], [judgement(rival.id, a=3, b=2)])
    metrics = changes(found, seed=0, resamples=50)
    group = {"form": "raw", "cue": "CC", "target": "rival"}
    assert value(metrics, "change_sd", **group).value == pytest.approx(1 / SD)
    assert value(auc(found, seed=0, resamples=50), "auc", form="raw").n == 0


def test_injection_counts_new_wins_of_wrong_responses():
    first, second = edit(FIRST, "IN", on="b"), edit(SECOND, "IN", on="b")
    # In the first b wins anew; in the second it shared the win before.
    found, cues, scores = measured(
        [first, second], [judgement(first.id, a=3, b=5), judgement(second.id, a=1, b=2)]
    )
    metrics = injection(found, cues, scores, seed=0, resamples=50)
    success = value(metrics, "injection_success")
    assert (success.value, success.n) == (0.5, 2)
    assert value(metrics, "injection_rise", form="raw").value == pytest.approx(2.5 / SD)
    # A win shared by two is half a win.
    found, cues, scores = measured([first], [judgement(first.id, a=3, b=3)])
    assert value(injection(found, cues, scores, seed=0), "injection_success").value == 0.5


def triplet_item(number: int) -> Item:
    texts = [{"id": key, "text": key} for key in ("appropriate", "generic", "opposite")]
    return make_item(
        number,
        id=f"t{number}",
        candidates=texts,
        best_ids=["appropriate"],
        parent_id="item-1",
        cue="GN-OP",
    )


@pytest.mark.parametrize(
    ("scores", "top", "order"),
    [
        ((3, 2, 1), 1, 1),
        ((3, 1, 2), 1, 0),
        ((1, 2, 3), 0, 0),
        ((2, 2, 1), 1 / 2, 1 / 2),
        ((3, 1, 1), 1, 1 / 2),
        ((1, 1, 1), 1 / 3, 1 / 6),
    ],
)
def test_triplets(scores, top, order):
    item = triplet_item(1)
    a, g, o = scores
    found = {item.id: judgement(item.id, appropriate=a, generic=g, opposite=o)}
    cues = read_cues([FIRST, item])
    metrics = triplet(cues, found, ranks=True, seed=0, resamples=50)
    assert value(metrics, "triplet_top1").value == pytest.approx(top)
    assert value(metrics, "triplet_full_order").value == pytest.approx(order)
    without = value(triplet(cues, found, ranks=False, seed=0), "triplet_full_order")
    assert (without.value, without.n, without.n_excluded) == (None, 0, 1)


def test_every_pair_of_languages_of_one_response_is_compared():
    parent = two(1, language="ja")
    english = edit(parent, "CL", "In English.", suffix="en", language="en")
    german = edit(parent, "CL", "Auf Deutsch.", suffix="de", language="de")
    scores = {
        "item-1": judgement("item-1", a=1, b=0),
        english.id: judgement(english.id, a=2, b=0),
        german.id: judgement(german.id, a=0.5, b=0),
    }
    found = effects(read_cues([parent, english, german]), scores, "raw")
    assert found.sd == 0.5
    pairs = language_pairs(found).sort("language_a", "language_b")
    assert pairs.select("language_a", "language_b", "delta").rows() == [
        ("de", "en", -3.0),
        ("de", "ja", -1.0),
        ("en", "ja", 2.0),
    ]
    metrics = consistency(found, k=0.5, seed=0, resamples=50)
    expected = (math.exp(-1.5) + math.exp(-0.5) + math.exp(-1)) / 3
    assert value(metrics, "consistency", form="raw").value == pytest.approx(expected)
    one = value(metrics, "consistency", form="raw", language_a="de", language_b="en")
    assert one.value == pytest.approx(math.exp(-1.5))
    # English gets 3 and 2 more, Japanese 1 more and 2 less, German 3 and 1 less.
    favour = {tag: value(metrics, "language_favour", form="raw", language=tag).value
              for tag in ("en", "ja", "de")}  # fmt: skip
    assert favour == {"en": 2.5, "ja": -0.5, "de": -2}


def test_what_length_accounts_for_is_taken_off():
    # LN adds 10 characters and 2 points; RC takes 5 away and 1 point: nothing is left of either.
    padded = edit(FIRST, "LN", "Soba. 123456789")
    removed = edit(SECOND, "RC", "")
    found, _, _ = measured(
        [padded, removed], [judgement(padded.id, a=5, b=1), judgement(removed.id, a=0, b=1)]
    )
    assert found.column("added").tolist() == [10, -5]
    left = beyond_length(found)
    assert left.change_sd == pytest.approx([0, 0])
    assert left.sd == found.sd
    assert beyond_length(measured([CC1], [judgement(CC1.id, a=0, b=1)])[0]) is None


def test_the_interval_widens_with_few_parents():
    replicates = np.arange(10_000, dtype=np.float64)
    low, high = expanded(replicates, 1e9)
    assert (low, high) == (pytest.approx(250, abs=2), pytest.approx(9750, abs=2))
    # n = 6: t(5) at 2.5 % is -2.5706; times sqrt(6/5) -2.8159; normal probability 0.00243.
    low, high = expanded(replicates, 6)
    assert (low, high) == (pytest.approx(24.3, abs=1.5), pytest.approx(9975, abs=2))
    assert expanded(replicates, 1) is None
    assert expanded(np.array([np.inf, np.inf]), 9) is None
    assert expanded(np.array([np.nan]), 9) is None


def test_the_test_of_a_mean_change():
    # Five parents, all lowered alike: two-sided 2 / 2^5.
    cluster = np.arange(5)
    assert change_test(np.full(5, -1.0), cluster, 0, "x") == pytest.approx(2 / 32)
    # Edits of one parent count once.
    assert change_test(np.full(5, -1.0), np.zeros(5, dtype=np.int64), 0, "x") == 1.0
    assert change_test(np.full(3, np.nan), np.arange(3), 0, "x") is None


def wrong(item: Item, **fields) -> Item:
    return Item.model_validate(item.model_dump() | fields)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (wrong(CC1, parent_id="nobody"), "its parent 'nobody' is not in the benchmark"),
        (wrong(CC1, parent_id=None), "its parent None is not in the benchmark"),
        (wrong(CC1, parent_id="item-1--RC"), "'item-1--RC' is itself an edit"),
        (wrong(CC1, cue="XX"), "unknown cue 'XX'; known: CC, GN"),
        (wrong(CC1, edited=None), "has no `edited`"),
        (wrong(CC1, edited="z"), "names no candidate 'z'"),
        (wrong(CC1, edited="b"), "only candidate 'b' may differ from the parent's; found 'a'"),
        (wrong(CC1, candidates=FIRST.model_dump()["candidates"]), "found none"),
        (edit(FIRST, "CL", "In English."), "candidate 'a' has no `language`"),
        (wrong(triplet_item(1), best_ids=["generic"]), "a triplet has one best candidate"),
        (
            wrong(CC1, candidates=[*CC1.model_dump()["candidates"], {"id": "c", "text": "C"}]),
            "not those of its parent",
        ),
    ],
)
def test_an_edit_that_is_none_is_refused_in_one_line(item, message):
    with pytest.raises(InputError) as error:
        read_cues([FIRST, SECOND, RC1, item])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_order_of_the_items_changes_no_figure():
    items = whole(6)
    scores = {
        one.id: judgement(one.id, **{c.id: float(len(c.text) % 7) for c in one.candidates})
        for one in items
    }

    def figures(ordered):
        found = effects(read_cues(ordered), scores, "raw")
        return sorted(
            (m.name, str(sorted(m.group.items())), round(m.value or 0, 9), m.n)
            for m in (*changes(found, seed=0, resamples=50), *auc(found, seed=0, resamples=50))
        )

    assert figures(items) == figures(items[::-1])


def test_a_benchmark_without_edits_gives_empty_figures():
    cues = read_cues([FIRST])
    found = effects(cues, SCORES, "raw")
    assert changes(found, seed=0) == []
    assert value(auc(found, seed=0), "auc", form="raw").value is None
    metrics = consistency(found, k=1, seed=0)
    assert [(m.name, m.value, m.n) for m in metrics] == [("consistency", None, 0)]
    assert language_pairs(found).schema["delta"] == pl.Float64
    assert len(read_cues(cue_items(2)).edits) == 12
