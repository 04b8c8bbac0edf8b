"""Items under way: their question, their four answers, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from habitus.build.records import Outcome
from habitus.build.references import CulturalReference, Target
from habitus.data.answers import fold

CHOSEN = 0
"""Number of the chosen answer among an item's four; rejected ones have 1 to 3."""


@dataclass(frozen=True)
class Answer:
    """One of the four answers of an item."""

    text: str
    """The answer."""
    model: str
    """What wrote it first."""
    rewritten_by: str | None = None
    """What rewrote it to another length."""


@dataclass
class Flight:
    """An item under way."""

    target: Target
    """What it is to be."""
    question: str = ""
    """The question, once there is one."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Number to answer, as far as accepted."""
    written: dict[str, int] = field(default_factory=dict)
    """Each folded answer of this round, to the number that it was written for."""
    dropped: tuple[str, Outcome] | None = None
    """The stage where it was given up, and how the last try ended there."""

    @property
    def key(self) -> str:
        """The item's id."""
        return self.target.key

    @property
    def language(self) -> str:
        """BCP 47 tag of question and answers."""
        return self.target.reference.language

    def same_text(self, text: str, number: int) -> int | None:
        """Return the number of another answer that is equal, accepted or of this round."""
        accepted = {fold(answer.text): other for other, answer in self.answers.items()}
        found = accepted.get(fold(text), self.written.get(fold(text), number))
        return None if found == number else found

    def sources(self) -> tuple[CulturalReference, ...]:
        """Return the reference of each number: the right one, then the mismatched ones."""
        return (self.target.reference, *self.target.wrong)


@dataclass(frozen=True)
class Slot:
    """The place of one answer in an item."""

    flight: Flight
    """The item."""
    number: int
    """Which answer."""

    @property
    def key(self) -> str:
        """Key of its records."""
        return self.flight.key if self.number == CHOSEN else f"{self.flight.key}/{self.number}"


@dataclass(frozen=True)
class Rules:
    """What a build goes by."""

    writer: str
    """Name of the writer of questions, chosen answers, translations and rewrites."""
    pool: tuple[str, ...]
    """Names of the writers of rejected answers."""
    attempts: int = 3
    """How often a text is asked for."""
    seed: int = 0
    """The build's seed."""
