"""What a report is made from: figures that are already aggregated, and a sample of items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from habitus.types import Comparison, Item, Judgement, Metric, RunInfo

BASELINES = ("random", "longest", "shortest")
"""The rules that every run is compared with, in the order shown."""

DOMAINS = ("commonsense", "values", "safety", "linguistics")
"""The domains of CARB in the paper's order (papers: CARB, section on the benchmark)."""


@dataclass(frozen=True)
class ReportData:
    """Everything that a report of one run shows."""

    info: RunInfo
    """The run's resolved configuration."""
    metrics: tuple[Metric, ...]
    """All figures of the run; any of them may be missing."""
    comparisons: tuple[Comparison, ...]
    """The run against the baselines, Holm-corrected."""
    examples: tuple[tuple[Item, Judgement | None], ...]
    """A bounded sample of items, each with its judgement where there is one."""
    n_items: int
    """Items that the run covers."""
    n_judged: int
    """Items that have a judgement, failures included."""
    seconds: float | None
    """Wall-clock seconds of all judgements together."""
    prompt_tokens: int | None
    """Tokens read, over all judgements."""
    completion_tokens: int | None
    """Tokens written, over all judgements."""
    label: str
    """The run's name in tables, charts and comparisons."""
    notes: tuple[str, ...] = ()
    """What the reader must know, such as skipped rows."""
    command: str | None = None
    """The command line that makes this run again, where it is known."""

    @property
    def benchmark(self) -> str:
        """The benchmark's name as configured, or "unnamed benchmark"."""
        for key in ("benchmark", "benchmark_name", "data", "dataset"):
            value = self.info.config.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, Mapping) and isinstance(value.get("name"), str):
                return str(value["name"])
        return "unnamed benchmark"


class MetricTable:
    """Looks figures up by name and group."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        """Index `metrics`; of two with one name and group the first counts."""
        self._metrics = tuple(metrics)
        self._index: dict[tuple[str, frozenset[tuple[str, str]]], Metric] = {}
        for metric in self._metrics:
            self._index.setdefault((metric.name, frozenset(metric.group.items())), metric)

    def get(self, name: str, **group: str) -> Metric | None:
        """Return the figure `name` of exactly this group, or None."""
        return self._index.get((name, frozenset(group.items())))

    def value(self, name: str, **group: str) -> float | None:
        """Return the value of that figure, or None when it is missing or has no data."""
        metric = self.get(name, **group)
        return None if metric is None else metric.value

    def by(self, name: str, *keys: str) -> list[Metric]:
        """Return all figures `name` whose group has exactly `keys`, in reading order.

        Domains come in the paper's order, everything else alphabetically.
        """
        found = [
            metric
            for metric in self._index.values()
            if metric.name == name and set(metric.group) == set(keys)
        ]
        return sorted(found, key=lambda metric: [order_key(metric.group[key]) for key in keys])


def order_key(value: str) -> tuple[int, str]:
    """Sort key that puts the known domains first, in their order."""
    return (DOMAINS.index(value) if value in DOMAINS else len(DOMAINS), value)


@dataclass(frozen=True)
class Versus:
    """A comparison seen from one side: positive means that this side is better."""

    other: str
    """Label of the other side."""
    difference: float | None
    """Accuracy of this side minus that of the other, in 0 to 1."""
    low: float | None
    """Lower bound of its 95 % interval."""
    high: float | None
    """Upper bound of its 95 % interval."""
    p: float | None
    """Two-sided paired p-value."""
    p_holm: float | None
    """The same after Holm's correction."""
    n: int
    """Items judged by both."""
    detectable: float | None
    """Smallest true difference that this n finds with 80 % power."""

    @property
    def significant(self) -> bool:
        """True when the corrected test tells the two apart at the 5 % level."""
        return self.p_holm is not None and self.p_holm < 0.05 and bool(self.difference)

    @property
    def better(self) -> bool:
        """True when this side is better beyond the noise."""
        return self.significant and self.difference is not None and self.difference > 0

    @property
    def worse(self) -> bool:
        """True when this side is worse beyond the noise."""
        return self.significant and self.difference is not None and self.difference < 0


def versus(comparison: Comparison, label: str) -> Versus:
    """Return `comparison` as seen from `label`, with signs turned when it is side `b`."""
    a_side = comparison.a == label

    def turned(value: float | None) -> float | None:
        return value if value is None or a_side else -value

    low, high = turned(comparison.ci_low), turned(comparison.ci_high)
    return Versus(
        other=comparison.b if a_side else comparison.a,
        difference=turned(comparison.difference),
        low=low if a_side else high,
        high=high if a_side else low,
        p=comparison.p,
        p_holm=comparison.p_holm,
        n=comparison.n,
        detectable=comparison.detectable,
    )


def against_baseline(data: ReportData, baseline: str) -> Versus | None:
    """Return the run's comparison with `baseline`, however the two sides are ordered."""
    for comparison in data.comparisons:
        if names_baseline(comparison.b, baseline) and comparison.a != comparison.b:
            return versus(comparison, comparison.a)
        if names_baseline(comparison.a, baseline) and comparison.b == data.label:
            return versus(comparison, comparison.b)
    return None


def names_baseline(label: str, baseline: str) -> bool:
    """True for "random" and for "baseline:random" when `baseline` is "random"."""
    return label in (baseline, f"baseline:{baseline}")
