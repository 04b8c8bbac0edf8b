"""R_appr in two parts: of any criteria, and of a judge's own."""

import io
import math
import re

import pytest
from rich.console import Console

from habitus.metrics.statistics import holm
from habitus.report.locals import print_locals, render_locals, to_json
from habitus.report.locals_figures import rises_table
from habitus.report.locals_findings import findings
from tests.locals_run_samples import held_out, look, view_of, write_run

PLAIN, OWN, BORROWED = (0.5, 0.5), (0.8, 0.8), (0.7, 0.7)


def record(number, own=OWN, borrowed=BORROWED, plain=PLAIN):
    return held_out(number, own, plain, borrowed=look(*borrowed))


def rise(after, before):
    return math.log(after) - math.log(before)


def texts(view, words):
    return [each for each in findings(view) if words in each.text]


def test_the_parts_add_up_by_hand(tmp_path):
    records = [record(k) for k in range(30)] + [
        record(30, (0.4, 0.9), (0.6, 0.5)),
        record(31, (None, None)),
        record(32, borrowed=(None, None)),
    ]
    view = view_of(write_run(tmp_path / "a", records=records))
    (found,) = view.figures.rises
    last = (rise(0.4, 0.5) + rise(0.9, 0.5)) / 2, (rise(0.6, 0.5) + rise(0.5, 0.5)) / 2
    assert found.total == pytest.approx((30 * rise(0.8, 0.5) + last[0]) / 31)
    assert found.borrowed == pytest.approx((30 * rise(0.7, 0.5) + last[1]) / 31)
    assert found.own.difference == pytest.approx(found.total - found.borrowed)
    assert (found.own.n, found.own.n_excluded) == (31, 2)
    assert found.own.p_holm == found.own.p


def test_a_pair_counts_once_for_runs_that_differ_in_the_seed(tmp_path):
    first = [record(k) for k in range(30)]
    second = [record(k, own=(0.9, 0.9)) for k in range(20)]
    runs = [
        write_run(tmp_path / f"a-{seed}", records=records, config={"seed": seed})
        for seed, records in enumerate((first, second))
    ]
    other = write_run(tmp_path / "b", records=first, config={"grpo": {"lr": 1}})
    both, one = view_of(*runs, other).figures.rises
    assert (both.arm, one.arm) == ("a (2 runs)", "b")
    mean = (rise(0.8, 0.5) + rise(0.9, 0.5)) / 2
    assert both.total == pytest.approx((20 * mean + 10 * rise(0.8, 0.5)) / 30)
    assert both.own.n == 30
    assert [both.own.p_holm, one.own.p_holm] == pytest.approx(holm([both.own.p, one.own.p]))


def test_without_borrowed_criteria_there_are_no_parts(tmp_path):
    records = [held_out(k, OWN, PLAIN) for k in range(30)]
    view = view_of(write_run(tmp_path / "a", records=records))
    assert view.figures.rises == ()
    assert not texts(view, "other questions")
    assert "R_appr in two parts" not in render_locals(view)


APART = (math.exp(0.05), math.exp(-0.05))


@pytest.mark.parametrize(
    ("own", "borrowed", "said", "part"),
    [
        # right or wrong alike, and no surer or less sure on average
        ((0.7, 0.7), (0.7, 0.7), "Whether a uses", "a part of its own cannot be told"),
        # surer of the same verdicts, which accuracy does not tell
        ((0.8, 0.8), (0.7, 0.7), "Whether a uses", "its own make the right verdict likelier"),
        ((0.6, 0.6), (0.7, 0.7), "Whether a uses", "its own make the right verdict less likely"),
        ((0.7, 0.7), (0.3, 0.3), "a is more accurate", "its own make the right verdict likelier"),
        ((0.3, 0.3), (0.7, 0.7), "a is less accurate", "the right verdict less likely"),
        # more often right, and far too sure where it is not
        ((0.55, 0.001), (0.45, 0.45), "a is more accurate", "the right verdict less likely"),
    ],
)
def test_whether_a_judge_uses_its_criteria_is_told_by_accuracy(tmp_path, own, borrowed, said, part):
    first, second = own
    records = []
    for k in range(60):
        value = (first if k % 4 else second) * APART[k % 2]
        records.append(record(k, own=(value, value), borrowed=borrowed))
    found = texts(view_of(write_run(tmp_path / "a", records=records)), "other questions")
    (finding,) = found  # one sentence has both
    assert finding.text.startswith(said)
    assert part in finding.text
    assert finding.tone == ("note" if said == "a is more accurate" else "warning")


def test_few_groups_have_no_parts(tmp_path):
    """Intervals of few groups are made for shares."""
    one = view_of(write_run(tmp_path / "a", records=[record(k) for k in range(29)]))
    assert one.figures.rises == ()
    (finding,) = texts(one, "other questions")
    assert "R_appr" not in finding.text
    (found,) = view_of(
        write_run(tmp_path / "b", records=[record(k) for k in range(30)])
    ).figures.rises
    assert found.own.detectable is None


def test_a_run_without_a_verdict_counts_in_no_mean_of_its_pair(tmp_path):
    runs = [
        write_run(
            tmp_path / f"a-{seed}",
            records=[record(k, own=(None, None) if seed and k < 15 else OWN) for k in range(30)],
            config={"seed": seed},
        )
        for seed in range(2)
    ]
    (found,) = view_of(*runs).figures.rises
    assert (found.own.n, found.own.n_excluded) == (30, 0)
    assert found.borrowed == pytest.approx(rise(0.7, 0.5))


def test_one_mean_rise_stands_on_top_of_those_that_learned_to_write(tmp_path):
    records = [record(k) for k in range(30)]
    for stage, shown in (("both", True), ("verdict", False)):
        run = write_run(tmp_path / stage, stage=stage, records=records)
        assert (f"Mean R_appr, {stage}" in render_locals(view_of(run))) == shown


def test_judges_that_never_learned_to_write_are_in_the_table_only(tmp_path):
    records = [record(k) for k in range(30)]
    base = write_run(tmp_path / "base", stage="base", records=records)
    view = view_of(base, write_run(tmp_path / "v", stage="verdict", records=records))
    assert [each.arm for each in view.figures.rises] == ["base", "v"]
    assert not texts(view, "other questions")


def test_page_terminal_and_figures_have_them(tmp_path):
    records = [*(record(k) for k in range(30)), record(30, (None, None))]
    view = view_of(write_run(tmp_path / "a", records=records))
    (row,) = rises_table(view).rows
    own = rise(0.8, 0.5) - rise(0.7, 0.5)
    shown = [f"+{value:.3f}" for value in (rise(0.8, 0.5), rise(0.8, 0.5), rise(0.7, 0.5), own)]
    assert row[:5] == ("a", *shown)
    assert row[-1] == "30 (1 left out)"
    page = render_locals(view)
    table = page[page.index("R_appr in two parts") : page.index("<h3>Paired tests")]
    assert [cell for cell in re.findall(r"<td[^>]*>([^<]*)</td>", table) if cell in shown] == shown
    console = Console(file=io.StringIO(), width=80)
    print_locals(view, console)
    (line,) = [
        each
        for each in console.file.getvalue().splitlines()
        if shown[0] in each and shown[-1] in each and "30 of 31" in each
    ]
    assert line.split()[0] == "a"
    (found,) = to_json(view)["rises"]
    assert found["own"]["difference"] == pytest.approx(own)
