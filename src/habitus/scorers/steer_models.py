"""Which countries a mixture is made of, and where their models are."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from habitus.errors import InputError, UnknownNameError

STUDY, UNITS, RUN, MODEL = "study.json", "units", "run.json", "model"
"""Names in a folder of `habitus train scpo`."""

_SHARE = re.compile(r"\s*([^=]+?)\s*=\s*([^,=]+?)\s*(?:,|$)")


def parse_shares(text: str | None) -> dict[str, float]:
    """Return the shares of `A=0.7,B=0.3`, normalised to the sum 1, in the order given.

    Raises:
        InputError: When there are none, one is no number above 0, or a country is there twice.
    """
    if not text or not text.strip():
        raise InputError("steer: which countries? give --countries Chile=0.7,Israel=0.3")
    found: dict[str, float] = {}
    place = 0
    while place < len(text):
        match = _SHARE.match(text, place)
        if match is None:
            raise InputError(
                f"--countries {text!r}: {text[place:].strip()!r} is no COUNTRY=SHARE; write "
                "Chile=0.7,Israel=0.3"
            )
        name, share = match[1], _number(match[2])
        if share is None:
            raise InputError(f"--countries: the share of {name}, {match[2]!r}, must be above 0")
        if name in found:
            raise InputError(f"--countries: {name} is there twice; give it one share")
        found[name] = share
        place = match.end()
    total = math.fsum(found.values())
    return {name: share / total for name, share in found.items()}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def find_models(base: Path, say: Callable[[str], None]) -> dict[str, Path]:
    """Return the folder of each country's model.

    Of a study the models of the variant `scpo` are taken, or those of its only variant; of several
    of a country the one with most data, then the first by fold and seed. What was chosen is said.

    Args:
        base: A folder of `habitus train scpo`, or one with a model folder per country.
        say: Called with lines for the user.

    Raises:
        InputError: When the folder is missing or holds no model.
    """
    if not base.is_dir():
        raise InputError(f"no such folder: {base}; give one of habitus train scpo --keep-model")
    if (base / STUDY).is_file():
        found = _study_models(base, say)
        remedy = "train with --keep-model"
    else:
        found = {
            child.name: child
            for child in sorted(base.iterdir())
            if (child / "config.json").is_file() or (child / "adapter_config.json").is_file()
        }
        remedy = "give one folder with a model folder for each country"
    if not found:
        raise InputError(f"{base} holds no model of a country; {remedy}")
    return found


def _study_models(base: Path, say: Callable[[str], None]) -> dict[str, Path]:
    kept: dict[str, list[tuple[Any, Path]]] = {}
    variants = set()
    for folder in sorted((base / UNITS).glob("*/")):
        if not (folder / MODEL).is_dir() or not (folder / RUN).is_file():
            continue
        run = _run(folder / RUN)
        if not run.get("done"):
            continue
        variants.add(run["variant"])
        order = (-float(run["share"]), str(run["fold"]), int(run["seed"]), run["variant"])
        kept.setdefault(str(run["country"]), []).append((order, folder))
    wanted = "scpo" if "scpo" in variants else next(iter(variants), "scpo")
    if "scpo" not in variants and len(variants) > 1:
        raise InputError(
            f"{base} has models of {', '.join(sorted(variants))} but none of scpo; give a folder "
            "with one model folder for each country"
        )
    found = {}
    for country, units in kept.items():
        own = sorted(each for each in units if each[0][3] == wanted)
        if own:
            found[country] = own[0][1] / MODEL
            if len(own) > 1:
                say(f"{country}: {own[0][1].name} of {len(own)} kept models")
    if _run(base / STUDY).get("non_commercial"):
        say("these models are not for commercial use: some of their data may not be used so")
    return found


def _run(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        if path.name == RUN:
            found["country"], found["variant"], found["fold"]
            float(found["share"]), int(found["seed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not readable ({error}); run the training again") from error
    return found


def choose(
    shares: Mapping[str, float], models: Mapping[str, Path]
) -> dict[str, tuple[Path, float]]:
    """Return folder and share of each chosen country.

    Raises:
        UnknownNameError: When a country has no model; near names are suggested.
        InputError: When two names stand for one country.
    """
    plain = {_plain(name): name for name in models}
    found: dict[str, tuple[Path, float]] = {}
    for given, share in shares.items():
        name = given if given in models else plain.get(_plain(given))
        if name is None:
            raise UnknownNameError("country", given, models)
        if name in found:
            raise InputError(f"--countries: {name} is there twice; give it one share")
        found[name] = (models[name], share)
    return found


def _plain(name: str) -> str:
    """Return a name without case and signs: folders cannot hold every letter."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())
