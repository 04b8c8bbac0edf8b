"""The nouns of a downstream run: each is one line of one of its files."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, FiniteFloat, ValidationError

from habitus.errors import RunError
from habitus.types import Frozen, Message, ScorerSpec, digest

CONFIG, PROMPTS, ANSWERS = "config.json", "prompts.jsonl", "answers.jsonl"
SCORERS, SCORES, PICKS = "scorers.json", "scores.jsonl", "picks.jsonl"
RESULT, PAGE = "downstream.json", "downstream.html"
GENERATIONS = "generations"
"""Files of a run's folder, and its folder of generations."""


class AnswerVotes(Frozen):
    """What some local people answered."""

    wordings: tuple[str, ...]
    """All wordings that count."""
    share: Annotated[float, Field(ge=0, le=1)]
    """Votes over those of the answer with the most."""


class ShortKey(Frozen):
    """Grading by soft match against all voted answers."""

    kind: Literal["short"] = "short"
    answers: tuple[AnswerVotes, ...]
    """Most votes first."""
    language: str
    """BCP 47 tag of the wordings; English wordings count too."""


class ChoiceKey(Frozen):
    """Grading by the letter."""

    kind: Literal["choice"] = "choice"
    letters: tuple[str, ...]
    """The letters that were offered."""
    right: tuple[str, ...]
    """Those that are right."""


class JudgeKey(Frozen):
    """Grading by a judge that is none of the reward models under test."""

    kind: Literal["judge"] = "judge"


Key = Annotated[ShortKey | ChoiceKey | JudgeKey, Field(discriminator="kind")]
"""What answers are graded by."""


class TaskPrompt(Frozen):
    """One line of `prompts.jsonl`: what the policy is asked, and what its answers are graded by."""

    id: Annotated[str, Field(min_length=1)]
    """Unique within its task."""
    group: str
    """What intervals are clustered by: the question, in whatever country."""
    country: str
    """The country by its English short name; where a task has languages only, the language."""
    culture: str | None = None
    """A cultural group, where the source names one."""
    language: str | None = None
    """BCP 47 tag of the prompt."""
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    """What policy and reward models read."""
    key: Key
    """What answers are graded by."""

    @cached_property
    def digest(self) -> str:
        """Names what is asked, and nothing else."""
        return digest([[message.role, message.content] for message in self.messages])


class Sampling(Frozen):
    """How answers are drawn."""

    temperature: Annotated[FiniteFloat, Field(ge=0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] = 0.95
    """Probability of the tokens that are drawn from."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Most tokens of an answer, thinking included."""


class GenerationStatus(StrEnum):
    """How the asking for an answer ended."""

    OK = "ok"
    """The policy ended its text."""
    CUT = "truncated"
    """The token limit ended the text, which stays a candidate."""
    EMPTY = "empty"
    """There is no text after the thinking; the empty text stays a candidate."""
    LONG = "too-long"
    """The prompt does not fit: no candidate."""
    REFUSED = "refused"
    """The server declined: no candidate."""
    ERROR = "error"
    """The engine failed: no candidate."""

    @property
    def candidate(self) -> bool:
        """True when there is a text that reward models can pick."""
        return self in (GenerationStatus.OK, GenerationStatus.CUT, GenerationStatus.EMPTY)


class Generation(Frozen):
    """One line of a generations file: one answer of a policy, named by all that it depends on."""

    unit: str
    """Digest of policy, prompt, sampling, seed and index."""
    prompt: str
    """Digest of the prompt."""
    index: int
    """Which of the prompt's answers, from 0."""
    status: GenerationStatus
    """How it ended."""
    text: str = ""
    """What was written, thinking included."""
    model: str | None = None
    """What wrote it, where it is not the policy (published answers)."""
    error: str | None = None
    """Why there is none, for people."""
    prompt_tokens: int = 0
    """Tokens read."""
    completion_tokens: int = 0
    """Tokens written."""
    last: Literal[True] | None = None
    """True in the last line of those that were written together: a resumed run keeps whole
    chunks only, so that it draws in the same batches."""


class Answer(Frozen):
    """One line of `answers.jsonl`: an answer with its grade."""

    prompt: str
    """Id of the prompt."""
    country: str
    """The prompt's country."""
    index: int
    """Which of the prompt's answers, from 0."""
    status: GenerationStatus
    """How its generation ended."""
    text: str = ""
    """The answer without the thinking."""
    model: str | None = None
    """What wrote it, where it is not the policy."""
    grade: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    """Its quality; None for what is no candidate, and where the grader failed."""
    votes: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    """Soft match only: the grade weighted by votes (SEM-W)."""
    matched: str | None = None
    """What it was graded by: the wording that it holds, or the letter that was read."""
    reason: str | None = None
    """Why no letter was read, or why the grader gave no grade."""


class ScoreLine(Frozen):
    """One line of `scores.jsonl`: one reward model's scores of one prompt's answers."""

    scorer: str
    """Digest of the reward model."""
    prompt: str
    """Id of the prompt."""
    unit: str
    """Digest of (answer set, reward model, seed)."""
    status: str
    """Status of the judgement; "same" when all answers are one text and none was judged."""
    scores: tuple[FiniteFloat | None, ...] = ()
    """A score for each index; None for what is no candidate. Empty on failure."""
    error: str | None = None
    """Why it failed, for people."""


class Pick(Frozen):
    """One line of `picks.jsonl`: what one reward model picked of all answers to one prompt."""

    scorer: str
    """Digest of the reward model."""
    prompt: str
    """Id of the prompt."""
    country: str
    """The prompt's country."""
    picked: int
    """Index of the answer with the highest score, the first of equals."""
    tied: int
    """How many answers share the highest score."""
    quality: FiniteFloat
    """Grade of the pick, the mean of equals."""
    n_candidates: int
    """How many answers there were to pick from."""


class ScorerEntry(Frozen):
    """One reward model of a run, in `scorers.json`."""

    name: str
    """As given on the command line, options included."""
    spec: ScorerSpec
    """What it is."""
    parameters: int | None = None
    """Number of its weights, where known."""


Record = TypeVar("Record", bound=Frozen)


def read_records(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Read a JSON Lines file of a run.

    Raises:
        RunError: When it is missing, or a line is not what a run writes.
    """
    if not path.is_file():
        raise RunError(f"{path} is missing; run habitus downstream again with --resume")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield kind.model_validate_json(line)
            except ValidationError as error:
                raise RunError(f"{path}, line {number}: {error.errors()[0]['msg']}") from error
