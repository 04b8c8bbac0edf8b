"""`habitus pairs`: make preference pairs with country and annotator from public data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from habitus.cli.options import COUNT
from habitus.errors import InputError

if TYPE_CHECKING:
    from habitus.pairs.card import PairsCard

PATH = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, max_open=True)
_MIX = ("source", "out", "data", "max_tokens", "tokenizer")
"""Parameters that a mix takes; the others are in its file."""


@click.command()
@click.argument("source")
@click.option("--out", type=PATH, required=True, metavar="PAIRS", help="The folder to write.")
@click.option(
    "--format",
    metavar="NAME",
    help="prism, pairs, or a format of habitus benchmarks; recognised if not given.",
)
@click.option(
    "--country",
    "countries",
    multiple=True,
    metavar="NAME",
    help="Keep this country's pairs only; repeatable.",
)
@click.option(
    "--exclude-country",
    "excluded",
    multiple=True,
    metavar="NAME",
    help="Leave this country's pairs out; repeatable.",
)
@click.option(
    "--exclude-questions-of",
    multiple=True,
    type=PATH,
    metavar="PAIRS",
    help="Leave out every question, person and prompt of these pairs; repeatable.",
)
@click.option(
    "--questions",
    type=click.Choice(["a", "b"]),
    help="Keep one of two disjoint shares of the questions (or people).",
)
@click.option(
    "--questions-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    metavar="SHARE",
    help="Share of the questions in a.",
)
@click.option(
    "--test-share",
    type=SHARE,
    default=0.15,
    show_default=True,
    metavar="SHARE",
    help="Share of the questions or people in the test part.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    metavar="K",
    help="Folds of the cross-validation.",
)
@click.option(
    "--min-margin",
    type=click.FloatRange(min=0),
    metavar="M",
    help="Least difference of answer shares or ratings.  [default: 0.05 for surveys, else any]",
)
@click.option(
    "--weight",
    type=click.Choice(["margin"]),
    help="Weight pairs by their margin, with mean 1.  [default: as in the source, else 1]",
)
@click.option(
    "--person-country",
    type=click.Choice(["reside", "birth"]),
    default="reside",
    show_default=True,
    help="PRISM: the country that a person lives in or was born in.",
)
@click.option("--licence", metavar="SPDX", help="Licence of pairs whose source names none.")
@click.option(
    "--max-tokens",
    type=COUNT,
    metavar="N",
    help="Leave out pairs whose prompt and responses have more tokens; needs --tokenizer.",
)
@click.option(
    "--tokenizer",
    type=PATH,
    metavar="PATH",
    help="A model's folder, or its tokenizer.json, for --max-tokens.",
)
@click.option(
    "--data",
    type=PATH,
    metavar="DIR",
    help="With a mix: the folder that its paths are relative to.  [default: the mix file's]",
)
@click.option("--limit", type=COUNT, metavar="N", help="Keep at most N pairs, group by group.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of parts, folds, --questions and --limit.",
)
def pairs(source: str, out: Path, data: Path | None, **options: Any) -> None:
    """Make preference pairs with country and annotator from SOURCE, for habitus train.

    SOURCE is PRISM's folder, GlobalOpinionQA, BLEnD, CARE, rows with prompt, chosen and rejected,
    or any benchmark; or a mix file (.toml), which says sources and shares. Pairs are split by
    person or question, never by row. The folder holds pairs.jsonl, card.json and card.md.
    """
    from habitus.cli.console import say
    from habitus.data.cards import UNKNOWN, non_commercial
    from habitus.pairs.making import PairsPlan, make_pairs
    from habitus.pairs.reading import CARD_TEXT

    if source.endswith(".toml"):
        card = _mix(Path(source), out, data)
    elif data is not None:
        raise InputError(f"--data applies to mix files (.toml); {source} is none")
    else:
        card = make_pairs(PairsPlan(source=source, out=out, **options), say)
    for reason, count in card.dropped.items():
        say(f"not used: {count:,} x {reason}")
    for reason, count in card.left_out.items():
        say(f"left out: {count:,} x {reason}")
    if card.non_commercial == "yes":
        forbidding = [name for name in card.licences if non_commercial([name]) == "yes"]
        say(f"note: non-commercial use only ({', '.join(forbidding)})")
    countries = len(card.countries.keys() - {UNKNOWN})
    say(
        f"{card.n_pairs:,} pairs of {card.n_groups:,} groups in {countries} countries, "
        f"read as {card.format}; test part: {card.splits.get('test', 0):,}"
    )
    say(f"card: {out / CARD_TEXT}")


def _mix(file: Path, out: Path, data: Path | None) -> PairsCard:
    """Make a mix; options that a mix file has instead are refused."""
    from habitus.cli.console import say
    from habitus.pairs.mixing import MixPlan, make_mix

    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if given is ParameterSource.COMMANDLINE and parameter.name not in _MIX:
            raise InputError(
                f"{parameter.opts[0]} does not go with a mix file: {file.name} says what is taken"
            )
    options = {name: context.params[name] for name in ("max_tokens", "tokenizer")}
    return make_mix(MixPlan(file, out, data, **options), say)
