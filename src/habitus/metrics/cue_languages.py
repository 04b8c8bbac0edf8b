"""Figures of one content in two languages, and all figures of a diagnosis (papers: CARB A4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.cue_contrast import auc, causal_to_spurious
from habitus.metrics.cue_figures import changes, flips, injection, mean_metrics, triplet
from habitus.metrics.cues import GROUPS, CueSet, Effects
from habitus.metrics.groups import make_groups
from habitus.types import Judgement, Metric


def language_pairs(effects: Effects) -> pl.DataFrame:
    """Return each pair of versions of one response in two languages.

    Returns:
        Columns `parent`, `culture`, `language` (the parent's), `domain`, `language_a`,
        `language_b` (in alphabetical order) and `delta`, the score of the version in `language_a`
        minus that in `language_b`, in standard deviations; NaN where one has no verdict.
    """
    rows = []
    cl = effects.table.filter(pl.col("cue") == "CL")
    scale = effects.sd or math.nan
    for _, versions in cl.group_by(["parent", "edited"], maintain_order=True):
        first = versions.row(0, named=True)
        known = [(first["language"], first["before"])]
        known += versions.select("language_after", "after").rows()
        for (a, score_a), (b, score_b) in itertools.combinations(known, 2):
            if a is None or b is None or a == b:
                continue
            (x, score_x), (y, score_y) = sorted([(a, score_a), (b, score_b)])
            common = {key: first[key] for key in ("parent", *GROUPS)}
            delta = (score_x - score_y) / scale
            rows.append(common | {"language_a": x, "language_b": y, "delta": delta})
    text = (*GROUPS, "language_a", "language_b")
    schema: dict[str, pl.DataType] = {"parent": pl.Int64()} | dict.fromkeys(text, pl.String())
    return pl.DataFrame(rows, schema=schema | {"delta": pl.Float64()})


def consistency(
    effects: Effects, *, k: float, seed: int, resamples: int = RESAMPLES
) -> list[Metric]:
    """Return exp(-k |delta|) of the same content in two languages (papers: CARB A4).

    `consistency`: the mean in all, by culture and domain, and for each pair of languages.
    `language_favour`: for each language the mean of its score minus the other's, in standard
    deviations, over all pairs that it is in; and for each pair, of the first minus the second.
    """
    pairs = language_pairs(effects)
    parent = pairs["parent"].to_numpy().astype(np.int64)
    delta = pairs["delta"].to_numpy()
    both = ("language_a", "language_b")
    extra = {"form": effects.form}
    found = mean_metrics(
        "consistency",
        np.exp(-k * np.abs(delta)),
        parent,
        make_groups(pairs, [(), ("culture",), ("domain",), both]),
        share=True,
        seed=seed,
        extra=extra,
        resamples=resamples,
    )
    sides = favour_sides(pairs)
    found += mean_metrics(
        "language_favour",
        sides["delta"].to_numpy(),
        sides["parent"].to_numpy().astype(np.int64),
        make_groups(sides, [("side",)]),
        seed=seed,
        extra=extra,
        resamples=resamples,
    )
    found += mean_metrics(
        "language_favour",
        delta,
        parent,
        make_groups(pairs, [both]),
        seed=seed,
        extra=extra | {"of": "pair"},
        resamples=resamples,
    )
    return [_named(metric) for metric in found]


def favour_sides(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return `language_pairs` twice, as seen from each side: `parent`, `side`, `delta`."""
    first = pairs.select("parent", "delta", side=pl.col("language_a"))
    second = pairs.select("parent", delta=-pl.col("delta"), side=pl.col("language_b"))
    return pl.concat([first, second.select(first.columns)])


def _named(metric: Metric) -> Metric:
    """Give a metric's group the keys that readers know."""
    group = {("language" if key == "side" else key): value for key, value in metric.group.items()}
    group.pop("of", None)
    return metric.model_copy(update={"group": group})


def all_figures(
    forms: Sequence[Effects],
    cues: CueSet,
    judgements: Mapping[str, Judgement],
    *,
    k: float = 1.0,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Iterator[Metric]:
    """Yield all figures of a diagnosis.

    Args:
        forms: The effects in each form, the first one first; the others are not split by group.
        cues: The benchmark.
        judgements: Item id to judgement.
        k: How fast consistency falls with the difference.
        seed: Seed of the resampling.
        resamples: Number of bootstrap replicates.
    """
    first = forms[0]
    yield from flips(first, seed=seed, resamples=resamples)
    yield from injection(first, cues, judgements, seed=seed, resamples=resamples)
    ranks = first.form != "verdict"
    yield from triplet(cues, judgements, ranks=ranks, seed=seed, resamples=resamples)
    for effects in forms:
        by = GROUPS if effects is first else ()
        yield from changes(effects, seed=seed, by=by, resamples=resamples)
        yield from causal_to_spurious(effects, seed=seed, by=by, resamples=resamples)
        yield from auc(effects, seed=seed, by=by, resamples=resamples)
        yield from consistency(effects, k=k, seed=seed, resamples=resamples)
