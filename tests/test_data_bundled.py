"""The list of bundled benchmarks comes from cards."""

from __future__ import annotations

import json

import pytest

from habitus.data import bundled, bundles, load
from habitus.errors import InputError, UnknownNameError

ROW = {
    "id": "a",
    "prompt": [{"role": "user", "content": "?"}],
    "candidates": [{"id": "x", "text": "1"}, {"id": "y", "text": "2"}],
    "best_ids": ["x"],
}


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "ROOT", tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, n in (("quick", 2), ("test", 3)):
        rows = "".join(json.dumps({**ROW, "id": str(i)}) + "\n" for i in range(n))
        (folder / f"{name}.jsonl").write_text(rows + "\n")

    def write(**fields):
        parts = {name: {"file": f"{name}.jsonl", "description": name} for name in ("quick", "test")}
        values = {"name": "mine", "version": "1", "licence": "CC0-1.0", "description": "d"}
        (folder / "card.json").write_text(json.dumps({**values, "parts": parts, **fields}))
        return folder

    return write


def test_parts_and_default(card):
    folder = card(default="test")
    assert [(one.name, one.n_items) for one in bundled()] == [("mine", 3), ("mine:quick", 2)]
    assert bundled()[0].path == folder / "test.jsonl"
    assert (bundled()[0].version, bundled()[0].licence) == ("1", "CC0-1.0")
    found = load("mine:quick")
    assert (found.name, len(found.items)) == ("mine:quick", 2)
    assert len(load("mine").items) == 3


def test_a_part_can_be_a_folder_of_files(card):
    folder = card()
    (folder / "parts").mkdir()
    for name, start in (("dev", 0), ("train", 2)):
        rows = [json.dumps({**ROW, "id": str(start + i)}) for i in range(2)]
        (folder / "parts" / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    card(parts={"all": {"file": "parts", "description": "all"}})
    assert [(one.name, one.n_items) for one in bundled()] == [("mine:all", 4)]
    assert [item.id for item in load("mine:all").items] == ["0", "1", "2", "3"]


def test_no_default(card):
    card()
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'mine'.*mine:quick"):
        load("mine")


def test_bundled_name_wins_over_path(card, tmp_path, monkeypatch):
    card(default="test")
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "mine" / "card.json"
    assert other.exists()
    assert load("mine").path.name == "test.jsonl"


def test_missing_file(card):
    folder = card()
    (folder / "quick.jsonl").unlink()
    assert bundled()[0].n_items == 0
    with pytest.raises(InputError, match="mine:quick is missing from the installation"):
        load("mine:quick")


def test_broken_card(card):
    card(colour="red")
    with pytest.raises(InputError, match=r"card.json: unknown key 'colour'; reinstall"):
        bundled()


def test_the_packages_own_card():
    names = [one.name for one in bundled()]
    assert "carb-open:quick" in names
