"""Tasks of best-of-n: prompts from BLEnD, INCLUDE and OMGEval, and how answers are graded."""

import json
from pathlib import Path

import pytest

from habitus.cli.downstream import questions_trained_on
from habitus.data import load, omgeval
from habitus.data.blend import Votes
from habitus.data.source import Source
from habitus.downstream.grading import answer_of
from habitus.downstream.matching import countable, flat, make_key, match
from habitus.downstream.model import (
    ChoiceKey,
    Generation,
    GenerationStatus,
    JudgeKey,
    TaskPrompt,
)
from habitus.downstream.tasks import TaskOptions, choose, load_task, without_questions
from habitus.errors import InputError, UnknownNameError
from habitus.pairs.items import from_items
from tests.downstream_samples import write_blend


def key(*answers, language="en"):
    found = [Votes(answers=own, en_answers=english, count=count) for count, own, english in answers]
    return make_key(found, language)


DRINKS = key((1, ["té"], ["tea"]), (4, ["café", "cafelito"], ["coffee"]), language="es")


@pytest.mark.parametrize(
    ("response", "grade", "share"),
    [
        ("Coffee.", 1, 1.0),
        ("Un cafe con leche", 1, 1.0),  # no accent
        ("I think it is TEA", 1, 0.25),  # 1 of 4 votes
        ("tea or coffee", 1, 1.0),  # the answer with more votes is looked at first
        ("water", 0, 0.0),
        ("", 0, 0.0),
        ("<think>coffee</think> water", 0, 0.0),
        ("<think>coffee", 0, 0.0),
    ],
)
def test_match(response, grade, share):
    found = match(response, DRINKS)
    assert (found.grade, found.votes) == (grade, share)


@pytest.mark.parametrize(
    ("wording", "response", "grade"),
    [
        ("ice-cream", "an ice cream", 1),  # hyphens are spaces
        ("potato chips", "chips made of potato", 1),  # all its words, in any order
        ("potato chips", "chips", 0),
        ("sandwiches", "a sandwich", 1),  # English stems
        ("7", "٧", 1),  # digits of any script
        ("كُسْكُس", "الكسكس", 1),  # vowel marks are not read
        ("茶", "绿茶", 1),
        ("Ｔｅａ", "tea", 1),  # full width
        ("?", "what?", 0),  # nothing is left of the wording
    ],
)
def test_match_in_normal_form(wording, response, grade):
    assert match(response, key((1, [], [wording]))).grade == grade


def test_local_wordings_count_only_in_the_local_language():
    answers = [Votes(answers=["茶"], en_answers=["tea"], count=2)]
    assert match("茶", make_key(answers, "zh")).grade == 1
    assert match("tea", make_key(answers, "zh")).grade == 1
    assert match("茶", make_key(answers, "en")).grade == 0


def test_flat_keeps_marks_that_are_letters():
    assert flat("ক্ৰীড়া") == flat("ক্ৰীড়া ")
    assert flat("ক্ৰীড়া") != flat("করড")


@pytest.mark.parametrize(
    ("idks", "expected"),
    [
        ({"no-answer": 2}, True),
        ({"no-answer": 2, "not-applicable": 1}, False),
        ({"idk": 4}, True),
        ({"idk": 5}, False),
    ],
)
def test_questions_that_count(idks, expected):
    assert countable(idks, [Votes(en_answers=["tea"], count=1)]) is expected
    assert not countable(idks, [])


def prompt_with(key):
    message = {"role": "user", "content": "?"}
    return TaskPrompt(id="p", group="g", country="Spain", messages=(message,), key=key)


CHOICE = ChoiceKey(letters=("A", "B", "C", "D"), right=("B",))


@pytest.mark.parametrize(
    ("status", "text", "graded", "grade", "matched"),
    [
        ("ok", "C is tempting.\nAnswer: B", "ok", 1.0, "B"),
        ("ok", "Answer: C", "ok", 0.0, "C"),
        ("ok", "I do not know.", "ok", 0.0, None),
        ("ok", "Answer: E", "ok", 0.0, None),
        ("truncated", "I think that", "truncated", 0.0, None),
        ("ok", "<think>B</think>  ", "empty", 0.0, None),
        ("error", "", "error", None, None),
        ("too-long", "", "too-long", None, None),
    ],
)
def test_choices_are_graded_by_the_letter(status, text, graded, grade, matched):
    generation = Generation(unit="u", prompt="p", index=3, status=status, text=text)
    found = answer_of(prompt_with(CHOICE), generation)
    assert (found.status, found.grade, found.matched) == (graded, grade, matched)
    assert found.index == 3


def test_judged_answers_have_no_grade_yet():
    generation = Generation(unit="u", prompt="p", index=0, status=GenerationStatus.OK, text="x")
    assert answer_of(prompt_with(JudgeKey()), generation).grade is None


def test_blend_short_asks_in_the_countrys_language_or_in_english(tmp_path):
    data = write_blend(tmp_path)
    own = load_task("blend-short", TaskOptions(data))
    spain = next(prompt for prompt in own.prompts if prompt.id == "Q-0:Spain")
    assert (
        spain.messages[0].content == "¿0? (Spain)\n\nResponde en pocas palabras y sin explicación."
    )
    assert (spain.country, spain.language, spain.group) == ("Spain", "es", "Q-0")
    assert [answer.wordings for answer in spain.key.answers] == [("café", "coffee")]
    english = load_task("blend-short", TaskOptions(data, language="en"))
    assert english.prompts[0].messages[0].content.startswith("What do people drink in China")
    assert english.prompts[0].key.answers[0].wordings == ("tea",)
    assert own.licence == "CC-BY-SA-4.0"
    one = load_task("blend-short", TaskOptions(data / "annotations" / "Spain_data.json"))
    assert {prompt.country for prompt in one.prompts} == {"Spain"}


def test_choosing_countries_and_a_number(tmp_path):
    task = load_task("blend-short", TaskOptions(write_blend(tmp_path, 9)))
    drawn = choose(task, [], 4, seed=1)
    groups = {
        country: {prompt.group for prompt in drawn.prompts if prompt.country == country}
        for country in ("China", "Spain")
    }
    assert len(groups["China"]) == 4
    assert groups["China"] == groups["Spain"]  # countries share questions
    assert {prompt.id for prompt in choose(task, [], 2, seed=1).prompts} < {
        prompt.id for prompt in drawn.prompts
    }
    assert {prompt.country for prompt in choose(task, ["spain"]).prompts} == {"Spain"}
    with pytest.raises(UnknownNameError, match="unknown country 'Spian'; did you mean Spain"):
        choose(task, ["Spian"])


def write_include(folder):
    row = {
        "language": "Greek",
        "country": "Greece",
        "question": "Ποιο;",
        "option_a": "ένα",
        "option_b": "δύο",
        "option_c": "τρία",
        "option_d": "τέσσερα",
        "answer": 2,
        "regional_feature": "culture",
        "domain": "Arts",
    }
    path = folder / "include.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_questions_that_reward_models_were_trained_on_are_left_out(tmp_path):
    task = load_task("blend-short", TaskOptions(write_blend(tmp_path, 3)))
    groups = sorted({prompt.group for prompt in task.prompts})
    assert len(groups) > 1
    left = without_questions(task, {groups[0], "elsewhere"})
    assert sorted({prompt.group for prompt in left.prompts}) == groups[1:]
    gone = len(task.prompts) - len(left.prompts)
    assert left.notes[-1].startswith(f"{gone} prompts left out")
    assert "no question of blend-short" in without_questions(task, {"elsewhere"}).notes[-1]
    with pytest.raises(InputError, match="--exclude-questions-of leaves out all"):
        without_questions(task, groups)


def test_pairs_name_the_questions_that_a_task_has(tmp_path):
    data = write_include(tmp_path)
    (item,) = load(str(data), format="include").items
    for split, known in (("train", True), ("test", False)):
        pairs = [pair.model_copy(update={"split": split}) for pair in from_items([item])]
        folder = tmp_path / split
        folder.mkdir()
        lines = [pair.model_dump_json(exclude_none=True) for pair in pairs]
        (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
        (prompt,) = load_task("include", TaskOptions(data)).prompts
        assert (prompt.group in questions_trained_on([folder])) == known


def test_options_are_shuffled_by_the_seed_and_the_letter_follows(tmp_path):
    path = write_include(tmp_path)
    letters = set()
    for seed in range(8):
        (prompt,) = load_task("include", TaskOptions(path, seed=seed)).prompts
        (letter,) = prompt.key.right
        assert f"\n{letter}. τρία\n" in prompt.messages[0].content
        letters.add(letter)
    assert len(letters) > 1
    assert (prompt.country, prompt.language) == ("Greece", "el")


def write_omgeval(folder):
    (folder / "data").mkdir()
    (folder / "data" / "OMGEval_Spanish.txt").write_text("¿Uno?\n¿Dos?\n")
    (folder / "data" / "OMGEval_Spanish_local.txt").write_text("¿Dos?\n")
    (folder / "data" / "korean.txt").write_text("하나?\n")
    outputs = folder / "model_outputs" / "spanish"
    outputs.mkdir(parents=True)
    for model, answers in {"alpha": ("uno", "dos"), "beta": ("", "segundo")}.items():
        rows = [
            {"instruction": asked, "output": answer, "generator": model}
            for asked, answer in zip(("¿Uno?", "¿Dos?\n"), answers, strict=True)
        ]
        (outputs / f"{model}.json").write_text(json.dumps(rows))
    return folder


def test_omgeval(tmp_path):
    task = load_task("omgeval", TaskOptions(write_omgeval(tmp_path)))
    assert [prompt.id for prompt in task.prompts] == ["ko:0", "es:0", "es:1"]
    assert {prompt.group for prompt in task.prompts} == {"0", "1"}
    assert task.published == {
        "es:0": (("alpha", "uno"), ("beta", "")),
        "es:1": (("alpha", "dos"), ("beta", "segundo")),
    }
    assert task.judged
    local = load_task("omgeval", TaskOptions(tmp_path, part="local"))
    assert [prompt.id for prompt in local.prompts] == ["es:1"]


def test_omgeval_models_must_have_answered_the_same_prompts(tmp_path):
    folder = write_omgeval(tmp_path)
    file = folder / "model_outputs" / "spanish" / "beta.json"
    file.write_text(json.dumps([{"instruction": "¿Tres?", "output": "x"}] * 2))
    with pytest.raises(InputError, match=r"beta\.json, row 1: the prompts are not those of alpha"):
        omgeval.read(Source(folder))
    file.write_text("[{}]")
    with pytest.raises(InputError, match="row 1: needs instruction and output"):
        omgeval.read(Source(folder))


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("blend", {}, "unknown task 'blend'; did you mean blend-short or blend-choice"),
        ("include", {"language": "en"}, "--language does not apply to include"),
        ("blend-short", {"part": "local"}, "--part does not apply to blend-short"),
        ("blend-short", {"data": Path("nowhere")}, "no such file or folder: nowhere"),
    ],
)
def test_wrong_options(tmp_path, name, options, problem):
    with pytest.raises(InputError, match=problem):
        load_task(name, TaskOptions(**({"data": write_blend(tmp_path)} | options)))


def test_nothing_left_says_why(tmp_path):
    folder = write_blend(tmp_path, 1)
    for file in (folder / "annotations").glob("*.json"):
        found = json.loads(file.read_text())
        found["Q-0"]["idks"]["no-answer"] = 3
        file.write_text(json.dumps(found))
    with pytest.raises(
        InputError, match=r"no prompt is left .*left out over all countries: 2 x too many"
    ):
        load_task("blend-short", TaskOptions(folder))
