"""BLEnD: one item per question and region, whose form gives nothing away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from habitus.data import load
from habitus.data.answers import clean, kind, same
from habitus.errors import InputError

REGIONS = ["Greece", "Iran", "Mexico", "Spain", "China"]


def entry(region, *votes, **idks):
    """A question as published; votes are (count, wording, wording, ...)."""
    return {
        "question": "…",
        "en_question": f"What is eaten in {region}?",
        "annotations": [
            {"answers": ["…"], "en_answers": list(wordings), "count": count}
            for count, *wordings in votes
        ],
        "idks": {"idk": 0, "no-answer": 0, "not-applicable": 0, **idks},
    }


@pytest.fixture
def blend(tmp_path):
    """Write regions' annotations and load them; `votes` is {region: entry or list of votes}."""

    def write(folder="annotations", **votes):
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        for region, value in votes.items():
            found = value if isinstance(value, dict) else entry(region, *value)
            (place / f"{region}_data.json").write_text(json.dumps({"Q-1": found}))
        return tmp_path

    return write


FOODS = {
    "Greece": [(4, "Moussaka"), (1, "rice")],
    "Iran": [(3, "kebab")],
    "Mexico": [(3, "tacos", "taco")],
    "Spain": [(5, "paella")],
    "China": [(2, "dumplings")],
}


def item_of(found, region):
    return next(item for item in found.items if item.id == f"Q-1:{region}")


def shown(found, region):
    return [candidate.text for candidate in item_of(found, region).candidates]


def test_item(blend):
    found = load(str(blend(**FOODS)))
    assert found.format == "blend"
    assert len(found.items) == 5
    item = item_of(found, "Greece")
    assert [m.content for m in item.prompt] == ["What is eaten in Greece?"]
    assert item.best_ids == ("chosen",)
    assert item.candidates[0].text == "moussaka"
    assert len(item.candidates) == 4
    assert set(shown(found, "Greece")[1:]) < {"kebab", "tacos", "paella", "dumplings"}
    assert (item.culture, item.country, item.language) == ("Greek", "Greece", "en")
    assert (item.source, item.licence, item.domain) == ("blend", "CC-BY-SA-4.0", "commonsense")
    assert item.parent_id == "Q-1"
    cultures = {"kebab": "Iranian", "tacos": "Mexican", "paella": "Spanish", "dumplings": "Chinese"}
    assert all(c.culture == cultures[c.text] for c in item.candidates[1:])


@pytest.mark.parametrize("folder", [".", "annotations", "data/annotations"])
def test_where_the_files_may_be(blend, folder):
    assert len(load(str(blend(folder, **FOODS))).items) == 5


def test_one_file_gives_one_region(blend):
    path = blend(**FOODS) / "annotations" / "Iran_data.json"
    found = load(str(path))
    assert [item.id for item in found.items] == ["Q-1:Iran"]
    assert found.items == tuple(i for i in load(str(path.parent)).items if i.country == "Iran")


def test_seed(blend):
    path = str(blend(**FOODS))
    assert load(path, seed=1).items == load(path, seed=1).items
    drawn = {tuple(shown(load(path, seed=seed), "Greece")) for seed in range(10)}
    assert len(drawn) > 1


def test_tied_vote_is_decided_by_the_seed(blend):
    path = str(blend(**{**FOODS, "Greece": [(3, "moussaka"), (3, "souvlaki")]}))
    best = {shown(load(path, seed=seed), "Greece")[0] for seed in range(20)}
    assert best == {"moussaka", "souvlaki"}
    assert not {"moussaka", "souvlaki"} & set(shown(load(path), "Greece")[1:])


def test_rejected_is_nothing_that_a_local_said(blend):
    # "rice" is said by one Greek; so the Iranian majority cannot be rejected there.
    found = load(str(blend(**{**FOODS, "Iran": [(3, "Rice!")]})))
    assert "rice" not in shown(found, "Greece")
    assert shown(found, "Iran")[0] == "rice!"


@pytest.mark.parametrize("other", ["moussakas", "mousaka", "vegetable moussaka", "the Moussaka"])
def test_rejected_is_nothing_near(blend, other):
    found = load(str(blend(**{**FOODS, "Iran": [(3, other)]})))
    assert set(shown(found, "Greece")[1:]) == {"tacos", "paella", "dumplings"}


def test_rejected_differ_from_each_other(blend):
    found = load(str(blend(**{**FOODS, "Iran": [(3, "a taco")]})))
    for region in ("Greece", "Spain", "China"):
        assert len({"a taco", "tacos"} & set(shown(found, region)[1:])) == 1


def test_other_wordings_count(blend):
    # The Iranian answer is shown as "kebab", but one of its wordings is what the Greeks said.
    found = load(str(blend(**{**FOODS, "Iran": [(3, "kebab", "moussaka")]})))
    assert "kebab" not in shown(found, "Greece")


def test_the_usual_wording_is_shown(blend):
    # Greece and Spain use "filo pastry" too, so it says less about Iran than "bakhlava".
    votes = {
        **FOODS,
        "Iran": [(3, "bakhlava", "filo pastry")],
        "Greece": [(4, "moussaka"), (1, "filo pastry")],
    }
    assert shown(load(str(blend(**votes))), "Iran")[0] == "filo pastry"


@pytest.mark.parametrize(
    ("greek", "reason"),
    [
        ([], "no local person answered"),
        ([(3,)], "no local person answered"),
        ([(1, "moussaka"), (1, "rice")], "no clear majority answer"),
        (
            entry("Greece", (2, "moussaka"), idk=2, **{"not-applicable": 1}),
            "no clear majority answer",
        ),
        ([(4, "Greek salad")], "the majority answer names the region"),
        ([(4, "12")], "fewer than three usable answers from other regions"),
    ],
)
def test_left_out_and_counted(blend, greek, reason):
    found = load(str(blend(**{**FOODS, "Greece": greek})))
    assert not [item for item in found.items if item.country == "Greece"]
    assert found.skipped == {reason: 1}


def test_an_answer_that_names_its_region_is_not_rejected_elsewhere(blend):
    found = load(str(blend(**{**FOODS, "China": [(4, "Chinese cabbage")]})))
    assert all("chinese cabbage" not in shown(found, r) for r in ("Greece", "Iran", "Spain"))


def test_an_answer_that_names_the_asked_region_is_not_rejected(blend):
    found = load(str(blend(**{**FOODS, "China": [(4, "greek salad")]})))
    assert "greek salad" not in shown(found, "Greece")


def test_numbers_only_against_numbers(blend):
    votes = {
        "Greece": [(4, "12")],
        "Iran": [(4, "13")],
        "Mexico": [(4, "14")],
        "Spain": [(4, "15")],
        "China": [(4, "twelve")],
    }
    found = load(str(blend(**votes)))
    assert len(found.items) == 4
    assert set(shown(found, "Greece")) == {"12", "13", "14", "15"}
    assert found.skipped == {"fewer than three usable answers from other regions": 1}


def test_a_part_of_a_country_is_not_set_against_the_country(blend):
    votes = {**FOODS, "Indonesia": [(4, "rendang")], "West_Java": [(4, "lotek")]}
    path = str(blend(**votes))
    for seed in range(8):
        found = load(path, seed=seed)
        assert "rendang" not in shown(found, "West_Java")
        assert "lotek" not in shown(found, "Indonesia")


def test_errors_name_file_and_question(blend, tmp_path):
    path = blend(**{**FOODS, "Iran": {"en_question": "?", "annotations": [{"count": 1}]}})
    with pytest.raises(
        InputError, match=r"Iran_data.json, question 'Q-1': annotations.0.en_answers: is missing"
    ):
        load(str(path))
    (tmp_path / "annotations" / "Iran_data.json").write_text("[]")
    with pytest.raises(InputError, match=r"Iran_data.json: expected an object of question id"):
        load(str(path))


def test_no_annotations(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(InputError, match=r"no <Region>_data.json here"):
        load(str(tmp_path), format="blend")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", "number"),
        ("3.5", "number"),
        ("1,000", "number"),
        ("50%", "number"),
        ("18:00", "time"),
        ("9:00 PM", "time"),
        ("7 pm", "time"),
        ("12/31", "date"),
        ("9 months", "digits"),
        ("covid 19", "digits"),
        ("rice", "words"),
        ("twelve", "words"),
    ],
)
def test_kind(text, expected):
    assert kind(text) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Ice-cream", "ice cream", True),
        ("water park", "Waterpark!", True),
        ("sandwich", "sandwiches", True),
        ("berry", "berries", True),
        ("running", "to run", True),
        ("tea", "green tea", True),
        ("bread and tea", "tea with bread", True),
        ("makrout", "makroud", True),
        ("pétanque", "petanque", True),
        ("12", "13", False),
        ("1990s", "1980s", False),
        ("12:00", "12:30", False),
        ("football", "basketball", False),
        ("rice", "ice", False),
        ("Iran", "Iraq", False),
        ("spring", "summer", False),
    ],
)
def test_same(one, other, expected):
    assert same(one, other) is expected
    assert same(other, one) is expected


def test_clean():
    assert clean(" Barça (short for a football club). ") == "barça"
    assert clean("(unknown)") == "(unknown)"


@pytest.mark.slow
def test_the_published_data():
    folder = os.environ.get("HABITUS_DATA")
    if not folder or not (Path(folder) / "blend").is_dir():
        pytest.skip("HABITUS_DATA names no folder with blend")
    found = load(str(Path(folder) / "blend"))
    assert len(found.items) > 4000
    assert len(found.items) + sum(found.skipped.values()) == 16 * 500
    assert len({item.country for item in found.items}) == 16
    assert all(len(item.candidates) == 4 for item in found.items)
    assert all(len({kind(c.text) for c in item.candidates}) == 1 for item in found.items)
    assert all(c.text == c.text.lower() for item in found.items for c in item.candidates)
    for sign in (1, -1):  # neither the longest nor the shortest answer is far from chance
        right = 0.0
        for item in found.items:
            lengths = [sign * len(c.text) for c in item.candidates]
            right += (lengths[0] == max(lengths)) / lengths.count(max(lengths))
        assert abs(right / len(found.items) - 0.25) < 0.04
