"""The report of trained judges: reading, figures, sentences, page, terminal, command."""

from __future__ import annotations

import io
import json
import math
import re

import pytest
from click.testing import CliRunner
from rich.console import Console

from habitus.cli.locals_report import locals_report
from habitus.errors import InputError
from habitus.metrics.locals_read import read_runs
from habitus.report.locals import print_locals, render_locals, to_json
from habitus.report.locals_criteria import held_out_views, training_views
from habitus.report.locals_figures import (
    appr_table,
    calibration_table,
    differing,
    group_figures,
    seeds_table,
    thinned,
)
from habitus.report.locals_findings import findings, notes, verdict
from habitus.report.terminal import Sparkline
from habitus.report.text import Budget
from tests.locals_run_samples import held_out, look, step, text, view_of, watched, write_run

EVIL = '</script><img src=x onerror="alert(1)">'
RIGHT, WRONG, A_ALWAYS = (0.9, 0.9), (0.1, 0.1), (0.9, 0.2)


def two(tmp_path, n=60, share=4, **fields):
    """A base that is right on no pair and writes no criteria, and a run that is right on all but every `share`-th."""
    base = [held_out(k, (None, None), WRONG) for k in range(n)]
    after = [held_out(k, WRONG if k % share == 0 else RIGHT, WRONG) for k in range(n)]
    one = write_run(tmp_path / "base", stage="base", records=base)
    return one, write_run(tmp_path / "trained", records=after, **fields)


# Figures


def test_tests_are_paired_by_pair_and_corrected_over_the_table(tmp_path):
    one, other = two(tmp_path)
    found = view_of(other, one)
    assert [run.label for run in found.runs] == ["base", "trained"]  # the base comes first
    assert len(found.figures.tests) == 2 * 3
    (test,) = [t for t in found.figures.tests if t.measure == "accuracy" and not t.own]
    own = test.comparison
    assert (own.a, own.b, own.n) == ("trained", "base, without criteria", 60)
    assert own.difference == pytest.approx(0.75)
    # 45 pairs, each of a group of its own, differ, all one way: exact McNemar, 2 / 2 ** 45. So it
    # is in both measures, and for the run with criteria and without; the base has no test of its
    # own, for it judges nothing after criteria. The smallest of four goes times four.
    assert own.p == pytest.approx(2 * 0.5**45)
    assert own.p_holm == pytest.approx(4 * 2 * 0.5**45)


def test_pairs_without_a_verdict_are_left_out_and_counted(tmp_path):
    base = [held_out(k, RIGHT, RIGHT) for k in range(4)]
    after = [held_out(k, RIGHT if k else (None, None), RIGHT) for k in range(1 + 4)]
    found = view_of(
        write_run(tmp_path / "base", stage="base", records=base),
        write_run(tmp_path / "b", records=after),
    )
    tests = {(*t.arms, t.measure): t.comparison for t in found.figures.tests}
    # of 5 pairs one has no verdict in b, one is not among the base's
    both = tests["b", "base", "accuracy"]
    assert (both.n, both.n_excluded) == (3, 2)
    own = tests["b", "b", "accuracy"]
    assert (own.n, own.n_excluded, own.difference) == (4, 1, 0.0)


def test_a_liking_for_a_letter_is_no_both_orders(tmp_path):
    records = [held_out(k, A_ALWAYS, RIGHT) for k in range(4)]
    found = view_of(write_run(tmp_path / "a", records=records))
    tests = {t.measure: t.comparison.difference for t in found.figures.tests}
    assert tests == {"accuracy": 0.0, "both_orders": -1.0}  # 0.9 + 0.2 is more than half


def test_curves_are_binned_and_missing_values_left_out(tmp_path):
    lines = [step(k, accuracy=k / 100, r_appr=None if k > 50 else 0.2) for k in range(1, 101)]
    found = view_of(write_run(tmp_path / "a", curve=lines))
    curves = {curve.name: curve for curve in found.figures.curves}
    accuracy = curves["accuracy"]
    assert len(accuracy.points) == 40
    assert accuracy.points[0] == pytest.approx((2.0, 0.02))  # steps 1, 2 and 3
    assert accuracy.first == pytest.approx(0.055)  # mean of 1 to 10 hundredths
    assert accuracy.last == pytest.approx(0.955)
    assert curves["r_appr"].n == 50
    assert "warmup_loss" not in curves
    (cost,) = found.figures.costs
    assert (cost.seconds, cost.parts, cost.tokens_per_second) == (4.0, (2.0, 0.5, 1.5), 40.0)


def test_curves_of_many_runs_are_drawn_in_few_points(tmp_path):
    lines = [step(k, accuracy=k / 100) for k in range(1, 101)]
    runs = [write_run(tmp_path / name, curve=lines) for name in "abcd"]
    for some, points in ((runs[:3], 40), (runs, 10)):
        view = view_of(*some)
        curves = [curve for curve in view.figures.curves if curve.name == "accuracy"]
        assert {len(curve.points) for curve in curves} == {40}
        html = render_locals(view)
        specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', html, re.DOTALL)[1])
        rows = [row for rows in specs["curve-accuracy"]["datasets"].values() for row in rows]
        assert len({row["x"] for row in rows if row.get("line") == "a"}) == points
    assert thinned([(1.0, 0.0), (2.0, 1.0), (3.0, 5.0)], 2) == [(1.5, 0.5), (3.0, 5.0)]
    assert thinned([], 10) == []


def test_how_often_the_warm_up_showed_a_pair_is_said(tmp_path):
    kept = {"n_criteria": 7, "n_criteria_both_orders": 2}
    shown = {"pairs": 400, "mean": 3.2, "most": 11}
    run = write_run(tmp_path / "a", **kept, shown_after_criteria=shown)
    assert notes(view_of(run)) == [
        "a: the warm-up kept 7 criteria, of which 2 help in both orders, and showed a pair 3.2 "
        "times after criteria on average, 11 times at most."
    ]
    older = write_run(tmp_path / "b", **kept)
    assert notes(view_of(older)) == [
        "b: the warm-up kept 7 criteria, of which 2 help in both orders."
    ]


def test_seeds_of_one_configuration_are_pooled(tmp_path):
    def run(seed, right):
        records = [held_out(k, RIGHT if k < right else WRONG, WRONG) for k in range(10)]
        return write_run(tmp_path / f"s{seed}", records=records, config={"seed": seed})

    other = write_run(tmp_path / "other", records=[], config={"grpo": {"lr": 1}})
    found = view_of(run(0, 4), run(1, 6), other)
    (seeds,) = [each for each in found.figures.seeds if each.measure == "accuracy"]
    assert seeds.runs == ("s0", "s1")
    assert (seeds.mean, seeds.sd) == pytest.approx((0.5, 0.02**0.5))
    (loss,) = [each for each in found.figures.seeds if each.measure == "log_loss"]
    first, second = (-(n * math.log(0.9) + (10 - n) * math.log(0.1)) / 10 for n in (4, 6))
    assert (loss.mean, loss.sd) == pytest.approx(((first + second) / 2, (first - second) / 2**0.5))
    (row,) = [row for row in seeds_table(found).rows if row[1] == "Log loss of verdicts"]
    assert row[2:] == (f"{loss.mean:.3f}", f"{loss.sd:.3f}")


def test_runs_that_differ_in_the_seed_only_are_compared_as_one(tmp_path):
    def run(name, seed, right, **config):
        records = [held_out(k, right(k), WRONG) for k in range(60)]
        return write_run(tmp_path / name, records=records, config={"seed": seed, **config})

    base = write_run(
        tmp_path / "base",
        stage="base",
        records=[held_out(k, (None, None), WRONG) for k in range(60)],
    )
    runs = [
        run("both-0", 0, lambda k: RIGHT if k < 20 else WRONG),
        run("other", 0, lambda k: WRONG, grpo={"lr": 1}),
        run("both-1", 1, lambda k: RIGHT if k < 40 else (None, None)),
    ]
    found = view_of(base, *runs)
    arms = {"base": ("base",), "both (2 runs)": ("both-0", "both-1"), "other": ("other",)}
    assert found.figures.arms == arms
    assert len(found.figures.tests) == 2 * (3 + 3)
    tests = {(*t.arms, t.measure): t.comparison for t in found.figures.tests}
    both = tests["both (2 runs)", "base", "accuracy"]
    # 20 pairs right in both runs, 20 in one of two; 20 wrong in the one that judged them
    assert (both.n, both.n_excluded) == (60, 0)
    assert both.difference == pytest.approx((20 + 10) / 60)
    assert (both.a, both.b) == ("both (2 runs)", "base, without criteria")
    # the last run named is the one of the verdict, together with its twin
    assert "both (2 runs)" in verdict(found).text

    def against(view):
        return [f for f in findings(view) if "against other, " in f.text]

    accuracy, both_orders, loss = against(found)  # the one of the verdict is told to be better
    assert (accuracy.tone, both_orders.tone, loss.tone) == ("note", "note", "note")
    assert loss.text.startswith("both (2 runs) against other, log loss: −")  # less is better
    assert loss.text.endswith("; better beyond the noise.")
    assert ", accuracy: " in accuracy.text
    assert ", both orders right: " in both_orders.text
    turned = view_of(base, *runs[::2], runs[1])
    assert [
        f.tone for f in findings(turned) if f.text.startswith("other against both (2 runs)")
    ] == ["warning"] * 3
    even = run("even", 0, lambda k: RIGHT if k < 30 else WRONG, grpo={"lr": 2})
    alike = [f for f in findings(view_of(base, runs[0], even, runs[2])) if "against even" in f.text]
    assert [", accuracy: " in f.text for f in alike if "cannot be told" in f.text] == [True]
    page = render_locals(found)
    assert re.search(r"<h1[^>]*>base, both-0, other, both-1</h1>", page)
    larger = render_locals(view_of(base, *runs, run("last", 2, lambda k: RIGHT)))
    assert re.search(r"<h1[^>]*>base, both-0, other, both-1 and 1 more</h1>", larger)
    assert "both (2 runs) − other" not in page  # the later minus the earlier, by the first run
    assert "other − both (2 runs)" in page
    assert to_json(found)["arms"] == {label: list(names) for label, names in arms.items()}


def test_arms_of_one_name_are_named_by_their_runs(tmp_path):
    folders = [
        write_run(
            tmp_path / f"a-{n}",
            records=[held_out(0, RIGHT, WRONG)],
            config={"seed": n % 2, "grpo": {"lr": n // 2}},
        )
        for n in range(4)
    ]
    assert list(view_of(*folders).figures.arms) == ["a-0, a-1", "a-2, a-3"]


def test_criteria_that_help_on_most_pairs_and_cost_more_on_few_are_said_to(tmp_path):
    misled = (0.01, 0.01)
    said = {}
    for name, few, helped in (
        ("few", 4, (0.7, 0.7)),
        ("none", 0, (0.7, 0.7)),
        ("sure", 8, (0.99, 0.99)),
    ):
        n_pairs = 20 if name == "sure" else 12
        records = [held_out(n, misled if n < few else helped, (0.6, 0.6)) for n in range(n_pairs)]
        one = write_run(tmp_path / name / "base", stage="base", records=[held_out(0, RIGHT, RIGHT)])
        run = write_run(tmp_path / name / "run", records=records)
        found = [each.text for each in findings(view_of(one, run))]
        said[name] = [text for text in found if "cost more" in text]
    rise, fall = math.log(0.7 / 0.6), math.log(0.01 / 0.6)
    assert said["none"] == []
    assert said["few"] == [
        "Criteria of run make the right verdict likelier on most pairs (median R_appr "
        f"+{rise:.3f}), and where they mislead it they cost more "
        f"(mean \N{MINUS SIGN}{-(8 * rise + 4 * fall) / 12:.3f})."
    ]
    # 0.99 sure and right in 60 %; without criteria it was 60 % sure of what was always right
    (overconfident,) = said["sure"]
    assert overconfident.replace("\u00a0", " ").endswith(
        "): the likelier letter has 99 % after them and is right in 60 % of looks, without 60 % and 100 %."
    )


def test_too_narrow_an_interval_is_said_to_be(tmp_path):
    for n, narrow in ((29, True), (30, False)):
        view = view_of(*two(tmp_path, n=n))
        for table in (appr_table(view), calibration_table(view)):
            assert ("too narrow" in table.note) == narrow


def test_settings_that_differ(tmp_path):
    one = write_run(tmp_path / "x" / "a", config={"grpo": {"lr": 1e-5}})
    other = write_run(tmp_path / "y" / "a", config={"grpo": {"lr": 2e-5}})
    table = differing(read_runs([one, other]))
    assert table.headers == ("Setting", "x/a", "y/a")
    assert table.rows == (("grpo.lr", "1e-05", "2e-05"),)


def test_a_run_under_way_is_read_and_a_torn_line_left_out(tmp_path):
    folder = write_run(tmp_path / "a", done=False, curve=[step(1), step(2)])
    with (folder / "curve.jsonl").open("a") as file:
        file.write('{"step": 3, "accur')
    found = view_of(folder)
    assert found.runs[0].curve.height == 2
    assert "a is not finished: step 2 of 4." in [each.text for each in findings(found)]
    assert verdict(found).tone == "empty"
    render_locals(found)
    write_run(tmp_path / "a", done=False, curve=[step(n) for n in (1, 2, 3, 4)])
    text = "a is not finished: step 4 of 4, but not what follows it."
    assert text in [each.text for each in findings(view_of(folder))]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("run.json", "{}", "no run of habitus train locals"),
        ("run.json", "[", "not readable as JSON"),
        ("curve.jsonl", '{"step": 1}\nx\n', "line 2: not a JSON object; delete the line"),
        ("heldout.json", '{"pairs": [{}], "figures": []}', "KeyError: 'criteria'"),
        ("heldout.json", '{"pairs": 3}', "not held-out figures"),
    ],
)
def test_broken_files_are_named(tmp_path, file, content, message):
    folder = write_run(tmp_path / "a")
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        read_runs([folder])
    assert file in str(raised.value)
    assert "\n" not in str(raised.value)


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_runs([tmp_path / "none"])
    with pytest.raises(InputError, match="written by habitus train locals"):
        read_runs([tmp_path])
    folder = write_run(tmp_path / "a")
    with pytest.raises(InputError, match="named 2 times"):
        read_runs([folder, tmp_path / "b" / ".." / "a"])


# Sentences


def test_the_verdict_is_the_last_run_against_the_base(tmp_path):
    said = verdict(view_of(*two(tmp_path)))
    assert said.tone == "above"
    assert said.text.startswith(
        "trained against base, without criteria: more accurate beyond the noise (+75.0"
    )
    assert "60 held-out pairs" in said.text


def test_no_claim_inside_the_noise(tmp_path):
    said = verdict(view_of(*two(tmp_path, n=4)))
    assert said.tone == "unclear"
    assert "would be found four times in five" in said.text


def test_a_run_alone_is_compared_with_itself_without_criteria(tmp_path):
    records = [held_out(k, WRONG, RIGHT) for k in range(40)]
    said = verdict(view_of(write_run(tmp_path / "a", records=records)))
    assert said.tone == "below"
    assert said.text.startswith("a, with criteria against a, without criteria: less accurate")


def test_findings_name_what_a_reader_must_know(tmp_path):
    records = [held_out(k, (0.99, 0.02) if k else (None, None), WRONG) for k in range(20)]
    folder = write_run(
        tmp_path / "a", records=records, non_commercial=True, collapsed="collapsed to one letter"
    )
    said = [each.text for each in findings(view_of(folder))]
    assert said[0].startswith("Not for commercial use")
    assert said[1] == "a collapsed to one letter."
    assert said[2] == "a gives no verdict on 1 of 20 held-out pairs."
    assert said[3] == "a favours the first response in 100\u00a0% of looks, whatever it is."


@pytest.mark.parametrize(("borrowed", "told"), [(RIGHT, True), (WRONG, False)])
def test_criteria_that_help_no_more_than_borrowed_ones_are_named(tmp_path, borrowed, told):
    one = held_out(0, RIGHT, WRONG)
    records = [
        one | {"pair": f"p{k}", "group": f"g{k}", "borrowed": look(*borrowed)} for k in range(30)
    ]
    view = view_of(write_run(tmp_path / "a", records=records))
    tests = [t for t in view.figures.tests if t.measure == "accuracy"]
    (test,) = [t for t in tests if "borrowed" in t.comparison.b]
    assert test.own
    assert test.comparison.difference == (0.0 if told else 1.0)
    said = [each.text for each in findings(view)]
    words = "Whether a uses the criteria it writes cannot be told"
    assert any(each.startswith(words) for each in said) == told


def test_supervised_steps_are_two_curves(tmp_path):
    folder = write_run(tmp_path / "a")
    for name, losses in (("warmup", (2.0, 1.0)), ("warmup/verdicts", (4.0, 3.0))):
        lines = [{"step": k, "loss": loss} for k, loss in enumerate(losses, 1)]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "curve.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    curves = {curve.name: curve.points for curve in view_of(folder).figures.curves}
    assert curves["verdict_loss"] == ((1.0, 4.0), (2.0, 3.0))
    assert curves["warmup_loss"] == ((1.0, 2.0), (2.0, 1.0))


# Criteria


def test_the_same_pair_early_midway_and_late(tmp_path):
    lines = [watched(s, pair) for s in (0, 25, 50, 75, 100) for pair in ("p", "q")]
    lines[0]["verdict"], lines[0]["problem"] = None, "no </criteria>"
    folder = write_run(tmp_path / "a", watched=lines, samples=[text(1), text(2)])
    views = training_views(read_runs([folder]), Budget(10**6))
    assert [view.title for view in views] == ["Who?", "Who?"]
    columns = views[0].columns
    assert [c.title for c in columns] == ["before reinforcement", "after step 50", "after step 100"]
    assert [c.text.text for c in columns] == [f"text of step {s}" for s in (0, 50, 100)]
    assert [c.right for c in columns] == [None, True, True]
    assert "no </criteria>" in columns[0].figures
    assert "R_corr +1.000, R_appr +0.250, reward +1.250" in columns[1].figures
    assert views[0].tags == ("a", "Chile", "es", "test")


def test_without_watched_pairs_samples_that_recur_in_one_order_are_taken(tmp_path):
    lines = [text(1, "p"), text(1, "q"), text(9, "p", right="B"), text(9, "q"), text(10, "q")]
    (view,) = training_views(read_runs([write_run(tmp_path / "a", samples=lines)]), Budget(10**6))
    assert view.title == "q"
    assert [c.title for c in view.columns] == [f"after step {s}" for s in (1, 9, 10)]


def test_without_any_pair_that_recurs_others_are_shown_and_said_to_be(tmp_path):
    lines = [text(k, f"p{k}") for k in (1, 2, 3)]
    (view,) = training_views(read_runs([write_run(tmp_path / "a", samples=lines)]), Budget(10**6))
    assert view.title.startswith("Other pairs")
    assert [c.title for c in view.columns] == ["step 1, p1", "step 2, p2", "step 3, p3"]


def test_held_out_texts_stand_side_by_side(tmp_path):
    runs = read_runs(two(tmp_path, n=3))
    views = held_out_views(runs, Budget(10**6))
    assert [view.title for view in views[:2]] == ["Question 0?", "Question 1?"]  # two languages
    first = views[1].columns
    assert [(c.title, c.right) for c in first] == [("base", None), ("trained", True)]
    assert first[1].figures == "p of the right response: 0.90 shown first, 0.90 shown second"


# Page, terminal, command


def dirty(tmp_path):
    """A run whose every text is markup."""
    lines = [
        watched(s, EVIL, text=EVIL, question=EVIL, chosen=EVIL, culture=EVIL, domain="safety")
        for s in (0, 4)
    ]
    records = [held_out(k, RIGHT, WRONG, source=EVIL + str(k), question=EVIL) for k in range(4)]
    return write_run(
        tmp_path / "a&b",
        curve=[step(1), step(2)],
        watched=lines,
        records=records,
        command=EVIL,
        collapsed=EVIL,
        non_commercial=True,
        versions={EVIL: EVIL},
        config={"stage": EVIL, "model": {"model": EVIL}},
    )


def test_the_page_escapes_everything_and_loads_nothing(tmp_path):
    html = render_locals(view_of(dirty(tmp_path), *two(tmp_path)))
    assert EVIL not in html
    assert "<img" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    page = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|https://arxiv|data:,)', page)
    for section in ("held-out", "groups", "curves", "criteria", "cost", "rerun"):
        assert f'<section id="{section}"' in html
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "not for commercial use" in page
    assert "Folded away: may offend or do harm" in page


def test_every_chart_is_on_the_page(tmp_path):
    folder = write_run(
        tmp_path / "a",
        curve=[step(k) for k in range(1, 5)],
        records=[held_out(k, RIGHT, WRONG) for k in range(4)],
    )
    html = render_locals(view_of(folder))
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', html, re.DOTALL)[1])
    assert set(specs) == {
        "measure-accuracy", "measure-both-orders", "measure-p-a", "measure-log-loss",
        "by-language", "by-country",
        "curve-accuracy", "curve-both-orders", "curve-p-a", "curve-r-corr", "curve-r-appr",
        "curve-total", "curve-parse-rate", "curve-criteria-chars", "curve-kl", "curve-entropy",
        "curve-flat-groups", "curve-tokens-per-second",
    }  # fmt: skip


def test_accuracy_by_group_stands_side_by_side(tmp_path):
    one, other = two(tmp_path, n=8, share=2)  # the run is right on the odd ones: Chile's
    figure = next(f for f in group_figures(view_of(one, other)) if f.id == "by-country")
    shown = {row[:2]: row[2] for row in figure.table.rows}
    assert shown == {
        ("Chile", "base"): "0.0\u00a0%", ("Chile", "trained"): "100.0\u00a0%",
        ("Thailand", "base"): "0.0\u00a0%", ("Thailand", "trained"): "0.0\u00a0%",
    }  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_terminal_shows_figures_and_curves(tmp_path, encoding):
    one, other = two(tmp_path, curve=[step(k, accuracy=k / 8) for k in range(1, 9)])
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_locals(view_of(one, other), Console(file=raw, width=80))
    raw.flush()
    text = " ".join(raw.buffer.getvalue().decode(encoding).split())
    assert "Paired differences in accuracy" in text
    assert "+75.0" in text
    rising = "▁▂▃▄▅▆▇█" if encoding == "utf-8" else "_..-=**#"
    shown = text.replace("\u00a0", " ").replace(" |", "").replace("|", "")
    assert f"Verdict accuracy 12.5 % {rising} 100.0 %" in shown


def test_lines_of_characters():
    draw = Sparkline(Console(width=100), width=3)
    assert draw([]) == ""
    assert draw([1.0, 1.0]) == "▄▄"
    assert draw([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]) == "▁▅█"  # halfway of 8 marks: 3.5, to even 4


def test_the_command_writes_page_and_figures(tmp_path):
    one, other = two(tmp_path)
    done = CliRunner().invoke(locals_report, [str(one), str(other)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "<h1" in (other / "locals-report.html").read_text()
    figures = json.loads((other / "figures.json").read_text())
    assert [run["label"] for run in figures["runs"]] == ["base", "trained"]
    assert figures["verdict"].startswith("trained against base")
    page = tmp_path / "elsewhere" / "page.html"
    assert not CliRunner().invoke(locals_report, [str(one), "--out", str(page)]).exit_code
    first = page.read_bytes()
    CliRunner().invoke(locals_report, [str(one), "--out", str(page)])
    assert page.read_bytes() == first  # equal files, equal bytes
