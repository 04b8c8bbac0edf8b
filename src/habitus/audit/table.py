"""A benchmark as flat arrays: one row per candidate, and one per item."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from habitus.metrics.credit import codes
from habitus.metrics.groups import Groups, make_groups
from habitus.types import Item, canonical_json

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GROUP_SETS: tuple[tuple[str, ...], ...] = ((), ("domain",), ("culture",))
"""What rules are evaluated on: all items, each domain, each culture."""

_EQUAL = 1e-9  # scores closer than this are a tie


@dataclass(frozen=True)
class Table:
    """Items and candidates, flattened."""

    items: tuple[Item, ...]
    """The items."""
    seed: int
    """Seed of the halves."""

    @cached_property
    def prompts(self) -> list[str]:
        """The messages of each item as one text."""
        return ["\n".join(message.content for message in item.prompt) for item in self.items]

    @cached_property
    def texts(self) -> list[str]:
        """The text of each candidate."""
        return [candidate.text for item in self.items for candidate in item.candidates]

    @cached_property
    def sizes(self) -> Ints:
        """Candidates of each item; shape (items,)."""
        return np.array([len(item.candidates) for item in self.items], dtype=np.int64)

    @cached_property
    def starts(self) -> Ints:
        """Row of each item's first candidate; shape (items,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @cached_property
    def owner(self) -> Ints:
        """The item of each candidate; shape (candidates,)."""
        return np.repeat(np.arange(len(self.items), dtype=np.int64), self.sizes)

    @cached_property
    def position(self) -> Ints:
        """Place of each candidate in its item, from 0; shape (candidates,)."""
        return np.arange(len(self.owner), dtype=np.int64) - self.starts[self.owner]

    @cached_property
    def best(self) -> Mask:
        """True for the right candidates; shape (candidates,)."""
        return np.array(
            [candidate.id in item.best_ids for item in self.items for candidate in item.candidates],
            dtype=np.bool_,
        )

    @cached_property
    def n_best(self) -> Ints:
        """Right candidates of each item; shape (items,)."""
        return np.add.reduceat(self.best.astype(np.int64), self.starts)

    @cached_property
    def chance(self) -> Floats:
        """Probability that a random pick is right; shape (items,)."""
        return self.n_best / self.sizes

    @cached_property
    def parents(self) -> list[str]:
        """The parent of each item, or its own id."""
        return [item.parent_id or item.id for item in self.items]

    @cached_property
    def cluster(self) -> Ints:
        """Number of the parent of each item; shape (items,)."""
        return codes(pl.Series("parent", self.parents, dtype=pl.String))

    @cached_property
    def half(self) -> Ints:
        """The half, 0 or 1, of each item by hash(seed, parent); shape (items,).

        Items of one parent are in one half, so that no half knows the other's texts.
        """
        return np.array(
            [
                hashlib.sha256(canonical_json([self.seed, "half", parent]).encode()).digest()[0] & 1
                for parent in self.parents
            ],
            dtype=np.int64,
        )

    @cached_property
    def groups(self) -> Groups:
        """All items, each domain, each culture."""
        frame = pl.DataFrame(
            {
                "domain": [item.domain for item in self.items],
                "culture": [item.culture for item in self.items],
            },
            schema={"domain": pl.String, "culture": pl.String},
        )
        return make_groups(frame, GROUP_SETS)

    def tops(self, scores: Floats) -> Mask:
        """Return which candidates share their item's highest score; shape (candidates,)."""
        highest = np.maximum.reduceat(scores, self.starts)
        return np.asarray(scores >= highest[self.owner] - _EQUAL, dtype=np.bool_)

    def picked(self, scores: Floats) -> Ints:
        """Count the candidates that share the highest score; shape (items,)."""
        return np.add.reduceat(self.tops(scores).astype(np.int64), self.starts)

    def credit(self, scores: Floats) -> Floats:
        """Return what picking the highest score earns; ties share (as in `metrics.credit`).

        Args:
            scores: One score per candidate; shape (candidates,).

        Returns:
            Credit of each item, 0 to 1; shape (items,).
        """
        tops = self.tops(scores)
        right = np.add.reduceat((tops & self.best).astype(np.int64), self.starts)
        return np.asarray(right / self.picked(scores), dtype=np.float64)

    def average_rank(self, values: Sequence[int]) -> Floats:
        """Return each candidate's rank in its item as a fraction, 0 lowest and 1 highest.

        Equal values share their average rank.
        """
        frame = pl.DataFrame({"owner": self.owner, "value": list(values)})
        ranks = frame.select(pl.col("value").rank("average").over("owner"))["value"].to_numpy()
        return np.asarray((ranks - 1) / (self.sizes[self.owner] - 1), dtype=np.float64)


def normal(text: str) -> str:
    """Return a text in the form in which duplicates are compared: NFKC, casefold, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
