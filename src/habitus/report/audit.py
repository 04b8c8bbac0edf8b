"""The audit of a benchmark as a page and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from habitus.audit.model import Audit, Check, Outcome, Rule
from habitus.report import charts
from habitus.report.charts import Cell, Row
from habitus.report.figures import MAX_CULTURES, MAX_DOMAINS, MAX_TABLE_ROWS, Figure, Table
from habitus.report.findings import Finding
from habitus.report.model import order_key
from habitus.report.page import build_page, shown_notes
from habitus.report.terminal import Bar, make_table, say_findings, say_line, styled
from habitus.report.text import Budget, bounds, count, one_line, p_value, percent
from habitus.store import write_atomic

PAGE = "audit.html"
"""Name of the page."""

MAX_COUNTS = 40
"""Lines of one table of the data card; what is left out is said."""

_KINDS = {"open": "alert", "undecided": "model"}
_BADGES = {"ok": "right", "note": "", "failed": "failed"}


@dataclass(frozen=True)
class CheckView:
    """A check as the page shows it."""

    title: str
    """Its name."""
    state: str
    """How it ended."""
    badge: str
    """Style of its state."""
    sentence: str
    """What was found."""
    table: Table
    """Examples."""


def write_page(audit: Audit, folder: Path) -> Path:
    """Write `audit.html` into a folder and return its path.

    Raises:
        RunError: When the folder cannot be written.
    """
    path = folder / PAGE
    write_atomic(path, [render_audit(audit).encode()])
    return path


def render_audit(audit: Audit) -> str:
    """Return the complete HTML page of an audit."""
    budget = Budget(60_000, each=4000)
    sections = {"overview": [_overview(audit)], "domains": _domain_figures(audit)}
    return build_page(
        "audit.html.jinja",
        sections,
        audit=audit,
        title=f"Audit of {one_line(audit.benchmark, 80)}",
        verdict=verdict(audit),
        findings=findings(audit),
        facts=_facts(audit),
        tests=_tests(audit),
        cultures=_culture_table(audit),
        checks=[_check_view(check) for check in audit.checks],
        counts=_count_tables(audit),
        rules=_rule_table(audit),
        notes=shown_notes(audit.notes),
        command=budget.clip(audit.command) if audit.command else None,
        setup=_setup(audit),
        versions=Table(("Library", "Version"), tuple(sorted(audit.versions.items()))),
    )


def verdict(audit: Audit) -> Finding:
    """Return the audit in one line."""
    if not audit.clean:
        return Finding("below", audit.headline)
    return Finding("unclear" if audit.count("undecided") else "above", audit.headline)


def findings(audit: Audit) -> list[Finding]:
    """Return each open door and each failed check in one line."""
    found = [Finding("warning", _open_door(rule)) for rule in audit.rules if rule.verdict == "open"]
    found += [Finding("warning", f"{check.title}: {check.sentence}") for check in audit.failed]
    open_ended = [rule.title for rule in audit.rules if rule.verdict == "undecided"]
    if open_ended:
        text = "Too few items to say whether these doors are closed: " + ", ".join(open_ended)
        found.append(Finding("note", f"{text}."))
    return found


def _open_door(rule: Rule) -> str:
    """Say where a door is open, and how wide."""
    wide = [outcome for outcome in rule.outcomes if outcome.verdict == "open"]
    places = [f"{one_line(_place(outcome), 60)} {percent(outcome.value)}" for outcome in wide[:4]]
    more = f" and {count(len(wide) - 4, 'more group')}" if len(wide) > 4 else ""
    chances = list(dict.fromkeys(percent(outcome.chance) for outcome in wide[:4]))
    return f"{rule.title}: {', '.join(places)}{more}; chance is {', '.join(chances)}."


def _place(outcome: Outcome) -> str:
    return ", ".join(outcome.group.values()) or "overall"


def _facts(audit: Audit) -> list[tuple[str, str]]:
    return [
        ("Items", f"{audit.n_items:,}"),
        ("Responses", f"{audit.n_candidates:,}"),
        ("Chance", percent(audit.chance)),
        ("Closed overall up to", percent(audit.chance + audit.overall_margin)),
        ("Closed in a domain up to", percent(audit.chance + audit.domain_margin)),
        ("Format", one_line(audit.format, 40)),
    ]


def _row(rule: Rule, outcome: Outcome) -> Row:
    kind = _KINDS.get(outcome.verdict or "", "baseline")
    figures = (outcome.value, outcome.low, outcome.high, outcome.n, outcome.chance)
    return Row(rule.title, *figures, kind)


def _overview(audit: Audit) -> Figure:
    """All rules against chance, on all items."""
    shown = [(rule, rule.overall) for rule in audit.rules if rule.overall is not None]
    rows = [_row(rule, outcome) for rule, outcome in shown if outcome is not None]
    description = "Accuracy of rules that need neither question nor culture, with intervals"
    table = Table(
        ("Rule", "Accuracy", "95 % interval", "Chance", "Holm p", "Overall", "With domains"),
        tuple(
            (
                rule.title,
                percent(outcome.value),
                bounds(outcome.low, outcome.high),
                percent(outcome.chance),
                "–" if outcome.p_holm is None else p_value(outcome.p_holm),
                outcome.verdict or "–",
                rule.verdict,
            )
            for rule, outcome in shown
            if outcome is not None
        ),
    )
    caption = (
        "Dot: accuracy. Bar: 95 % interval, clustered by parent. Dashed line or tick: chance. "
        "Orange: open on all items. Blue: undecided. Grey: closed, or the random pick."
    )
    return Figure(
        "overview", "All rules, all items", table, charts.forest(rows, description), caption
    )


def _largest(audit: Audit, key: str, limit: int) -> list[str]:
    """Return the groups of one key with most items, in reading order."""
    sizes = _sizes(audit, key)
    kept = sorted(sizes, key=lambda name: (-sizes[name], name))[:limit]
    return sorted(kept, key=order_key)


def _sizes(audit: Audit, key: str) -> dict[str, int]:
    """Return the items of each group of one key."""
    return {name: o.n for rule in audit.rules for name, o in _in_group(rule, key).items()}


def _in_group(rule: Rule, key: str) -> dict[str, Outcome]:
    return {o.group[key]: o for o in rule.outcomes if set(o.group) == {key}}


def _domain_figures(audit: Audit) -> list[Figure]:
    """Heat table of rules by domain; empty when there is no domain."""
    domains = _largest(audit, "domain", MAX_DOMAINS)
    cells = []
    for rule in audit.rules:
        outcomes = _in_group(rule, "domain")
        for domain in domains:
            o = outcomes.get(domain)
            if o is not None:
                cells.append(Cell(rule.title, domain, o.value, o.low, o.high, o.n, o.chance))
    if not cells:
        return []
    rows = [
        (
            cell.row,
            one_line(cell.column, 200),
            percent(cell.value),
            bounds(cell.low, cell.high),
            f"{cell.n:,}",
            percent(cell.chance),
        )
        for cell in cells[:MAX_TABLE_ROWS]
    ]
    headers = ("Rule", "Domain", "Accuracy", "95 % interval", "Items", "Chance")
    spec = charts.heat_map(cells, audit.chance, "Heat map of accuracy by rule and domain")
    total = len(_largest(audit, "domain", 10**9))
    caption = "" if total <= MAX_DOMAINS else f"The {MAX_DOMAINS} largest of {total:,} domains."
    width = 140 + 62 * len(domains)
    figure = Figure(
        "domains", "Rules by domain", Table(headers, tuple(rows)), _titled(spec), caption, width
    )
    return [figure]


def _titled(value: Any) -> Any:
    """Return a heat map's specification with rules, not cultures, in its rows."""
    if isinstance(value, dict):
        if value.get("field") == "row" and value.get("title") == "Culture":
            return value | {"title": "Rule"}
        return {key: _titled(part) for key, part in value.items()}
    return [_titled(part) for part in value] if isinstance(value, list) else value


def _culture_table(audit: Audit) -> Table | None:
    """Rules by culture; a triangle marks cells whose interval lies above chance."""
    cultures = _largest(audit, "culture", MAX_CULTURES)
    if not cultures:
        return None
    rows = []
    for rule in audit.rules:
        outcomes = _in_group(rule, "culture")
        if outcomes:
            rows.append((rule.title, *(_cell(outcomes.get(culture)) for culture in cultures)))
    sizes = _sizes(audit, "culture")
    headers = [f"{one_line(name, 30)} ({sizes[name]:,})" for name in cultures]
    total = len(sizes)
    note = "" if total <= len(cultures) else f"The {len(cultures)} largest of {total:,} cultures."
    return Table(("Rule", *headers), tuple(rows), note)


def _cell(outcome: Outcome | None) -> str:
    if outcome is None or outcome.value is None:
        return "–"
    above = outcome.low is not None and outcome.chance is not None and outcome.low > outcome.chance
    return f"{percent(outcome.value, 0)}{' ▲' if above else ''}"


def _tests(audit: Audit) -> Table:
    """Every test, open ones first."""
    order = {"open": 0, "undecided": 1, "closed": 2}
    tested = [
        (rule, outcome)
        for rule in audit.rules
        for outcome in rule.outcomes
        if outcome.verdict is not None
    ]
    tested.sort(key=lambda pair: order[pair[1].verdict or "closed"])
    rows = tuple(
        (
            f"{rule.title}, {one_line(_place(outcome), 80)}",
            outcome.verdict or "",
            percent(outcome.value),
            bounds(outcome.low, outcome.high),
            percent(outcome.chance),
            percent(outcome.bound),
            p_value(outcome.p),
            p_value(outcome.p_holm),
            f"{outcome.n:,}",
            f"about {outcome.n_needed:,}" if outcome.n_needed else "–",
        )
        for rule, outcome in tested[:MAX_TABLE_ROWS]
    )
    headers = ("Rule and group", "Verdict", "Accuracy", "95 % interval", "Chance", "Closed up to")
    more = len(tested) - MAX_TABLE_ROWS
    note = f"{more:,} more are in audit.json." if more > 0 else ""
    return Table((*headers, "p", "Holm p", "Items", "Items that would decide"), rows, note)


def _rule_table(audit: Audit) -> Table:
    """What each rule picks, what it learned, or why it did not run."""
    rows = []
    for rule in audit.rules:
        learned = sorted(rule.learned.items())
        words = "; ".join(f"{place}: {what}" for place, what in learned[:24])
        more = f" and {len(learned) - 24} more" if len(learned) > 24 else ""
        said = f"not run: {rule.reason}" if rule.reason else words + more
        rows.append((rule.title, one_line(rule.description, 300), one_line(said or "–", 1500)))
    return Table(("Rule", "Picks", "Learned, or why it did not run"), tuple(rows))


def _check_view(check: Check) -> CheckView:
    rows = tuple(tuple(one_line(cell, 160) for cell in row) for row in check.rows)
    hidden = check.total - len(rows)
    note = f"The first {len(rows):,} of {check.total:,}." if hidden > 0 else ""
    table = Table(check.columns, rows, note)
    title, sentence = one_line(check.title, 120), one_line(check.sentence, 600)
    return CheckView(title, check.state, _BADGES[check.state], sentence, table)


def _count_tables(audit: Audit) -> list[tuple[str, Table]]:
    """The data card: one table for each thing that is counted."""
    tables = []
    for key in dict.fromkeys(each.key for each in audit.card):
        values = [each for each in audit.card if each.key == key]
        rows = tuple(
            (one_line(each.value, 120), f"{each.n:,}", percent(each.n / audit.n_items))
            for each in values[:MAX_COUNTS]
        )
        more = len(values) - MAX_COUNTS
        note = f"{more:,} more values are in audit.json." if more > 0 else ""
        name = key.replace(" x ", " and ").capitalize()
        tables.append((name, Table((name, "Items", "Share"), rows, note)))
    return tables


def _setup(audit: Audit) -> list[tuple[str, str]]:
    return [
        ("Benchmark", one_line(audit.benchmark, 200)),
        ("Data digest", audit.digest),
        ("Compared with", one_line(", ".join(audit.against) or "nothing", 600)),
        ("Seed", str(audit.seed)),
        ("Margin overall", percent(audit.overall_margin)),
        ("Margin in a domain", percent(audit.domain_margin)),
    ]


def print_audit(audit: Audit, console: Console) -> None:
    """Print an audit: the verdict, all rules on all items, and the checks.

    Args:
        audit: The audit.
        console: Where to print. Colours, width and encoding are the console's.
    """
    items = count(audit.n_items, "item")
    say_line(console, f"audit of {one_line(audit.benchmark, 120)}: {items}", "bold")
    say_findings(console, verdict(audit), findings(audit))
    _print_rules(audit.rules, console)
    for check in audit.checks:
        style = {"failed": "yellow"}.get(check.state, "")
        title, found = one_line(check.title, 80), one_line(check.sentence, 400)
        say_line(console, f"{check.state}: {title}: {found}", style)
    for note in audit.notes:
        say_line(console, f"note: {one_line(note, 400)}")


def _print_rules(rules: Sequence[Rule], console: Console) -> None:
    bar = Bar(console)
    table = make_table("Rules on all items", ("rule", "accuracy", "95 % CI", bar.title, "verdict"))
    for rule in rules:
        outcome = rule.overall
        if outcome is None:
            table.add_row(*styled(console, (rule.title, "–", "–", "", rule.verdict)))
            continue
        drawn = bar(outcome.value, outcome.low, outcome.high, outcome.chance)
        figures = (percent(outcome.value), bounds(outcome.low, outcome.high))
        table.add_row(*styled(console, (rule.title, *figures, drawn, rule.verdict)))
    console.print(table)
    say_line(console, bar.legend + "; the verdict counts every domain too")
