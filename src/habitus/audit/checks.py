"""Checks of texts: duplicates, languages, and leakage between benchmarks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from scipy import sparse

from habitus.audit.duplicates import (
    NGRAMS,
    THRESHOLD,
    NearDuplicates,
    sample,
    similar_pairs,
)
from habitus.audit.features import ngram_counts, weighted
from habitus.audit.language import Found, base, known, same
from habitus.audit.model import MAX_ROWS, Check, State
from habitus.audit.table import Table, normal
from habitus.data.benchmark import Benchmark
from habitus.types import Item

EXCERPT = 80
"""Characters of a text that an example shows: texts may be harmful."""

MISMATCHED = 0.01
"""Share of checked texts in a wrong language from which on the check fails."""


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    flat = " ".join(text[: 4 * EXCERPT].split())
    return flat if len(flat) <= EXCERPT and len(text) <= 4 * EXCERPT else flat[: EXCERPT - 1] + "…"


def check(
    name: str,
    title: str,
    state: State,
    sentence: str,
    columns: Sequence[str] = (),
    rows: Sequence[tuple[str, ...]] = (),
    total: int | None = None,
    facts: dict[str, int | float | None] | None = None,
) -> Check:
    """Return a check with at most `MAX_ROWS` examples."""
    count = len(rows) if total is None else total
    return Check(
        name, title, state, sentence, tuple(columns), tuple(rows[:MAX_ROWS]), count, facts or {}
    )


def duplicate_prompts(table: Table) -> Check:
    """Look for items of different parents that ask the same."""
    asked: dict[str, list[int]] = defaultdict(list)
    for index, prompt in enumerate(table.prompts):
        asked[normal(prompt)].append(index)
    rows = []
    n_items = 0
    for members in asked.values():
        if len({table.parents[index] for index in members}) > 1:
            n_items += len(members)
            ids = ", ".join(table.items[index].id for index in members[:4])
            more = f" and {len(members) - 4} more" if len(members) > 4 else ""
            rows.append((ids + more, str(len(members)), excerpt(table.prompts[members[0]])))
    sentence = "No two items of different parents have the same prompt."
    if rows:
        sentence = f"{n_items:,} items share a prompt with an item of another parent."
    return check(
        "duplicate-prompts",
        "Same prompts",
        "note" if rows else "ok",
        sentence,
        ("Items", "How many", "Prompt"),
        rows,
        facts={"items": n_items, "prompts": len(rows)},
    )


def duplicate_items(table: Table) -> Check:
    """Look for items with the same prompt and the same candidates."""
    seen: dict[tuple[str, tuple[str, ...]], list[Item]] = defaultdict(list)
    for item, prompt in zip(table.items, table.prompts, strict=True):
        texts = tuple(sorted(normal(candidate.text) for candidate in item.candidates))
        seen[normal(prompt), texts].append(item)
    rows = [
        (", ".join(item.id for item in items[:4]), str(len(items)), _agreement(items))
        for items in seen.values()
        if len(items) > 1
    ]
    extra = sum(len(items) - 1 for items in seen.values())
    sentence = "No item occurs twice."
    if rows:
        sentence = (
            f"{extra:,} of {len(table.items):,} items repeat another item's prompt and candidates."
        )
    return check(
        "duplicate-items",
        "Same items",
        "failed" if rows else "ok",
        sentence,
        ("Items", "How many", "Right response"),
        rows,
        facts={"repeated": extra},
    )


def _agreement(items: Sequence[Item]) -> str:
    """Say whether equal items agree on what is right."""
    right = {
        tuple(sorted(normal(c.text) for c in item.candidates if c.id in item.best_ids))
        for item in items
    }
    return "the same" if len(right) == 1 else "differs"


def near_duplicate_prompts(table: Table, near: NearDuplicates) -> Check:
    """Report prompts of different parents that are nearly the same."""
    rows = [
        (
            table.items[a].id,
            table.items[b].id,
            f"{cosine:.2f}",
            excerpt(table.prompts[a]),
            excerpt(table.prompts[b]),
        )
        for a, b, cosine in near.pairs
    ]
    sentence = "No two prompts of different parents are nearly the same."
    if near.n_pairs:
        pairs = "pair" if near.n_pairs == 1 else "pairs"
        sentence = f"{near.n_pairs:,} {pairs} of prompts of different parents are nearly the same."
    if near.n_related:
        sentence += f" {near.n_related:,} more are variants of one parent."
    if near.compared < near.distinct:
        sentence += f" A sample of {near.compared:,} of {near.distinct:,} prompts was compared."
    return check(
        "near-duplicate-prompts",
        f"Nearly the same prompts (cosine from {THRESHOLD})",
        "note" if near.n_pairs else "ok",
        sentence,
        ("Item", "Other item", "Cosine", "Prompt", "Other prompt"),
        rows,
        near.n_pairs,
        {
            "pairs": near.n_pairs,
            "pairs_of_one_parent": near.n_related,
            "compared": near.compared,
            "distinct": near.distinct,
        },
    )


def duplicate_candidates(table: Table) -> Check:
    """Look for candidates of one item that are the same."""
    rows = []
    unwinnable = 0
    for item in table.items:
        sides: dict[str, list[bool]] = defaultdict(list)
        shown: dict[str, str] = {}
        for candidate in item.candidates:
            key = normal(candidate.text)
            sides[key].append(candidate.id in item.best_ids)
            shown[key] = candidate.text
        repeated = {key: found for key, found in sides.items() if len(found) > 1}
        for key, found in repeated.items():
            both = len(set(found)) > 1
            kind = "right and wrong" if both else "right" if found[0] else "wrong"
            rows.append((item.id, str(len(found)), kind, excerpt(shown[key])))
        unwinnable += any(len(set(found)) > 1 for found in repeated.values())
    rows.sort(key=lambda row: row[2] != "right and wrong")
    sentence = "No item has the same response twice."
    if rows:
        items = len({row[0] for row in rows})
        sentence = (
            f"{items:,} {'item has' if items == 1 else 'items have'} the same response twice; in "
            f"{unwinnable:,} it is right and wrong at once."
        )
    return check(
        "duplicate-candidates",
        "Same responses within an item",
        "failed" if unwinnable else "note" if rows else "ok",
        sentence,
        ("Item", "Times", "Which", "Response"),
        rows,
        facts={"items": len({row[0] for row in rows}), "right_and_wrong": unwinnable},
    )


def languages(table: Table, found: dict[str, Found]) -> Check:
    """Compare the language of each prompt and response with the one that its item states."""
    counts: Counter[str] = Counter()
    rows: list[tuple[str, ...]] = []
    for item, prompt in zip(table.items, table.prompts, strict=True):
        texts = [("prompt", prompt), *((f"response {c.id}", c.text) for c in item.candidates)]
        expected = base(item.language)
        for which, text in texts:
            kind = _kind(expected, found[text])
            counts[kind] += 1
            if kind == "mismatch":
                told = found[text]
                words = (item.id, which, expected or "", told.language or "")
                rows.append((*words, f"{told.confidence:.2f}", excerpt(text)))
    checked = counts["match"] + counts["mismatch"]
    rows.sort(key=lambda row: -float(row[4]))
    wrong = counts["mismatch"]
    state: State = "failed" if wrong > MISMATCHED * checked else "note" if wrong else "ok"
    left_out = [
        f"{counts[kind]:,} {kind}"
        for kind in ("uncertain", "too short", "not checked", "not stated")
        if counts[kind]
    ]
    sentence = f"{wrong:,} of {checked:,} texts whose language is clear are in another than stated."
    if not checked:
        state, sentence = "note", "No text's language could be compared with a stated one."
    if left_out:
        sentence += f" Left out: {', '.join(left_out)}."
    columns = ("Item", "Text", "Expected", "Found", "Confidence", "Beginning")
    keys = ("match", "mismatch", "uncertain", "too short", "not checked", "not stated")
    facts: dict[str, int | float | None] = {key.replace(" ", "_"): counts[key] for key in keys}
    return check("languages", "Languages of texts", state, sentence, columns, rows, facts=facts)


def _kind(expected: str | None, told: Found) -> str:
    """Return what a text counts as."""
    if expected is None:
        return "not stated"
    if expected not in known():
        return "not checked"
    if told.kind == "too short":
        return "too short"
    if same(told.language, expected):
        return "match"
    return "mismatch" if told.kind == "told" else "uncertain"


def leakage(table: Table, other: Benchmark) -> Check:
    """Look for ids, prompts and reference facts that another benchmark has too."""
    theirs = {item.content_digest for item in other.items}
    ours = {item.content_digest for item in table.items}
    ids = {item.id for item in other.items} & {item.id for item in table.items}
    asked = {normal(_prompt(item)): item.id for item in reversed(other.items)}
    equal = [
        (item.id, asked[normal(prompt)], "same prompt", excerpt(prompt))
        for item, prompt in zip(table.items, table.prompts, strict=True)
        if normal(prompt) in asked
    ]
    near, compared = _near(table, other, asked)
    facts = _facts(other.items)
    shared = [
        (item.id, facts[key], "same fact", excerpt(reference.fact))
        for item in table.items
        for reference in item.references
        if (key := normal(reference.fact)) in facts
    ]
    same_ids = [(name, name, "same id", "") for name in sorted(ids)]
    rows = [*equal, *near, *shared, *same_ids]
    part = ours <= theirs or theirs <= ours
    parts = [f"{len(equal):,} same and {len(near):,} nearly same prompts"]
    parts += [f"{len(shared):,} same reference facts", f"{len(ids):,} same ids"]
    sentence = f"{other.name} shares {', '.join(parts)}." if rows else f"{other.name}: no overlap."
    if part:
        sentence += " One is a part of the other, so they are no separate splits."
    if not compared:
        sentence += " Near-duplicates were looked for in a sample."
    hard = bool(equal or near or shared) and not part
    return check(
        f"leakage:{other.name}",
        f"Overlap with {other.name}",
        "failed" if hard else "note" if rows else "ok",
        sentence,
        ("Item", "Item there", "What", "Beginning"),
        rows,
        facts={
            "same_prompts": len(equal),
            "near_prompts": len(near),
            "same_facts": len(shared),
            "same_ids": len(ids),
        },
    )


def _prompt(item: Item) -> str:
    return "\n".join(message.content for message in item.prompt)


def _facts(items: Sequence[Item]) -> dict[str, str]:
    """Return each reference fact with the first item that rests on it."""
    found: dict[str, str] = {}
    for item in items:
        for reference in item.references:
            found.setdefault(normal(reference.fact), item.id)
    return found


def _near(
    table: Table, other: Benchmark, asked: dict[str, str]
) -> tuple[list[tuple[str, str, str, str]], bool]:
    """Return our prompts that are nearly the other's, and whether all were compared."""
    ours: dict[str, int] = {}
    for index, prompt in enumerate(table.prompts):
        if normal(prompt) not in asked:
            ours.setdefault(normal(prompt), index)
    left, right = list(ours), list(asked)
    if not left:
        return [], True
    drawn, drawn_there = sample(left, table.seed), sample(right, table.seed)
    texts = [left[row] for row in drawn], [right[row] for row in drawn_there]
    counts = [ngram_counts(part, NGRAMS, "prompts") for part in texts]
    vectors = weighted(sparse.csr_array(sparse.vstack(counts)))
    rows = []
    seen: set[int] = set()
    size = len(drawn)
    for mine, there, cosine in similar_pairs(vectors[:size], vectors[size:]):
        for a, b, value in zip(mine.tolist(), there.tolist(), cosine.tolist(), strict=True):
            if a not in seen:
                seen.add(a)
                index = ours[texts[0][a]]
                words = f"nearly the same prompt ({value:.2f})"
                theirs = asked[texts[1][b]]
                rows.append((table.items[index].id, theirs, words, excerpt(table.prompts[index])))
    return rows, (len(drawn), len(drawn_there)) == (len(left), len(right))
