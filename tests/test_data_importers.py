"""Formats of single data sets: rows of our own in each schema become the right items."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from habitus.data import load
from habitus.errors import InputError


def write(tmp_path, rows, name="a.jsonl"):
    """Write rows as JSON lines or CSV, compressed or not, and return the path."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    if ".csv" in name:
        table = csv.DictWriter(text, rows[0])
        table.writeheader()
        table.writerows(rows)
    else:
        text.writelines(json.dumps(row) + "\n" for row in rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


def said(item):
    return [candidate.text for candidate in item.candidates]


def refused(source, **options):
    with pytest.raises(InputError) as caught:
        load(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- hh-rlhf ---

TALK = "\n\nHuman: Hello?\n\nAssistant: Hi.\n\nHuman: A joke?\n\nAssistant: "
HH = {"chosen": TALK + "Gladly.", "rejected": TALK + "No."}


def test_hh_rlhf(tmp_path):
    other = {**HH, "rejected": TALK + "Never."}
    same = {**HH, "rejected": HH["chosen"]}
    path = write(tmp_path, [HH, other, same], "harmless-base/test.jsonl.gz")
    found = load(str(tmp_path))
    first, second = found.items
    assert found.format == "hh-rlhf"
    assert [turn.content for turn in first.prompt] == ["Hello?", "Hi.", "A joke?"]
    assert said(first) == ["Gladly.", "No."]
    assert (first.best_ids, first.language, first.licence) == (("chosen",), "en", "MIT")
    assert (first.domain, first.source) == ("safety", "hh-rlhf:harmless-base")
    assert first.parent_id == second.parent_id
    assert found.skipped == {"the chosen turn is empty or identical to a rejected one": 1}
    assert load(path).name == "test"


def test_hh_rlhf_form_alone_is_generic(tmp_path):
    found = load(write(tmp_path, [HH]))
    assert found.format == "generic"
    assert found.items[0].licence is None


# --- oasst1-zh ---

RANKED = {
    "instruction": "做什么菜？",
    "input": "",
    "output": ["炒饭", "面", "不知道"],
    "history": [],
}


def test_oasst(tmp_path):
    later = {**RANKED, "instruction": "还有呢？", "history": [["做什么菜？", "炒饭"]]}
    alone = {**RANKED, "output": ["炒饭"]}
    twice = {**RANKED, "output": ["炒饭", "面", "面 "]}
    found = load(write(tmp_path, [RANKED, later, alone, twice], "oaast_rm_zh.json"))
    first, second = found.items
    assert found.format == "oasst1-zh"
    assert said(first) == ["炒饭", "面", "不知道"]
    assert (first.best_ids, first.language, first.licence) == (("chosen",), "zh", "Apache-2.0")
    assert [turn.role for turn in second.prompt] == ["user", "assistant", "user"]
    assert first.parent_id == second.parent_id
    assert found.skipped == {"only one answer": 1, "two responses are identical": 1}


def test_ranked_rows_of_another_file_are_not_taken_for_oasst(tmp_path):
    path = write(tmp_path, [RANKED], "mine.jsonl")
    assert "no known format" in refused(path)
    assert load(path, format="oasst1-zh").items


def test_broken_history(tmp_path):
    path = write(tmp_path, [{**RANKED, "history": ["x"]}], "oasst_zh.jsonl")
    assert "line 1: column history" in refused(path)


# --- SQuARe and KoSBi ---


def square(question, response, flag):
    return {
        "question": question,
        "response": response,
        "acceptable?": flag,
        "question_category": "etc",
    }


def test_square(tmp_path):
    rows = [
        square("질문 하나?", "좋은 답", "1"),
        square("질문 하나?", "나쁜 답", "0"),
        square("질문 하나?", "다른 좋은 답", "1"),
        square("질문 둘?", "답", "1"),
        square("질문 하나?", "나쁜 답", "0"),
        {"question": "질문 셋?", "sensitive?": "1", "category": "etc"},
    ]
    found = load(write(tmp_path, rows))
    (item,) = found.items
    assert found.format == "square"
    assert said(item) == ["좋은 답", "다른 좋은 답", "나쁜 답"]
    assert item.best_ids == ("chosen-1", "chosen-2")
    assert (item.culture, item.country, item.language) == ("Korean", "South Korea", "ko")
    assert (item.domain, item.licence, item.source) == ("safety", "MIT", "square:etc")
    assert found.skipped == {
        "the responses are all acceptable or all unacceptable": 1,
        "the row repeats an earlier one": 1,
        "a question without a response": 1,
    }


def test_a_response_with_both_labels_is_on_neither_side(tmp_path):
    rows = [square("a?", "x", "1"), square("a?", "y", "0"), square("a?", "z", "0")]
    found = load(write(tmp_path, [*rows, square("a?", "y", "1")]))
    assert said(found.items[0]) == ["x", "z"]
    assert found.skipped == {"a response has both labels": 1}


def test_square_questions_alone(tmp_path):
    path = write(tmp_path, [{"question": "a?", "sensitive?": "1"}])
    assert "no item is left (1 x a question without a response)" in refused(path)


def test_square_label(tmp_path):
    assert "acceptable? must be 0 or 1, found '2'" in refused(
        write(tmp_path, [square("a?", "x", "2")])
    )


def test_kosbi(tmp_path):
    row = {"context": "그는 이웃이다.", "demographic_group": "이웃", "sentence": "친절하다."}
    rows = [
        {**row, "sentence_label": "safe"},
        {**row, "sentence": "나쁘다.", "sentence_label": "unsafe"},
    ]
    found = load(write(tmp_path, rows))
    assert found.format == "kosbi"
    assert found.items[0].prompt[0].content.endswith("\n\n그는 이웃이다.")
    assert said(found.items[0]) == ["친절하다.", "나쁘다."]
    assert found.items[0].best_ids == ("chosen",)
    assert "safe or unsafe" in refused(write(tmp_path, [{**row, "sentence_label": "ok"}]))


# --- ruHHH ---


def test_ruhhh(tmp_path):
    row = {"query": "Вопрос?", "ans1": "Первый, да", "ans2": "Второй", "lb": "2"}
    found = load(write(tmp_path, [row, {**row, "ans1": "Третий"}, row], "a.csv"))
    first, second = found.items
    assert found.format == "ruhhh"
    assert said(first) == ["Второй", "Первый, да"]
    assert (first.best_ids, first.language, first.culture) == (("chosen",), "ru", None)
    assert first.parent_id == second.parent_id
    assert found.skipped == {"the row repeats an earlier one": 1}
    assert "lb must be 1 or 2" in refused(write(tmp_path, [{**row, "lb": "3"}], "b.csv"))


# --- PETCI ---

IDIOM = {"id": 3, "chinese": "画蛇添足", "gold": "ruin something by adding too much"}


def test_petci(tmp_path):
    row = {
        **IDIOM,
        "human": ["gild the lily"],
        "machine": ["gild the lilies", "draw a snake and add feet", "painted snakes", "snake foot",
                    "superfluous legs"],
    }  # fmt: skip
    path = write(tmp_path, [row, {**row, "id": 4, "machine": ["gild the lily"]}])
    found = load(path)
    (item,) = found.items
    assert found.format == "petci"
    assert said(item)[0] == "ruin something by adding too much"
    assert len(item.candidates) == 4
    assert set(said(item)[1:]) < {
        "draw a snake and add feet",
        "painted snakes",
        "snake foot",
        "superfluous legs",
    }
    assert (item.culture, item.language, item.domain) == ("Chinese", "en", "linguistics")
    assert found.skipped == {"no machine translation differs from the dictionary's": 1}
    assert load(path).items == found.items
    assert len({said(load(path, seed=seed).items[0])[1] for seed in range(8)}) > 1


# --- Wikiquote ---


def proverbs(tmp_path, english, idioms, literals, tag="de"):
    for name, lines in (
        (f"idiomatic.en-{tag}.en", english),
        (f"idiomatic.en-{tag}.{tag}", idioms),
        (f"literal.en-{tag}.{tag}", literals),
    ):
        (tmp_path / f"proverbs_{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_wikiquote(tmp_path):
    proverbs(tmp_path, ["Haste makes waste.", "Same."], ["Eile mit Weile.", "x"], ["Hast.", "x"])
    proverbs(tmp_path, ["Haste makes waste."], ["Поспешишь."], ["Спешка."], tag="ru")
    found = load(str(tmp_path))
    german, russian = found.items
    assert found.format == "wikiquote-proverbs"
    assert said(german) == ["Eile mit Weile.", "Hast."]
    assert (german.language, german.culture, german.licence) == ("de", None, "CC-BY-SA-3.0")
    assert german.prompt[0].content.endswith("\n\nHaste makes waste.")
    assert german.parent_id == russian.parent_id
    assert found.skipped == {"two responses are identical": 1}
    one = load(str(tmp_path / "proverbs_idiomatic.en-ru.ru"))
    assert one.items == (russian,)


def test_wikiquote_files_must_be_aligned(tmp_path):
    proverbs(tmp_path, ["a", "b"], ["c", "d"], ["e"])
    assert "proverbs_literal.en-de.de 1; they must be aligned" in refused(str(tmp_path))
    (tmp_path / "proverbs_literal.en-de.de").unlink()
    assert "is missing" in refused(str(tmp_path))


# --- JCommonsenseMorality ---


def sentences(*pairs):
    return [{"": i, "sent": sent, "label": flag} for i, (sent, flag) in enumerate(pairs)]


def test_jcm(tmp_path):
    rows = sentences(
        ("席を友人に譲らなかった。", 1),
        ("席を友人に譲った。", 0),
        ("全く関係のない文である。", 1),
        ("本を借りて返した。", 0),
        ("本を借りて返さなかった。", 1),
        ("犬と歩いた。", 0),
    )
    found = load(write(tmp_path, rows, "data.csv"))
    first, second = found.items
    assert found.format == "jcm"
    assert said(first) == ["席を友人に譲った。", "席を友人に譲らなかった。"]
    assert said(second) == ["本を借りて返した。", "本を借りて返さなかった。"]
    assert (first.culture, first.language, first.domain) == ("Japanese", "ja", "values")
    assert found.skipped == {"the next row is no minimal pair to it": 2}
    assert "label must be 0 or 1" in refused(write(tmp_path, sentences(("文。", 2)), "b.csv"))


# --- INCLUDE ---

EXAM = {
    "language": "Dutch-Flemish",
    "country": "Korea",
    "domain": "Arts & Humanities",
    "regional_feature": "culture",
    "question": "Welke?",
    "answer": 2,
}
OPTIONS = {"option_a": "een", "option_b": "twee", "option_c": "drie", "option_d": "vier"}


def test_include(tmp_path):
    repeated = {**EXAM, **OPTIONS}
    outside = {**EXAM, **OPTIONS, "question": "Wie?", "answer": 4}
    twice = {**EXAM, **OPTIONS, "question": "Waar?", "option_b": "een"}
    found = load(write(tmp_path, [{**EXAM, **OPTIONS}, repeated, outside, twice]))
    (item,) = found.items
    assert found.format == "include"
    assert said(item) == ["een", "twee", "drie", "vier"]
    assert (item.best_ids, item.language, item.country) == (("c",), "nl", "South Korea")
    assert (item.domain, item.source) == ("Arts & Humanities", "include:culture")
    assert found.skipped == {
        "the row repeats an earlier one": 1,
        "the answer names no option": 1,
        "two responses are identical": 1,
    }


def test_include_with_a_list_of_choices(tmp_path):
    row = {**EXAM, "choices": list(OPTIONS.values())}
    assert load(write(tmp_path, [row])).items[0].best_ids == ("c",)
    assert "language 'Elvish' is unknown" in refused(
        write(tmp_path, [{**row, "language": "Elvish"}])
    )
    assert "option_a" in refused(write(tmp_path, [EXAM]))


# --- HelpSteer3 ---

PREFERENCE = {
    "domain": "multilingual",
    "language": "korean",
    "context": [{"role": "user", "content": "안녕?"}],
    "response1": "네.",
    "response2": "응.",
    "overall_preference": -2,
    "individual_preference": [],
}


def test_helpsteer3(tmp_path):
    code = {
        **PREFERENCE,
        "domain": "code",
        "language": "python",
        "overall_preference": 1,
    }
    found = load(write(tmp_path, [PREFERENCE, code, {**PREFERENCE, "overall_preference": 0}]))
    first, second = found.items
    assert found.format == "helpsteer3"
    assert said(first) == ["네.", "응."]
    assert said(second) == ["응.", "네."]
    assert (first.language, second.language) == ("ko", None)
    assert (first.licence, first.reason) == ("CC-BY-4.0", "preference 2 of 3")
    assert first.parent_id == second.parent_id
    assert found.skipped == {"people prefer neither response": 1}


@pytest.mark.parametrize("preference", [4, "2", None, True, 1.5])
def test_helpsteer3_preference(tmp_path, preference):
    path = write(tmp_path, [{**PREFERENCE, "overall_preference": preference}])
    assert "line 1: column overall_preference must be from -3 to 3" in refused(path)


# --- CARE ---


def rated(question, response, rating, culture="Native (Arab)"):
    return {
        "question": question,
        "response": response,
        "rating": rating,
        "culture_type": "Cultural commonsense",
        "associated_culture": culture,
        "language": "Arabic",
    }


def test_care(tmp_path):
    rows = [
        rated("a?", "x", 3),
        rated("b?", "only", 9, "Foreign"),
        rated("a?", "y", "10"),
        rated("a?", "z", 10.0),
        rated("a?", "x", 5),
    ]
    found = load(write(tmp_path, rows))
    (item,) = found.items
    assert found.format == "care"
    assert (said(item), item.best_ids) == (["y", "z", "x"], ("chosen-1", "chosen-2"))
    assert (item.culture, item.language, item.domain) == ("Arab", "ar", "commonsense")
    assert item.licence is None
    assert found.skipped == {"a response is repeated": 1, "the responses all have one rating": 1}


def test_care_test_files_hold_nothing_to_choose_from(tmp_path):
    row = {"question": "a?", "answer": "b", "culture_type": "Opinion"}
    assert "questions without rated answers" in refused(write(tmp_path, [row]))


@pytest.mark.parametrize("rating", [0, 11, "good", None, True])
def test_care_rating(tmp_path, rating):
    path = write(tmp_path, [rated("a?", "x", rating)])
    assert "column rating must be from 1 to 10" in refused(path)


# --- CSV and compressed files ---


def test_csv_of_ones_own(tmp_path):
    row = {"prompt": 'Say "a, b"?', "chosen": "yes,\nindeed", "rejected": "x" * 200_000}
    item = load(write(tmp_path, [row], "a.csv")).items[0]
    assert item.prompt[0].content == 'Say "a, b"?'
    assert said(item) == ["yes,\nindeed", "x" * 200_000]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prompt,chosen,rejected\na,b,c\n1\n", "row 2: 1 values for 3 columns"),
        ("a,b,a\n1,2,3\n", "names the column 'a' twice"),
        ('a,b\n"1,2\n', "line 2: broken CSV"),
    ],
)
def test_broken_csv(tmp_path, text, problem):
    (tmp_path / "a.csv").write_text(text)
    assert problem in refused(str(tmp_path / "a.csv"), format="generic")


def test_csv_is_not_read_beside_other_data(tmp_path):
    write(tmp_path, [{"prompt": "a", "chosen": "b", "rejected": "c"}], "a.jsonl")
    (tmp_path / "notes.csv").write_text("x,y\n1,2\n")
    assert len(load(str(tmp_path)).items) == 1


def test_broken_gzip(tmp_path):
    whole = write(tmp_path, [HH] * 50, "a.jsonl.gz")
    content = (tmp_path / "a.jsonl.gz").read_bytes()
    for name, broken in (("cut", content[:-20]), ("none", b"plain")):
        (tmp_path / f"{name}.json.gz").write_bytes(broken)
        assert "not a whole gzip file" in refused(str(tmp_path / f"{name}.json.gz"))
    (tmp_path / "lines.jsonl.gz").write_bytes(content[:-20])
    assert "not a whole gzip file" in refused(str(tmp_path / "lines.jsonl.gz"))
    assert len(load(whole).items) == 50
