"""`audit.json`: everything that an audit found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from habitus.audit.model import Audit
from habitus.store import safe_name, write_atomic

AUDIT = "audit.json"
"""Name of the file."""

SCHEMA = "habitus-audit-1"
"""Names the form of the file; it changes when a key does."""


def as_json(audit: Audit) -> dict[str, Any]:
    """Return an audit as JSON: its fields, and the verdicts that are derived from them."""
    whole: dict[str, Any] = {"schema": SCHEMA, "headline": audit.headline, "clean": audit.clean}
    whole |= _plain(audit)
    for rule, written in zip(audit.rules, whole["rules"], strict=True):
        written["verdict"] = rule.verdict
    return whole


def write_json(audit: Audit, folder: Path) -> Path:
    """Write `audit.json` into a folder and return its path.

    Raises:
        RunError: When the folder cannot be written.
    """
    path = folder / AUDIT
    text = json.dumps(as_json(audit), ensure_ascii=False, indent=1, allow_nan=False)
    # A lone surrogate cannot be written as UTF-8; the loader has replaced those it found.
    write_atomic(path, [text.encode("utf-8", "replace"), b"\n"])
    return path


def default_path(benchmark: str) -> Path:
    """Return `runs/audit__NAME`, with only letters that every file system takes."""
    return Path("runs") / f"audit__{safe_name(benchmark)[:100]}"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
