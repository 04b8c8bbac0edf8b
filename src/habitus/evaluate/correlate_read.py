"""Read runs, downstream runs and facts into one study of how well a benchmark predicts use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import polars as pl

from habitus.errors import InputError
from habitus.evaluate.correlate_facts import (
    add_facts,
    add_sizes,
    confounders,
    facts_of,
    related_notes,
)
from habitus.evaluate.correlate_model import Culture, Model, Request, Study
from habitus.evaluate.matching import Matches, Named, match
from habitus.evaluate.outcomes import Outcome, outcome_scores, picked_countries, read_outcomes
from habitus.evaluate.summary import load_run, run_labels
from habitus.metrics import LabelledRun
from habitus.metrics.correlation_scores import UNITS_SCHEMA, Scores, make_scores
from habitus.metrics.credit import credits
from habitus.metrics.length_bias import length_bias
from habitus.metrics.read import read_longest
from habitus.store import ITEMS, RunFolder

MANY_FAILED = 0.05
"""Above this share of failures a reward model is named in a note."""


def read_study(request: Request) -> Study:
    """Read a study.

    Raises:
        InputError: When runs are of different benchmarks or of one reward model, a name is
            unknown, or nothing matches.
        HabitusError: When a file is missing or unreadable.
    """
    facts = facts_of(request)  # small files first, so that what is wrong is said at once
    outcomes = read_outcomes(request.downstream)
    countries = picked_countries(outcomes, request.countries)
    name, models = _models(request.runs, request)
    matched, notes = _match_all(models, outcomes, request)
    models = add_sizes(models, outcomes, [found.pairs for found in matched])
    models, general, grouped_by, more = add_facts(models, facts)
    notes += more
    if request.general:
        general, more = _general(request, models, name)
        notes += more
    notes += related_notes(models)
    benchmark = make_scores(name, _accuracy_units([model.run for model in models]), len(models))
    digests = [
        _digests(outcome, found, models) for outcome, found in zip(outcomes, matched, strict=True)
    ]
    cultures: tuple[Culture, ...] = ()
    if request.by_culture:
        cultures, more = _cultures(name, models, outcomes, digests, countries)
        notes += more
    scores = outcome_scores(outcomes, digests, countries)
    for one in (benchmark, *scores, *([] if general is None else [general])):
        notes += _failures(one, models)
    return Study(
        models=models,
        benchmark=benchmark,
        outcomes=scores,
        runs=outcomes,
        general=general,
        confounders=confounders(models, general),
        cultures=cultures,
        grouped_by=grouped_by,
        notes=tuple(notes),
    )


def _match_all(
    models: Sequence[Model], outcomes: Sequence[Outcome], request: Request
) -> tuple[list[Matches], list[str]]:
    """Match the runs' reward models with those of each downstream run, and say what is left."""
    found, notes = [], []
    for outcome in outcomes:
        found.append(match([model.named for model in models], outcome.models, request.how))
        notes += _match_notes(outcome.name, models, outcome.models, found[-1])
    if not any(one.pairs for one in found):
        theirs = _few([one.names[0] for one in outcomes[0].models])
        hint = "" if request.how == "auto" else ", or leave out --match"
        raise InputError(
            f"no reward model of the runs is in {outcomes[0].path}: it has {theirs}; the runs have "
            f"{_few([model.label for model in models])}; name runs of the same reward models{hint}"
        )
    return found, notes


def _match_notes(
    where: str, models: Sequence[Model], others: Sequence[Named], found: Matches
) -> list[str]:
    """Say aloud what was matched by name, and what matches nothing."""
    notes = []
    for i in found.by_name:
        other = others[found.pairs[i]].names[0]
        notes.append(
            f"{models[i].label} was matched with {other} of {where} by name: their digests differ, "
            "so some setting or version does."
        )
    lost = [model.label for i, model in enumerate(models) if i not in found.pairs]
    if lost:
        notes.append(f"Not in {where}, so left out there: {', '.join(lost)}.")
    if found.unmatched:
        names = ", ".join(others[j].names[0] for j in found.unmatched)
        notes.append(f"In {where} but not among the runs, so left out: {names}.")
    if found.ambiguous:
        names = ", ".join(found.ambiguous)
        notes.append(f"Several reward models share a name in {where} and match nothing: {names}.")
    return notes


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more if names else "none"


def _digests(outcome: Outcome, found: Matches, models: Sequence[Model]) -> list[str | None]:
    """Return each reward model's digest in a downstream run, None where it is not in it."""
    return [
        outcome.models[found.pairs[i]].digest if i in found.pairs else None
        for i in range(len(models))
    ]


def _models(paths: Sequence[Path], request: Request) -> tuple[str, tuple[Model, ...]]:
    """Return the benchmark's name and the runs' reward models, sorted by label."""
    folders = _same_benchmark(paths)
    found = []
    for folder, label in zip(folders, run_labels(folders), strict=True):
        run = _filtered(load_run(folder, label), folder.path, request)
        longest = read_longest(folder.path / ITEMS)
        bias = length_bias(run.items, run.judgements, longest)
        found.append(Model(label, _named(folder, label), folder.path, run, bias))
    name = str(folders[0].info.config["benchmark"]["name"])
    return name, tuple(sorted(found, key=lambda model: model.label))


def _named(folder: RunFolder, label: str) -> Named:
    spec = folder.info.scorer
    names = dict.fromkeys((spec.label, spec.name, label))
    return Named(tuple(names), spec.digest)


def _same_benchmark(paths: Sequence[Path]) -> list[RunFolder]:
    """Return the run folders, after a look at whether they are of one benchmark."""
    folders = [RunFolder(path) for path in paths]
    first: dict[str, Path] = {}
    for folder in folders:
        info = folder.info
        benchmark = info.config.get("benchmark")
        if not isinstance(benchmark, dict) or not {"name", "digest"} <= benchmark.keys():
            raise InputError(f"{folder.path} is no run of habitus evaluate; name one that is")
        other = folders[0].info.config["benchmark"]
        if benchmark["digest"] != other["digest"]:
            raise InputError(
                f"{folders[0].path} is of {other['name']} and {folder.path} of {benchmark['name']}, "
                "and their items differ; name runs on the same items"
            )
        twin = first.setdefault(info.scorer.digest, folder.path)
        if twin is not folder.path:
            raise InputError(
                f"{twin} and {folder.path} are runs of one reward model ({info.scorer.label}); "
                "name one of them"
            )
    return folders


def _filtered(run: LabelledRun, path: Path, request: Request) -> LabelledRun:
    """Keep the items of the domains and cultures that were asked for."""
    items = run.items
    for option, column, wanted in (
        ("--domain", "domain", request.domains),
        ("--culture", "culture", request.cultures),
    ):
        known = items[column].drop_nulls().unique().sort().to_list()
        strange = next((name for name in wanted if name not in known), None)
        if strange is not None:
            raise InputError(
                f"{option} {strange}: {path} has no such items; it has {', '.join(known) or 'none'}"
            )
        if wanted:
            items = items.filter(pl.col(column).is_in(list(wanted)))
    if items.height == 0:
        raise InputError(f"{path} has no item of this --domain and --culture; leave one out")
    judgements = run.judgements.join(items.select("item_id"), on="item_id", how="semi")
    return LabelledRun(run.label, items, judgements)


def _accuracy_units(runs: Sequence[LabelledRun], cultures: Collection[str] = ()) -> pl.DataFrame:
    """Return the credit of each item and run, as `metrics.correlation_scores` reads it."""
    parts = [pl.DataFrame(schema=UNITS_SCHEMA)]
    for index, run in enumerate(runs):
        table = run.items.select("culture", cluster="parent").with_columns(
            value=credits(run.items, run.judgements)["credit"]
        )
        if cultures:
            table = table.filter(pl.col("culture").is_in(list(cultures)))
        parts.append(
            table.select(
                model=pl.lit(index, pl.Int64),
                part=pl.lit("items"),
                share=pl.lit(1.0),
                cluster="cluster",
                value="value",
            )
        )
    return pl.concat(parts)


def _general(request: Request, models: Sequence[Model], name: str) -> tuple[Scores, list[str]]:
    """Read the runs on the general benchmark and match them with the others."""
    folders = _same_benchmark(request.general)
    labels = run_labels(folders)
    others = [_named(folder, label) for folder, label in zip(folders, labels, strict=True)]
    title = str(folders[0].info.config["benchmark"]["name"])
    digests = {
        RunFolder(path).info.config["benchmark"]["digest"]
        for path in (request.runs[0], request.general[0])
    }
    if len(digests) == 1:
        raise InputError(
            f"--general {folders[0].path} is of the same items as {request.runs[0]}; "
            "name runs on another benchmark"
        )
    title += " (general)" if title == name else ""
    found = match([model.named for model in models], others, request.how)
    notes = _match_notes(f"the runs on {title}", models, others, found)
    parts = []
    for i, j in found.pairs.items():
        run = load_run(folders[j], labels[j])
        parts.append(_accuracy_units([run]).with_columns(model=pl.lit(i, pl.Int64)))
    table = pl.concat([pl.DataFrame(schema=UNITS_SCHEMA), *parts])
    return make_scores(title, table, len(models)), notes


def _cultures(
    name: str,
    models: Sequence[Model],
    outcomes: Sequence[Outcome],
    digests: Sequence[Sequence[str | None]],
    countries: Collection[str],
) -> tuple[tuple[Culture, ...], list[str]]:
    """Pair each culture's items with the prompts of the countries that these items name."""
    items = models[0].run.items.drop_nulls(["culture", "country"])
    found, without = [], []
    for culture in items["culture"].unique().sort().to_list():
        own = items.filter(pl.col("culture") == culture)["country"].unique()
        shared = sorted(set(own.to_list()) & set(countries))
        if not shared:
            without.append(culture)
            continue
        units = _accuracy_units([model.run for model in models], (culture,))
        x = make_scores(f"{name}, {culture}", units, len(models))
        chosen = [
            place for place, outcome in enumerate(outcomes) if set(outcome.countries) & set(shared)
        ]
        y = outcome_scores(
            [outcomes[place] for place in chosen],
            [digests[place] for place in chosen],
            shared,
            everything=False,
        )
        found.append(Culture(culture, tuple(shared), x, y))
    notes = []
    if without:
        notes.append(f"No prompts of a country of these cultures: {', '.join(without)}.")
    return tuple(found), notes


def _failures(scores: Scores, models: Sequence[Model]) -> list[str]:
    """Name reward models that failed on many items or prompts."""
    notes = []
    for model, n, failed in zip(models, scores.n.tolist(), scores.n_excluded.tolist(), strict=True):
        if n and failed > MANY_FAILED * (n + failed):
            notes.append(
                f"{model.label} has no verdict on {failed:,} of {n + failed:,} {scores.units} of "
                f"{scores.name}; its figure is of the others."
            )
    return notes
