"""Think-as-Locals without a model: rewards, the written form, collapse, schedule, figures."""

import math
import random

import pytest

from habitus.cli.train_locals import _plan, train_locals
from habitus.errors import InputError
from habitus.train.curve import append_lines, keep_steps
from habitus.train.locals.collapse import CollapseSettings, find_collapse
from habitus.train.locals.evaluation import figures, held_out_pairs
from habitus.train.locals.plan import GrpoSettings, schedule
from habitus.train.locals.prompting import Prompting, all_views, by_key, views
from habitus.train.locals.rewards import (
    RewardSettings,
    appropriateness,
    clip,
    correctness,
    group_statistics,
    label_logprob,
    length_penalty,
    swap_consistency,
    total,
)
from habitus.train.locals.supervised import Example, SupervisedSettings, _drawn
from habitus.train.locals.written import mended, read_written
from tests.training import make_pair, make_pairs

TWO = "<criteria>\n1. Noodles mean a long life.\n2. Elders eat first.\n</criteria>"


# Rewards


def test_correctness_is_plus_or_minus_one():
    assert (correctness(0, 0), correctness(1, 1)) == (1.0, 1.0)
    assert (correctness(0, 1), correctness(1, 0)) == (-1.0, -1.0)


def test_a_label_is_normalised_over_the_two_letters_or_not():
    logprobs = (math.log(0.3), math.log(0.1))
    assert label_logprob(logprobs, 0) == pytest.approx(math.log(0.75))
    assert label_logprob(logprobs, 1) == pytest.approx(math.log(0.25))
    assert label_logprob(logprobs, 1, "all") == pytest.approx(math.log(0.1))
    assert label_logprob((-1000.0, -1001.0), 0) == pytest.approx(-math.log1p(math.exp(-1)))


def test_appropriateness_is_the_rise_of_the_log_probability():
    assert appropriateness(math.log(0.8), math.log(0.4)) == pytest.approx(math.log(2))


def test_clipping():
    assert [clip(value, -2, 2) for value in (-3, -2, 0.5, 9)] == [-2, -2, 0.5, 2]


def test_swap_consistency_is_one_response_in_both_orders():
    first_of_both = ((-0.1, -2.0), (-0.2, -1.0))  # A and A: two different responses
    assert swap_consistency(*first_of_both) == -1.0
    assert swap_consistency((-0.1, -2.0), (-1.0, -0.2)) == 1.0  # A and B: the same response


def test_short_criteria_are_penalised_up_to_one():
    assert length_penalty(0, 40) == -1.0
    assert length_penalty(30, 40) == -0.25
    assert length_penalty(40, 40) == length_penalty(99, 40) == length_penalty(0, 0) == 0.0


def test_total_weighs_and_clips():
    settings = RewardSettings(w_corr=2, w_appr=0.5, w_swap=1, w_length=4, length_floor=10)
    found = total(settings, corr=-1, appr=5, swap=1, length=-0.5)
    assert found == -2 + 0.5 * 2 + 1 - 2


@pytest.mark.parametrize(
    "settings",
    [
        RewardSettings(),
        RewardSettings(w_corr=0),
        RewardSettings(w_appr=0),
        RewardSettings(w_corr=3, w_appr=2, w_swap=1, w_length=2, length_floor=9, appr_low=-5),
        RewardSettings(appr_low=1, appr_high=2),
    ],
)
def test_the_floor_is_below_every_valid_reward(settings):
    settings.check()
    worst = total(settings, corr=-1, appr=-math.inf, swap=-1, length=-1)
    assert settings.floor < worst
    assert math.isfinite(settings.floor)


def test_the_default_floor():
    assert RewardSettings().floor == -1 - 2 - 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"w_corr": -1}, "--w-corr -1"),
        ({"w_corr": 0, "w_appr": 0}, "nothing to learn"),
        ({"appr_low": 2, "appr_high": 2}, "--appr-clip"),
        ({"length_floor": 5}, "--length-floor"),
        ({"w_length": 1}, "--length-floor"),
        ({"w_appr": math.nan}, "--w-appr nan"),
    ],
)
def test_senseless_rewards_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        RewardSettings(**fields).check()


def test_group_statistics():
    first, second = group_statistics([1.0, 3.0, 0.1, 0.1], 2)
    assert first.mean == 2.0
    assert first.std == pytest.approx(math.sqrt(2))
    assert first.advantages == pytest.approx((-0.70706, 0.70706), abs=1e-5)
    assert second.flat
    assert second.advantages == (0.0, 0.0)


def test_a_constant_baseline_changes_no_advantage():
    plain = group_statistics([0.2, 0.7, 1.0], 3)[0].advantages
    shifted = group_statistics([2.2, 2.7, 3.0], 3)[0].advantages
    assert plain == pytest.approx(shifted)


def surer_text(sureness, low, *, scaled):
    """Advantage of a text that makes a judge a tenth surer, whose belief is right in 3 of 4 prompts.

    It is `sureness` times as sure as that warrants already; the other text of its group leaves it so.
    """
    settings, belief = RewardSettings(w_corr=0.0, appr_low=low), math.log(3)
    gains = []
    for odds in (belief, -belief):  # of the right letter
        rewards = []
        for factor in (sureness, 1.1 * sureness):
            after = label_logprob((odds * factor, 0.0), 0)
            gain = appropriateness(after, label_logprob((odds, 0.0), 0))
            rewards.append(total(settings, corr=1.0, appr=gain))
        [found] = group_statistics(rewards, 2)
        gains.append(found.advantages[1] if scaled else rewards[1] - found.mean)
    return 0.75 * gains[0] + 0.25 * gains[1]


def test_only_advantages_that_keep_their_size_end_a_judges_growing_surer():
    """R_appr is a proper score; divided by a group's spread all that is left of it is its sign."""
    for sureness in (0.5, 1.0, 2.0, 4.0):
        assert surer_text(sureness, -5.0, scaled=True) > 0.3
    assert surer_text(0.5, -5.0, scaled=False) > 0
    assert all(surer_text(each, -5.0, scaled=False) < 0 for each in (1.0, 2.0, 4.0))
    assert surer_text(4.0, -2.0, scaled=False) > 0  # the clip leaves nothing to lose


def test_rewards_must_fill_groups():
    with pytest.raises(ValueError, match="3 rewards do not fill groups of 2"):
        group_statistics([1.0, 2.0, 3.0], 2)


# The written form


@pytest.mark.parametrize(("letter", "place"), [("A", 0), ("B", 1)])
def test_a_text_with_the_form(letter, place):
    found = read_written(f"{TWO}\n<judgement>{letter}</judgement>")
    assert found.problem is None
    assert found.verdict == place
    assert found.criteria == ("Noodles mean a long life.", "Elders eat first.")
    assert found.characters == len("1. Noodles mean a long life.\n2. Elders eat first.")


def test_digits_of_other_scripts_and_wrapped_claims():
    text = (
        "<criteria>\n1. 長寿を願う。\n理由がある。\n２. 大切。\n</criteria><judgement>B</judgement>"
    )
    found = read_written(text)
    assert found.verdict == 1
    assert found.criteria == ("長寿を願う。 理由がある。", "大切。")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not begin"),
        ("Sure! " + TWO, "does not begin"),
        ("<criteria>\n1. Long life.\n2. Elders", "no </criteria>"),
        ("<criteria>\n1. Long life.\n</criteria>\n<judgement>A</judgement>", "1 criteria"),
        ("<criteria>\nLong life.\n</criteria>\n<judgement>A</judgement>", "not numbered"),
        ("<criteria>\n1. a\n3. b\n</criteria>\n<judgement>A</judgement>", "criterion 2"),
        ("<criteria>\n1. a\n2. ..\n</criteria>\n<judgement>A</judgement>", "says nothing"),
        ("<criteria>1. a\n2. b\n3. c\n4. d\n5. e\n6. f</criteria><judgement>A", "6 criteria"),
        (TWO + " B is better.", "no <judgement>"),
        (TWO + "\n<judgement>C</judgement>", "none of A, B"),
        (TWO + "\n<judgement></judgement>", "no verdict"),
        (TWO + "\n<judgement>A</judgement><judgement>B</judgement>", "several verdicts"),
    ],
)
def test_texts_without_the_form(text, problem):
    found = read_written(text)
    assert found.verdict is None
    assert found.problem is not None
    assert problem in found.problem


def test_criteria_are_mended():
    open_end = "<criteria>\n1. Long life.\n\n2) Elders eat first.\n3. It is"
    assert mended(open_end) == "<criteria>\n1. Long life.\n2. Elders eat first.\n</criteria>"
    assert mended(TWO) == TWO
    assert mended("<criteria>\n1. Long life.\n2. cut") is None
    assert mended("<criteria>\n1. Same.\n2. Same.\n</criteria>") is None


# Prompts


def test_both_orders_and_the_label_that_goes_with_them():
    pair = make_pair(1)
    one, two = views(pair, seed=0)
    assert one.shown == two.shown[::-1]
    assert {one.right, two.right} == {0, 1}
    assert one.swapped == two
    assert one.key != two.key


def test_sides_are_balanced_and_drawn_from_the_seed():
    pairs = make_pairs(60, ("Chile",))
    first = [views(pair, 0)[0].right for pair in pairs]
    assert first == [views(pair, 0)[0].right for pair in pairs]
    assert first != [views(pair, 1)[0].right for pair in pairs]
    assert 15 < sum(first) < 45


def text_of(request):
    return "".join(s.text for turn in request.chat for s in turn.segments) + request.answer


def test_what_is_asked():
    prompting = Prompting(translated=False, max_tokens=9, seed=0)
    view = views(make_pair(1), 0)[0]
    assert text_of(prompting.criteria_request(view)).endswith("<criteria>\n1.")
    after = prompting.verdict_request(view, TWO + " ignored")
    assert after is not None
    assert after.answer == TWO + "\n<judgement>"
    assert after.labels == ("A", "B")
    plain = prompting.plain_request(view)
    assert plain.answer == "Better answer:"
    assert plain.labels == (" A", " B")
    assert prompting.verdict_request(view, "<criteria>\n1. open") is None
    assert prompting.stand_in_request(view, "<criteria>\n1. open").labels == ("A", "B")
    assert prompting.stand_in_request(view, "nothing").labels == ("A", "B")


def test_instructions_in_the_pairs_language():
    prompting = Prompting(translated=True, max_tokens=9, seed=0)
    view = views(make_pair(1, language="de"), 0)[0]
    assert "Write 2 or 3" not in text_of(prompting.criteria_request(view))
    assert "Write 2 or 3" in text_of(
        Prompting(translated=False, max_tokens=9, seed=0).criteria_request(view)
    )


def test_placeholders_and_tags_of_a_response_stay_text():
    odd = "{candidates} </criteria> {letters}"
    request = Prompting(translated=False, max_tokens=9, seed=0).criteria_request(
        views(make_pair(1, chosen=odd), 0)[0]
    )
    segments = [s for turn in request.chat for s in turn.segments if s.text == odd]
    assert [s.trusted for s in segments] == [False]


def test_the_schedule_keeps_both_orders_together_and_sees_all_pairs():
    every = all_views(make_pairs(5, ("Chile",)), 0)
    names = schedule(every, 4, 5, seed=3)
    assert len(names) == 20
    known = by_key(every)
    ids = [known[name].item.id for name in names]
    assert ids[::2] == ids[1::2]
    assert set(ids[:10]) == {view.item.id for view in every}
    assert all(
        {known[a].right, known[b].right} == {0, 1}
        for a, b in zip(names[::2], names[1::2], strict=True)
    )
    assert names == schedule(every, 4, 5, seed=3)
    assert names != schedule(every, 4, 5, seed=4)


def test_pairs_that_the_warm_up_showed_less_often_come_first():
    every = all_views(make_pairs(6, ("Chile",)), 0)
    known = by_key(every)
    plain = [known[name].item.id for name in schedule(every, 4, 8, seed=3)]
    shown = {plain[0]: 2, plain[2]: 1, plain[4]: 1}
    ids = [known[name].item.id for name in schedule(every, 4, 8, seed=3, shown=shown)]
    assert ids[::2] == ids[1::2]
    # those of one count stay in their order, and so do later rounds
    assert ids[:12:2] == [*plain[6:12:2], plain[2], plain[4], plain[0]]
    assert ids[12:] == plain[12:]
    assert ids[:8] == [known[name].item.id for name in schedule(every, 4, 2, 3, shown)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompts_per_step": 3}, "must be even"),
        ({"group": 1}, "--group 1"),
        ({"policy": "reference", "beta": 0}, "--beta above 0"),
        ({"iterations": 3}, "--save-steps 20"),
        ({"vllm": "colocate"}, "vllm is not installed"),
    ],
)
def test_senseless_settings_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        GrpoSettings(**fields).check()


def test_only_what_is_drawn_is_made_and_what_does_not_fit_is_passed_over():
    asked = []

    def make(things):
        asked.extend(things)
        return [None if thing == "c" else Example((), (ord(thing),)) for thing in things]

    found = _drawn("abcdef", make, 3, random.Random(0))
    assert len(found) == len(set(found)) == 3
    assert 3 <= len(asked) <= 4
    asked.clear()
    found = _drawn("abcdef", make, 12, random.Random(0))
    assert sorted(asked) == list("abcdef")  # each once, whatever it is drawn
    assert {found.count(example) for example in found} <= {2, 3}
    later = _drawn("abdef", make, 10, random.Random(0))[4:]
    assert _drawn("abdef", make, 6, random.Random(0), skipped=4) == later
    with pytest.raises(InputError, match="nothing to learn from"):
        _drawn("ccc", make, 2, random.Random(0))


@pytest.mark.parametrize(("batch", "micro", "found"), [(16, None, 16), (16, 4, 4), (4, 16, 4)])
def test_the_forward_pass_of_the_warm_up(batch, micro, found):
    settings = SupervisedSettings(batch_size=batch, micro_batch=micro)
    settings.check()
    assert settings.micro == found


@pytest.mark.parametrize(("processes", "batch", "micro"), [(1, 16, 6), (2, 3, None), (4, 2, None)])
def test_a_batch_that_cannot_be_divided_is_refused(monkeypatch, processes, batch, micro):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    with pytest.raises(InputError, match=f"--warmup-batch {batch}"):
        SupervisedSettings(batch_size=batch, micro_batch=micro).check()


def test_the_forward_pass_divides_the_step():
    assert GrpoSettings(prompts_per_step=6, group=7).micro == 14
    assert GrpoSettings(prompts_per_step=4, group=4, micro_batch=5).micro == 4


# The curve


def test_lines_up_to_a_step_are_kept_whatever_a_kill_has_torn(tmp_path):
    path = tmp_path / "samples.jsonl"
    lines = [{"step": step, "text": "\u65b0\u2028\x85\u5e74"} for step in (1, 2, 3)]
    append_lines(path, lines)
    whole = path.read_bytes()
    path.write_bytes(whole + '{"step": 2, "text": "\u65b0'.encode()[:-1])
    assert keep_steps(path, 2, write=False) == lines[:2]
    assert path.stat().st_size > len(whole)
    assert keep_steps(path, 2, write=True) == lines[:2]
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    assert keep_steps(tmp_path / "none.jsonl", 2, write=True) == []


# Collapse

HEALTHY = {"p_a": 0.5, "criteria_chars": 100.0, "parse_rate": 0.9, "kl": 0.05, "r_appr": 0.1}


def curve(*last, healthy=8):
    lines = [HEALTHY] * healthy + [HEALTHY | each for each in last]
    return [{"step": number} | line for number, line in enumerate(lines, 1)]


@pytest.mark.parametrize(
    ("sign", "message"),
    [
        ({"p_a": 0.95}, "almost always A"),
        ({"p_a": 0.02}, "almost always B"),
        ({"criteria_chars": 49.0}, "--length-floor 100"),
        ({"parse_rate": 0.4}, "form was lost"),
        ({"kl": 1.5}, "Raise --beta"),
        ({"r_appr": -1.2}, "3.3 times less likely"),
    ],
)
def test_collapse_is_named_with_what_to_change(sign, message):
    found = find_collapse(curve(*[sign] * 5))
    assert found is not None
    assert message in found
    assert find_collapse(curve(*[sign] * 4)) is None
    assert find_collapse(curve(*[sign] * 4, {})) is None


def test_a_healthy_curve_and_one_without_figures():
    assert find_collapse(curve()) is None
    assert find_collapse([]) is None
    nothing = dict.fromkeys(HEALTHY, None)
    assert find_collapse(curve(*[nothing] * 5)) is None
    assert find_collapse(curve({"p_a": 1.0}), CollapseSettings(patience=1)) is not None


# Figures of held-out pairs


EVEN = math.log(0.5)


def record(first, second, **fields):
    looks = {"first": first, "second": second}
    return {
        "pair": "p",
        "group": "g",
        "source": "s",
        "language": None,
        "country": None,
        "culture": None,
        "criteria": looks,
        "plain": {"first": EVEN, "second": EVEN},
        "borrowed": {"first": None, "second": None},
    } | fields


def value(found, name, criteria="with", **group):
    (figure,) = [
        f for f in found if f["name"] == name and f["criteria"] == criteria and f["group"] == group
    ]
    return figure


def test_figures_by_hand():
    high, low = math.log(0.8), math.log(0.2)
    records = [
        record(high, high, group="1"),  # right in both orders
        record(high, low, group="2", source="t"),  # always A: a tie
        record(low, low, group="3", borrowed={"first": high, "second": high}),  # wrong in both
        record(None, None, group="4"),  # failed
    ]
    found = figures(records, resamples=50)
    assert value(found, "accuracy")["value"] == pytest.approx(1.5 / 3)
    assert value(found, "accuracy")["n_excluded"] == 1
    assert value(found, "accuracy", "borrowed")["value"] == 1.0
    assert value(found, "accuracy", "borrowed")["n_excluded"] == 3
    assert value(found, "accuracy", "without")["value"] == 0.5
    assert value(found, "both_orders")["value"] == pytest.approx(1 / 3)
    assert value(found, "p_a")["value"] == pytest.approx((0.5 + 1 + 0.5) / 3)
    rises = (math.log(1.6), (math.log(1.6) + math.log(0.4)) / 2, math.log(0.4))
    assert value(found, "r_appr")["value"] == pytest.approx(sum(rises) / 3)
    assert value(found, "p_a", source="t")["value"] == 1.0
    assert value(found, "r_appr", source="t")["ci_low"] is None


def test_figures_of_nothing():
    found = figures([])
    assert {figure["value"] for figure in found} == {None}
    assert {figure["n"] for figure in found} == {0}


def test_held_out_pairs():
    pairs = make_pairs(16, ("Chile",))
    assert {pair.split for pair in held_out_pairs(pairs)} == {"test"}
    loose = [make_pair(1, split=None)]
    assert held_out_pairs(loose) == loose
    with pytest.raises(InputError, match="part test"):
        held_out_pairs([make_pair(2)])


# The command


def parsed(*words):
    """What the command would train."""
    command = train_locals
    with command.make_context(
        "locals", ["--pairs", "p", "--model", "m", "--out", "o", *words]
    ) as context:
        return _plan(context.params)


def test_the_commands_defaults_are_the_papers():
    plan = parsed()
    assert plan.stage == "both"
    assert (plan.grpo.beta, plan.grpo.epsilon, plan.grpo.loss_type) == (0.04, 0.2, "grpo")
    assert (plan.rewards.w_corr, plan.rewards.w_appr) == (1.0, 1.0)
    assert (plan.rewards.appr_low, plan.rewards.appr_high) == (-2.0, 2.0)
    assert (plan.load.lora, plan.grpo.lr, plan.supervised.lr) == (16, 1e-5, 1e-4)


def test_the_commands_options_reach_the_plan():
    plan = parsed("--rewards", "appr", "--full", "--appr-clip", "-1,3", "--loss", "dapo")
    assert (plan.rewards.w_corr, plan.rewards.w_appr) == (0.0, 1.0)
    assert (plan.rewards.appr_low, plan.rewards.appr_high) == (-1.0, 3.0)
    assert (plan.load.lora, plan.grpo.lr, plan.grpo.loss_type) == (None, 1e-6, "dapo")


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--rewards", "corr,style"), "'style'"), (("--appr-clip", "2"), "not two numbers")],
)
def test_wrong_options_of_the_command(words, message):
    with pytest.raises(InputError, match=message):
        parsed(*words)
