"""A study of country reward models on disk, as `habitus train scpo` writes it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Score = tuple[float, float] | None
"""Scores of the chosen and the rejected response; None where the scorer failed."""


def lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def scored(pair: str, score: Score) -> dict[str, Any]:
    """A line of scores."""
    if score is None:
        return {"pair": pair, "chosen": None, "rejected": None, "status": "truncated"}
    return {"pair": pair, "chosen": score[0], "rejected": score[1]}


def write_study(
    out: Path,
    pairs: Sequence[Mapping[str, Any]],
    base_scores: Mapping[str, Score],
    score: Callable[[str, str, int, float, Mapping[str, Any]], Score],
    *,
    variants: Sequence[str] = ("scpo", "finetune"),
    seeds: Sequence[int] = (0,),
    shares: Sequence[float] = (1.0,),
    skip: Sequence[tuple[str, str, int | None]] = (),
    **about: Any,
) -> Path:
    """Write a study.

    Args:
        out: The folder.
        pairs: `pair`, `country`, `group`, `fold` (or `split`).
        base_scores: Pair to the base's scores.
        score: From a unit's country, variant, seed and share and a pair to the unit's scores.
        variants: Variants.
        seeds: Seeds.
        shares: Shares of the data.
        skip: (country, variant, fold) of units that are not finished.
        about: Further fields of study.json.
    """
    countries = list(dict.fromkeys(pair["country"] for pair in pairs))
    folds = list(dict.fromkeys(pair.get("fold", "split") for pair in pairs))
    study = {
        "pairs_digest": "d1",
        "base": {"name": "tiny-base", "revision": "r1", "digest": "b1"},
        "countries": countries,
        "variants": list(variants),
        "folds": folds,
        "seeds": list(seeds),
        "shares": list(shares),
        "versions": {"habitus": "0"},
        "command": "habitus train scpo --pairs P",
        "non_commercial": False,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.json").write_text(json.dumps(study | about), encoding="utf-8")
    slim = {"annotator": None, "fold": None, "split": None, "language": "en", "source": "test"}
    lines(out / "pairs.jsonl", [slim | pair for pair in pairs])
    lines(out / "global.jsonl", [scored(name, each) for name, each in base_scores.items()])
    for country, variant, fold, seed, share in itertools.product(
        countries, variants, folds, seeds, shares
    ):
        name = f"{country}--{variant}--fold{fold}--seed{seed}--share{round(100 * share)}"
        unit = out / "units" / name
        unit.mkdir(parents=True, exist_ok=True)
        if (country, variant, fold) in skip:
            continue
        held = [
            pair
            for pair in pairs
            if (pair["split"] == "test" if fold == "split" else pair["fold"] == fold)
        ]
        lines(
            unit / "scores.jsonl",
            [scored(pair["pair"], score(country, variant, seed, share, pair)) for pair in held],
        )
        run = {
            "country": country,
            "variant": variant,
            "fold": fold,
            "seed": seed,
            "share": share,
            "tau": 0.7,
            "n_train": 8,
            "n_steps": 3,
            "n_too_long": 0,
            "n_skipped": 0,
            "seconds": 1.5,
            "done": True,
        }
        (unit / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return out


def unit_folder(out: Path, country: str, variant: str, fold: int = 0, seed: int = 0) -> Path:
    """The folder of a unit on all its data."""
    return out / "units" / f"{country}--{variant}--fold{fold}--seed{seed}--share100"


def two_countries() -> list[dict[str, Any]]:
    """Four questions in two countries and two folds: pairs A1 to A4 and B1 to B4."""
    return [
        {"pair": f"{name}{number}", "country": country, "group": f"q{number}", "fold": number % 2}
        for name, country in (("A", "Austria"), ("B", "Brazil"))
        for number in range(1, 5)
    ]
