"""Training of SCPO studies: files, resume, equality of training and scoring."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("trl")

from habitus.errors import HabitusError, InputError, RunError
from habitus.scorers import ScorerOptions
from habitus.scorers.classifier import create
from habitus.store import dump_line
from habitus.train.base import LoadOptions, load_base
from habitus.train.fitting import Settings
from habitus.train.scpo import ScpoPlan, train_scpo, weight_figures
from habitus.train.study import choose
from habitus.types import Message
from tests.conftest import read_jsonl
from tests.tiny_models import make_classifier, torch
from tests.training import make_pair, make_pairs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return make_classifier(tmp_path_factory.mktemp("base"))


@pytest.fixture
def plan(saved, tmp_path):
    """Make a plan of a small study."""

    def make(*, countries=(), variants=("scpo",), folds=("0",), shares=(), **fields):
        pairs = fields.pop("pairs", make_pairs())
        grid = choose(pairs, countries, variants, folds, (), shares)
        settings = fields.pop("settings", Settings(lr=1e-3, epochs=2, batch_size=4))
        values = {
            "pairs": pairs,
            "base": str(saved),
            "out": tmp_path / "out",
            "grid": grid,
            "settings": settings,
            "cache": tmp_path / "cache",
            "load": LoadOptions(device="cpu"),
        }
        return ScpoPlan(**(values | fields))

    return make


def units(out):
    return {path.name: path for path in (out / "units").iterdir()}


def test_a_study_writes_one_folder_for_each_unit(plan):
    out = train_scpo(plan(variants=("scpo", "finetune")))
    found = units(out)
    assert sorted(found) == [
        f"{country}--{variant}--fold0--seed0--share100"
        for country in ("Chile", "Israel")
        for variant in ("finetune", "scpo")
    ]
    run = json.loads((found["Chile--finetune--fold0--seed0--share100"] / "run.json").read_text())
    # 24 pairs on 12 questions; half of the questions are in fold 1.
    assert (run["n_train"], run["n_kept"], run["n_steps"], run["done"]) == (12, 12, 6, True)
    assert run["weights"]["min"] == run["weights"]["max"] == 1
    curve = read_jsonl(found["Chile--finetune--fold0--seed0--share100"] / "curve.jsonl")
    assert [line["step"] for line in curve] == [1, 2, 3, 4, 5, 6]
    assert curve[0]["lr"] == 1e-3
    scores = read_jsonl(found["Chile--scpo--fold0--seed0--share100"] / "scores.jsonl")
    tested = {line["pair"] for line in scores}
    held = {pair.id for pair in make_pairs() if pair.fold == 0}
    assert tested == held  # of both countries
    slim = read_jsonl(out / "pairs.jsonl")
    assert len(slim) == 48
    assert "chosen" not in slim[0]


def test_every_unit_starts_from_the_base(plan, saved):
    together = train_scpo(plan(variants=("finetune",)))
    alone = train_scpo(
        plan(countries=("Israel",), variants=("finetune",), out=together.with_name("alone"))
    )
    name = "Israel--finetune--fold0--seed0--share100"
    first = {x["pair"]: x for x in read_jsonl(together / "units" / name / "scores.jsonl")}
    for line in read_jsonl(alone / "units" / name / "scores.jsonl"):
        other = first[line["pair"]]
        for side in ("chosen", "rejected"):
            assert line[side] == pytest.approx(other[side], abs=1e-5)


def test_behaviour_25_scores_are_those_of_the_classifier(plan, saved):
    out = train_scpo(plan(variants=("finetune",), countries=("Chile",), keep_model=True))
    pairs = {pair.id: pair for pair in make_pairs()}
    folder = out / "units" / "Chile--finetune--fold0--seed0--share100"
    for model, file in (saved, out / "global.jsonl"), (folder / "model", folder / "scores.jsonl"):
        scorer = create(str(model), ScorerOptions(device="cpu"))
        for line in read_jsonl(file):
            pair = pairs[line["pair"]]
            texts = [
                (*pair.prompt, Message(role="assistant", content=text))
                for text in (pair.chosen, pair.rejected)
            ]
            found = [each.value for each in scorer.score(texts)]
            assert found == pytest.approx([line["chosen"], line["rejected"]], abs=1e-5)


@pytest.mark.parametrize("lora", [None, 4])
def test_behaviour_24_kept_models_load_with_equal_scores(plan, saved, lora):
    settings = Settings(lr=1e-2, epochs=1, batch_size=4, lora=lora)
    out = train_scpo(plan(variants=("finetune",), keep_model=True, settings=settings))
    base = {line["pair"]: line["chosen"] for line in read_jsonl(out / "global.jsonl")}
    pairs = {pair.id: pair for pair in make_pairs()}
    for folder in units(out).values():
        assert (folder / "model" / "adapter_config.json").exists() == (lora is not None)
        scorer = create(str(folder / "model"), ScorerOptions(device="cpu"))
        moved = 0.0
        for line in read_jsonl(folder / "scores.jsonl"):
            pair = pairs[line["pair"]]
            text = (*pair.prompt, Message(role="assistant", content=pair.chosen))
            assert scorer.score([text])[0].value == pytest.approx(line["chosen"], abs=1e-5)
            moved = max(moved, abs(line["chosen"] - base[line["pair"]]))
        assert moved > 1e-3  # it was trained


class Killed(BaseException):
    """What a kill looks like from inside."""


def killer(after):
    left = [after]

    def advance(count):
        left[0] -= count
        if left[0] <= 0:
            raise Killed

    return advance


@pytest.mark.parametrize("lora", [None, 4])
def test_behaviour_29_a_resumed_study_equals_an_unbroken_one(plan, tmp_path, lora):
    settings = Settings(lr=1e-2, epochs=3, batch_size=4, lora=lora, save_steps=2)
    fields = {"variants": ("scpo",), "keep_model": True, "settings": settings}
    pairs = make_pairs(32)
    whole = train_scpo(plan(pairs=pairs, out=tmp_path / "whole", **fields))
    with pytest.raises(Killed):
        train_scpo(plan(pairs=pairs, out=tmp_path / "broken", **fields), advance=killer(5))
    (first,) = units(tmp_path / "broken").values()
    assert [path.name for path in (first / "checkpoints").iterdir()] == ["checkpoint-4"]
    said = []
    broken = train_scpo(
        plan(pairs=pairs, out=tmp_path / "broken", resume=True, **fields), said.append
    )
    for name, folder in units(whole).items():
        other = units(broken)[name]
        for file in ("scores.jsonl", "curve.jsonl", "filter.jsonl"):
            assert (folder / file).read_bytes() == (other / file).read_bytes()
        weights = "adapter_model.safetensors" if lora else "model.safetensors"
        first, second = (path / "model" / weights for path in (folder, other))
        assert first.read_bytes() == second.read_bytes()
        assert not (other / "checkpoints").exists()
    again = train_scpo(
        plan(pairs=pairs, out=tmp_path / "broken", resume=True, **fields), said.append
    )
    assert again == broken
    assert "2 of 2 units are done" in said


def test_resume_refuses_another_configuration(plan):
    made = plan()
    train_scpo(made)
    with pytest.raises(RunError, match="add --resume"):
        train_scpo(made)
    with pytest.raises(RunError, match=r"tau was 0\.7 and is now 0\.6"):
        train_scpo(plan(tau=0.6, resume=True))


def test_shards_do_every_unit_once(plan):
    first = train_scpo(plan(variants=("all",), shard=(1, 2)))
    assert len(units(first)) == 5
    both = train_scpo(plan(variants=("all",), shard=(2, 2)))
    assert len(units(both)) == 10
    assert json.loads((both / "study.json").read_text())["n_units"] == 10


def test_filter_says_why_a_pair_is_left_out(plan, saved):
    pairs = [*make_pairs(), make_pair(99, fold=1, group="long", chosen="Soba noodles. " * 400)]
    out = train_scpo(plan(pairs=pairs, countries=("Chile",), variants=("filter", "finetune")))
    base = {line["pair"]: line for line in read_jsonl(out / "global.jsonl")}
    assert base["Chile-99"]["chosen"] is None
    assert base["Chile-99"]["status"] == "truncated"
    for variant in ("filter", "finetune"):
        folder = units(out)[f"Chile--{variant}--fold0--seed0--share100"]
        run = json.loads((folder / "run.json").read_text())
        lines = read_jsonl(folder / "filter.jsonl")
        assert (run["n_train"], run["n_too_long"]) == (13, 1)
        assert run["n_kept"] + run["n_filtered"] == 12
        assert sum(line["kept"] for line in lines) == run["n_kept"]
        last = lines[-1]
        assert (last["pair"], last["p"], last["kept"]) == ("Chile-99", None, False)
        assert last["why"].startswith("too long: ")
    for line in read_jsonl(units(out)["Chile--filter--fold0--seed0--share100"] / "filter.jsonl"):
        scores = base[line["pair"]]
        if scores["chosen"] is not None:
            # p < 0.7 exactly where the difference is below log(0.7 / 0.3) = 0.8473.
            assert line["kept"] == (scores["chosen"] - scores["rejected"] < 0.8473)


def test_a_unit_without_pairs_left_is_the_base(plan):
    out = train_scpo(plan(variants=("filter",), countries=("Chile",), tau=1e-9))
    (folder,) = units(out).values()
    run = json.loads((folder / "run.json").read_text())
    assert (run["n_kept"], run["n_steps"], run["weights"]["mean"]) == (0, 0, None)
    base = {line["pair"]: line for line in read_jsonl(out / "global.jsonl")}
    for line in read_jsonl(folder / "scores.jsonl"):
        assert line["chosen"] == pytest.approx(base[line["pair"]]["chosen"], abs=1e-5)


def test_base_scores_are_cached(plan, tmp_path):
    train_scpo(plan())
    said = []
    train_scpo(plan(out=tmp_path / "second"), said.append)
    assert "72 of 72 scores of the base are in the cache" in said
    (file,) = (tmp_path / "cache").glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-5])  # torn by a kill
    said = []
    third = train_scpo(plan(out=tmp_path / "third"), said.append)
    assert "71 of 72 scores of the base are in the cache" in said
    assert (third / "global.jsonl").read_bytes() == (tmp_path / "out/global.jsonl").read_bytes()


def test_steps_that_are_not_finite_stop_training_after_three(plan, monkeypatch):
    from habitus.train import reward_trainer

    def broken(chosen, rejected, weight, count):
        return (chosen - rejected).sum() * float("nan")

    monkeypatch.setattr(reward_trainer, "weighted_loss", broken)
    with pytest.raises(HabitusError, match="training stopped: the loss is not a finite number"):
        train_scpo(plan(variants=("finetune",)))


def test_a_step_that_is_not_finite_changes_no_weight(plan, monkeypatch, tmp_path):
    from habitus.train import reward_trainer

    real, calls = reward_trainer.weighted_loss, []

    def once(chosen, rejected, weight, count):
        calls.append(count)
        loss = real(chosen, rejected, weight, count)
        return loss * (float("inf") if len(calls) == 1 else 1.0)

    settings = Settings(lr=1e-2, epochs=1, batch_size=12)
    monkeypatch.setattr(reward_trainer, "weighted_loss", once)
    out = train_scpo(plan(countries=("Chile",), variants=("finetune",), settings=settings))
    (folder,) = units(out).values()
    run = json.loads((folder / "run.json").read_text())
    assert (run["n_steps"], run["n_skipped"]) == (1, 1)
    (skipped,) = read_jsonl(folder / "skipped.jsonl")
    assert skipped["step"] == 1
    assert sorted(skipped["pairs"]) == sorted(
        pair.id for pair in make_pairs() if pair.country == "Chile" and pair.fold == 1
    )
    (line,) = read_jsonl(folder / "curve.jsonl")
    assert line["loss"] is None
    assert line["skipped"] is True
    base = {x["pair"]: x for x in read_jsonl(out / "global.jsonl")}
    for score in read_jsonl(folder / "scores.jsonl"):
        assert score["chosen"] == pytest.approx(base[score["pair"]]["chosen"], abs=1e-5)


def test_a_step_cap_never_lengthens_the_epochs(plan):
    settings = Settings(lr=1e-3, epochs=1, batch_size=4, max_steps=50)
    out = train_scpo(plan(countries=("Chile",), variants=("finetune",), settings=settings))
    (folder,) = units(out).values()
    assert json.loads((folder / "run.json").read_text())["n_steps"] == 3
    assert Settings(epochs=3, batch_size=8, max_steps=10).steps(100) == 10
    assert Settings(epochs=3, batch_size=8).steps(100) == 39


def test_training_without_a_benchmark_needs_no_tables():
    code = "import sys, habitus.train.scpo, habitus.train.rm; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_benchmark_before_and_after(plan, write_items):
    from habitus.metrics.preferences_benchmarks import benchmark_tests, benchmarks
    from habitus.metrics.preferences_read import read_study
    from tests.conftest import make_item

    bench = str(write_items([make_item(number) for number in range(4)]))
    settings = Settings(lr=1e-2, epochs=1, batch_size=4)
    made = plan(countries=("Chile",), variants=("finetune",), evaluate=bench, settings=settings)
    (folder,) = units(train_scpo(made)).values()
    found = json.loads((folder / "benchmark.json").read_text())
    assert found["before"]["n"] == found["after"]["n"] == 4
    assert found["benchmark"]["name"] == "bench"
    study = read_study([made.out])
    (shown,) = benchmarks(study)
    assert (shown.before, shown.after) == (found["before"]["value"], found["after"]["value"])
    (test,) = benchmark_tests(study, resamples=50)
    assert (test.benchmark, test.units, test.comparison.n) == ("bench", 1, 4)
    assert test.comparison.difference == pytest.approx(shown.after - shown.before)
    assert 0 <= found["after"]["ci_low"] <= found["after"]["value"] <= found["after"]["ci_high"]


@pytest.mark.parametrize("kind", ["deberta-v2", "modernbert", "qwen2"])
def test_other_kinds_are_trained_and_load_again(plan, tmp_path, kind):
    from tests.tiny_models import make_tokenizer

    cls = kind == "deberta-v2"
    tokenizer = make_tokenizer(template=None, cls=True) if cls else None
    base = make_classifier(tmp_path / kind, kind, tokenizer=tokenizer)
    made = plan(base=str(base), countries=("Chile",), variants=("finetune",), keep_model=True)
    (folder,) = units(train_scpo(made)).values()
    scorer = create(str(folder / "model"), ScorerOptions(device="cpu"))
    line = read_jsonl(folder / "scores.jsonl")[0]
    pair = next(pair for pair in make_pairs() if pair.id == line["pair"])
    text = (*pair.prompt, Message(role="assistant", content=pair.chosen))
    assert scorer.score([text])[0].value == pytest.approx(line["chosen"], abs=1e-5)


def test_behaviour_3_the_last_real_token_is_pooled_where_padding_ends_a_turn(tmp_path):
    from tests.tiny_models import LLAMA2, make_tokenizer

    tokenizer = make_tokenizer(template=LLAMA2, pad="</s>")
    base = load_base(
        str(make_classifier(tmp_path / "m", tokenizer=tokenizer, pad_token_id=2)),
        LoadOptions(device="cpu"),
    )
    texts = base.encoder.encode(
        [[Message(role="user", content="?"), Message(role="assistant", content="A goose" * n)]
         for n in (1, 4)]
    )  # fmt: skip
    assert texts[0].ids[-1] == tokenizer.pad_token_id
    pad = base.pad_id(texts)
    assert pad not in {texts[0].ids[-1], texts[1].ids[-1]}
    width = max(len(text.ids) for text in texts)
    ids = torch.tensor([[*text.ids, *[pad] * (width - len(text.ids))] for text in texts])
    base.model.config.pad_token_id = pad
    with torch.no_grad():
        logits = base.model(ids, attention_mask=(ids != pad).long()).logits[:, 0].tolist()
    scored = [each.value for each in base.scorer().run(texts)]
    assert logits == pytest.approx(scored, abs=1e-5)


def test_weight_figures():
    assert weight_figures([0.0, 1.0, 0.5]) == {
        "min": 0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1, "mean": 0.5,
    }  # fmt: skip
    assert weight_figures([])["mean"] is None


def test_what_cannot_be_trained_is_refused(plan, tmp_path):
    with pytest.raises(InputError, match="Chile has no training pairs with fold 0 held out"):
        train_scpo(plan(pairs=[*make_pairs(2, ("Chile",)), *make_pairs(12, ("Israel",))]))
    with pytest.raises(InputError, match="--batch-size 8: must be a multiple of --micro-batch 3"):
        train_scpo(plan(settings=Settings(micro_batch=3)))
    with pytest.raises(InputError, match="--shard 3/2"):
        train_scpo(plan(shard=(3, 2)))


def test_behaviour_22_two_processes_train_and_score_as_one(plan, tmp_path, saved):
    """Gradients are averaged over processes, and 5 test pairs are each scored exactly once."""
    pairs = make_pairs(32, ("Chile",))
    tested = [pair for pair in pairs if pair.fold == 0][:5]
    pairs = [pair for pair in pairs if pair.fold == 1] + tested
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(b"".join(dump_line(pair) for pair in pairs))
    settings = Settings(lr=1e-3, epochs=1, batch_size=16)
    alone = train_scpo(plan(pairs=pairs, variants=("finetune",), settings=settings))
    # on CPUs `accelerate launch` starts one process, whatever number it is told
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [
        "--nproc_per_node",
        "2",
        "-m",
        "habitus",
        "train",
        "scpo",
        "--pairs",
        str(file),
        "--base",
        str(saved),
    ]
    command += ["--out", str(tmp_path / "two"), "--variant", "finetune", "--fold", "0"]
    command += ["--lr", "1e-3", "--epochs", "1", "--batch-size", "16", "--device", "cpu"]
    command += ["--cache", str(tmp_path / "cache2"), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (one,), (two,) = units(alone).values(), units(tmp_path / "two").values()
    first, second = (read_jsonl(folder / "curve.jsonl") for folder in (one, two))
    assert len(first) == len(second) == 1
    for name in ("loss", "grad_norm", "mean_weight"):
        assert second[0][name] == pytest.approx(first[0][name], rel=1e-4)
    first, second = (read_jsonl(folder / "scores.jsonl") for folder in (one, two))
    assert [line["pair"] for line in second] == [pair.id for pair in tested]
    for left, right in zip(first, second, strict=True):
        assert right["chosen"] == pytest.approx(left["chosen"], abs=1e-4)
        assert right["rejected"] == pytest.approx(left["rejected"], abs=1e-4)
