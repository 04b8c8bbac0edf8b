"""`habitus pairs`: make preference pairs with country and annotator from public data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from habitus.cli.options import COUNT

PATH = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, max_open=True)


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
@click.option("--limit", type=COUNT, metavar="N", help="Keep at most N pairs, group by group.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of parts, folds, --questions and --limit.",
)
def pairs(source: str, out: Path, **options: Any) -> None:
    """Make preference pairs with country and annotator from SOURCE, for habitus train.

    SOURCE is PRISM's folder, GlobalOpinionQA, BLEnD, CARE, rows with prompt, chosen and rejected,
    or any benchmark. Pairs are split by person or question, never by row. The folder holds
    pairs.jsonl, card.json and card.md.
    """
    from habitus.cli.console import say
    from habitus.pairs.making import PairsPlan, make_pairs
    from habitus.pairs.reading import CARD_TEXT

    card = make_pairs(PairsPlan(source=source, out=out, **options), say)
    for reason, count in card.dropped.items():
        say(f"not used: {count:,} x {reason}")
    for reason, count in card.left_out.items():
        say(f"left out: {count:,} x {reason}")
    if card.non_commercial == "yes":
        say(f"note: non-commercial use only ({', '.join(card.licences)})")
    say(
        f"{card.n_pairs:,} pairs of {card.n_groups:,} groups in {len(card.countries)} countries, "
        f"read as {card.format}; test part: {card.splits.get('test', 0):,}"
    )
    say(f"card: {out / CARD_TEXT}")
