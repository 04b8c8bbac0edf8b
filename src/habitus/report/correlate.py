"""The report of a study of how well a benchmark predicts use: page, terminal, correlation.json."""

from __future__ import annotations

from pathlib import Path

from pydantic_core import to_jsonable_python
from rich.console import Console

from habitus.evaluate.correlate import Figures
from habitus.evaluate.correlate_model import Study
from habitus.metrics.correlation import EXACT
from habitus.metrics.correlation_bootstrap import MIN_FAMILIES, Bounds
from habitus.metrics.correlation_rivals import Given, Versus
from habitus.metrics.correlation_summary import FEW, Correlation
from habitus.metrics.statistics import MAX_DRAWS, detectable_correlation, told_apart
from habitus.report import correlate_figures as parts
from habitus.report.correlate_figures import FILE, View, shown
from habitus.report.findings import Finding
from habitus.report.page import build_page, shown_notes
from habitus.report.terminal import make_table, say_findings, say_line, styled
from habitus.report.text import Budget, count, decimal, one_line, p_value
from habitus.store import write_atomic, write_json

LOW_RELIABILITY = 0.5
"""Below this reliability, noise is more than half of what differs between reward models."""


def write_correlation(study: Study, figures: Figures, page: Path, command: str) -> Path:
    """Write the page, and correlation.json beside it.

    Returns:
        The path of correlation.json.

    Raises:
        RunError: When the folder cannot be written.
    """
    write_atomic(page, [render_correlation(study, figures, command).encode()])
    beside = page.parent / FILE
    write_json(beside, to_json(study, figures))
    return beside


def to_json(study: Study, figures: Figures) -> dict[str, object]:
    """Return all figures as JSON's values; no data is null."""
    general = [] if study.general is None else [study.general]
    measures = [study.benchmark, *study.outcomes, *general]
    return {
        "verdict": verdict(View(study, figures)).text,
        "benchmark": study.benchmark.name,
        "general": None if study.general is None else study.general.name,
        "outcomes": [
            {"name": run.name, "task": run.task, "policy": run.policy, "countries": run.countries}
            for run in study.runs
        ],
        "grouped_by": study.grouped_by,
        "notes": study.notes,
        "models": [
            {
                "label": model.label,
                "digest": model.named.digest,
                "family": model.family,
                "parameters": model.parameters,
                "length_bias": model.length_bias,
                "values": {one.name: _number(float(one.values[number])) for one in measures},
            }
            for number, model in enumerate(study.models)
        ],
        **to_jsonable_python(figures),
    }


def _number(value: float) -> float | None:
    return value if value == value else None


def render_correlation(study: Study, figures: Figures, command: str) -> str:
    """Return the complete HTML page."""
    view = View(study, figures)
    scatters = parts.scatter_figures(view)
    own = len(study.outcomes)
    cultures = [(name, row) for name, rows in figures.cultures for row in rows]
    return build_page(
        "correlate.html.jinja",
        {"main": scatters[own - 1 : own], "others": scatters[: own - 1] + scatters[own:]},
        title=f"Does {one_line(study.benchmark.name, 80)} predict use?",
        verdict=verdict(view),
        findings=findings(view),
        facts=_facts(view),
        grouped=view.grouped,
        grouped_by=study.grouped_by,
        coefficients=parts.coefficient_table(figures.correlations),
        fits=parts.fit_table(figures.correlations),
        left_out=[
            (f"{row.benchmark} and {row.outcome}", parts.left_out_table(row))
            for row in (view.main, *(row for row in figures.correlations if row != view.main))
            if row.left_out
        ],
        given=parts.given_table(figures.given),
        versus=parts.versus_table(figures.versus),
        has_general=bool(figures.versus),
        cultures=parts.coefficient_table(
            [row for _, row in cultures],
            [f"{one_line(name, 60)}, {one_line(row.outcome, 60)}" for name, row in cultures],
        ),
        has_cultures=bool(figures.cultures),
        models=parts.model_table(view),
        notes=shown_notes([*study.notes, *_missing(figures)]),
        command=Budget(60_000, each=8000).clip(command),
        permutations=f"{MAX_DRAWS:,}",
        exact=EXACT,
        seed=figures.seed,
        setup=_setup(view),
    )


def verdict(view: View) -> Finding:
    """Say whether the benchmark predicts the outcome, or that this cannot be told."""
    row = view.main
    names = f"{row.benchmark} and {row.outcome}"
    r, fit = row.pearson, row.fit
    if r is None or fit is None:
        return Finding("empty", f"No correlation of {names}: {row.reason}.")
    interval = f"95\u00a0% interval of r over {view.over} {shown(r.over_models)}"
    if r.over_models is None:
        interval = f"no interval, which needs {MIN_FAMILIES} {view.over}"
    figures = (
        f"r\u00a0=\u00a0{decimal(r.value)}, r²\u00a0=\u00a0{decimal(fit.r2)}, {interval}, "
        f"Holm-corrected p\u00a0{_p(row.p_holm)}, {count(row.n, 'reward model')}"
    )
    if not _told(row):
        return Finding("unclear", f"{names}: no relation that can be told from none ({figures}).")
    if r.value > 0:
        return Finding("above", f"{names}: higher accuracy goes with higher quality ({figures}).")
    return Finding("below", f"{names}: higher accuracy goes with lower quality ({figures}).")


def _told(row: Correlation) -> bool:
    """Both the corrected test and the interval must say so."""
    r = row.pearson
    return r is not None and _clear(row.p_holm, r.over_models)


def _clear(p_holm: float | None, found: Bounds | None) -> bool:
    return found is not None and told_apart(p_holm, found.low, found.high)


def _p(p: float | None) -> str:
    text = p_value(p)
    return (text if text.startswith("<") else f"= {text}").replace(" ", "\u00a0")


def findings(view: View) -> list[Finding]:
    """Return the sentences under the verdict."""
    row, found = view.main, []
    if row.n < FEW:
        text = (
            f"Only {count(row.n, 'reward model')}: with fewer than {FEW} a correlation says little, "
            "whatever its p-value."
        )
        found.append(Finding("warning", text))
    if view.grouped:
        text = (
            f"Reward models of one {one_line(view.study.grouped_by or 'family', 40)} are not "
            f"independent: intervals over RMs draw the {row.n_families} families whole, and the "
            "permutation test is of their means. Tests marked t, and Steiger’s Z, take reward "
            "models as independent and are too sure."
        )
        found.append(Finding("note", text))
    found += [_tie_finding(row, "accuracy", row.tied_x), _tie_finding(row, "quality", row.tied_y)]
    found += _power_findings(view)
    text = parts.left_out_range(row)
    if text:
        found.append(Finding("warning" if _hangs(row) else "note", text))
    found += [_given_finding(one) for one in _main_given(view)]
    found += [_versus_finding(one) for one in view.figures.versus if one.outcome == row.outcome]
    found += _noise_findings(row)
    return [one for one in found if one.text]


def _power_findings(view: View) -> list[Finding]:
    """Say, where nothing is told, which relation would have been."""
    row = view.main
    least = detectable_correlation(row.n_families)
    if row.pearson is None or least is None or _told(row):
        return []
    text = (
        f"With {row.n_families} independent {view.over} a true r of {decimal(least)} or more, either "
        "way, would be found four times in five before Holm’s correction."
    )
    return [Finding("note", text)]


def _tie_finding(row: Correlation, what: str, tied: int) -> Finding:
    text = f"{tied} of {row.n} reward models share their {what} with another." if tied else ""
    return Finding("warning" if 2 * tied > row.n else "note", text)


def _hangs(row: Correlation) -> bool:
    """Whether the sign, or the line's significance, hangs on one reward model."""
    r, fit = row.pearson, row.fit
    if r is None or fit is None:
        return False
    return any(
        one.r is None or one.p is None or one.r * r.value <= 0 or (fit.p < 0.05) != (one.p < 0.05)
        for one in row.left_out
    )


def _main_given(view: View) -> list[Given]:
    """Return the rows of the main outcome that say something: each confounder, and all."""
    return [one for one in view.figures.given if one.outcome == view.main.outcome]


def _given_finding(row: Given) -> Finding:
    names = " and ".join(row.confounders) if len(row.confounders) < 3 else "all confounders"
    if row.value is None:
        if row.n == 0:
            return Finding("note", f"Given {names}: not known for any reward model.")
        return Finding("note", f"Given {names}: no partial correlation, {row.reason}.")
    return Finding(
        "note",
        f"Given {names}, r is {decimal(row.value)} (95\u00a0% interval {shown(row.bounds)}, "
        f"Holm-corrected p\u00a0{_p(row.p_holm)}) and {decimal(row.plain)} without, on the same "
        f"{count(row.n, 'reward model')}.",
    )


def _versus_finding(row: Versus) -> Finding:
    if row.difference is None:
        return Finding("note", f"Against {row.second}: no comparison, {row.reason}.")
    told = _clear(row.p_holm, row.over_models)
    z = (
        ""
        if row.z is None
        else f"Steiger’s Z {decimal(row.z)}, Holm-corrected p\u00a0{_p(row.p_holm)}, "
    )
    figures = (
        f"r {decimal(row.r_first)} against {decimal(row.r_second)}, difference "
        f"{decimal(row.difference)}, {z}95\u00a0% interval {shown(row.over_models)}"
    )
    if not told:
        text = f"{row.first} and {row.second} cannot be told apart as predictors ({figures})."
    else:
        better, worse = row.first, row.second
        if row.difference < 0:
            better, worse = worse, better
        text = f"{better} correlates more with {row.outcome} than {worse} does ({figures})."
    return Finding("note", text)


def _noise_findings(row: Correlation) -> list[Finding]:
    found = []
    for what, units, value in (
        ("accuracy", "items", row.reliability_x),
        ("quality", "prompts", row.reliability_y),
    ):
        if value is not None and value < LOW_RELIABILITY:
            text = (
                f"Reward models differ in {what} by no more than the noise of the {units} makes "
                "them: there is little to correlate."
                if value <= 0
                else f"Most of the differences in {what} are noise of the {units} (reliability "
                f"{decimal(value)}): the correlation is held down by it."
            )
            found.append(Finding("warning", text))
    if row.disattenuated is not None and row.pearson is not None:
        limit = (
            ", above 1 because both reliabilities are estimates"
            if abs(row.disattenuated) > 1
            else ""
        )
        text = (
            f"Extra: without the noise of items and prompts r would be about "
            f"{decimal(row.disattenuated)}{limit} (reliability of accuracy "
            f"{decimal(row.reliability_x)}, of quality {decimal(row.reliability_y)})."
        )
        found.append(Finding("note", text))
    return found


def _missing(figures: Figures) -> list[str]:
    """Say which reward models each correlation lacks."""
    notes = []
    for row in figures.correlations:
        for why in dict.fromkeys(reason for _, reason in row.missing):
            names = ", ".join(label for label, reason in row.missing if reason == why)
            notes.append(f"{row.benchmark} and {row.outcome}, left out ({why}): {names}.")
    return notes


def _facts(view: View) -> list[tuple[str, str]]:
    row = view.main
    r = row.pearson
    return [
        ("r²", "–" if row.fit is None else decimal(row.fit.r2)),
        ("Pearson’s r", "–" if r is None else decimal(r.value)),
        ("Reward models", f"{row.n:,}"),
        ("Families", f"{row.n_families:,}" if view.grouped else "none shared"),
        ("Outcomes", f"{len(view.study.runs):,}"),
        ("Countries", f"{len({c for run in view.study.runs for c in run.countries}):,}"),
    ]


def _setup(view: View) -> list[tuple[str, str]]:
    study = view.study
    rows = [
        ("Benchmark", study.benchmark.name),
        ("General benchmark", "none" if study.general is None else study.general.name),
        *((f"Outcome {run.name}", f"{run.path.name}, policy {run.policy}") for run in study.runs),
        ("Grouped by", study.grouped_by or "nothing"),
        ("Seed", str(view.figures.seed)),
    ]
    return [(one_line(name, 80), one_line(value, 300)) for name, value in rows]


def print_correlation(study: Study, figures: Figures, console: Console) -> None:
    """Print the verdict, the correlations, the confounders and the comparison.

    Args:
        study: The study.
        figures: Its figures.
        console: Where to print.
    """
    view = View(study, figures)
    say_line(console, f"does {one_line(study.benchmark.name, 120)} predict use?", "bold")
    say_findings(console, verdict(view), findings(view))
    _print_correlations("Correlations", figures.correlations, console)
    shared = [row for name, rows in figures.cultures for row in rows]
    if shared:
        _print_correlations("By culture", shared, console)
    table = make_table("Given confounders", ("outcome, given", "r", "95 % CI", "p", "Holm p", "n"))
    for row in figures.given:
        name = f"{one_line(row.outcome, 60)}, {' + '.join(row.confounders)}"
        cells = ("none", f"{row.reason}"[:40], "–", "–")
        if row.value is not None:
            cells = (decimal(row.value), shown(row.bounds), p_value(row.p), p_value(row.p_holm))
        table.add_row(*styled(console, (name, *cells, str(row.n))))
    console.print(table)
    if figures.versus:
        _print_versus(figures, console)
    for note in shown_notes([*study.notes, *_missing(figures)]):
        say_line(console, f"note: {note}")


def _print_correlations(
    title: str, rows: tuple[Correlation, ...] | list[Correlation], console: Console
) -> None:
    table = make_table(title, ("benchmark, outcome", "r", "95 % CI", "r²", "p", "Holm p", "n"))
    for row in rows:
        name = f"{one_line(row.benchmark, 60)}, {one_line(row.outcome, 60)}"
        r, cells = row.pearson, ("none", "–", "–", "–", "–")
        if r is None:
            name += f" ({row.reason})"
        elif row.fit is not None:
            holm = p_value(row.p_holm)
            cells = (
                decimal(r.value),
                shown(r.over_models),
                decimal(row.fit.r2),
                p_value(r.p),
                holm,
            )
        table.add_row(*styled(console, (name, *cells, str(row.n))))
    console.print(table)


def _print_versus(figures: Figures, console: Console) -> None:
    table = make_table(
        "Against the general benchmark",
        ("outcome", "r - r", "95 % CI", "Z", "p", "Holm p", "n"),
    )
    for row in figures.versus:
        cells: tuple[str, ...] = ("none", "–", "–", "–", "–")
        if row.difference is not None:
            z = "–" if row.z is None else decimal(row.z)
            tests = ("–" if p is None else p_value(p) for p in (row.p, row.p_holm))
            cells = (decimal(row.difference), shown(row.over_models), z, *tests)
        name = one_line(row.outcome, 60) + (f" ({row.reason})" if row.reason else "")
        table.add_row(*styled(console, (name, *cells, str(row.n))))
    console.print(table)
