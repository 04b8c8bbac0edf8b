"""Audit: duplicates, languages, leakage and the data card, planted and found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("lingua")
pytest.importorskip("babel")

from habitus.audit import card, checks, duplicates
from habitus.audit.checks import excerpt
from habitus.audit.duplicates import fold_groups, near_duplicates
from habitus.audit.language import Found, base, identify, same
from habitus.audit.model import MAX_ROWS
from habitus.audit.table import Table, normal
from habitus.data.benchmark import Benchmark
from habitus.types import Item
from tests.conftest import make_item

TEXTS = (
    "What is served first at a wedding in the mountains of the north?",
    "Which gift would offend the host of a dinner for the new year?",
    "How does one greet an elder who comes into the room unannounced?",
    "Who pays the bill when four colleagues eat out after work together?",
)


def ask(number: int, text: str, **fields: object) -> Item:
    return make_item(number, prompt=[{"role": "user", "content": text}], **fields)


def benchmark(*items: Item) -> Benchmark:
    return Benchmark("other", items, "native", Path("other.jsonl"))


def test_normal_form() -> None:
    assert normal(" Ａ  cafe\u0301\n") == normal("a CAFÉ")


def test_same_prompts() -> None:
    items = [ask(number, text) for number, text in enumerate(TEXTS)]
    assert checks.duplicate_prompts(Table(tuple(items), 0)).state == "ok"
    items += [ask(4, TEXTS[0].upper() + " "), ask(5, TEXTS[1], parent_id="item-1")]
    found = checks.duplicate_prompts(Table(tuple(items), 0))
    # The variant of item-1 is of the same parent, so it is no finding.
    assert (found.state, found.facts) == ("note", {"items": 2, "prompts": 1})
    assert found.rows[0][:2] == ("item-0, item-4", "2")


def test_same_items() -> None:
    first, second = ask(1, TEXTS[0]), ask(2, TEXTS[0])
    turned = second.model_copy(update={"candidates": second.candidates[::-1], "best_ids": ("b",)})
    found = checks.duplicate_items(Table((first, turned, ask(3, TEXTS[1])), 0))
    assert (found.state, found.facts["repeated"]) == ("failed", 1)
    assert found.rows == (("item-1, item-2", "2", "differs"),)
    assert checks.duplicate_items(Table((first, ask(3, TEXTS[1])), 0)).state == "ok"


def test_nearly_same_prompts() -> None:
    items = [ask(number, text) for number, text in enumerate(TEXTS)]
    items += [ask(4, TEXTS[0].replace("served", "serves")), ask(5, TEXTS[1] + " ", parent_id="x")]
    items += [ask(6, TEXTS[2].replace("elder", "elders"), parent_id="item-2")]
    table = Table(tuple(items), 0)
    near = near_duplicates(table, MAX_ROWS)
    assert [(a, b) for a, b, _ in near.pairs] == [(0, 4)]
    assert (near.n_pairs, near.n_related, near.distinct, near.compared) == (1, 1, 6, 6)
    assert near.group[0] == near.group[4]
    assert len(set(near.group.tolist())) == 4
    found = checks.near_duplicate_prompts(table, near)
    assert found.state == "note"
    assert found.sentence.startswith("1 pair of prompts of different parents are nearly")
    assert found.rows[0][:2] == ("item-0", "item-4")
    # Folds keep near-duplicates and parents together: {0, 4}, {1, 5}, {2, 6}, {3}.
    groups = fold_groups(table, near)
    assert len(set(groups.tolist())) == 4
    assert groups[1] == groups[5]
    assert groups[2] == groups[6]


def test_chains_of_near_duplicates_are_one_group() -> None:
    label = np.arange(5)
    label = duplicates._joined(label, np.array([1]), np.array([3]))
    label = duplicates._joined(label, np.array([3]), np.array([4]))
    assert label.tolist() == [0, 1, 2, 1, 1]


def test_a_sample_of_many_prompts_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_PROMPTS", 3)
    table = Table(tuple(ask(number, text) for number, text in enumerate(TEXTS)), 0)
    near = near_duplicates(table, MAX_ROWS)
    assert (near.compared, near.distinct) == (3, 4)
    sentence = checks.near_duplicate_prompts(table, near).sentence
    assert "A sample of 3 of 4 prompts was compared." in sentence


def test_same_responses() -> None:
    def with_texts(number: int, *texts: str) -> Item:
        pairs = zip("abcd", texts, strict=True)
        return make_item(number, candidates=[{"id": key, "text": text} for key, text in pairs])

    wrong_twice = with_texts(1, "one", "two", " TWO ", "four")
    found = checks.duplicate_candidates(Table((wrong_twice,), 0))
    assert (found.state, found.rows[0][:3]) == ("note", ("item-1", "2", "wrong"))
    both = with_texts(2, "one", "One", "three", "four")
    found = checks.duplicate_candidates(Table((wrong_twice, both), 0))
    assert (found.state, found.facts) == ("failed", {"items": 2, "right_and_wrong": 1})
    assert found.rows[0][:3] == ("item-2", "2", "right and wrong")


GREEK, THAI = "καλημέρα σας, τι κάνετε σήμερα", "สวัสดีครับ วันนี้เป็นอย่างไรบ้าง"


def test_lingua_tells_languages() -> None:
    found = identify([GREEK, THAI, "egg 12345678", GREEK])
    assert found[GREEK] == Found("told", "el", 1.0)
    assert found[THAI] == Found("told", "th", 1.0)
    assert found["egg 12345678"] == Found("too short")


def test_a_wrong_language_is_found() -> None:
    texts = (GREEK, GREEK + " α", THAI, "ναι")
    candidates = [{"id": key, "text": text} for key, text in zip("abcd", texts, strict=True)]
    item = ask(1, GREEK + ";", candidates=candidates, language="el")
    unknown = ask(2, GREEK, candidates=candidates, language="arz")
    silent = ask(3, GREEK, candidates=candidates, language=None)
    table = Table((item, unknown, silent), 0)
    found = checks.languages(table, identify([*table.prompts, *table.texts]))
    assert found.state == "failed"
    assert found.facts == {
        "match": 3,
        "mismatch": 1,
        "uncertain": 0,
        "too_short": 1,
        "not_checked": 5,
        "not_stated": 5,
    }
    assert found.rows == (("item-1", "response c", "el", "th", "1.00", THAI),)


def test_an_unclear_language_is_no_mismatch() -> None:
    item = ask(1, "some text", language="el")
    told = {text: Found("uncertain", "en", 0.5) for text in ("some text", *Table((item,), 0).texts)}
    found = checks.languages(Table((item,), 0), told)
    assert (found.facts["uncertain"], found.facts["mismatch"]) == (5, 0)
    assert found.sentence.startswith("No text's language could be compared")


def test_base_languages() -> None:
    assert [base(tag) for tag in ("zh-Hant-TW", "pt_BR", None, "fil")] == ["zh", "pt", None, "tl"]
    assert same("hr", "sr")
    assert not same("el", "en")
    assert not same(None, "en")


def test_leakage() -> None:
    fact = {"fact": "Tea first.", "title": "T", "publisher": "P"}
    ours = Table(
        (
            ask(1, TEXTS[0]),
            ask(2, TEXTS[1]),
            ask(3, TEXTS[2], references=[fact]),
            ask(4, "Something else altogether, about the weather?"),
        ),
        0,
    )
    theirs = benchmark(
        ask(10, TEXTS[0].upper()),
        ask(11, TEXTS[1].replace("gift", "gifts")),
        ask(4, "Unlike all others: where do old shoes belong?"),
        ask(12, TEXTS[3], references=[fact | {"fact": " tea FIRST."}]),
    )
    found = checks.leakage(ours, theirs)
    assert found.state == "failed"
    assert found.facts == {"same_prompts": 1, "near_prompts": 1, "same_facts": 1, "same_ids": 1}
    assert [row[:2] for row in found.rows] == [
        ("item-1", "item-10"),
        ("item-2", "item-11"),
        ("item-3", "item-12"),
        ("item-4", "item-4"),
    ]


def test_no_leakage_and_parts() -> None:
    ours = Table((ask(1, TEXTS[0]), ask(2, TEXTS[1])), 0)
    assert checks.leakage(ours, benchmark(ask(3, TEXTS[2]))).state == "ok"
    whole = benchmark(*ours.items, ask(3, TEXTS[2]))
    found = checks.leakage(ours, whole)
    assert found.state == "note"
    assert "One is a part of the other" in found.sentence


def test_balance() -> None:
    even = Table((make_item(1), make_item(2, culture="Thai")), 0)
    assert card.balance(card.counts(even, ordered=True)).state == "ok"
    uneven = Table((*(make_item(n) for n in range(3)), make_item(4, culture="Thai")), 0)
    found = card.balance(card.counts(uneven, ordered=True))
    assert found.state == "note"
    assert "culture from 1 to 3" in found.sentence
    counts = {(each.key, each.value): each.n for each in card.counts(uneven, ordered=True)}
    assert counts["culture", "Japanese"] == 3
    assert counts["script", "Latin"] == 4
    assert counts["position of the right response", "1"] == 4
    assert not any(each.key.startswith("position") for each in card.counts(even, ordered=False))


def test_provenance() -> None:
    full = make_item(
        1,
        licence="MIT",
        references=[{"fact": "f", "title": "t", "publisher": "p"}],
        author="human",
        reason="r",
        human_validated=True,
    )
    assert card.provenance(Table((full,), 0)).state == "ok"
    partly = full.model_copy(update={"id": "x", "human_validated": False})
    found = card.provenance(Table((full, partly), 0))
    assert (found.state, found.facts["human_validated"]) == ("note", 0.5)
    bare = full.model_copy(update={"id": "y", "licence": None})
    assert card.provenance(Table((full, bare), 0)).state == "failed"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CC-BY-4.0", "open"),
        ("CC-BY-NC-SA-4.0", "non-commercial"),
        ("non-commercial use", "non-commercial"),
        ("MIT", "open"),
        ("whatever", "unknown"),
        ("not stated", "unknown"),
        ("ENCODE", "unknown"),
    ],
)
def test_kinds_of_licences(name: str, kind: str) -> None:
    assert card.licence_kind(name) == kind


def test_excerpts_are_short() -> None:
    assert excerpt("one\n two") == "one two"
    assert len(excerpt("x" * 1000)) == 80
    assert excerpt("x" * 80) == "x" * 80
