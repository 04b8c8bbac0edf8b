"""The data card of a build: what was made, what was dropped and why, and what it cost.

Everything is counted from the records, so the card of a resumed build is that of an unbroken one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from habitus import __version__
from habitus.build.flights import CHOSEN, Flight
from habitus.build.records import Outcome, StageLogs, StageRecord
from habitus.build.references import ReferenceSet
from habitus.store import write_atomic
from habitus.types import Item, benchmark_digest

CARD, PAGE = "card.json", "card.md"
"""Names of the card for programs and for people."""

LIMITS = (
    "Questions and answers are by language models. No person of the culture has checked them; "
    "human_validated is false.",
    "Cultures share customs: a rejected answer can be right here as well. The builder cannot see "
    "that; people of the culture must.",
    "A reference speaks for its source. It does not speak for everyone of a culture, and a language "
    "is no culture.",
)
"""What holds of every build."""


def limits_of(config: Mapping[str, Any], records: Iterable[StageRecord]) -> list[str]:
    """Return what a user of the items must know, as sentences.

    Args:
        config: The build's configuration.
        records: All records.
    """
    found = list(LIMITS)
    if str(config["embedder"]).startswith("tfidf"):
        found.append(
            "The filter compares wording. An answer that denies its reference in the reference's "
            "own words passes."
        )
    if any(record.stage == "facts" for record in records):
        found.append(
            "Facts in other languages were compared in a translation by the writer, which no person "
            "has checked."
        )
    if config["languages"] is None:
        found.append("The language of the texts was not checked: lingua is not installed.")
    if config["pool"] != [config["writer"]]:
        found.append(
            "Chosen and rejected answers are by different models, whose style can tell them apart: "
            "see habitus audit."
        )
    return found


def make_card(
    config: Mapping[str, Any],
    references: ReferenceSet,
    flights: Sequence[Flight],
    items: Sequence[Item],
    logs: StageLogs,
    embedded: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Return the card.

    Args:
        config: The build's configuration.
        references: What was read.
        flights: All items that were to be made.
        items: Those that were made.
        logs: The records of this build.
        embedded: How many facts were embedded, and the tokens of that.
    """
    records = logs.visited()
    by_id = {one.id: one for one in references.pool}
    used = {one.id for flight in flights if flight.dropped is None for one in flight.sources()}
    return {
        "name": "items.jsonl",
        "author": "language-model",
        "human_validated": False,
        "habitus": __version__,
        "digest": benchmark_digest(items),
        "items": len(items),
        "planned": len(flights),
        "references": {
            "read": len(references.references),
            "only_mismatch": len(references.mismatch),
            "duplicates_left_out": references.duplicates,
            "used": len(used),
        },
        "cultures": _count(item.culture for item in items),
        "domains": _count(item.domain for item in items),
        "languages": _count(item.language for item in items),
        "stages": {stage: _stage(logs[stage].visited) for stage in logs.STAGES},
        "dropped": _dropped(flights),
        "tokens": _tokens(records) + _embedding(str(config["embedder"]), *embedded),
        "licences": _count(by_id[one].licence for one in sorted(used)),
        "chosen_by_length": _chosen_by_length(flights),
        "config": dict(config),
        "limits": limits_of(config, records),
    }


def _count(values: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(value or "not given" for value in values).items()))


def _stage(records: Sequence[StageRecord]) -> dict[str, Any]:
    outcomes = Counter(record.status for record in records)
    failed = {str(outcome): count for outcome, count in sorted(outcomes.items()) if outcome != "ok"}
    return {"records": len(records), "ok": outcomes[Outcome.OK], "failed": failed}


def _dropped(flights: Iterable[Flight]) -> dict[str, dict[str, int]]:
    """Count the items that were given up, by stage and by how the last try ended."""
    found: dict[str, Counter[str]] = {}
    for flight in flights:
        if flight.dropped is not None:
            stage, outcome = flight.dropped
            found.setdefault(stage, Counter())[str(outcome)] += 1
    return {
        stage: dict(sorted(found[stage].items())) for stage in StageLogs.STAGES if stage in found
    }


def _tokens(records: Iterable[StageRecord]) -> list[dict[str, Any]]:
    """Sum tokens by stage and model, in the order of their first record."""
    sums: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if record.model is not None:
            row = sums.setdefault((record.stage, record.model), [0, 0, 0])
            row[0] += 1
            row[1] += record.prompt_tokens
            row[2] += record.completion_tokens
    return [
        {"stage": stage, "model": model, "texts": texts, "read": read, "written": written}
        for (stage, model), (texts, read, written) in sums.items()
    ]


def _embedding(embedder: str, texts: int, tokens: int) -> list[dict[str, Any]]:
    if not tokens:
        return []
    row = {"stage": "facts embedded", "model": embedder, "texts": texts}
    return [row | {"read": tokens, "written": 0}]


def _chosen_by_length(flights: Iterable[Flight]) -> dict[str, int]:
    """Count how often the chosen answer is the longest, the shortest, or between."""
    found = {"longest": 0, "between": 0, "shortest": 0}
    for flight in flights:
        if flight.dropped is not None:
            continue
        lengths = {number: len(answer.text) for number, answer in flight.answers.items()}
        chosen = lengths.pop(CHOSEN)
        if chosen > max(lengths.values()):
            found["longest"] += 1
        elif chosen < min(lengths.values()):
            found["shortest"] += 1
        else:
            found["between"] += 1
    return found


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Write the card for programs and for people.

    Raises:
        RunError: When a file cannot be written.
    """
    text = json.dumps(card, ensure_ascii=False, indent=2)
    write_atomic(folder / CARD, [text.encode(), b"\n"])
    # Autoescape is for HTML; cell() keeps names within their cell of a Markdown table.
    environment = Environment(
        loader=PackageLoader("habitus.build", "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    page = environment.get_template("card.md.jinja").render(card=card)
    write_atomic(folder / PAGE, [page.encode()])


def _cell(value: object) -> str:
    """Return text that neither ends a cell nor begins markup."""
    text = " ".join(str(value).split())
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return text
