"""Diagnose why a reward model's responses win: culture or surface (papers: CARB A4).

`habitus diagnose` judges parents and counterfactual edits (`run`), figures come from
`habitus.metrics.cues` and its neighbours, and `verdict` puts them into words. `edits` makes the
mechanical edits, `perturb` asks a writer for the others.
"""

from habitus.diagnose.edits import (
    add_instruction,
    add_marks,
    complete,
    mechanical,
    pad_length,
    remove_label,
    triplets,
)
from habitus.diagnose.model import Diagnosis
from habitus.diagnose.run import DiagnosePlan, diagnose, prepare, rebuild

__all__ = [
    "DiagnosePlan",
    "Diagnosis",
    "add_instruction",
    "add_marks",
    "complete",
    "diagnose",
    "mechanical",
    "pad_length",
    "prepare",
    "rebuild",
    "remove_label",
    "triplets",
]
