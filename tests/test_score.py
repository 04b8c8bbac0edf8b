"""`habitus score`: lines, refusals, and the same bytes whatever happens on the way."""

import sys
import threading

import polars as pl
import pytest

import habitus.score as scoring
from habitus.cli import main
from habitus.errors import InputError, RunError
from habitus.score import score_file
from habitus.scorers.batching import ConversationScorer, Scored
from habitus.types import ScorerSpec
from tests.conftest import read_jsonl
from tests.score_samples import GOOD, files, many, plan, use_lengths, write


@pytest.fixture
def lengths(monkeypatch):
    return use_lengths(monkeypatch)


# Lines


def test_one_line_for_each_row(tmp_path):
    rows = [
        {"id": "a", "prompt": "p", "response": "four"},
        {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
         "response": "ไทย"},
        {"id": 7, "prompt": "p", "responses": ["", "xx", "x"], "note": ["ignored"]},
    ]  # fmt: skip
    write(tmp_path / "in.jsonl", rows)
    assert score_file(plan(tmp_path)) == 3
    assert (tmp_path / "scores.jsonl").read_text(encoding="utf-8") == (
        '{"id":"a","score":4.0,"status":"ok"}\n'
        '{"row":2,"score":3.0,"status":"ok"}\n'
        '{"id":7,"scores":[0.0,2.0,1.0],"status":"ok"}\n'
    )


def test_failures_have_a_status_and_no_number(tmp_path, lengths):
    rows = [
        {"prompt": "p", "response": "long"},
        {"prompt": "p", "response": "nan"},
        {"prompt": "p", "responses": ["a", "long", "nan"]},
        {"prompt": "p", "response": "ab"},
    ]
    write(tmp_path / "in.jsonl", rows)
    score_file(plan(tmp_path, model="test:lengths"))
    assert lengths.closed
    limit = "12 tokens; the limit is 8"
    assert read_jsonl(tmp_path / "scores.jsonl") == [
        {"row": 1, "score": None, "status": "truncated", "error": limit, "tokens": 12},
        {"row": 2, "score": None, "status": "error", "error": "the score is not a finite number",
         "tokens": 3},
        {"row": 3, "scores": [1.006, None, None], "status": "truncated",
         "error": f"response 2: {limit}", "tokens": 17},
        {"row": 4, "score": 2.006, "status": "ok", "tokens": 2},
    ]  # fmt: skip


def test_a_classifier_encodes_beside_the_model(tmp_path, monkeypatch):
    class Classifier(ConversationScorer):
        spec = ScorerSpec(kind="classifier", model="x")

        def prepare(self, conversations):
            return [(len(each), each[-1].content, threading.get_ident()) for each in conversations]

        def run(self, prepared):
            assert threading.get_ident() not in {thread for _, _, thread in prepared}
            return [Scored(turns + len(text), tokens=1, cut=5) for turns, text, _ in prepared]

    write(tmp_path / "in.jsonl", many(20))
    monkeypatch.setattr(scoring, "resolve", lambda name, options: Classifier())
    score_file(plan(tmp_path, model="classifier:x", chunk=3))
    lines = read_jsonl(tmp_path / "scores.jsonl")
    assert [line["score"] for line in lines] == [2 + i * 7 % 11 for i in range(20)]
    assert lines[1] == {"id": "r1", "score": 9, "status": "ok", "tokens": 1, "cut": 5}


def test_kept_columns_are_copied_as_they_are(tmp_path):
    row = {"prompt": "p", "response": "r", "model": "日本", "meta": {"k": [1, None]}}
    write(tmp_path / "in.jsonl", [row])
    score_file(plan(tmp_path, keep=("meta", "model")))
    text = (tmp_path / "scores.jsonl").read_text(encoding="utf-8")
    assert text == ('{"row":1,"score":1.0,"status":"ok","meta":{"k":[1,null]},"model":"日本"}\n')
    with pytest.raises(InputError, match="column score cannot be kept"):
        score_file(plan(tmp_path, "b", keep=("score",)))
    with pytest.raises(InputError, match=r"in.jsonl, line 1: has no column nme to keep; found: "):
        score_file(plan(tmp_path, "b", keep=("nme",)))


def test_random_depends_on_the_text_alone(tmp_path):
    rows = many(50)
    write(tmp_path / "in.jsonl", rows)
    write(tmp_path / "back.jsonl", rows[::-1])
    score_file(plan(tmp_path, model="baseline:random", chunk=7))
    score_file(plan(tmp_path, "b", file=tmp_path / "back.jsonl", model="baseline:random"))
    there, back = read_jsonl(tmp_path / "scores.jsonl"), read_jsonl(tmp_path / "b")
    assert there == back[::-1]
    assert len({line["score"] for line in there}) == 50
    assert all(0 <= line["score"] < 1 for line in there)


def test_blank_lines_and_the_ends_of_files(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        b'\xef\xbb\xbf{"prompt":"p","response":"a"}\r\n\n  \n{"prompt":"p","response":"\xe2\x80\xa8b"}'
    )
    assert score_file(plan(tmp_path)) == 2
    assert [line["score"] for line in read_jsonl(tmp_path / "scores.jsonl")] == [1.0, 2.0]


# Parquet


def test_parquet_gives_the_same_scores(tmp_path):
    rows = many(25)
    write(tmp_path / "in.jsonl", rows)
    frame = pl.DataFrame(rows).with_columns(other=pl.lit(b"\x00"))
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=6)
    score_file(plan(tmp_path, chunk=4))
    score_file(plan(tmp_path, "b.jsonl", file=tmp_path / "in.parquet", chunk=4))
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "scores.jsonl").read_bytes()


def test_parquet_resumes_only_with_the_same_file(tmp_path):
    file = tmp_path / "in.parquet"
    pl.DataFrame(many(25)).write_parquet(file)
    score_file(plan(tmp_path, "whole.jsonl", file=file, chunk=4))
    score_file(plan(tmp_path, file=file, chunk=4, limit=10))
    assert score_file(plan(tmp_path, file=file, chunk=4, resume=True)) == 25
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole.jsonl")
    pl.DataFrame(many(26)).write_parquet(file)
    with pytest.raises(RunError, match="another configuration: input"):
        score_file(plan(tmp_path, file=file, chunk=4, resume=True))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, "needs columns prompt and response .*found: text"),
        ({"prompt": [1], "response": ["a"]}, "row 1: column prompt must be text or messages"),
        ({"prompt": ["p"], "response": [None]}, "row 1: column response must be text, found null"),
        ({"prompt": [], "response": []}, "is empty"),
    ],
)
def test_bad_parquet(tmp_path, columns, message):
    pl.DataFrame(columns).write_parquet(tmp_path / "in.parquet")
    with pytest.raises(InputError, match=message):
        score_file(plan(tmp_path, file=tmp_path / "in.parquet"))
    (tmp_path / "in.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        score_file(plan(tmp_path, file=tmp_path / "in.parquet"))


# Bad input

BAD = {
    "broken": (b'{"prompt": \n', "line 3, column 12: broken JSON"),
    "infinite": (b'{"prompt":"p","response":"r","x":NaN}\n', "line 3: NaN is not valid JSON"),
    "not an object": (b"[1]\n", "line 3: expected an object with columns, found an array"),
    "not UTF-8": (b'{"prompt":"\xff"}\n', r"line 3: not UTF-8 at byte 42 \(0xff\)"),
    "no prompt": (b'{"response":"r"}\n', "line 3: needs the column prompt; found: response"),
    "blank prompt": (b'{"prompt":" ","response":"r"}\n', "line 3: column prompt is empty"),
    "bad message": (
        b'{"prompt":[{"role":"robot","content":"c"}],"response":"r"}\n',
        "line 3: column prompt has a message",
    ),
    "no response": (b'{"prompt":"p"}\n', "line 3: has no response or responses; found: prompt"),
    "both": (
        b'{"prompt":"p","response":"r","responses":["r"]}\n',
        "line 3: has both response and responses",
    ),
    "response": (b'{"prompt":"p","response":["r"]}\n', "line 3: column response must be text"),
    "no responses": (b'{"prompt":"p","responses":[]}\n', "line 3: .* found an empty array"),
    "responses": (b'{"prompt":"p","responses":["r",1]}\n', "line 3: .* texts, found a number"),
    "id": (b'{"id":[],"prompt":"p","response":"r"}\n', "line 3: column id must be text"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_named_and_the_rows_before_it_are_kept(tmp_path, line, message):
    said = []
    (tmp_path / "in.jsonl").write_bytes(GOOD + b"\n" + line + GOOD)
    with pytest.raises(InputError, match=message):
        score_file(plan(tmp_path), said.append)
    assert len(read_jsonl(tmp_path / "scores.jsonl")) == 1
    assert said[-1].startswith("stopped: 1 rows are scored")
    # As the first row it is refused before anything is written.
    (tmp_path / "in.jsonl").write_bytes(b"\n\n" + line)
    with pytest.raises(InputError, match=message.replace("byte 42", "byte 13")):
        score_file(plan(tmp_path, "b"))
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_empty_files(tmp_path, data):
    (tmp_path / "in.jsonl").write_bytes(data)
    with pytest.raises(InputError, match="is empty"):
        score_file(plan(tmp_path))
    assert not (tmp_path / "scores.jsonl").exists()


def test_wrong_paths(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        score_file(plan(tmp_path))
    with pytest.raises(InputError, match="is a folder"):
        score_file(plan(tmp_path, file=tmp_path))
    write(tmp_path / "in.jsonl", many(3))
    with pytest.raises(InputError, match="would overwrite the input"):
        score_file(plan(tmp_path, "in.jsonl"))
    (tmp_path / "other").write_text("precious")
    with pytest.raises(RunError, match=r"exists and has no other.run.json"):
        score_file(plan(tmp_path, "other", resume=True))
    assert (tmp_path / "other").read_text() == "precious"


def test_models_that_only_compare_are_refused(tmp_path, monkeypatch):
    write(tmp_path / "in.jsonl", many(3))

    class Judge:
        spec = ScorerSpec(kind="embedded", model="small")
        closed = False

        def close(self):
            Judge.closed = True

    monkeypatch.setattr(scoring, "resolve", lambda name, options: Judge())
    with pytest.raises(
        InputError, match=r"embedded:small compares .* classifier, dpo and baseline"
    ):
        score_file(plan(tmp_path))
    assert Judge.closed
    assert not (tmp_path / "scores.jsonl").exists()


# The command


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = main.run(["score", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_command_scores_and_says_where(cli, tmp_path):
    write(tmp_path / "in.jsonl", many(3))
    status, out, err = cli(
        "in.jsonl", "--model", "baseline:longest", "--out", "s", "--keep", "prompt"
    )
    assert (status, out) == (0, "")
    assert "baseline:longest: 3/3 rows" in err
    assert err.endswith("scores: s (3 rows)\n")
    assert read_jsonl(tmp_path / "s")[2] == {
        "id": "r2", "score": 3.0, "status": "ok", "prompt": "p2"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--model", "baseline:longst"], "did you mean longest"),
        (["--model", "baseline:longest", "--mode", "listwise"], "--mode does not apply"),
        (["--model", "ensemble:baseline:longest,baseline:random"], "cannot score a single one"),
        (["--model", "baseline:longest", "--limit", "0"], "--limit"),
        (["--model", "baseline:longest", "--gpus", "1"], "--gpus needs --runner ray"),
        (["--model", "baseline:longest", "--actors", "1"], "--actors needs --runner ray"),
        (["--model", "baseline:longest", "--engine", "ray", "--runner", "local"], "exclude"),
        ([], "--model"),
    ],
)
def test_the_command_refuses_in_one_line(cli, tmp_path, arguments, part):
    write(tmp_path / "in.jsonl", many(3))
    status, out, err = cli("in.jsonl", "--out", "s", *arguments)
    assert (status, out) == (2, "")
    assert err.count("error: ") == 1
    assert part in err.strip().splitlines()[-1]
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("choice", [["--engine", "ray"], ["--runner", "ray"]])
def test_without_ray_the_extra_is_named(cli, tmp_path, monkeypatch, choice):
    monkeypatch.setitem(sys.modules, "ray", None)
    write(tmp_path / "in.jsonl", many(3))
    status, _, err = cli("in.jsonl", "--model", "baseline:longest", "--out", "s", *choice)
    assert status == 2
    assert "pip install 'habitus[ray]'" in err
