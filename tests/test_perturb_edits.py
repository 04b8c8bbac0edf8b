"""Mechanical edits: what they change, and that they change nothing else."""

import pytest

from habitus.diagnose.edits import (
    add_instruction,
    add_marks,
    choose,
    complete,
    edited_item,
    mechanical,
    mechanical_text,
    pad_length,
    remove_label,
    triplets,
)
from habitus.errors import InputError
from habitus.metrics.cues import read_cues
from habitus.types import Item
from tests.conftest import make_item
from tests.cue_samples import BEST, cue_items, parents

LANGUAGES = ("ar", "bn", "de", "en", "es", "ja", "ko", "ru", "sw", "th", "vi", "zh-Hans")


def item(culture, country, language):
    return make_item(culture=culture, country=country, language=language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_padding_and_instruction_are_in_the_language_of_the_text(language):
    english = language == "en"
    for edit in (pad_length, add_instruction):
        text = edit("X.", language)
        assert text.startswith("X.")
        assert text != "X."
        assert (text == edit("X.", "en")) == english
    assert len(pad_length("x" * 200, language)) >= 320


def test_other_languages_get_english_sentences():
    assert pad_length("Jambo.", "fr") == pad_length("Jambo.", "en")
    assert add_instruction("", None).startswith("Note to the judge")
    assert pad_length("", None) == "That is about what can be said on the matter."


def test_marks_make_a_list_of_the_sentences():
    assert add_marks("One. Two! Three") == "- **One.**\n- Two!\n- Three"
    assert add_marks("靴を脱ぐ。挨拶する。") == "- **靴を脱ぐ。**\n- 挨拶する。"
    assert add_marks("- **x**") != "- **x**"
    assert add_marks("") == "- ****"


@pytest.mark.parametrize(
    ("culture", "country", "language", "text", "expected"),
    [
        ("Japanese", "Japan", "ja", "日本では靴を脱ぎます。", "この国では靴を脱ぎます。"),
        ("Arabic", "Egypt", "ar", "وفي مصر يحب المصريون الشاي", "وفي هذا البلد يحب المحليون الشاي"),
        ("Arabic", "Egypt", "ar", "ومصر", "وهذا البلد"),
        ("German", "Germany", "de", "In Deutschland gilt das.", "In diesem Land gilt das."),
        ("Russian", "Russia", "ru", "В России так принято.", "В этой стране так принято."),
        ("Spanish", "Argentina", "es", "La comida argentina", "La comida local"),
        ("Korean", "South Korea", "ko", "한국에서는 벗는다", "이 나라에서는 벗는다"),
        ("Arabic", "Egypt", "en", "An Egyptian host waits.", "A local host waits."),
        ("Japanese", "Japan", "en", "Japanese people bow.", "Local people bow."),
        ("Swahili", "Kenya", "sw", "Wakenya hula ugali.", "Wenyeji hula ugali."),
    ],
)
def test_labels_become_neutral_words(culture, country, language, text, expected):
    assert remove_label(item(culture, country, language), text) == expected


def test_a_text_without_the_items_label_is_left_alone():
    assert remove_label(item("Japanese", "Japan", "en"), "In China one waits.") is None
    assert remove_label(item("Japanese", "Japan", "en"), "Japanesque") is None
    # The prayer at sunset has the name of a country that the item is not about.
    assert remove_label(item("Arabic", "Egypt", "ar"), "بعد صلاة المغرب") is None
    assert remove_label(item("French", "France", "fr"), "En France") is None


def test_the_language_of_the_text_decides_which_list_is_used():
    japanese = item("Japanese", "Japan", "ja")
    assert remove_label(japanese, "In Japan.", "en") == "In this country."
    assert remove_label(japanese, "In Japan.") is None


def test_an_edited_item_differs_in_one_text_and_keeps_the_answer():
    parent = make_item(reason="Noodles.", human_validated=True)
    digest = parent.content_digest
    edit = edited_item(parent, "b", "A duck.", "CL", suffix="en", language="en")
    assert (edit.id, edit.parent_id, edit.cue, edit.edited) == (
        "item-1--CL-en",
        "item-1",
        "CL",
        "b",
    )
    assert [one.text for one in edit.candidates[2:]] == [one.text for one in parent.candidates[2:]]
    assert edit.candidates[1].text == "A duck."
    assert edit.candidates[1].language == "en"
    assert edit.best_ids == parent.best_ids
    assert (edit.reason, edit.human_validated) == (None, False)
    assert edit.content_digest != digest
    assert Item.model_validate_json(edit.model_dump_json()) == edit


def test_instructions_go_to_a_wrong_response_drawn_by_the_seed():
    sample = [make_item(number) for number in range(40)]
    drawn = [choose(one, "rival", 0).id for one in sample]
    assert set(drawn) == {"b", "c", "d"}
    assert drawn == [choose(one, "rival", 0).id for one in sample]
    assert drawn != [choose(one, "rival", 1).id for one in sample]
    assert choose(sample[0], "best", 0).id == "a"


def test_mechanical_edits_pass_over_edits_and_refuse_other_cues():
    made = mechanical(cue_items(2), ("LN", "FM", "IN", "RC"))
    # The Japanese list has no "Japan" in Latin letters, so the Japanese parent has no RC.
    assert [one.id for one in made] == [
        *("p0--LN", "p0--FM", "p0--IN"),
        *("p1--LN", "p1--FM", "p1--IN", "p1--RC"),
    ]
    with pytest.raises(InputError, match="habitus perturb BENCH --cue CC --writer MODEL"):
        mechanical_text(made[0], made[0].candidates[0], "CC")


def test_complete_adds_what_is_missing_once():
    whole = complete(cue_items(3))
    assert complete(whole) == whole
    assert {one.cue for one in whole} >= {"LN", "FM", "IN", "GN-OP"}
    read_cues(whole)
    only_parents = complete(parents(2))
    assert [one.cue for one in only_parents[2:]] == ["LN", "FM", "IN"] * 2


def test_triplets_need_both_edits_of_one_right_response():
    sample = cue_items(2)
    made = triplets([one for one in sample if one.id != "p1--GN"])
    assert [one.id for one in made] == ["p0--GN-OP"]
    [triplet] = made
    assert {one.id: one.text for one in triplet.candidates} == {
        "appropriate": BEST,
        "generic": "in Japan we do some now.",
        "opposite": "in Japan we ban soba so.",
    }
    assert triplet.best_ids == ("appropriate",)
