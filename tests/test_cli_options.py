"""The one definition of the options of reward models."""

from dataclasses import fields

import click
import pytest
from click.testing import CliRunner

from habitus.cli.options import (
    SECTIONS,
    GroupedCommand,
    command_line,
    option_names,
    scorer_options,
)
from habitus.cli.score import score
from habitus.scorers import ScorerOptions


@click.command("try", cls=GroupedCommand)
@click.argument("model")
@click.option("--out")
@click.option("--keep", multiple=True)
@click.option("--seed", default=0)
@scorer_options
def attempt(model, out, keep, seed, options):
    """Try."""
    attempt.seen = (options, command_line(("out",)))


def invoke(*arguments):
    return CliRunner().invoke(attempt, arguments, catch_exceptions=False)


def test_every_field_of_the_options_is_an_option_once():
    names = option_names()
    assert len(names) == len(set(names))
    assert set(names) == {field.name for field in fields(ScorerOptions)} - {"say"}


def test_nothing_given_is_nothing_set():
    assert invoke("m").exit_code == 0
    options, line = attempt.seen
    assert options == ScorerOptions()
    assert line == "try m --seed 0"


EVERYTHING = {
    "mode": "pairwise",
    "criteria": True,
    "prompt": "p.txt",
    "instructions": "item",
    "verdict": "text",
    "votes": 3,
    "temperature": 0.7,
    "max_tokens": 400,
    "pairs": "knockout",
    "scale": "1-10",
    "engine": "openai",
    "base_url": "http://127.0.0.1:8000/v1",
    "api_key_env": "KEY",
    "concurrency": 8,
    "budget_tokens": 1000,
    "cache": "answers",
    "context": 4096,
    "threads": 2,
    "truncate": "left",
    "dtype": "bfloat16",
    "device": "cuda:1",
    "batch_tokens": 65536,
    "label": 0,
    "template": "t.jinja",
    "no_system": "merge",
    "reference": "base",
    "average": "mean",
    "revision": "abc",
    "trust_remote_code": True,
    "allow_new_head": True,
    "compile": True,
    "countries": "Chile=0.7,Israel=0.3",
    "steer_by": "weights",
}


def test_every_option_reaches_its_field_with_its_type():
    words = []
    for name, value in EVERYTHING.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    assert invoke("m", *words).exit_code == 0
    options, line = attempt.seen
    assert options == ScorerOptions(**EVERYTHING)
    assert set(EVERYTHING) == set(option_names())
    assert invoke(*line.split()[1:]).exit_code == 0  # the printed line makes the call again
    assert attempt.seen[0] == options


@pytest.mark.parametrize(
    "words",
    [
        ["--verdict", "logits"],
        ["--votes", "0"],
        ["--temperature", "-1"],
        ["--label", "-1"],
        ["--truncate", "middle"],
        ["--context", "many"],
        ["--no-system", "drop"],
    ],
)
def test_values_that_cannot_be_meant_are_refused(words):
    result = invoke("m", *words)
    assert result.exit_code == 2
    assert words[0] in result.output


def test_the_command_line_leaves_out_what_only_says_where():
    invoke("a b", "--out", "x", "--keep", "k", "--keep", "l", "--criteria")
    assert attempt.seen[1] == "try 'a b' --keep k --keep l --seed 0 --criteria"


def test_help_has_own_options_first_and_the_others_under_headings():
    text = CliRunner().invoke(score, ["--help"]).output
    headings = ["Options:", *(f"{heading}:" for heading in SECTIONS)]
    places = [text.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert places[0] < text.index("--limit") < places[1] < text.index("--mode ")
    for heading, options in SECTIONS.items():
        for name, settings in options:
            assert settings["help"], name
            assert text.index(f"\n{heading}:\n") < text.index(f"\n  {name} ")
