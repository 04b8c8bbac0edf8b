"""Trainings of Think-as-Locals on tiny random models: warm-up, GRPO, resume, evaluation."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from habitus.errors import HabitusError, InputError, RunError  # noqa: E402
from habitus.scorers import ScorerOptions, resolve  # noqa: E402
from habitus.store import dump_line  # noqa: E402
from habitus.train.locals.evaluation import _lenders, evaluate_pairs  # noqa: E402
from habitus.train.locals.model import Policy, open_engine  # noqa: E402
from habitus.train.locals.plan import GrpoSettings  # noqa: E402
from habitus.train.locals.prompting import Prompting, all_views, pair_item  # noqa: E402
from habitus.train.locals.rewards import RewardSettings  # noqa: E402
from habitus.train.locals.run import train_locals  # noqa: E402
from habitus.train.locals.supervised import (  # noqa: E402
    SupervisedSettings,
    learn,
    make_examples,
)
from habitus.train.locals.warmup import Sampled  # noqa: E402
from tests.conftest import read_jsonl  # noqa: E402
from tests.locals_samples import CPU, TEXT, small_plan, tiny_judge  # noqa: E402
from tests.training import make_pair, make_pairs  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_judge(tmp_path_factory.mktemp("model") / "judge")


@pytest.fixture(scope="module")
def taught(model, tmp_path_factory):
    """A model that mostly writes the form: all weights trained on a few texts."""
    folder = tmp_path_factory.mktemp("taught")
    policy = Policy(str(model), replace(CPU, lora=None), folder / "base")
    prompting = Prompting(translated=False, max_tokens=40, seed=0)
    every = all_views(make_pairs(8, ("Chile",)), 0)
    kept = [Sampled(view.item.id, view.key, TEXT, 1.0) for view in every]
    settings = SupervisedSettings(steps=60, batch_size=8, lr=1e-2, verdict_share=0.2)
    examples = make_examples(policy, prompting, every, kept, settings, 0)
    learn(policy, examples, folder / "run", settings, 0)
    policy.save(folder / "judge")
    return folder / "judge"


def weights_of(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model" / "adapter_model.safetensors")


def steady(path):
    """Lines of a curve without what a clock says."""
    clocks = ("seconds", "tokens_per_second")
    return [
        {name: value for name, value in line.items() if not name.startswith(clocks)}
        for line in read_jsonl(path)
    ]


def taught_plan(taught, out, **fields):
    grpo = GrpoSettings(
        steps=4,
        group=4,
        prompts_per_step=4,
        max_new_tokens=40,
        lr=1e-3,
        save_steps=1,
        micro_batch=8,
    )
    return small_plan(taught, out, **({"grpo": grpo} | fields))


@pytest.mark.slow
def test_reinforcement_learns_stops_and_resumes_bit_for_bit(taught, tmp_path):
    def killed(count):
        raise KeyboardInterrupt

    whole = train_locals(taught_plan(taught, tmp_path / "whole"))
    assert whole["done"]
    curve = read_jsonl(tmp_path / "whole" / "curve.jsonl")
    assert [line["step"] for line in curve] == [1, 2, 3, 4]
    assert curve[0]["parse_rate"] > 0.3
    assert curve[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert curve[-1]["kl"] > 0
    assert curve[0]["r_appr"] is not None
    assert 0 < curve[0]["seconds_score"] < curve[0]["seconds"]
    samples = read_jsonl(tmp_path / "whole" / "samples.jsonl")
    assert len(samples) == 4 * 8
    assert any(sample["verdict"] for sample in samples)

    with pytest.raises(RunError, match="--resume"):
        train_locals(taught_plan(taught, tmp_path / "whole"))
    first = train_locals(taught_plan(taught, tmp_path / "legs", max_seconds=0.001))
    assert not first["done"]
    with pytest.raises(KeyboardInterrupt):
        train_locals(taught_plan(taught, tmp_path / "legs", resume=True), advance=killed)
    other = taught_plan(taught, tmp_path / "legs", resume=True)
    other = replace(other, grpo=replace(other.grpo, lr=1e-5))
    with pytest.raises(RunError, match=r"grpo\.lr"):
        train_locals(other)
    assert train_locals(taught_plan(taught, tmp_path / "legs", resume=True))["done"]
    ours, theirs = weights_of(tmp_path / "legs"), weights_of(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    watched = read_jsonl(tmp_path / "whole" / "watched.jsonl")
    assert [line["step"] for line in watched] == [s for s in range(5) for _ in range(4)]
    assert len({line["pair"] for line in watched}) == 4
    assert watched[0]["question"] in {pair.prompt[-1].content for pair in make_pairs(8)}
    for name in ("curve.jsonl", "samples.jsonl", "watched.jsonl"):
        assert steady(tmp_path / "legs" / name) == steady(tmp_path / "whole" / name)


@pytest.mark.slow
def test_warm_up_reinforcement_and_held_out_pairs(taught, tmp_path):
    plan = taught_plan(
        taught,
        tmp_path / "out",
        stage="both",
        grpo=GrpoSettings(
            steps=2, group=2, prompts_per_step=2, max_new_tokens=40, lr=1e-3, policy="reference"
        ),
        evaluate=make_pairs(16, ("Chile",)),
    )
    record = train_locals(plan)
    assert record["done"]
    assert record["warmed_up"]
    found = json.loads((tmp_path / "out" / "heldout.json").read_text())
    assert found["n"] == 4
    names = {figure["name"] for figure in found["figures"]}
    assert names == {"accuracy", "both_orders", "p_a", "r_appr"}
    judge = resolve(
        f"judge:{tmp_path / 'out' / 'model'}",
        ScorerOptions(
            engine="transformers", mode="pairwise", criteria=True, device="cpu", max_tokens=40
        ),
    )
    pair = next(pair for pair in plan.evaluate if pair.split == "test")
    (judgement,) = judge.judge([pair_item(pair)], seed=0)
    judge.close()
    record = next(each for each in found["pairs"] if each["pair"] == pair.id)
    assert judgement.raw == record["criteria"]["text"]
    assert not (tmp_path / "out" / "checkpoints").exists()


@pytest.mark.slow
def test_borrowed_criteria_are_of_another_question(taught, tmp_path):
    engine = open_engine(str(taught), CPU)
    pairs = [make_pair(n, country=("Chile", "Peru")[n % 2]) for n in range(12)]
    assert len({pair.group for pair in pairs}) > 2
    found = {
        record["pair"]: record for record in evaluate_pairs(engine, pairs, max_tokens=40)["pairs"]
    }
    engine.close()
    judged = [record for record in found.values() if record["criteria"]["first"] is not None]
    assert len(judged) > 2
    alike = 0
    for record in judged:
        lender = found[record["borrowed"]["from"]]
        assert lender["group"] != record["group"]
        assert lender["country"] == record["country"]
        assert lender["criteria"]["first"] is not None
        texts = {
            *lender["criteria"]["text"].split("\n\n"),
            *record["criteria"]["text"].split("\n\n"),
        }
        if len(texts) == 1:  # whoever wrote it, and in whatever order
            alike += 1
            for order in ("first", "second"):
                assert record["borrowed"][order] == pytest.approx(
                    record["criteria"][order], abs=1e-5
                )
        else:
            assert record["borrowed"]["first"] is not None
    assert alike


def test_pairs_that_have_no_neighbours_borrow_from_different_ones():
    """Each is the only one of its country and question, but for pairs of its own group."""
    pairs = [make_pair(2 * n, country=f"Country {n}") for n in range(40)]
    lenders = _lenders(pairs, 0)
    groups = {pair.id: pair.group for pair in pairs}
    assert len(lenders) == 40
    assert all(groups[name] != groups[lender] for name, lender in lenders.items())
    assert len(set(lenders.values())) == 40
    assert lenders == _lenders(pairs[::-1], 0)


@pytest.mark.slow
def test_nobody_lends_where_one_question_is_all(taught):
    engine = open_engine(str(taught), CPU)
    found = evaluate_pairs(engine, [make_pair(0)], max_tokens=40)["pairs"]
    engine.close()
    nothing = {"first": None, "second": None, "from": None, "turned": None}
    assert found[0]["borrowed"] == nothing


@pytest.mark.slow
def test_verdicts_come_before_criteria_and_all_of_it_resumes(taught, tmp_path):
    settings = SupervisedSettings(steps=3, batch_size=4, lr=1e-2, save_steps=1, verdict_steps=3)
    fields = {"stage": "warmup", "supervised": settings}
    whole = train_locals(taught_plan(taught, tmp_path / "whole", **fields))
    assert whole["done"]
    verdicts = replace(settings, verdict_steps=0)
    plan = taught_plan(taught, tmp_path / "alone", stage="verdict", supervised=verdicts)
    assert train_locals(plan)["done"]  # the first part is what --stage verdict is
    first = weights_of(tmp_path / "whole" / "warmup" / "verdicts")
    alone = weights_of(tmp_path / "alone")
    assert all(torch.equal(first[name], alone[name]) for name in alone)

    legs = 0
    record = {"done": False}
    while not record["done"]:
        plan = taught_plan(taught, tmp_path / "legs", max_seconds=0.001, resume=legs > 0, **fields)
        record = train_locals(plan)
        legs += 1
        assert legs < 20
    assert legs > 4
    ours, theirs = weights_of(tmp_path / "legs"), weights_of(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert any(not torch.equal(theirs[name], first[name]) for name in theirs)
    sampled = (tmp_path / "whole" / "warmup" / "criteria.jsonl").read_bytes()
    assert (tmp_path / "legs" / "warmup" / "criteria.jsonl").read_bytes() == sampled
    assert not list((tmp_path / "whole").rglob("checkpoint-*"))


@pytest.mark.slow
def test_the_warm_up_of_another_run_is_ones_own(taught, tmp_path):
    fields = {"stage": "both", "grpo": replace(taught_plan(taught, tmp_path).grpo, steps=1)}
    one = taught_plan(taught, tmp_path / "one", **fields)
    two = replace(one, out=tmp_path / "two", warmup_from=tmp_path / "one")
    with pytest.raises(RunError, match="come to its reinforcement first"):
        train_locals(two)
    assert train_locals(one)["done"]
    with pytest.raises(InputError, match="these differ: warmup_pairs, seed;"):
        train_locals(replace(two, out=tmp_path / "three", seed=1, warmup_pairs=2))
    longer = replace(two, grpo=replace(two.grpo, max_new_tokens=41))
    with pytest.raises(InputError, match="these differ: max_new_tokens;"):
        train_locals(replace(longer, out=tmp_path / "five"))
    corr = RewardSettings(w_appr=0.0)
    found = train_locals(replace(two, rewards=corr))
    shown = json.loads((tmp_path / "one" / "warmup" / "shown.json").read_text())
    assert sum(shown.values()) == one.supervised.steps * one.supervised.batch_size
    least = sorted(shown.get(pair.id, 0) for pair in one.pairs if pair.split != "test")[:2]
    first = {line["pair"] for line in read_jsonl(tmp_path / "one" / "samples.jsonl")}
    assert sorted(shown.get(pair, 0) for pair in first) == least  # two pairs, both orders of each
    sampled = read_jsonl(tmp_path / "one" / "warmup" / "criteria.jsonl")
    assert found["n_sampled"] == len(sampled)
    assert found["n_criteria"] == sum(line["kept"] for line in sampled)
    whole = replace(one, out=tmp_path / "whole", rewards=corr)
    assert train_locals(whole)["done"]
    ours, theirs = weights_of(tmp_path / "two"), weights_of(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    kept = replace(two, out=tmp_path / "kept", stage="warmup")
    with pytest.raises(InputError, match="only measures: add --evaluate-pairs"):
        train_locals(kept)
    found = train_locals(replace(kept, evaluate=make_pairs(2, ("Chile",))))
    assert found["done"]  # the warm-up itself is the judge
    assert (tmp_path / "kept" / "heldout.json").exists()
    assert found["shown_after_criteria"]["most"] >= found["shown_after_criteria"]["mean"] >= 1
    ours, theirs = weights_of(tmp_path / "kept"), weights_of(tmp_path / "one" / "warmup")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert (tmp_path / "kept" / "warmup" / "criteria.jsonl").exists()
    assert not (tmp_path / "kept" / "warmup" / "model").exists()
    early = replace(two.supervised, verdict_steps=1)
    with pytest.raises(InputError, match="for --stage verdict say --warmup-steps"):
        train_locals(replace(two, out=tmp_path / "six", stage="verdict", supervised=early))
    with pytest.raises(InputError, match="goes with --stage both or warmup, not with --stage rl"):
        train_locals(replace(two, out=tmp_path / "four", stage="rl"))


@pytest.mark.slow
def test_a_warm_up_that_is_measured_needs_no_other_run_any_more(taught, tmp_path):
    before = taught_plan(taught, tmp_path / "before", stage="verdict")
    assert train_locals(before)["done"]
    fields = {"stage": "both", "grpo": replace(before.grpo, steps=1)}
    adapter = str(tmp_path / "before" / "model")  # merged into each run's own base
    one = replace(before, out=tmp_path / "one", model=adapter, **fields)
    assert train_locals(one)["done"]
    kept = replace(
        one,
        out=tmp_path / "kept",
        stage="warmup",
        warmup_from=tmp_path / "one",
        evaluate=make_pairs(2, ("Chile",)),
    )
    assert train_locals(kept)["done"]
    base = json.loads((tmp_path / "kept" / "model" / "adapter_config.json").read_text())
    assert base["base_model_name_or_path"] == str(tmp_path / "kept" / "base")


@pytest.mark.slow
def test_all_weights_are_trained_with_a_reference_in_memory(taught, tmp_path):
    plan = taught_plan(taught, tmp_path / "out", load=replace(CPU, lora=None))
    assert train_locals(replace(plan, grpo=replace(plan.grpo, steps=2)))["done"]
    curve = read_jsonl(tmp_path / "out" / "curve.jsonl")
    assert curve[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert curve[1]["kl"] > 0
    both = replace(
        plan,
        out=tmp_path / "both",
        stage="both",
        supervised=SupervisedSettings(steps=2, batch_size=4, lr=1e-3, verdict_steps=2),
        grpo=replace(plan.grpo, steps=1),
    )
    assert train_locals(both)["done"]
    curve = read_jsonl(tmp_path / "both" / "curve.jsonl")
    assert curve[0]["kl"] == pytest.approx(0, abs=1e-6)  # the reference is the warmed-up model
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_collapse_stops_training_and_keeps_a_checkpoint(model, tmp_path):
    plan = small_plan(model, tmp_path / "out")
    plan = replace(plan, grpo=replace(plan.grpo, steps=9, group=2, prompts_per_step=2))
    with pytest.raises(HabitusError, match="the form was lost"):
        train_locals(plan)
    assert "form was lost" in json.loads((tmp_path / "out" / "run.json").read_text())["collapsed"]
    assert list((tmp_path / "out" / "checkpoints").glob("checkpoint-*"))
    warning = replace(plan, resume=True, grpo=replace(plan.grpo, on_collapse="warn"))
    assert train_locals(warning)["done"]  # as the message says
    curve = read_jsonl(tmp_path / "out" / "curve.jsonl")
    assert [line["step"] for line in curve] == list(range(1, 10))


@pytest.mark.slow
def test_weights_that_explode_end_in_one_line(taught, tmp_path):
    plan = taught_plan(taught, tmp_path / "out")
    plan = replace(plan, grpo=replace(plan.grpo, lr=1e30))
    with pytest.raises(HabitusError, match=r"diverged in step 1: its weights .* lower --lr"):
        train_locals(plan)
    assert not list((tmp_path / "out").rglob("checkpoint-*"))


@pytest.mark.slow
def test_two_processes_learn_what_one_does_and_one_of_them_writes(model, tmp_path):
    pairs = make_pairs(8, ("Chile",))
    (tmp_path / "pairs.jsonl").write_bytes(b"".join(dump_line(pair) for pair in pairs))
    # on CPUs `accelerate launch` starts one process, whatever number it is told
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
    command += ["2", "-m", "habitus", "train", "locals", "--pairs", str(tmp_path / "pairs.jsonl")]
    command += ["--model", str(model), "--out", str(tmp_path / "two"), "--stage", "both"]
    command += ["--warmup-pairs", "2", "--warmup-samples", "2", "--warmup-steps", "2"]
    command += ["--warmup-batch", "4", "--warmup-lr", "1e-3", "--steps", "1", "--group", "2"]
    command += ["--prompts-per-step", "4", "--max-new-tokens", "12", "--device", "cpu"]
    command += ["--threads", "1", "--lora-r", "2"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("criteria are kept") == 1
    two = tmp_path / "two"
    assert json.loads((two / "run.json").read_text())["done"]
    assert [line["completions"] for line in read_jsonl(two / "curve.jsonl")] == [8]
    plan = small_plan(model, tmp_path / "one", pairs=pairs, stage="warmup", warmup_pairs=2)
    supervised = SupervisedSettings(steps=2, batch_size=4, lr=1e-3)
    train_locals(replace(plan, supervised=supervised))
    ours, theirs = (read_jsonl(folder / "warmup" / "curve.jsonl") for folder in (two, plan.out))
    assert [line["loss"] for line in ours] == pytest.approx(
        [line["loss"] for line in theirs], rel=1e-4
    )


@pytest.mark.slow
def test_the_base_is_measured_as_it_is(taught, tmp_path):
    plan = small_plan(taught, tmp_path / "out", stage="base", evaluate=make_pairs(8, ("Chile",)))
    record = train_locals(plan)
    assert (record["done"], record["config"]["stage"]) == (True, "base")
    assert not (tmp_path / "out" / "model").exists()
    assert json.loads((tmp_path / "out" / "heldout.json").read_text())["n"] == 2
    (tmp_path / "out" / "heldout.json").unlink()
    assert train_locals(replace(plan, resume=True))["done"]  # as a broken file's message says
    assert json.loads((tmp_path / "out" / "heldout.json").read_text())["n"] == 2
    with pytest.raises(InputError, match="--evaluate-pairs"):
        train_locals(replace(plan, evaluate=None, out=tmp_path / "b"))


@pytest.mark.slow
def test_every_seed_is_measured_on_the_same_held_out_pairs(taught, tmp_path):
    asked = {"stage": "base", "evaluate": make_pairs(48, ("Chile",)), "evaluate_limit": 3}
    found = []
    for seed in (0, 1):
        train_locals(small_plan(taught, tmp_path / str(seed), seed=seed, **asked))
        pairs = json.loads((tmp_path / str(seed) / "heldout.json").read_text())["pairs"]
        found.append([pair["pair"] for pair in pairs])
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_what_the_warm_up_cannot_do_is_said_before_criteria_are_sampled(model, tmp_path):
    plan = small_plan(model, tmp_path / "out", stage="both")
    plan = replace(plan, supervised=replace(plan.supervised, micro_batch=3))
    with pytest.raises(InputError, match="--warmup-batch 4"):
        train_locals(plan)
    assert not (tmp_path / "out").exists()


def test_nothing_to_train_on(model, tmp_path):
    with pytest.raises(InputError, match="part test"):
        train_locals(small_plan(model, tmp_path / "out", pairs=[make_pair(0)]))
    with pytest.raises(InputError, match="no pair can be trained on"):
        train_locals(small_plan(model, tmp_path / "b", load=replace(CPU, context=50)))
