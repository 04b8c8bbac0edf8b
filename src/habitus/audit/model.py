"""What an audit finds: frozen, and all that `audit.json` and the page are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["open", "undecided", "closed"]
"""Whether a rule beats chance: `open` it does, `closed` it does not by more than the margin."""

RuleVerdict = Literal["open", "undecided", "closed", "not run", "reference"]
"""A rule's verdict over all its groups; `reference` is picking at random."""

State = Literal["ok", "note", "failed"]
"""How a check ended: nothing found, something to know, something to mend."""

MAX_ROWS = 50
"""Rows of examples that a check keeps; how many there are in all is counted."""


@dataclass(frozen=True)
class Outcome:
    """What a rule scores on one group of items."""

    group: Mapping[str, str]
    """The group, such as {"domain": "values"}; empty for all items."""
    n: int
    """Items in the group."""
    clusters: float
    """Effective number of clusters (items with one parent count as one)."""
    value: float | None
    """Accuracy, ties sharing credit; None when n = 0."""
    low: float | None
    """Lower bound of the 95 % interval, clustered by parent."""
    high: float | None
    """Upper bound of the 95 % interval."""
    interval: Literal["bootstrap", "wilson"] | None
    """How the interval was made; None for a figure that is exact."""
    chance: float | None
    """Mean chance of a right pick on these items."""
    p: float | None = None
    """One-sided p-value against chance; None where no test was made."""
    p_holm: float | None = None
    """The same after Holm's correction over all rules and groups that were tested."""
    bound: float | None = None
    """Chance plus margin: the door is closed when the interval stays below; None without test."""
    verdict: Verdict | None = None
    """The verdict; None where no test was made."""
    n_needed: int | None = None
    """When undecided: about how many items would decide, if the accuracy stays as it is."""


@dataclass(frozen=True)
class Rule:
    """One rule that needs neither the question nor the culture, and what it scores."""

    name: str
    """Short name, such as "longest"."""
    title: str
    """Name for readers."""
    description: str
    """What it picks."""
    outcomes: tuple[Outcome, ...] = ()
    """All items first, then by domain, then by culture; empty when it did not run."""
    reason: str | None = None
    """Why it did not run, or None."""
    learned: Mapping[str, str] = field(default_factory=dict)
    """What the rule learned from one half for the other, in words."""

    @property
    def overall(self) -> Outcome | None:
        """The outcome on all items, or None when the rule did not run."""
        return self.outcomes[0] if self.outcomes else None

    @property
    def verdict(self) -> RuleVerdict:
        """Open when any group is open, closed when all are, else undecided."""
        if self.reason is not None:
            return "not run"
        verdicts = {outcome.verdict for outcome in self.outcomes} - {None}
        if not verdicts:
            return "reference"
        if "open" in verdicts:
            return "open"
        return "closed" if verdicts == {"closed"} else "undecided"

    def where(self, verdict: Verdict) -> tuple[str, ...]:
        """Name the groups that have this verdict; "overall" stands for all items."""
        return tuple(
            ", ".join(outcome.group.values()) or "overall"
            for outcome in self.outcomes
            if outcome.verdict == verdict
        )


@dataclass(frozen=True)
class Check:
    """One check of the benchmark's texts or labels."""

    name: str
    """Short name, such as "duplicate-prompts"."""
    title: str
    """Name for readers."""
    state: State
    """How it ended."""
    sentence: str
    """One sentence that says what was found."""
    columns: tuple[str, ...] = ()
    """Titles of the columns of `rows`."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Examples, at most `MAX_ROWS`."""
    total: int = 0
    """How many rows there are in all."""
    facts: Mapping[str, int | float | None] = field(default_factory=dict)
    """The numbers behind the sentence."""


@dataclass(frozen=True)
class Count:
    """How many items one value has in the data card."""

    key: str
    """What is counted, such as "language" or "culture x domain"."""
    value: str
    """The value; "not stated" where an item has none."""
    n: int
    """Items."""


@dataclass(frozen=True)
class Audit:
    """Everything that an audit of one benchmark found."""

    benchmark: str
    """The benchmark's name."""
    format: str
    """The format that it was read as."""
    digest: str
    """Digest of the items' content."""
    n_items: int
    """Items."""
    n_candidates: int
    """Candidates over all items."""
    chance: float
    """Mean chance of a right pick."""
    seed: int
    """Seed of halves, samples and intervals."""
    overall_margin: float
    """What the interval may exceed chance by overall."""
    domain_margin: float
    """The same in a domain."""
    against: tuple[str, ...]
    """Names of the benchmarks that leakage was looked for in."""
    rules: tuple[Rule, ...]
    """The rules, picking at random first."""
    checks: tuple[Check, ...]
    """The checks."""
    card: tuple[Count, ...]
    """Counts for the data card."""
    versions: Mapping[str, str]
    """Versions of Habitus, Python and the libraries that results depend on."""
    notes: tuple[str, ...] = ()
    """What was noticed when the benchmark was read."""
    command: str | None = None
    """The command line that makes this audit again, where it is known."""

    def count(self, verdict: RuleVerdict) -> int:
        """Count the rules that have this verdict."""
        return Counter(rule.verdict for rule in self.rules)[verdict]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.state == "failed")

    @property
    def clean(self) -> bool:
        """True when no door is open and no check failed."""
        return not self.failed and not self.count("open")

    @property
    def headline(self) -> str:
        """The whole audit in one line."""
        doors, failed = self.count("open"), len(self.failed)
        return (
            f"{doors} {'door' if doors == 1 else 'doors'} open, "
            f"{self.count('undecided')} undecided, {self.count('closed')} closed; "
            f"{failed} {'check' if failed == 1 else 'checks'} failed"
        )
