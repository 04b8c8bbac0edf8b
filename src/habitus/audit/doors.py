"""From scores to verdicts: accuracy, intervals, tests, and which doors are open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from habitus.audit.exact import combined, upper_p
from habitus.audit.model import Outcome, Rule
from habitus.audit.surface import Scored
from habitus.audit.table import Floats, Ints, Mask, Table
from habitus.metrics.bootstrap import estimate, merge_clusters
from habitus.metrics.statistics import Z95, holm

ALPHA = 0.05
"""Level of the tests after correction."""


def judge_rules(
    table: Table, scored: Sequence[Scored], *, overall_margin: float, domain_margin: float
) -> tuple[Rule, ...]:
    """Test rules on all items and on each domain, and say which doors are open.

    Args:
        table: The benchmark.
        scored: The rules' scores.
        overall_margin: What the interval may exceed chance by, on all items.
        domain_margin: The same in a domain.

    Returns:
        Picking at random (exact, no draw), then the rules. Holm's correction is over all rules
        and groups that were tested. A door is open when the corrected p is below 5 %, closed when
        the interval ends at or below chance plus margin, and undecided otherwise.
    """
    rules = [_random(table), *(_tested(table, one) for one in scored)]
    places = [
        (rule, place)
        for rule, one in enumerate(rules)
        for place, outcome in enumerate(one.outcomes)
        if outcome.p is not None
    ]
    corrected = holm([rules[rule].outcomes[place].p for rule, place in places])
    outcomes = [list(rule.outcomes) for rule in rules]
    for (rule, place), p_holm in zip(places, corrected, strict=True):
        outcome = outcomes[rule][place]
        margin = domain_margin if outcome.group else overall_margin
        outcomes[rule][place] = _decided(replace(outcome, p_holm=p_holm), margin, len(places))
    return tuple(
        replace(rule, outcomes=tuple(found)) for rule, found in zip(rules, outcomes, strict=True)
    )


def _random(table: Table) -> Rule:
    """Return picking at random: the expected accuracy exactly."""
    outcomes = []
    for index, label in enumerate(table.groups.labels):
        inside = _members(table, index)
        n = int(inside.sum())
        value = float(table.chance[inside].mean()) if n else None
        clusters = float(len(np.unique(table.cluster[inside])))
        outcomes.append(Outcome(label, n, clusters, value, None, None, None, value))
    description = "any response with equal probability: the expected accuracy, without a draw"
    return Rule("random", "Random pick", description, tuple(outcomes))


def _members(table: Table, group: int) -> Mask:
    """Return which items are in a group; shape (items,)."""
    column = table.groups.weights[:, [group]].toarray().ravel()
    return np.asarray(column[table.groups.cell] > 0, dtype=np.bool_)


def _tested(table: Table, scored: Scored) -> Rule:
    """Return a rule with its figures in each group, and p-values overall and by domain."""
    rule = Rule(
        scored.name,
        scored.title,
        scored.description,
        reason=scored.reason,
        learned=scored.learned,
    )
    if scored.scores is None:
        return rule
    credit, tied = table.credit(scored.scores), table.picked(scored.scores)
    clusters = merge_clusters(table.cluster, table.groups.cell, credit, table.groups.n_cells)
    purpose = f"audit/{scored.name}"
    found = estimate(clusters, table.groups.weights, table.seed, purpose)
    outcomes = []
    for index, (label, one) in enumerate(zip(table.groups.labels, found, strict=True)):
        inside = _members(table, index)
        n = int(inside.sum())
        p = None
        if n and set(label) <= {"domain"}:
            p = _p(table, scored, credit, tied, inside, f"{purpose}/{index}/p")
        chance = float(table.chance[inside].mean()) if n else None
        outcomes.append(
            Outcome(label, n, one.clusters, one.value, one.low, one.high, one.interval, chance, p)
        )
    return replace(rule, outcomes=tuple(outcomes))


def _p(
    table: Table, scored: Scored, credit: Floats, tied: Ints, inside: Mask, purpose: str
) -> float | None:
    """Return a rule's one-sided p-value on some items; of a learned rule, part by part."""
    parts = np.zeros(len(credit), dtype=np.int64) if scored.parts is None else scored.parts
    found, sizes = [], []
    for part in np.unique(parts[inside]).tolist():
        here = inside & (parts == part)
        p = upper_p(
            credit[here],
            table.sizes[here],
            table.n_best[here],
            tied[here],
            table.cluster[here],
            seed=table.seed,
            purpose=f"{purpose}/{part}",
        )
        if p is not None:
            found.append(p)
            sizes.append(int(here.sum()))
    return combined(found, sizes) if found else None


def _decided(outcome: Outcome, margin: float, tests: int) -> Outcome:
    """Return an outcome with its verdict."""
    if outcome.chance is None or outcome.high is None or outcome.p_holm is None:
        return outcome
    bound = outcome.chance + margin
    if outcome.p_holm < ALPHA:
        return replace(outcome, bound=bound, verdict="open")
    if outcome.high <= bound + 1e-9:
        return replace(outcome, bound=bound, verdict="closed")
    needed = items_needed(outcome, bound, tests)
    return replace(outcome, bound=bound, verdict="undecided", n_needed=needed)


def items_needed(outcome: Outcome, bound: float, tests: int) -> int | None:
    """Return about how many items would decide, if accuracy and clustering stay as they are.

    To close, the interval's upper half must fit below the bound; to open, the distance
    from chance must pass the corrected one-sided test. The smaller number counts.

    Args:
        outcome: An undecided outcome.
        bound: Chance plus margin.
        tests: Tests that Holm's correction is over.

    Returns:
        At least one more item than there are; None when nothing is known, or when the accuracy
        lies on neither side.
    """
    if outcome.value is None or outcome.chance is None or outcome.clusters <= 0:
        return None
    needs = []
    room, gain = bound - outcome.value, outcome.value - outcome.chance
    spread = max(outcome.value * (1 - outcome.value), outcome.chance * (1 - outcome.chance) / 2)
    if room > 0:
        needs.append(Z95**2 * spread / room**2)
    if gain > 0:
        z = float(special.ndtri(1 - ALPHA / max(1, tests)))
        needs.append(z**2 * outcome.chance * (1 - outcome.chance) / gain**2)
    if not needs:
        return None
    return max(outcome.n + 1, math.ceil(min(needs) * outcome.n / outcome.clusters))
