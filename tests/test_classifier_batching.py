"""Batches: what is planned, what happens when memory or a text fails, several processes."""

import json
import os
import subprocess
import sys
import warnings

import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from habitus.clients.compiling import compile_layers
from habitus.clients.encode import Encoded
from habitus.scorers import ScorerOptions
from habitus.scorers.batching import BatchedScorer
from habitus.scorers.classifier import create
from habitus.scorers.runner import LEAST, WASTE, Runner, plan_batches
from habitus.types import ScorerSpec, Status
from tests.conftest import make_item
from tests.test_classifier import SEVEN, values
from tests.tiny_models import make_classifier, torch


def test_batches_by_hand():
    assert plan_batches([5, 9, 2, 9, 5], 20) == [[1, 3], [0, 4], [2]]
    assert plan_batches([5, 9, 2, 9, 5], 9) == [[1], [3], [0], [4], [2]]
    assert plan_batches([30, 4], 10) == [[0], [1]]
    assert plan_batches([4, 5, 4], 100, padded=False) == [[1], [0, 2]]
    assert plan_batches([], 10) == []
    # 100 + 97 + 97 + 97 in four rows of 100 is 2.25 % padding, so the fourth opens a new batch;
    # while a batch is under a quarter of its budget, it is filled all the same.
    assert plan_batches([100, 97, 97, 97], 1000) == [[0, 1, 2], [3]]
    assert plan_batches([100, 97, 97, 97], 4000) == [[0, 1, 2, 3]]


@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 2000), st.booleans())
def test_batches_hold_every_text_once_within_the_budget(lengths, budget, padded):
    batches = plan_batches(lengths, budget, padded=padded)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        sizes = [lengths[index] for index in batch]
        area = max(sizes) * len(sizes)
        assert area <= budget or len(batch) == 1
        assert padded or len(set(sizes)) == 1
        before_last = sum(sizes) - min(sizes)
        assert 1 - sum(sizes) / area <= WASTE or before_last < LEAST * budget


def texts(*lengths):
    return [Encoded([number + 1] * length, 1, length) for number, length in enumerate(lengths)]


def runner(rewards, **kwargs):
    return Runner(rewards, torch.device("cpu"), **kwargs)


def first_ids(batch):
    return batch.ids[:, 0].float()


def run(made, given_texts):
    found = made.run(given_texts, made.plan(given_texts))
    return [found[index] for index in range(len(given_texts))]


def test_out_of_memory_halves_the_batch_and_goes_on():
    lines, shapes = [], []

    def rewards(batch):
        if batch.ids.numel() > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        shapes.append(tuple(batch.ids.shape))
        return first_ids(batch)

    made = runner(rewards, budget=40, say=lines.append)
    assert run(made, texts(5, 4, 5, 4, 5, 3, 5)) == [1, 2, 3, 4, 5, 6, 7]
    assert made.budget <= 12
    assert lines[0].startswith("out of memory: going on with batches of")
    assert made.tokens == 31
    assert made.computed == sum(rows * width for rows, width in shapes)


def test_one_text_that_does_not_fit_fails_alone():
    def rewards(batch):
        if batch.ids.numel() > 6:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return first_ids(batch)

    found = run(runner(rewards, budget=100), texts(3, 9, 2))
    assert (found[0], found[2]) == (1, 3)
    assert "can't allocate memory" in found[1]


def test_a_text_that_breaks_its_batch_fails_alone():
    def rewards(batch):
        if (batch.ids == 2).any():
            raise IndexError("index out of range")
        return first_ids(batch)

    assert run(runner(rewards, budget=100), texts(3, 3, 3)) == [
        1,
        "IndexError: index out of range",
        3,
    ]


def test_equal_texts_are_read_once():
    """A benchmark of edits repeats the responses that an edit leaves alone."""
    seen = []

    def rewards(batch):
        seen.extend(batch.ids[:, 0].tolist())
        return first_ids(batch)

    class Codes:
        def encode(self, words):
            return [
                Encoded([ord(word)] * 2, 1, 2)
                if word != "x"
                else Encoded([], None, 9, status=Status.TRUNCATED, error="too long")
                for word in words
            ]

    scorer = BatchedScorer(ScorerSpec(kind="classifier", model="m"), Codes(), runner(rewards))
    scored = scorer.score(["a", "b", "x", "a", "a"])
    assert [each.value for each in scored] == [97, 98, None, 97, 97]
    assert scored[2].status is Status.TRUNCATED
    assert sorted(seen) == [97, 98]
    seen.clear()
    scorer.run([Encoded([97, 97], start, 2) for start in (0, 1, 1)])
    assert seen == [97, 97]  # an implicit reward is of the response, which may begin elsewhere


def test_rows_are_padded_on_the_right():
    seen = []

    def rewards(batch):
        seen.append((batch.ids.tolist(), batch.last.tolist(), batch.mask().tolist()))
        return first_ids(batch)

    made = runner(rewards, budget=100, pad_id=9)
    run(made, texts(2, 3))
    assert seen == [([[2, 2, 2], [1, 1, 9]], [2, 1], [[1, 1, 1], [1, 1, 0]])]


def test_work_is_cut_into_chunks_and_given_out_as_it_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr("habitus.scorers.batching.CHUNKS", {"cpu": 1})
    folder = make_classifier(tmp_path)
    scorer = create(str(folder), ScorerOptions(batch_tokens=60))
    items = [make_item(number) for number in range(9)]
    runs = []
    compute = scorer.run
    monkeypatch.setattr(scorer, "run", lambda made: runs.append(len(made)) or compute(made))
    judged = scorer.judge(items, 0)
    next(judged)
    assert sum(runs) < 9 * 4
    rest = [judgement.item_id for judgement in judged]
    assert rest == [item.id for item in items[1:]]
    assert sum(runs) == 9 * 4


def test_a_model_that_cannot_be_compiled_goes_on_without(tmp_path):
    folder = make_classifier(tmp_path)
    scorer = create(str(folder))
    expected = values(scorer.score(SEVEN))
    model = scorer._ranks._runner._rewards.__self__.model
    lines = []

    def fails():
        raise RuntimeError("no compiler\nand more")

    assert compile_layers(model, fails, lines.append) is False
    assert lines == ["the model cannot be compiled here (no compiler): going on without"]
    assert values(scorer.score(SEVEN)) == expected
    assert compile_layers(torch.nn.Linear(1, 1), fails, lines.append) is False
    assert "no layers that can be compiled" in lines[-1]


@pytest.mark.slow
def test_a_compiled_model_scores_as_before(tmp_path):
    scorer = create(str(make_classifier(tmp_path)))
    expected = values(scorer.score(SEVEN))
    runner_of = scorer._ranks._runner
    model = runner_of._rewards.__self__.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compilers talk
        if not compile_layers(model, runner_of.try_once):
            pytest.skip("no compiler here")
        assert values(scorer.score(SEVEN)) == pytest.approx(expected, abs=1e-5)


WORKER = """
import json, sys
import torch
from habitus.scorers import ScorerOptions
from habitus.scorers.batching import BatchedScorer
from habitus.scorers.classifier import create
from tests.conftest import make_item
from tests.test_classifier import SEVEN
from tests.tiny_models import make_classifier

lines = []
options = ScorerOptions(batch_tokens=150, device="cpu", say=lines.append)
scorer = create(sys.argv[1], options)
found = [each.value for each in scorer.score(SEVEN)]
judged = [j.model_dump(mode="json") for j in scorer.judge([make_item(n) for n in range(5)], 0)]
scorer.close()
print(json.dumps([found, judged, scorer._ranks.count]))
"""


@pytest.mark.slow
def test_two_processes_give_the_rewards_of_one_exactly_once(tmp_path):
    pytest.importorskip("accelerate")
    folder = make_classifier(tmp_path / "model")
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    # `accelerate launch` starts processes on GPUs the same way; on CPUs it would want MPI.
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, *launch, str(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | settings,
    )
    printed = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(printed) == 1, done.stdout + done.stderr
    found, judged, count = json.loads(printed[0])
    alone = create(str(folder), ScorerOptions(batch_tokens=150))
    assert count == 2
    assert found == values(alone.score(SEVEN))
    expected = [j.model_dump(mode="json") for j in alone.judge([make_item(n) for n in range(5)], 0)]
    for one, other in zip(judged, expected, strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
