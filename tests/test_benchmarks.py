"""`habitus benchmarks`: the list, and benchmark folders that are imported."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from habitus.cli.benchmarks import benchmarks
from habitus.data import import_benchmark, load
from habitus.data.about import ABOUT
from habitus.data.cards import card_text, make_card, non_commercial
from habitus.data.formats import IMPORTERS
from habitus.data.importing import source_digest
from habitus.errors import HabitusError, InputError, RunError
from tests.conftest import make_item

ROW = {"prompt": "Tea?", "chosen": "Yes, please.", "rejected": "No.", "language": "en"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "my data.jsonl"
    rows = [ROW, {**ROW, "prompt": "Rice?", "culture": "Thai", "domain": "values"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def folder(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name[0] != "."}


def test_the_list_without_a_subcommand():
    shown = CliRunner().invoke(benchmarks, [], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "carb-open:quick" in shown.output
    assert "globalopinionqa" in shown.output


def test_import_from_the_command_line(source, tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(
        benchmarks,
        ["import", source, "--out", str(out), "--name", "mine", "--licence", "CC-BY-NC-4.0"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    assert "mine: 2 items, read as generic" in done.stderr
    assert "non-commercial use only (CC-BY-NC-4.0)" in done.stderr
    assert done.stdout == ""
    assert set(folder(out)) == {"items.jsonl", "card.json", "CARD.md"}
    card = json.loads((out / "card.json").read_text())
    assert (card["name"], card["non_commercial"]) == ("mine", "yes")


def test_bad_input_is_one_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n')
    done = CliRunner().invoke(benchmarks, ["import", str(path), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, HabitusError)
    assert done.exception.exit_status == 2
    assert not (tmp_path / "out").exists()


def test_the_folder_loads_as_the_source_does(source, tmp_path):
    import_benchmark(source, tmp_path / "out")
    again = load(str(tmp_path / "out"))
    assert again.items == load(source).items
    assert (again.format, again.name) == ("native", "out")


def test_equal_imports_have_equal_bytes(source, tmp_path):
    import_benchmark(source, tmp_path / "a", name="n")
    import_benchmark(source, tmp_path / "b", name="n")
    assert folder(tmp_path / "a") == folder(tmp_path / "b")


def test_the_card(source, tmp_path):
    card = import_benchmark(source, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "card.json").read_text())
    assert written == json.loads(card.model_dump_json(exclude_none=True))
    assert card.name == "my-data"
    assert card.source == "my data.jsonl"
    assert str(tmp_path) not in json.dumps(written)
    assert str(tmp_path) not in (tmp_path / "out" / "CARD.md").read_text()
    assert (card.n_items, card.n_clusters, card.format) == (2, 2, "generic")
    assert card.licences == {"unknown": 2}
    assert card.non_commercial == "unknown"
    assert card.cultures == {"Thai": 1, "unknown": 1}
    assert card.domains == {"unknown": 1, "values": 1}
    assert card.languages == {"en": 2}
    assert (card.chance, card.longest, card.shortest) == (0.5, 1.0, 0.0)
    assert card.source_sha256 == hashlib.sha256(Path(source).read_bytes()).hexdigest()
    assert (
        "the longest candidate is right in 100.0%, a random one in 50.0%"
        in (tmp_path / "out" / "CARD.md").read_text()
    )


def test_what_was_left_out_is_in_the_card(tmp_path):
    path = tmp_path / "a.json"
    row = {"query": "a?", "ans1": "x", "ans2": "y", "lb": "1"}
    path.write_text(json.dumps([row, row]))
    card = import_benchmark(str(path), tmp_path / "out")
    assert card.skipped == {"the row repeats an earlier one": 1}
    assert card.harmful
    assert card.non_commercial == "no"
    text = (tmp_path / "out" / "CARD.md").read_text()
    assert "| the row repeats an earlier one | 1 |" in text
    assert "ruHHH" in text


def test_limit_and_seed(source, tmp_path):
    card = import_benchmark(source, tmp_path / "out", limit=1, seed=3)
    assert (card.n_items, card.limit, card.seed) == (1, 1, 3)
    assert len(load(str(tmp_path / "out")).items) == 1


def test_a_folder_is_replaced_only_by_force(source, tmp_path):
    out = tmp_path / "out"
    import_benchmark(source, out)
    before = folder(out)
    with pytest.raises(RunError, match="holds a benchmark; add --force"):
        import_benchmark(source, out, limit=1)
    assert folder(out) == before
    import_benchmark(source, out, limit=1, force=True)
    assert len(load(str(out)).items) == 1


def test_a_kill_before_the_card_leaves_no_old_card(source, tmp_path, monkeypatch):
    from habitus.data import importing

    out = tmp_path / "out"
    import_benchmark(source, out)

    def killed(path, chunks):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        import_benchmark(source, out, force=True)
    assert set(folder(out)) == {"items.jsonl", "CARD.md"}


def test_other_data_in_the_folder(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"holds other data \(old\.jsonl\)"):
        import_benchmark(source, out, force=True)


def test_out_apart_from_the_source(source, tmp_path):
    with pytest.raises(RunError, match="is in the source"):
        import_benchmark(str(tmp_path), tmp_path / "out")
    out = tmp_path / "elsewhere" / "out"
    import_benchmark(source, out)
    for again in (out, out / "items.jsonl"):
        with pytest.raises(RunError, match="is in the source"):
            import_benchmark(str(again), out, force=True)
    with pytest.raises(RunError, match="is a file"):
        import_benchmark(source, tmp_path / "my data.jsonl")


@pytest.mark.parametrize(
    "options", [{"name": "a/b"}, {"name": ""}, {"licence": "CC BY 4.0"}, {"licence": "MIT or"}]
)
def test_names_and_licences(source, tmp_path, options):
    with pytest.raises(InputError, match="will not do"):
        import_benchmark(source, tmp_path / "out", **options)


def test_a_stated_licence_is_not_changed(source, tmp_path):
    import_benchmark(source, tmp_path / "a", licence="CC-BY-NC-4.0")
    with pytest.raises(InputError, match=r"has a licence already \(CC-BY-NC-4\.0\)"):
        import_benchmark(str(tmp_path / "a"), tmp_path / "b", licence="MIT")


def test_digest_of_a_folder(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("")
    (tmp_path / ".hidden").write_text("?")
    # printf '%s  b/x.txt\n' $(sha256sum </dev/null | cut -c-64) | sha256sum
    assert source_digest(tmp_path) == (
        "2c163c1c92ca0f511b81676612c00f37879eab26ed7b9f991c5dcde4c28c7dca"
    )


@pytest.mark.parametrize(
    ("licences", "expected"),
    [
        (["MIT", "CC-BY-4.0", "CC-BY-SA-3.0", "CC0-1.0", "Apache-2.0"], "no"),
        (["MIT", "CC-BY-NC-SA-4.0"], "yes"),
        (["CC BY-NC 4.0"], "yes"),
        (["other, non-commercial"], "yes"),
        (["MIT", "unknown"], "unknown"),
        (["NCSA"], "unknown"),
    ],
)
def test_non_commercial(licences, expected):
    assert non_commercial(licences) == expected


def test_text_of_data_stays_text_in_the_card():
    item = make_item(culture="<b>|x|", licence="MIT")
    card = make_card(
        [item], name="n", format="native", source="s", source_sha256="0", seed=0, habitus="0",
        skipped={},
    )  # fmt: skip
    assert r"| \<b\>\|x\| | 1 |" in card_text(card)


def test_equal_lengths_share_the_credit():
    item = make_item(candidates=[{"id": i, "text": t} for i, t in zip("ab", "xy", strict=True)])
    card = make_card(
        [item], name="n", format="native", source="s", source_sha256="0", seed=0, habitus="0",
        skipped={},
    )  # fmt: skip
    assert (card.longest, card.shortest) == (0.5, 0.5)


def test_what_is_known_is_of_known_formats():
    # OMGEval's published answers are ranked by nobody: only `downstream` reads them.
    assert set(ABOUT) - {"omgeval"} <= set(IMPORTERS)
