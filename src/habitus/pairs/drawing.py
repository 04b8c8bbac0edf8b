"""Draw a share of pairs: whole numbers from shares, and from each group in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from habitus.pairs.splits import draw
from habitus.types import PreferencePair


@dataclass(frozen=True)
class Drawn:
    """What was drawn of one part."""

    wanted: int = 0
    """Pairs asked for."""
    there: int = 0
    """Pairs to draw from."""
    pairs: tuple[PreferencePair, ...] = ()
    """Pairs drawn, repeated ones among them."""
    repeated: int = 0
    """How many of them are there for another time."""


@dataclass
class Cell:
    """What one share is drawn from."""

    source: str
    """Name of the source."""
    name: str | None
    """Country, culture or language; None for the whole source."""
    share: float
    """Share of all pairs; the shares of all cells sum to 1."""
    pairs: Sequence[PreferencePair]
    """What can be drawn."""
    drawn: dict[bool, Drawn] = field(default_factory=lambda: {False: Drawn(), True: Drawn()})
    """What was drawn: of the training part (False) and of the test part (True)."""

    @property
    def short(self) -> bool:
        """Whether there are fewer pairs than were asked for."""
        return any(part.there < part.wanted for part in self.drawn.values())

    @property
    def missing(self) -> str:
        """What there is too little of, for people."""
        parts = [
            f"{'test' if test else 'training'} part {part.there:,} of {part.wanted:,} pairs"
            + (f", {part.repeated:,} repeated" if part.repeated else "")
            for test, part in self.drawn.items()
            if part.there < part.wanted
        ]
        return f"{self.source}{f', {self.name}' if self.name else ''}: {' and '.join(parts)}"


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Divide a number by shares into whole numbers that sum to it, by the largest remainders.

    Args:
        total: What to divide.
        shares: Relative sizes, above 0.
    """
    whole = sum(shares)
    exact = [total * share / whole for share in shares]
    sizes = [int(size) for size in exact]
    by_rest = sorted(range(len(sizes)), key=lambda index: (sizes[index] - exact[index], index))
    for index in by_rest[: total - sum(sizes)]:
        sizes[index] += 1
    return sizes


def draw_cell(
    pairs: Iterable[PreferencePair], wanted: int, seed: int, *, repeat: bool = False
) -> Drawn:
    """Draw pairs: one of each group before a second one of any, in the order of a hash.

    So a smaller draw is part of a larger one.

    Args:
        pairs: What to draw from.
        wanted: How many.
        seed: Seed of the hash.
        repeat: Take pairs again, under ids that end in "#2", "#3", ..., where there are too few.
    """
    groups: dict[str, list[PreferencePair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.group].append(pair)
    ranked = [
        ((rank, draw(seed, "mix", group), pair.id), pair)
        for group, own in groups.items()
        for rank, pair in enumerate(sorted(own, key=lambda pair: draw(seed, "mix", pair.id)))
    ]
    ordered = [pair for _, pair in sorted(ranked, key=lambda entry: entry[0])]
    taken = ordered[:wanted]
    missing = wanted - len(taken) if repeat and ordered else 0
    again = [
        pair.model_copy(update={"id": f"{pair.id}#{2 + index // len(ordered)}"})
        for index, pair in enumerate(islice(cycle(ordered), missing))
    ]
    return Drawn(wanted, len(ordered), (*taken, *again), len(again))
