"""Audit: the page, the terminal and the command."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("lingua")
pytest.importorskip("babel")
from rich.console import Console

import habitus.audit
from habitus.audit.model import Audit, Check, Count, Outcome, Rule
from habitus.audit.write import default_path
from habitus.cli.audit import StrictAuditError
from habitus.cli.audit import audit as command
from habitus.errors import InputError, MissingExtraError
from habitus.report.audit import print_audit, render_audit, verdict
from habitus.types import Item
from tests.conftest import make_item

EVIL = '<script>alert("x")</script>'


def sample(**fields: Any) -> Audit:
    """An audit with an open, an undecided, a closed and a silent rule; all texts are hostile."""
    chance = Outcome({}, 100, 100, 0.25, None, None, None, 0.25)
    values = Outcome(
        {"domain": EVIL}, 50, 50, 0.6, 0.5, 0.7, "bootstrap", 0.25, 1e-6, 1e-5, 0.4, "open"
    )
    undecided = Outcome(
        {}, 100, 100, 0.3, 0.2, 0.4, "wilson", 0.25, 0.2, 1.0, 0.33, "undecided", 400
    )
    closed = Outcome({}, 100, 100, 0.25, 0.2, 0.3, "wilson", 0.25, 0.5, 1.0, 0.33, "closed")
    culture = Outcome({"culture": EVIL}, 40, 40, 0.45, 0.3, 0.6, "wilson", 0.25)
    whole: dict[str, Any] = {
        "benchmark": EVIL,
        "format": "native",
        "digest": "0123456789abcdef",
        "n_items": 100,
        "n_candidates": 400,
        "chance": 0.25,
        "seed": 0,
        "overall_margin": 0.08,
        "domain_margin": 0.15,
        "against": (EVIL,),
        "rules": (
            Rule("random", "Random pick", "any", (chance,)),
            Rule("longest", "Longest response", "longest", (undecided, values, culture)),
            Rule("shortest", "Shortest response", "shortest", (closed,)),
            Rule("position", "Position in the file", "position", (), "it has no order"),
        ),
        "checks": (
            Check("fine", "Fine check", "ok", "All is well."),
            Check(
                "bad",
                "Bad check",
                "failed",
                f"Found {EVIL}.",
                ("Item", "Text"),
                ((EVIL, EVIL),),
                70,
            ),
        ),
        "card": (Count("culture x domain", EVIL, 100),),
        "versions": {"habitus": "1"},
        "notes": (EVIL,),
        "command": f"habitus audit '{EVIL}'",
    }
    return Audit(**(whole | fields))


def test_verdicts_and_the_headline() -> None:
    found = sample()
    assert [rule.verdict for rule in found.rules] == ["reference", "open", "closed", "not run"]
    assert found.rules[1].where("open") == (EVIL,)
    assert found.rules[1].where("undecided") == ("overall",)
    assert found.headline == "1 door open, 0 undecided, 1 closed; 1 check failed"
    assert not found.clean
    assert sample(rules=(), checks=()).clean


def test_the_page_is_complete_and_escapes_all_text() -> None:
    page = render_audit(sample())
    assert EVIL not in page
    assert "1 door open, 0 undecided, 1 closed; 1 check failed" in page
    assert 'id="chart-overview"' in page
    assert 'id="chart-domains"' in page
    assert "The first 1 of 70." in page
    assert "about 400" in page
    assert "45\u00a0% ▲" in page
    assert "not run: it has no order" in page
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in page
    # Examples are folded away: the only place of the item's text is inside a closed <details>.
    checks = page[page.index('id="checks"') : page.index('id="card"')]
    assert re.findall(r"<details[^>]*>", checks) == ['<details class="item">']
    assert "http-equiv" in page
    assert not re.search(r'(?:src|href)="(?!https://arxiv|#|data:)', page[: page.index("<script")])


def test_a_page_without_domains_and_cultures() -> None:
    chance = Outcome({}, 1, 1, 0.5, None, None, None, 0.5)
    page = render_audit(sample(rules=(Rule("random", "Random pick", "any", (chance,)),)))
    assert "no item states a domain" in page
    assert 'id="cultures"' not in page


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_terminal(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_audit(sample(benchmark="[bold]bench"), Console(file=stream, width=80))
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    assert "audit of [bold]bench: 100 items" in shown
    assert "1 door open, 0 undecided, 1 closed; 1 check failed" in shown
    assert "! Longest response: " in shown
    assert "failed: Bad check: Found" in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())


def run(*arguments: str) -> None:
    command.main(list(arguments), prog_name="habitus audit", standalone_mode=False)


GREEK = ("αβγδεζ ηθικλμ", "νξοπρσ τυφχψω", "αγεηιλ βδζθκμ", "νοροτυ ξπσυφχ")


@pytest.fixture
def bench(write_items: Callable[[Sequence[Item]], Path]) -> Path:
    pairs = [{"id": name, "text": text} for name, text in zip("abcd", GREEK, strict=True)]
    items = [
        make_item(
            number,
            candidates=pairs,
            language="el",
            prompt=[{"role": "user", "content": f"{number * 37} αλφα βητα γαμμα δελτα"}],
            licence="MIT",
        )
        for number in range(24)
    ]
    return write_items(items)


def test_the_command_writes_both_files(
    bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "audit"
    run(str(bench), "--out", str(out), "--limit", "20", "--against", str(bench))
    written = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    assert written["n_items"] == 20
    assert written["against"] == [str(bench)]
    assert written["notes"] == ["20 of 24 items, drawn with seed 0"]
    assert written["command"].startswith("habitus audit ")
    assert "--out" not in written["command"]
    assert (out / "audit.html").stat().st_size > 100_000
    shown = capsys.readouterr()
    assert "door" in shown.out
    assert "audit.html" in shown.err


def test_strict_ends_with_status_1(bench: Path, tmp_path: Path) -> None:
    # The right response is always the first, and the same text.
    with pytest.raises(StrictAuditError, match=r"--strict: \d+ doors? open") as caught:
        run(str(bench), "--out", str(tmp_path / "audit"), "--strict")
    assert caught.value.exit_status == 1
    assert (tmp_path / "audit" / "audit.html").exists()


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        run(str(tmp_path / "none.jsonl"))
    monkeypatch.setattr(habitus.audit, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="habitus audit needs an extra"):
        run(str(tmp_path / "none.jsonl"))


def test_the_default_folder() -> None:
    assert default_path("carb-open:quick") == Path("runs/audit__carb-open-quick")


def test_undecided_doors_are_no_praise() -> None:
    few = Outcome({}, 9, 9, 0.3, 0.1, 0.6, "wilson", 0.25, 0.4, 1.0, 0.33, "undecided", 300)
    rules = (Rule("longest", "Longest response", "longest", (few,)),)
    assert verdict(sample(rules=rules, checks=())).tone == "unclear"
    assert verdict(sample(rules=(), checks=())).tone == "above"
    assert verdict(sample()).tone == "below"
