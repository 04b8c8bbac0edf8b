"""The page, the tables and the command of a diagnosis."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from habitus.cli.diagnose import diagnose as command
from habitus.data import Benchmark
from habitus.diagnose import DiagnosePlan, diagnose
from habitus.errors import InputError
from habitus.report.diagnosis import print_diagnosis, render_diagnosis, write_diagnosis
from habitus.report.diagnosis_cases import difference
from tests.cue_samples import cue_items, parents, planted
from tests.test_report_page import NASTY, Page


def make(tmp_path, name, items=None):
    data = Benchmark("cues", tuple(items or cue_items()), "native", Path("cues.jsonl"))
    return diagnose(DiagnosePlan(planted(name), data, tmp_path / name, resamples=100))


@pytest.fixture(scope="module")
def label(tmp_path_factory):
    return make(tmp_path_factory.mktemp("runs"), "label")


def specs(page):
    [text] = [text for attributes, text in page.scripts if attributes.get("id") == "chart-specs"]
    return json.loads(text)


def test_the_page_shows_the_verdict_the_bars_and_the_worst_cases(label):
    folder, found = label
    page = Page(write_diagnosis(folder, found).read_text(encoding="utf-8"))
    assert "This model follows the label." in page.text
    assert "−2.00 SD" in page.text
    rows = next(rows for rows in specs(page)["bars"]["datasets"].values() if len(rows) > 1)
    drawn = {row["label"]: (row["value"], row["tone"]) for row in rows}
    # RC goes down by 2 SD and is bad; the other surface cues stay at 0 and are good.
    assert drawn["RC"] == (-2, "bad")
    assert drawn["RP"] == (0, "good")
    assert drawn["CC"] == (0, "unclear")
    assert {"bars", "consistency", "favour", "triplet"} <= specs(page).keys()
    marked = re.findall(r"<mark>(.*?)</mark>", (folder.path / "diagnosis.html").read_text("utf-8"))
    assert "in Japan" in marked
    assert "hereupon" in marked


def test_causal_bars_go_up(tmp_path):
    folder, found = make(tmp_path, "concept")
    page = Page(write_diagnosis(folder, found).read_text(encoding="utf-8"))
    assert "no finite value" in page.text
    bars = json.dumps(specs(page)["bars"])
    assert re.search(r'"label": "CC", "value": 2\.309\d*, .*?"tone": "good"', bars)
    assert "none: no surface edit moved a score" in page.text


def test_a_model_that_ties_everything_has_a_page(tmp_path):
    folder, found = make(tmp_path, "same")
    page = Page(write_diagnosis(folder, found).read_text(encoding="utf-8"))
    assert "all responses the same score" in page.text
    assert "bars" not in specs(page)
    assert "no data" in page.text


def test_text_from_data_is_never_markup(tmp_path):
    nasty = "".join(NASTY)
    items = []
    for item in cue_items(4):
        body = item.model_dump()
        body["prompt"][0]["content"] += nasty
        body["culture"] = body["domain"] = nasty
        for candidate in body["candidates"]:
            candidate["text"] += nasty
        items.append(type(item).model_validate(body))
    folder, found = make(tmp_path, "label", items)
    html = render_diagnosis(found, folder.info, {item.id: item for item in folder.items()})
    page = Page(html)
    assert not {"img", "svg"} & {tag for tag, _ in page.tags}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "alert(1)" in page.text
    assert len(page.scripts) == 3
    assert len(page.ids) == len(set(page.ids))
    policy = [value for _, name, value in page.attributes if name == "content"]
    assert any("default-src 'none'" in value for value in policy)


def test_safety_items_are_folded_away(label):
    folder, found = label
    items = {item.id: item for item in folder.items()}
    sensitive = [case for case in found.worst if items[case.item_id].domain == "safety"]
    html = render_diagnosis(found, folder.info, items)
    assert html.count("Folded away: may offend or do harm") == len(sensitive)


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("In Japan we bow.", "Here we bow.", ["In Japan"], ["Here"]),
        ("same", "same", [], []),
        ("日本では", "この国では", ["日本"], ["この国"]),
        ("A b", "A b c", [], [" c"]),
        ("", "x", [], ["x"]),
        ("কথা বলি", "কথা শুনি", ["বলি"], ["শুনি"]),
    ],
)
def test_differences_are_marked_word_by_word(before, after, old, new):
    first, second = difference(before, after)
    assert "".join(text for text, _ in first) == before
    assert "".join(text for text, _ in second) == after
    assert [text for text, changed in first if changed] == old
    assert [text for text, changed in second if changed] == new


def test_tables_for_the_terminal(label):
    _, found = label
    text = io.StringIO()
    print_diagnosis(found, Console(file=text, width=100))
    shown = text.getvalue()
    assert "This model follows the label." in shown
    assert re.search(r"RC\s+−2\.00\s+−2\.00 to −2\.00\s+2\.00\s+100\.0", shown)
    assert re.search(r"AUC, concept against surface\s+0\.33", shown)
    assert re.search(r"language consistency \(k = 1\)\s+1\.00", shown)


def test_the_command_diagnoses_and_rebuilds(tmp_path, write_items, capsys):
    path = write_items(cue_items(4))
    out = tmp_path / "run"
    arguments = ["baseline:longest", "--benchmark", str(path), "--out", str(out), "--limit", "2"]
    command.main(arguments, standalone_mode=False)
    first = capsys.readouterr().out
    assert "baseline:longest on bench" in first
    page = (out / "diagnosis.html").read_bytes()
    assert len((out / "items.jsonl").read_text().splitlines()) == 2 * 11
    (out / "diagnosis.html").unlink()
    command.main([str(out)], standalone_mode=False)
    assert capsys.readouterr().out == first
    assert (out / "diagnosis.html").read_bytes() == page
    command.main([str(out), "--k", "2"], standalone_mode=False)
    assert json.loads((out / "diagnosis.json").read_text())["k"] == 2


def test_the_command_says_what_is_wrong(tmp_path, write_items):
    path = write_items(list(parents(2)))
    with pytest.raises(InputError, match="has no edited items"):
        command.main(["baseline:longest", "--benchmark", str(path)], standalone_mode=False)
    with pytest.raises(InputError, match="is no run folder"):
        command.main([str(tmp_path)], standalone_mode=False)
    with pytest.raises(InputError, match="--limit does not apply"):
        command.main([str(tmp_path), "--limit", "3"], standalone_mode=False)
    with pytest.raises(InputError, match="options of a model does not apply"):
        command.main([str(tmp_path), "--mode", "pairwise"], standalone_mode=False)
