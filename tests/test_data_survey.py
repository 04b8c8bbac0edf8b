"""Items from the answer shares of surveys: GlobalOpinionQA and MENA Values."""

from __future__ import annotations

import csv
import json
import zipfile

import polars as pl
import pytest

from habitus.data import load
from habitus.data.countries import country, with_article
from habitus.data.survey import (
    BROKEN,
    REPEATED,
    SAME,
    TOO_FEW,
    TOO_LONG,
    UNANSWERED,
    UNCLEAR,
    clean_option,
    is_answer,
)
from habitus.errors import InputError

QUESTION = "How important is family in your life?"
ROW = {
    "country": "S. Korea",
    "question": QUESTION,
    "options": ["Very", "Somewhat", "Not at all", "Don't know"],
    "distribution": [0.6, 0.3, 0.05, 0.05],
}


def write(tmp_path, rows, name="a.json"):
    path = tmp_path / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


def shares(tmp_path, options, distribution):
    """The reasons for leaving a row out, beside a row that is taken."""
    row = {**ROW, "country": "Japan", "options": options, "distribution": distribution}
    found = load(write(tmp_path, [ROW, row]))
    return len(found.items) - 1, found.skipped


def test_an_item(tmp_path):
    found = load(write(tmp_path, [ROW]))
    item = found.items[0]
    assert found.format == "globalopinionqa"
    assert (item.country, item.culture, item.language) == ("South Korea", None, "en")
    assert (item.domain, item.licence) == ("values", "CC-BY-NC-SA-4.0")
    assert [c.text for c in item.candidates] == ["Very", "Somewhat", "Not at all"]
    assert item.best_ids == ("option-1",)
    assert item.prompt[0].content == (
        "In a survey in South Korea, people were asked the question below. Which answer was given "
        f"most often?\n\n{QUESTION}"
    )
    assert item.references[0].share == 0.6
    assert item.reason == "60% of those asked in South Korea answered: Very"
    assert item.candidates[1].note == "30% of those asked in South Korea"


def test_the_two_copies_in_one_folder_agree(tmp_path):
    other = {
        "question": f"Question: {QUESTION}\nOptions: A. Very B. Somewhat\nAnswer:",
        "options": ROW["options"],
        "attribute": "South Korea",
        "gold_distribution": ROW["distribution"],
        "pred_distribution": None,
        "id": 7,
    }
    write(tmp_path, [ROW], "a.json")
    write(tmp_path, [other, {**other, "attribute": "Philippines"}], "b.json")
    found = load(str(tmp_path))
    assert [item.country for item in found.items] == ["South Korea", "Philippines"]
    assert found.skipped == {REPEATED: 1}
    assert len({item.parent_id for item in found.items}) == 1
    assert "In a survey in the Philippines," in found.items[1].prompt[0].content
    assert found.notes == ()


def hub_row(**fields):
    return {
        "question": QUESTION,
        "selections": "defaultdict(<class 'list'>, {'Britain': [0.7, 0.3], "
        "'India (Non-national sample)': [0.1, 0.9]})",
        "options": "['Yes', \"Don't mind\"]",
        "source": "GAS",
        **fields,
    }


def test_the_csv_of_the_hub(tmp_path):
    path = tmp_path / "global_opinions.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, hub_row())
        table.writeheader()
        table.writerow(hub_row())
    britain, india = load(str(path)).items
    assert (britain.country, india.country) == ("United Kingdom", "India")
    assert (britain.best_ids, india.best_ids) == (("option-1",), ("option-2",))
    assert india.id.endswith(":India (non-national sample)")
    assert india.reason is not None
    assert india.reason.endswith("(non-national sample)")
    assert india.references[0].publisher == "Pew Research Center, Global Attitudes Survey"


def test_the_parquet_of_the_hub(tmp_path):
    path = tmp_path / "a.parquet"
    selections = [{"Japan": [0.8, 0.2], "Peru": None}, {"Japan": None, "Peru": [0.0, 1.0]}]
    pl.DataFrame(
        {
            "question": ["One?", "Two?"],
            "selections": selections,
            "options": [["Yes", "No"], ["Yes", "No"]],
        }
    ).write_parquet(path)
    found = load(str(path)).items
    assert [(item.country, item.best_ids) for item in found] == [
        ("Japan", ("option-1",)),
        ("Peru", ("option-2",)),
    ]


@pytest.mark.parametrize(
    "selections",
    ["{'Japan': __import__('os').getcwd()}", "{'Japan': [0.5,", "{" * 2000, "[0.5, 0.5]", "7"],
)
def test_a_dict_as_text_is_never_executed(tmp_path, selections):
    path = write(tmp_path, [hub_row(selections=selections)])
    with pytest.raises(InputError, match=r"row 1: column selections"):
        load(path)


def test_a_huge_literal_is_refused(tmp_path):
    path = write(tmp_path, [hub_row(selections="{" + " " * (1 << 20) + "}")])
    with pytest.raises(InputError, match="longer than 1,048,576 characters"):
        load(path)


@pytest.mark.parametrize(
    ("options", "distribution", "reason"),
    [
        (["a", "b"], [0.575, 0.425], None),  # leads by exactly 0.15
        (["a", "b"], [0.57, 0.43], UNCLEAR),
        (["a", "b", "DK/Refused"], [0.4, 0.1, 0.5], UNANSWERED),
        (["a", "b"], [0.6, 0.3], BROKEN),
        (["a", "b"], [1.6, -0.6], BROKEN),
        (["a", "b", "c"], [0.6, 0.4], BROKEN),
        (["a", "b"], [0.0, 0.0], BROKEN),
        (["a", "No answer"], [0.9, 0.1], TOO_FEW),
        (["Same (VOL)", "same (DO NOT READ)", "b"], [0.8, 0.1, 0.1], SAME),
        (["a" * 300, "b"], [0.9, 0.1], None),
        (["a" * 301, "b"], [0.9, 0.1], TOO_LONG),
    ],
)
def test_what_is_left_out(tmp_path, options, distribution, reason):
    made, skipped = shares(tmp_path, options, distribution)
    assert made == (reason is None)
    assert skipped == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("Don't know", False),
        ("Don’t Know", False),
        ("DK/Refused", False),
        ("Don't know/Refused", False),
        ("No answer/refused", False),
        ("Other missing; Multiple answers Mail (EVS)", False),
        ("Missing; Not available", False),
        ("Hard to say", False),
        ("No", True),
        ("No, I do not know anyone", True),
        ("I do not know examples concerned", True),
        ("None of them", True),
        ("Neither agree nor disagree", True),
        ("Natural disasters", True),
        ("No answer is right", True),
    ],
)
def test_what_counts_as_an_answer(option, expected):
    assert is_answer(option) is expected


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("Neither (VOL)", "Neither"),
        ("Climate  change (Vol.)", "Climate change"),
        ("Both (DO NOT READ)", "Both"),
        ("Both (Values/Policies)", "Both (Values/Policies)"),
        ("(Survey country) should help", "The Philippines should help"),
        ("If (survey country) helped", "If the Philippines helped"),
    ],
)
def test_an_option_as_shown(option, expected):
    assert clean_option(option, "the Philippines") == expected


def test_points_of_a_scale(tmp_path):
    row = {**ROW, "options": [1.0, 2.0, 10], "distribution": [0.1, 0.2, 0.7]}
    assert [c.text for c in load(write(tmp_path, [row])).items[0].candidates] == ["1", "2", "10"]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("S. Korea", ("South Korea", None)),
        ("Great Britain", ("United Kingdom", None)),
        ("Northern Ireland", ("Northern Ireland", None)),
        ("India (Old national sample)", ("India", "old national sample")),
        ("Czech Rep.", ("Czechia", None)),
        ("Guinea (Conakry)", ("Guinea (Conakry)", None)),
    ],
)
def test_country_names(label, expected):
    assert country(label) == expected


def test_article():
    assert with_article("United States") == "the United States"
    assert with_article("Japan") == "Japan"


# --- MENA Values ---

ABOUT = ["Source", "Sub Question", "Min", "MAX", "Scale", "Category", "Sub Category"]


def workbook(tmp_path, questions, countries, sheet=None):
    """Write the workbook: shared strings for the first column, inline strings for the others."""
    rows = [[name, *("1" if name == "Min" else "x" for _ in questions)] for name in ABOUT]
    rows[3] = ["MAX", *(str(high) for _, high in questions)]
    rows.append(["Full Question", *(text for text, _ in questions)])
    rows += [[name, *cells] for name, cells in countries.items()]
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    strings = "".join(
        f"<si><r><t>{row[0][:2]}</t></r><r><t>{row[0][2:]}</t></r></si>" for row in rows
    )
    lines = ""
    for number, row in enumerate(rows, start=1):
        cells = "".join(
            f'<c r="{chr(66 + i)}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
            for i, text in enumerate(row[1:])
        )
        lines += f'<row r="{number}"><c r="A{number}" t="s"><v>{number - 1}</v></c>{cells}</row>'
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("xl/sharedStrings.xml", f"<sst {space}>{strings}</sst>")
        book.writestr(
            "xl/worksheets/sheet1.xml",
            sheet or f"<worksheet {space}><sheetData>{lines}</sheetData></worksheet>",
        )
    return str(path)


def test_mena_values(tmp_path):
    questions = [
        ("Do you trust the press? 1: A lot, 2: A little, 3: Not at all.", 3),
        ("How proud are you? With '1' being 'very' and '2' being 'not'. Provide a number.", 2),
        ("How free are you, with '1' being 'not' and '10' being 'fully'?", 10),
    ]
    path = workbook(
        tmp_path,
        questions,
        {
            "Egypt": ["(1.2, {'1.0': '80.00%', '2.0': '20.00%'})", "(1, {'2': '100%'})", "(1, {})"],
            "Palestine": ["(No data, {})", "(1.5, {'1': '51.0%', '2': '49.0%'})", ""],
        },
    )
    found = load(path)
    press, pride = found.items
    assert found.format == "mena-values"
    assert press.prompt[0].content.endswith("\n\nDo you trust the press?")
    assert [c.text for c in press.candidates] == ["A lot", "A little", "Not at all"]
    assert (press.best_ids, press.country, press.licence) == (("option-1",), "Egypt", "MIT")
    assert pride.prompt[0].content.endswith("\n\nHow proud are you?")
    assert pride.best_ids == ("option-2",)
    assert found.skipped == {
        "a country that was not asked": 1,
        UNCLEAR: 1,
        "the question does not say what its numbers stand for": 1,
    }
    assert load(str(tmp_path)).items == found.items


def test_a_workbook_with_entities_is_refused(tmp_path):
    sheet = '<!DOCTYPE a [<!ENTITY b "c">]><worksheet>&b;</worksheet>'
    with pytest.raises(InputError, match="declares entities"):
        load(workbook(tmp_path, [], {}, sheet))


def test_not_a_workbook(tmp_path):
    (tmp_path / "a.xlsx").write_text("a,b")
    with pytest.raises(InputError, match=r"a\.xlsx: not a readable Excel workbook"):
        load(str(tmp_path / "a.xlsx"))


def test_another_workbook(tmp_path):
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    sheet = f'<worksheet {space}><row><c r="A1"><v>3</v></c></row></worksheet>'
    with pytest.raises(InputError, match="no row 'Full Question'"):
        load(workbook(tmp_path, [], {}, sheet))
