"""Paired comparisons in words and in cells, for the pages of trained models."""

from __future__ import annotations

from habitus.metrics.statistics import told_apart
from habitus.report.findings import Finding
from habitus.report.text import p_value, point_bounds, points
from habitus.types import Comparison, Metric

COMPARISON_HEADERS = ("Points", "95 % interval", "p", "Holm p", "Told apart", "Pairs")
"""Columns of `comparison_cells`."""


def pairs(found: Metric | Comparison) -> str:
    """Return how many pairs a figure rests on, and how many were left out."""
    return f"{found.n:,}" + (f" ({found.n_excluded:,} left out)" if found.n_excluded else "")


def told(found: Comparison) -> bool:
    """True when the corrected test and the interval both tell two models apart."""
    return told_apart(found.p_holm, found.ci_low, found.ci_high)


def difference_words(found: Comparison) -> str:
    """Return a difference of shares with its interval and p-value, for a sentence."""
    interval = point_bounds(found.ci_low, found.ci_high)
    return tested_words(found, f"{points(found.difference)} points", interval)


def tested_words(found: Comparison, difference: str, interval: str) -> str:
    """Return a difference, in whatever unit, with its interval and p-value, for a sentence."""
    p = p_value(found.p_holm).replace(" ", "\u00a0")
    return f"{difference}, 95\u00a0% interval {interval}, Holm-corrected p {p}"


def detectable_words(found: Comparison) -> str:
    """Return how small a difference would have been found, for a sentence."""
    return (
        f"a true difference of {points(found.detectable, signed=False)} points would be found four "
        "times in five"
    )


def comparison_finding(found: Comparison, names: str, figures: str) -> Finding:
    """Return whether one side is more accurate than the other, or that this cannot be told.

    Args:
        found: The difference, which is one.
        names: Both sides, for a sentence.
        figures: The difference in words, and what it rests on.
    """
    if not told(found):
        return Finding(
            "unclear",
            f"{names}: cannot be told apart on these pairs ({figures}); {detectable_words(found)}.",
        )
    better = found.difference is not None and found.difference > 0
    return Finding(
        "above" if better else "below",
        f"{names}: {'more' if better else 'less'} accurate beyond the noise ({figures}).",
    )


def comparison_cells(found: Comparison) -> tuple[str, ...]:
    """Return a comparison as cells."""
    return (
        points(found.difference),
        point_bounds(found.ci_low, found.ci_high),
        p_value(found.p),
        p_value(found.p_holm),
        "no data" if found.p_holm is None else "yes" if told(found) else "no",
        pairs(found),
    )
