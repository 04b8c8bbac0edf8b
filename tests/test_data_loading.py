"""The boundary of `habitus.data.load`: what is wrong with a file is one line that says where."""

from __future__ import annotations

import json

import polars as pl
import pytest

from habitus.data import load
from habitus.errors import InputError, UnknownNameError


def native(id="a", **fields):
    return {
        "id": id,
        "prompt": [{"role": "user", "content": "What is served at a wedding?"}],
        "candidates": [{"id": "x", "text": "rice"}, {"id": "y", "text": "bread"}],
        "best_ids": ["x"],
        **fields,
    }


def pair(**fields):
    return {"prompt": "Hello?", "chosen": "good", "rejected": "bad", **fields}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def refused(source, **options):
    with pytest.raises(InputError) as caught:
        load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- finding the source ---


@pytest.mark.parametrize(
    "name", ["no/such/folder", "missing.jsonl", "missing.PARQUET", "a\0b.json"]
)
def test_missing_path(name):
    assert refused(name) == f"no such file or folder: {name}"


def test_unknown_name_suggests_near_ones():
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'carb-opne:quick'.*carb-open"):
        load("carb-opne:quick")


@pytest.mark.parametrize("name", ["", "x" * 5000])
def test_name_that_no_file_can_have(name):
    with pytest.raises(UnknownNameError):
        load(name)


def test_unknown_format(tmp_path):
    path = write(tmp_path / "a.jsonl", pair())
    with pytest.raises(UnknownNameError, match=r"unknown format 'rewardbnch'.*rewardbench"):
        load(path, format="rewardbnch")


def test_unreadable_suffix(tmp_path):
    (tmp_path / "a.tsv").write_text("prompt\tchosen\n")
    assert "cannot read '.tsv'" in refused(str(tmp_path / "a.tsv"))


def test_folder_without_data(tmp_path):
    (tmp_path / "README.md").write_text("nothing")
    (tmp_path / "dataset_info.json").write_text("{}")
    assert "no .json, .jsonl, .parquet, .csv, " in refused(str(tmp_path))


def test_name_and_path(tmp_path):
    found = load(write(tmp_path / "mine.v2.jsonl", native()))
    assert found.name == "mine.v2"
    assert found.path == tmp_path / "mine.v2.jsonl"
    assert found.format == "native"
    assert (found.skipped, found.notes) == ({}, ())
    assert load(str(tmp_path)).name == tmp_path.name


# --- broken bytes ---


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet", ".csv"])
def test_empty_file(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"")
    assert refused(str(path)) == f"{path}: is empty; expected at least one row"


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "[]"), ("a.json", "  "), ("a.jsonl", "\n\n")]
)
def test_no_rows(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert "is empty" in refused(str(tmp_path / name))


def test_broken_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(pair()) + "\n\n" + '{"prompt": "x", }\n')
    # The blank second line counts; the stray brace is the 17th character.
    assert refused(str(path)).startswith(f"{path}, line 3, column 17: broken JSON")


def test_broken_array(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[\n  {"prompt": 1},\n  {"prompt" 2}\n]')
    assert refused(str(path)).startswith(f"{path}, line 3, column 13: broken JSON")


def test_truncated_last_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(pair()) + "\n" + '{"prompt": "x')
    assert "line 2" in refused(str(path))


def test_deeply_nested(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 100_000)
    assert f"{path}, line 1: broken JSON" in refused(str(path))


def test_number_of_too_many_digits(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": ' + "1" * 5000 + "}")
    assert f"{path}, line 1: broken JSON" in refused(str(path))


def test_not_utf8_in_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    first = json.dumps(pair()).encode() + b"\n"
    path.write_bytes(first + b'{"prompt": "\xe9"}\n')
    assert refused(str(path)) == (
        f"{path}, line 2: not UTF-8 at byte {len(first) + 12} (0xe9); save the file as UTF-8"
    )


def test_not_utf8_in_array(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'[\n{"p": "\xff"}]')
    assert "line 2: not UTF-8 at byte 9 (0xff)" in refused(str(path))


def test_utf16_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(json.dumps([pair()]).encode("utf-16"))
    assert "line 1: not UTF-8 at byte 0" in refused(str(path))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_byte_order_mark_is_dropped(tmp_path, name):
    text = json.dumps(pair()) if name.endswith("l") else json.dumps([pair()])
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert len(load(str(tmp_path / name)).items) == 1


def test_no_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PK\x03\x04 this is a zip file, or was")
    assert refused(str(path)).startswith(f"{path}: not a readable Parquet file")


def test_torn_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame([pair()]).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert refused(str(path)).startswith(f"{path}: not a readable Parquet file")


def test_parquet_and_star_in_name(tmp_path):
    pl.DataFrame([pair(), pair(prompt="again")]).write_parquet(tmp_path / "b.parquet")
    path = tmp_path / "*.parquet"
    pl.DataFrame([pair()]).write_parquet(path)
    assert len(load(str(path)).items) == 1


def test_parquet_row_number_in_errors(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame([pair(), pair(chosen="")]).write_parquet(path)
    assert refused(str(path)) == f"{path}, row 2: a chosen response is empty"


# --- broken rows ---


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_not_finite(tmp_path, number):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(pair()) + "\n" + f'{{"prompt": "x", "score": {number}}}\n')
    assert refused(str(path)) == f"{path}, line 2: {number} is not valid JSON; use null"


@pytest.mark.parametrize(
    ("row", "kind"), [([], "an array"), ("x", "a string"), (3, "a number"), (None, "null")]
)
def test_row_that_is_no_object(tmp_path, row, kind):
    path = write(tmp_path / "a.jsonl", pair(), row)
    assert refused(path) == f"{path}, line 2: expected an object with columns, found {kind}"


def test_object_of_columns(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"prompt": ["a"], "chosen": ["b"]}))
    assert "expected an array of rows, found one object with the keys prompt, chosen" in refused(
        str(path)
    )


def test_scalar_document(tmp_path):
    (tmp_path / "a.json").write_text("3")
    assert "expected an array of rows, found a number" in refused(str(tmp_path / "a.json"))


def test_lines_in_a_json_file(tmp_path):
    assert len(load(write(tmp_path / "a.json", pair(), pair())).items) == 2


def test_no_format_fits(tmp_path):
    path = write(tmp_path / "a.jsonl", {"question": "x", "answer": "y"})
    assert "no known format has these columns: question, answer" in refused(path)


def test_format_that_does_not_fit(tmp_path):
    path = write(tmp_path / "a.jsonl", pair(id="1"))
    assert refused(path, format="rewardbench") == (
        f"{path}, line 1: format rewardbench needs column subset; "
        "found: prompt, chosen, rejected, id"
    )
    assert "needs columns language, subset" in refused(path, format="carb")


def test_column_missing_in_a_later_row(tmp_path):
    path = write(tmp_path / "a.jsonl", pair(), {"prompt": "x", "rejected": "y"})
    assert refused(path) == (
        f"{path}, line 2: format generic needs column chosen; found: prompt, rejected"
    )


@pytest.mark.parametrize("chosen", ["", "  \n", [], None, [""], 3, {}, [["x"]], ["a", {}]])
def test_no_chosen(tmp_path, chosen):
    path = write(tmp_path / "a.jsonl", pair(), pair(chosen=chosen))
    message = refused(path)
    assert message.startswith(f"{path}, line 2: ")
    assert "chosen" in message


def test_empty_rejected_is_a_response_but_none_is_not(tmp_path):
    assert load(write(tmp_path / "a.jsonl", pair(rejected=""))).items[0].candidates[1].text == ""
    assert "rejected needs at least one" in refused(write(tmp_path / "b.jsonl", pair(rejected=[])))


def test_rejected_identical_to_chosen(tmp_path):
    path = write(tmp_path / "a.jsonl", pair(chosen="same", rejected=["other", "same"]))
    assert "line 1: a rejected response is identical to a chosen one" in refused(path)


def test_native_identical_candidates(tmp_path):
    row = native(candidates=[{"id": "x", "text": "rice"}, {"id": "y", "text": "rice"}])
    assert "identical" in refused(write(tmp_path / "a.jsonl", row))


@pytest.mark.parametrize(
    "prompt", ["", " ", [], 3, [{"role": "user"}], [{"role": "x", "content": ""}]]
)
def test_bad_prompt(tmp_path, prompt):
    message = refused(write(tmp_path / "a.jsonl", pair(prompt=prompt)))
    assert "line 1: column prompt" in message


def test_duplicate_ids(tmp_path):
    rows = [native("a"), native("b"), native("a"), native("b")]
    path = write(tmp_path / "a.jsonl", *rows)
    assert refused(path) == (
        f"{path}: duplicate ids: 'a' (lines 1 and 3), 'b' (lines 2 and 4); ids must be unique"
    )


def test_duplicate_ids_name_the_file_of_a_folder(tmp_path):
    write(tmp_path / "a.jsonl", native("a"))
    path = write(tmp_path / "b.jsonl", native("b"), native("b"))
    assert refused(str(tmp_path)).startswith(f"{path}: duplicate ids: 'b' (lines 1 and 2)")


def test_unknown_native_key(tmp_path):
    path = write(tmp_path / "a.jsonl", native("a"), native("b", weight=1))
    assert refused(path) == f"{path}, line 2: unknown key 'weight'"


def test_unknown_nested_native_key(tmp_path):
    row = native(candidates=[{"id": "x", "text": "a", "score": 1}, {"id": "y", "text": "b"}])
    path = write(tmp_path / "a.jsonl", row)
    assert refused(path).startswith(f"{path}, line 1: candidates.0: unknown key 'score'")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"best_ids": ["z"]}, "best_ids ['z'] name no candidate"),
        ({"best_ids": ["x", "y"]}, "every candidate is best"),
        ({"best_ids": []}, "best_ids: "),
        ({"id": 3}, "id: "),
        ({"candidates": [{"id": "x"}, {"id": "y", "text": ""}]}, "candidates.0.text: is missing"),
        ({"candidates": [{"id": "x", "text": " "}, {"id": "y", "text": "b"}]}, "chosen"),
    ],
)
def test_bad_native_values(tmp_path, fields, expected):
    path = write(tmp_path / "a.jsonl", native(**fields))
    assert refused(path).startswith(f"{path}, line 1: {expected}".replace(": chosen", ": a chosen"))


# --- what must load ---


def test_lone_surrogates_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"prompt": "a\\ud800b", "chosen": "\\udfff\\uDFFF", "rejected": "\\ud83d\\ude00"}\n'
        '{"prompt": "\\\\ud800", "chosen": "x", "rejected": "y"}\n'
    )
    found = load(str(path))
    assert found.notes == ("3 lone surrogates replaced by U+FFFD",)
    first, second = found.items
    assert first.prompt[0].content == "a\ufffdb"
    assert [c.text for c in first.candidates] == ["\ufffd\ufffd", "😀"]
    assert second.prompt[0].content == "\\ud800"


def test_one_lone_surrogate_in_an_array(tmp_path):
    (tmp_path / "a.json").write_text('[{"prompt": "\\udabc", "chosen": "x", "rejected": "y"}]')
    assert load(str(tmp_path / "a.json")).notes == ("1 lone surrogate replaced by U+FFFD",)


@pytest.mark.parametrize(
    "text",
    [
        "{answer_b} {{x}} %s ${HOME}",
        "<script>alert(1)</script> </response> [[A]]",
        "a\0b",
        "line\u2028separator\u0085\x0c",
        "ไทย العربية עברית 한국어 ሀለሐ 👩‍👩‍👧 e\u0301",
        "\u202eright to left",
    ],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_any_text_is_kept(tmp_path, text, ascii):
    path = tmp_path / "a.jsonl"
    row = pair(prompt=text, chosen=text, rejected=text + "!")
    path.write_bytes((json.dumps(row, ensure_ascii=ascii) + "\r\n").encode())
    item = load(str(path)).items[0]
    assert item.prompt[0].content == text
    assert item.candidates[0].text == text


def test_ten_megabyte_prompt(tmp_path):
    text = "長" * 3_500_000
    item = load(write(tmp_path / "a.jsonl", pair(prompt=text))).items[0]
    assert item.prompt[0].content == text


def test_blank_lines_are_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n  \n" + json.dumps(native()) + "\n\n\r\n")
    assert len(load(str(path)).items) == 1


@pytest.mark.slow
def test_a_hundred_thousand_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text((json.dumps(pair()) + "\n") * 100_000)
    items = load(str(path)).items
    assert len(items) == 100_000
    assert items[-1].id == "row-100000"
