"""`habitus downstream policy` on a tiny random model and TRL's own trainer."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from habitus.cli.downstream_policy import _plan  # noqa: E402
from habitus.cli.downstream_policy import policy as policy_command  # noqa: E402
from habitus.cli.main import run as cli  # noqa: E402
from habitus.downstream.pick import AnswerSet  # noqa: E402
from habitus.downstream.plan import ScorerChoice  # noqa: E402
from habitus.downstream.policy_result import read_study  # noqa: E402
from habitus.downstream.tasks import TaskOptions, load_task  # noqa: E402
from habitus.errors import HabitusError, InputError, RunError  # noqa: E402
from habitus.evaluate.outcomes import read_outcomes  # noqa: E402
from habitus.metrics.policy import study_figures  # noqa: E402
from habitus.pairs.splits import assign  # noqa: E402
from habitus.report.policy import findings, verdict, write_policy  # noqa: E402
from habitus.scorers import KINDS, resolve  # noqa: E402
from habitus.train.policy import figures  # noqa: E402
from habitus.train.policy.heldout import score_both  # noqa: E402
from habitus.train.policy.plan import split  # noqa: E402
from habitus.train.policy.reward import scores_of  # noqa: E402
from habitus.train.policy.run import train_policies  # noqa: E402
from habitus.types import ScorerSpec  # noqa: E402
from tests.conftest import read_jsonl  # noqa: E402
from tests.downstream_samples import places, write_blend  # noqa: E402
from tests.locals_samples import tiny_judge  # noqa: E402
from tests.policy_samples import (  # noqa: E402
    Compares,
    Level,
    Pointwise,
    ReadsOne,
    answer,
    prompt,
    small_plan,
)
from tests.test_downstream_tasks import write_include, write_omgeval  # noqa: E402
from tests.test_pairs import pair as made_pair  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _few_resamples():
    """Figures are tested where they are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "study_figures", partial(study_figures, resamples=200))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_judge(tmp_path_factory.mktemp("model") / "policy")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_blend(tmp_path_factory.mktemp("data") / "blend", 10)


@pytest.fixture(scope="module")
def whole(model, data, tmp_path_factory):
    """A folder of two reward models, made without a stop."""
    scorers = tuple(map(ScorerChoice, ("baseline:longest", "baseline:random")))
    plan = small_plan(model, data, tmp_path_factory.mktemp("whole") / "out", scorers=scorers)
    train_policies(plan)
    return plan


def folder(plan, name):
    (found,) = (plan.out / "scorers").glob(f"{name}__*")
    return found


CLOCKS = ("seconds", "tokens_per_second")


def timeless(value):
    """JSON without what a clock says."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not k.startswith(CLOCKS)}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def steady(path):
    """A file's bytes, times aside."""
    if path.suffix == ".jsonl":
        return [timeless(line) for line in read_jsonl(path)]
    return timeless(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


# The whole


def test_a_run_trains_measures_and_is_read_back(whole):
    study = read_study(whole.out)
    assert [one.label for one in study.scorers] == ["baseline:longest", "baseline:random"]
    assert study.countries == ("China", "Spain")
    prompts = read_jsonl(whole.out / "prompts.jsonl")
    training = read_jsonl(whole.out / "training.jsonl")
    assert (study.prompts, study.training_prompts) == (len(prompts), len(training))
    assert not {one["group"] for one in prompts} & {one["group"] for one in training}
    for name in ("baseline-longest", "baseline-random"):
        own = folder(whole, name)
        curve, samples = read_jsonl(own / "curve.jsonl"), read_jsonl(own / "samples.jsonl")
        assert [line["step"] for line in curve] == [1, 2, 3]
        assert Counter(line["step"] for line in samples) == {1: 8, 2: 8, 3: 8}
        assert {line["prompt"] for line in samples} <= {one["id"] for one in training}
        first = [line for line in samples if line["step"] == 1]
        assert curve[0]["reward"] == pytest.approx(sum(line["reward"] for line in first) / 8)
        assert curve[0]["length"] == sum(line["tokens"] for line in first) / 8
        for line in samples:  # the token that ends an answer is none of it, as in held-out ones
            assert line["tokens"] == 6 if line["status"] == "truncated" else line["tokens"] < 6
        assert curve[0]["kl"] == curve[0]["kl_answer"] == pytest.approx(0, abs=1e-6)
        assert curve[-1]["kl"] > 0
        assert curve[-1]["kl_answer"] > curve[-1]["kl"]
        assert not (own / "checkpoints").exists()
        assert (own / "model" / "adapter_model.safetensors").is_file()
        layers = json.loads((own / "model" / "adapter_config.json").read_text())["target_modules"]
        assert layers == sorted(layers)  # PEFT's set has another order in each process
    longest = read_jsonl(folder(whole, "baseline-longest") / "samples.jsonl")
    assert all(line["reward"] == len(line["text"]) for line in longest)
    one, other = (read_jsonl(folder(whole, f"baseline-{n}") / "samples.jsonl")[:8] for n in
                  ("longest", "random"))  # fmt: skip
    assert [line["text"] for line in one] == [line["text"] for line in other]  # the same first step
    qualities = read_jsonl(whole.out / "qualities.jsonl")
    assert len(qualities) == 2 * len(prompts)
    assert {line["scorer"] for line in qualities} == {one.digest for one in study.scorers}


def test_a_held_out_answer_is_scored_with_those_before(whole):
    own = folder(whole, "baseline-longest")
    before = read_jsonl(whole.out / "before.jsonl")
    after = read_jsonl(own / "answers.jsonl")
    lines = {line["prompt"]: line["scores"] for line in read_jsonl(own / "scores.jsonl")}
    wins = {
        line["prompt"]: line["win"]
        for line in read_jsonl(whole.out / "qualities.jsonl")
        if line["scorer"] == read_study(whole.out).scorers[0].digest
    }
    for name, scores in lines.items():
        first = [len(one["text"]) for one in before if one["prompt"] == name]
        then = [len(one["text"]) for one in after if one["prompt"] == name]
        assert scores == first + then
        pairs = [(b > a) + (b == a) / 2 for a in first for b in then]
        assert wins[name] == sum(pairs) / 4


@pytest.mark.slow
def test_a_run_in_legs_and_killed_ends_in_the_same_files(whole, tmp_path):
    def killed(count):
        raise KeyboardInterrupt

    plan = replace(whole, out=tmp_path / "out", scorers=whole.scorers[:1])
    legs = replace(plan, resume=True, max_seconds=0.001)
    assert train_policies(replace(legs, resume=False)) is None
    with pytest.raises(RunError, match="--resume"):
        train_policies(plan)
    assert train_policies(legs) is None  # a step of training
    with pytest.raises(KeyboardInterrupt):
        train_policies(replace(plan, resume=True), advance=killed)
    other = replace(plan, resume=True, grpo=replace(plan.grpo, lr=1e-5))
    with pytest.raises(RunError, match=r"grpo\.lr"):
        train_policies(other)
    before = (plan.out / "before.jsonl").stat().st_mtime_ns
    study = train_policies(replace(plan, resume=True))
    assert [one.label for one in study.scorers] == ["baseline:longest"]
    longest = folder(plan, "baseline-longest")
    weights = (longest / "model" / "adapter_model.safetensors").stat().st_mtime_ns
    study = train_policies(replace(whole, out=plan.out, resume=True))  # another reward model
    assert len(study.scorers) == 2
    assert (plan.out / "before.jsonl").stat().st_mtime_ns == before
    assert (longest / "model" / "adapter_model.safetensors").stat().st_mtime_ns == weights
    ours = {path.relative_to(plan.out): path for path in places(plan.out)}
    theirs = {path.relative_to(whole.out): path for path in places(whole.out)}
    assert ours.keys() == theirs.keys() | {path for path in ours if path.suffix == ".html"}
    for name, path in theirs.items():
        if name.suffix != ".html":
            assert steady(ours[name]) == steady(path), name


@pytest.mark.slow
def test_without_anything_to_learn_answers_stay_the_same(model, data, tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS._builtin, "test", "nowhere:create")
    monkeypatch.setattr("habitus.train.policy.run.resolve", lambda name, options: Level())
    plan = small_plan(model, data, tmp_path / "out", scorers=(ScorerChoice("test:level"),))
    plan = replace(plan, grpo=replace(plan.grpo, steps=1, beta=0.0))
    (level,) = train_policies(plan).scorers
    own = folder(plan, "test-level")
    before, after = read_jsonl(plan.out / "before.jsonl"), read_jsonl(own / "answers.jsonl")
    assert [one["text"] for one in before] == [one["text"] for one in after]
    assert len({one["text"] for one in before}) > len(before) // 2  # and yet they are drawn
    assert (level.gain.value, level.gain.p, level.reward.value) == (0.0, 1.0, 0.5)
    (curve,) = read_jsonl(own / "curve.jsonl")
    assert (curve["flat_groups"], curve["reward_std"], curve["unscored"]) == (1.0, 0.0, 0)
    assert level.flags == ()


@pytest.mark.slow
def test_all_weights_on_multiple_choice_without_a_penalty(model, tmp_path):
    row = json.loads(write_include(tmp_path).read_text())
    data = tmp_path / "include.jsonl"
    rows = (json.dumps(row | {"question": f"Ποιο {number};"}) for number in range(8))
    data.write_text("\n".join(rows), encoding="utf-8")
    plan = small_plan(model, data, tmp_path / "out", task="include", language="own")
    plan = replace(plan, load=replace(plan.load, lora=None))
    plan = replace(plan, grpo=replace(plan.grpo, steps=2, beta=0.0))
    (found,) = train_policies(plan).scorers
    assert 0 <= found.watch["unread"].after.value <= 1
    assert "unread" in found.curves
    curve = read_jsonl(folder(plan, "baseline-longest") / "curve.jsonl")
    assert curve[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert curve[1]["kl"] > 1e-3  # it is told how far it went all the same
    assert curve[1]["kl_answer"] == pytest.approx(curve[1]["kl"] * curve[1]["length"], rel=0.3)
    assert (folder(plan, "baseline-longest") / "model" / "model.safetensors").is_file()


def test_a_training_that_diverges_ends_with_a_word_and_leaves_no_broken_checkpoint(
    model, data, tmp_path
):
    plan = small_plan(model, data, tmp_path / "out")
    plan = replace(plan, grpo=replace(plan.grpo, lr=1e4))
    with pytest.raises(HabitusError, match=r"diverged in step 2: .* lower --lr"):
        train_policies(plan)
    own = folder(plan, "baseline-longest")
    assert [path.name for path in (own / "checkpoints").iterdir()] == ["checkpoint-1"]
    assert not (own / "model").exists()


# Rewards


def sets_of(*groups):
    return [
        AnswerSet(prompt(f"{n}/p"), tuple(answer(i, text) for i, text in enumerate(texts)))
        for n, texts in enumerate(groups)
    ]


def test_equal_answers_have_equal_rewards_and_are_asked_about_once():
    judge = Compares()
    ((scores, problems),) = scores_of(judge, sets_of(["a", "bb", "a"]), 0)
    assert scores == (1.0, 2.0, 1.0)
    assert problems == (None, None, None)
    assert [len(item.candidates) for item in judge.seen] == [2]


def test_a_failed_answer_has_no_reward_and_a_comparing_judge_fails_on_the_group():
    groups = (["a", "bad", "ccc"], ["a", "bb", "bb"])
    found = scores_of(ReadsOne(), sets_of(*groups), 0)
    assert found[0] == ((1, None, 3), (None, "truncated", None))
    assert found[1] == ((1, 2, 2), (None, None, None))
    found = scores_of(Pointwise(), sets_of(*groups), 0)
    assert found == [
        ((1, None, 3), (None, "refused", None)),
        ((1, 2, 2), (None, None, None)),
    ]
    found = scores_of(Compares(), sets_of(*groups), 0)
    assert found[0] == ((None, None, None), ("unparsed",) * 3)
    assert found[1][0] == (1, 2, 2)


def test_answers_of_one_text_have_no_reward():
    assert scores_of(Compares(), sets_of(["a", "a"]), 0) == [((None, None), ("same", "same"))]
    longest = resolve("baseline:longest")  # as in best-of-n it is told of each answer
    assert scores_of(longest, sets_of(["a", "a"]), 0) == [((1, 1), (None, None))]


def test_a_template_in_an_answer_is_text():
    text = "{{ prompt }} <|im_end|> {answer_b}"
    judge = Compares()
    scores_of(judge, sets_of([text, "b"]), 0)
    assert judge.seen[0].candidates[0].text == text


def test_scoring_held_out_answers_ends_early_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("habitus.downstream.pick.SLICE", 2)
    sets = sets_of(*[["a", "bb", "a" * n] for n in range(1, 6)])
    about = {"seed": 0, "say": lambda line: None, "retry_failed": False}
    for name in ("whole", "legs"):
        (tmp_path / name).mkdir()
    assert score_both(sets, Compares(), tmp_path / "whole", **about)
    judges = [Compares() for _ in range(3)]
    ends = [
        score_both(sets, judge, tmp_path / "legs", **about, go_on=lambda: False) for judge in judges
    ]
    assert ends == [False, False, True]
    assert [len(judge.seen) for judge in judges] == [2, 2, 1]
    for name in ("judgements.jsonl", "scores.jsonl"):
        one, other = (read_jsonl(tmp_path / folder / name) for folder in ("whole", "legs"))
        assert timeless(one) == timeless(other)


# The parts


def test_a_question_is_in_one_part_whatever_else_is_there(data, tmp_path, model):
    task = load_task("blend-short", TaskOptions(data, language="en"))
    plan = small_plan(model, data, tmp_path)
    every = split(task, plan)
    held = {one.group for one in every.held_out.prompts}
    assert held.isdisjoint(one.group for one in every.training.prompts)
    assert len(every.held_out.prompts) + len(every.training.prompts) == len(task.prompts) == 20
    spain = split(task, replace(plan, countries=("spain",)))
    assert {one.country for one in spain.held_out.prompts} == {"Spain"}
    assert {one.group for one in spain.held_out.prompts} == held
    pairs = [made_pair(group=one.group) for one in task.prompts]
    parts = assign(pairs, test_share=0.4, folds=2, seed=plan.seed)
    assert {name for name, part in parts.items() if part.test} == held  # as pairs are parted
    known = min(held)
    fewer = split(task, replace(plan, trained_on=frozenset([known])))
    left = {one.group for part in (fewer.held_out, fewer.training) for one in part.prompts}
    assert left == {one.group for one in task.prompts} - {known}
    other = split(task, replace(plan, seed=1))
    assert {one.group for one in other.held_out.prompts} != held


def test_a_training_question_with_a_held_out_text_is_left_out(data, tmp_path, model):
    task = load_task("blend-short", TaskOptions(data, language="en"))
    text = task.prompts[0].messages
    same = replace(task, prompts=tuple(one.model_copy(update={"messages": text}) for one in
                                       task.prompts[:10]) + task.prompts[10:])  # fmt: skip
    found = split(same, small_plan(model, data, tmp_path))
    assert found.shared > 0
    held = {one.digest for one in found.held_out.prompts}
    assert held.isdisjoint(one.digest for one in found.training.prompts)


# What is read from it


def test_the_page_and_what_it_says(whole, monkeypatch):
    study = read_study(whole.out)
    assert verdict(study).tone == "unclear"
    assert any("little can be told apart" in one.text for one in findings(study))
    bad = study.scorers[0].model_copy(update={"label": "<script>alert(1)</script>"})
    asked = study.model_copy(update={"scorers": (bad, study.scorers[1])})
    monkeypatch.setattr("habitus.report.policy.read_study", lambda folder: asked)
    page = write_policy(whole.out).read_text(encoding="utf-8")
    assert "Hacking watch" in page
    assert "baseline:random" in page
    assert "<script>alert" not in page
    assert "before training" in page


def test_words_on_failures_on_chance_and_on_one_or_several(whole):
    study = read_study(whole.out)
    none, quality = study.scorers[0].reward_gain, study.scorers[0].reward
    failed = {
        "reward": quality.model_copy(update={"value": None, "n": 0}),
        "reward_gain": none.model_copy(update={"value": None, "p": None, "p_holm": None}),
    }
    clear = {"value": 0.2, "low": 0.1, "high": 0.3, "p": 0.001, "p_holm": 0.002, "n": 50}
    better = study.scorers[0].model_copy(
        update={"gain": study.scorers[0].gain.model_copy(update=clear), **failed}
    )
    changed = study.model_copy(update={"scorers": (better, study.scorers[1])})
    assert verdict(changed).text == "1 of 2 reward models makes answers better beyond the noise."
    said = [one.text for one in findings(changed)]
    assert any("it failed on all held-out prompts" in text for text in said)
    assert not any("no data" in text for text in said)
    assert not any("cannot be told from before" in text for text in said)  # chance cannot rise
    level = none.model_copy(update={"value": 0.0, "low": -0.1, "high": 0.1, "p": 1.0})
    still = study.scorers[0].model_copy(update={"reward_gain": level})
    said = findings(study.model_copy(update={"scorers": (still, study.scorers[1])}))
    (found,) = (one.text for one in said if "cannot be told from before" in one.text)
    assert "baseline:longest; more" in found


def test_correlate_takes_the_quality_after_training(whole):
    (found,) = read_outcomes([whole.out])
    assert (found.task, found.policy) == ("blend-short after training", "policy")
    assert [one.names[0] for one in found.models] == ["baseline:longest", "baseline:random"]
    lines = read_jsonl(whole.out / "qualities.jsonl")
    assert found.picks["quality"].to_list() == [line["quality"] for line in lines]
    groups = {one["id"]: one["group"] for one in read_jsonl(whole.out / "prompts.jsonl")}
    assert found.picks["cluster"].to_list() == [groups[line["prompt"]] for line in lines]


# Bad input


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--scorer", "baseline:longset"], "longset"),
        (["--scorer", "clasifier:x"], "clasifier"),
        (["--scorer", "baseline:longest", "--scorer", "baseline:longest"], "given twice"),
        (["--task", "blend"], "blend-short"),
        (["--country", "Atlantis"], "Atlantis"),
        (["--data", "nowhere"], "no such file or folder: nowhere"),
        (["--policy", "./nowhere"], "no such model folder"),
        (["--prompts-per-step", "50"], "too few"),
        (["--held-out", "0.001"], "held-out prompts"),
        (["--context", "40"], "fit into the context"),
        (["--precision", "fp8"], "fp8"),
        (["--steps", "0"], "--steps"),
        (["--seed", "-1"], "--seed"),
        (["--held-out-limit", "1", "--country", "Spain"], "a higher --held-out-limit"),
    ],
)
def test_bad_input_is_one_line(model, data, tmp_path, capsys, words, part):
    arguments = ["downstream", "policy", "--task", "blend-short", "--data", str(data)]
    arguments += ["--policy", str(model), "--out", str(tmp_path / "out"), "--device", "cpu"]
    arguments += ["--max-new-tokens", "4", "--n", "2", "--steps", "1", "--threads", "1"]
    arguments += [] if "--scorer" in words else ["--scorer", "baseline:longest"]
    arguments += ["--prompts-per-step", "2", "--held-out", "0.4", "--language", "en", *words]
    assert cli(arguments) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if part in line]
    assert len(said) == 1


def test_a_judged_task_and_several_processes_are_refused(model, data, tmp_path, monkeypatch):
    plan = small_plan(model, write_omgeval(tmp_path), tmp_path / "out")
    with pytest.raises(InputError, match="graded by a judge"):
        train_policies(replace(plan, task="omgeval", language="own"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process"):
        train_policies(plan)


def test_a_listwise_judge_has_26_letters(model, data, tmp_path, monkeypatch):
    judge = Level()
    judge.spec = ScorerSpec(kind="judge", model="m", parameters={"mode": "listwise"})
    monkeypatch.setattr("habitus.train.policy.run.resolve", lambda name, options: judge)
    plan = small_plan(model, data, tmp_path / "out", scorers=(ScorerChoice("judge:m"),))
    with pytest.raises(InputError, match="26 letters for --n 14 answers before training"):
        train_policies(replace(plan, n=14, held_out_limit=1))


def test_the_commands_options_reach_the_plan(tmp_path):
    words = ["--task", "blend-short", "--data", str(tmp_path), "--policy", "m", "--out", "o"]
    words += ["--scorer", "baseline:longest", "--no-graphs", "--lr", "1e-4"]
    with policy_command.make_context("policy", words) as context:
        plan = _plan(context.params)
    assert (plan.load.graphs, plan.grpo.lr, plan.load.lora) == (False, 1e-4, 16)
