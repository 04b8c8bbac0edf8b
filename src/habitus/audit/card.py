"""The data card: what the benchmark is made of, and how completely that is documented."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from habitus import taxonomy
from habitus.audit.checks import check
from habitus.audit.model import Check, Count, State
from habitus.audit.table import Table
from habitus.types import Item

NOT_STATED = "not stated"
"""Value of items that do not say."""

UNEVEN = 3.0
"""A culture or domain with so many times the items of another makes the balance a note."""

_NON_COMMERCIAL = re.compile(r"(?<![A-Za-z])(NC|non[- ]?commercial)(?![A-Za-z])", re.IGNORECASE)
_KNOWN = re.compile(
    r"(CC-BY|CC0|CC-PDDC|Apache|MIT|BSD|ODC|ODbL|PDDL|GPL|LGPL|AGPL|MPL|GFDL|ISC|Unlicense|CDLA)",
    re.IGNORECASE,
)


def counts(table: Table, *, ordered: bool) -> tuple[Count, ...]:
    """Count items by culture, domain, language, country, script and so on, largest first."""
    keys: dict[str, Callable[[Item], str]] = {
        "culture x domain": lambda item: (
            f"{item.culture or NOT_STATED} x {item.domain or NOT_STATED}"
        ),
        "culture": lambda item: item.culture or NOT_STATED,
        "domain": lambda item: item.domain or NOT_STATED,
        "language": lambda item: item.language or NOT_STATED,
        "country": lambda item: item.country or NOT_STATED,
        "script": _script,
        "source": lambda item: item.source or NOT_STATED,
        "licence": lambda item: item.licence or NOT_STATED,
        "author": lambda item: item.author or NOT_STATED,
        "number of candidates": lambda item: str(len(item.candidates)),
        "number of right responses": lambda item: str(len(set(item.best_ids))),
    }
    if ordered:
        keys["position of the right response"] = _position
    found = []
    for key, value in keys.items():
        sizes = Counter(value(item) for item in table.items)
        ordered_sizes = sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))
        found += [Count(key, name, n) for name, n in ordered_sizes]
    return tuple(found)


def _script(item: Item) -> str:
    language = taxonomy.lookup(item.language) if item.language else None
    return (language.script if language else "") or NOT_STATED


def _position(item: Item) -> str:
    places = [str(i) for i, c in enumerate(item.candidates, 1) if c.id in item.best_ids]
    return " and ".join(places)


def balance(card: Sequence[Count]) -> Check:
    """Look at how evenly cultures, domains and their combinations are filled."""
    rows, parts = [], []
    for key in ("culture", "domain", "culture x domain"):
        stated = [count for count in card if count.key == key and NOT_STATED not in count.value]
        if not stated:
            continue
        most, least = stated[0], stated[-1]
        rows.append(
            (key, str(len(stated)), f"{least.value}: {least.n:,}", f"{most.value}: {most.n:,}")
        )
        if most.n >= UNEVEN * least.n:
            parts.append(f"{key} from {least.n:,} to {most.n:,}")
    missing = [
        f"{count.n:,} without {count.key}"
        for count in card
        if count.key in ("culture", "domain", "language") and count.value == NOT_STATED
    ]
    sentence = "Cultures and domains are filled about evenly."
    if parts:
        sentence = f"Items are unevenly spread: {'; '.join(parts)}."
    if not rows:
        sentence = "No item states a culture or a domain."
    if missing:
        sentence += f" Not stated: {', '.join(missing)}."
    return check(
        "balance",
        "Balance of labels",
        "note" if parts or missing or not rows else "ok",
        sentence,
        ("What", "Values", "Fewest items", "Most items"),
        rows,
    )


PROVENANCE: dict[str, Callable[[Item], bool]] = {
    "licence": lambda item: bool(item.licence),
    "source": lambda item: bool(item.source),
    "references": lambda item: bool(item.references),
    "author": lambda item: bool(item.author),
    "reason": lambda item: bool(item.reason),
    "human_validated": lambda item: item.human_validated,
}
"""What an item may document."""


def provenance(table: Table) -> Check:
    """Count how many items say their licence, source, references, author, reason, validation."""
    n = len(table.items)
    have = {key: sum(map(has, table.items)) for key, has in PROVENANCE.items()}
    rows = [(key, f"{count:,} of {n:,}", f"{100 * count / n:.1f} %") for key, count in have.items()]
    lacking = [key for key in ("licence", "source") if have[key] < n]
    partly = [key for key, count in have.items() if count < n and key not in lacking]
    state: State = "failed" if lacking else "note" if partly else "ok"
    sentence = "Every item documents all of it."
    if lacking or partly:
        sentence = "; ".join(
            f"{n - have[key]:,} of {n:,} items lack {key.replace('_', ' ')}"
            for key in [*lacking, *partly]
        )
        sentence += "."
    facts: dict[str, int | float | None] = {key: count / n for key, count in have.items()}
    columns = ("What", "Items", "Share")
    return check("provenance", "Provenance", state, sentence, columns, rows, facts=facts)


def licences(table: Table) -> Check:
    """List licences, and which of them bar commercial use or are not known."""
    sizes = Counter(item.licence or NOT_STATED for item in table.items)
    rows = []
    tally: Counter[str] = Counter()
    for name, n in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        kind = licence_kind(name)
        tally[kind] += n
        rows.append((name, f"{n:,}", kind))
    sentence = "All licences are known and allow commercial use."
    if tally["non-commercial"] or tally["unknown"]:
        sentence = (
            f"{tally['non-commercial']:,} items are for non-commercial use only; the licence of "
            f"{tally['unknown']:,} is not stated or not known."
        )
    return check(
        "licences",
        "Licences",
        "note" if tally["non-commercial"] or tally["unknown"] else "ok",
        sentence,
        ("Licence", "Items", "Kind"),
        rows,
        facts={"non_commercial": tally["non-commercial"], "unknown": tally["unknown"]},
    )


def licence_kind(name: str) -> str:
    """Return "non-commercial", "unknown" or "open" for a licence by its SPDX identifier."""
    if _NON_COMMERCIAL.search(name):
        return "non-commercial"
    return "open" if _KNOWN.match(name) else "unknown"
