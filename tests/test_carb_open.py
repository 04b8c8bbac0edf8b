"""The bundled benchmark keeps what its data card promises."""

from collections import Counter

import pytest

from habitus.data import load

DOMAINS = ("commonsense", "values", "safety", "linguistics")
TEN = {
    "Arabic",
    "Chinese",
    "English",
    "German",
    "Japanese",
    "Korean",
    "Russian",
    "Spanish",
    "Thai",
    "Vietnamese",
}
LOW_RESOURCE = {"Bengali", "Swahili"}
PARTS = ("carb-open", "carb-open:dev", "carb-open:train")


@pytest.fixture(scope="module")
def parts():
    return {name: load(name).items for name in (*PARTS, "carb-open:quick", "carb-open:all")}


def best(item):
    [right] = [one for one in item.candidates if one.id in item.best_ids]
    return right


def test_parts_are_fixed_and_disjoint(parts):
    ids = [item.id for name in PARTS for item in parts[name]]
    assert len(set(ids)) == len(ids)
    assert set(ids) == {item.id for item in parts["carb-open:all"]}
    assert {item.id for item in parts["carb-open:quick"]} <= {
        item.id for item in parts["carb-open:dev"]
    }
    assert len(parts["carb-open"]) >= 320
    assert len(parts["carb-open:quick"]) == 40


def test_every_cell_has_its_items(parts):
    cells = Counter((item.culture, item.domain) for item in parts["carb-open:all"])
    assert set(cells) == {(c, d) for c in TEN | LOW_RESOURCE for d in DOMAINS}
    assert all(n >= 10 for (culture, _), n in cells.items() if culture in TEN)
    assert all(n >= 5 for (culture, _), n in cells.items() if culture in LOW_RESOURCE)
    countries = {(item.culture, item.country) for item in parts["carb-open:all"]}
    several = Counter(culture for culture, _ in countries)
    for culture in ("Arabic", "Spanish", "English", "German", "Chinese"):
        assert several[culture] >= 3, culture


def test_every_item_is_documented(parts):
    for item in parts["carb-open:all"]:
        assert len(item.candidates) == 4, item.id
        assert len(set(item.best_ids)) == 1, item.id
        assert item.references, item.id
        assert item.reason, item.id
        assert item.gloss, item.id
        assert all(one.note for one in item.candidates), item.id
        assert (item.author, item.human_validated) == ("language-model", False), item.id
        assert item.licence == "CC-BY-4.0", item.id
        if item.domain == "values":
            assert any(one.share is not None for one in item.references), item.id


def test_lengths_and_places_give_nothing_away(parts):
    """Lengths within an item are close, and the right one's rank and place are spread evenly."""
    items = parts["carb-open"]
    for item in items:
        lengths = [len(one.text) for one in item.candidates]
        assert max(lengths) <= 1.15 * min(lengths) or max(lengths) - min(lengths) <= 3, item.id
    for domain in DOMAINS:
        own = [item for item in items if item.domain == domain]
        ranks = Counter(
            sum(len(one.text) > len(best(item).text) for one in item.candidates) for item in own
        )
        places = Counter([one.id for one in item.candidates].index(best(item).id) for item in own)
        assert all(0.2 <= ranks[rank] / len(own) <= 0.3 for rank in range(4)), (domain, ranks)
        assert all(0.24 <= places[place] / len(own) <= 0.26 for place in range(4)), domain


@pytest.mark.slow
def test_no_door_is_open(parts):
    """The gates of the data card: 33 % overall and 40 % in a domain at most, languages right."""
    for name in ("sklearn", "lingua", "babel"):
        pytest.importorskip(name)
    from habitus.audit import audit

    found = audit(load("carb-open"))
    for rule in found.rules:
        assert not rule.where("open"), (rule.name, rule.where("open"))
        for outcome in rule.outcomes:
            if outcome.high is not None and not outcome.group:
                assert outcome.high <= 0.33, rule.name
            if outcome.high is not None and set(outcome.group) == {"domain"}:
                assert outcome.high <= 0.40, (rule.name, outcome.group)
    assert [check.name for check in found.checks if check.state == "failed"] == []
