"""Trainings of a judge compared step by step, and its calibration on held-out pairs."""

from __future__ import annotations

import json
import math

import pytest

from habitus.report.locals import render_locals
from tests.locals_run_samples import held_out, step, text, view_of, write_run


def trained(tmp_path, name, steps, gain=0.0, pair="p{}", **config):
    """A training whose steps all differ a little, on a pair of each step's own."""
    lines = [
        step(k, r_appr=gain + k % 7 / 100, accuracy=0.5 + k % 3 / 10) for k in range(1, steps + 1)
    ]
    texts = [text(k, pair.format(k)) for k in range(1, steps + 1)]
    return write_run(tmp_path / name, curve=lines, samples=texts, config=config)


def test_trainings_on_the_same_pairs_are_compared_step_by_step(tmp_path):
    one = trained(tmp_path, "one", 40)
    two = trained(tmp_path, "two", 32, gain=0.25)
    found = {each.measure: each.comparison for each in view_of(one, two).figures.steps}
    assert list(found) == ["accuracy", "both_orders", "r_appr"]
    own = found["r_appr"]
    assert (own.a, own.b, own.n) == ("two", "one", 32)
    assert own.difference == pytest.approx(0.25)
    assert own.ci_low <= own.difference <= own.ci_high
    assert own.p == pytest.approx(2 * 0.5**32)  # 32 differences of one size, all one way
    assert own.p_holm == pytest.approx(3 * 2 * 0.5**32)
    assert (found["accuracy"].difference, found["accuracy"].p) == (0, 1)
    html = render_locals(view_of(one, two))
    assert "Steps on the same pairs" in html
    assert ">+0.250<" in html


@pytest.mark.parametrize(
    "other",
    [
        {"steps": 29},
        {"pair": "q{}"},
        {"config": {"seed": 1}},
        {"config": {"pairs_digest": "no"}},
        {"config": {"grpo": {"iterations": 2}}},
    ],
)
def test_trainings_on_other_pairs_and_short_ones_are_not_compared_by_step(tmp_path, other):
    config = other.pop("config", {})
    one = trained(tmp_path, "one", 40)
    two = trained(tmp_path, "two", **({"steps": 40} | other), **config)
    view = view_of(one, two)
    assert not view.figures.steps
    assert "Steps on the same pairs" not in render_locals(view)


def test_of_steps_that_learn_from_the_same_texts_the_first_counts(tmp_path):
    twice = {"grpo": {"iterations": 2}}
    one = trained(tmp_path, "one", 60, **twice)
    two = trained(tmp_path, "two", 60, gain=0.25, **twice)
    assert {each.comparison.n for each in view_of(one, two).figures.steps} == {30}
    three = trained(tmp_path, "three", 58, gain=0.25, **twice)
    assert not view_of(one, three).figures.steps


def test_r_appr_is_compared_where_it_is_the_same_figure(tmp_path):
    one = trained(tmp_path, "one", 40)
    for name, config in (
        ("two", {"rewards": {"labels": "all"}}),
        ("three", {"grpo": {"policy": "reference"}}),
    ):
        found = view_of(one, trained(tmp_path, name, 40, **config)).figures.steps
        assert [each.measure for each in found] == ["accuracy", "both_orders"]


def test_steps_without_a_figure_are_left_out_and_counted(tmp_path):
    one = trained(tmp_path, "one", 40)
    two = trained(tmp_path, "two", 40, gain=0.1)
    lines = [json.loads(line) for line in (two / "curve.jsonl").read_text().splitlines()]
    for line in lines[:5]:
        line["r_appr"] = None  # no text of the step had the form
    (two / "curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {each.measure: each.comparison for each in view_of(one, two).figures.steps}
    assert (found["r_appr"].n, found["r_appr"].n_excluded) == (35, 5)
    assert (found["accuracy"].n, found["accuracy"].n_excluded) == (40, 0)


def test_calibration_is_of_looks(tmp_path):
    records = [held_out(k, (0.9, 0.9) if k % 4 else (0.9, 0.2), (0.6, 0.5)) for k in range(40)]
    records.append(held_out(40, (None, None), (0.6, 0.5)))
    found = view_of(write_run(tmp_path / "a", records=records)).figures.calibration["a"]
    assert list(found) == ["with", "without"]  # nobody lent
    own = found["with"]
    assert own.n == 40
    assert own.right == pytest.approx(1 - 10 / 80)
    assert own.confidence == pytest.approx((70 * 0.9 + 10 * 0.8) / 80)
    assert own.overconfidence == pytest.approx(own.confidence - own.right)
    assert own.ci_low < own.overconfidence < own.ci_high
    assert own.log_loss == pytest.approx(-(70 * math.log(0.9) + 10 * math.log(0.2)) / 80)
    plain = found["without"]  # a look at one half is half right
    assert (plain.n, plain.right, plain.confidence) == pytest.approx((41, 0.75, 0.55))
