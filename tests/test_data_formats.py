"""Each format's rows become the right items, and each is told from its columns."""

from __future__ import annotations

import json

import polars as pl
import pytest

from habitus.data import load
from habitus.data.formats import FORMATS, IMPORTERS
from habitus.errors import InputError

CARB = {
    "id": 7,
    "language": "Arabic",
    "country": "Egypt",
    "prompt": "ماذا يقدم المضيف؟",
    "chosen": ["قهوة"],
    "chosen_model": ["writer"],
    "rejected": ["a", "b", "c"],
    "rejected_model": ["m1", "m2", "m3"],
    "num_correct": 1,
    "num_rejected": 3,
    "total_completions": 4,
    "source": "mango",
    "subset": "cultural_commonsense",
    "additional_metadata": '{"k": 1}',
    "category": "food",
}
REWARDBENCH = {"id": 1, "prompt": "Hi", "chosen": "good", "rejected": "bad", "subset": "chat"}
REWARDBENCH2 = {
    "id": "tied:12",
    "prompt": "Name a colour",
    "chosen": ["red", "blue"],
    "rejected": ["seven", "dog"],
    "num_correct": 2,
    "num_incorrect": 2,
    "total_completions": 4,
    "models": ["human"],
    "subset": "Ties",
    "additional_metadata": None,
}
M_REWARDBENCH = {"id": 1, "prompt": "Hi", "chosen": "good", "rejected": "bad", "source": "chat"}
RM_BENCH = {
    "id": "c1",
    "prompt": "Hi",
    "chosen": ["c0", "c1", "c2"],
    "rejected": ["r0", "r1", "r2"],
    "domain": "chat",
}


@pytest.fixture
def read(tmp_path):
    def read(*rows, name="a.jsonl", **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return load(str(path), **options)

    return read


def texts(item):
    return {candidate.id: candidate.text for candidate in item.candidates}


def test_every_importer_can_be_imported():
    assert all(callable(FORMATS.get(name)) for name in IMPORTERS)


# --- native ---


def test_native_round_trip(read):
    first = read(CARB).items[0]
    again = read(json.loads(first.model_dump_json()), name="b.jsonl")
    assert again.format == "native"
    assert again.items == (first,)


# --- carb ---


def test_carb(read):
    found = read(CARB)
    item = found.items[0]
    assert found.format == "carb"
    assert (item.id, item.culture, item.country, item.language) == ("7", "Arabic", "Egypt", "ar")
    assert (item.domain, item.source) == ("commonsense", "carb:mango")
    assert item.best_ids == ("chosen",)
    assert texts(item) == {
        "chosen": "قهوة",
        "rejected-1": "a",
        "rejected-2": "b",
        "rejected-3": "c",
    }
    assert [c.source_model for c in item.candidates] == ["writer", "m1", "m2", "m3"]
    assert item.chance == 0.25


@pytest.mark.parametrize(
    ("subset", "domain"),
    [
        ("cultural_commonsense", "commonsense"),
        ("cultural_value", "values"),
        ("cultural_toxicity", "safety"),
        ("cultural_linguistic", "linguistics"),
    ],
)
def test_carb_domains(read, subset, domain):
    assert read({**CARB, "subset": subset}).items[0].domain == domain


@pytest.mark.parametrize(
    ("language", "tag", "culture"),
    [
        ("zh", "zh", "Chinese"),
        ("zho_Hans", "zh-Hans", "Chinese"),
        ("es-MX", "es-MX", "Spanish"),
        ("Vietnamese", "vi", "Vietnamese"),
        ("korean", "ko", "Korean"),
        ("fr", "fr", None),
    ],
)
def test_carb_languages(read, language, tag, culture):
    item = read({**CARB, "language": language}).items[0]
    assert (item.language, item.culture) == (tag, culture)


def test_carb_refuses_what_it_does_not_know(read):
    with pytest.raises(InputError, match="subset 'cultural_food' is unknown"):
        read({**CARB, "subset": "cultural_food"})
    with pytest.raises(InputError, match="language 'Klingonese tongue' is unknown"):
        read({**CARB, "language": "Klingonese tongue"})
    with pytest.raises(InputError, match="rejected_model has 1 names for 3 responses"):
        read({**CARB, "rejected_model": ["m"]})
    with pytest.raises(InputError, match="column id is empty"):
        read({**CARB, "id": None})


def test_carb_folder_with_repeated_ids(tmp_path):
    for language in ("Arabic", "Thai"):
        (tmp_path / f"{language}.json").write_text(json.dumps([{**CARB, "language": language}]))
    found = load(str(tmp_path))
    assert [item.id for item in found.items] == ["ar:7", "th:7"]
    assert [item.parent_id for item in found.items] == ["7", "7"]
    assert found.notes == (
        "ids repeat across files or languages and were prefixed with the language",
    )


def test_carb_one_file_with_several_languages(read):
    found = read(CARB, {**CARB, "language": "Thai"}, {**CARB, "id": 8})
    assert [item.id for item in found.items] == ["ar:7", "th:7", "ar:8"]
    with pytest.raises(InputError, match=r"duplicate ids: '7' \(lines 1 and 2\)"):
        read(CARB, CARB)


def test_carb_folder_with_unique_ids_keeps_them(tmp_path):
    for id, language in ((1, "Arabic"), (2, "Thai")):
        path = tmp_path / f"{language}.json"
        path.write_text(json.dumps([{**CARB, "id": id, "language": language}]))
    found = load(str(tmp_path))
    assert [(item.id, item.parent_id) for item in found.items] == [("1", None), ("2", None)]
    assert found.notes == ()


# --- rewardbench, rewardbench 2, m-rewardbench ---


def test_rewardbench(read):
    found = read({**REWARDBENCH, "chosen_model": "a", "rejected_model": "b"})
    item = found.items[0]
    assert found.format == "rewardbench"
    assert texts(item) == {"chosen": "good", "rejected": "bad"}
    assert (item.id, item.domain, item.source, item.language) == ("1", "chat", "rewardbench", None)
    assert [c.source_model for c in item.candidates] == ["a", "b"]


def test_rewardbench_with_several_responses(read):
    with pytest.raises(InputError, match=r"one response in rejected.*rewardbench2"):
        read({**REWARDBENCH, "rejected": ["a", "b"]}, format="rewardbench")


def test_rewardbench2_ties(read):
    found = read(REWARDBENCH2)
    item = found.items[0]
    assert found.format == "rewardbench2"
    assert item.best_ids == ("chosen-1", "chosen-2")
    assert list(texts(item).values()) == ["red", "blue", "seven", "dog"]
    assert (item.id, item.domain, item.chance) == ("tied:12", "Ties", 0.5)


@pytest.mark.parametrize("lists", [{"chosen": ["good"]}, {"rejected": ["bad", "worse"]}])
def test_lists_tell_rewardbench2(read, lists):
    assert read({**REWARDBENCH, **lists}).format == "rewardbench2"


def test_m_rewardbench_folder(tmp_path):
    for code in ("arb_Arab", "zho_Hant"):
        (tmp_path / code).mkdir()
        pl.DataFrame([M_REWARDBENCH]).write_parquet(tmp_path / code / "test-0.parquet")
    found = load(str(tmp_path))
    assert found.format == "m-rewardbench"
    assert [item.language for item in found.items] == ["ar", "zh-Hant"]
    assert [item.id for item in found.items] == ["ar:1", "zh-Hant:1"]
    assert {item.parent_id for item in found.items} == {"1"}
    assert {item.domain for item in found.items} == {"chat"}
    assert {item.culture for item in found.items} == {None}


def test_m_rewardbench_one_file_per_code(read):
    found = read(M_REWARDBENCH, name="kor_Hang.jsonl")
    assert (found.format, found.items[0].language) == ("m-rewardbench", "ko")


def test_language_column_before_file_name(read):
    found = read({**M_REWARDBENCH, "language": "ita_Latn"}, name="kor_Hang.jsonl")
    assert found.items[0].language == "it"


def test_files_without_languages_are_told_apart_by_name(tmp_path):
    for part in ("one", "two"):
        (tmp_path / f"{part}.json").write_text(json.dumps([REWARDBENCH]))
    found = load(str(tmp_path))
    assert [item.id for item in found.items] == ["one:1", "two:1"]
    assert "prefixed with the file" in found.notes[0]


# --- rm-bench ---


def test_rm_bench(read):
    found = read(RM_BENCH)
    assert found.format == "rm-bench"
    assert len(found.items) == 9
    # RM-Bench: hard where the chosen style is plainer than the rejected one.
    levels = {
        (item.candidates[0].text, item.candidates[1].text): item.source for item in found.items
    }
    assert levels == {
        ("c0", "r0"): "rm-bench:normal",
        ("c0", "r1"): "rm-bench:hard",
        ("c0", "r2"): "rm-bench:hard",
        ("c1", "r0"): "rm-bench:easy",
        ("c1", "r1"): "rm-bench:normal",
        ("c1", "r2"): "rm-bench:hard",
        ("c2", "r0"): "rm-bench:easy",
        ("c2", "r1"): "rm-bench:easy",
        ("c2", "r2"): "rm-bench:normal",
    }
    assert {item.parent_id for item in found.items} == {"c1"}
    assert found.items[1].id == "c1:concise-detailed"


def test_rm_bench_needs_three_styles(read):
    with pytest.raises(InputError, match="column chosen must have 3 responses, found 2"):
        read({**RM_BENCH, "chosen": ["a", "b"]}, format="rm-bench")


# --- generic ---


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def test_generic_plain(read):
    row = {
        "prompt": "Hi",
        "chosen": "a",
        "rejected": ["b", "c", "d"],
        "culture": "Thai",
        "country": "Thailand",
        "language": "th",
        "source": "mine",
    }
    found = read(row, {"prompt": "Hi", "chosen": "a", "rejected": "b", "id": "x", "subset": "s"})
    assert found.format == "generic"
    first, second = found.items
    assert (first.id, first.culture, first.country, first.language) == (
        *("row-1", "Thai", "Thailand", "th"),
    )
    assert (first.domain, first.source, first.chance) == ("mine", "mine", 0.25)
    assert (second.id, second.domain, second.source) == ("x", "s", "s")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Q", "chosen": "good", "rejected": "bad"},
        {"prompt": [user("Q")], "chosen": "good", "rejected": ["bad"]},
        {"prompt": [user("Q")], "chosen": [assistant("good")], "rejected": [assistant("bad")]},
        {"prompt": "Q", "chosen": [assistant("good")], "rejected": [[assistant("bad")]]},
        {"chosen": [user("Q"), assistant("good")], "rejected": [user("Q"), assistant("bad")]},
        {
            "prompt": "Q",
            "chosen": [user("Q"), assistant("good")],
            "rejected": [user("Q"), assistant("bad")],
        },
        {
            "prompt": None,
            "chosen": "\n\nHuman: Q\n\nAssistant: good",
            "rejected": "\n\nHuman: Q\n\nAssistant: bad",
        },
        {
            "chosen": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "good"}],
            "rejected": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "bad"}],
        },
    ],
)
def test_generic_shapes_are_normalised(read, row):
    item = read(row).items[0]
    assert [(m.role, m.content) for m in item.prompt] == [("user", "Q")]
    assert list(texts(item).values()) == ["good", "bad"]


def test_generic_keeps_the_system_message_and_turns(read):
    start = [{"role": "system", "content": "S"}, user("1"), assistant("2"), user("3")]
    item = read({"chosen": [*start, assistant("a")], "rejected": [*start, assistant("b")]}).items[0]
    assert [m.role for m in item.prompt] == ["system", "user", "assistant", "user"]


def test_generic_several_turns_of_text(read):
    start = "\n\nHuman: one\n\nAssistant: two\n\nHuman: three\n\nAssistant: "
    item = read({"chosen": start + "a\n\nb", "rejected": start + "c"}).items[0]
    assert [m.content for m in item.prompt] == ["one", "two", "three"]
    assert texts(item) == {"chosen": "a\n\nb", "rejected": "c"}


def test_generic_left_out_rows_are_counted(read):
    def turn(question, answer):
        return f"\n\nHuman: {question}\n\nAssistant: {answer}"

    found = read(
        {"chosen": turn("x", "a"), "rejected": turn("x", "b")},
        {"chosen": turn("x", "a"), "rejected": turn("y", "b")},
        {"chosen": turn("x", ""), "rejected": turn("x", "b")},
        {"chosen": turn("x", "a"), "rejected": turn("x", "a")},
    )
    assert [item.id for item in found.items] == ["row-1"]
    assert found.skipped == {
        "the conversations differ before the last turn": 1,
        "the chosen turn is empty or identical to a rejected one": 2,
    }


def test_generic_with_nothing_left(read):
    with pytest.raises(InputError, match=r"no item is left .1 x the conversations differ"):
        read({"chosen": [user("x"), assistant("a")], "rejected": [user("y"), assistant("b")]})


def test_generic_conversation_that_is_not_the_prompts(read):
    row = {
        "prompt": "Q",
        "chosen": [user("X"), assistant("a")],
        "rejected": [user("X"), assistant("b")],
    }
    with pytest.raises(InputError, match="does not continue the prompt"):
        read(row)


def test_generic_without_prompt(read):
    with pytest.raises(InputError, match="column prompt is missing"):
        read({"chosen": "a", "rejected": "b"})
    with pytest.raises(InputError, match="column prompt is missing"):
        read({"chosen": [assistant("a")], "rejected": [assistant("b")]})


def test_generic_conversation_that_ends_with_the_user(read):
    with pytest.raises(InputError, match="column chosen ends with the role user"):
        read({"prompt": "Q", "chosen": [user("a")], "rejected": [assistant("b")]})
