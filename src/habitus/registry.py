"""Lazy registries: names to "module:attribute" strings, imported on first use.

Other packages add entries through the entry point group that a registry names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from habitus.errors import HabitusError, UnknownNameError


class Registry:
    """Names of one kind of thing, each with the place that it is imported from."""

    def __init__(self, kind: str, builtin: Mapping[str, str], group: str) -> None:
        """Make a registry.

        Args:
            kind: What the names name, for error messages.
            builtin: Name to "module:attribute".
            group: Entry point group that other packages register under.
        """
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)

    def targets(self) -> dict[str, str]:
        """Return every name with its "module:attribute".

        Raises:
            HabitusError: When two packages register one name.
        """
        found = dict(self._builtin)
        for point in entry_points(group=self.group):
            if found.get(point.name, point.value) != point.value:
                raise HabitusError(
                    f"{self.kind} {point.name!r} is registered twice: {found[point.name]} and "
                    f"{point.value}; uninstall one of the packages"
                )
            found[point.name] = point.value
        return found

    def get(self, name: str) -> Any:
        """Import and return what `name` stands for.

        Raises:
            UnknownNameError: When no such name is registered.
        """
        targets = self.targets()
        if name not in targets:
            raise UnknownNameError(self.kind, name, targets)
        module, _, attribute = targets[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
