"""Read what `habitus downstream` writes: what answers each reward model leads to, and their worth.

Of a folder these are needed: the task and the reward models, and one line for a reward model and a
prompt. Best-of-n has them in `downstream.json` and `picks.jsonl`, where the quality is that of the
pick; trained policies in `policy.json` and `qualities.jsonl`, where it is the mean of the answers
after training. `prompts.jsonl` names the question of each prompt, where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from habitus.errors import InputError
from habitus.evaluate.matching import Named
from habitus.metrics.correlation_scores import UNITS_SCHEMA, Scores, make_scores
from habitus.metrics.preferences_files import Schema, read_lines, read_object

RESULT, PICKS, PROMPTS = "downstream.json", "picks.jsonl", "prompts.jsonl"
"""Files of a folder of `habitus downstream bestofn`; the last is of both commands."""

TRAINED, QUALITIES = "policy.json", "qualities.jsonl"
"""Files of a folder of `habitus downstream policy`."""

AFTER = "after training"
"""Is added to the task's name where policies were trained."""

MADE_BY = "habitus downstream"
"""The command that writes them."""

ALL_TASKS = "all tasks"
"""Name of the mean over several outcomes, each counting alike."""

_REMEDY = f"run {MADE_BY} again with --resume"
_PICKS: Schema = {
    "scorer": pl.String,
    "prompt": pl.String,
    "country": pl.String,
    "quality": pl.Float64,
}
_GROUPS: Schema = {"id": pl.String, "group": pl.String}


@dataclass(frozen=True)
class OutcomeModel(Named):
    """A reward model of a downstream run."""

    parameters: int | None
    """Number of its weights, where known."""


@dataclass(frozen=True)
class Outcome:
    """One downstream run."""

    path: Path
    """Its folder."""
    task: str
    """The task."""
    policy: str
    """The policy that answered."""
    name: str
    """Names it among the outcomes."""
    countries: tuple[str, ...]
    """Countries of its prompts."""
    models: tuple[OutcomeModel, ...]
    """Its reward models."""
    picks: pl.DataFrame
    """One row for a reward model and a prompt: `scorer` (digest), `prompt`, `country`, `cluster`
    (the question), and `quality`, null where the reward model failed."""

    def units(self, digests: Sequence[str | None], countries: Collection[str]) -> pl.DataFrame:
        """Return the quality of each pick, as `metrics.correlation_scores` reads it.

        Each country counts alike in the mean. A prompt that a reward model has no line for counts
        as failed.

        Args:
            digests: Digest of each reward model; None where it is not in this run.
            countries: The countries that count.
        """
        picks = self.picks.filter(pl.col("country").is_in(list(countries)))
        number = picks["country"].n_unique()
        prompts = picks.select("prompt", "country", "cluster").unique(maintain_order=True)
        known = [(i, digest) for i, digest in enumerate(digests) if digest is not None]
        models = pl.DataFrame(known, schema={"model": pl.Int64, "scorer": pl.String}, orient="row")
        whole = models.join(prompts, how="cross").join(
            picks.select("scorer", "prompt", "quality"),
            on=["scorer", "prompt"],
            how="left",
            maintain_order="left",
        )
        table = whole.select(
            "model",
            part="country",
            share=pl.lit(1 / max(1, number)),
            cluster="cluster",
            value="quality",
        )
        return table.cast(pl.Schema(UNITS_SCHEMA))


def read_outcomes(paths: Sequence[Path]) -> tuple[Outcome, ...]:
    """Read downstream runs.

    Raises:
        InputError: When a folder is named twice, or a file is missing or broken.
    """
    for path, times in Counter(path.resolve() for path in paths).items():
        if times > 1:
            raise InputError(f"--downstream names {path} {times} times; name each folder once")
    abouts = [_about(path) for path in paths]
    tasks = Counter(about["task"] for about in abouts)
    policies = Counter((about["task"], about["policy"]) for about in abouts)
    found = []
    for path, about in zip(paths, abouts, strict=True):
        task, policy = about["task"], about["policy"]
        name = task
        if tasks[task] > 1:
            name = f"{task} [{policy if policies[task, policy] == 1 else path.name}]"
        models = tuple(_model(path, row) for row in about["scorers"] if row.get("digest"))
        picks = _picks(path / about["picks"], {model.digest for model in models})
        countries = tuple(sorted(picks["country"].unique().to_list()))
        found.append(Outcome(path, task, policy, name, countries, models, picks))
    return tuple(found)


def _about(path: Path) -> dict[str, Any]:
    """Return the task, the policy's name and the reward models of a folder."""
    if not path.is_dir():
        raise InputError(f"no such folder: {path}; give a folder written by {MADE_BY}")
    trained = (path / TRAINED).is_file() and not (path / RESULT).is_file()
    file = path / (TRAINED if trained else RESULT)
    about = read_object(file, MADE_BY)
    task, scorers, policy = about.get("task"), about.get("scorers"), about.get("policy")
    if not isinstance(task, str) or not task:
        raise InputError(f"{file}: 'task' must be a name; {_REMEDY}")
    if not isinstance(scorers, list) or not all(isinstance(row, dict) for row in scorers):
        raise InputError(f"{file}: 'scorers' must be a list of objects; {_REMEDY}")
    name = policy.get("name") if isinstance(policy, dict) else policy
    return {
        "task": f"{task} {AFTER}" if trained else task,
        "policy": str(name or "unnamed policy"),
        "scorers": scorers,
        "picks": QUALITIES if trained else PICKS,
    }


def _model(path: Path, row: dict[str, Any]) -> OutcomeModel:
    names = [row.get("label"), row.get("name")]
    digest, parameters = row["digest"], row.get("parameters")
    if not isinstance(digest, str) or not isinstance(row.get("name"), str):
        raise InputError(f"{path}: a scorer of the run needs a name and a digest; {_REMEDY}")
    if isinstance(parameters, bool) or not isinstance(parameters, int) or parameters <= 0:
        parameters = None
    known = dict.fromkeys(name for name in names if isinstance(name, str))
    return OutcomeModel(tuple(known), digest, parameters)


def _picks(file: Path, digests: Collection[str]) -> pl.DataFrame:
    path = file.parent
    picks = read_lines(file, _PICKS, ("scorer", "prompt"), _REMEDY)
    picks = picks.with_row_index("row", 1).filter(pl.col("scorer").is_in(list(digests)))
    picks = picks.with_columns(pl.col("country").fill_null("no country"))
    if picks.height == 0:
        raise InputError(f"{file}: no pick of the scorers in the run; {_REMEDY}")
    repeated = picks.filter(pl.struct("scorer", "prompt").is_duplicated())
    if repeated.height:
        first = repeated.row(0, named=True)
        raise InputError(
            f"{file}, row {first['row']}: scorer {first['scorer']} has several picks for prompt {first['prompt']!r}; "
            "keep one of them"
        )
    wrong = picks.filter((pl.col("quality") < 0) | (pl.col("quality") > 1))
    if wrong.height:
        first = wrong.row(0, named=True)
        raise InputError(
            f"{file}, row {first['row']}: quality {first['quality']:g} of prompt {first['prompt']!r} is not within "
            "0 to 1; scale it to a share"
        )
    torn = picks.group_by("prompt").agg(pl.col("country").n_unique()).filter(pl.col("country") > 1)
    if torn.height:
        raise InputError(f"{file}: prompt {torn['prompt'][0]!r} is of several countries; {_REMEDY}")
    groups = pl.DataFrame(schema=_GROUPS)
    if (path / PROMPTS).is_file():
        groups = read_lines(path / PROMPTS, _GROUPS, ("id",), _REMEDY).unique("id")
    joined = picks.join(groups, left_on="prompt", right_on="id", how="left", maintain_order="left")
    return joined.with_columns(cluster=pl.coalesce("group", "prompt")).drop("group", "row")


def picked_countries(outcomes: Sequence[Outcome], wanted: Collection[str]) -> tuple[str, ...]:
    """Return the countries that count: those that were asked for, or all.

    Raises:
        InputError: When a country that was asked for has no prompts.
    """
    known = sorted({country for outcome in outcomes for country in outcome.countries})
    strange = next((name for name in wanted if name not in known), None)
    if strange is not None:
        raise InputError(
            f"--country {strange}: no prompts; there are prompts of {', '.join(known)}"
        )
    return tuple(dict.fromkeys(wanted)) or tuple(known)


def outcome_scores(
    outcomes: Sequence[Outcome],
    digests: Sequence[Sequence[str | None]],
    countries: Collection[str],
    *,
    everything: bool = True,
) -> tuple[Scores, ...]:
    """Return the quality of each reward model by downstream run, and over all of them.

    Args:
        outcomes: The downstream runs.
        digests: For each run, the digest of each reward model in it, None where it is not.
        countries: The countries that count; each counts alike within a run.
        everything: Whether to add the mean over several runs, each counting alike.
    """
    tables = [one.units(own, countries) for one, own in zip(outcomes, digests, strict=True)]
    n_models = len(digests[0])
    found = [
        make_scores(one.name, table, n_models, "prompts")
        for one, table in zip(outcomes, tables, strict=True)
    ]
    if everything and len(outcomes) > 1:
        # Questions that several tasks share are one cluster, so they are resampled together.
        whole = pl.concat(
            table.with_columns(
                part=pl.format("{} {}", pl.lit(number), "part"), share=pl.col("share") / len(tables)
            )
            for number, table in enumerate(tables)
        )
        found.append(make_scores(ALL_TASKS, whole, n_models, "prompts"))
    return tuple(found)
