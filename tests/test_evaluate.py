"""Evaluation end to end: the run folder, resume after a kill, refusals, failures as data."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from habitus.data import load
from habitus.errors import RunError
from habitus.evaluate import Plan, evaluate
from habitus.scorers import resolve
from habitus.scorers.base import ItemFailureError, ItemScorer
from habitus.types import RunInfo, ScorerSpec, Status
from tests.conftest import make_item, read_jsonl


def plan(path, out, model="baseline:random", **options):
    return Plan(resolve(model), load(str(path)), out, **options)


def content(folder):
    """The bytes of a run, times aside."""
    judgements = read_jsonl(folder / "judgements.jsonl")
    for line in judgements:
        line.pop("seconds")
    run = json.loads((folder / "run.json").read_text())
    del run["started"], run["id"]
    return (
        judgements,
        run,
        (folder / "items.jsonl").read_bytes(),
        (folder / "metrics.json").read_bytes(),
    )


@pytest.fixture
def bench(write_items):
    domains = ("commonsense", "values", "safety", "linguistics")
    cultures = ("Japanese", "Thai")
    return write_items(
        [make_item(n, domain=domains[n % 4], culture=cultures[n // 4 % 2]) for n in range(80)]
    )


def test_a_run_folder_holds_what_it_says(bench, tmp_path):
    folder = evaluate(plan(bench, tmp_path / "run", seed=3))
    assert {path.name for path in folder.path.iterdir() if path.name != ".lock"} == {
        "run.json",
        "items.jsonl",
        "judgements.jsonl",
        "metrics.json",
    }
    info = RunInfo.model_validate_json((folder.path / "run.json").read_bytes())
    assert info.seed == 3
    assert info.scorer == resolve("baseline:random").spec
    items = [item.id for item in folder.items()]
    judgements = list(folder.judgements())
    assert [judgement.item_id for judgement in judgements] == items
    assert {judgement.scorer for judgement in judgements} == {info.scorer.digest}
    body = json.loads((folder.path / "metrics.json").read_text())
    (overall,) = [m for m in body["metrics"] if m["name"] == "accuracy" and m["group"] == {}]
    right = sum(judgement.winner_ids == ("a",) for judgement in judgements)
    assert overall["value"] == pytest.approx(right / 80)
    assert {"n", "n_excluded", "ci_low", "ci_high"} <= set(overall)


def test_equal_runs_are_equal(bench, tmp_path):
    first = evaluate(plan(bench, tmp_path / "a"))
    second = evaluate(plan(bench, tmp_path / "b"))
    assert content(first.path) == content(second.path)


SLOW_RUN = """
import sys, time
from habitus.data import load
from habitus.evaluate import Plan, evaluate
from habitus.scorers import resolve
scorer = resolve("baseline:random")
score = scorer.scores_of
def slowly(item, order, seed):
    time.sleep(0.01)
    return score(item, order, seed)
scorer.scores_of = slowly
evaluate(Plan(scorer, load(sys.argv[1]), __import__("pathlib").Path(sys.argv[2])))
"""


@pytest.mark.slow
def test_kill_dash_nine_then_resume_gives_the_bytes_of_an_unbroken_run(bench, tmp_path):
    whole = evaluate(plan(bench, tmp_path / "whole"))
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_RUN, str(bench), str(out)], stderr=subprocess.DEVNULL
    )
    log = out / "judgements.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_bytes().count(b"\n") >= 7):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = log.read_bytes().count(b"\n")
    assert 7 <= done < 80
    with log.open("ab") as tail:
        tail.write(b'{"item_id": "item-7')  # and the kill tore a line
    said = []
    resumed = evaluate(plan(bench, out, resume=True), said.append)
    assert said == [f"resuming {out}: {done} of 80 items are done"]
    assert content(resumed.path) == content(whole.path)


def test_an_existing_run_is_not_touched_without_resume(bench, tmp_path):
    folder = evaluate(plan(bench, tmp_path / "run"))
    before = (folder.path / "judgements.jsonl").read_bytes()
    with pytest.raises(RunError, match="holds a run; add --resume"):
        evaluate(plan(bench, tmp_path / "run"))
    with pytest.raises(RunError, match=r"seed was 0 and is now 1; give the old options"):
        evaluate(plan(bench, tmp_path / "run", seed=1, resume=True))
    with pytest.raises(RunError, match=r"scorer\.model was 'random' and is now 'longest'"):
        evaluate(plan(bench, tmp_path / "run", model="baseline:longest", resume=True))
    assert (folder.path / "judgements.jsonl").read_bytes() == before


def test_changed_items_are_refused_on_resume(bench, tmp_path):
    evaluate(plan(bench, tmp_path / "run"))
    bench.write_text(bench.read_text().replace("A goose.", "Two geese."))
    with pytest.raises(RunError, match=r"config\.benchmark\.digest was"):
        evaluate(plan(bench, tmp_path / "run", resume=True))


def test_limit_is_spread_over_cultures_and_domains(bench, tmp_path):
    folder = evaluate(plan(bench, tmp_path / "run", limit=8))
    assert len({(item.culture, item.domain) for item in folder.items()}) == 8


class Moody(ItemScorer):
    """Fails on every third item, until it has been told off."""

    spec = ScorerSpec(kind="test", model="moody")
    moody = True

    def scores_of(self, item, order, seed):
        number = int(item.id.removeprefix("item-"))
        if self.moody and number % 3 == 0:
            raise RuntimeError("not now")
        if number % 3 == 1:
            raise ItemFailureError(Status.UNPARSED, "no verdict", raw="hm")
        return {"scores": {c.id: float(c.id == "a") for c in item.candidates}}


def test_failures_are_counted_apart_and_retried_when_asked(bench, tmp_path):
    scorer = Moody()
    folder = evaluate(Plan(scorer, load(str(bench)), tmp_path / "run"))

    def overall(name, **group):
        body = json.loads((folder.path / "metrics.json").read_text())
        (found,) = [m for m in body["metrics"] if m["name"] == name and m["group"] == group]
        return found

    accuracy = overall("accuracy")
    assert (accuracy["value"], accuracy["n"], accuracy["n_excluded"]) == (1.0, 26, 54)
    assert overall("accuracy_failures_wrong")["value"] == pytest.approx(26 / 80)
    assert overall("status_count", status="error")["value"] == 27
    assert overall("status_count", status="unparsed")["value"] == 27
    scorer.moody = False
    loaded = load(str(bench))
    evaluate(Plan(scorer, loaded, tmp_path / "run", resume=True))
    assert overall("status_count", status="error")["value"] == 27  # kept: they are data
    evaluate(Plan(scorer, loaded, tmp_path / "run", resume=True, retry_failed=True))
    assert overall("status_count", status="error")["value"] == 0
    assert overall("accuracy")["n"] == 53


class Interrupted(Moody):
    def scores_of(self, item, order, seed):
        if item.id == "item-5":
            raise KeyboardInterrupt
        return {"scores": {c.id: float(c.id == "a") for c in item.candidates}}


def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(bench, tmp_path):
    said = []
    with pytest.raises(KeyboardInterrupt):
        evaluate(Plan(Interrupted(), load(str(bench)), tmp_path / "run"), said.append)
    assert said == ["stopped: 5 of 80 items are kept; go on with --resume"]
    assert len(read_jsonl(tmp_path / "run" / "judgements.jsonl")) == 5
