"""`habitus downstream bestofn`: a folder that grows, resumes to the same bytes, and is read back."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from habitus.cli.main import run as cli
from habitus.cli.options import parse_model
from habitus.clients.engine import Reply
from habitus.downstream.model import ANSWERS, PAGE, PICKS, SCORES, Sampling
from habitus.downstream.pick import win_rates
from habitus.downstream.plan import BestOfNPlan, ScorerChoice
from habitus.downstream.result import read_result
from habitus.downstream.run import best_of_n
from habitus.errors import HabitusError, InputError, RunError
from habitus.report.downstream import write_downstream
from habitus.scorers import KINDS, ScorerOptions, resolve
from habitus.types import Status
from tests.conftest import read_jsonl
from tests.downstream_samples import LikesTea, Policy, answer, places, write_blend
from tests.judge_fakes import text
from tests.test_downstream_tasks import write_include, write_omgeval


class World:
    """Policies and reward models by name, and what was loaded."""

    def __init__(self):
        self.policy = Policy()
        self.models = {"test:tea": LikesTea()}
        self.started = Counter()

    def start(self, engine, model, options):
        self.started["policy"] += 1
        return self.policy

    def resolve(self, name, options=None):
        self.started[name] += 1
        return self.models[name] if name in self.models else resolve(name, options)


@pytest.fixture
def world(monkeypatch):
    found = World()
    monkeypatch.setitem(KINDS._builtin, "test", "nowhere:create")
    monkeypatch.setattr("habitus.scorers.engines.start", found.start)
    monkeypatch.setattr("habitus.downstream.run.resolve", found.resolve)
    return found


@pytest.fixture
def plan(tmp_path):
    return BestOfNPlan(
        task="blend-short",
        data=write_blend(tmp_path / "blend"),
        policy="a-policy",
        scorers=tuple(map(ScorerChoice, ("test:tea", "baseline:longest"))),
        out=tmp_path / "out",
        n=4,
        language="en",
        sampling=Sampling(max_new_tokens=8),
    )


def generations(folder):
    (file,) = (folder / "generations").glob("*.jsonl")
    return file


def test_a_run(plan, world):
    result = best_of_n(plan)
    assert (result.task, result.n, result.seed, result.prompts) == ("blend-short", 4, 0, 6)
    assert (result.policy.name, result.policy.engine) == ("fake", "embedded")
    assert result.countries == ("China", "Spain")
    assert result.answers["ok"] == 24
    assert result.tokens == 24 * 13
    assert read_result(plan.out) == result
    answers = read_jsonl(plan.out / ANSWERS)
    assert [line["index"] for line in answers] == [0, 1, 2, 3] * 6
    for line in answers:
        right = (
            "tea" in line["text"].lower()
            if line["country"] == "China"
            else "coffee" in line["text"]
        )
        assert line["grade"] == right
    tea, longest = result.scorers
    assert (tea.name, tea.kind, tea.tokens) == ("test:tea", "test", sum_tokens(world))
    by_prompt = {}
    for line in answers:
        by_prompt.setdefault(line["prompt"], []).append(line)
    picks = [one for one in read_jsonl(plan.out / PICKS) if one["scorer"] == longest.digest]
    for one in picks:
        lengths = [len(line["text"]) for line in by_prompt[one["prompt"]]]
        assert lengths[one["picked"]] == max(lengths)
        top = [a["grade"] for a in by_prompt[one["prompt"]] if len(a["text"]) == max(lengths)]
        assert one["quality"] == sum(top) / len(top)
        assert one["tied"] == len(top)
        assert one["n_candidates"] == 4
    assert longest.quality.value == pytest.approx(sum(one["quality"] for one in picks) / 6)
    reference = next(one for one in result.references if one.name == "longest")
    assert reference.quality == longest.quality


def sum_tokens(world):
    return 5 * len(world.models["test:tea"].seen)


def test_equal_answers_are_judged_once_and_all_equal_ones_not_at_all(plan, world):
    world.policy = Policy(lambda request: text("tea" if "Spain" in str(request.chat) else "cha"))
    world.models["test:tea"] = judge = LikesTea()
    result = best_of_n(plan)
    assert judge.seen == []
    assert {line["status"] for line in read_jsonl(plan.out / SCORES)} == {"same", "tie"}
    tea, longest = result.scorers
    assert (tea.tied, longest.tied) == (6, 6)
    world.policy = Policy()
    best_of_n(replace(plan, out=plan.out.with_name("other")))
    assert all(
        len({c.text for c in item.candidates}) == len(item.candidates) for item in judge.seen
    )
    assert {item.country for item in judge.seen} <= {"China", "Spain"}


def test_a_random_pick_is_of_answers_not_of_texts(plan, world):
    world.policy = Policy(lambda request: text("tea" if request.seed % 8 else "water"))
    best_of_n(replace(plan, scorers=(ScorerChoice("baseline:random"),)))
    scores = [line["scores"] for line in read_jsonl(plan.out / SCORES)]
    assert all(len(set(one)) in (1, 4) for one in scores)  # 1: all answers are one text


def test_another_reward_model_costs_only_its_own_scores(plan, world):
    best_of_n(plan)
    before = generations(plan.out).read_bytes()
    world.models["test:other"] = other = LikesTea("other")
    more = replace(plan, scorers=(ScorerChoice("test:other"),), resume=True)
    result = best_of_n(more)
    assert [one.name for one in result.scorers] == ["test:tea", "baseline:longest", "test:other"]
    assert other.seen
    assert world.started == {"policy": 1, "test:tea": 1, "baseline:longest": 1, "test:other": 1}
    assert generations(plan.out).read_bytes() == before
    again = best_of_n(more)
    assert again == result
    assert world.started["test:other"] == 1


def test_shared_generations_serve_other_seeds_of_prompts_and_a_larger_n(plan, world, tmp_path):
    shared = replace(plan, generations=tmp_path / "cache")
    best_of_n(shared)
    (file,) = (tmp_path / "cache").glob("*.jsonl")
    first = {(line["prompt"], line["index"]): line["text"] for line in read_jsonl(file)}
    asked = len(world.policy.asked)
    best_of_n(replace(shared, out=tmp_path / "second", limit=1))
    assert len(world.policy.asked) == asked
    best_of_n(replace(shared, out=tmp_path / "third", n=6))
    assert len(world.policy.asked) == asked + 2 * 6
    later = {(line["prompt"], line["index"]): line["text"] for line in read_jsonl(file)}
    assert later.items() >= first.items()
    assert {request.top_p for request in world.policy.asked} == {0.95}
    assert len({request.seed for request in world.policy.asked}) == len(world.policy.asked)


def test_a_killed_run_goes_on_to_the_same_bytes(plan, world, tmp_path):
    whole = tmp_path / "whole"
    best_of_n(replace(plan, out=whole))
    world.policy = Policy(stop_at=9)  # the third prompt's answers are never written
    with pytest.raises(KeyboardInterrupt):
        best_of_n(plan)
    file = generations(plan.out)
    assert len(read_jsonl(file)) == 8
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:7]) + lines[7][:20])  # torn within the second chunk
    with pytest.raises(RunError, match="add --resume"):
        best_of_n(plan)
    world.policy = Policy()
    best_of_n(replace(plan, resume=True))
    assert len(world.policy.asked) == 20  # all but the first prompt's
    for path in places(whole):
        name = path.relative_to(whole)
        if name.parts[0] == "scores" or name.name in ("downstream.json", "config.json"):
            continue  # they hold times
        assert (plan.out / name).read_bytes() == path.read_bytes(), name
    one, other = (read_result(folder).model_dump() for folder in (whole, plan.out))
    for result in (one, other):
        for scorer in result["scorers"]:
            scorer.pop("seconds")
    assert one == other


def test_a_reward_model_that_stops_goes_on(plan, world):
    class Stops(LikesTea):
        def judge(self, items, seed):
            for number, judgement in enumerate(super().judge(items, seed)):
                if number == 2:
                    raise HabitusError("the server is down")
                yield judgement

    world.models["test:tea"] = Stops()
    with pytest.raises(HabitusError, match="the server is down"):
        best_of_n(plan)
    world.models["test:tea"] = judge = LikesTea()
    result = best_of_n(replace(plan, resume=True))
    assert result.scorers[0].quality.n == 6
    assert (
        len(judge.seen)
        == len(
            [
                one
                for one in read_jsonl(plan.out / SCORES)
                if one["scorer"] == judge.spec.digest and one["status"] != "same"
            ]
        )
        - 2
    )


def test_answers_that_cannot_be_had_are_no_candidates(plan, world):
    def reply(request):
        number = request.seed % 5
        if number == 0:
            return Reply(status=Status.ERROR, error="it broke")
        if number == 1:
            return text("tea, and so", finished=False)
        return text("  ") if number == 2 else answer(request)

    world.policy = Policy(reply)
    result = best_of_n(plan)
    answers = read_jsonl(plan.out / ANSWERS)
    counts = Counter(line["status"] for line in answers)
    assert {k: v for k, v in result.answers.items() if v} == counts
    assert {"ok", "truncated", "empty", "error"} == set(counts)
    failed = [line for line in answers if line["status"] == "error"]
    assert all("grade" not in line and line["reason"] == "it broke" for line in failed)
    assert all(line["grade"] == 0 for line in answers if line["status"] == "empty")
    cut = [line for line in answers if line["status"] == "truncated"]
    assert all(line["grade"] == (line["country"] == "China") for line in cut)
    sizes = Counter(line["prompt"] for line in answers if line["status"] != "error")
    for one in read_jsonl(plan.out / PICKS):
        assert one["n_candidates"] == sizes[one["prompt"]]
    scores = {
        (line["scorer"], line["prompt"]): line["scores"] for line in read_jsonl(plan.out / SCORES)
    }
    for line in failed:
        assert scores[result.scorers[0].digest, line["prompt"]][line["index"]] is None
    world.policy = Policy()
    mended = best_of_n(replace(plan, resume=True, retry_failed=True))
    assert mended.answers["error"] == 0
    assert len(world.policy.asked) == counts["error"]
    assert mended.scorers[0].quality.n == 6


def test_a_reward_model_that_fails_on_a_prompt_is_left_out_there(plan, world):
    world.models["test:tea"] = LikesTea(fails_on="Spain, question 1")
    result = best_of_n(plan)
    tea = result.scorers[0]
    assert tea.failed == {"error": 1}
    assert (tea.quality.n, tea.quality.n_excluded) == (5, 1)
    assert result.scorers[1].quality.n == 6
    line = next(one for one in read_jsonl(plan.out / SCORES) if one["status"] == "error")
    assert line["error"] == "ValueError: it will not"
    assert "scores" not in line or line["scores"] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"n": 1}, "--n 1: a pick needs at least 2"),
        ({"sampling": Sampling(temperature=0)}, "--temperature 0 gives the same answer"),
        ({"scorers": (ScorerChoice("baseline:longest"),) * 2}, "is given twice"),
        ({"policy": "published"}, "has no published answers"),
        ({"grader": ScorerChoice("test:other")}, "--grader does not apply to blend-short"),
        ({"scorers": (ScorerChoice("basline:longest"),)}, "did you mean baseline:longest"),
        ({"engine": "embeded"}, "unknown engine 'embeded'"),
        (
            {"options": ScorerOptions(dtype="float16")},
            "--dtype does not apply to embedded policies",
        ),
        ({"countries": ("France",)}, "unknown country 'France'"),
    ],
)
def test_wrong_plans(plan, world, change, problem):
    with pytest.raises(InputError, match=problem):
        best_of_n(replace(plan, **change))
    assert not (plan.out / "config.json").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"n": 5}, r"n was 4 and is now 5"),
        ({"seed": 1}, r"seed was 0 and is now 1"),
        ({"limit": 1}, r"limit was None and is now 1"),
        ({"sampling": Sampling(max_new_tokens=9)}, r"policy.sampling.max_new_tokens was 8"),
        ({"policy": "other"}, r"policy.asked was 'a-policy'"),
    ],
)
def test_another_configuration_is_refused(plan, world, change, problem):
    best_of_n(plan)
    with pytest.raises(RunError, match=problem):
        best_of_n(replace(plan, resume=True, **change))


def test_listwise_judges_have_letters_for_26(plan, world):
    world.models["test:tea"] = LikesTea(parameters={"mode": "listwise"})
    with pytest.raises(InputError, match="26 letters for --n 27 answers; use '--mode pairwise"):
        best_of_n(replace(plan, n=27))


def test_win_rates():
    assert win_rates([3.0, 1.0, None, 1.0]) == (1.0, 0.25, None, 0.25)
    assert win_rates([2.0]) == (0.5,)


def open_plan(plan, tmp_path, **change):
    folder = tmp_path / "omgeval"
    if not folder.exists():
        folder.mkdir()
        write_omgeval(folder)
    fields = {"task": "omgeval", "data": folder, "language": "own", "policy": "published"}
    return replace(plan, **(fields | {"grader": ScorerChoice("test:grader")} | change))


def test_published_answers_are_ranked_and_graded_by_another_judge(plan, world, tmp_path):
    class Longer(LikesTea):
        def scores_of(self, item, order, seed):
            return {"scores": {one.id: float(len(one.text)) for one in item.candidates}}

    world.models["test:grader"] = Longer("grader")
    world.models["test:tea"] = LikesTea()
    result = best_of_n(open_plan(plan, tmp_path))
    assert world.started["policy"] == 0
    assert (result.n, result.prompts, result.countries) == (2, 2, ("Spanish",))
    assert result.policy.name == "published: alpha, beta"
    found = [
        (line["model"], line.get("text", ""), line["grade"])
        for line in read_jsonl(plan.out / ANSWERS)
    ]
    assert found == [
        ("alpha", "uno", 1.0),
        ("beta", "", 0.0),
        ("alpha", "dos", 0.0),
        ("beta", "segundo", 1.0),
    ]
    tea, longest = result.scorers
    assert tea.quality.value == 0.5  # no tea anywhere: ties
    assert longest.quality.value == 1.0
    assert result.grader["name"] == "test:grader"
    best_of_n(open_plan(plan, tmp_path, resume=True))
    assert world.started["test:grader"] == 1


@pytest.mark.parametrize(
    ("grader", "problem"),
    [
        (None, "graded by a judge: name one that is no reward model under test"),
        (ScorerChoice("test:tea"), "is a reward model under test"),
        (ScorerChoice("test:same"), "is the reward model under test"),
        (ScorerChoice("baseline:shortest"), "a baseline is no judge"),
    ],
)
def test_the_grader_is_never_a_reward_model_under_test(plan, world, tmp_path, grader, problem):
    world.models["test:tea"] = LikesTea(revision="r7")
    world.models["test:same"] = LikesTea("by another name", revision="r7")
    with pytest.raises(InputError, match=problem):
        best_of_n(open_plan(plan, tmp_path, grader=grader))


def test_a_grader_that_fails_leaves_its_prompts_without_grades(plan, world, tmp_path):
    world.models["test:grader"] = LikesTea("grader", fails_on="Uno")
    result = best_of_n(open_plan(plan, tmp_path))
    assert (result.prompts, result.prompts_graded, result.ungraded) == (2, 1, 2)
    assert result.scorers[0].quality.n == 1
    line = read_jsonl(plan.out / ANSWERS)[0]
    assert line["reason"] == "the grader failed (error): ValueError: it will not"


def test_the_page_escapes_what_models_write(plan, world):
    bad = "<script>alert(1)</script> tea"
    world.policy = Policy(lambda request: text(bad if request.seed % 2 else "coffee {{ 7 * 7 }}"))
    best_of_n(plan)
    page = write_downstream(plan.out).read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; tea" in page
    assert "coffee {{ 7 * 7 }}" in page
    assert page == write_downstream(plan.out).read_text(encoding="utf-8")


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(InputError, match=r"holds no downstream\.json"):
        write_downstream(tmp_path)


def test_the_command(tmp_path, world, capsys):
    data = write_include(tmp_path)
    world.policy = Policy(lambda request: text(f"Answer: {'ABCD'[request.seed % 4]}"))
    words = ["downstream", "bestofn", "--task", "include", "--data", str(data)]
    words += ["--policy", "p", "--scorer", "baseline:longest", "--scorer", "baseline:random"]
    words += ["--out", str(tmp_path / "run"), "--n", "8", "--country", "Greece"]
    assert cli(words) == 0
    shown = capsys.readouterr()
    assert "best of 8: include, answers of fake" in shown.out
    assert "random answer" in shown.out
    assert "Apache-2.0; 1 prompts" in shown.err
    assert (tmp_path / "run" / PAGE).is_file()
    config = json.loads((tmp_path / "run" / "config.json").read_bytes())
    assert config["command"].startswith("habitus downstream bestofn --task include")
    assert "--out" not in config["command"]
    assert cli([*words, "--n", "9"]) == 2
    assert "add --resume" in capsys.readouterr().err


def test_reward_models_with_options_of_their_own():
    name, options = parse_model(
        "judge:some-model --engine vllm --mode pairwise --votes 3", "--scorer"
    )
    assert name == "judge:some-model"
    assert (options.engine, options.mode, options.votes) == ("vllm", "pairwise", 3)
    assert parse_model("baseline:longest", "--scorer")[1] == ScorerOptions()
    for text_, problem in {
        "judge:m --mod x": "--scorer 'judge:m --mod x': No such option",
        "a b": "Got unexpected extra argument",
        "": "Missing argument",
        "judge:m --votes none": "is not a valid integer",
        "'": "No closing quotation",
    }.items():
        with pytest.raises(InputError, match=problem):
            parse_model(text_, "--scorer")
