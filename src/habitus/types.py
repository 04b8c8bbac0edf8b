"""The nouns of Habitus: frozen, validated at the boundary, unknown keys refused.

Every type here is one line in a file that a person can open; see `docs/formats.md`.
Behaviour lives in functions elsewhere; only digests, which name things, live here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

Parameter = str | int | float | bool | None
"""A value in a scorer's or a run's configuration."""


def canonical_json(value: Any) -> str:
    """Return `value` as JSON with sorted keys and no spaces, the form that is hashed."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def digest(value: Any, length: int = 16) -> str:
    """Return the first `length` hexadecimal digits of the sha256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


class Frozen(BaseModel):
    """Base of all types: immutable, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Message(Frozen):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    """Who speaks."""
    content: str
    """What is said, never interpreted as a template."""


class Reference(Frozen):
    """Where a fact behind an item is documented."""

    fact: str
    """The fact, in our own words."""
    title: str
    """Title of the work that documents it."""
    publisher: str
    """Who published that work."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """For survey facts: the share of people who gave the answer. A majority is not everyone."""


class Candidate(Frozen):
    """One response that a reward model can choose."""

    id: Annotated[str, Field(min_length=1)]
    """Unique within its item."""
    text: str
    """The response."""
    source_model: str | None = None
    """What wrote the text, where known."""
    culture: str | None = None
    """Whose reference it was written from: where this response would be right."""
    note: str | None = None
    """Why it is right or wrong, in English, for reviewers; never shown to a scorer."""
    language: str | None = None
    """BCP 47 tag of the text where it is not the item's language."""


class Gloss(Frozen):
    """English glosses of an item for reviewers; never shown to a scorer."""

    prompt: str
    """The prompt in English."""
    candidates: dict[str, str]
    """Candidate id to its text in English."""


class Item(Frozen):
    """One best-of-N set: a prompt, its candidates, and which of them are best (papers: CARB A1).

    `culture`, `country` and `language` are separate: a culture is no language.
    """

    id: Annotated[str, Field(min_length=1)]
    """Unique within its benchmark."""
    prompt: Annotated[tuple[Message, ...], Field(min_length=1)]
    """The conversation that the candidates answer."""
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=2)]
    """The responses, in the order of the source; shown in an order of the seed."""
    best_ids: Annotated[tuple[str, ...], Field(min_length=1)]
    """The ids of the right responses."""
    culture: str | None = None
    """A cultural group, such as "Arabic" or "Korean"."""
    country: str | None = None
    """A country or region by its English short name, such as "Egypt"."""
    language: str | None = None
    """BCP 47 tag of the candidates' language, such as "ar" or "zh-Hans"."""
    domain: str | None = None
    """What is tested: "commonsense", "values", "safety", "linguistics", or the source's subset."""
    source: str | None = None
    """The data set, or its part, that the item comes from."""
    licence: str | None = None
    """Licence of the item's text, as an SPDX identifier where there is one."""
    references: tuple[Reference, ...] = ()
    """Where the facts behind the item are documented."""
    parent_id: str | None = None
    """The item or row that this one was derived from; intervals are clustered by it."""
    cue: str | None = None
    """The counterfactual edit that made this item from its parent (papers: CARB A4)."""
    edited: str | None = None
    """The id of the candidate whose text that edit changed."""
    reason: str | None = None
    """One line in English: why the best response is best."""
    gloss: Gloss | None = None
    """English glosses for reviewers."""
    author: str | None = None
    """Who wrote the text: "language-model", "human", or a name."""
    human_validated: bool = False
    """True when people of the culture have checked the item."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [candidate.id for candidate in self.candidates]
        if len(set(ids)) != len(ids):
            raise ValueError(f"candidate ids are not unique: {ids}")
        unknown = [best for best in self.best_ids if best not in ids]
        if unknown:
            raise ValueError(f"best_ids {unknown} name no candidate; candidates are {ids}")
        if len(set(self.best_ids)) == len(ids):
            raise ValueError("every candidate is best, so nothing can be measured")
        if self.gloss is not None and set(self.gloss.candidates) != set(ids):
            raise ValueError("gloss.candidates must have exactly the candidates' ids")
        return self

    @cached_property
    def content_digest(self) -> str:
        """Digest of what a scorer can see: renaming a licence does not change it."""
        return digest(
            {
                "id": self.id,
                "prompt": [[message.role, message.content] for message in self.prompt],
                "candidates": [[candidate.id, candidate.text] for candidate in self.candidates],
                "culture": self.culture,
                "country": self.country,
                "language": self.language,
                "domain": self.domain,
            }
        )

    @property
    def chance(self) -> float:
        """Probability that a random pick is right: best candidates over all candidates."""
        return len(set(self.best_ids)) / len(self.candidates)


class PreferencePair(Frozen):
    """One preference of one person or one country between two responses (papers: SCPO, data)."""

    id: Annotated[str, Field(min_length=1)]
    """Unique within its set."""
    item_id: str
    """The question or conversation that the pair comes from."""
    prompt: Annotated[tuple[Message, ...], Field(min_length=1)]
    """The conversation that the responses answer."""
    chosen: str
    """The preferred response."""
    rejected: str
    """The other response."""
    weight: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    """How much the pair counts in training, before any weight that a method adds."""
    margin: FiniteFloat | None = None
    """By how much it was preferred: a difference of answer shares (0 to 1) or of ratings."""
    country: str | None = None
    """Country by its English short name."""
    culture: str | None = None
    """A cultural group, where the source names one."""
    language: str | None = None
    """BCP 47 tag of the responses."""
    domain: str | None = None
    """What the pair is about, as in `Item`."""
    annotator: str | None = None
    """Pseudonym of the person; None where the preference is a country's."""
    group: str
    """What must not be torn apart by a split, and what intervals are clustered by: the person, or
    the question."""
    split: Literal["train", "test"] | None = None
    """The part that the pair belongs to."""
    fold: Annotated[int, Field(ge=0)] | None = None
    """Fold of the cross-validation; all pairs of a group share it."""
    source: str | None = None
    """The data set."""
    licence: str | None = None
    """Licence of the text, as an SPDX identifier where there is one."""
    non_commercial: bool | None = None
    """Whether the licence forbids commercial use; None where that is not known, or not told."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.chosen == self.rejected:
            raise ValueError("chosen and rejected are the same text")
        return self

    @cached_property
    def content_digest(self) -> str:
        """Digest of what a reward model can see."""
        turns = [[message.role, message.content] for message in self.prompt]
        return digest([turns, self.chosen, self.rejected])


class ScorerSpec(Frozen):
    """What produced a score, completely enough to produce it again."""

    kind: str
    """"baseline", "embedded", later "classifier", "judge", ..."""
    model: str
    """The model's name within its kind."""
    revision: str | None = None
    """Digest or revision of the weights."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """All settings that can change a score, the engine's version among them."""
    prompt_digest: str | None = None
    """Digest of the prompt files that were used."""

    @property
    def name(self) -> str:
        """The name as given on the command line, `kind:model`."""
        return f"{self.kind}:{self.model}"

    @property
    def label(self) -> str:
        """The name with its mode, for tables and run folders."""
        mode = self.parameters.get("mode")
        return f"{self.name}:{mode}" if mode else self.name

    @cached_property
    def digest(self) -> str:
        """Names this scorer in every record."""
        return digest(self.model_dump(mode="json"))


class Status(StrEnum):
    """How a judgement ended. All but `ok` and `tie` are failures and carry no winner."""

    OK = "ok"
    """One winner."""
    TIE = "tie"
    """Several candidates share the highest score; credit is shared."""
    UNPARSED = "unparsed"
    """The judge's text holds no verdict, or more than one."""
    REFUSED = "refused"
    """The judge declined to judge."""
    TRUNCATED = "truncated"
    """The item or the judge's output is longer than the limit; nothing was cut silently."""
    ERROR = "error"
    """The scorer failed on this item; `error` says how."""

    @property
    def judged(self) -> bool:
        """True when there is a verdict."""
        return self in (Status.OK, Status.TIE)


class Pass(Frozen):
    """One look at the candidates in one order."""

    order: tuple[str, ...]
    """Candidate ids as shown."""
    scores: tuple[FiniteFloat, ...]
    """A score for each position of `order` (for letters: log-probabilities among the letters)."""
    pick: int
    """Position of the highest score (the first of equals)."""
    mass: FiniteFloat | None = None
    """Probability that the model gives to any of the letters at all, in 0 to 1."""


class Judgement(Frozen):
    """One finished unit of work: one item, judged by one scorer."""

    item_id: str
    """The item."""
    unit: str
    """Digest of (item content, scorer, seed): the name that resume and cache go by."""
    scorer: str
    """The scorer's digest."""
    seed: int
    """The seed that the order was drawn from."""
    status: Status
    """How it ended."""
    scores: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Candidate id to its final score; empty on failure."""
    winner_ids: tuple[str, ...] = ()
    """Candidates with the highest score; empty on failure."""
    order: tuple[str, ...] = ()
    """Candidate ids as first shown."""
    passes: tuple[Pass, ...] = ()
    """The single looks that the scores are averaged over, for judges that see an order."""
    raw: str | None = None
    """What the judge wrote, where it writes."""
    error: str | None = None
    """Why it failed, for people."""
    prompt_tokens: int | None = None
    """Tokens read, over all passes."""
    completion_tokens: int | None = None
    """Tokens written, over all passes."""
    seconds: float | None = None
    """Wall-clock time of this unit; the only field that differs between equal runs."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.status.judged:
            if not self.scores or not self.winner_ids:
                raise ValueError(f"status {self.status} needs scores and winner_ids")
            if not set(self.winner_ids) <= set(self.scores):
                raise ValueError("winner_ids must be among the scored candidates")
            if (len(self.winner_ids) > 1) != (self.status is Status.TIE):
                raise ValueError("status is tie exactly when there are several winners")
        elif self.scores or self.winner_ids:
            raise ValueError(f"status {self.status} must carry neither scores nor winners")
        return self


class Metric(Frozen):
    """One figure with its interval; `value` is None when there is nothing to compute it from."""

    name: str
    """What was measured, such as "accuracy"."""
    value: FiniteFloat | None
    """The figure, or None with n = 0."""
    n: int
    """How many items (or units, as the name says) it rests on."""
    n_excluded: int = 0
    """How many were left out: their status is a failure, or they are not judged yet."""
    ci_low: FiniteFloat | None = None
    """Lower bound of the 95 % interval."""
    ci_high: FiniteFloat | None = None
    """Upper bound of the 95 % interval."""
    group: dict[str, str] = Field(default_factory=dict)
    """The part it was computed on, such as {"culture": "Thai"}; empty for all."""
    interval: Literal["bootstrap", "wilson"] | None = None
    """How the interval was made (decision 0002)."""


class Comparison(Frozen):
    """A paired difference between two scorers on the same items: `a` minus `b`."""

    a: str
    """Label of the first."""
    b: str
    """Label of the second."""
    difference: FiniteFloat | None
    """Accuracy of a minus accuracy of b, on the shared items."""
    ci_low: FiniteFloat | None
    """Lower bound of its 95 % interval."""
    ci_high: FiniteFloat | None
    """Upper bound of its 95 % interval."""
    p: FiniteFloat | None
    """Two-sided paired p-value."""
    p_holm: FiniteFloat | None
    """The p-value after Holm's correction over all comparisons in the table."""
    n: int
    """Items judged by both."""
    n_excluded: int
    """Items that one of them failed on, or only one of them has."""
    detectable: FiniteFloat | None
    """Smallest true difference that this n finds with 80 % power at 5 %."""


class RunInfo(Frozen):
    """`run.json`: the resolved configuration, written before the first judgement."""

    id: str
    """Name of the run folder."""
    config: dict[str, Any]
    """Everything that can change a result. Resume is refused when it differs."""
    scorer: ScorerSpec
    """The scorer, resolved."""
    seed: int
    """Seed of candidate orders and of `limit`."""
    n_items: int
    """How many items the run covers."""
    versions: dict[str, str]
    """Versions of Habitus, Python and the libraries that results depend on."""
    started: str
    """When the run was first started, UTC, ISO 8601."""
    command: str | None = None
    """The command line that makes this run again."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as rows of the source that were left out."""


@runtime_checkable
class Scorer(Protocol):
    """A reward model behind one interface."""

    @property
    def spec(self) -> ScorerSpec:
        """What this scorer is."""
        ...

    def judge(self, items: Sequence[Item], seed: int) -> Iterator[Judgement]:
        """Judge `items`, in any order, one judgement for each, never raising for a single item.

        Args:
            items: What to judge.
            seed: Seed of the candidate orders.

        Yields:
            One judgement per item as it is finished.

        Raises:
            HabitusError: When no item can be judged at all.
        """
        ...

    def close(self) -> None:
        """Release the model."""
        ...


def candidate_order(item: Item, seed: int) -> tuple[str, ...]:
    """Return the candidate ids in the order drawn from hash(seed, item id).

    The order depends on nothing else, so it is the same whatever the concurrency.
    """

    def key(candidate_id: str) -> bytes:
        return hashlib.sha256(canonical_json([seed, item.id, candidate_id]).encode()).digest()

    return tuple(sorted((candidate.id for candidate in item.candidates), key=key))


def unit_digest(item: Item, scorer: ScorerSpec, seed: int) -> str:
    """Name a unit of work by item content, scorer and seed, and by nothing else."""
    return digest([item.content_digest, scorer.digest, seed])


def benchmark_digest(items: Iterable[Item]) -> str:
    """Digest of a benchmark's content, in order."""
    sha = hashlib.sha256()
    for item in items:
        sha.update(item.content_digest.encode())
        sha.update(canonical_json(sorted(item.best_ids)).encode())
    return sha.hexdigest()[:16]


def winners(scores: Mapping[str, float]) -> tuple[str, ...]:
    """Return the ids that share the highest score, in the mapping's order; empty when empty."""
    if not scores:
        return ()
    best = max(scores.values())
    return tuple(candidate_id for candidate_id, score in scores.items() if score == best)
