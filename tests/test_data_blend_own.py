"""BLEnD in people's own language: other regions' answers in the words of this one's people."""

from __future__ import annotations

import json

import pytest

from habitus.data import load
from habitus.data.blend import UNCLEAR
from habitus.data.blend_own import ENGLISH, NO_WORDS
from habitus.errors import InputError


def entry(question, english, *votes):
    """A question as published; votes are (count, own wordings, English wordings)."""
    return {
        "question": question,
        "en_question": english,
        "annotations": [
            {"answers": own, "en_answers": en, "count": count} for count, own, en in votes
        ],
        "idks": {"idk": 0},
    }


DINNER = {
    "Spain": entry("¿Cena?", "Dinner?", (3, ["Paella"], ["paella"]), (1, ["pan"], ["bread"])),
    "Greece": entry("Δείπνο;", "Dinner?", (3, ["ρύζι"], ["rice"])),
    "China": entry("晚饭？", "Dinner?", (3, ["饺子"], ["dumplings"])),
    "Iran": entry("شام؟", "Dinner?", (3, ["نان"], ["bread"])),
    "UK": entry("Dinner?", "Dinner?", (3, ["roast"], ["roast"])),
}
LUNCH = {  # a second question, where people of Spain and Mexico have words for it
    "Spain": entry("¿Comida?", "Lunch?", (1, ["arroz"], ["Rice"]), (1, ["arroz blanco"], ["rice"])),
    "Mexico": entry("¿Comida?", "Lunch?", (4, ["empanadas"], ["patties", "dumplings"])),
}


@pytest.fixture
def blend(tmp_path):
    """Write the regions' annotations."""

    def write(**questions):
        for region in {region for entries in questions.values() for region in entries}:
            own = {id: entries[region] for id, entries in questions.items() if region in entries}
            (tmp_path / f"{region}_data.json").write_text(json.dumps(own, ensure_ascii=False))
        return load(str(tmp_path), format="blend-own")

    return write


def item(found, id):
    return next(one for one in found.items if one.id == id)


def test_question_and_answers_are_in_the_regions_language(blend):
    found = blend(dinner=DINNER, lunch=LUNCH)
    one = item(found, "dinner:Spain")
    assert one.prompt[0].content == "¿Cena?"
    assert (one.language, one.country, one.culture) == ("es", "Spain", "Spanish")
    assert (one.parent_id, one.source, one.licence) == ("dinner", "blend-own", "CC-BY-SA-4.0")
    texts = {candidate.culture: candidate.text for candidate in one.candidates}
    # Rice in Spain's own words: of two with equal votes the last by name. Dumplings in Mexico's,
    # the other region of the language. Bread is what a local said, roast has no Spanish word.
    assert texts == {"Spanish": "paella", "Greek": "arroz blanco", "Chinese": "empanadas"}
    assert one.best_ids == ("chosen",)


def test_the_wording_with_most_votes_is_taken(blend):
    spain = entry("¿Comida?", "Lunch?", (2, ["arroz"], ["rice"]), (1, ["arroz blanco"], ["rice"]))
    found = blend(dinner=DINNER, lunch=LUNCH | {"Spain": spain})
    texts = [candidate.text for candidate in item(found, "dinner:Spain").candidates]
    assert "arroz" in texts
    assert "arroz blanco" not in texts


def test_what_is_left_out_is_counted(blend):
    found = blend(dinner=DINNER, lunch=LUNCH)
    assert [one.id for one in found.items] == ["dinner:Spain"]
    # Dinner: Britain. Greece, China and Iran have words for nothing but their own answers.
    # Lunch: nobody in Spain agrees with another; Mexico has nothing to be set against.
    assert found.skipped == {ENGLISH: 1, NO_WORDS: 4, UNCLEAR: 1}


def test_a_translation_that_a_local_said_is_no_wrong_answer(blend):
    spain = entry("¿Cena?", "Dinner?", (3, ["Paella"], ["paella"]), (1, ["Arroz"], ["pilaf"]))
    lunch = {"Spain": entry("¿Comida?", "Lunch?", (2, ["arroz"], ["rice"]))}
    with pytest.raises(InputError, match="no item is left"):
        blend(dinner=DINNER | {"Spain": spain}, lunch=lunch)
