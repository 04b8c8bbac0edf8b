"""Scoring that is stopped, killed, refused or gone on with: always the same bytes."""

import random
import signal
import subprocess
import sys
import time

import pytest

import habitus.score as scoring
from habitus.errors import HabitusError, InputError, RunError
from habitus.score import LocalRunner, record, score_file
from habitus.scorers import ScorerOptions
from habitus.store import hold
from tests.conftest import read_jsonl
from tests.score_samples import GOOD, files, many, plan, use_lengths, write


@pytest.fixture
def lengths(monkeypatch):
    return use_lengths(monkeypatch)


def interrupted(settings, after, monkeypatch):
    """Score, and die after some chunks as by kill -9: nothing is closed or synced any more."""

    class Dying(LocalRunner):
        def run(self, chunks):
            for number, found in enumerate(super().run(chunks)):
                if number == after:
                    raise KeyboardInterrupt
                yield found

    with monkeypatch.context() as patch:
        patch.setattr(scoring.ScoreLog, "close", lambda log: log._file.close())
        with pytest.raises(KeyboardInterrupt):
            score_file(settings, runner=Dying)


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["synced", "never synced"])
@pytest.mark.parametrize("cut", [0, 1, 30, -1], ids=["clean", "byte", "line", "torn"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_killed_run_ends_with_the_same_bytes(tmp_path, lengths, monkeypatch, after, cut, seconds):
    write(tmp_path / "in.jsonl", many(43))
    score_file(plan(tmp_path, "whole.jsonl", model="test:lengths", chunk=7))
    monkeypatch.setattr(record, "SYNC_SECONDS", seconds)
    interrupted(plan(tmp_path, model="test:lengths", chunk=7), after, monkeypatch)
    scores = tmp_path / "scores.jsonl"
    # A kill in the middle of the next write leaves the first bytes of the next chunk.
    done = len(scores.read_bytes())
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert whole.startswith(scores.read_bytes())
    scores.write_bytes(whole[: done + cut] if cut >= 0 else whole[:done] + b'{"id"')
    lengths.batches.clear()
    score_file(plan(tmp_path, model="test:lengths", chunk=7, resume=True))
    assert files(scores) == files(tmp_path / "whole.jsonl")
    assert sum(lengths.batches) == 43 - (after * 7 if seconds == 0 else 0)


def test_killed_between_the_record_and_the_first_score(tmp_path):
    write(tmp_path / "in.jsonl", many(5))
    score_file(plan(tmp_path, "whole"))
    score_file(plan(tmp_path, limit=1))
    (tmp_path / "scores.jsonl").unlink()
    assert score_file(plan(tmp_path, resume=True)) == 5
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole")


def test_a_mended_file_resumes_where_it_broke(tmp_path, lengths):
    rows = many(30)
    good = write(tmp_path / "good.jsonl", rows).read_bytes().splitlines(keepends=True)
    broken = [*good[:17], b'{"prompt"\n', *good[18:]]
    (tmp_path / "in.jsonl").write_bytes(b"".join(broken))
    settings = {"model": "test:lengths", "chunk": 5}
    with pytest.raises(InputError, match="line 18"):
        score_file(plan(tmp_path, **settings))
    assert len(read_jsonl(tmp_path / "scores.jsonl")) == 17
    with pytest.raises(InputError, match="line 18"):  # not mended yet
        score_file(plan(tmp_path, resume=True, **settings))
    (tmp_path / "in.jsonl").write_bytes(b"".join(good))
    lengths.batches.clear()
    assert score_file(plan(tmp_path, resume=True, **settings)) == 30
    assert lengths.batches == [5, 5, 5]
    score_file(plan(tmp_path, "whole.jsonl", **settings))
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole.jsonl")


def test_scored_rows_must_not_change(tmp_path):
    write(tmp_path / "in.jsonl", many(20))
    score_file(plan(tmp_path, limit=12, chunk=5))
    changed = many(20)
    changed[9]["response"] = "other"  # within the first two whole chunks
    write(tmp_path / "in.jsonl", changed)
    with pytest.raises(RunError, match=r"input \(.*\) differs in the 10 rows"):
        score_file(plan(tmp_path, chunk=5, resume=True))
    write(tmp_path / "in.jsonl", many(9))
    with pytest.raises(RunError, match="input"):
        score_file(plan(tmp_path, chunk=5, resume=True))
    changed = many(20)
    changed[10]["response"] = "a part of a chunk is scored again"
    write(tmp_path / "in.jsonl", changed)
    score_file(plan(tmp_path, chunk=5, resume=True))
    assert read_jsonl(tmp_path / "scores.jsonl")[10]["score"] == 33.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "baseline:shortest"}, "scorer.model was 'longest' and is now 'shortest'"),
        ({"chunk": 6}, "chunk was 5 and is now 6"),
        ({"keep": ("prompt",)}, r"keep was \[\] and is now \['prompt'\]"),
    ],
)
def test_another_configuration_is_refused_with_its_keys(tmp_path, settings, message):
    write(tmp_path / "in.jsonl", many(20))
    score_file(plan(tmp_path, limit=12, chunk=5))
    before = files(tmp_path / "scores.jsonl")
    with pytest.raises(RunError, match=message):
        score_file(plan(tmp_path, **({"chunk": 5, "resume": True} | settings)))
    with pytest.raises(RunError, match="holds scores; add --resume"):
        score_file(plan(tmp_path, chunk=5))
    assert files(tmp_path / "scores.jsonl") == before


def test_limit_can_be_raised_and_a_complete_file_is_left_alone(tmp_path, lengths):
    write(tmp_path / "in.jsonl", many(20))
    settings = {"model": "test:lengths", "chunk": 8}
    score_file(plan(tmp_path, "whole.jsonl", **settings))
    scores = tmp_path / "scores.jsonl"
    assert score_file(plan(tmp_path, limit=10, **settings)) == 10
    assert len(read_jsonl(scores)) == 10
    said = []
    lengths.batches.clear()
    assert score_file(plan(tmp_path, limit=10, resume=True, **settings), said.append) == 10
    assert lengths.batches == []
    assert said == [f"{scores} is complete: 10 rows"]
    assert score_file(plan(tmp_path, resume=True, **settings)) == 20
    assert files(scores) == files(tmp_path / "whole.jsonl")
    lengths.batches.clear()
    assert score_file(plan(tmp_path, resume=True, **settings)) == 20
    assert lengths.batches == []


def test_rows_that_were_added_are_scored(tmp_path, lengths):
    settings = {"model": "test:lengths", "chunk": 8}
    write(tmp_path / "in.jsonl", many(21))
    score_file(plan(tmp_path, **settings))
    write(tmp_path / "in.jsonl", many(30))
    assert score_file(plan(tmp_path, resume=True, **settings)) == 30
    score_file(plan(tmp_path, "whole.jsonl", **settings))
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole.jsonl")


def test_a_last_line_without_an_end(tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_bytes(GOOD * 3 + GOOD.rstrip())
    score_file(plan(tmp_path, chunk=4))
    file.write_bytes(GOOD * 6)
    assert score_file(plan(tmp_path, chunk=4, resume=True)) == 6
    score_file(plan(tmp_path, "whole", chunk=4))
    assert (tmp_path / "scores.jsonl").read_bytes() == (tmp_path / "whole").read_bytes()
    file.write_bytes(GOOD * 3 + GOOD.rstrip())
    score_file(plan(tmp_path, "b", chunk=4))
    file.write_bytes(GOOD * 3 + GOOD.rstrip() + GOOD)
    with pytest.raises(InputError, match="line 4: has become longer"):
        score_file(plan(tmp_path, "b", chunk=4, resume=True))


def test_changed_scores_and_records_are_refused(tmp_path):
    write(tmp_path / "in.jsonl", many(20))
    scores = tmp_path / "scores.jsonl"
    score_file(plan(tmp_path, limit=12, chunk=5))
    good = scores.read_bytes()
    for changed in (good.replace(b"ok", b"no", 1), good[:50]):
        scores.write_bytes(changed)
        with pytest.raises(RunError, match="first 10 rows are not what was written"):
            score_file(plan(tmp_path, chunk=5, resume=True))
        assert scores.read_bytes() == changed
    record.record_path(scores).write_text("{")
    with pytest.raises(RunError, match=r"scores.jsonl.run.json: the file: Invalid JSON"):
        score_file(plan(tmp_path, chunk=5, resume=True))


def test_two_processes_do_not_write_one_file(tmp_path):
    write(tmp_path / "in.jsonl", many(3))
    with (
        hold(tmp_path / ".scores.jsonl.lock", tmp_path / "scores.jsonl"),
        pytest.raises(RunError, match="another process is working on"),
    ):
        score_file(plan(tmp_path))
    assert score_file(plan(tmp_path)) == 3


def test_a_full_disk_keeps_whole_lines(tmp_path, monkeypatch):
    write(tmp_path / "in.jsonl", many(20))
    score_file(plan(tmp_path, "whole", chunk=5))

    class Full:
        def __init__(self, file):
            self.file, self.left = file, 400

        def write(self, data):
            if not self.left:
                raise OSError(28, "No space left on device")
            written = self.file.write(data[: self.left])
            self.left -= written
            return written

        def __getattr__(self, name):
            return getattr(self.file, name)

    class Small(record.ScoreLog):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._file = Full(self._file)

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "ScoreLog", Small)
        with pytest.raises(RunError, match=r"No space left on device; 10 rows are kept"):
            score_file(plan(tmp_path, chunk=5))
    assert len(read_jsonl(tmp_path / "scores.jsonl")) == 10
    score_file(plan(tmp_path, chunk=5, resume=True))
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole")


def test_a_model_that_gives_up_ends_the_run_and_keeps_what_is_done(tmp_path, lengths, monkeypatch):
    write(tmp_path / "in.jsonl", many(20))
    good = lengths.score

    def score(conversations):
        if len(lengths.batches) == 2:
            raise HabitusError("the server has gone")
        return good(conversations)

    monkeypatch.setattr(lengths, "score", score)
    with pytest.raises(HabitusError, match="the server has gone"):
        score_file(plan(tmp_path, model="test:lengths", chunk=5))
    assert len(read_jsonl(tmp_path / "scores.jsonl")) == 10
    assert lengths.closed


@pytest.mark.slow
def test_kill_9_at_any_moment(tmp_path):
    write(tmp_path / "in.jsonl", many(30_000))
    score_file(plan(tmp_path, "whole.jsonl", chunk=100))
    script = (
        "import sys; from pathlib import Path; from habitus.score import *\n"
        "import habitus.score.record as record; record.SYNC_SECONDS = 0.05\n"
        "folder = Path(sys.argv[1])\n"
        "score_file(ScorePlan(folder / 'in.jsonl', 'baseline:longest', folder / 'scores.jsonl',"
        " chunk=100, resume=True))"
    )
    rng = random.Random(0)
    scores = tmp_path / "scores.jsonl"
    killed = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL
        )
        size = scores.stat().st_size if scores.exists() else -1
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            if (scores.stat().st_size if scores.exists() else -1) != size:
                break
        time.sleep(rng.random() / 5)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 3
    score_file(plan(tmp_path, chunk=100, resume=True))
    assert files(scores) == files(tmp_path / "whole.jsonl")


@pytest.mark.slow
def test_a_real_classifier_resumes_with_the_same_bytes(tmp_path):
    pytest.importorskip("torch")
    from tests.tiny_models import make_classifier

    name = f"classifier:{make_classifier(tmp_path / 'model')}"
    settings = {"model": name, "chunk": 8, "options": ScorerOptions(device="cpu")}
    write(tmp_path / "in.jsonl", many(30))
    score_file(plan(tmp_path, "whole.jsonl", **settings))
    score_file(plan(tmp_path, limit=19, **settings))
    assert score_file(plan(tmp_path, resume=True, **settings)) == 30
    assert files(tmp_path / "scores.jsonl") == files(tmp_path / "whole.jsonl")
    lines = read_jsonl(tmp_path / "scores.jsonl")
    assert {line["status"] for line in lines} == {"ok"}
    assert len({line["score"] for line in lines}) > 10
