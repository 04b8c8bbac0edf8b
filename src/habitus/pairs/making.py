"""`habitus pairs`: read a source, part it by group, keep what is asked for, and write a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from habitus import __version__
from habitus.data.countries import country
from habitus.errors import InputError, RunError, UnknownNameError
from habitus.pairs.card import PairsCard, card_text, make_card
from habitus.pairs.lengths import token_counter
from habitus.pairs.people import PersonCountry
from habitus.pairs.reading import CARD, CARD_TEXT, PAIRS, read_pairs
from habitus.pairs.sources import read_source
from habitus.pairs.splits import assign, draw, prompt_key
from habitus.store import dump_line, hold, write_atomic
from habitus.types import PreferencePair

OTHER_COUNTRY = "the country is not one of --country"
EXCLUDED_COUNTRY = "the country is one of --exclude-country"
OTHER_QUESTIONS = "the group is in the other share of --questions"
EXCLUDED_QUESTION = "the question, person or prompt is in a set of --exclude-questions-of"
OVER_LIMIT = "over --limit"
TOO_LONG = "prompt and responses have more tokens than --max-tokens"


@dataclass(frozen=True)
class PairsPlan:
    """What to make pairs of, and which to keep."""

    source: str
    """A file, a folder, or a bundled benchmark's name."""
    out: Path
    """The folder to write."""
    format: str | None = None
    """As of `read_source`."""
    seed: int = 0
    """Seed of parts, folds, question shares and `limit`."""
    test_share: float = 0.15
    """Share of the groups in the test part, 0 to below 1."""
    folds: int = 5
    """Folds of the cross-validation, at least 2."""
    countries: tuple[str, ...] = ()
    """Countries to keep, by any name; empty for all."""
    excluded: tuple[str, ...] = ()
    """Countries to leave out."""
    exclude_questions_of: tuple[Path, ...] = ()
    """Sets of pairs whose groups and prompts are left out."""
    questions: Literal["a", "b"] | None = None
    """Which of two disjoint shares of the groups to keep; None for both."""
    questions_share: float = 0.5
    """Share of the groups in "a"."""
    min_margin: float | None = None
    """As of `read_source`."""
    weight: Literal["margin"] | None = None
    """What `weight` is made of; None leaves it as it is."""
    person_country: PersonCountry = "reside"
    """Which of a person's countries counts (PRISM)."""
    licence: str | None = None
    """Licence of pairs whose source names none."""
    limit: int | None = None
    """Most pairs to keep; None for all."""
    max_tokens: int | None = None
    """Most tokens of prompt and both responses; None for any."""
    tokenizer: Path | None = None
    """What counts them, as of `token_counter`."""


def make_pairs(plan: PairsPlan, say: Callable[[str], None] = lambda _: None) -> PairsCard:
    """Write a folder of preference pairs: `pairs.jsonl`, `card.json` and `card.md`.

    Equal input and options give equal bytes. Parts and folds are given before pairs are left out,
    so that two folders made of one source with one seed agree on them.

    Args:
        plan: What to make.
        say: Told what was noticed, a line each.

    Returns:
        The card, as written.

    Raises:
        InputError: When the source or an option is wrong, or no pair is left.
        RunError: When the folder holds something else, or cannot be written.
    """
    check_out(plan.out)
    say(f"reading {plan.source}")  # PRISM's 68,000 responses take some seconds
    found = read_source(
        plan.source,
        format=plan.format,
        seed=plan.seed,
        person_country=plan.person_country,
        min_margin=plan.min_margin,
    )
    check_apart(found.path, plan.out)
    check_ids(found.pairs)
    parts = assign(found.pairs, test_share=plan.test_share, folds=plan.folds, seed=plan.seed)
    left_out: Counter[str] = Counter()
    kept = _keep(found.pairs, plan, left_out)
    if not kept:
        reasons = ", ".join(f"{n} x {reason}" for reason, n in left_out.items())
        raise InputError(f"{plan.source}: no pair is left ({reasons})")
    if plan.licence and all(pair.licence for pair in kept):
        raise InputError(
            f"--licence {plan.licence[:60]}: every pair has a licence already; leave the option out"
        )
    scale = _scale(kept) if plan.weight == "margin" else None
    pairs = [
        pair.model_copy(
            update={
                "split": "test" if parts[pair.group].test else "train",
                "fold": parts[pair.group].fold,
                "licence": pair.licence or plan.licence,
                "weight": pair.weight if scale is None else (pair.margin or 0) / scale,
            }
        )
        for pair in kept
    ]
    card = make_card(pairs, _options(plan), found, dict(left_out), __version__)
    for note in card.notes:
        say(f"note: {note}")
    write_folder(plan.out, pairs, card)
    return card


def _keep(
    pairs: Sequence[PreferencePair], plan: PairsPlan, left_out: Counter[str]
) -> list[PreferencePair]:
    """Leave out what the options say; count why."""
    known = {pair.country for pair in pairs if pair.country}
    fits = fitting(plan.max_tokens, plan.tokenizer)
    wanted = {_known(name, known) for name in plan.countries}
    unwanted = {_known(name, known) for name in plan.excluded}
    groups, prompts = _seen(plan.exclude_questions_of)
    kept = []
    for pair in pairs:
        problem = None
        if wanted and pair.country not in wanted:
            problem = OTHER_COUNTRY
        elif pair.country in unwanted:
            problem = EXCLUDED_COUNTRY
        elif plan.questions and _half(pair, plan) != plan.questions:
            problem = OTHER_QUESTIONS
        elif pair.group in groups or (prompts and prompt_key(pair) in prompts):
            problem = EXCLUDED_QUESTION
        elif not fits(pair):
            problem = TOO_LONG
        if problem:
            left_out[problem] += 1
        else:
            kept.append(pair)
    if plan.limit is not None and plan.limit < len(kept):
        left_out[OVER_LIMIT] = len(kept) - plan.limit
        # Group by group: a smaller set is a part of a larger one, and few groups are cut.
        order = sorted(kept, key=lambda pair: _turn(pair, plan.seed))
        taken = {pair.id for pair in order[: plan.limit]}
        kept = [pair for pair in kept if pair.id in taken]
    return kept


def fitting(max_tokens: int | None, tokenizer: Path | None) -> Callable[[PreferencePair], bool]:
    """Return what tells whether a pair is short enough.

    Raises:
        InputError: When a length is given without a tokenizer or the other way round.
    """
    if (max_tokens is None) != (tokenizer is None):
        raise InputError("--max-tokens and --tokenizer go together: give both, or none")
    if max_tokens is None or tokenizer is None:
        return lambda pair: True
    count = token_counter(tokenizer)
    return lambda pair: count(pair) <= max_tokens


def _turn(pair: PreferencePair, seed: int) -> tuple[float, str, float]:
    return draw(seed, "limit", pair.group), pair.group, draw(seed, "limit", pair.id)


def _half(pair: PreferencePair, plan: PairsPlan) -> str:
    """Tell which share of the groups a pair belongs to, whatever its country."""
    return "a" if draw(plan.seed, "questions", pair.group) < plan.questions_share else "b"


def _known(name: str, known: Iterable[str]) -> str:
    """Return a country as the pairs name it.

    Raises:
        UnknownNameError: When no pair is of this country.
    """
    wanted = country(name)[0].casefold()
    for one in known:
        if one.casefold() == wanted:
            return one
    raise UnknownNameError("country", name, known)


def _seen(paths: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Return the groups and the normalised prompts of other sets of pairs."""
    others = [pair for path in paths for pair in read_pairs(path)]
    return {pair.group for pair in others}, {prompt_key(pair) for pair in others}


def _scale(pairs: Iterable[PreferencePair]) -> float:
    """Return the mean margin, by which margins are divided so that weights have mean 1.

    Raises:
        InputError: When a pair has no margin above 0.
    """
    margins = []
    for pair in pairs:
        if pair.margin is None or pair.margin <= 0:
            raise InputError(
                f"--weight margin: the pair {pair.id[:60]!r} has no margin above 0; leave the "
                "option out"
            )
        margins.append(pair.margin)
    return sum(margins) / len(margins)


def check_ids(pairs: Iterable[PreferencePair]) -> None:
    """Refuse repeated ids.

    Raises:
        InputError: When an id is repeated.
    """
    repeated = [id for id, n in Counter(pair.id for pair in pairs).items() if n > 1]
    if repeated:
        raise InputError(
            f"{len(repeated)} ids are repeated, {repeated[0][:60]!r} the first; ids must be unique"
        )


def _options(plan: PairsPlan) -> dict[str, object]:
    """Return the options that can change the pairs; paths by their last name only."""
    return {
        "test_share": plan.test_share,
        "folds": plan.folds,
        "countries": sorted(country(name)[0] for name in plan.countries),
        "exclude_countries": sorted(country(name)[0] for name in plan.excluded),
        "exclude_questions_of": [path.resolve().name for path in plan.exclude_questions_of],
        "questions": plan.questions,
        "questions_share": plan.questions_share if plan.questions else None,
        "min_margin": plan.min_margin,
        "weight": plan.weight,
        "person_country": plan.person_country,
        "limit": plan.limit,
        "max_tokens": plan.max_tokens,
        "tokenizer": tokenizer_name(plan.tokenizer),
        "seed": plan.seed,
    }


def tokenizer_name(tokenizer: Path | None) -> str | None:
    """Return what a card calls a tokenizer: the name of its folder."""
    if tokenizer is None:
        return None
    path = tokenizer.resolve()
    return path.parent.name if path.is_file() else path.name


def check_out(out: Path) -> None:
    """Refuse a folder that holds anything but pairs.

    Raises:
        RunError: When it does.
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; name a folder with --out")
    for path in sorted(out.iterdir()) if out.is_dir() else []:
        if path.name not in (PAIRS, CARD, CARD_TEXT) and not path.name.startswith("."):
            raise RunError(f"{out} holds other data ({path.name}); name another --out")


def check_apart(source: Path, out: Path) -> None:
    """Refuse to write into what was read.

    Raises:
        RunError: When `out` is in the source, or holds it.
    """
    read, written = source.resolve(), out.resolve()
    if written == read or read in written.parents or (read.is_file() and read.parent == written):
        raise RunError(f"{out} is in the source, {source}, or holds it; name another --out")


def write_folder(out: Path, pairs: Iterable[PreferencePair], card: PairsCard) -> None:
    """Write the folder, or leave it where it holds the same already.

    Raises:
        RunError: When it holds something else.
    """
    contents = {
        PAIRS: b"".join(dump_line(pair) for pair in pairs),
        CARD_TEXT: card_text(card).encode(),
        CARD: card.model_dump_json(indent=2, exclude_none=True).encode() + b"\n",
    }
    with hold(out / ".lock", out):
        check_out(out)
        for name, content in contents.items():
            file = out / name
            if file.exists() and file.read_bytes() != content:
                raise RunError(f"{out} holds other pairs ({name} differs); name another --out")
        for name, content in contents.items():
            if not (out / name).exists():
                write_atomic(out / name, [content])
