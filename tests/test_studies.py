"""The studies' scripts: how their jobs are run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[1] / "examples/studies"
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("sh", "xargs", "find"))), reason="needs a Unix shell"
)


def run(tmp_path, script, **variables):
    """Run a script that sources `common.sh`; return it, and the words of each job."""
    file = tmp_path / "study.sh"
    file.write_text(f"set -eu\n. {STUDIES}/common.sh\n{script}\nwork\n")
    return start(tmp_path, file, **variables)


def start(tmp_path, file, **variables):
    """Run a script; return it, and the words of each job."""
    fixed = {
        "OUT": str(tmp_path / "out"),
        "MODEL": "m",
        "GPUS": "1",
        "JOBS": "1",
        "HABITUS": "habitus",
    }
    environment = os.environ | fixed | variables
    done = subprocess.run(
        ["sh", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    logs = {path.name: path.read_text().split() for path in (tmp_path / "out/log").glob("*")}
    return done, logs


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_commands_of_a_job_follow_each_other_and_jobs_take_turns_on_gpus(tmp_path, jobs):
    script = """
    queue one sh -c "'echo 1 \\$CUDA_VISIBLE_DEVICES'"
    queue two sh -c "'echo 2 \\$CUDA_VISIBLE_DEVICES'"
    queue one echo 3
    queue three sh -c "'echo 4 \\$CUDA_VISIBLE_DEVICES'"
    """
    done, logs = run(tmp_path, script, GPUS="2", JOBS=jobs)
    assert (done.returncode, done.stderr) == (0, "")
    assert logs == {"one": ["1", "0", "3"], "two": ["2", "1"], "three": ["4", "0"]}
    assert not list((tmp_path / "out/queue").iterdir())


def test_it_does_not_wait_for_what_is_not_there(tmp_path):
    done, logs = run(tmp_path, "wait_for second first $OUT/run.json ready", JOBS="1")
    assert done.returncode == 1
    assert " ".join(logs["second"]) == "second needs first, which is over or was not asked for"


@pytest.mark.parametrize("jobs", ["1", "2", "3"])
def test_a_job_waits_for_what_another_makes(tmp_path, jobs):
    script = """
    queue first "sleep 0.5; echo '{\\"ready\\": true}' > $OUT/run.json; sleep 0.5; echo made"
    wait_for second first $OUT/run.json '"ready": *true'
    queue second cat $OUT/run.json
    """
    done, logs = run(tmp_path, script, JOBS=jobs)
    assert (done.returncode, done.stderr) == (0, "")
    assert logs == {"first": ["made"], "second": ['{"ready":', "true}"]}


def test_it_does_not_wait_for_what_has_failed(tmp_path):
    script = """
    queue first false
    wait_for second first $OUT/run.json ready
    queue second echo never
    queue third echo 3
    """
    done, logs = run(tmp_path, script, JOBS="3")
    assert done.returncode == 1
    assert "first failed: see" in done.stderr
    assert "second failed: see" in done.stderr
    assert " ".join(logs["second"][:11]) == "second needs first, which is over or was not asked for"
    assert logs["third"] == ["3"]


def test_what_failed_is_tried_once_more_and_what_waited_for_it_goes_on(tmp_path):
    script = """
    queue first "[ -e $OUT/again ] && { echo made > $OUT/run.json; }"
    queue first echo one
    wait_for second first $OUT/run.json made
    queue second echo two
    queue third "until [ -e $OUT/queue/first.over ]; do sleep 0.1; done; touch $OUT/again"
    """
    done, logs = run(tmp_path, script, JOBS="3")
    assert done.returncode == 0
    assert "what failed goes on" in done.stderr
    assert (logs["first"], logs["second"][-1]) == (["one"], "two")


STUB = """#!/bin/sh
# stands for `habitus`: says what it was asked for, and leaves what the study looks for
for word; do [ "$last" != --out ] || out=$word; last=$word; done
case " $FAIL " in *" ${out##*/} "*) exit 1 ;; esac
mkdir -p "$out"
case $1 in
train) echo '{"warmed_up": true, "done": true}' > "$out/run.json" ;;
evaluate) echo '{}' > "$out/metrics.json" ;;
diagnose) echo '{}' > "$out/diagnosis.json" ;;
esac
echo "$@"
"""


def study(tmp_path, **variables):
    """Run the study of judges with a `habitus` that does nothing."""
    stub = tmp_path / "habitus"
    stub.write_text(STUB)
    stub.chmod(0o755)
    (tmp_path / "out/pairs").mkdir(parents=True, exist_ok=True)
    (tmp_path / "out/pairs/card.json").touch()
    script = STUDIES / "locals.sh"
    return start(tmp_path, script, HABITUS=str(stub), DATA="d", **({"FAIL": ""} | variables))


def pages(tmp_path):
    """Return the names of the runs on the pages of training and of the benchmark."""
    found = []
    for name in ("locals", "carb"):
        file = tmp_path / f"out/{name}.txt"
        words = file.read_text().split() if file.exists() else []
        found.append([Path(word).name for word in words[1:-2]])
        file.unlink(missing_ok=True)
    return found


JUDGES = ["base", "cold", "warmup", "scaled", "corr", "appr", "swap"]
JUDGES += [f"{method}-{seed}" for method in ("verdict", "both") for seed in range(3)]


def test_the_study_of_judges_has_all_of_them_on_its_pages(tmp_path):
    done, logs = study(tmp_path, JOBS="15", GPUS="4")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(logs) == {*JUDGES, "base-criteria", "rules"}
    trained, judged = pages(tmp_path)
    assert trained == JUDGES
    assert set(judged) == {*JUDGES, "base-criteria", "random", "longest", "shortest"}
    again, _ = study(tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert pages(tmp_path)[0] == JUDGES


def test_the_study_of_judges_takes_those_that_are_named(tmp_path):
    done, logs = study(tmp_path, ARMS="base both-0 swap")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(logs) == {"base", "both-0", "swap", "rules"}
    assert pages(tmp_path)[0] == ["base", "swap", "both-0"]
    done, _ = study(tmp_path, ARMS="base both_0")
    assert done.returncode == 2
    assert done.stderr.startswith("ARMS: no judge both_0; there are base cold")


def test_the_pages_of_the_study_show_what_is_there(tmp_path):
    done, logs = study(tmp_path, JOBS="15", FAIL="both-0 base")
    assert done.returncode == 1
    assert "needs both-0" in " ".join(logs["appr"])
    trained, judged = pages(tmp_path)
    others = [f"{each}-{seed}" for each in ("verdict", "both") for seed in (0, 1, 2)]
    assert trained == ["cold", *(each for each in others if each != "both-0")]
    assert {"cold", "verdict-0", "base-criteria"} < set(judged)
    assert not {"base", "both-0", "appr"} & set(judged)
