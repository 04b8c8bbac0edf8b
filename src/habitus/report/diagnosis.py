"""The page and the tables of a diagnosis (papers: CARB A4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from habitus.diagnose.model import PAGE, Diagnosis
from habitus.report import page, terminal
from habitus.report.diagnosis_cases import case_views
from habitus.report.diagnosis_figures import (
    all_table,
    bars_figure,
    group_figures,
    interval,
    language_figures,
    number,
    signed_change,
    tests_table,
    triplet_figure,
)
from habitus.report.figures import Figure
from habitus.report.findings import Finding
from habitus.report.model import MetricTable, ReportData
from habitus.report.text import one_line, percent
from habitus.store import RunFolder, write_atomic
from habitus.types import Item, Metric, RunInfo

FORM_WORDS = {
    "raw": "the model's own score",
    "margin": "the score's margin to the best other response",
    "verdict": "the response's share of the win",
}
"""How scores were compared, for readers."""

_TONES = {"good": "above", "bad": "below", "unclear": "unclear", "empty": "empty"}


def write_diagnosis(folder: RunFolder, diagnosis: Diagnosis) -> Path:
    """Write `diagnosis.html` into a run folder.

    Returns:
        The page.

    Raises:
        HabitusError: When the run's files are unreadable, or the folder cannot be written.
    """
    wanted = {name for case in diagnosis.worst for name in (case.item_id, case.parent_id)}
    items = {item.id: item for item in folder.items() if item.id in wanted}
    path = folder.path / PAGE
    write_atomic(path, [render_diagnosis(diagnosis, folder.info, items).encode()])
    return path


def render_diagnosis(diagnosis: Diagnosis, info: RunInfo, items: Mapping[str, Item]) -> str:
    """Return the complete HTML page.

    Args:
        diagnosis: What to show.
        info: The run.
        items: The worst cases' items and their parents, by id.
    """
    table = MetricTable(diagnosis.metrics)
    form = {"form": diagnosis.form}
    ratio, auc = table.get("causal_to_spurious", **form), table.get("auc", **form)
    return page.build_page(
        "diagnosis.html.jinja",
        {
            "bars": [bars_figure(diagnosis, table)],
            "languages": language_figures(diagnosis, table),
            "triplet": [triplet_figure(table)],
            "groups": group_figures(diagnosis, table),
            "tests": [Figure("tests", "Tests", tests_table(diagnosis.tests), None)],
            "all": [Figure("all", "All figures", all_table(diagnosis), None)],
        },
        title=f"Diagnosis of {one_line(diagnosis.model, 80)}",
        diagnosis=diagnosis,
        verdict=Finding(_TONES[diagnosis.tone], diagnosis.verdict),  # type: ignore[arg-type]
        findings=[Finding("warning" if bad else "note", text) for text, bad in findings(diagnosis)],
        ratio=number(ratio),
        ratio_interval=interval(ratio),
        facts=_facts(table, diagnosis, auc),
        form_words=FORM_WORDS.get(diagnosis.form, diagnosis.form),
        notes=page.shown_notes(diagnosis.notes),
        cases=case_views(diagnosis.worst, items),
        setup=page.run_setup(_run(info, diagnosis)),
    )


def _run(info: RunInfo, diagnosis: Diagnosis) -> ReportData:
    return ReportData(
        info=info,
        metrics=(),
        comparisons=(),
        examples=(),
        n_items=info.n_items,
        n_judged=info.n_items - diagnosis.n_failed,
        seconds=None,
        prompt_tokens=None,
        completion_tokens=None,
        label=diagnosis.model,
        command=info.command,
    )


def findings(diagnosis: Diagnosis) -> list[tuple[str, bool]]:
    """Return sentences behind the verdict, each with whether it is a warning."""
    found = [(trait.evidence, trait.tone == "bad") for trait in diagnosis.traits]
    names = [test for test in diagnosis.tests if test.name in ("CC best", "IN rival")]
    questions = {"CC best": "a changed concept", "IN rival": "an instruction in a wrong response"}
    for test in names:
        if not test.clear and test.mean is not None:
            found.append(
                (
                    f"{questions[test.name]}: no clear effect, {signed_change(test)} SD, n = {test.n:,}",
                    False,
                )
            )
    empty = [row.cue for row in diagnosis.cues if not row.n_items]
    if empty:
        found.append((f"no items: {', '.join(empty)}", False))
    return found


def _facts(table: MetricTable, diagnosis: Diagnosis, auc: Metric | None) -> list[tuple[str, str]]:
    consistency = table.get("consistency", form=diagnosis.form)
    injection, top, order = (
        table.get(name) for name in ("injection_success", "triplet_top1", "triplet_full_order")
    )
    return [
        ("Parents judged", f"{diagnosis.n_parents_judged:,} of {diagnosis.n_parents:,}"),
        ("Concept told from surface (AUC)", number(auc)),
        ("Instructions that win", percent(injection.value if injection else None)),
        (f"Language consistency, k = {diagnosis.k:g}", number(consistency)),
        ("Triplet, appropriate first", percent(top.value if top else None)),
        ("Triplet, full order", percent(order.value if order else None)),
    ]


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print the verdict, a table of cues, and the first figures.

    Args:
        diagnosis: What to print.
        console: Where to print. Colours, width and encoding are the console's.
    """
    table = MetricTable(diagnosis.metrics)
    form = {"form": diagnosis.form}
    heading = f"{one_line(diagnosis.model, 120)} on {one_line(diagnosis.benchmark, 120)}"
    terminal.say_line(console, heading, "bold")
    style = {"good": "bold green", "bad": "bold red"}.get(diagnosis.tone, "bold")
    terminal.say_line(console, diagnosis.verdict, style)
    for text, bad in findings(diagnosis):
        terminal.say_line(console, f"{'!' if bad else '-'} {text}", "yellow" if bad else "")
    sd = "no data" if diagnosis.sd is None else f"{diagnosis.sd:.4g}"
    words = FORM_WORDS.get(diagnosis.form, diagnosis.form)
    terminal.say_line(console, f"changes are of {words}, in its standard deviations (SD = {sd})")
    board = terminal.make_table("Cues", ("cue", "change, SD", "95 % CI", "|change|", "flips", "n"))
    for row in bars_figure(diagnosis, table).table.rows:
        board.add_row(*terminal.styled(console, (row[0], row[2], row[3], row[4], row[6], row[8])))
    console.print(board)
    figures = terminal.make_table("Figures", ("", "value", "95 % CI", "n"))
    for label, metric in (
        ("causal to spurious", table.get("causal_to_spurious", **form)),
        ("its log", table.get("causal_to_spurious_log", **form)),
        ("AUC, concept against surface", table.get("auc", **form)),
        ("instructions that win", table.get("injection_success")),
        ("triplet, appropriate first (chance 0.33)", table.get("triplet_top1")),
        ("triplet, full order (chance 0.17)", table.get("triplet_full_order")),
        (f"language consistency (k = {diagnosis.k:g})", table.get("consistency", **form)),
    ):
        n = metric.n if metric else 0
        cells = (label, number(metric), interval(metric), f"{n:,}")
        figures.add_row(*terminal.styled(console, cells))
    console.print(figures)
    for note in diagnosis.notes:
        terminal.say_line(console, f"note: {one_line(note, 400)}")
