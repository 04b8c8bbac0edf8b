"""Reading items and judgements into tables."""

import json

import polars as pl
import pytest

from habitus.errors import InputError
from habitus.metrics import read, read_items, read_judgements
from habitus.types import Candidate, Item, Judgement, Message, Pass, Status


def item(name="i", texts=("aa", "bbb", "bbb", "c"), best=("b",), **more):
    candidates = tuple(Candidate(id="abcd"[k], text=text) for k, text in enumerate(texts))
    prompt = (Message(role="user", content="prompt"),)
    return Item(id=name, prompt=prompt, candidates=candidates, best_ids=best, **more)


def judgement(name="i", status=Status.OK, scores=None, winners=("a",), **more):
    if not status.judged:
        scores, winners = {}, ()
    elif scores is None:
        scores = {"a": 1.0, "b": 0.5}
    return Judgement(
        item_id=name,
        unit="u",
        scorer="s",
        seed=0,
        status=status,
        scores=scores,
        winner_ids=winners,
        **more,
    )


def write(path, records):
    lines = (record if isinstance(record, str) else record.model_dump_json() for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_items_have_chance_and_length_credit(tmp_path):
    records = [
        item("tied", ("aa", "bbb", "bbb", "c"), ("b",), culture="Thai", parent_id="p"),
        item("two", ("กข", "x", "yyyy"), ("a", "b"), domain="values"),
    ]
    table = read_items(write(tmp_path / "items.jsonl", records))
    assert table.schema == pl.Schema(read.ITEM_COLUMNS)
    # "tied": b and c are longest and b is right: 1/2; the shortest is d: 0.
    # "two": Thai letters count once each, so b (1 character) is shortest, c (4) longest.
    assert table["chance"].to_list() == [1 / 4, 2 / 3]
    assert table["longest_credit"].to_list() == [1 / 2, 0.0]
    assert table["shortest_credit"].to_list() == [0.0, 1.0]
    assert table["n_candidates"].to_list() == [4, 3]
    assert table["parent"].to_list() == ["p", "two"]
    assert table["culture"].to_list() == ["Thai", None]
    assert table["candidate_ids"].to_list() == [["a", "b", "c", "d"], ["a", "b", "c"]]


def test_content_changes_with_what_is_judged_only(tmp_path):
    def content(record):
        return read_items(write(tmp_path / "items.jsonl", [record]))["content"].item()

    base = content(item())
    assert content(item(licence="MIT", culture="Thai")) == base
    assert content(item(best=("a",))) != base
    assert content(item(texts=("aa", "bbb", "bbb", "d"))) != base
    assert content(item(texts=("bbb", "aa", "bbb", "c"))) != base


def test_judgements_have_picks_positions_and_mass(tmp_path):
    passes = (
        Pass(order=("a", "b"), scores=(-1.0, -2.0), pick=0, mass=0.5),
        Pass(order=("b", "a"), scores=(-1.0, -2.0), pick=0, mass=1.0),
    )
    records = [
        judgement("x", passes=passes, prompt_tokens=7, seconds=0.5),
        judgement("y", Status.ERROR, error="no"),
    ]
    table = read_judgements(write(tmp_path / "judgements.jsonl", records))
    assert table.schema == pl.Schema(read.JUDGEMENT_COLUMNS)
    assert table["picks"].to_list() == [["a", "b"], []]
    assert table["positions"].to_list() == [[0, 0], []]
    assert table["mass"].to_list() == [0.75, None]
    assert table["winner_ids"].to_list() == [["a"], []]
    assert table["prompt_tokens"].to_list() == [7, None]


def test_blocks_join_to_the_same_table(tmp_path, monkeypatch):
    path = write(tmp_path / "items.jsonl", [item(f"i{k}", culture="Thai") for k in range(50)])
    whole = read_items(path)
    monkeypatch.setattr(read, "BLOCK_BYTES", 700)
    assert read_items(path).equals(whole)
    assert whole["item_id"].to_list() == [f"i{k}" for k in range(50)]


def test_line_longer_than_a_block_and_no_last_newline(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "BLOCK_BYTES", 64)
    path = tmp_path / "items.jsonl"
    path.write_text(item("long", ("x" * 500, "y")).model_dump_json(), encoding="utf-8")
    assert read_items(path)["item_id"].to_list() == ["long"]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_empty_files_are_empty_tables(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    assert read_items(path).height == 0
    assert read_judgements(path).height == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": None}, "without id"),
        ({"candidates": [{"id": "a", "text": "x"}]}, "fewer than two"),
        ({"candidates": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}, "not unique"),
        ({"candidates": [{"id": "a"}, {"id": "b", "text": "y"}]}, "no text"),
        ({"best_ids": []}, "best_ids is empty"),
        ({"best_ids": ["z"]}, "names no candidate"),
        ({"best_ids": ["a", "b", "c", "d"]}, "every candidate"),
        ({"best_ids": "a"}, "not the expected JSON"),
    ],
)
def test_wrong_item_is_named_by_line(tmp_path, monkeypatch, change, words):
    wrong = json.dumps(item("wrong").model_dump() | change)
    path = write(tmp_path / "items.jsonl", [item("one"), "", item("two"), wrong])
    monkeypatch.setattr(read, "BLOCK_BYTES", 500)
    with pytest.raises(InputError, match=f"line 4: .*{words}"):
        read_items(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"status": "error"}', "without item_id"),
        ('{"item_id": "y", "status": "fine"}', "status is none of ok, tie"),
        ('{"item_id": "y", "status": "ok", "winner_ids": []}', "winner_ids must be"),
        ('{"item_id": "y", "status": "error", "winner_ids": ["a"]}', "winner_ids must be"),
        ('{"item_id": "y", "sta', "not the expected JSON"),
        (
            '{"item_id": "y", "status": "error", "passes": [{"order": ["a"], "pick": 1}]}',
            "no position",
        ),
    ],
)
def test_wrong_judgement_is_named_by_line(tmp_path, line, words):
    path = write(tmp_path / "judgements.jsonl", [judgement("x"), line])
    with pytest.raises(InputError, match=f"line 2: .*{words}") as caught:
        read_judgements(path)
    assert "\n" not in str(caught.value)


def test_repeated_ids_and_missing_files_are_refused(tmp_path):
    items = write(tmp_path / "items.jsonl", [item("i"), item("i")])
    judgements = write(tmp_path / "judgements.jsonl", [judgement("j"), judgement("j")])
    with pytest.raises(InputError, match="several items have the id 'i'"):
        read_items(items)
    with pytest.raises(InputError, match="several judgements of item 'j'"):
        read_judgements(judgements)
    with pytest.raises(InputError, match="cannot be read"):
        read_items(tmp_path / "absent.jsonl")


def test_torn_last_judgement_is_left_out(tmp_path):
    path = write(tmp_path / "judgements.jsonl", [judgement("x")])
    with path.open("a") as file:
        file.write('{"item_id": "y", "sta')
    assert read_judgements(path)["item_id"].to_list() == ["x"]


def test_flips_are_counted_among_the_same_candidates(tmp_path):
    """Pairs have different winners by nature, and a rating of one candidate is no pick."""

    def look(order, pick):
        return {"order": list(order), "scores": [0.0] * len(order), "pick": pick}

    looks = {
        "listwise, firm": [look("abc", 0), look("bca", 2)],
        "listwise, flipped": [look("abc", 0), look("bca", 0)],
        "pairs, firm": [look("ab", 0), look("ba", 1), look("bc", 0), look("cb", 1)],
        "pairs, one flipped": [look("ab", 0), look("ba", 1), look("bc", 0), look("cb", 0)],
        "one look": [look("abc", 1)],
        "ratings": [look("a", 0), look("b", 0), look("c", 0)],
        "none": [],
    }
    path = tmp_path / "judgements.jsonl"
    with path.open("w") as file:
        for name, passes in looks.items():
            line = {"item_id": name, "status": "ok", "winner_ids": ["a"], "passes": passes}
            file.write(json.dumps(line) + "\n")
    table = read_judgements(path)
    facts = table.select("item_id", "looked_again", "flipped", "n_shown").rows()
    assert facts == [
        ("listwise, firm", True, False, 3),
        ("listwise, flipped", True, True, 3),
        ("pairs, firm", True, False, 2),
        ("pairs, one flipped", True, True, 2),
        ("one look", False, False, 3),
        ("ratings", False, False, 1),
        ("none", False, False, None),
    ]
    assert table["positions"].to_list()[-2:] == [[], []]
