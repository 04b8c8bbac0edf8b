"""The run folder: resume, torn lines, locks, changed configurations, a disk that is full."""

import itertools
import multiprocessing
import resource
import sys

import pytest

from habitus.errors import InputError, RunError
from habitus.store import (
    JudgementLog,
    RunFolder,
    check_same,
    default_path,
    whole_folder,
    write_atomic,
)
from habitus.types import Judgement, RunInfo, ScorerSpec

UNITS = {f"i{number}": f"u{number}" for number in range(5)}


def judgement(number, status="ok", text="x"):
    verdict = {"scores": {"a": 1.0, "b": 0.0}, "winner_ids": ("a",)} if status == "ok" else {}
    return Judgement(
        item_id=f"i{number}",
        unit=f"u{number}",
        scorer="s",
        seed=0,
        status=status,
        raw=text,
        **verdict,
    )


def write(path, numbers, **options):
    log = JudgementLog(path, UNITS, **options)
    for number in numbers:
        log.append(judgement(number))
    log.finish()
    log.close()
    return path.read_bytes()


def info(**changes):
    values = {
        "id": "run",
        "config": {"model": "m", "benchmark": {"name": "b", "digest": "d"}, "limit": None},
        "scorer": ScorerSpec(kind="k", model="m", parameters={"mode": "listwise"}),
        "seed": 0,
        "n_items": 5,
        "versions": {},
        "started": "2026-01-01T00:00:00+00:00",
    }
    return RunInfo.model_validate(values | changes)


def test_killed_at_any_byte_and_resumed_gives_the_same_bytes(tmp_path):
    whole = write(tmp_path / "whole.jsonl", range(5))
    for cut in range(len(whole)):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(whole[:cut])
        log = JudgementLog(path, UNITS)
        for number in range(5):
            if f"i{number}" not in log.done:
                log.append(judgement(number))
        log.finish()
        log.close()
        assert path.read_bytes() == whole, f"cut at byte {cut}"


def test_any_order_of_finishing_gives_the_same_bytes(tmp_path):
    whole = write(tmp_path / "whole.jsonl", range(5))
    for number, order in enumerate(itertools.islice(itertools.permutations(range(5)), 0, 120, 7)):
        assert write(tmp_path / f"{number}.jsonl", order) == whole


def test_failed_judgements_are_kept_unless_a_retry_is_asked_for(tmp_path):
    path = tmp_path / "j.jsonl"
    log = JudgementLog(path, UNITS)
    log.append(judgement(0, "error"))
    log.append(judgement(1, "truncated"))
    log.close()
    kept = JudgementLog(path, UNITS)
    assert list(kept.done) == ["i0", "i1"]
    kept.close()
    retried = JudgementLog(path, UNITS, retry_failed=True)
    assert list(retried.done) == ["i1"]
    retried.append(judgement(0))
    retried.finish()
    retried.close()
    assert path.read_bytes().count(b'"i0"') == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json\n", "line 2: not a judgement"),
        (b'{"item_id": "i1", "unit": "other", "status": "ok"}\n', "line 2: .*not of this run"),
        (b'{"item_id": "zz", "unit": "u1", "status": "ok"}\n', "line 2: .*'zz'"),
    ],
)
def test_a_line_that_this_run_cannot_have_written_is_refused(tmp_path, line, message):
    path = tmp_path / "j.jsonl"
    good = write(path, [0])
    path.write_bytes(good + line)
    with pytest.raises(RunError, match=message):
        JudgementLog(path, UNITS)
    assert path.read_bytes() == good + line  # nothing was lost by looking


def test_text_stays_readable(tmp_path):
    path = tmp_path / "j.jsonl"
    log = JudgementLog(path, UNITS)
    log.append(judgement(0, text="العربية ไทย አማርኛ"))
    log.close()
    assert "العربية ไทย አማርኛ" in path.read_text(encoding="utf-8")


def _append_until_full(path, queue):
    log = JudgementLog(path, UNITS)
    log.append(judgement(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10,) * 2)
    try:
        log.append(judgement(1, text="y" * 100_000))
    except RunError as error:
        queue.put(str(error))
    log.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    path = tmp_path / "j.jsonl"
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_append_until_full, args=(path, queue))
    process.start()
    message = queue.get(timeout=60)
    process.join()
    assert process.exitcode == 0
    assert "1 judgements are kept" in message
    assert "\n" not in message
    assert path.read_bytes() == write(tmp_path / "one.jsonl", [0])


def _hold(path, queue, done):
    with RunFolder(path).lock():
        queue.put("held")
        done.wait(60)


def test_a_second_process_is_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "run", queue, done))
    process.start()
    assert queue.get(timeout=60) == "held"
    with (
        pytest.raises(RunError, match="another process is working"),
        RunFolder(tmp_path / "run").lock(),
    ):
        pass
    process.kill()  # the lock ends with its process, however it ends
    process.join()
    with RunFolder(tmp_path / "run").lock():
        pass


def test_a_changed_configuration_is_refused_with_the_keys(tmp_path):
    check_same(info(), info(id="other", started="later", versions={"numpy": "9"}), tmp_path)
    with pytest.raises(RunError) as caught:
        check_same(
            info(),
            info(
                seed=1,
                config={"model": "m", "benchmark": {"name": "b", "digest": "e"}, "limit": 3},
                scorer=ScorerSpec(kind="k", model="m", parameters={"mode": "criteria"}),
            ),
            tmp_path,
        )
    message = str(caught.value)
    for part in (
        "config.benchmark.digest was 'd' and is now 'e'",
        "config.limit was None and is now 3",
        "scorer.parameters.mode was 'listwise' and is now 'criteria'",
        "seed was 0 and is now 1",
    ):
        assert part in message
    assert "config.model" not in message


def test_atomic_write_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "f"
    write_atomic(path, [b"old"])

    def broken():
        yield b"ne"
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="No space left on device"):
        write_atomic(path, broken())
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_what_is_no_run_folder_is_said(tmp_path):
    with pytest.raises(InputError, match="no such run folder"):
        _ = RunFolder(tmp_path / "none").info
    with pytest.raises(InputError, match=r"no run folder: it has no run\.json"):
        _ = RunFolder(tmp_path).info
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match=r"run\.json: id: Field required"):
        _ = RunFolder(tmp_path).info
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"), RunFolder(tmp_path / "file" / "run").lock():
        pass


def test_default_paths_are_safe_names():
    path = default_path("carb-open:quick", "embedded:../../x y", 3)
    assert path.parent.name == "runs"
    assert path.name == "carb-open-quick__embedded-..-..-x-y__s3"


def test_a_folder_is_whole_or_not_there(tmp_path):
    path = tmp_path / "runs" / "base"

    def killed():
        with whole_folder(path) as folder:
            (folder / "config.json").write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert not path.exists()
    with whole_folder(path) as folder:
        assert list(folder.iterdir()) == []  # nothing of the one that was killed
        (folder / "weights").write_text("new")
    assert [file.name for file in path.iterdir()] == ["weights"]
    with whole_folder(path) as folder:
        (folder / "other").write_text("newer")
    assert [file.name for file in path.iterdir()] == ["other"]
    assert [each.name for each in path.parent.iterdir()] == ["base"]
