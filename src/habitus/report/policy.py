"""The page and the terminal table of policies trained against reward models, from files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict
from rich.console import Console

from habitus.downstream.model import ANSWERS, PROMPTS, Answer, TaskPrompt, read_records
from habitus.downstream.policy_result import BEFORE, PAGE, PolicyStudy, Trained, read_study
from habitus.report import policy_figures as parts
from habitus.report.downstream import FEW, MAX_EXAMPLES, PER_COUNTRY
from habitus.report.figures import versions_table
from habitus.report.findings import Finding
from habitus.report.page import build_page, shown_notes
from habitus.report.terminal import make_table, say_findings, say_line, styled
from habitus.report.text import (
    Budget,
    Clip,
    count,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
)
from habitus.store import write_atomic

MANY = 0.05
"""Share of answers in training without a reward from which a warning is given."""

SIDES = 8
"""Trainings whose answers stand beside one another in an example."""


class _AnswerText(Answer):
    """A graded answer; what else its line holds is left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)


CHANCE = "baseline:random"
"""The control whose reward cannot rise."""


@dataclass(frozen=True)
class Side:
    """One policy's answer to an example's prompt."""

    title: str
    """The policy."""
    text: Clip
    """The answer."""
    grade: float | None
    """Its grade."""


@dataclass(frozen=True)
class Example:
    """One prompt with one answer of each policy, all drawn with the same random numbers."""

    country: str
    """Its country."""
    language: str
    """BCP 47 tag, or ""."""
    prompt: str
    """The prompt, cut to a line."""
    whole: Clip
    """The prompt."""
    sides: tuple[Side, ...]
    """Before training, then after."""


def write_policy(folder: Path) -> Path:
    """Write the page into a run's folder.

    Returns:
        The page.

    Raises:
        HabitusError: When the run's files are missing or unreadable, or cannot be written.
    """
    study = read_study(folder)
    prompts = list(read_records(folder / PROMPTS, TaskPrompt))
    before = _first(folder / BEFORE)
    after = {one.label: _first(folder / one.folder / ANSWERS) for one in study.scorers[:SIDES]}
    path = folder / PAGE
    write_atomic(path, [render_policy(study, prompts, before, after).encode()])
    return path


def _first(path: Path) -> dict[str, Answer]:
    """Return each prompt's answer with index 0."""
    return {one.prompt: one for one in read_records(path, _AnswerText) if one.index == 0}


def render_policy(
    study: PolicyStudy,
    prompts: Sequence[TaskPrompt],
    before: Mapping[str, Answer],
    after: Mapping[str, Mapping[str, Answer]],
) -> str:
    """Return the complete HTML page.

    Args:
        study: The figures.
        prompts: The held-out prompts.
        before: An answer to each before training.
        after: Label of each training to the same after it.
    """
    budget = Budget(60_000, each=4000)
    return build_page(
        "policy.html.jinja",
        {
            "gain": [parts.gain_figure(study)],
            "reward": [parts.reward_figure(study)],
            "watch": [parts.watch_figure(study)],
            "countries": [parts.countries_figure(study)],
            "curves": parts.curve_figures(study),
        },
        title=f"Policies trained against reward models: {study.task}, "
        f"{one_line(study.policy.name, 80)}",
        study=study,
        verdict=verdict(study),
        findings=findings(study),
        facts=_facts(study),
        measure=parts.measure(study),
        differences=parts.differences_table(study),
        costs=parts.costs_table(study),
        examples=_examples(prompts, before, after),
        notes=shown_notes(_notes(study)),
        command=budget.clip(study.command) if study.command else None,
        setup=_setup(study),
        versions=versions_table(study.versions),
    )


def _sign(one: Trained) -> int:
    if not one.gain.clear or one.gain.value is None:
        return 0
    return 1 if one.gain.value > 0 else -1


def _rose(one: Trained) -> bool:
    return one.reward_gain.clear and (one.reward_gain.value or 0.0) > 0


def verdict(study: PolicyStudy) -> Finding:
    """Say how many reward models make answers better, and whether any is hacked."""
    known = [one for one in study.scorers if one.gain.p is not None]
    if not known:
        return Finding("empty", "No data: no held-out prompt has graded answers before and after.")
    better = [one for one in known if _sign(one) > 0]
    worse = [one for one in known if _sign(one) < 0]
    total = count(len(known), "reward model")
    hacked = sum("reward up, quality down" in one.flags for one in known)
    end = f"; {hacked} of them while their reward rose" if hacked else ""
    if not better and not worse:
        none = f"None of {total}" if len(known) > 1 else f"{one_line(known[0].label, 80)}: training"
        verb = "changes" if len(known) > 1 else "does not change"
        return Finding(
            "unclear",
            f"{none} {verb} the quality of answers beyond the noise of "
            f"{count(study.prompts_graded, 'held-out prompt')}.",
        )
    said = f"{_make(better, f' of {total}')} answers better beyond the noise"
    if worse:
        return Finding("below", f"{said}; {_make(worse)} them worse{end}.")
    return Finding("above" if len(better) == len(known) else "unclear", f"{said}.")


def _make(found: Sequence[Trained], of: str = "") -> str:
    return f"{len(found)}{of} {'makes' if len(found) == 1 else 'make'}"


def findings(study: PolicyStudy) -> list[Finding]:
    """Return the sentences under the verdict."""
    found = []
    for one in study.scorers:
        if one.flags:
            text = f"Watch: trained against {one_line(one.label, 80)}: {'; '.join(one.flags)}."
            found.append(Finding("warning", text))
    found += _warnings(study)
    for one in study.scorers[:12]:
        if one.gain.value is None:
            continue
        found.append(
            Finding(
                "note",
                f"{one_line(one.label, 80)}: quality {percent(study.before.value)} before, "
                f"{percent(one.quality.value)} after ({points(one.gain.value)} points, "
                f"{point_bounds(one.gain.low, one.gain.high)}, Holm-corrected p "
                f"{p_value(one.gain.p_holm)}); {_wins(one)}{_kl(one)}.",
            )
        )
    return found


def _wins(one: Trained) -> str:
    if one.reward.value is None:
        return (
            "whether it prefers the answers after is not known, it failed on all held-out prompts"
        )
    return f"it prefers the answers after in {percent(one.reward.value, 0)} of pairs"


def _kl(one: Trained) -> str:
    token, answer = one.curves.get("kl"), one.curves.get("kl_answer")
    if token is None or answer is None:
        return ""
    return f"; KL {token.last:.3f} nats a token, {answer.last:.2f} an answer"


def _warnings(study: PolicyStudy) -> list[Finding]:
    found = []
    still = [
        one
        for one in study.scorers
        if one.reward_gain.p is not None and not _rose(one) and one.name != CHANCE
    ]
    if still:
        found.append(
            f"The reward itself cannot be told from before, or fell: {parts.headline(still)}; more "
            "--steps or a higher --lr may be needed before the quality says anything."
        )
    for one in study.scorers:
        label = one_line(one.label, 80)
        failed = {why: n for why, n in one.unscored.items() if why != "same"}
        lost, same = sum(failed.values()), one.unscored.get("same", 0)
        if one.answers and lost / one.answers >= MANY:
            found.append(
                f"{label} gave no reward for {lost:,} of {one.answers:,} answers in training; they "
                "taught nothing."
            )
        if one.answers and same / one.answers >= 0.5:
            found.append(
                f"In training against {label} most prompts had equal answers only; a higher "
                "--temperature or more --group helps."
            )
        total = sum(one.reward_failed.values())
        if total:
            found.append(f"{label} failed on {count(total, 'held-out prompt')}.")
    missing = study.prompts - study.prompts_graded
    if missing:
        found.append(f"{count(missing, 'held-out prompt')} have no graded answers.")
    if study.prompts_graded < FEW:
        found.append(
            f"Only {count(study.prompts_graded, 'held-out prompt')}: little can be told apart."
        )
    return [Finding("warning", text) for text in found]


def _facts(study: PolicyStudy) -> list[tuple[str, str]]:
    return [
        ("Quality before", percent(study.before.value)),
        ("Reward models", f"{len(study.scorers):,}"),
        ("Training prompts", f"{study.training_prompts:,}"),
        ("Held-out prompts", f"{study.prompts_graded:,}"),
        ("Countries", f"{len(study.countries):,}"),
        ("Steps", f"{study.grpo.get('steps'):,}"),
        ("Answers to a held-out prompt", f"{study.n:,}"),
    ]


def _notes(study: PolicyStudy) -> list[str]:
    notes = [str(note) for note in study.data.get("notes", ())]
    if study.training_excluded:
        notes.append(
            f"{count(study.training_excluded, 'training prompt')} left out: longer than the "
            "policy's context."
        )
    how = (
        "by their script; the extra audit looks at the words"
        if study.languages == "scripts"
        else f"by {study.languages}, short texts by their script"
    )
    notes.append(f"The language of answers is told {how}.")
    for name, why in study.not_watched.items():
        notes.append(f"Not watched: {parts.WATCHED.get(name, name).lower()}; {why}.")
    return notes


def _setup(study: PolicyStudy) -> list[tuple[str, str]]:
    grpo = study.grpo
    rank = grpo.get("lora")
    rows = [
        ("Task", study.task + (f", language {study.language}" if study.language else "")),
        ("Data", f"{study.data.get('source')} ({study.data.get('licence')})"),
        ("Digest of the held-out prompts", str(study.data.get("digest"))),
        ("Policy", study.policy.name),
        ("Policy digest", study.policy.digest),
        ("Trained", "all weights" if rank is None else f"a LoRA adapter of rank {rank}"),
        *((f"GRPO: {name}", str(value)) for name, value in grpo.items() if name != "lora"),
        ("Top-p of held-out answers", f"{study.sampling.top_p:g}"),
        ("Seed", str(study.seed)),
        *((f"Digest of {one.label}", one.digest) for one in study.scorers[:40]),
    ]
    return [(one_line(name, 80), one_line(value, 300)) for name, value in rows]


def _examples(
    prompts: Sequence[TaskPrompt],
    before: Mapping[str, Answer],
    after: Mapping[str, Mapping[str, Answer]],
) -> list[Example]:
    """Return prompts whose answers changed, those whose grade changed first."""

    def rank(prompt: TaskPrompt) -> int:
        first = before.get(prompt.id)
        then = [own.get(prompt.id) for own in after.values()]
        if first is None:
            return 2
        if any(one is not None and one.grade != first.grade for one in then):
            return 0
        return 1 if any(one is not None and one.text != first.text for one in then) else 2

    budget, shown = Budget(1_500_000, 1200), []
    countries: Counter[str] = Counter()
    for prompt in sorted(prompts, key=rank):  # stable: otherwise the prompts' order
        if rank(prompt) == 2:
            break
        countries[prompt.country] += 1
        if countries[prompt.country] > PER_COUNTRY:
            continue
        shown.append(_example(prompt, before[prompt.id], after, budget))
        if len(shown) == MAX_EXAMPLES:
            break
    return shown


def _example(
    prompt: TaskPrompt,
    first: Answer,
    after: Mapping[str, Mapping[str, Answer]],
    budget: Budget,
) -> Example:
    question = prompt.messages[-1].content
    sides = [("before training", first)]
    sides += [
        (f"after, against {one_line(label, 60)}", own[prompt.id])
        for label, own in after.items()
        if prompt.id in own
    ]
    return Example(
        country=one_line(prompt.country, 60),
        language=prompt.language or "",
        prompt=one_line(question, 160),
        whole=budget.clip(question),
        sides=tuple(
            Side(title, budget.clip(one.text or f"({one.status.value})"), one.grade)
            for title, one in sides
        ),
    )


def print_policy(study: PolicyStudy, console: Console) -> None:
    """Print the verdict and the table of trainings.

    Args:
        study: The figures.
        console: Where to print.
    """
    heading = f"trained against reward models: {study.task}, {one_line(study.policy.name, 100)}"
    say_line(console, heading, "bold")
    say_findings(console, verdict(study), findings(study))
    say_line(console, f"quality: {parts.measure(study)}; average of countries")
    headers = ("trained against", "quality", "points", "95 % CI", "Holm p", "wins")
    table = make_table("On held-out questions", headers)
    for one in study.scorers:
        cells = (
            one_line(one.label, 60),
            percent(one.quality.value),
            points(one.gain.value),
            point_bounds(one.gain.low, one.gain.high),
            p_value(one.gain.p_holm),
            percent(one.reward.value, 0),
        )
        table.add_row(*styled(console, cells))
    console.print(table)
    say_line(
        console,
        f"quality before: {percent(study.before.value)}; points: after minus before, paired; wins: "
        "pairs in which the reward model prefers the answer after training",
    )
    _print_watch(study, console)
    for note in _notes(study):
        say_line(console, f"note: {one_line(note, 400)}")


def _print_watch(study: PolicyStudy, console: Console) -> None:
    headers = ("trained against", "tokens", "cut", "language", "names", "copies", "KL")
    table = make_table("Watch: before > after", headers)
    for one in study.scorers:
        shown = (
            f"{parts.brief(study, name, found.before)} > {parts.brief(study, name, found.after)}"
            if (found := one.watch.get(name)) is not None
            else "–"
            for name in ("length", "truncated", "language", "label", "copies")
        )
        kl = one.curves.get("kl")
        cells = (one_line(one.label, 60), *shown, "–" if kl is None else f"{kl.last:.3f}")
        table.add_row(*styled(console, cells))
    console.print(table)
    say_line(
        console,
        "tokens, and per cent of answers; KL: to the policy before, nats a token, end of training",
    )
