"""Scoring over a local Ray: the same bytes as without it, errors, resume."""

import json
import os
import warnings

import pytest

from habitus.errors import HabitusError, InputError
from habitus.score import ScorePlan, record, score_file
from tests.conftest import read_jsonl

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
pytest.importorskip("ray.data")

# Ray's own: deprecated settings, sockets and files that end with the process.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()


def runner(**settings):
    from habitus.score.ray_engine import RayRunner

    return lambda plan: RayRunner(plan, **settings)


def write(path, n):
    rows = (
        {"id": f"r{i}", "prompt": f"p{i}", "response": "ไ" * (i * 7 % 11)}
        if i % 3
        else {"prompt": f"p{i}", "responses": ["a" * (i % 5), ""]}
        for i in range(n)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def files(path):
    return path.read_bytes(), record.record_path(path).read_bytes()


def test_ray_writes_the_same_bytes_in_the_same_order(tmp_path):
    file = write(tmp_path / "in.jsonl", 500)
    whole, spread = tmp_path / "whole.jsonl", tmp_path / "spread.jsonl"
    score_file(ScorePlan(file, "baseline:random", whole, chunk=30, keep=("prompt",)))
    plan = ScorePlan(file, "baseline:random", spread, chunk=30, keep=("prompt",))
    assert score_file(plan, runner=runner(actors=2)) == 500
    assert files(spread) == files(whole)
    # What one of them began, the other goes on with.
    begun = tmp_path / "begun.jsonl"
    settings = {"chunk": 30, "keep": ("prompt",)}
    score_file(ScorePlan(file, "baseline:random", begun, limit=100, **settings))
    plan = ScorePlan(file, "baseline:random", begun, resume=True, **settings)
    assert score_file(plan, runner=runner(actors=1)) == 500
    assert files(begun) == files(whole)


def test_a_bad_row_ends_a_run_as_without_ray(tmp_path):
    file = write(tmp_path / "in.jsonl", 100)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:47], b"[]\n", *lines[47:]]))
    found = []
    for out, made in (("local", None), ("ray", runner(actors=1))):
        with pytest.raises(InputError, match="line 48: expected an object") as caught:
            score_file(ScorePlan(file, "baseline:longest", tmp_path / out, chunk=10), runner=made)
        found.append(str(caught.value))
        assert len(read_jsonl(tmp_path / out)) == 47
    assert found[0] == found[1]
    assert files(tmp_path / "local") == files(tmp_path / "ray")


def test_what_does_not_fit_is_refused(tmp_path):
    file = write(tmp_path / "in.jsonl", 5)
    plan = ScorePlan(file, "baseline:longest", tmp_path / "s")
    with pytest.raises(InputError, match="3 actors with 1 CPU and 0 GPUs each do not fit"):
        score_file(plan, runner=runner(actors=3))
    with pytest.raises(InputError, match=r"1 GPUs each do not fit .* room for 0"):
        score_file(plan, runner=runner(gpus=1))
    plan = ScorePlan(file, "baseline:longst", tmp_path / "s")
    with pytest.raises(HabitusError, match="did you mean longest"):
        score_file(plan, runner=runner())
    assert not (tmp_path / "s").exists()
