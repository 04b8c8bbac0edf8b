"""The command line: what it prints, and bad input as one clear line with status 2."""

import json
import os
import subprocess
import sys

import pytest

from habitus.cli.main import run
from tests.conftest import make_item


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run a command in a folder of its own; return (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def refused(result, *parts):
    """A refusal: status 2, nothing on stdout, and one line on stderr that holds the parts."""
    status, out, err = result
    assert status == 2
    assert out == ""
    line = err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    for part in parts:
        assert part in line


def test_evaluate_prints_the_figures_and_where_the_report_is(cli, tmp_path):
    status, out, err = cli("evaluate", "baseline:longest", "--out", "run")
    assert status == 0
    assert "report: run/report.html" in err
    assert "accuracy" in out.lower()
    assert "40" in out
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "habitus evaluate baseline:longest --benchmark carb-open:quick --seed 0" in page


def test_the_default_folder_is_named_after_what_was_run(cli, tmp_path):
    assert cli("evaluate", "baseline:random", "--seed", 7)[0] == 0
    assert (tmp_path / "runs" / "carb-open-quick__baseline-random__s7" / "metrics.json").exists()


def test_compare_and_report_need_files_only(cli, tmp_path):
    for name in ("random", "longest", "shortest"):
        cli("evaluate", f"baseline:{name}", "--out", name)
    status, out, err = cli("compare", "random", "longest", "shortest", "--out", "all.html")
    assert status == 0
    assert "baseline:shortest" in out
    assert "page: all.html" in err
    assert "baseline:random" in (tmp_path / "all.html").read_text(encoding="utf-8")
    metrics = (tmp_path / "random" / "metrics.json").read_bytes()
    for name in ("metrics.json", "report.html"):
        (tmp_path / "random" / name).unlink()
    assert cli("report", "random")[0] == 0
    assert (tmp_path / "random" / "metrics.json").read_bytes() == metrics
    assert (tmp_path / "random" / "report.html").exists()


def test_one_scorer_in_two_runs_is_told_apart(cli):
    cli("evaluate", "baseline:random", "--out", "one")
    cli("evaluate", "baseline:random", "--out", "two", "--seed", "1")
    status, out, _ = cli("compare", "one", "two")
    assert status == 0
    assert "[one]" in out
    assert "[two]" in out


def test_lists(cli):
    assert "embedded:smollm2-135m" in cli("models")[1]
    out = cli("benchmarks")[1]
    assert "carb-open:quick" in out
    assert "40" in out
    assert "rewardbench2" in out
    assert cli("--version")[1].startswith("habitus ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["evaluate", "embeded"], ["did you mean embedded"]),
        (["evaluate", "ensemble:baseline:random,foo:x"], ["member foo:x: unknown"]),
        (["evaluate", "baseline:longst"], ["did you mean longest"]),
        (["evaluate", "baseline:random", "--benchmark", "carb-opn:quick"], ["carb-open:quick"]),
        (["evaluate", "baseline:random", "--benchmark", "none.jsonl"], ["none.jsonl"]),
        (["evaluate", "baseline:random", "--limit", "0"], ["--limit"]),
        (["evaluate", "baseline:random", "--mode", "criteria"], ["--mode"]),
        (["evaluate", "baseline:random", "--format", "xml", "--benchmark", "."], ["xml"]),
        (["evaluate"], ["MODEL"]),
        (["evaluate", "embedded:none.gguf"], ["no such model file: none.gguf"]),
        (["report", "none"], ["no such run folder: none"]),
        (["compare", "none"], ["two or more"]),
        (["compare", "none", "nothing"], ["no such run folder"]),
        (["evalute", "x"], ["evaluate"]),
    ],
)
def test_wrong_names_and_options(cli, arguments, parts):
    refused(cli(*arguments), *parts)


BAD_FILES = {
    "empty": (b"", ["bad.jsonl"]),
    "broken": (b'{"prompt": "p", "chosen": "c", "rejected": "r"}\n{"prompt": \n', ["line 2"]),
    "no chosen": (b'{"prompt": "p", "rejected": "r"}\n', ["chosen", "rejected"]),
    "empty chosen": (b'{"prompt": "p", "chosen": [], "rejected": "r"}\n', ["chosen"]),
    "not utf-8": (b'{"prompt": "\xff", "chosen": "c", "rejected": "r"}\n', ["UTF-8"]),
    "duplicate": (
        b'{"id": "x", "prompt": "p", "chosen": "c", "rejected": "r"}\n' * 2,
        ["x", "1", "2"],
    ),
    "a list": (b"[1, 2]\n", ["bad.jsonl"]),
}


@pytest.mark.parametrize(("data", "parts"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_files(cli, tmp_path, data, parts):
    (tmp_path / "bad.jsonl").write_bytes(data)
    refused(cli("evaluate", "baseline:random", "--benchmark", "bad.jsonl", "--out", "run"), *parts)
    assert not (tmp_path / "run").exists()


def test_an_existing_run_and_a_changed_one(cli):
    assert cli("evaluate", "baseline:random", "--out", "run")[0] == 0
    refused(cli("evaluate", "baseline:random", "--out", "run"), "--resume")
    refused(
        cli("evaluate", "baseline:random", "--out", "run", "--resume", "--seed", "1"),
        "seed was 0 and is now 1",
    )
    assert cli("evaluate", "baseline:random", "--out", "run", "--resume")[0] == 0


def test_a_folder_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    refused(cli("evaluate", "baseline:random", "--out", "file/run"), "cannot write file/run")
    cli("evaluate", "baseline:random", "--out", "a")
    cli("evaluate", "baseline:longest", "--out", "b")
    refused(cli("compare", "a", "b", "--out", "file/page.html"), "cannot write file/page.html")


def test_damaged_run_files_are_named(cli, tmp_path):
    cli("evaluate", "baseline:random", "--out", "run")
    log = tmp_path / "run" / "judgements.jsonl"
    good = log.read_bytes()
    log.write_bytes(good + b"nonsense\n")
    refused(cli("report", "run"), "judgements.jsonl", "line 41")
    log.write_bytes(good)
    (tmp_path / "run" / "run.json").write_text("{")
    refused(cli("report", "run"), "run.json")


def test_runs_without_common_items_are_refused(cli, tmp_path):
    for number, name in ((1, "a"), (2, "b")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(make_item(number).model_dump_json(exclude_none=True) + "\n")
        cli("evaluate", "baseline:random", "--benchmark", path, "--out", name)
    refused(cli("compare", "a", "b"), "no judged item in common")
    refused(cli("compare", "a", "a"), "named 2 times")


def test_a_run_whose_judgements_all_failed_is_compared_as_no_data(cli, tmp_path):
    for rule in ("random", "longest", "shortest"):
        cli("evaluate", f"baseline:{rule}", "--out", rule)
    log = tmp_path / "longest" / "judgements.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    failed = [line | {"status": "unparsed", "winner_ids": [], "scores": {}} for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in failed))
    cli("report", "longest")
    status, out, _ = cli("compare", "random", "longest", "shortest")
    assert status == 0
    (row,) = [row.split() for row in out.splitlines() if row.startswith(" –") and "longest" in row]
    assert row == ["–", "baseline:longest", "no", "data", "–", "0", "no", "data"]
    shown = " ".join(out.split())
    assert shown.count("no data – no data no data 0") == 2  # of three paired differences


class OutOfMemoryError(RuntimeError):
    """Named as torch's, which the core does without."""


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nStack:"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_a_full_device_is_one_line_that_says_what_to_make_smaller(cli, monkeypatch, error):
    def fill(*args, **kwargs):
        raise error

    monkeypatch.setattr("habitus.evaluate.evaluate", fill)
    status, out, err = cli("evaluate", "baseline:random", "--out", "run")
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert "allocate" in line
    assert "--micro-batch" in line


def test_other_errors_are_not_hidden(cli, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("habitus.evaluate.evaluate", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli("evaluate", "baseline:random", "--out", "run")


def test_an_unfinished_run_reports_what_it_has(cli, tmp_path):
    cli("evaluate", "baseline:longest", "--out", "run")
    log = tmp_path / "run" / "judgements.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:10]) + b'{"item_id"')
    status, _, _ = cli("report", "run")
    assert status == 0
    body = json.loads((tmp_path / "run" / "metrics.json").read_text())
    (overall,) = [m for m in body["metrics"] if m["name"] == "accuracy" and m["group"] == {}]
    assert (overall["n"], overall["n_excluded"]) == (10, 30)


@pytest.mark.slow
def test_the_core_starts_without_heavy_imports():
    code = (
        "import sys; from habitus.cli.main import app; "
        "heavy = {'torch', 'transformers', 'polars', 'altair', 'xllamacpp', 'scipy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("arguments", "status"), [(["models"], 0), (["evaluate", "no:such"], 2)])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_process_of_several_ends_before_its_interpreter_does(arguments, status, processes):
    """Threads of torch that meet an interpreter being torn down abort a run that went well."""
    code = (
        "import atexit, os, sys; from habitus.cli.main import main; "
        "atexit.register(os.write, 1, b'left'); "
        "ending = type('Ending', (), {'__del__': lambda self, write=os.write: write(1, b' ended')}); "
        "sys.ending = ending(); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"WORLD_SIZE": processes},
    )
    assert done.returncode == status
    assert ("baseline:random" in done.stdout) is (status == 0)
    assert done.stdout.endswith("left ended" if processes == "1" else "left")


@pytest.mark.slow
def test_the_embedded_judge_from_the_command_line(cli, tmp_path):
    status, out, _ = cli("evaluate", "embedded", "--limit", "2", "--out", "run")
    assert status == 0
    lines = (tmp_path / "run" / "judgements.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["ok", "ok"]
    assert "embedded:smollm2-135m:listwise" in out
