"""Habitus measures, diagnoses and improves the cultural awareness of reward models."""

from importlib.metadata import version

__version__ = version("habitus")
