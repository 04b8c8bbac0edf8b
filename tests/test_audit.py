"""Audit: planted doors are found, and only those."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("lingua")
pytest.importorskip("babel")

import habitus.audit
from habitus.audit import Audit, audit, siblings, write_json
from habitus.audit.doors import items_needed
from habitus.audit.labels import _pattern, names
from habitus.audit.model import Outcome
from habitus.audit.surface import surface_rules
from habitus.audit.table import Table, normal
from habitus.data import load
from habitus.data.benchmark import Benchmark
from habitus.data.sampling import take
from habitus.errors import InputError, MissingExtraError
from habitus.types import Candidate, Item
from tests.conftest import make_item

GREEK, GREEK_HIGH = "αβγδεζηθικλμ", "νξοπρτυφχψω"
THAI, THAI_HIGH = "กขคฆงจฉชซ", "บปผฝพฟภมยรล"
N = 240
"""Items of a planted benchmark; two domains."""


def words(draw: random.Random, count: int, letters: str = GREEK) -> list[str]:
    """Made-up words of six letters each: lingua tells Greek and Thai by their letters alone."""
    return ["".join(draw.choices(letters, k=6)) for _ in range(count)]


Plant = Callable[[random.Random, int, list[str], list[list[str]]], None]
"""Changes the words of the prompt and of the responses; the first response is right."""


def planted(plant: Plant | None = None, **fields: object) -> Benchmark:
    """A benchmark whose only pattern is what `plant` puts in."""
    draw = random.Random(1)
    items = []
    for number in range(N):
        prompt = words(draw, 8)
        responses = [words(draw, 4) for _ in range(4)]
        values: dict[str, object] = {
            "id": f"i{number}",
            "language": "el",
            "domain": ("values", "safety")[number % 2],
            **fields,
        }
        if plant is not None:
            plant(draw, number, prompt, responses)
        order = list(range(4))
        draw.shuffle(order)
        values["prompt"] = [{"role": "user", "content": " ".join(prompt)}]
        values["candidates"] = [{"id": "abcd"[k], "text": " ".join(responses[k])} for k in order]
        items.append(Item.model_validate(values | {"best_ids": ["a"]}))
    return Benchmark("planted", tuple(items), "native", Path("planted.jsonl"))


def opened(found: Audit) -> set[str]:
    return {rule.name for rule in found.rules if rule.verdict == "open"}


def rule(found: Audit, name: str) -> habitus.audit.Rule:
    return next(each for each in found.rules if each.name == name)


def check(found: Audit, name: str) -> habitus.audit.Check:
    return next(each for each in found.checks if each.name == name)


@pytest.fixture(scope="module")
def clean() -> Audit:
    return audit(planted(licence="CC-BY-4.0", source="test"))


def test_a_clean_benchmark_has_no_open_door(clean: Audit) -> None:
    assert opened(clean) == set()
    assert clean.failed == ()
    assert clean.clean
    assert rule(clean, "most-labels").verdict == "closed"  # nobody names the culture: all tie
    assert clean.headline.startswith("0 doors open, ")


def test_random_is_exact_and_counts_by_domain(clean: Audit) -> None:
    outcomes = rule(clean, "random").outcomes
    assert [(o.group, o.n, o.value) for o in outcomes] == [
        ({}, N, 0.25),
        ({"domain": "safety"}, N // 2, 0.25),
        ({"domain": "values"}, N // 2, 0.25),
    ]
    assert rule(clean, "random").verdict == "reference"


def test_longest_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        if number % 2 or number % 3:  # two thirds of the items
            texts[0][0] += draw.choice(GREEK)

    found = audit(planted(plant))
    # The longest response is a length rank, so both rules of length see the one door.
    assert opened(found) == {"longest", "length-by-domain"}


def test_length_by_domain_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        ranks = [1, 0, 2, 3] if number % 2 else [2, 0, 1, 3]  # the right one is of middle length
        if number % 5 == 0:
            draw.shuffle(ranks)
        for text, rank in zip(texts, ranks, strict=True):
            for place in range(rank):
                text[place] += draw.choice(GREEK)

    found = audit(planted(plant))
    assert opened(found) == {"length-by-domain"}
    learned = rule(found, "length-by-domain").learned
    assert {learned["safety, half 1"], learned["safety, half 2"]} == {
        "rank 0.33 (0 shortest, 1 longest)"
    }
    assert {learned["values, half 1"], learned["values, half 2"]} == {
        "rank 0.67 (0 shortest, 1 longest)"
    }


def test_a_marker_word_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        if draw.random() < 0.6:
            texts[0][draw.randrange(4)] = "ηηηηηη"

    assert opened(audit(planted(plant))) == {"wording"}


COUNTRIES = {
    "Greece": "Ελλάδα",
    "Italy": "Ιταλία",
    "France": "Γαλλία",
    "Serbia": "Σερβία",
    "Cyprus": "Κύπρος",
}


def test_the_mention_of_the_culture_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        own = list(COUNTRIES.values())[number % 5]
        others = [name for name in COUNTRIES.values() if name != own]
        mentioned = [own, *draw.sample(others, 3)]
        if number % 3 == 0:
            draw.shuffle(mentioned)
        for text, name in zip(texts, mentioned, strict=True):
            text[2] = name

    benchmark = planted(plant)
    items = tuple(
        item.model_copy(update={"country": list(COUNTRIES)[number % 5]})
        for number, item in enumerate(benchmark.items)
    )
    assert opened(audit(replace(benchmark, items=items))) == {"most-labels"}


def test_the_position_is_found_where_the_file_has_an_order() -> None:
    benchmark = planted()
    items = tuple(
        item
        if int(item.id[1:]) % 3 == 0
        else item.model_copy(update={"candidates": tuple(sorted(item.candidates, key=_id))})
        for item in benchmark.items
    )
    found = audit(replace(benchmark, items=items))
    assert opened(found) == {"position"}
    assert rule(found, "position").learned == {"half 1": "position 1", "half 2": "position 1"}
    # A format with the right response in a column of its own has no order to learn.
    unordered = audit(replace(benchmark, items=items[:40], format="generic"))
    assert rule(unordered, "position").verdict == "not run"
    assert rule(unordered, "position").outcomes == ()


def _id(candidate: Candidate) -> str:
    return candidate.id


def test_the_language_of_the_prompt_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        # Prompt and responses share no letter, so that they are like each other in nothing else.
        asked, own, other = (GREEK, GREEK_HIGH, THAI_HIGH)
        if number % 4 > 1:
            asked, own, other = (THAI, THAI_HIGH, GREEK_HIGH)
        prompt[:] = words(draw, 8, asked)
        wrong = other if draw.random() < 0.7 else own
        for place, text in enumerate(texts):
            text[:] = words(draw, 4, own if place == 0 else wrong)

    assert opened(audit(planted(plant, language=None))) == {"prompt-language"}


def test_likeness_to_the_prompt_is_found() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        if draw.random() < 0.7:
            texts[0][:2] = prompt[:2]

    assert opened(audit(planted(plant))) == {"most-similar"}


def test_a_door_in_one_domain_only_is_found_there() -> None:
    def plant(draw: random.Random, number: int, prompt: list[str], texts: list[list[str]]) -> None:
        texts[0 if number % 4 == 0 else draw.randrange(4)][0] += "1"

    # Digits: half of the domain "values" is given away, nothing in "safety".
    found = rule(audit(planted(plant)), "most-digits")
    places = {o.group.get("domain", "overall"): o.verdict for o in found.outcomes}
    assert places["values"] == "open"
    assert places["safety"] != "open"


def test_equal_input_gives_an_equal_file(clean: Audit, tmp_path: Path) -> None:
    again = audit(planted(licence="CC-BY-4.0", source="test"))
    first = write_json(clean, tmp_path / "a").read_bytes()
    assert write_json(again, tmp_path / "b").read_bytes() == first
    written = json.loads(first)
    assert written["schema"] == "habitus-audit-1"
    assert written["headline"] == clean.headline
    assert {each["name"] for each in written["rules"]} >= {"random", "longest", "wording"}
    assert set(written["versions"]) >= {"habitus", "scikit-learn", "lingua-language-detector"}


def test_few_items_are_undecided_and_say_how_many_would_decide() -> None:
    benchmark = planted()
    found = audit(replace(benchmark, items=benchmark.items[:24]))
    outcome = rule(found, "most-labels").overall
    assert outcome is not None
    assert (outcome.verdict, outcome.value) == ("undecided", 0.25)
    # 1.96^2 x 0.25 x 0.75 / 0.08^2 = 112.5
    assert outcome.n_needed == 113


def test_items_needed_takes_the_nearer_decision_and_counts_clusters() -> None:
    base = Outcome({}, 100, 50.0, 0.31, 0.2, 0.42, "bootstrap", 0.25, 0.1, 1.0)
    # Closing: 1.96^2 x 0.31 x 0.69 / 0.02^2 = 2054. Opening one of one tests:
    # 1.645^2 x 0.1875 / 0.06^2 = 140.9. Two items to a cluster: 281.8.
    assert items_needed(base, 0.33, 1) == 282
    at_bound = replace(base, value=0.25, chance=0.25)
    # Only closing is possible: 1.96^2 x 0.1875 / 0.08^2 = 112.5; twice that is 225.1.
    assert items_needed(at_bound, 0.33, 1) == 226
    assert items_needed(replace(base, value=None), 0.33, 1) is None


def test_other_chances_and_several_best() -> None:
    benchmark = planted()
    items = tuple(
        item.model_copy(update={"candidates": item.candidates[:2], "best_ids": ("a",)})
        if {"a"} <= {candidate.id for candidate in item.candidates[:2]}
        else item.model_copy(update={"best_ids": ("a", "b")})
        for item in benchmark.items
    )
    found = audit(replace(benchmark, items=items))
    overall = rule(found, "longest").overall
    assert found.chance == pytest.approx(0.5)  # 1 of 2 and 2 of 4
    assert overall is not None
    assert overall.value == pytest.approx(0.5)  # all lengths are equal, so credit is shared
    assert overall.bound == pytest.approx(0.58)


def test_the_surface_of_responses_by_hand() -> None:
    texts = ("- one\n- two", "**x** (y)", "１２ and 3", "plain 😀")
    candidates = [{"id": name, "text": text} for name, text in zip("abcd", texts, strict=True)]
    table = Table((make_item(candidates=candidates),), 0)
    scores = {each.name: each.scores for each in surface_rules(table, ordered=True)}
    assert scores["longest"] is not None
    assert scores["longest"].tolist() == [11, 9, 8, 7]
    assert scores["most-marks"] is not None
    # Two list marks and a line end; two bold marks and two brackets; none; one emoji.
    assert scores["most-marks"].tolist() == [3, 4, 0, 1]
    assert scores["most-digits"] is not None
    assert scores["most-digits"].tolist() == [0, 0, 3, 0]
    assert scores["most-punctuation"] is not None
    assert scores["most-punctuation"].tolist() == [2, 6, 0, 0]


def test_names_of_cultures_come_in_both_languages() -> None:
    thai = make_item(culture="Thai", country="Thailand", language="th")
    assert set(names(thai)) == {"thailand", "thai", "ไทย"}
    german = make_item(culture="German", country="Germany", language="de-AT")
    assert {"germany", "deutschland", "deutsch", "german"} <= set(names(german))
    assert {"myanmar", "burma"} <= set(names(make_item(culture=None, country="Myanmar (Burma)")))


@pytest.mark.parametrize(
    ("country", "culture", "language", "text", "mentions"),
    [
        ("Algeria", None, None, "Algeria, an Algerian dish of Algiers", 2),
        ("Niger", None, None, "Nigeria is not Niger.", 1),
        ("Oman", None, None, "A woman in Oman", 1),
        ("Thailand", None, "th", "อาหารไทยในประเทศไทย", 2),
        ("China", "Chinese", "zh-Hans", "中国人喜欢中文", 2),
        (None, "Arabic", "ar", "اللغة العربية", 1),
        ("United States", None, None, "us and the United States", 1),
    ],
)
def test_mentions_by_hand(
    country: str | None, culture: str | None, language: str | None, text: str, mentions: int
) -> None:
    pattern = _pattern(culture, country, language)
    assert pattern is not None
    assert len(pattern.findall(normal(text))) == mentions


def test_nothing_to_name_and_nothing_to_train_on() -> None:
    benchmark = planted(parent_id="one", language=None)
    found = audit(replace(benchmark, items=benchmark.items[:20]))
    assert rule(found, "wording").verdict == "not run"
    assert rule(found, "most-labels").verdict == "not run"
    # All items are variants of one: they count as one cluster, which decides nothing.
    assert opened(found) == set()


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"overall margin is 1\.5; give a share above 0"):
        audit(planted(), overall_margin=1.5)
    monkeypatch.setattr(habitus.audit, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"habitus\[audit\]"):
        audit(planted())


def test_only_bundled_parts_have_siblings() -> None:
    assert siblings(planted()) == ()
    quick = load("carb-open:quick")
    assert all(part.path != quick.path for part in siblings(quick))


@pytest.mark.slow
@pytest.mark.skipif("HABITUS_DATA" not in os.environ, reason="needs HABITUS_DATA")
def test_blend() -> None:
    blend = load(str(Path(os.environ["HABITUS_DATA"]) / "blend"))
    found = audit(replace(blend, items=take(blend.items, 300)))
    assert found.chance == 0.25
    assert rule(found, "position").verdict == "not run"
    assert check(found, "provenance").facts["licence"] == 1.0
