"""`habitus train`: plain Bradley-Terry training, and the commands."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

pytest.importorskip("trl")

from habitus.cli.train import parse_shard, train
from habitus.errors import InputError, ModelError, RunError
from habitus.scorers import ScorerOptions
from habitus.scorers.batching import Scored
from habitus.scorers.classifier import create
from habitus.store import dump_line
from habitus.train._trl import on_one_gpu
from habitus.train.base import LoadOptions, load_base
from habitus.train.fitting import Settings
from habitus.train.graphs import StepGraphs
from habitus.train.reward_trainer import PairTrainer
from habitus.train.rm import RmPlan, accuracy, train_rm
from habitus.types import Message
from tests.conftest import read_jsonl
from tests.fake_graphs import fake_graphs
from tests.tiny_models import make_classifier, make_language_model, torch, transformers
from tests.training import make_pair, make_pairs


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"".join(dump_line(pair) for pair in make_pairs()))
    return path


@pytest.mark.slow
def test_a_language_model_becomes_a_reward_model(tmp_path):
    base = make_language_model(tmp_path / "lm")
    said = []
    # One answer is always better, so that there is something to learn.
    pairs = [
        make_pair(n, chosen=f"Soba noodles, {n}.", rejected=f"A goose, {n}.") for n in range(48)
    ]
    plan = RmPlan(
        pairs=pairs,
        base=str(base),
        out=tmp_path / "rm",
        settings=Settings(lr=5e-3, epochs=3, batch_size=8),
        load=LoadOptions(device="cpu", new_head=True, say=said.append),
    )
    found = train_rm(plan, said.append)
    assert found["new_head"] is True
    assert any("has no reward head" in line for line in said)
    assert (found["n_kept"], found["n_steps"]) == (36, 15)
    assert found["test"]["after"] == {"value": 1.0, "n": 12, "ties": 0, "n_excluded": 0}
    scorer = create(str(tmp_path / "rm"), ScorerOptions(device="cpu"))
    line = read_jsonl(tmp_path / "rm/training/scores.jsonl")[0]
    pair = next(pair for pair in pairs if pair.id == line["pair"])
    text = (*pair.prompt, Message(role="assistant", content=pair.chosen))
    assert scorer.score([text])[0].value == pytest.approx(line["chosen"], abs=1e-5)
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    assert loaded.config.num_labels == 1
    with pytest.raises(RunError, match="add --resume"):
        train_rm(plan)


@pytest.mark.slow
def test_a_step_in_which_memory_runs_out_counts_once(tmp_path, monkeypatch):
    """The recorded steps give way, and it is done again."""
    base, said, failed = make_classifier(tmp_path / "base"), [], []
    own, run = PairTrainer._loss, StepGraphs.run

    def curve(name):
        settings = Settings(lr=1e-3, epochs=2, batch_size=4, dropout=False)
        load = LoadOptions(device="cpu", say=said.append)
        plan = RmPlan(make_pairs(), str(base), tmp_path / name, settings, load)
        train_rm(plan, said.append)
        return read_jsonl(tmp_path / name / "training/curve.jsonl")

    def noted(graphs, *args):
        if graphs.used and not failed:
            failed.append(True)  # as if the shape had not come before
            return None
        return run(graphs, *args)

    def loss_of(*args):
        outputs, loss = own(*args)
        if failed and not any("memory ran out" in line for line in said):
            loss.register_hook(no_memory)
        return outputs, loss

    def no_memory(gradient):
        raise torch.OutOfMemoryError("no memory")

    plain = curve("plain")
    fake_graphs(monkeypatch)
    monkeypatch.setattr("habitus.train.base.can_record", lambda device: True)
    monkeypatch.setattr(StepGraphs, "run", noted)
    monkeypatch.setattr(PairTrainer, "_loss", loss_of)
    rescued = curve("rescued")
    assert failed
    assert len(rescued) == len(plain)
    for found, line in zip(rescued, plain, strict=True):
        assert found == pytest.approx(line, rel=1e-3, abs=1e-6)


def test_accuracy_counts_ties_one_half_and_leaves_failures_out():
    of = {"a": ("1", "0"), "b": ("0", "1"), "c": ("0", "0"), "d": ("1", "?")}
    texts = SimpleNamespace(of=of)
    scores = {"0": Scored(0.0), "1": Scored(1.0), "?": Scored(None)}
    assert accuracy("abcd", texts, scores) == {"value": 0.5, "n": 3, "ties": 1, "n_excluded": 1}
    assert accuracy("d", texts, scores)["value"] is None


def test_models_that_cannot_be_trained_are_refused(tmp_path):
    two = make_classifier(tmp_path / "two", num_labels=2, id2label={0: "a", 1: "b"})
    with pytest.raises(InputError, match="has 2 outputs"):
        load_base(str(two), LoadOptions(device="cpu"))
    bare = make_language_model(tmp_path / "lm")
    with pytest.raises(ModelError, match="no trained reward head"):
        load_base(str(bare), LoadOptions(device="cpu"))
    with pytest.raises(InputError, match=r"--device cuda:1: .* set CUDA_VISIBLE_DEVICES"):
        load_base(str(bare), LoadOptions(device="cuda:1"))


def test_a_process_that_sees_several_gpus_trains_on_one(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    given = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=8, report_to=[]
    )
    assert given.train_batch_size == 16
    assert on_one_gpu(given).train_batch_size == 8


@pytest.mark.slow
def test_the_commands(tmp_path, pairs_file):
    base = make_classifier(tmp_path / "base")
    common = ["--pairs", str(pairs_file), "--device", "cpu", "--batch-size", "4", "--lr", "1e-3"]
    result = CliRunner().invoke(
        train,
        ["rm", *common, "--base", str(base), "--out", str(tmp_path / "rm"), "--max-steps", "2"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    assert "accuracy on 12 held-out pairs after training" in result.output
    arguments = ["--base", str(tmp_path / "rm"), "--out", str(tmp_path / "out"), "--lora"]
    arguments += ["--cache", str(tmp_path / "cache"), "--fold", "split", "--epochs", "1"]
    result = CliRunner().invoke(
        train, ["scpo", *common, *arguments, "--limit", "4"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    study = json.loads((tmp_path / "out/study.json").read_text())
    assert study["folds"] == ["split"]
    assert study["config"]["lora"] == 16
    assert "--fold split" in study["command"]
    run = tmp_path / "out/units/Chile--scpo--foldsplit--seed0--share100/run.json"
    assert json.loads(run.read_text())["n_train"] == 4


def test_shards():
    assert parse_shard(None) == (1, 1)
    assert parse_shard("2/4") == (2, 4)
    with pytest.raises(InputError, match="--shard 2: write I/N"):
        parse_shard("2")
