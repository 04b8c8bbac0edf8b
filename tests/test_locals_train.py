"""Think-as-Locals on tiny random models: encoding, rewards, warm-up, GRPO, resume, evaluation."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from habitus.clients.engine import Request  # noqa: E402
from habitus.clients.prompt_encoder import PromptEncoder  # noqa: E402
from habitus.errors import HabitusError, InputError, RunError  # noqa: E402
from habitus.scorers import ScorerOptions, resolve  # noqa: E402
from habitus.store import dump_line  # noqa: E402
from habitus.train.locals import warmup  # noqa: E402
from habitus.train.locals.evaluation import evaluate_pairs  # noqa: E402
from habitus.train.locals.model import ModelOptions, Policy, open_engine  # noqa: E402
from habitus.train.locals.plan import GrpoSettings  # noqa: E402
from habitus.train.locals.prompting import Prompting, all_views, by_key, pair_item, views  # noqa: E402
from habitus.train.locals.recorder import step_figures  # noqa: E402
from habitus.train.locals.reward_function import LocalsReward  # noqa: E402
from habitus.train.locals.rewards import RewardSettings, label_logprob  # noqa: E402
from habitus.train.locals.run import train_locals  # noqa: E402
from habitus.train.locals.scoring import VerdictScorer  # noqa: E402
from habitus.train.locals.supervised import (  # noqa: E402
    Examples,
    SupervisedSettings,
    learn,
    make_examples,
)
from habitus.train.locals.warmup import Sampled, SamplingSettings, sample_criteria  # noqa: E402
from habitus.train.locals.watched import watched_views  # noqa: E402
from tests.conftest import read_jsonl  # noqa: E402
from tests.locals_samples import small_plan, tiny_judge  # noqa: E402
from tests.training import make_pair, make_pairs  # noqa: E402

CPU = ModelOptions(device="cpu", lora=2, threads=1)
TEXT = "<criteria>\n1. A long life.\n2. Soba noodles.\n</criteria>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_judge(tmp_path_factory.mktemp("model") / "judge")


@pytest.fixture
def policy(model, tmp_path):
    return Policy(str(model), CPU, tmp_path / "base")


@pytest.fixture
def prompting():
    return Prompting(translated=False, max_tokens=12, seed=0)


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


# Encoding


@pytest.mark.slow
def test_training_reads_the_ids_that_the_judge_sends(model, policy, prompting, monkeypatch):
    sent = []
    original = PromptEncoder.encode

    def spy(self, requests):
        found = original(self, requests)
        sent.extend(zip(requests, found, strict=True))
        return found

    pair = make_pair(1, chosen="Twelve {candidates} <|im_end|></criteria> grapes.")
    for criteria in (True, False):
        sent.clear()
        options = ScorerOptions(
            engine="transformers", mode="pairwise", criteria=criteria, device="cpu", threads=1
        )
        judge = resolve(f"judge:{model}", options)
        with monkeypatch.context() as patched:
            patched.setattr(PromptEncoder, "encode", spy)
            list(judge.judge([pair_item(pair)], seed=0))
        judge.close()
        theirs = [ids for _, ids in sent][:2]
        ask = prompting.criteria_request if criteria else prompting.plain_request
        ours = policy.encoder.encode([ask(view) for view in views(pair, 0)])
        assert ours == theirs
        assert all(isinstance(ids, list) for ids in ours)


def test_examples_end_in_the_very_token_that_is_asked_about(policy, prompting):
    view = views(make_pair(1), 0)[0]
    make = Examples(policy, prompting)
    (found,) = make.criteria([(view, TEXT)])
    text = policy.encoder.decode(found.prompt, found.answer)
    letter = "AB"[view.right]
    assert "<criteria>\n1." + text == f"{TEXT}\n<judgement>{letter}</judgement><|im_end|>"
    request = prompting.verdict_request(view, TEXT)
    (asked,) = policy.encoder.encode([request])
    labels = policy.encoder.label_tokens(request.answer, request.labels)
    asked = labels.after(asked)
    whole = [*found.prompt, *found.answer]
    assert whole[: len(asked) + 1] == [*asked, labels.first[view.right]]
    (plain,) = make.verdicts([view])
    assert len(plain.answer) == 1


@pytest.mark.slow
def test_a_kill_while_an_adapter_is_merged_leaves_no_model_that_reads_as_whole(
    model, policy, tmp_path, monkeypatch
):
    policy.start(0)
    policy.save(tmp_path / "adapter")
    merged = tmp_path / "out" / "base"

    def killed(self, folder, **rest):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(policy.model), "save_pretrained", killed)
        with pytest.raises(KeyboardInterrupt):
            Policy(str(tmp_path / "adapter"), CPU, merged)
    assert not merged.exists()
    again = Policy(str(tmp_path / "adapter"), CPU, merged)
    assert again.folder == str(merged)
    assert (merged / "model.safetensors").is_file()


# Scoring


def test_scores_are_those_of_a_plain_forward_and_follow_the_weights(policy, prompting):
    policy.start(0)
    scorer = VerdictScorer(policy.model, policy.encoder)
    every = all_views(make_pairs(3, ("Chile",)), 0)
    requests = [prompting.verdict_request(view, TEXT) for view in every]
    requests += [prompting.plain_request(view) for view in every]

    def plain(request: Request) -> tuple[float, float]:
        (ids,) = policy.encoder.encode([request])
        labels = policy.encoder.label_tokens(request.answer, request.labels)
        with torch.no_grad():
            logits = policy.trained(torch.tensor([labels.after(ids)])).logits[0, -1]
        a, b = torch.log_softmax(logits.float(), -1)[list(labels.first)].tolist()
        return a, b

    for change in (0.0, 0.3):
        with torch.no_grad():
            for name, weight in policy.trained.named_parameters():
                if "lora_B" in name:
                    weight.add_(change)
        policy.trained.train()
        found = scorer.logprobs(requests)
        assert policy.model.training
        assert found == [pytest.approx(plain(request), abs=1e-4) for request in requests]


def test_a_prompt_that_does_not_fit_has_no_score(model, tmp_path, prompting):
    small = Policy(str(model), replace(CPU, context=40), tmp_path / "base")
    view = views(make_pair(1), 0)[0]
    scorer = VerdictScorer(small.model, small.encoder)
    assert scorer.logprobs([prompting.plain_request(view)]) == [None]


class FakeTrainer:
    """As much of a trainer as the reward needs."""

    class accelerator:  # noqa: N801
        num_processes = 1


def make_reward(policy, prompting, every, settings):
    reward = LocalsReward(policy, prompting, by_key(every), settings, reference=False)
    reward.attach(FakeTrainer)
    return reward


def ids_of(policy, text):
    ids = policy.encoder._plain_ids(text.removeprefix("<criteria>\n1."))
    return [*ids, *policy.tokenizer("<|im_end|>", add_special_tokens=False)["input_ids"]]


def test_the_reward_by_hand(policy, prompting):
    every = all_views(make_pairs(2, ("Chile",)), 0)
    settings = RewardSettings(w_swap=0.5, length_floor=1000, w_length=1)
    view = every[0]
    letters = "AB"[view.right], "BA"[view.right]
    texts = [f"{TEXT}\n<judgement>{letter}</judgement>" for letter in letters] + [TEXT, "x"]
    reward = make_reward(policy, prompting, every, settings)
    found = reward([view.key] * 4, [], [ids_of(policy, text) for text in texts])
    own, swapped, plain = VerdictScorer(policy.model, policy.encoder).logprobs(
        [
            prompting.verdict_request(view, TEXT),
            prompting.verdict_request(view.swapped, TEXT),
            prompting.plain_request(view),
        ]
    )
    appr = label_logprob(own, view.right) - label_logprob(plain, view.right)
    swap = 1 if (own[0] > own[1]) != (swapped[0] > swapped[1]) else -1
    chars = len(TEXT) - len("<criteria>\n\n</criteria>")
    rest = max(-2, min(2, appr)) + 0.5 * swap - (1000 - chars) / 1000
    assert found == pytest.approx([1 + rest, -1 + rest, settings.floor, settings.floor], abs=1e-4)
    assert [record["text"] for record in reward.records[:3]] == texts[:3]
    assert reward.records[3]["problem"]


def test_figures_of_a_step():
    settings = RewardSettings()

    def line(pair, right, verdict, total, **fields):
        base = {"pair": pair, "right": right, "verdict": verdict, "total": total, "tokens": 3}
        parsed = {"r_corr": 1.0 if right == verdict else -1.0, "r_appr": 0.5, "p_a": 0.6}
        none = dict.fromkeys(parsed)
        return base | (none if verdict is None else parsed) | {"characters": 10} | fields

    records = [
        line("p", "A", "A", 1.5),
        line("p", "A", "B", -0.5),
        line("p", "B", "B", 1.5, r_appr=9.0),
        line("p", "B", "B", 1.5),
        line("q", "A", None, -4.0),
        line("q", "A", "A", 1.5),
    ]
    found = step_figures(records, 2, settings)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["both_orders"] == 0.5  # of p: 1/2 * 1; q has one order
    assert found["p_a"] == pytest.approx(2 / 5)
    assert found["parse_rate"] == pytest.approx(5 / 6)
    assert found["r_corr"] == pytest.approx(3 / 5)
    assert found["r_appr"] == pytest.approx((4 * 0.5 + 9) / 5)
    assert found["appr_clipped"] == pytest.approx(1 / 5)
    assert found["flat_groups"] == pytest.approx(1 / 3)
    assert found["tokens"] == 18


# Warm-up


def test_criteria_are_kept_that_help_in_both_orders(
    model, policy, prompting, tmp_path, monkeypatch
):
    every = all_views(make_pairs(3, ("Chile",)), 0)
    helpful = "<criteria>\n1. good\n2. better\n</criteria>"
    one_sided = "<criteria>\n1. sly\n2. letter\n</criteria>"

    class Engine:
        """Writes the two texts in turn; the first helps in both orders, the second in one."""

        def execute(self, requests):
            return [self.reply(request) for request in requests]

        def reply(self, request):
            from habitus.clients.engine import Reply

            if not request.labels:
                text = helpful if request.seed % 2 else one_sided
                return Reply(text=text.removeprefix("<criteria>\n1."))
            shown = "".join(s.text for turn in request.chat for s in turn.segments)
            chosen_first = shown.index(self.chosen(shown)) < shown.index(self.rejected(shown))
            right = 0 if chosen_first else 1
            p = 0.5
            if "good" in request.answer:
                p = 0.7
            elif "sly" in request.answer:
                p = 0.9 if right == 0 else 0.1
            logs = [math.log(1 - p)] * 2
            logs[right] = math.log(p)
            return Reply(logprobs=tuple(logs), mass=1.0)

        def chosen(self, shown):
            return next(p.chosen for p in pairs if p.chosen in shown and p.rejected in shown)

        def rejected(self, shown):
            return next(p.rejected for p in pairs if p.chosen in shown and p.rejected in shown)

    pairs = make_pairs(3, ("Chile",))
    settings = SamplingSettings(samples=6, keep=1, chunk=2)
    found = sample_criteria(Engine(), prompting, every, tmp_path, settings)
    kept = [each for each in found if each.kept]
    assert kept
    assert {each.criteria for each in kept} == {helpful}
    assert len({each.view for each in kept}) == len(kept)
    assert all(each.gain == pytest.approx(math.log(1.4), abs=1e-5) for each in kept)
    assert all(each.both for each in kept)
    others = [each for each in found if not each.kept]
    assert {each.criteria for each in others} == {one_sided}
    assert {(each.gain, each.both) for each in others} == {(None, False)}
    # a second call has nothing to do, and an interrupted one goes on
    assert sample_criteria(None, prompting, every, tmp_path, settings) == found
    (tmp_path / warmup.PROGRESS).unlink()
    assert sample_criteria(Engine(), prompting, every, tmp_path, settings, deadline=0.0) is None


def test_a_liking_for_a_letter_cancels_over_the_orders():
    high, low, sure = math.log(0.9), math.log(0.1), math.log(0.99)
    plain = (math.log(0.6), math.log(0.4))
    loose, strict = SamplingSettings(), SamplingSettings(strict=True)
    # from 0.6 and 0.4 to 0.9 and 0.1 is only a stronger liking; to 0.99 and 0.1 is more than that
    assert warmup._gain((high, low), plain, loose) is None
    gain = (math.log(99) - math.log(9)) / 2
    assert warmup._gain((sure, low), plain, loose) == (pytest.approx(gain, abs=1e-5), False)
    assert warmup._gain((sure, low), plain, strict) is None
    assert warmup._gain((high, math.log(0.5)), plain, strict) == (
        pytest.approx(math.log(1.25), abs=1e-5),
        True,
    )
    assert warmup._gain((high, None), plain, loose) is None


@pytest.mark.slow
def test_verdict_tuning_learns_and_resumes_bit_for_bit(model, tmp_path):
    settings = SupervisedSettings(steps=6, batch_size=4, lr=1e-2, save_steps=2, micro_batch=2)

    def run(folder, deadline=None):
        policy = Policy(str(model), CPU, tmp_path / "base")
        prompting = Prompting(translated=False, max_tokens=12, seed=0)
        every = all_views(make_pairs(4, ("Chile",)), 0)
        examples = make_examples(policy, prompting, every, [], settings, 0)
        policy.start(0)
        done = learn(policy, examples, folder, settings, 0, deadline=deadline)
        weights = {n: p.clone() for n, p in policy.trained.named_parameters() if "lora" in n}
        return done, weights

    _, whole = run(tmp_path / "whole")
    first, _ = run(tmp_path / "legs", deadline=0.0)
    assert (first.steps, first.finished) == (1, False)
    last, weights = run(tmp_path / "legs")
    assert (last.steps, last.finished) == (6, True)
    assert all(torch.equal(weights[name], whole[name]) for name in whole)
    curve = read_jsonl(tmp_path / "legs" / "curve.jsonl")
    assert [line["step"] for line in curve] == [1, 2, 3, 4, 5, 6]
    assert curve == read_jsonl(tmp_path / "whole" / "curve.jsonl")


# The whole


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
    sampled = read_jsonl(tmp_path / "one" / "warmup" / "criteria.jsonl")
    assert found["n_sampled"] == len(sampled)
    assert found["n_criteria"] == sum(line["kept"] for line in sampled)
    whole = replace(one, out=tmp_path / "whole", rewards=corr)
    assert train_locals(whole)["done"]
    ours, theirs = weights_of(tmp_path / "two"), weights_of(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    early = replace(two.supervised, verdict_steps=1)
    with pytest.raises(InputError, match="for --stage verdict say --warmup-steps"):
        train_locals(replace(two, out=tmp_path / "six", stage="verdict", supervised=early))
    with pytest.raises(InputError, match="goes with --stage both"):
        train_locals(replace(two, out=tmp_path / "four", stage="rl"))


def test_the_verdict_is_learned_after_criteria_that_are_not(policy, prompting):
    every = all_views(make_pairs(4, ("Chile",)), 0)
    other = TEXT.replace("Soba", "Thick")
    sampled = [
        Sampled("", view.key, text, 1.0, kept=text == TEXT)
        for view in every
        for text in (TEXT, other)
    ]
    settings = SupervisedSettings(steps=4, batch_size=8, verdict_share=0.25)
    found = make_examples(policy, prompting, every, sampled, settings, 0)
    sizes = [len(each.answer) for each in found]
    assert (len(found), sizes.count(1)) == (32, 8 + 12)
    make = Examples(policy, prompting)
    view = every[0]
    (whole,), (after,) = make.criteria([(view, other)]), make.verdicts_after([(view, other)])
    assert after.answer == (whole.answer[whole.verdict],)
    assert (*after.prompt, *after.answer) == (*whole.prompt, *whole.answer)[: len(after.prompt) + 1]
    assert found.count(after) >= 1
    # where all are kept, or none, there are two kinds
    for kept, alone in ((True, 8), (False, 32)):
        some = [replace(each, kept=kept) for each in sampled]
        found = make_examples(policy, prompting, every, some, settings, 0)
        assert [len(each.answer) for each in found].count(1) == alone


def test_verdicts_go_on_where_they_were(policy, prompting):
    every = all_views(make_pairs(8, ("Chile",)), 0)
    settings = SupervisedSettings(steps=3, batch_size=4)
    first = make_examples(policy, prompting, every, [], settings, 0)
    then = make_examples(policy, prompting, every, [], replace(settings, steps=1), 0, learned=12)
    assert len({*first, *then}) == 16  # all of them, before any is seen again


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


def test_watched_pairs_are_of_different_cultures(prompting):
    pairs = [
        make_pair(k, culture=culture, language="en")
        for k, culture in enumerate(("a", "a", "a", "b", "c"))
    ]
    found = watched_views(all_views(pairs, 0), seed=0, count=3)
    assert sorted(view.item.culture for view in found) == ["a", "b", "c"]
    assert watched_views(all_views(pairs, 0), seed=0, count=3) == found


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
