"""The page and the terminal tables of a best-of-n run, made from its files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from habitus.downstream.model import (
    ANSWERS,
    PAGE,
    PICKS,
    PROMPTS,
    Answer,
    Pick,
    TaskPrompt,
    read_records,
)
from habitus.downstream.result import Downstream, PickerResult, read_result
from habitus.report import downstream_figures as parts
from habitus.report.figures import versions_table
from habitus.report.findings import Finding
from habitus.report.page import build_page, shown_notes
from habitus.report.terminal import make_table, say_findings, say_line, styled
from habitus.report.text import (
    Budget,
    Clip,
    bounds,
    count,
    one_line,
    p_value,
    percent,
    point_bounds,
    points,
)
from habitus.store import write_atomic

MAX_EXAMPLES, PER_COUNTRY = 24, 3
"""Prompts that a page shows, in all and of one country."""

MANY = 0.1
"""Share of answers that were cut, or name no letter, from which a warning is given."""

FEW = 30
"""Questions below which a warning is given."""


@dataclass(frozen=True)
class AnswerView:
    """One distinct answer on the page."""

    text: Clip
    """The answer."""
    times: int
    """How many of the prompt's answers are this text."""
    grade: str
    """Its grade."""
    good: bool
    """True when no answer of the prompt has a higher grade."""
    picked: tuple[str, ...]
    """The reward models that picked it."""
    model: str
    """What wrote it, for published answers."""


@dataclass(frozen=True)
class Example:
    """One prompt with its answers on the page."""

    country: str
    """Its country."""
    language: str
    """BCP 47 tag, or ""."""
    prompt: str
    """The prompt, cut to a line."""
    whole: Clip
    """The prompt."""
    answers: tuple[AnswerView, ...]
    """Its distinct answers, the best first."""


def write_downstream(folder: Path) -> Path:
    """Write the page into a run's folder.

    Returns:
        The page.

    Raises:
        HabitusError: When the run's files are missing or unreadable, or cannot be written.
    """
    result = read_result(folder)
    picks = list(read_records(folder / PICKS, Pick))
    prompts = {one.id: one for one in read_records(folder / PROMPTS, TaskPrompt)}
    answers: dict[str, list[Answer]] = {}
    for answer in read_records(folder / ANSWERS, Answer):
        answers.setdefault(answer.prompt, []).append(answer)
    path = folder / PAGE
    write_atomic(path, [render_downstream(result, prompts, answers, picks).encode()])
    return path


def render_downstream(
    result: Downstream,
    prompts: Mapping[str, TaskPrompt],
    answers: Mapping[str, Sequence[Answer]],
    picks: Iterable[Pick],
) -> str:
    """Return the complete HTML page."""
    budget = Budget(60_000, each=4000)
    by_country = [
        parts.curves_figure(result, country, number)
        for number, country in enumerate(result.countries[:40], 1)
    ]
    return build_page(
        "downstream.html.jinja",
        {
            "curves": [parts.curves_figure(result)],
            "countries": [parts.countries_figure(result)],
            "by_country": by_country if len(result.countries) > 1 else [],
        },
        title=f"Best of {result.n}: {result.task}, {one_line(result.policy.name, 80)}",
        result=result,
        verdict=verdict(result),
        findings=findings(result),
        facts=_facts(result),
        measure=parts.measure(result),
        picks=parts.picks_table(result),
        costs=parts.costs_table(result),
        counts=parts.answers_table(result),
        examples=_examples(result, prompts, answers, picks),
        notes=shown_notes(_notes(result)),
        command=budget.clip(result.command) if result.command else None,
        setup=_setup(result),
        versions=versions_table(result.versions),
    )


def verdict(result: Downstream) -> Finding:
    """Say how many reward models pick better than at random, beyond the noise."""
    known = [
        one for one in result.scorers if one.gain_over_random and one.gain_over_random.p is not None
    ]
    if not known:
        return Finding("empty", "No data: no prompt has graded answers that a reward model scored.")
    better = [one for one in known if _clear(one) > 0]
    worse = [one for one in known if _clear(one) < 0]
    total = count(len(known), "reward model")
    if not better and not worse:
        return Finding(
            "unclear",
            f"None of {total} can be told from a random answer on {count(result.prompts_graded, 'prompt')}.",
        )
    said = f"{len(better)} of {total} pick better than a random answer, beyond the noise"
    if worse:
        return Finding("below", f"{said}; {len(worse)} pick worse.")
    return Finding("above" if len(better) == len(known) else "unclear", f"{said}.")


def _clear(one: PickerResult) -> int:
    gain = one.gain_over_random
    if gain is None or not gain.clear or gain.value is None:
        return 0
    return 1 if gain.value > 0 else -1


def findings(result: Downstream) -> list[Finding]:
    """Return the sentences under the verdict."""
    found = [*_warnings(result)]
    shown = parts.ranked(result)
    if shown and shown[0].gain_over_random and shown[0].quality.value is not None:
        best, gain = shown[0], shown[0].gain_over_random
        found.append(
            Finding(
                "note",
                f"Highest: {best.label}, {percent(best.quality.value)}; over a random answer "
                f"{points(gain.value)} points ({point_bounds(gain.low, gain.high)}, Holm-corrected "
                f"p {p_value(gain.p_holm)}).",
            )
        )
    random, oracle = (parts.reference(result, name).quality for name in ("random", "oracle"))
    if random.value is not None:
        found.append(
            Finding(
                "note",
                f"A random answer earns {percent(random.value)}, the best of {result.n} "
                f"{percent(oracle.value)}: no pick can earn more.",
            )
        )
    for one in shown:
        if one.fallen is not None:
            gain = one.fallen.gain
            found.append(
                Finding(
                    "warning",
                    f"Over-optimisation: {one.label} loses {points(abs(gain.value or 0.0), signed=False)} points "
                    f"from n = {one.fallen.since} to n = {result.n} "
                    f"({point_bounds(gain.low, gain.high)}).",
                )
            )
    if shown and not any(one.fallen for one in shown):
        found.append(Finding("note", "No curve falls beyond the noise."))
    return found


def _warnings(result: Downstream) -> list[Finding]:
    total = sum(result.answers.values()) or 1
    lost = sum(result.answers.get(name, 0) for name in ("too-long", "refused", "error"))
    found = []
    if lost:
        found.append(
            f"{count(lost, 'answer')} of {total:,} could not be had; they are no candidates."
        )
    cut = result.answers.get("truncated", 0)
    if cut / total >= MANY:
        found.append(f"{percent(cut / total, 0)} of the answers were cut by the token limit.")
    if result.unread / total >= MANY:
        found.append(
            f"{percent(result.unread / total, 0)} of the answers name no letter; they grade 0."
        )
    missing = result.prompts - result.prompts_graded
    if missing:
        found.append(f"{count(missing, 'prompt')} of {result.prompts:,} have no graded answers.")
    for one in result.scorers:
        failed = sum(one.failed.values())
        if failed:
            found.append(
                f"{one.label} failed on {count(failed, 'prompt')}, left out of its figures."
            )
    if result.prompts_graded < FEW:
        found.append(f"Only {count(result.prompts_graded, 'prompt')}: little can be told apart.")
    return [Finding("warning", text) for text in found]


def _facts(result: Downstream) -> list[tuple[str, str]]:
    random, oracle = (parts.reference(result, name).quality for name in ("random", "oracle"))
    distinct = "–" if result.distinct is None else f"{result.distinct:.1f}"
    return [
        ("Random answer", percent(random.value)),
        (f"Best of {result.n}", percent(oracle.value)),
        ("Prompts", f"{result.prompts_graded:,}"),
        ("Countries", f"{len(result.countries):,}"),
        ("Answers to a prompt", f"{result.n:,}"),
        ("Of them distinct", distinct),
        ("Policy's tokens", f"{result.tokens:,}"),
    ]


def _notes(result: Downstream) -> list[str]:
    notes = [str(note) for note in result.data.get("notes", ())]
    every = set(result.references[0].countries) - set(result.countries)
    if every:
        listed = ", ".join(sorted(every))
        notes.append(f"Averages leave out {listed}: not every reward model has scores there.")
    if result.grader:
        notes.append(
            "Grades are within a prompt's own answers: a random answer earns 50 % by construction."
        )
    return notes


def _setup(result: Downstream) -> list[tuple[str, str]]:
    sampling = result.sampling
    rows = [
        ("Task", result.task + (f", language {result.language}" if result.language else "")),
        ("Data", f"{result.data.get('source')} ({result.data.get('licence')})"),
        ("Data digest", str(result.data.get("digest"))),
        ("Policy", result.policy.name),
        ("Policy digest", result.policy.digest),
        ("Engine", result.policy.engine or "none: published answers"),
        ("Temperature", "–" if sampling is None else f"{sampling.temperature:g}"),
        ("Top-p", "–" if sampling is None else f"{sampling.top_p:g}"),
        ("Most new tokens", "–" if sampling is None else f"{sampling.max_new_tokens:,}"),
        ("Grader", str(result.grader["name"]) if result.grader else "the task's key"),
        ("Seed", str(result.seed)),
        *((f"Digest of {one.label}", one.digest or "") for one in result.scorers[:40]),
    ]
    return [(one_line(name, 80), one_line(value, 300)) for name, value in rows]


def _examples(
    result: Downstream,
    prompts: Mapping[str, TaskPrompt],
    answers: Mapping[str, Sequence[Answer]],
    picks: Iterable[Pick],
) -> list[Example]:
    """Return prompts on which the pick matters: grades differ; disagreements first."""
    labels = {one.digest: one.label for one in result.scorers}
    chosen: dict[str, dict[int, list[str]]] = {}
    for one in picks:
        label = labels.get(one.scorer)
        if label and one.prompt in prompts:
            chosen.setdefault(one.prompt, {}).setdefault(one.picked, []).append(label)
    telling = [
        name
        for name in chosen
        if len({a.grade for a in answers.get(name, ()) if a.grade is not None}) > 1
    ]
    telling.sort(key=lambda name: -len(chosen[name]))  # stable: otherwise the prompts' order
    budget, shown = Budget(1_500_000, 1200), []
    countries: Counter[str] = Counter()
    for name in telling:
        prompt = prompts[name]
        countries[prompt.country] += 1
        if countries[prompt.country] > PER_COUNTRY:
            continue
        shown.append(_example(prompt, answers[name], chosen[name], budget))
        if len(shown) == MAX_EXAMPLES:
            break
    return shown


def _example(
    prompt: TaskPrompt,
    answers: Sequence[Answer],
    chosen: Mapping[int, Sequence[str]],
    budget: Budget,
) -> Example:
    texts: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.status.candidate:
            texts.setdefault(answer.text, []).append(answer)
    best = max((a.grade for a in answers if a.grade is not None), default=0.0)
    views = []
    for text, same in sorted(texts.items(), key=lambda pair: -(pair[1][0].grade or 0.0)):
        grade = same[0].grade
        picked = [label for a in same for label in chosen.get(a.index, ())]
        views.append(
            AnswerView(
                text=budget.clip(text or "(empty)"),
                times=len(same),
                grade="no grade" if grade is None else f"{grade:.2f}",
                good=grade == best and best > 0,
                picked=tuple(one_line(label, 60) for label in picked),
                model=one_line(same[0].model or "", 60),
            )
        )
    question = prompt.messages[-1].content
    return Example(
        country=one_line(prompt.country, 60),
        language=prompt.language or "",
        prompt=one_line(question, 160),
        whole=budget.clip(question),
        answers=tuple(views),
    )


def print_downstream(result: Downstream, console: Console) -> None:
    """Print the verdict and the table of picks.

    Args:
        result: The run.
        console: Where to print.
    """
    heading = f"best of {result.n}: {result.task}, answers of {one_line(result.policy.name, 100)}"
    say_line(console, heading, "bold")
    say_findings(console, verdict(result), findings(result))
    say_line(console, f"quality: {parts.measure(result)}; average of countries")
    table = make_table("Picks", ("pick", "quality", "95 % CI", "points", "Holm p", "n"))
    for one in (*parts.ranked(result), *result.references):
        gain = one.gain_over_random
        cells = (
            parts.name_of(one),
            percent(one.quality.value),
            bounds(one.quality.low, one.quality.high),
            points(gain.value) if gain else "–",
            p_value(gain.p_holm) if gain else "–",
            f"{one.quality.n:,}",
        )
        table.add_row(*styled(console, cells))
    console.print(table)
    say_line(console, "points: over a random answer, paired")
    for note in _notes(result):
        say_line(console, f"note: {one_line(note, 400)}")
