"""A smaller sample of a benchmark that keeps its spread over cultures and domains."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from habitus.errors import InputError
from habitus.types import Item, canonical_json


def take(items: Sequence[Item], limit: int | None, seed: int = 0) -> tuple[Item, ...]:
    """Draw at most `limit` items, spread evenly over cultures and domains.

    Within a (culture, domain) stratum items are ordered by hash(seed, id); strata take turns,
    ordered by the hash of their first item. So a smaller sample is part of a larger one, and
    the order of the input does not matter to which items are drawn.

    Args:
        items: The benchmark's items, with unique ids.
        limit: How many to draw; None for all.
        seed: Seed of the draw.

    Returns:
        The drawn items, in the benchmark's order.

    Raises:
        InputError: When `limit` is below 1.
    """
    if limit is None:
        return tuple(items)
    if limit < 1:
        raise InputError(f"limit must be at least 1, found {limit}")
    strata: dict[tuple[str, str], list[tuple[bytes, str]]] = defaultdict(list)
    for item in items:
        key = hashlib.sha256(canonical_json([seed, item.id]).encode()).digest()
        strata[(item.culture or "", item.domain or "")].append((key, item.id))
    drawn: set[str] = set()
    turns = sorted(sorted(stratum) for stratum in strata.values())
    for round_number in range(max(map(len, turns), default=0)):
        for stratum in turns:
            if len(drawn) == limit:
                break
            if round_number < len(stratum):
                drawn.add(stratum[round_number][1])
    return tuple(item for item in items if item.id in drawn)
