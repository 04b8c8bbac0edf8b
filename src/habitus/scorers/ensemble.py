r"""Ensembles: several reward models that decide together.

`ensemble:A,B,C` averages scores, `ensemble:majority:A,B,C` counts votes; `ensemble:mean:A,B,C` says
the default aloud. Members are full names of reward models, ensembles among them. A comma or a
backslash that belongs to a member's name is written `\,` or `\\`, so an ensemble in an ensemble is
`ensemble:A,ensemble:majority:B\,C\,D`.

*mean*: each member's scores of an item become z-scores across the item's candidates (population
standard deviation), and a candidate's score is the mean of its z-scores. Members score on unlike
scales, and a scale fitted on the whole benchmark would change with `--limit` and with resume. A
member that sees no difference (a spread below a millionth of its largest score, which is noise of
float32) gives zeros: it abstains.

*majority*: each member has one vote, shared equally among its winners, and a candidate's score is
its share of the votes. Equal shares are a tie.

An item on which a member fails, fails: a mean over the others would be another reward model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

from habitus.clients.hf import launched
from habitus.errors import HabitusError, InputError
from habitus.scorers import ScorerOptions, resolve
from habitus.scorers.base import ItemFailureError, conclude, refuse_options
from habitus.types import Item, Judgement, Parameter, Scorer, ScorerSpec, Status

CHUNK = 128
"""Items that go to each member in turn; a kill loses at most so many."""

NOISE = 1e-6
"""Spread of an item's scores, relative to the largest of them, below which they count as equal."""

Rule = Callable[[Sequence[str], Sequence[Judgement]], dict[str, float]]
"""From an item's candidate ids and the members' judgements of it to the candidates' scores."""


def z_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return each candidate's distance from the mean in population standard deviations.

    Args:
        scores: Candidate id to score, at least one.

    Returns:
        Zeros when the scores are equal up to `NOISE`.
    """
    values = list(scores.values())
    if max(values) - min(values) <= NOISE * max(map(abs, values)):
        return dict.fromkeys(scores, 0.0)
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {name: (score - mean) / spread for name, score in scores.items()}


def mean(candidates: Sequence[str], judgements: Sequence[Judgement]) -> dict[str, float]:
    """Average the members' z-scores. Nine decimals are kept, so that equal means are ties."""
    normal = [z_scores(judgement.scores) for judgement in judgements]
    return {
        name: round(math.fsum(each[name] for each in normal) / len(normal), 9) + 0.0  # never -0.0
        for name in candidates
    }


def majority(candidates: Sequence[str], judgements: Sequence[Judgement]) -> dict[str, float]:
    """Return each candidate's share of the members' votes, summed without rounding."""
    votes = dict.fromkeys(candidates, Fraction(0))
    for judgement in judgements:
        for name in judgement.winner_ids:
            votes[name] += Fraction(1, len(judgement.winner_ids))
    return {name: float(share / len(judgements)) for name, share in votes.items()}


RULES: dict[str, Rule] = {"mean": mean, "majority": majority}
"""Name to rule."""


class Ensemble:
    """Several scorers as one (see `habitus.types.Scorer`)."""

    def __init__(self, members: Sequence[Scorer], rule: str) -> None:
        """Make an ensemble, which owns its members from here on.

        Args:
            members: Two or more different scorers.
            rule: A name in `RULES`.
        """
        self.members = tuple(members)
        self._rule = RULES[rule]
        names = ",".join(_escape(member.spec.name) for member in members)
        digests: dict[str, Parameter] = {
            f"member {number}": f"{member.spec.label} {member.spec.digest}"
            for number, member in enumerate(members, 1)
        }
        normalisation: dict[str, Parameter] = (
            {"normalisation": f"z-scores of each item, spread over {NOISE:g}"}
            if rule == "mean"
            else {}
        )
        self.spec = ScorerSpec(
            kind="ensemble",
            model=f"{rule}:{names}",
            parameters={"rule": rule} | normalisation | digests,
        )

    def judge(self, items: Sequence[Item], seed: int) -> Iterator[Judgement]:
        """Judge items in their order, `CHUNK` at a time (see `habitus.types.Scorer.judge`)."""
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            found = [
                {judgement.item_id: judgement for judgement in member.judge(chunk, seed)}
                for member in self.members
            ]
            for item in chunk:
                yield self._combine(item, [each.get(item.id) for each in found], seed)

    def _combine(self, item: Item, found: Sequence[Judgement | None], seed: int) -> Judgement:
        there = [judgement for judgement in found if judgement is not None]
        outcome: Mapping[str, Any] | Exception
        try:
            for member, judgement in zip(self.members, found, strict=True):
                _require(member, judgement, item)
            names = [candidate.id for candidate in item.candidates]
            outcome = {"scores": self._rule(names, there)}
        except (ItemFailureError, ArithmeticError) as error:
            outcome = error
        seconds = math.fsum(judgement.seconds or 0.0 for judgement in there)
        judged = conclude(item, self.spec, seed, outcome, seconds)
        return judged.model_copy(update=_spent(there))

    def close(self) -> None:
        """Release all members, also when one of them fails to."""
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.close)


def _require(member: Scorer, judgement: Judgement | None, item: Item) -> None:
    """Make sure that a member has judged all of an item's candidates.

    Raises:
        ItemFailureError: With the member's status and its name.
    """
    if judgement is None:
        raise ItemFailureError(Status.ERROR, f"{member.spec.label}: gave no judgement")
    if not judgement.status.judged:
        reason = judgement.error or judgement.status.value
        raise ItemFailureError(judgement.status, f"{member.spec.label}: {reason}"[:500])
    missing = {candidate.id for candidate in item.candidates} - set(judgement.scores)
    if missing:
        message = f"{member.spec.label}: no score for candidate {min(missing)!r}"
        raise ItemFailureError(Status.ERROR, message)


def _spent(judgements: Sequence[Judgement]) -> dict[str, int]:
    """Add up the members' tokens, where any are known."""
    spent = {}
    for key in ("prompt_tokens", "completion_tokens"):
        known = [count for each in judgements if (count := getattr(each, key)) is not None]
        if known:
            spent[key] = sum(known)
    return spent


def split(model: str) -> tuple[str, list[str]]:
    r"""Return the rule and the members' names of what follows `ensemble:`.

    Raises:
        InputError: When there are fewer than two members, or one is empty.
    """
    before, colon, after = model.partition(":")
    rule, rest = (before, after) if colon and before in RULES else ("mean", model)
    members = [_unescape(part).strip() for part in _parts(rest)]
    if len(members) < 2 or not all(members):
        raise InputError(
            f"ensemble:{model} needs two or more members: ensemble:A,B or ensemble:majority:A,B,C; "
            r"write a comma inside a name as \,"
        )
    return rule, members


def _parts(text: str) -> list[str]:
    """Split at commas that no backslash precedes."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in {",", "\\"}:
            at += 2
            continue
        if text[at] == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def _escape(name: str) -> str:
    return re.sub(r"([\\,])", r"\\\1", name)


def _unescape(name: str) -> str:
    """Undo `_escape`; a backslash before anything else stands for itself."""
    return re.sub(r"\\([\\,])", r"\1", name)


def _takes_options(name: str) -> bool:
    """Tell whether a member has any options: baselines, and ensembles of them, have none."""
    kind, _, model = name.partition(":")
    if kind == "ensemble":
        return any(_takes_options(member) for member in split(model)[1])
    return kind != "baseline"


def create(model: str, options: ScorerOptions) -> Ensemble:
    """Load an ensemble.

    Options go to every member but baselines, which have none; an option that one of the others
    refuses is refused.

    Args:
        model: `[mean:|majority:]MEMBER,MEMBER,...`
        options: Options of the members.

    Raises:
        InputError: When the name is no ensemble, a member is there twice, an option does not
            apply, or this is one of several processes of a launch.
        HabitusError: When a member cannot be loaded; it is named.
    """
    rule, names = split(model)
    if launched():
        # The other processes serve the first member that they load, and would answer for all.
        raise InputError(
            "an ensemble cannot be spread over the processes of accelerate launch; run it without"
        )
    if not any(map(_takes_options, names)):
        refuse_options("ensembles of baseline", options, ())
    members: list[Scorer] = []
    with ExitStack() as stack:  # what is loaded is released when a later member fails
        for name in names:
            given = options if _takes_options(name) else ScorerOptions(say=options.say)
            try:
                member = resolve(name, given)
            except HabitusError as error:
                raise _named(error, name) from error
            stack.callback(member.close)
            if any(member.spec.digest == other.spec.digest for other in members):
                raise InputError(f"ensemble member {name} is named twice; a vote counts once")
            members.append(member)
        stack.pop_all()
    return Ensemble(members, rule)


def _named(error: HabitusError, name: str) -> HabitusError:
    """Say which member an error is about."""
    kind = InputError if isinstance(error, InputError) else HabitusError
    return kind(f"ensemble member {name}: {error}")
