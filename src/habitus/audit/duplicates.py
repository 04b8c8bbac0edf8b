"""Texts that are the same, or nearly, within one benchmark or across two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from habitus.audit.features import ngram_counts, weighted
from habitus.audit.table import Floats, Ints, Table, normal
from habitus.types import canonical_json

THRESHOLD = 0.9
"""Cosine of character n-grams from which on two prompts are near-duplicates."""

MAX_PROMPTS = 20_000
"""Distinct prompts that are compared with each other; of more, a seeded sample."""

NGRAMS = (3, 3)
"""Length of the n-grams that prompts are compared by."""

_BLOCK = 256


@dataclass(frozen=True)
class NearDuplicates:
    """Prompts that are nearly the same."""

    group: Ints
    """A number per item; near-duplicate (and equal) prompts share it, through chains too."""
    pairs: tuple[tuple[int, int, float], ...]
    """Examples: two items of different parents and the cosine of their prompts, which differ."""
    n_pairs: int
    """Pairs of distinct prompts at or above the threshold, of different parents."""
    n_related: int
    """The same with one parent: variants by design."""
    compared: int
    """Distinct prompts that were compared with each other."""
    distinct: int
    """Distinct prompts."""


def near_duplicates(table: Table, keep: int) -> NearDuplicates:
    """Find prompts that are nearly the same.

    Args:
        table: The benchmark.
        keep: Most examples to keep.
    """
    normals = [normal(prompt) for prompt in table.prompts]
    rows = {text: row for row, text in enumerate(dict.fromkeys(normals))}
    of_item = np.array([rows[text] for text in normals], dtype=np.int64)
    first = np.full(len(rows), -1, dtype=np.int64)
    for index in range(len(normals) - 1, -1, -1):
        first[of_item[index]] = index
    chosen = sample(list(rows), table.seed)
    vectors = weighted(ngram_counts([list(rows)[row] for row in chosen], NGRAMS, "prompts"))
    label = np.arange(len(rows), dtype=np.int64)
    examples: list[tuple[int, int, float]] = []
    n_pairs = n_related = 0
    for left, right, cosine in similar_pairs(vectors):
        a, b = chosen[left], chosen[right]
        label = _joined(label, a, b)
        apart = table.cluster[first[a]] != table.cluster[first[b]]
        n_pairs += int(apart.sum())
        n_related += int((~apart).sum())
        for place in np.flatnonzero(apart)[: keep - len(examples)].tolist():
            pair = (int(first[a[place]]), int(first[b[place]]), float(cosine[place]))
            examples.append(pair)
    return NearDuplicates(
        label[of_item], tuple(examples), n_pairs, n_related, len(chosen), len(rows)
    )


def sample(texts: Sequence[str], seed: int) -> Ints:
    """Return the numbers of at most `MAX_PROMPTS` texts, drawn by hash(seed, text), in order."""
    if len(texts) <= MAX_PROMPTS:
        return np.arange(len(texts), dtype=np.int64)
    keys = [hashlib.sha256(canonical_json([seed, text]).encode()).digest() for text in texts]
    drawn = sorted(range(len(texts)), key=keys.__getitem__)[:MAX_PROMPTS]
    return np.array(sorted(drawn), dtype=np.int64)


def similar_pairs(
    vectors: sparse.csr_array, others: sparse.csr_array | None = None
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield pairs of rows whose cosine is at least `THRESHOLD`, block by block.

    Args:
        vectors: Vectors of length 1.
        others: What they are compared with; None compares them with each other, each pair once.

    Yields:
        Rows of `vectors`, rows of `others`, and the cosines.
    """
    against = vectors if others is None else others
    turned = sparse.csc_array(against.T)
    for start in range(0, vectors.shape[0], _BLOCK):
        block = vectors[start : start + _BLOCK]
        skip = start if others is None else 0
        product = sparse.coo_array(block @ turned[:, skip:])
        near = product.data >= THRESHOLD - 1e-9
        left: Ints = product.coords[0][near].astype(np.int64) + start
        right: Ints = product.coords[1][near].astype(np.int64) + skip
        cosine: Floats = np.minimum(product.data[near], 1.0)
        if others is None:
            once = right > left
            left, right, cosine = left[once], right[once], cosine[once]
        if len(left):
            order = np.lexsort((right, left))
            yield left[order], right[order], cosine[order]


def _joined(label: Ints, a: Ints, b: Ints) -> Ints:
    """Merge the groups of `label` that the pairs (a, b) connect."""
    n = len(label)
    edges = (np.concatenate([np.arange(n), a]), np.concatenate([label, b]))
    graph = sparse.coo_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(n, n))
    _, merged = sparse.csgraph.connected_components(graph, directed=False)
    # Numbers from 0 to n - 1 that are rows again: the first row of each component.
    firsts = np.full(int(merged.max()) + 1, n, dtype=np.int64)
    np.minimum.at(firsts, merged, np.arange(n))
    return firsts[merged]


def fold_groups(table: Table, near: NearDuplicates) -> Ints:
    """Return groups of items that must not be split: one parent, or near-duplicate prompts."""
    n = len(table.items)
    _, prompt = np.unique(near.group, return_inverse=True)
    shape = (n + int(prompt.max()) + 1 + int(table.cluster.max()) + 1,) * 2
    items = np.arange(n)
    ends = np.concatenate([n + prompt, n + int(prompt.max()) + 1 + table.cluster])
    ones = np.ones(2 * n, dtype=np.int8)
    graph = sparse.coo_array((ones, (np.concatenate([items, items]), ends)), shape=shape)
    _, merged = sparse.csgraph.connected_components(graph, directed=False)
    return merged[:n].astype(np.int64)
