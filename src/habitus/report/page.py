"""Renders a report as one HTML file that needs nothing else.

The page works offline and from a file. Its Content-Security-Policy lets only the scripts of this
package run, named by their sha256; Vega reads expressions with its interpreter (`ast: true`), so
that no `eval` is needed. Data never becomes code: Jinja escapes every value, and charts get theirs
from JSON blocks that are not scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from habitus.report import compare, figures, findings
from habitus.report.figures import Figure, versions_table
from habitus.report.items import MAX_ITEMS, item_views
from habitus.report.model import MetricTable, ReportData
from habitus.report.text import Budget, bounds, clean, count, duration, one_line, percent
from habitus.types import Comparison

CARB = ("arXiv 2509.21798", "https://arxiv.org/abs/2509.21798")
"""The paper to cite for the benchmark's design: its name and address."""

MAX_NOTES = 50
"""Notes that a page shows."""

_SEPARATORS = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def render_run(data: ReportData) -> str:
    """Return the complete HTML page of one run.

    The size and the time to make it depend on the number of groups and shown items, not on the
    number of judgements; the page stays under 20 MB.
    """
    table = MetricTable(data.metrics)
    accuracy = table.get("accuracy")
    items = item_views(data.examples)
    sections = figures.run_figures(data)
    return build_page(
        "run.html.jinja",
        sections,
        data=data,
        title=f"{one_line(data.label, 80)} on {one_line(data.benchmark, 80)}",
        verdict=findings.verdict(data),
        findings=findings.findings(data),
        accuracy=accuracy,
        chance=table.value("chance"),
        shown_accuracy=percent(accuracy.value if accuracy else None),
        interval=bounds(accuracy.ci_low, accuracy.ci_high) if accuracy else percent(None),
        facts=_facts(data, table),
        items=items,
        more_examples=max(0, len(data.examples) - MAX_ITEMS),
        cultures=sorted({item.culture for item in items if item.culture}),
        domains=sorted({item.domain for item in items if item.domain}),
        notes=shown_notes(data.notes),
        setup=run_setup(data),
    )


def render_comparison(
    runs: Sequence[ReportData],
    comparisons: Sequence[Comparison],
    *,
    notes: Iterable[str] = (),
) -> str:
    """Return the complete HTML page that compares `runs`.

    Args:
        runs: The runs, in any order, with labels that differ.
        comparisons: Paired differences of all pairs, Holm-corrected over the table.
        notes: What the reader must know.
    """
    table = findings.standings(runs, comparisons)
    sections = compare.comparison_figures(table, comparisons)
    benchmarks = sorted({run.benchmark for run in runs})
    return build_page(
        "comparison.html.jinja",
        sections,
        title=f"{count(len(runs), 'run')} on {one_line(' and '.join(benchmarks) or 'nothing', 120)}",
        verdict=findings.comparison_verdict(table),
        findings=findings.comparison_findings(runs, comparisons),
        leaders=compare.leaders(table),
        setups=[(one_line(row.data.label, 120), run_setup(row.data)) for row in table],
        notes=shown_notes(
            [*notes, *(f"{run.label}: {note}" for run in runs for note in run.notes)]
        ),
    )


def build_page(template: str, sections: Mapping[str, Sequence[Figure]], **context: Any) -> str:
    """Render a template as a page that works offline.

    Args:
        template: Name of the template.
        sections: Figures by section; their charts go into the page once.
        context: What else the template shows; it is escaped.
    """
    specs = {
        figure.id: figure.spec
        for group in sections.values()
        for figure in group
        if figure.spec is not None
    }
    bundle, script = _bundle(), _asset("report.js")
    policy = (
        f"default-src 'none'; script-src {_hash(bundle)} {_hash(script)}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    return page.render(
        sections=sections,
        specs=Markup(script_json(specs)),  # noqa: S704 - escaped for a script block
        # These come from this package and its dependency, never from data.
        bundle=Markup(bundle),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style=Markup(_asset("report.css")),  # noqa: S704
        licence=Markup(_asset("vega-licence.txt")),  # noqa: S704
        policy=policy,
        carb=CARB,
        **context,
    )


def script_json(value: Any) -> str:
    """Return `value` as JSON that cannot end the script block that it stands in."""
    text = json.dumps(_cleaned(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _SEPARATORS.items():
        text = text.replace(character, escaped)
    return text


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _cleaned(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(part) for part in value]
    return value


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, made offline by vl-convert (about a second)."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in bundle.lower() or "<!--" in bundle or "\r" in bundle:
        raise RuntimeError("the chart library cannot stand in a script block as it is")
    return bundle


@cache
def _asset(name: str) -> str:
    return files("habitus.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    return environment


def _finalize(value: Any) -> Any:
    """Clean every value on its way to the page, so that no template can forget it."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return "" if value is None else value


def shown_notes(notes: Iterable[str]) -> list[str]:
    """Return notes as a page shows them: each on one line, and not too many."""
    shown = [one_line(note, 600) for note in notes]
    more = len(shown) - MAX_NOTES
    return [*shown[:MAX_NOTES], f"{more:,} more notes are left out."] if more > 0 else shown


def _facts(data: ReportData, table: MetricTable) -> list[tuple[str, str]]:
    """Short facts of the front page: what was run, on how much, how long."""
    facts = [
        ("Items judged", f"{data.n_judged:,} of {data.n_items:,}"),
        ("Chance", percent(table.value("chance"))),
        ("Macro average", percent(table.value("accuracy_macro"))),
        ("Ties", percent(table.value("tie_rate"))),
        ("Order changes the pick", percent(table.value("flip_rate"))),
    ]
    if data.seconds is not None:
        facts.append(("Judging time", duration(data.seconds)))
    if data.prompt_tokens is not None or data.completion_tokens is not None:
        tokens = f"{data.prompt_tokens or 0:,} read, {data.completion_tokens or 0:,} written"
        facts.append(("Tokens", tokens))
    return facts


def run_setup(data: ReportData) -> dict[str, Any]:
    """What one needs to make the run again."""
    info, budget = data.info, Budget(60_000, each=20_000)
    rows = [
        ("Run", info.id),
        ("Started", info.started),
        ("Scorer", info.scorer.name),
        ("Scorer digest", info.scorer.digest),
        ("Model revision", info.scorer.revision or "not recorded"),
        ("Prompt digest", info.scorer.prompt_digest or "none"),
        ("Seed", str(info.seed)),
        *_digests(info.config),
    ]
    versions = versions_table(dict(sorted(info.versions.items())[:60]))
    return {
        "command": budget.clip(data.command, 4000) if data.command else None,
        "rows": [(one_line(name, 80), one_line(value, 300)) for name, value in rows[:40]],
        "scorer": budget.clip(_pretty(info.scorer.model_dump(mode="json"))),
        "config": budget.clip(_pretty(info.config)),
        "versions": versions,
    }


def _digests(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return the digests of a configuration, of its parts too: they name the data exactly."""
    found = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not prefix:
            found += _digests(value, f"{name} ")
        elif "digest" in key:
            found.append((name.replace("_", " ").capitalize(), str(value)))
    return found


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
