"""Tables for the terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from habitus.report import print_comparison, print_run
from tests import report_samples as samples


def shown(what, width=80, encoding="utf-8", **options):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, **options)
    what(console)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def comparison(console, labels=("one", "two")):
    runs = [samples.run(label, skill) for label, skill in zip(labels, (0.6, 0.4), strict=True)]
    print_comparison(runs, [samples.comparison(*labels, 0.2, 0.04)], console)


def test_a_run_fits_80_columns_and_names_its_figures():
    text = shown(lambda console: print_run(samples.run(), console))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for words in (
        "embedded:qwen3-1.7b on carb-open",
        "By domain",
        "By culture",
        "Thai",
        "●",
        "judgements:",
    ):
        assert words in text


def test_a_comparison_has_a_leaderboard_and_differences():
    text = shown(comparison)
    assert max(map(len, text.splitlines())) <= 80
    assert "Leaderboard" in text
    assert "one - two" in text
    assert "+20.0" in text
    assert "0.040" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_any_width_works(width):
    shown(lambda console: print_run(samples.run(), console), width)
    shown(comparison, width)


def test_an_ascii_terminal_gets_ascii():
    data = samples.run("embedded:ไทย")
    text = shown(lambda console: print_run(data, console), encoding="ascii")
    assert "\\u0e44" in text
    assert "o" in text


def test_names_are_neither_markup_nor_terminal_codes():
    label = "[red]x[/red]\x1b]0;title\x07[/]"
    text = shown(lambda console: print_run(replace(samples.run(), label=label), console), 200)
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
    text = shown(lambda console: comparison(console, (label, "two")), 200, force_terminal=True)
    assert "\x1b]0" not in text
    assert "[red]x[/red]" in text


def test_an_empty_run_prints():
    text = shown(lambda console: print_run(samples.empty(), console))
    assert "No data" in text
    assert "judgements: none" in text
    assert "No data" in shown(lambda console: print_comparison([], [], console))
