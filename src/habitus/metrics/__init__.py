"""Figures from a run's files: accuracy, baselines, consistency, intervals and paired tests.

Pure functions of tables: no model, no network, no clock. Equal files and an equal seed give equal
figures, to the last digit.
"""

from __future__ import annotations

from habitus.metrics.compare import LabelledRun, compare
from habitus.metrics.credit import MISSING, credits
from habitus.metrics.read import read_items, read_judgements
from habitus.metrics.summary import Summary, summarise

__all__ = [
    "MISSING",
    "LabelledRun",
    "Summary",
    "compare",
    "credits",
    "read_items",
    "read_judgements",
    "summarise",
]
