"""Judges against each other: log loss, and sentences that say of several what came out alike."""

import io
import json
import math
import re

import pytest
from rich.console import Console

from habitus.metrics.statistics import holm
from habitus.report.locals import print_locals, render_locals, to_json
from habitus.report.locals_compared import MOST_NAMES
from habitus.report.locals_figures import calibration_table, loss_figure, losses_table
from habitus.report.locals_findings import findings, notes
from tests.locals_run_samples import held_out, look, view_of, write_run

SURE, FAIR, UNSURE, NO = (0.99, 0.99), (0.8, 0.8), (0.6, 0.6), (None, None)
MISLED = (0.01, 0.01)


def judge(tmp_path, name, right, *, n=60, share=5, lent=NO, **fields):
    """A run that is right on all but every `share`-th pair, and so sure of it."""
    wrong, plain = tuple(1 - p for p in right), (0.5, 0.5)
    records = [
        held_out(k, wrong if k % share == 0 else right, plain, borrowed=look(*lent))
        for k in range(n)
    ]
    fields.setdefault("config", {"grpo": {"lr": sum(map(ord, name))}})
    return write_run(tmp_path / name, records=records, **fields)


def base(tmp_path, n=60):
    """A model that says one half to everything."""
    records = [held_out(k, NO, (0.5, 0.5)) for k in range(n)]
    return write_run(tmp_path / "base", stage="base", records=records)


def said(view, words):
    return [each for each in findings(view) if words in each.text]


def loss(right, wrong, share=5):
    return -((share - 1) * math.log(right) + math.log(wrong)) / share


def test_log_loss_tells_judges_apart_that_are_right_equally_often(tmp_path):
    view = view_of(base(tmp_path), judge(tmp_path, "fair", FAIR), judge(tmp_path, "sure", SURE))
    tests = {test.arms: test.comparison for test in view.figures.losses}
    assert list(tests) == [("fair", "base"), ("sure", "base"), ("sure", "fair")]
    fair, sure = loss(0.8, 0.2), loss(0.99, 0.01)
    assert tests["fair", "base"].difference == pytest.approx(fair - math.log(2))
    assert tests["sure", "fair"].difference == pytest.approx(sure - fair)
    own = tests["sure", "fair"]
    assert (own.a, own.b, own.n, own.detectable) == ("sure", "fair", 60, None)
    found = view.figures.losses
    corrected = holm([test.comparison.p for test in found])
    assert [test.comparison.p_holm for test in found] == pytest.approx(corrected)
    # not one more test in the family of accuracy
    assert {test.measure for test in view.figures.tests} == {"accuracy", "both_orders"}
    accuracy = next(t for t in view.figures.tests if t.arms == ("sure", "fair"))
    assert accuracy.comparison.difference == 0.0
    (against,) = said(view, "sure against fair, log loss")
    assert against.tone == "warning"  # less is better
    assert f": +{sure - fair:.3f} nats" in against.text
    turned = view_of(tmp_path / "base", tmp_path / "sure", tmp_path / "fair")
    accuracy, against = said(turned, "fair against sure")
    assert (accuracy.tone, against.tone) == ("warning", "note")  # alike in accuracy


def test_the_last_arm_is_better_whichever_side_of_the_test_it_is(tmp_path):
    """Seeds of the first named arm come last, too: the test takes it from the later one."""
    seeds = [
        judge(tmp_path, f"fair-{seed}", FAIR, config={"seed": seed, "grpo": {"lr": 1}})
        for seed in (0, 1)
    ]
    runs = [base(tmp_path), seeds[0], judge(tmp_path, "sure", SURE), seeds[1]]
    (found,) = said(view_of(*runs), "fair (2 runs) against sure, log loss: −")
    assert found.tone == "note"
    assert found.text.endswith("; better beyond the noise.")
    runs.insert(3, judge(tmp_path, "more", (0.999, 0.999)))
    view = view_of(*runs)
    (found,) = said(view, "log loss against others")
    worst = max(t.comparison.p_holm for t in view.figures.losses if "fair (2 runs)" in t.arms[1])
    assert found.text.startswith(
        "fair (2 runs), log loss against others, better beyond the noise (largest Holm-corrected p "
        f"{worst:.3f}); nats with 95\u00a0% intervals: sure −"
    )
    low, high = re.search(r"sure −\d\.\d+ \(−(\d\.\d+) to −(\d\.\d+)\)", found.text).groups()
    assert float(low) > float(high)  # further from 0
    assert found.tone == "note"


def test_worse_than_the_base_is_a_warning(tmp_path):
    judges = [judge(tmp_path, name, (0.1, 0.1), share=8) for name in ("a", "b")]
    (found,) = said(view_of(base(tmp_path), *judges), "Accuracy against the base")
    assert found.tone == "warning"
    assert found.text.startswith("Accuracy against the base, worse beyond the noise (")
    (found,) = said(view_of(base(tmp_path), judges[0]), "a against the base, log loss: +")
    assert found.tone == "warning"
    assert found.text.endswith("; worse beyond the noise.")


def test_few_that_differ_have_no_interval_in_nats(tmp_path):
    """Agresti and Min's interval ends at 1, which is no end for nats."""
    alike = [held_out(k, FAIR, UNSURE) for k in range(60)]
    other = [held_out(k, (1e-300, 1e-300) if k < 2 else FAIR, UNSURE) for k in range(60)]
    view = view_of(
        write_run(tmp_path / "a", records=alike, config={"grpo": {"lr": 1}}),
        write_run(tmp_path / "b", records=other, config={"grpo": {"lr": 2}}),
    )
    (test,) = view.figures.losses
    assert test.comparison.difference > 20
    assert (test.comparison.ci_low, test.comparison.ci_high) == (None, None)
    (row,) = losses_table(view).rows
    assert (row[2], row[5]) == ("–", "no")
    assert not said(view, "log loss")


def test_few_groups_have_no_test_of_log_loss(tmp_path):
    runs = [base(tmp_path, n=29), judge(tmp_path, "fair", FAIR, n=29)]
    assert view_of(*runs).figures.losses == ()
    # nor where two judges share too few, whatever each judged
    halves = [
        write_run(
            tmp_path / name,
            records=[held_out(k, FAIR if low <= k < low + 40 else NO, UNSURE) for k in range(60)],
            config={"grpo": {"lr": low}},
        )
        for name, low in (("low", 0), ("high", 20))
    ]
    assert view_of(*halves).figures.losses == ()
    assert "Paired tests of log loss" not in render_locals(view_of(*runs))


def test_what_came_out_alike_is_one_sentence(tmp_path):
    runs = [base(tmp_path)] + [judge(tmp_path, name, FAIR) for name in ("a", "b", "c")]
    view = view_of(*runs)
    (accuracy,) = said(view, "Accuracy against the base")
    assert accuracy.text.startswith(
        "Accuracy against the base, better beyond the noise (largest Holm-corrected p <\u00a00.001); "
        "points with 95\u00a0% intervals: a +30.0 ("
    )
    assert all(f"; {name} +30.0 (" in accuracy.text for name in ("b", "c"))
    (others,) = said(view, "c, accuracy against others")
    assert others.text == (
        "c, accuracy against others, cannot be told from any of them; points with 95\u00a0% intervals: "
        "a +0.0 (−3.2 to +3.2); b +0.0 (−3.2 to +3.2)."
    )
    assert others.tone == "warning"
    assert not said(view, "c, log loss")  # equal, and only accuracy is spoken of where it is
    many = [judge(tmp_path, f"m{k}", FAIR) for k in range(MOST_NAMES + 1)]
    (found,) = said(view_of(runs[0], *many), "Accuracy against the base")
    assert "; m7 +30.0" in found.text
    assert found.text.endswith(" and 1 more.")


def test_sentences_on_long_names_are_not_cut(tmp_path):
    names = [f"{k} {'long ' * 12}" for k in range(MOST_NAMES)]
    judges = [judge(tmp_path, name, FAIR, share=99, lent=FAIR) for name in names]
    view = view_of(base(tmp_path), *judges)
    assert len(view.figures.arms) == 1 + MOST_NAMES
    assert all(len(each.text) <= 600 for each in findings(view))  # what a page shows of them
    assert said(view, f"Whether {MOST_NAMES} judges use")


def test_runs_without_verdicts_and_misled_ones_are_one_sentence(tmp_path):
    def run(name, misled, none, sure):
        records = [
            held_out(k, MISLED if k < misled else NO if k < misled + none else sure, UNSURE)
            for k in range(40)
        ]
        return write_run(tmp_path / name, records=records, config={"grpo": {"lr": misled}})

    view = view_of(run("a", 12, 1, (0.9, 0.9)), run("b", 13, 2, (0.95, 0.95)))
    (unjudged,) = said(view, "Without a verdict")
    assert unjudged.text == "Without a verdict on some held-out pairs: a (1 of 40), b (2 of 40)."
    (misled,) = said(view, "Criteria of 2 runs")
    assert f"median and mean R_appr: a +{math.log(0.9 / 0.6):.3f} and −" in misled.text
    assert f"; b +{math.log(0.95 / 0.6):.3f} and −" in misled.text
    assert len(said(view, "Not for commercial use")) == 0
    folders = [
        write_run(tmp_path / name, records=[held_out(0, FAIR, UNSURE)], non_commercial=True)
        for name in ("c", "d")
    ]
    (barred,) = said(view_of(*folders), "Not for commercial use")
    assert barred.text.endswith(": all runs.")


def test_whether_several_use_their_criteria_is_one_sentence(tmp_path):
    def run(name, own, lr, right):  # of the borrowed ones some are wrong
        records = [
            held_out(k, own, UNSURE, borrowed=look(*((0.7, 0.7) if k < right else (0.3, 0.3))))
            for k in range(40)
        ]
        return write_run(tmp_path / name, records=records, config={"grpo": {"lr": lr}})

    view = view_of(run("a", FAIR, 1, 40), run("b", (0.7, 0.7), 2, 36))
    (found,) = said(view, "use the criteria")
    most = max(t.comparison.detectable for t in view.figures.tests if t.against == "borrowed")
    assert found.text.startswith(
        "Whether 2 judges use the criteria that they write cannot be told (a true difference of "
        f"{100 * most:.1f} points would be found in each four times in five); "
    )
    assert re.search(r": a \+0\.0 \([^;]*\); b \+10\.0 \([^;]*\)\.$", found.text)
    (part,) = said(view, "R_appr after their own criteria less that")
    assert f": a +{math.log(0.8 / 0.7):.3f} (" in part.text
    assert part.text.endswith("). The others cannot be told.")
    assert "; b " not in part.text


def test_notes_on_one_warm_up_are_one(tmp_path):
    kept = {"n_criteria": 7, "n_criteria_both_orders": 2}
    shared = {"warmup_from": "x", "warmup_seconds": 60.0, **kept}
    folders = [
        write_run(tmp_path / name, **fields)
        for name, fields in (("a", kept), ("b", shared), ("c", shared))
    ]
    found = notes(view_of(*folders))
    assert found[0] == "a, b, c: the warm-up kept 7 criteria, of which 2 help in both orders."
    assert found[1].startswith("b, c: the warm-up is that of x; its ")


def test_log_loss_is_drawn_and_of_many_runs_only_their_own_way(tmp_path):
    runs = [judge(tmp_path, name, FAIR, lent=UNSURE) for name in ("a", "b", "c", "d")]
    view = view_of(*runs)
    spec = json.dumps(loss_figure(view).spec)
    (place,) = re.findall(r'"place": ([\d.]+)', spec)
    assert float(place) == pytest.approx(math.log(2))  # one half said to everything
    (reach,) = set(re.findall(r'"domain": \[0, ([\d.]+)\]', spec))
    ways = view.figures.calibration["a"].values()
    assert float(reach) == pytest.approx(max(each.loss_high for each in ways))
    assert all(f'"a, {way}"' in spec for way in ("with", "without", "borrowed"))
    rows = calibration_table(view).rows
    assert len(rows) == 12
    own = view.figures.calibration["a"]["with"]
    assert own.log_loss == pytest.approx(loss(0.8, 0.2))
    assert own.loss_low < own.log_loss < own.loss_high
    assert rows[0][6:8] == (f"{own.log_loss:.3f}", f"{own.loss_low:.3f} to {own.loss_high:.3f}")
    more = [judge(tmp_path, name, FAIR, lent=UNSURE) for name in ("e", "f")]
    crowded = view_of(*runs, *more)
    figure = loss_figure(crowded)
    assert len(figure.table.rows) == 18
    page = render_locals(crowded)
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', page, re.DOTALL)[1])
    for key, each in specs.items():
        if key.startswith("measure-"):
            drawn = json.dumps(each)
            assert '"f, with"' in drawn
            assert '"f, without"' not in drawn
            assert '"a, borrowed"' not in drawn
    folded = "<summary>All tests as a table</summary>"
    assert page.count(folded) == 1  # those of log loss are 15
    assert folded not in render_locals(view_of(runs[0]))


def test_page_terminal_and_figures_have_log_loss(tmp_path):
    view = view_of(base(tmp_path), judge(tmp_path, "fair", FAIR))
    difference = f"−{math.log(2) - loss(0.8, 0.2):.3f}"
    (row,) = losses_table(view).rows
    assert row[:2] == ("fair − base, without criteria", difference)
    assert row[5:] == ("yes", "60")
    page = render_locals(view)
    assert difference in page[page.index("Paired tests of log loss") :]
    raw = io.StringIO()
    print_locals(view, Console(file=raw, width=80))
    shown = raw.getvalue()
    assert difference in shown[shown.index("Paired differences in log loss") :]
    (found,) = to_json(view)["losses"]
    assert found["comparison"]["difference"] == pytest.approx(loss(0.8, 0.2) - math.log(2))
