"""`habitus correlate` on synthetic runs: matching, figures, page, and bad input as one line."""

import json

import numpy as np
import pytest

from habitus.cli.correlate import spread
from habitus.cli.main import run
from habitus.evaluate.correlate import analyse
from habitus.evaluate.correlate_model import Request
from habitus.evaluate.correlate_read import read_study
from habitus.evaluate.matching import Named, match, read_facts
from habitus.evaluate.outcomes import read_outcomes
from tests.correlate_samples import (
    make_items,
    simulate,
    spec,
    write_downstream,
    write_run,
)

ACCURACIES = np.linspace(0.2, 0.9, 9)
TRUTHS = [(float(x), float(0.2 + 0.5 * x)) for x in ACCURACIES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Nine reward models whose quality follows their accuracy, and a general benchmark that is noise."""
    folder = tmp_path_factory.mktemp("study")
    general = [0.6, 0.4, 0.5, 0.7, 0.3, 0.5, 0.6, 0.4, 0.5]
    runs, downstream, others = simulate(
        folder, TRUTHS, items=80, prompts=150, general=general, seed=1
    )
    facts = folder / "facts.csv"
    lines = [
        f"classifier:org/rm-{i:02},{10 ** (8 + i % 3)},{'mix' if i < 2 else ''}" for i in range(9)
    ]
    facts.write_text(
        "name,parameters,family\n" + "\n".join(lines) + "\nother,1,\n", encoding="utf-8"
    )
    return runs, downstream, others, facts


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run a command in a folder of its own; return (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = run(["correlate", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def refused(result, *parts):
    """A refusal: status 2 and one line on stderr that holds the parts."""
    status, out, err = result
    assert (status, out) == (2, "")
    assert err.count("error: ") == 1
    line = err.strip().splitlines()[-1]
    for part in parts:
        assert part in line


def study(runs, *downstream, **options):
    return read_study(Request(tuple(runs), downstream, **options))


def test_accuracy_and_quality_are_those_of_the_files(tmp_path):
    items = make_items(4)
    runs = [
        write_run(tmp_path / "good", spec("good"), items, "aaab"),
        write_run(tmp_path / "bad", spec("bad"), items, ["b", None, "a", "c"]),
    ]
    named = [("classifier:good", spec("good").digest), ("classifier:bad", spec("bad").digest)]
    # Prompts of Japan and Spain take turns; the means of the countries count alike.
    qualities = {named[0][1]: [1.0, 0.5, 0.0], named[1][1]: [0.0, None, 0.0]}
    found = study(runs, write_downstream(tmp_path / "down", "task", named, qualities))
    assert found.labels == ("classifier:bad", "classifier:good")
    assert found.benchmark.values == pytest.approx([1 / 3, 3 / 4])
    assert found.benchmark.n_excluded.tolist() == [1, 0]
    assert found.outcomes[0].values[1] == pytest.approx((0.5 + 0.5) / 2)
    assert np.isnan(found.outcomes[0].values[0])  # no prompt of Spain
    assert found.outcomes[0].n_excluded.tolist() == [1, 0]
    assert any("no verdict on 1 of 4 items" in note for note in found.notes)


def test_a_strong_relation_is_found_and_the_rival_is_not(made):
    runs, downstream, others, facts = made
    found = study(runs, downstream, general=tuple(others), facts=facts)
    figures = analyse(found, seed=0, resamples=300)
    own, rival = figures.correlations
    assert (own.benchmark, rival.benchmark) == ("bench", "general")
    assert own.pearson.value > 0.8
    assert own.pearson.over_models.low > 0
    assert own.p_holm < 0.05 < rival.p_holm
    assert own.n_families == 8
    [compared] = figures.versus
    assert compared.difference == pytest.approx(own.pearson.value - rival.pearson.value)
    names = [row.confounders for row in figures.given]
    assert names[:3] == [("length bias",), ("log parameters",), ("general score",)]
    assert figures.given[3].df == 9 - 2 - 3
    assert any("not among the runs: other" in note for note in found.notes)


def test_the_order_of_runs_changes_nothing(made):
    runs, downstream, _, _ = made
    first = analyse(study(runs, downstream), seed=3, resamples=100)
    assert analyse(study(runs[::-1], downstream), seed=3, resamples=100) == first


def test_several_tasks_have_a_mean_of_their_own(made, tmp_path):
    runs, downstream, _, _ = made
    named = [(spec(f"org/rm-{i:02}").name, spec(f"org/rm-{i:02}").digest) for i in range(9)]
    qualities = {digest: [0.1 * i, 0.3] for i, (_, digest) in enumerate(named)}
    second = write_downstream(tmp_path / "two", "include", named, qualities)
    found = study(runs, downstream, second)
    assert [one.name for one in found.outcomes] == ["blend-short", "include", "all tasks"]
    both = (found.outcomes[0].values + found.outcomes[1].values) / 2
    assert found.outcomes[2].values == pytest.approx(both)
    assert len(analyse(found, seed=0, resamples=50).correlations) == 3


def test_one_task_of_two_policies_is_told_apart(tmp_path):
    for name in ("one", "two"):
        rows = [("classifier:x", "d")]
        write_downstream(
            tmp_path / name, "task", rows, {"d": [1.0]}, policy={"name": name, "digest": name}
        )
    names = [one.name for one in read_outcomes([tmp_path / "one", tmp_path / "two"])]
    assert names == ["task [one]", "task [two]"]


def test_questions_are_clusters_where_the_prompts_name_them(tmp_path):
    folder = write_downstream(tmp_path / "d", "task", [("x", "d")], {"d": [1.0, 0.0, 1.0]})
    assert read_outcomes([folder])[0].picks["cluster"].to_list() == [
        "prompt-0",
        "prompt-1",
        "prompt-2",
    ]
    lines = [json.dumps({"id": f"prompt-{i}", "group": "q"}) for i in range(2)]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_outcomes([folder])[0].picks["cluster"].to_list() == ["q", "q", "prompt-2"]


def test_filters_keep_the_items_and_prompts_that_were_asked_for(made):
    runs, downstream, _, _ = made
    whole = study(runs, downstream)
    part = study(
        runs, downstream, domains=("values",), cultures=("Japanese",), countries=("Spain",)
    )
    assert whole.benchmark.n[0] == 80
    assert part.benchmark.n[0] == 20
    assert part.outcomes[0].n[0] == 75


def test_each_culture_meets_the_prompts_of_its_countries(made, tmp_path):
    runs, downstream, _, _ = made
    found = study(runs, downstream, by_culture=True)
    assert [(one.name, one.countries) for one in found.cultures] == [
        ("Japanese", ("Japan",)),
        ("Spanish", ("Spain",)),
    ]
    assert found.cultures[0].x.n[0] == 40
    assert found.cultures[0].outcomes[0].n[0] == 75
    only = study(runs, downstream, by_culture=True, countries=("Japan",))
    assert [one.name for one in only.cultures] == ["Japanese"]
    assert any("cultures: Spanish" in note for note in only.notes)
    figures = analyse(found, seed=0, resamples=50)
    assert [name for name, _ in figures.cultures] == ["Japanese", "Spanish"]


LEFT = [
    Named(("a:x:listwise", "a:x"), "1"),
    Named(("a:x:pairwise", "a:x"), "2"),
    Named(("b",), "3"),
]


def test_match_by_digest_then_by_label_then_by_name():
    right = [Named(("b",), "9"), Named(("a:x:pairwise", "a:x"), "8"), Named(("z",), "1")]
    found = match(LEFT, right)
    assert found.pairs == {0: 2, 1: 1, 2: 0}
    assert found.by_name == (1, 2)
    assert match(LEFT, right, "digest").pairs == {0: 2}
    assert match(LEFT, right, "name").pairs == {1: 1, 2: 0}
    assert match(LEFT, right, "name").unmatched == (2,)


def test_a_name_that_several_share_matches_nothing():
    found = match(LEFT, [Named(("a:x",), "7")])
    assert found.pairs == {}
    assert found.ambiguous == ("a:x",)


def test_what_matches_by_name_or_not_at_all_is_said(made, tmp_path):
    runs, _, _, _ = made
    rows = [(f"classifier:org/rm-{i:02}", f"new{i}") for i in range(5)] + [
        ("classifier:odd", "odd")
    ]
    qualities = {digest: [0.1 * i, 0.2] for i, (_, digest) in enumerate(rows)}
    folder = write_downstream(tmp_path / "d", "task", rows, qualities)
    found = study(runs, folder)
    notes = "\n".join(found.notes)
    assert "classifier:org/rm-00 was matched with classifier:org/rm-00 of task by name" in notes
    assert "Not in task, so left out there: classifier:org/rm-05, " in notes
    assert "In task but not among the runs, so left out: classifier:odd." in notes
    assert analyse(found, seed=0, resamples=50).correlations[0].n == 5


def test_facts_of_a_file(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text('name,parameters,run,general\n"a, b",7e9,x,\nc,,,0.5\n', encoding="utf-8")
    rows, columns = read_facts(path)
    assert columns == ("run",)
    assert (rows[0].name, rows[0].parameters, rows[0].columns) == ("a, b", 7e9, {"run": "x"})
    assert (rows[1].general, rows[1].columns) == (0.5, {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nam\nx\n", "no column 'name', only nam"),
        ("", "only nothing"),
        ("name,parameters\nx,7B\n", "line 2: parameters '7B' is no number"),
        ("name,parameters\nx,0\n", "line 2: parameters must be above 0"),
        ("name,general\nx,nan\n", "line 2: general 'nan' is no number"),
        ("name\nx\nx\n", "line 3: name 'x' is there twice"),
        ("name,family\n,x\n", "line 2: no name"),
        ("name,family\nx\n", "line 2: not 2 cells"),
        ("name,family\nx,y,z\n", "line 2: not 2 cells"),
    ],
)
def test_a_wrong_facts_file_is_refused(made, cli, tmp_path, text, part):
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    refused(cli(*made[0], "--downstream", made[1], "--facts", "f.csv"), "f.csv", part)


def test_options_take_several_words():
    assert spread(["a", "--general", "b", "c", "--seed", "1", "--downstream=d", "e"]) == [
        *("a", "--general", "b", "--general", "c", "--seed", "1", "--downstream=d", "e")
    ]
    assert spread(["--general", "b", "--", "c"]) == ["--general", "b", "--", "c"]


def test_the_command_prints_and_writes_everything(made, cli, tmp_path):
    runs, downstream, others, facts = made
    status, out, err = cli(
        *runs, "--by-culture", "--downstream", downstream, "--general", *others, "--facts", facts
    )
    assert status == 0
    assert "higher accuracy goes with higher quality" in " ".join(out.split())
    assert "By culture" in out
    assert "page: correlate.html" in err
    body = json.loads((tmp_path / "correlation.json").read_text(encoding="utf-8"))
    assert body["grouped_by"] == "family"
    assert len(body["models"]) == 9
    assert body["models"][0]["parameters"] == 1e8
    assert body["correlations"][0]["coefficients"][0]["name"] == "pearson"
    page = (tmp_path / "correlate.html").read_text(encoding="utf-8")
    for part in ("chart-scatter-0", "Leave one out", "Steiger", "families", "rm-08"):
        assert part in page
    assert "<script src" not in page


def test_where_nothing_is_told_the_least_relation_that_would_be_is(made, cli):
    runs, downstream, others, facts = made
    call = ("--downstream", downstream, "--facts", facts)
    unclear = " ".join(cli(*others, *call)[1].split())  # the general benchmark is noise
    assert "no relation that can be told from none" in unclear
    assert "With 8 independent families a true r of 0.85 or more, either way," in unclear
    assert "would be found four times" not in " ".join(cli(*runs, *call)[1].split())


def test_equal_calls_give_equal_bytes(made, cli, tmp_path):
    for name in ("one", "two"):
        cli(*made[0][:6], "--downstream", made[1], "--out", f"{name}/c.html")
    assert (tmp_path / "one/c.html").read_bytes() == (tmp_path / "two/c.html").read_bytes()


def test_few_models_and_ties_are_said(cli, tmp_path):
    items = make_items(8)
    picks = {"one": "aaaabbbb", "two": "bbbbaaaa", "three": "aaaaaaab"}
    runs = [write_run(tmp_path / name, spec(name), items, found) for name, found in picks.items()]
    named = [(spec(name).name, spec(name).digest) for name in picks]
    qualities = {digest: [0.1 * i] * 2 for i, (_, digest) in enumerate(named)}
    folder = write_downstream(tmp_path / "d", "task", named, qualities)
    status, out, _ = cli(*runs, "--downstream", folder)
    flat = " ".join(out.split())
    assert status == 0
    assert "Only 3 reward models" in flat
    assert "2 of 3 reward models share their accuracy" in flat
    assert "no interval, which needs 5 RMs" in flat
    assert "needs 5 RMs, has 3" in flat


def test_markup_in_names_stays_text(cli, tmp_path):
    items = make_items(4)
    names = ["<script>alert(1)</script>", "[bold]x", "plain", "other"]
    runs = [
        write_run(tmp_path / str(i), spec(name), items, picks)
        for i, (name, picks) in enumerate(zip(names, ("aaab", "aabb", "abbb", "bbbb"), strict=True))
    ]
    rows = [(spec(name).name, spec(name).digest) for name in names]
    qualities = {digest: [0.1 * i, 0.2] for i, (_, digest) in enumerate(rows)}
    folder = write_downstream(tmp_path / "d", "<b>task</b>", rows, qualities)
    status, out, _ = cli(*runs, "--downstream", folder)
    assert status == 0
    page = (tmp_path / "correlate.html").read_text(encoding="utf-8")
    assert "<b>task</b>: " in out
    assert "[bold]x" in page
    assert "<script>alert" not in page
    assert "<b>task" not in page


def test_constant_quality_is_no_data_and_no_crash(made, cli, tmp_path):
    rows = [(spec(f"org/rm-{i:02}").name, spec(f"org/rm-{i:02}").digest) for i in range(4)]
    folder = write_downstream(tmp_path / "d", "task", rows, {d: [0.5, 0.5] for _, d in rows})
    status, out, _ = cli(*made[0][:4], "--downstream", folder, "--general", *made[2][:4])
    assert status == 0
    assert "all RMs have the same quality" in " ".join(out.split())
    body = json.loads((tmp_path / "correlation.json").read_text(encoding="utf-8"))
    assert body["correlations"][0]["coefficients"] == []


def test_bad_folders_are_one_line(made, cli, tmp_path):
    runs, downstream, others, _ = made
    refused(cli("--downstream", downstream, *runs), "no RUN")
    refused(cli(*runs), "--downstream")
    refused(cli(*runs, "--downstream", "absent"), "no such folder: absent")
    refused(cli(*runs, "--downstream", runs[0]), "has no downstream.json")
    refused(cli("absent", "--downstream", downstream), "no such run folder")
    refused(cli(*runs, others[0], "--downstream", downstream), "their items differ")
    refused(cli(runs[0], runs[0], "--downstream", downstream), "runs of one reward model")
    refused(cli(*runs, "--downstream", downstream, downstream), "2 times")
    refused(cli(*runs, "--downstream", downstream, "--general", *runs), "of the same items")
    refused(cli(*runs, "--downstream", downstream, "--domain", "x"), "values")
    refused(cli(*runs, "--downstream", downstream, "--culture", "x"), "Japanese")
    refused(cli(*runs, "--downstream", downstream, "--country", "x"), "prompts of Japan, Spain")
    refused(cli(*runs, "--downstream", downstream, "--group", "x"), "--facts")
    refused(cli(*runs, "--downstream", downstream, "--facts", made[3], "--group", "x"), "no column")
    strange = write_downstream(tmp_path / "z", "task", [("z", "z")], {"z": [0.5]})
    refused(cli(*runs, "--downstream", strange), "no reward model of the runs", "it has z")


@pytest.mark.parametrize(
    ("about", "picks", "part"),
    [
        ("[]", None, "a JSON object was expected"),
        ("{", None, "not readable as JSON"),
        ('{"scorers": []}', None, "'task' must be a name"),
        ('{"task": "t", "scorers": 1}', None, "'scorers' must be a list"),
        ('{"task": "t", "scorers": [{"digest": "d"}]}', None, "needs a name and a digest"),
        (None, None, "picks.jsonl: cannot be read"),
        (None, "", "no pick of the scorers"),
        (None, '{"scorer": "d"}\n', "line 1: no 'prompt'"),
        (None, '{"scorer": \n', "line 1: not a JSON object"),
        (None, '{"scorer": "d", "prompt": "p", "quality": 7}\n', "row 1: quality 7 of prompt 'p'"),
        (
            None,
            2 * '{"scorer": "d", "prompt": "p", "quality": 1}\n',
            "several picks for prompt 'p'",
        ),
        (
            None,
            '{"scorer": "d", "prompt": "p", "country": "A", "quality": 1}\n'
            '{"scorer": "e", "prompt": "p", "country": "B", "quality": 1}\n',
            "'p' is of several countries",
        ),
    ],
)
def test_a_broken_downstream_run_is_one_line(made, cli, tmp_path, about, picks, part):
    whole = '{"task": "t", "scorers": [{"name": "x", "digest": "d"}, {"name": "y", "digest": "e"}]}'
    (tmp_path / "d").mkdir()
    (tmp_path / "d/downstream.json").write_text(about or whole, encoding="utf-8")
    if picks is not None:
        (tmp_path / "d/picks.jsonl").write_text(picks, encoding="utf-8")
    refused(cli(*made[0], "--downstream", "d"), part)
