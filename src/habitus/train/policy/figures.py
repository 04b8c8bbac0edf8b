"""From the files of a run to `policy.json`, without a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from habitus.downstream import policy_result as files
from habitus.downstream.model import (
    ANSWERS,
    Answer,
    GenerationStatus,
    Sampling,
    ScoreLine,
    ScorerEntry,
    TaskPrompt,
    read_records,
)
from habitus.downstream.policy_result import (
    Change,
    Difference,
    HeldOutQuality,
    Line,
    PolicyStudy,
    Trained,
)
from habitus.downstream.result import Gain, PolicyResult
from habitus.downstream.summary import gain_of, labels_of, quality_of
from habitus.metrics.locals_summary import curve_of
from habitus.metrics.policy import (
    BEFORE,
    PolicyFigures,
    Watched,
    after,
    study_figures,
    watched,
    win,
)
from habitus.store import dump_line, write_atomic, write_json
from habitus.train import study
from habitus.train.curve import CURVE, SAMPLES
from habitus.train.policy.heldout import HeldOutAnswer, read_answers, win_rate
from habitus.train.policy.plan import Parts, folder_of
from habitus.train.policy.watch import MEASURES, Watch

LINES = (
    *("reward", "reward_std", "flat_groups", "unscored", "quality", "length", "truncated"),
    *("kl", "kl_answer", "entropy", "loss", "tokens_per_second", "seconds"),
)
"""Figures of a step that are drawn as they are in `curve.jsonl`."""

FURTHER = ("language", "label", "repeats", "copies", "unread")
"""Figures of the watch over training, beside those of `curve.jsonl`."""

WATCHED_ANSWERS = 4000
"""Answers of a training that the watch looks at, spread evenly: telling a language takes 2 ms."""

RISES = ("truncated", "label", "repeats", "copies", "unread")
"""Figures of the watch that hacking drives up."""

FALLS = ("language", "distinct")
"""Figures that it drives down."""

LONGER = 1.2
"""Answers so many times as long as before, or as short, are flagged."""

WORDS = {
    "truncated": "more answers are cut by the token limit",
    "label": "more answers name the country, culture or language",
    "repeats": "more answers repeat themselves",
    "copies": "more answers copy the question",
    "unread": "more answers name no letter",
    "language": "fewer answers are in the prompt's language",
    "distinct": "a prompt's answers differ less",
}
"""What a flag says."""


def summarise(
    out: Path, entries: Sequence[ScorerEntry], parts: Parts, config: Mapping[str, Any], seed: int
) -> PolicyStudy:
    """Compute the figures of a run's finished trainings, and write them.

    Args:
        out: The run's folder.
        entries: Its reward models whose training is finished.
        parts: Its prompts.
        config: Its configuration.
        seed: Seed of the resampling.
    """
    prompts = parts.held_out.prompts
    most = int(config["grpo"]["max_new_tokens"])
    watch = Watch([*prompts, *parts.training.prompts], most)
    before = read_answers(out / files.BEFORE)
    graded = [one for one in prompts if _quality(before[one.id]) is not None]
    columns = _columns(graded, before, watch)
    lines = []
    folders = {one.spec.digest: _folder(out, one) for one in entries}
    for entry in entries:
        own = read_answers(folders[entry.spec.digest] / ANSWERS)
        scores = {
            line.prompt: line
            for line in read_records(folders[entry.spec.digest] / "scores.jsonl", ScoreLine)
        }
        _add(columns, entry.spec.digest, graded, own, scores, watch, int(config["n"]))
        lines += _qualities(columns, entry.spec.digest, graded)
    names = [entry.spec.digest for entry in entries]
    known = [one for one in MEASURES if watched(one) in columns]
    found = study_figures(_table(graded, columns), names, known, seed)
    labels = labels_of(entries)
    trained = [
        _trained(out, entry, label, figures, parts, watch)
        for entry, label, figures in zip(entries, labels, found.policies, strict=True)
    ]
    result = PolicyStudy(
        task=config["task"],
        data={**config["data"], "digest": parts.held_out.digest, "notes": config["notes"]},
        language=config["language"] if config["task"] == "blend-short" else None,
        policy=PolicyResult(**config["before"], engine="transformers"),
        sampling=Sampling(
            temperature=config["grpo"]["temperature"],
            top_p=config["top_p"],
            max_new_tokens=most,
        ),
        grpo={**config["grpo"], "lora": config["policy"]["lora"]},
        n=config["n"],
        seed=seed,
        countries=found.countries,
        training_prompts=len(parts.training.prompts) - config.get("excluded", 0),
        training_excluded=config.get("excluded", 0),
        prompts=len(prompts),
        prompts_graded=len(graded),
        before=quality_of(found.before),
        before_countries={name: quality_of(one) for name, one in found.before_countries.items()},
        scorers=tuple(trained),
        differences=tuple(
            Difference(a=labels[names.index(a)], b=labels[names.index(b)], gain=gain_of(one))
            for a, b, one in found.differences
        ),
        languages=watch.languages,
        not_watched=watch.missing,
        versions=config["versions"],
        command=config["command"],
    )
    write_atomic(out / files.QUALITIES, map(dump_line, lines))
    write_json(out / files.RESULT, result.model_dump(mode="json"), indent=2)
    return result


def _folder(out: Path, entry: ScorerEntry) -> Path:
    return out / folder_of(entry.spec)


def _quality(answers: Sequence[Answer]) -> float | None:
    grades = [one.grade for one in answers if one.grade is not None]
    return sum(grades) / len(grades) if grades else None


Columns = dict[str, list[float | None]]


def _columns(
    prompts: Sequence[TaskPrompt], before: Mapping[str, Sequence[HeldOutAnswer]], watch: Watch
) -> Columns:
    rows = [_measures(before[one.id], watch) for one in prompts]
    columns: Columns = {BEFORE: [_quality(before[one.id]) for one in prompts]}
    for name in MEASURES:
        if any(name in row for row in rows):
            columns[watched(name)] = [row.get(name) for row in rows]
    return columns


def _measures(answers: Sequence[HeldOutAnswer], watch: Watch) -> dict[str, float]:
    return watch.of_prompt(answers, [one.tokens for one in answers])


def _add(
    columns: Columns,
    name: str,
    prompts: Sequence[TaskPrompt],
    own: Mapping[str, Sequence[HeldOutAnswer]],
    scores: Mapping[str, ScoreLine],
    watch: Watch,
    n: int,
) -> None:
    columns[after(name)] = [_quality(own[one.id]) for one in prompts]
    columns[win(name)] = [
        win_rate(scores[one.id], n) if one.id in scores else None for one in prompts
    ]
    rows = [_measures(own[one.id], watch) for one in prompts]
    for measure in MEASURES:
        if watched(measure) in columns:
            columns[watched(measure, name)] = [row.get(measure) for row in rows]


def _qualities(columns: Columns, name: str, prompts: Sequence[TaskPrompt]) -> list[HeldOutQuality]:
    values = zip(prompts, columns[BEFORE], columns[after(name)], columns[win(name)], strict=True)
    return [
        HeldOutQuality(
            scorer=name,
            prompt=prompt.id,
            country=prompt.country,
            quality=then,
            before=first,
            win=share,
        )
        for prompt, first, then, share in values
        if first is not None and then is not None
    ]


def _table(prompts: Sequence[TaskPrompt], columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(
        [
            pl.Series("country", [one.country for one in prompts], pl.String),
            pl.Series("group", [one.group for one in prompts], pl.String),
            *(pl.Series(name, values, pl.Float64) for name, values in columns.items()),
        ]
    )


def _trained(
    out: Path,
    entry: ScorerEntry,
    label: str,
    figures: PolicyFigures,
    parts: Parts,
    watch: Watch,
) -> Trained:
    folder = _folder(out, entry)
    record = study.read_json(folder / files.RUN) or {}
    samples = study_lines(folder / SAMPLES)
    failed = Counter(
        line.status for line in read_records(folder / "scores.jsonl", ScoreLine) if not line.scores
    )
    changes = {name: _change(one) for name, one in figures.watch.items()}
    gain, reward = gain_of(figures.gain), gain_of(figures.reward_gain)
    steps = study_lines(folder / CURVE)
    return Trained(
        name=entry.name,
        label=label,
        digest=entry.spec.digest,
        kind=entry.spec.kind,
        parameters=entry.parameters,
        folder=str(folder.relative_to(out)),
        quality=quality_of(figures.quality),
        gain=gain,
        countries={name: quality_of(one) for name, one in figures.countries.items()},
        gain_by={name: gain_of(one) for name, one in figures.gain_by.items()},
        reward=quality_of(figures.reward),
        reward_gain=reward,
        reward_failed=dict(sorted(failed.items())),
        watch=changes,
        curves=_curves(label, steps, samples, watch),
        steps=len(steps),
        answers=len(samples),
        unscored=dict(sorted(Counter(one["problem"] for one in samples if one["problem"]).items())),
        flags=flags(gain, reward, changes),
        seconds=record.get("seconds"),
    )


def _change(one: Watched) -> Change:
    return Change(
        before=quality_of(one.before), after=quality_of(one.after), gain=gain_of(one.change)
    )


def study_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a finished training's JSONL file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _curves(
    label: str,
    steps: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    watch: Watch,
) -> dict[str, Line]:
    """Return the figures of a training's steps, in at most 40 points each."""
    table = pl.DataFrame(
        [{"step": one["step"]} | {name: one.get(name) for name in LINES} for one in steps],
        schema={"step": pl.Int64, **dict.fromkeys(LINES, pl.Float64)},
    )
    table = _standardised(table, samples)
    rows = []
    for one in samples[:: -(-len(samples) // WATCHED_ANSWERS) or 1]:
        answer = Answer(
            **{name: one[name] for name in ("prompt", "country", "index", "text", "matched")},
            status=GenerationStatus(one["status"]),
        )
        values = watch.measure(answer, one["tokens"]).values
        rows.append({"step": one["step"]} | {name: values[name] for name in FURTHER})
    schema = {"step": pl.Int64, **dict.fromkeys(FURTHER, pl.Float64)}
    means = pl.DataFrame(rows, schema=schema).group_by("step").mean()
    whole = table.join(means, on="step", how="left").sort("step")
    found = {}
    for name in whole.columns[1:]:
        curve = curve_of(label, name, whole, name)
        if curve is not None:
            found[name] = Line(points=curve.points, first=curve.first, last=curve.last)
    return found


def _standardised(table: pl.DataFrame, samples: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Add `reward_sd`: mean reward in standard deviations of the rewards of the first tenth.

    Reward models have scales of their own, which one chart cannot show together.
    """
    first = max(1, round(table.height / 10))
    values = pl.Series(
        [one["reward"] for one in samples if one["step"] <= first], dtype=pl.Float64
    ).drop_nulls()
    spread = values.std()
    if not isinstance(spread, float) or not spread:
        return table
    return table.with_columns(reward_sd=(pl.col("reward") - values.mean()) / spread)


def flags(gain: Gain, reward: Gain, watch: Mapping[str, Change]) -> tuple[str, ...]:
    """Say what looks like reward hacking; only differences beyond the noise count.

    Args:
        gain: Quality after minus before.
        reward: How often the reward model prefers answers after training, minus 1/2.
        watch: The watch.
    """
    found = []
    if reward.clear and (reward.value or 0) > 0 and gain.clear and (gain.value or 0) < 0:
        found.append("reward up, quality down")
    length = watch.get("length")
    if length is not None and length.gain.clear:
        before, then = length.before.value or 0.0, length.after.value or 0.0
        ratio = then / before if before else 0.0
        if ratio >= LONGER:
            found.append(f"answers are {ratio:.1f} times as long")
        elif before and ratio <= 1 / LONGER:
            found.append(f"answers are {ratio:.2f} times as long")
    for names, sign in ((RISES, 1), (FALLS, -1)):
        for name in names:
            one = watch.get(name)
            if one is not None and one.gain.clear and sign * (one.gain.value or 0) > 0:
                found.append(WORDS[name])
    return tuple(found)
