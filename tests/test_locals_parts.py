"""Parts of Think-as-Locals on tiny random models: encoding, scores, rewards, examples of the warm-up."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from habitus.clients.engine import Request  # noqa: E402
from habitus.clients.prompt_encoder import PromptEncoder  # noqa: E402
from habitus.errors import RunError  # noqa: E402
from habitus.scorers import ScorerOptions, resolve  # noqa: E402
from habitus.train.locals import warmup  # noqa: E402
from habitus.train.locals.configuration import same_warm_up  # noqa: E402
from habitus.train.locals.model import Policy  # noqa: E402
from habitus.train.locals.prompting import Prompting, all_views, by_key, pair_item, views  # noqa: E402
from habitus.train.locals.recorder import step_figures  # noqa: E402
from habitus.train.locals.reward_function import LocalsReward  # noqa: E402
from habitus.train.locals.rewards import RewardSettings, label_logprob  # noqa: E402
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
from tests.locals_samples import CPU, TEXT, tiny_judge  # noqa: E402
from tests.training import make_pair, make_pairs  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_judge(tmp_path_factory.mktemp("model") / "judge")


@pytest.fixture
def policy(model, tmp_path):
    return Policy(str(model), CPU, tmp_path / "base")


@pytest.fixture
def prompting():
    return Prompting(translated=False, max_tokens=12, seed=0)


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
    # what a step's passes are of: single letters first, and the shorter before the longer
    kinds = [(len(each.answer) > 1, len(each.prompt) + len(each.answer)) for each in found]
    steps = [kinds[first : first + 8] for first in range(0, 32, 8)]
    assert all(step == sorted(step) for step in steps)
    assert kinds != sorted(kinds)  # each step has its share of every kind
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


def test_watched_pairs_are_of_different_cultures(prompting):
    pairs = [
        make_pair(k, culture=culture, language="en")
        for k, culture in enumerate(("a", "a", "a", "b", "c"))
    ]
    found = watched_views(all_views(pairs, 0), seed=0, count=3)
    assert sorted(view.item.culture for view in found) == ["a", "b", "c"]
    assert watched_views(all_views(pairs, 0), seed=0, count=3) == found


@pytest.mark.parametrize("content", ["", "[1]", '{"a":', '{"warmed_up": true}', None])
def test_what_is_no_run_lends_no_warm_up(content, tmp_path):
    (tmp_path / "warmup" / "model").mkdir(parents=True)
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError, match="no run of --stage both whose warm-up is done"):
        same_warm_up(tmp_path, {})
