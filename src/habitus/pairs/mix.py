"""A mix file: which sources make a set of pairs, and how much of each (TOML). See `docs/pairs.md`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from habitus.data.fields import first_problem
from habitus.data.source import decode, read_bytes
from habitus.errors import InputError
from habitus.pairs.people import PersonCountry
from habitus.types import Frozen

AXES = ("countries", "cultures", "languages")
"""What a source's share can be divided by."""

Axis = Literal["countries", "cultures", "languages"]
_NAME = re.compile(r"[\w.-]+")  # ids begin with it and a colon
Share = Annotated[FiniteFloat, Field(gt=0)]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Table(Frozen):
    """A table of the file; keys are written with hyphens, as options are."""

    model_config = ConfigDict(alias_generator=_kebab)


class MixSource(_Table):
    """One source: a table `[sources.NAME]`."""

    path: str
    """File or folder, relative to the data folder, or a bundled benchmark's name."""
    share: Share
    """Share of all pairs, relative to the other sources' shares."""
    format: str | None = None
    """As of `read_source`."""
    min_margin: Annotated[FiniteFloat, Field(ge=0)] | None = None
    """As of `read_source`."""
    person_country: PersonCountry = "reside"
    """As of `read_source`."""
    licence: str | None = None
    """Licence of pairs whose source names none."""
    countries: dict[str, Share] | None = None
    """Country to its share of the source; only these are taken. A list means equal shares."""
    cultures: dict[str, Share] | None = None
    """Culture to its share of the source."""
    languages: dict[str, Share] | None = None
    """BCP 47 tag to its share of the source; "zh" stands for "zh-Hans" as well."""

    @field_validator(*AXES, mode="before")
    @classmethod
    def _equal(cls, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            if len(set(value)) < len(value):
                raise ValueError("a name is repeated")
            value = dict.fromkeys(value, 1.0)
        if value == {}:
            raise ValueError("is empty; leave it out to take all")
        return value

    @model_validator(mode="after")
    def _one_axis(self) -> MixSource:
        given = [axis for axis in AXES if getattr(self, axis)]
        if len(given) > 1:
            raise ValueError(
                f"has {' and '.join(given)}; a share can be divided by one of them only"
            )
        return self

    @property
    def division(self) -> tuple[Axis, Mapping[str, float]] | None:
        """What the share is divided by, and how; None where it is not."""
        if self.countries:
            return "countries", self.countries
        if self.cultures:
            return "cultures", self.cultures
        return ("languages", self.languages) if self.languages else None


class Mix(_Table):
    """A mix file."""

    train: Annotated[int, Field(ge=1)]
    """Pairs of the training part."""
    test: Annotated[int, Field(ge=0)] = 0
    """Pairs of the test part."""
    sources: Annotated[dict[str, MixSource], Field(min_length=1)]
    """Name to source; where two sources have a pair, the first keeps it."""
    seed: int = 0
    """Seed of parts, folds and draws."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Folds of the cross-validation."""
    short: Literal["warn", "error", "repeat"] = "warn"
    """What to do where a source has fewer pairs than its share: say so, refuse, or say so and
    repeat its training pairs."""
    exclude: tuple[str, ...] = ()
    """Benchmarks, or sets of pairs, whose prompts and groups are left out."""

    @field_validator("sources")
    @classmethod
    def _named(cls, value: dict[str, MixSource]) -> dict[str, MixSource]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name[:40]!r} is no name: letters, digits, '.', '_' and '-' only"
                )
        return value

    @property
    def test_share(self) -> float:
        """Share of the questions in the test part."""
        return self.test / (self.train + self.test)


def read_mix(path: Path) -> Mix:
    """Read and check a mix file.

    Raises:
        InputError: When it is missing, no TOML, or a value in it is wrong.
    """
    try:
        text = decode(read_bytes(path), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return Mix.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: no TOML: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}; see docs/pairs.md") from error
