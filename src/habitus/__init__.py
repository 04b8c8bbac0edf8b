"""Habitus measures, diagnoses and improves the cultural awareness of reward models."""

__version__ = "0.1.0"
