"""R_appr in two parts: of any criteria, and of a judge's own."""

import io
import math

import pytest
from rich.console import Console

from habitus.metrics.locals_heldout import appr, figures
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


def test_a_judge_that_gains_by_any_criteria_alike_is_said_to(tmp_path):
    """Its R_appr is above 0, and nothing of it is of what it writes."""
    apart = (math.exp(0.05), math.exp(-0.05))
    records = [record(k, own=(0.7 * apart[k % 2],) * 2) for k in range(60)]
    view = view_of(write_run(tmp_path / "a", records=records))
    (found,) = texts(view, "a part of its own cannot be told")
    assert found.tone == "warning"
    rises = f"+{rise(0.7, 0.5):.3f}"
    assert found.text.startswith(
        f"R_appr of a is {rises} on average, and {rises} after criteria about other questions: "
    )
    assert texts(view, "Whether a uses the criteria it writes cannot be told")


def test_a_judge_that_uses_what_it_writes_is_said_to(tmp_path):
    """Also where its verdicts are the same, so that accuracy does not tell."""
    records = [record(k, own=(0.8, 0.75 + 0.001 * k)) for k in range(40)]
    view = view_of(write_run(tmp_path / "a", records=records))
    (found,) = texts(view, "a uses what it writes")
    assert found.tone == "note"
    assert texts(view, "In accuracy that cannot be told of a: +0.0 points")
    assert not texts(view, "Whether a uses")
    worse = [record(k, own=(0.6, 0.55 + 0.001 * k)) for k in range(40)]
    (found,) = texts(view_of(write_run(tmp_path / "b", records=worse)), "than after its own")
    assert found.tone == "warning"


def test_judges_that_never_learned_to_write_are_in_the_table_only(tmp_path):
    records = [record(k) for k in range(30)]
    base = write_run(tmp_path / "base", stage="base", records=records)
    view = view_of(base, write_run(tmp_path / "v", stage="verdict", records=records))
    assert [each.arm for each in view.figures.rises] == ["base", "v"]
    assert not texts(view, "other questions")


def test_page_terminal_and_figures_have_them(tmp_path):
    records = [record(k) for k in range(30)]
    view = view_of(write_run(tmp_path / "a", records=records))
    (row,) = rises_table(view).rows
    own = rise(0.8, 0.5) - rise(0.7, 0.5)
    assert row[:4] == ("a", f"+{rise(0.8, 0.5):.3f}", f"+{rise(0.7, 0.5):.3f}", f"+{own:.3f}")
    assert row[-1] == "30"
    page = render_locals(view)
    assert "R_appr in two parts" in page
    assert row[3] in page
    console = Console(file=io.StringIO(), width=80)
    print_locals(view, console)
    (line,) = [
        each for each in console.file.getvalue().splitlines() if row[1] in each and row[3] in each
    ]
    assert line.split()[0] == "a"
    (found,) = to_json(view)["rises"]
    assert found["own"]["difference"] == pytest.approx(own)


def test_held_out_figures_have_the_rise_of_borrowed_criteria():
    records = [record(k) for k in range(4)]
    assert appr(records[0]) == pytest.approx(rise(0.8, 0.5))
    assert appr(records[0], "borrowed") == pytest.approx(rise(0.7, 0.5))
    values = {
        each["criteria"]: each["value"]
        for each in figures(records, resamples=50)
        if each["name"] == "r_appr" and not each["group"]
    }
    assert values == pytest.approx({"with": rise(0.8, 0.5), "borrowed": rise(0.7, 0.5)})
