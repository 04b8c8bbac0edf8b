"""Reward models pick: an answer set is an item with up to N candidates, judged as any other.

Equal texts are one candidate, so that they get one score, and are paid for once; a set of one text
is not judged at all. Baselines are the exception: `baseline:random` must draw answers, not texts.
How a judge picks among N is its own mode (see `habitus.scorers.judge_modes`): listwise shows all
under letters, of which there are 26; pairwise plays all pairs, or a knockout; pointwise rates each
alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.downstream.model import Answer, Pick, ScoreLine, TaskPrompt
from habitus.errors import InputError
from habitus.progress import progress
from habitus.scorers.judge_looks import LETTERS
from habitus.store import JudgementLog, os_errors, read_judgements, write_atomic
from habitus.types import (
    Candidate,
    Item,
    Judgement,
    Scorer,
    ScorerSpec,
    digest,
    unit_digest,
)

SLICE = 64
"""Answer sets that are judged between two looks at the clock."""

SAME = "same"
"""Status of a set whose answers are all one text."""


@dataclass(frozen=True)
class AnswerSet:
    """All answers to one prompt."""

    prompt: TaskPrompt
    """The prompt."""
    answers: tuple[Answer, ...]
    """Its answers by index, failed ones too."""

    @property
    def candidates(self) -> tuple[Answer, ...]:
        """The answers that can be picked."""
        return tuple(answer for answer in self.answers if answer.status.candidate)

    @property
    def answers_by_index(self) -> dict[int, Answer]:
        """The answers by their index."""
        return {answer.index: answer for answer in self.answers}

    @property
    def graded(self) -> bool:
        """True when there is something to pick, and all of it has a grade."""
        found = self.candidates
        return bool(found) and all(answer.grade is not None for answer in found)

    def item(self, *, distinct: bool = True) -> Item | None:
        """Return the set as an item, or None when there are fewer than two texts.

        Args:
            distinct: Make one candidate of equal texts.
        """
        found = self.candidates
        if distinct:
            found = tuple({answer.text: answer for answer in reversed(found)}.values())[::-1]
        if len(found) < 2:
            return None
        prompt = self.prompt
        return Item(
            id=prompt.id,
            prompt=prompt.messages,
            candidates=tuple(Candidate(id=_name(one.index), text=one.text) for one in found),
            best_ids=(_name(found[0].index),),  # an item must name one; no scorer sees it
            culture=prompt.culture,
            country=prompt.country,
            language=prompt.language,
            parent_id=prompt.group,
        )

    def spread(self, scores: Mapping[str, float]) -> tuple[float | None, ...]:
        """Return a score for each index from those of the item's candidates."""
        texts = {
            answer.text: scores[_name(answer.index)]
            for answer in self.candidates
            if _name(answer.index) in scores
        }
        return tuple(
            scores.get(_name(answer.index), texts.get(answer.text))
            if answer.status.candidate
            else None
            for answer in self.answers
        )


def _name(index: int) -> str:
    return f"a{index}"


def items_of(sets: Sequence[AnswerSet], *, distinct: bool) -> dict[str, Item]:
    """Return the items that reward models have to judge, by prompt.

    Args:
        sets: The answers.
        distinct: As in `AnswerSet.item`; baselines get all answers.
    """
    found = {one.prompt.id: one.item(distinct=distinct) for one in sets}
    return {name: item for name, item in found.items() if item is not None}


def check_size(spec: ScorerSpec, n: int, asked: str | None = None) -> None:
    """Refuse a judge that cannot show so many answers at once.

    Args:
        spec: The judge, or any other reward model.
        n: Answers.
        asked: Where the number comes from, for the message.

    Raises:
        InputError: Naming the modes that can.
    """
    if n > len(LETTERS) and spec.parameters.get("mode") in ("listwise", "criteria"):
        raise InputError(
            f"{spec.name}: a listwise judge has {len(LETTERS)} letters for {asked or f'--n {n} answers'}; use "
            "'--mode pairwise --pairs knockout' or '--mode pointwise'"
        )


def judge_sets(
    path: Path,
    scorer: Scorer,
    items: Mapping[str, Item],
    seed: int,
    say: Callable[[str], None] = lambda line: None,
    *,
    retry_failed: bool = False,
    go_on: Callable[[], bool] | None = None,
) -> bool:
    """Have items judged that are not yet, into a log that can be resumed.

    Args:
        path: The log, JSON Lines of judgements.
        scorer: The reward model.
        items: What it has to judge, by id.
        seed: Seed of candidate orders.
        say: Called with lines for the user.
        retry_failed: Judge items again whose status is "error".
        go_on: Asked after each `SLICE` of items; False ends the judging early. None judges all at
            once.

    Returns:
        False when it was ended early.

    Raises:
        RunError: When the log cannot be written.
        HabitusError: When the reward model cannot judge at all. What was judged before is kept.
    """
    units = units_of(items, scorer.spec, seed)
    _drop_stale(path, units)
    log = JudgementLog(path, units, retry_failed=retry_failed)
    try:
        pending = [item for name, item in items.items() if name not in log.done]
        if pending and log.done:
            say(f"{scorer.spec.label}: {len(log.done):,} of {len(items):,} prompts are judged")
        if pending:
            with progress(scorer.spec.label, len(items), len(log.done), "prompts") as advance:
                size = SLICE if go_on else len(pending)
                for start in range(0, len(pending), size):
                    for judgement in scorer.judge(pending[start : start + size], seed):
                        log.append(judgement)
                        advance(1)
                    if go_on and not go_on():
                        break
        log.finish()
        return len(log.done) == len(items)
    finally:
        log.close()


def units_of(items: Mapping[str, Item], spec: ScorerSpec, seed: int) -> dict[str, str]:
    """Return the unit that each item's judgement must carry."""
    return {name: unit_digest(item, spec, seed) for name, item in items.items()}


def complete(path: Path, units: Mapping[str, str]) -> bool:
    """Tell whether a log holds all judgements, so that no model is needed."""
    found = {judgement.item_id: judgement.unit for judgement in read_judgements(path)}
    return all(found.get(name) == unit for name, unit in units.items())


def _drop_stale(path: Path, units: Mapping[str, str]) -> None:
    """Forget judgements of other answers: a failed answer may have been asked for again."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return
    with os_errors(path):
        lines = [line for line in path.read_bytes().splitlines(True) if line.endswith(b"\n")]
    wanted = set(units.values())
    kept = [line for line in lines if _unit(line) in wanted]
    if len(kept) < len(lines):
        write_atomic(path, kept)


def _unit(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["unit"])
    except (ValueError, KeyError, TypeError):
        return None


def score_lines(
    sets: Sequence[AnswerSet],
    items: Mapping[str, Item],
    spec: ScorerSpec,
    judgements: Iterable[Judgement],
) -> list[ScoreLine]:
    """Return a reward model's scores of each set that has candidates.

    `items` are those of `items_of`. Where all answers are one text they are equal, whatever its
    score: nobody was asked.
    """
    found = {judgement.item_id: judgement for judgement in judgements}
    lines = []
    for one in sets:
        name, candidates = one.prompt.id, one.candidates
        if not candidates:
            continue
        if name not in items:
            scores = tuple(0.0 if each.status.candidate else None for each in one.answers)
            unit = digest(["same", one.prompt.digest, candidates[0].text, spec.digest])
            lines.append(
                ScoreLine(scorer=spec.digest, prompt=name, unit=unit, status=SAME, scores=scores)
            )
            continue
        judgement = found.get(name)
        if judgement is None:
            continue
        lines.append(
            ScoreLine(
                scorer=spec.digest,
                prompt=name,
                unit=judgement.unit,
                status=judgement.status.value,
                scores=one.spread(judgement.scores) if judgement.status.judged else (),
                error=judgement.error,
            )
        )
    return lines


def pick(one: AnswerSet, line: ScoreLine) -> Pick | None:
    """Return what a reward model picked of a graded set, or None when it failed."""
    if not line.scores or not one.graded:
        return None
    scored = [
        (score, answer)
        for score, answer in zip(line.scores, one.answers, strict=True)
        if score is not None and answer.grade is not None
    ]
    best = max(score for score, _ in scored)
    top = [answer for score, answer in scored if score == best]
    return Pick(
        scorer=line.scorer,
        prompt=line.prompt,
        country=one.prompt.country,
        picked=top[0].index,
        tied=len(top),
        quality=sum(answer.grade or 0.0 for answer in top) / len(top),
        n_candidates=len(scored),
    )


def win_rates(scores: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return the share of the other answers that each is better than, by a judge's scores.

    Equal ones count half, so the mean over a set is 1/2, whatever the judge's scale; the only
    answer of a set has 1/2.
    """
    known = [score for score in scores if score is not None]
    rates: list[float | None] = []
    for score in scores:
        if score is None:
            rates.append(None)
            continue
        below = sum(other < score for other in known)
        equal = sum(other == score for other in known) - 1
        others = len(known) - 1
        rates.append((below + equal / 2) / others if others else 0.5)
    return tuple(rates)


def check_grader(grader: ScorerSpec, tested: ScorerSpec) -> None:
    """Refuse a grader that is the reward model under test, in whatever mode.

    Raises:
        InputError: When it is, or may be.
    """
    if grader.revision and tested.revision:
        same = grader.revision == tested.revision
    else:
        same = grader.model == tested.model
    members = map(str, tested.parameters.values())  # of an ensemble or a mixture
    if same or any(grader.digest in member for member in members):
        raise InputError(
            f"--grader {grader.label} is the reward model under test ({tested.label}): it would "
            "grade its own picks; name another judge"
        )
