"""The report of country reward models: sentences, page, terminal, command."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import pytest
import vl_convert
from click.testing import CliRunner
from rich.console import Console

from habitus.cli.scpo_report import scpo_report
from habitus.errors import InputError, UnknownNameError
from habitus.metrics.preferences_read import read_study
from habitus.metrics.preferences_summary import summarise_study
from habitus.report import scpo_charts, scpo_figures
from habitus.report.comparisons import comparison_cells
from habitus.report.scpo import LAYER_NOTE, findings, print_study, render_study, verdict
from habitus.report.scpo_charts import Line, _label_places
from habitus.report.scpo_figures import View, matrix_figure
from habitus.types import Comparison
from tests.preference_samples import lines, two_countries, unit_folder, write_study

EVIL = '<script>alert("x")</script>'
RIGHT, WRONG = (1.0, 0.0), (0.0, 1.0)


def many(n=60):
    """Questions with a pair in each of two countries, in two folds."""
    return [
        {"pair": f"{country}-{q}", "country": country, "group": f"q{q}", "fold": q % 2}
        for country in ("Austria", "Brazil")
        for q in range(n)
    ]


def study_of(tmp_path, score, pairs=None, **about):
    pairs = pairs or many()
    base = {p["pair"]: RIGHT if int(p["group"][1:]) % 3 else WRONG for p in pairs}
    return read_study([write_study(tmp_path / "out", pairs, base, score, **about)])


def view_of(study):
    return View(study, summarise_study(study, resamples=300))


def good(country, variant, seed, share, pair):
    """scpo is always right, fine-tuning half of the time."""
    return RIGHT if variant == "scpo" or int(pair["group"][1:]) % 2 else WRONG


def alike(country, variant, seed, share, pair):
    """Fine-tuning and scpo differ on two questions, one each way."""
    question = int(pair["group"][1:])
    return RIGHT if question % 2 or question == (2 if variant == "scpo" else 4) else WRONG


def test_the_verdict_claims_what_is_beyond_the_noise(tmp_path):
    said = verdict(view_of(study_of(tmp_path, good)))
    assert said.tone == "above"
    assert said.text.startswith("Filter + weights against fine-tuning: more accurate beyond")
    assert "+50.0 points" in said.text


def test_what_is_won_and_lost_adds_up(tmp_path):
    view = view_of(study_of(tmp_path, good))
    # of 60 questions the base has 40 right; fine-tuning has the odd ones right, scpo all
    expected = {"finetune": (10 / 60, 20 / 60), "scpo": (20 / 60, 0.0)}
    for variant, values in expected.items():
        found = [view.metric(name, variant, None) for name in ("won", "lost")]
        assert [each.value for each in found] == pytest.approx(values)
        assert all(each.ci_low <= each.value <= each.ci_high for each in found)
    rows = {row[0]: (row[1], row[3]) for row in scpo_figures.change_rows(view)}
    assert rows == {"fine-tuning": ("16.7", "33.3"), "filter + weights": ("33.3", "0.0")}


def test_the_verdict_turns_with_the_sign(tmp_path):
    def bad(country, variant, seed, share, pair):
        return good(country, "scpo" if variant == "finetune" else "finetune", seed, share, pair)

    said = verdict(view_of(study_of(tmp_path, bad)))
    assert (said.tone, "less accurate" in said.text) == ("below", True)


def test_no_claim_inside_the_noise(tmp_path):
    view = view_of(study_of(tmp_path, alike))
    said = verdict(view)
    assert said.tone == "unclear"
    assert "cannot be told apart" in said.text
    assert "would be found four times in five" in said.text
    whole = " ".join([said.text, *(each.text for each in findings(view))])
    assert not re.search(r"\b(wins|beats|better)\b", whole)


def test_no_data_is_said(tmp_path):
    skip = [(c, v, f) for c in ("Austria", "Brazil") for v in ("scpo", "finetune") for f in (0, 1)]
    view = view_of(study_of(tmp_path, good, skip=skip))
    assert verdict(view).tone == "empty"
    assert findings(view)[0].text == "8 units of 8 not finished; figures are of the others."
    render_study(view.study, view.figures)


def test_findings_name_what_a_reader_must_know(tmp_path):
    study = study_of(tmp_path, good, non_commercial=True)
    folder = unit_folder(tmp_path / "out", "Austria", "scpo")
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"n_skipped": 2, "n_too_long": 7}))
    study = read_study([tmp_path / "out"])
    said = [each.text for each in findings(view_of(study))]
    assert said[0].startswith("Not for commercial use")
    assert said[1] == "2 steps of training skipped: the loss or gradient was no number."
    assert any("own model cannot be told from the other countries' models" in s for s in said)
    assert any(s.startswith("One seed") for s in said)


def test_the_page_escapes_everything_and_loads_nothing(tmp_path):
    pairs = [
        {
            "pair": f"{country}{q}",
            "country": country,
            "group": f"q{q}",
            "fold": q % 2,
            "source": EVIL,
        }
        for country in ("Austria", f"Evil {EVIL}".replace("/", ""))
        for q in range(6)
    ]
    study = study_of(
        tmp_path, good, pairs=pairs, command=EVIL, versions={EVIL: EVIL},
        base={"name": EVIL, "revision": EVIL},
    )  # fmt: skip
    html = render_study(study, summarise_study(study, resamples=50))
    assert EVIL not in html
    assert "<script>alert" not in html
    assert LAYER_NOTE in html
    page = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)  # the chart library
    assert not re.search(r'(src|href)="(?!#|https://arxiv|data:,)', page)
    for section in ("accuracy", "steering", "efficiency", "filter", "training", "benchmarks"):
        assert f'<section id="{section}"' in html
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_every_chart_has_its_figures(tmp_path):
    out = tmp_path / "out"
    study = study_of(tmp_path, good, shares=(0.5, 1.0), variants=("finetune", "weight", "scpo"))
    for variant in ("weight", "scpo"):
        folder = unit_folder(out, "Austria", variant)
        rows = [{"pair": "Austria-1", "p": 0.2, "weight": 0.4, "kept": True}]
        lines(folder / "filter.jsonl", rows)
        lines(folder / "curve.jsonl", [{"step": n, "loss": 1 / n} for n in range(1, 9)])
    record = {
        "benchmark": {"name": "toy"},
        "before": {"value": 0.5, "n": 9},
        "after": {"value": 0.6},
    }
    (folder / "benchmark.json").write_text(json.dumps(record))
    study = read_study([out])
    html = render_study(study, summarise_study(study, resamples=50))
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', html, re.DOTALL)[1])
    assert set(specs) == {
        "accuracy-0", "accuracy-1", "accuracy-2", "matrix", "efficiency", "kept",
        "weights-weight", "weights-scpo", "curves",
    }  # fmt: skip
    shown = json.dumps(specs["matrix"], ensure_ascii=False)
    assert "+33.3" in shown  # scpo is right on all; the base on two thirds
    assert "toy" in html


def test_the_command_writes_page_and_figures(tmp_path):
    pairs = two_countries()
    base = {pair["pair"]: RIGHT for pair in pairs}
    out = write_study(tmp_path / "out", pairs, base, good)
    page = tmp_path / "elsewhere" / "page.html"
    result = CliRunner().invoke(scpo_report, [str(out), "--out", str(page)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "<h1" in page.read_text()
    figures = json.loads((page.parent / "figures.json").read_text())
    assert figures["variant"] == "scpo"
    assert figures["units"] == 8
    assert figures["verdict"].startswith("Filter + weights against fine-tuning")
    assert len(figures["steering"]["cells"]) == 4
    again = CliRunner().invoke(scpo_report, [str(out)], catch_exceptions=False)
    assert again.exit_code == 0
    assert (out / "scpo-report.html").is_file()


def test_the_command_names_what_is_wrong(tmp_path):
    out = write_study(tmp_path / "out", two_countries(), {}, good)
    with pytest.raises(UnknownNameError, match="unknown variant 'nope'"):
        scpo_report.main([str(out), "--variant", "nope"], standalone_mode=False)
    with pytest.raises(InputError, match="no such folder"):
        scpo_report.main([str(tmp_path / "none")], standalone_mode=False)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_terminal_shows_layers_tests_and_the_note(tmp_path, encoding):
    study = study_of(tmp_path, good)
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_study(study, summarise_study(study, resamples=100), Console(file=raw, width=80))
    raw.flush()
    text = " ".join(raw.buffer.getvalue().decode(encoding).split())
    assert "All pairs" in text
    assert "Base disagrees" in text
    assert "higher is not better" in text
    assert "average of countries" in text
    assert "+50.0" in text


def test_names_at_line_ends_do_not_overlap():
    ends = (0.50, 0.51, 0.90)
    found = [Line(str(end), "model", ((1.0, end, 0.4, 1.0),)) for end in ends]
    places = [place for _, place in _label_places(found)]
    # The range is 0.6, so names stand at least 0.039 apart: 0.50, 0.539, 0.90, less the mean
    # shift of 0.029 / 3.
    assert places == pytest.approx([0.50 - 0.029 / 3, 0.539 - 0.029 / 3, 0.90 - 0.029 / 3])


@pytest.mark.parametrize(("end", "wanted"), [(1.0, False), (1.2, True)])
def test_an_axis_of_shares_ends_at_100_per_cent(end, wanted):
    """Names that stand apart need room; a figure over 100 % is shown where there is one."""
    found = [
        Line(f"run {n}", "model", ((1, 0.2, None, None), (2, end, None, None))) for n in range(6)
    ]
    spec = scpo_charts.lines(found, "step", "share", "shares", plain_x=True)
    marks = re.findall(r">(-?\d+) %<", vl_convert.vegalite_to_svg(json.dumps(spec)))
    assert "100" in marks
    assert any(int(mark) > 100 for mark in marks) is wanted


def compared(low):
    return Comparison(
        a="scpo", b="base", difference=0.1, ci_low=low, ci_high=0.2, p=0.01, p_holm=0.04,
        n=50, n_excluded=0, detectable=0.15,
    )  # fmt: skip


def test_tables_call_apart_what_test_and_interval_tell_apart(tmp_path):
    assert comparison_cells(compared(0.01))[4] == "yes"
    assert comparison_cells(compared(-0.01))[4] == "no"  # p alone is not enough
    steering = view_of(study_of(tmp_path, good)).figures.steering
    for low, strength in ((0.01, 1.0), (-0.01, 0.4)):
        cell = dataclasses.replace(steering.cells[0], gain=compared(low))
        spec = matrix_figure(dataclasses.replace(steering, cells=(cell,))).spec
        assert f'"strength": {strength}' in json.dumps(spec)


def test_a_table_says_what_it_leaves_out(tmp_path):
    view = view_of(study_of(tmp_path, good))
    tests = view.figures.accuracy.tests
    many_tests = dataclasses.replace(view.figures.accuracy, tests=(tests * 50)[:403])
    table = scpo_figures.tests_table(
        View(view.study, dataclasses.replace(view.figures, accuracy=many_tests))
    )
    assert (len(table.rows), table.note) == (400, "3 more rows are in figures.json.")
    assert scpo_figures.tests_table(view).note == ""
