"""The reward models of a run's folder, in `scorers.json`; more may be added to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from habitus.downstream.model import SCORERS, ScorerEntry
from habitus.errors import RunError
from habitus.store import write_json
from habitus.types import Scorer


def read_entries(folder: Path) -> list[ScorerEntry]:
    """Return the reward models of a folder, in the order in which they were added.

    Raises:
        RunError: When the file is unreadable.
    """
    path = folder / SCORERS
    if not path.exists():
        return []
    try:
        return [ScorerEntry.model_validate(one) for one in json.loads(path.read_bytes())]
    except (ValueError, ValidationError) as error:
        raise RunError(f"{path} is unreadable; name another --out") from error


def add_entry(
    folder: Path,
    entries: list[ScorerEntry],
    asked: str,
    scorer: Scorer,
    say: Callable[[str], None] = lambda line: None,
) -> ScorerEntry:
    """Note a reward model in a folder, unless it is there already.

    Args:
        folder: The folder.
        entries: Those that are there; it is added to them.
        asked: How it was asked for.
        scorer: The reward model.
        say: Called with a line when it is there under another name.

    Returns:
        Its entry.
    """
    same = next((one for one in entries if one.spec.digest == scorer.spec.digest), None)
    if same is not None:
        if same.name != asked:
            say(f"note: {asked} is {same.name}, which is there already")
        return same
    entry = entry_of(asked, scorer)
    entries.append(entry)
    write_json(folder / SCORERS, [one.model_dump(mode="json") for one in entries], indent=2)
    return entry


def entry_of(asked: str, scorer: Scorer) -> ScorerEntry:
    """Return what a folder notes of a reward model, its number of weights where it is known."""
    found = scorer.spec.parameters.get("weights", getattr(scorer, "weights", None))
    known = isinstance(found, int) and not isinstance(found, bool)
    return ScorerEntry(name=asked, spec=scorer.spec, parameters=found if known else None)
