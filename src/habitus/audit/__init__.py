"""Audit a best-of-N benchmark: does anything but the culture give the right response away?

A door is a rule that wins without reading the question or knowing a culture, such as picking the
longest response. `audit` tries such rules, says which doors are open, and checks the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from habitus.audit import card, checks
from habitus.audit.doors import judge_rules
from habitus.audit.duplicates import fold_groups, near_duplicates
from habitus.audit.features import ngram_counts
from habitus.audit.labels import labels
from habitus.audit.language import identify, prompt_language
from habitus.audit.model import MAX_ROWS, Audit, Check, Count, Outcome, Rule
from habitus.audit.surface import Scored, surface_rules
from habitus.audit.table import Ints, Table
from habitus.audit.wording import NGRAMS, similarity, wording
from habitus.audit.write import AUDIT, default_path, write_json
from habitus.data import bundled, load
from habitus.data.benchmark import Benchmark
from habitus.errors import InputError, MissingExtraError
from habitus.store import versions
from habitus.types import benchmark_digest

__all__ = [
    "AUDIT",
    "Audit",
    "Check",
    "Count",
    "Outcome",
    "Rule",
    "audit",
    "default_path",
    "need_extra",
    "siblings",
    "write_json",
]

OVERALL_MARGIN, DOMAIN_MARGIN = 0.08, 0.15
"""What a rule's interval may exceed chance by: 33 and 40 % where chance is 25 %."""

_MODULES = ("sklearn", "lingua", "babel")
_LIBRARIES = ("babel", "lingua-language-detector", "numpy", "polars", "scikit-learn", "scipy")


def audit(
    benchmark: Benchmark,
    *,
    against: Iterable[Benchmark] = (),
    seed: int = 0,
    overall_margin: float = OVERALL_MARGIN,
    domain_margin: float = DOMAIN_MARGIN,
    say: Callable[[str], None] = lambda line: None,
    command: str | None = None,
) -> Audit:
    """Audit a benchmark.

    Args:
        benchmark: The benchmark.
        against: Other benchmarks, or parts, that must not overlap with it (see `siblings`).
        seed: Seed of halves, samples and intervals.
        overall_margin: What a rule's interval may exceed chance by, on all items.
        domain_margin: The same in a domain.
        say: Called with one line of progress at a time.
        command: The command line that makes this audit again.

    Returns:
        What was found. Equal input and seed give an equal audit.

    Raises:
        MissingExtraError: When the extra `audit` is not installed.
        InputError: When a margin is not within 0 to 1.
    """
    need_extra()
    for name, margin in (("overall", overall_margin), ("domain", domain_margin)):
        if not 0 < margin < 1:
            raise InputError(f"the {name} margin is {margin}; give a share above 0 and below 1")
    others = tuple(against)
    table = Table(benchmark.items, seed)
    ordered = benchmark.format == "native"
    say(f"comparing {len(table.items):,} prompts")
    near = near_duplicates(table, MAX_ROWS)
    say("telling languages (the models take about 1.4 GB)")
    found = identify([*table.prompts, *table.texts])
    counted = card.counts(table, ordered=ordered)
    found_checks = (
        checks.duplicate_prompts(table),
        checks.duplicate_items(table),
        checks.near_duplicate_prompts(table, near),
        checks.duplicate_candidates(table),
        checks.languages(table, found),
        *(checks.leakage(table, other) for other in others),
        card.balance(counted),
        card.provenance(table),
        card.licences(table),
    )
    say("trying rules")
    scored = [*surface_rules(table, ordered=ordered), *labels(table)]
    scored += _by_wording(table, fold_groups(table, near))
    scored.append(prompt_language(table, found))
    margins = {"overall_margin": overall_margin, "domain_margin": domain_margin}
    skipped = (f"{n:,} rows left out: {reason}" for reason, n in benchmark.skipped.items())
    return Audit(
        benchmark=benchmark.name,
        format=benchmark.format,
        digest=benchmark_digest(benchmark.items),
        n_items=len(table.items),
        n_candidates=len(table.texts),
        chance=float(table.chance.mean()),
        seed=seed,
        against=tuple(other.name for other in others),
        rules=judge_rules(table, scored, **margins),
        checks=found_checks,
        card=counted,
        versions=versions(_LIBRARIES),
        notes=(*benchmark.notes, *skipped),
        command=command,
        **margins,
    )


def _by_wording(table: Table, groups: Ints) -> Sequence[Scored]:
    """Return the rules that need n-grams of prompts and responses."""
    responses = ngram_counts(table.texts, NGRAMS, "responses")
    prompts = ngram_counts(table.prompts, NGRAMS, "prompts")
    return [wording(table, responses, groups), *similarity(table, prompts, responses)]


def need_extra() -> None:
    """Refuse at once when the extra is not installed.

    Raises:
        MissingExtraError: When a library of the extra `audit` is missing.
    """
    if any(find_spec(name) is None for name in _MODULES):
        raise MissingExtraError("habitus audit", "audit")


def siblings(benchmark: Benchmark) -> tuple[Benchmark, ...]:
    """Load the other parts of a bundled benchmark; none for other data, or when files are missing.

    Raises:
        InputError: When a part cannot be read.
    """
    entries = bundled()
    if benchmark.path not in {entry.path for entry in entries}:
        return ()
    return tuple(
        replace(load(entry.name), name=entry.name)
        for entry in entries
        if entry.path.parent == benchmark.path.parent
        and entry.path != benchmark.path
        and entry.n_items
    )
