"""Make pairs by a mix file: shares per source, parts that no question crosses, nothing twice."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus import __version__
from habitus.data import bundles, load
from habitus.data.cards import non_commercial
from habitus.errors import InputError
from habitus.pairs.card import PairsCard, make_card
from habitus.pairs.drawing import Cell, apportion, draw_cell
from habitus.pairs.items import group_of
from habitus.pairs.making import (
    TOO_LONG,
    check_apart,
    check_ids,
    check_out,
    fitting,
    tokenizer_name,
    write_folder,
)
from habitus.pairs.mix import Mix, MixSource, read_mix
from habitus.pairs.mix_card import MixCount, MixedSource, MixTable, composition
from habitus.pairs.mix_pools import (
    Excluded,
    Pool,
    Repeats,
    divide,
    joined_groups,
    leave_out,
    marked,
    matches,
    value_of,
)
from habitus.pairs.reading import PAIRS, read_pairs
from habitus.pairs.sources import Found, read_source
from habitus.pairs.splits import Part, assign, conversation_key, prompt_key
from habitus.types import PreferencePair

EXCLUDED = "prompt or group is in a benchmark or set of exclude"
BOTH_PARTS = "the test part has the same prompt"


@dataclass(frozen=True)
class MixPlan:
    """Which mix to make."""

    file: Path
    """The mix file."""
    out: Path
    """The folder to write."""
    data: Path | None = None
    """Folder that the sources' paths are relative to; None for the file's own."""
    max_tokens: int | None = None
    """Most tokens of prompt and both responses; None for any."""
    tokenizer: Path | None = None
    """What counts them, as of `token_counter`."""

    @property
    def folder(self) -> Path:
        """What relative paths are relative to."""
        return self.file.parent if self.data is None else self.data


def make_mix(plan: MixPlan, say: Callable[[str], None] = lambda _: None) -> PairsCard:
    """Write a folder of pairs as a mix file says: `pairs.jsonl`, `card.json` and `card.md`.

    In this order: the sources are read; pairs are left out whose prompt or group is excluded, or
    that are too long; of pairs that several sources have, the first one's is kept; groups of
    questions that share a prompt, but for case, spacing and punctuation, become one group, and each
    group gets one part; from each part every share is drawn, a pair from each group before a
    second one from any. Equal input gives equal bytes.

    Raises:
        InputError: When the file or a source is wrong, no pair is left, or `short = "error"` and a
            share cannot be filled.
        RunError: When the folder holds something else, or cannot be written.
    """
    check_out(plan.out)
    mix = read_mix(plan.file)
    fits = fitting(plan.max_tokens, plan.tokenizer)
    for spec in mix.sources.values():
        _place(spec.path, plan)
    excluded = _excluded(mix, plan)  # before the sources: that takes long
    pools = [_read(name, spec, plan, mix.seed, say) for name, spec in mix.sources.items()]
    leave_out(pools, excluded, EXCLUDED)
    leave_out(pools, lambda pair: not fits(pair), TOO_LONG)
    leave_out(pools, Repeats(), "")
    parts, joined, moved = _part(pools, mix)
    cells = _cells(pools, mix)
    _fill(cells, parts, mix)
    short = [cell for cell in cells if cell.short]
    if short and mix.short == "error":
        more = f" (and {len(short) - 1} more)" if len(short) > 1 else ""
        raise InputError(
            f"{plan.file}: {short[0].missing}{more}; lower its share or the sizes, or set "
            'short = "warn"'
        )
    for cell in short:
        say(f"short: {cell.missing}")
    pairs = _finished(cells, parts)
    if not pairs:
        raise InputError(f"{plan.file}: no pair is left ({_reasons(pools)})")
    check_ids(pairs)
    card = make_card(pairs, _options(mix, plan), _found(plan, pools), _left_out(pools), __version__)
    card = card.model_copy(update={"mix": _table(pools, cells, pairs, joined, moved)})
    for note in card.notes:
        say(f"note: {note}")
    write_folder(plan.out, pairs, card)
    return card


def _place(name: str, plan: MixPlan) -> str:
    """Return a bundled benchmark's name as it is, a path within the data folder.

    Raises:
        InputError: When it is neither.
    """
    place = plan.folder / Path(name).expanduser()
    if name in bundles.paths():
        return name
    if not place.exists():
        raise InputError(
            f"{plan.file}: {name!r} is no benchmark of habitus benchmarks, and {place} does not "
            "exist; mend the path, or name its folder with --data"
        )
    return str(place)


def _read(name: str, spec: MixSource, plan: MixPlan, seed: int, say: Callable[[str], None]) -> Pool:
    """Read a source; its ids begin with its name.

    Raises:
        InputError: When it is wrong; the message names the source.
    """
    say(f"reading {name}")
    place = _place(spec.path, plan)
    try:
        found = read_source(
            place,
            format=spec.format,
            seed=seed,
            person_country=spec.person_country,
            min_margin=spec.min_margin,
        )
        pairs = [marked(pair, name, spec.licence) for pair in found.pairs]
        pool = Pool(name, spec, found, pairs)
        divide(pool)
    except InputError as error:
        raise InputError(f"{plan.file.name}, source {name}: {error}") from error
    if place not in bundles.paths():
        check_apart(found.path, plan.out)
    return pool


def _excluded(mix: Mix, plan: MixPlan) -> Excluded:
    """Read the benchmarks and sets of pairs that are left out."""
    groups: set[str] = set()
    prompts: set[str] = set()
    for name in mix.exclude:
        place = _place(name, plan)
        if (Path(place) / PAIRS).is_file():
            for pair in read_pairs(place):
                groups.add(pair.group)
                prompts.add(prompt_key(pair))
        else:
            for item in load(place).items:
                groups.add(group_of(item))
                prompts.add(conversation_key(item.prompt))
    return Excluded(frozenset(groups), frozenset(prompts))


def _part(pools: Sequence[Pool], mix: Mix) -> tuple[dict[str, Part], int, int]:
    """Join groups that share a prompt, give each a part, and leave out what crosses parts.

    Groups of questions are joined. People are not, or those who asked "Hello" would all be one:
    training pairs with a prompt of the test part are left out.

    Returns:
        Group to part, how many groups went into another one, and how many pairs changed their part
        by that.
    """

    def parted(pairs: list[PreferencePair]) -> dict[str, Part]:
        return assign(pairs, test_share=mix.test_share, folds=mix.folds, seed=mix.seed)

    own = [pair for pool in pools for pair in pool.pairs]
    before = parted(own)
    names = joined_groups(own)
    for pool in pools:
        pool.pairs = [
            pair.model_copy(update={"group": names.get(pair.group, pair.group)})
            for pair in pool.pairs
        ]
    pairs = [pair for pool in pools for pair in pool.pairs]
    parts = parted(pairs)
    moved = sum(
        before[old.group].test != parts[new.group].test for old, new in zip(own, pairs, strict=True)
    )
    tested = {prompt_key(pair) for pair in pairs if parts[pair.group].test}
    leave_out(
        pools,
        lambda pair: not parts[pair.group].test and prompt_key(pair) in tested,
        BOTH_PARTS,
    )
    return parts, sum(name != group for group, name in names.items()), moved


def _cells(pools: Iterable[Pool], mix: Mix) -> list[Cell]:
    """Return what is drawn from: a source, or its part of a country, culture or language."""
    total = sum(spec.share for spec in mix.sources.values())
    cells: list[Cell] = []
    for pool in pools:
        division = pool.spec.division
        share = pool.spec.share / total
        if division is None:
            cells.append(Cell(pool.name, None, share, pool.pairs))
            continue
        axis, shares = division
        whole = sum(shares.values())
        for name, weight in shares.items():
            own = [pair for pair in pool.pairs if matches(value_of(pair, axis), name, axis)]
            cells.append(Cell(pool.name, name, share * weight / whole, own))
    return cells


def _fill(cells: Sequence[Cell], parts: Mapping[str, Part], mix: Mix) -> None:
    """Draw every cell's share of both parts."""
    shares = [cell.share for cell in cells]
    for size, test in ((mix.train, False), (mix.test, True)):
        for cell, wanted in zip(cells, apportion(size, shares), strict=True):
            pairs = [pair for pair in cell.pairs if parts[pair.group].test == test]
            repeat = mix.short == "repeat" and not test
            cell.drawn[test] = draw_cell(pairs, wanted, mix.seed, repeat=repeat)


def _finished(cells: Iterable[Cell], parts: Mapping[str, Part]) -> list[PreferencePair]:
    """Return the drawn pairs with their part and fold, in the order of the sources."""
    return [
        pair.model_copy(
            update={
                "split": "test" if parts[pair.group].test else "train",
                "fold": parts[pair.group].fold,
            }
        )
        for cell in cells
        for test in (False, True)
        for pair in cell.drawn[test].pairs
    ]


def _reasons(pools: Iterable[Pool]) -> str:
    return ", ".join(f"{n} x {reason}" for reason, n in _left_out(pools).items())


def _left_out(pools: Iterable[Pool]) -> dict[str, int]:
    return dict(sum((pool.dropped for pool in pools), Counter[str]()))


def _found(plan: MixPlan, pools: Iterable[Pool]) -> Found:
    """Return the mix as if it were one source, for the card."""
    sha = hashlib.sha256(plan.file.read_bytes())
    dropped: Counter[str] = Counter()
    notes: list[str] = []
    for pool in pools:
        sha.update(pool.found.sha256.encode())
        dropped.update(pool.found.dropped)
        notes += [f"{pool.name}: {note}" for note in pool.found.notes]
    return Found((), "mix", plan.file.name, sha.hexdigest(), plan.file, dict(dropped), tuple(notes))


def _options(mix: Mix, plan: MixPlan) -> dict[str, object]:
    return {
        "train": mix.train,
        "test": mix.test,
        "test_share": round(mix.test_share, 6),
        "folds": mix.folds,
        "seed": mix.seed,
        "short": mix.short,
        "exclude": [Path(name).name for name in mix.exclude],
        "max_tokens": plan.max_tokens,
        "tokenizer": tokenizer_name(plan.tokenizer),
    }


def _table(
    pools: Iterable[Pool],
    cells: Iterable[Cell],
    pairs: Sequence[PreferencePair],
    joined: int,
    moved: int,
) -> MixTable:
    licences: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        licences[pair.id.partition(":")[0]][pair.licence or "unknown"] += 1
    sources = [
        MixedSource(
            name=pool.name,
            format=pool.found.format,
            source=pool.found.name,
            sha256=pool.found.sha256,
            licences=dict(licences[pool.name]),
            non_commercial=non_commercial(licences[pool.name]),
            dropped=pool.found.dropped,
            left_out=dict(pool.dropped),
        )
        for pool in pools
    ]
    counts = [MixCount.of(cell) for cell in cells]
    return MixTable(
        sources=tuple(sources),
        counts=tuple(counts),
        composition=composition(pairs),
        joined_groups=joined,
        moved_pairs=moved,
    )
