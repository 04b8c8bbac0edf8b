"""The reward function of a training: a reward model's scores of a group of answers.

A group is an answer set as of best-of-n, judged in the same way (`habitus.downstream.pick`), so
what is rewarded in training is what would be picked. An answer that a reward model fails on has no
reward: TRL leaves it out of its group's mean and gives it no advantage. A judge that compares
fails on the group as a whole; a reward model that reads one answer at a time, such as a classifier
or a pointwise judge, is then asked for each answer alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from habitus.clients.engine import Reply, Request
from habitus.downstream.generate import chat_of, outcome
from habitus.downstream.grading import answer_of
from habitus.downstream.model import Answer, Generation, GenerationStatus, TaskPrompt
from habitus.downstream.pick import SAME, AnswerSet, items_of, score_lines
from habitus.scorers.batching import ConversationScorer, Scored
from habitus.train.locals.model import Policy
from habitus.types import Message, Scorer, Status

Values = tuple[tuple[float | None, ...], tuple[str | None, ...]]
"""A score for each answer of a set, and for those without one, why."""


class ScorerReward:
    """The reward function that the trainer calls."""

    __name__ = "scorer"

    def __init__(
        self,
        policy: Policy,
        scorer: Scorer,
        prompts: Mapping[str, TaskPrompt],
        ids: Mapping[str, Sequence[int]],
        *,
        group: int,
        seed: int,
    ) -> None:
        """Make the function.

        Args:
            policy: What is trained.
            scorer: The reward model.
            prompts: What may be asked, by id.
            ids: Token ids of the prompts.
            group: Answers to a prompt.
            seed: Seed of candidate orders.
        """
        self._policy = policy
        self._scorer = scorer
        self._prompts = prompts
        self._ids = ids
        self._group = group
        self._seed = seed
        self.records: list[dict[str, Any]] = []
        """The last step's answers."""
        self.seconds = 0.0
        """Seconds spent since it was last set to 0."""

    def __call__(
        self,
        prompts: list[str],
        completions: list[str],
        completion_ids: list[list[int]],
        *,
        trainer_state: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the score of each answer, None where it has none.

        Args:
            prompts: Ids of prompts, the answers to one side by side.
            completions: Not used: TRL's text lacks control tokens.
            completion_ids: Token ids.
            trainer_state: Knows the step.
            **columns: Not used.
        """
        begin = time.perf_counter()
        step = 0 if trainer_state is None else int(trainer_state.global_step)
        sets = []
        for start in range(0, len(prompts), self._group):
            # a prompt may come twice in a step: each time it is an item of its own
            name = prompts[start]
            item = self._prompts[name].model_copy(
                update={"id": f"{step}/{start // self._group}/{name}"}
            )
            own = completion_ids[start : start + self._group]
            sets.append(
                AnswerSet(item, tuple(self._answer(name, i, ids) for i, ids in enumerate(own)))
            )
        self.records = []
        for start, (one, found) in enumerate(
            zip(sets, scores_of(self._scorer, sets, self._seed), strict=True)
        ):
            tokens = completion_ids[start * self._group : (start + 1) * self._group]
            self.records += _records(one, found, tokens)
        self.seconds += time.perf_counter() - begin
        return [record["reward"] for record in self.records]

    def _answer(self, name: str, index: int, ids: Sequence[int]) -> Answer:
        """Read an answer as a generation of best-of-n, and grade it by the task's key."""
        encoder = self._policy.encoder
        end = next((n for n, token in enumerate(ids) if token in self._policy.stops), None)
        opened = "<think>" if encoder.opens_thinking else ""
        text = opened + encoder.decode(list(self._ids[name]), list(ids[:end]))
        reply = Reply(text=text, finished=end is not None)
        prompt = self._prompts[name]
        generation = Generation(unit=name, prompt=prompt.digest, index=index, **outcome(reply))
        return answer_of(prompt, generation)


def _records(one: AnswerSet, found: Values, ids: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Return what is kept of answers; the token that ends one does not count, as in held-out ones."""
    return [
        {
            "prompt": answer.prompt,
            "country": answer.country,
            "index": answer.index,
            "status": answer.status.value,
            "text": answer.text,
            "tokens": len(tokens) - (answer.status is not GenerationStatus.CUT),
            "grade": answer.grade,
            "matched": answer.matched,
            "reward": score,
            "problem": problem,
        }
        for answer, score, problem, tokens in zip(one.answers, *found, ids, strict=True)
    ]


def encode(policy: Policy, prompts: Sequence[TaskPrompt]) -> list[list[int] | Reply]:
    """Return the token ids of prompts, those that the transformers engine sends."""
    requests = [Request(group=prompt.id, chat=chat_of(prompt)) for prompt in prompts]
    found: list[list[int] | Reply] = policy.encoder.encode(requests)
    return found


def scores_of(scorer: Scorer, sets: Sequence[AnswerSet], seed: int) -> list[Values]:
    """Return a reward model's scores of answer sets; equal texts have equal ones.

    Args:
        scorer: The reward model.
        sets: The answers; each set's prompt has an id of its own.
        seed: Seed of candidate orders.
    """
    items = items_of(sets, distinct=scorer.spec.kind != "baseline")
    judgements = list(scorer.judge(list(items.values()), seed)) if items else []
    lines = {line.prompt: line for line in score_lines(sets, items, scorer.spec, judgements)}
    result = []
    for one in sets:
        line = lines.get(one.prompt.id)
        none = tuple(None for _ in one.answers)
        if line is not None and line.scores and line.status != SAME:
            ended = (a.status.value if s is None else None for a, s in _paired(one, line.scores))
            result.append((line.scores, tuple(ended)))
        elif line is not None and line.status != SAME and _reads_one(scorer):
            result.append(_alone(scorer, one, seed))
        else:  # nobody was asked about one text alone: it has nothing to be compared with
            why = "no judgement" if line is None else line.status
            result.append((none, tuple(why for _ in one.answers)))
    return result


def _paired(one: AnswerSet, scores: Sequence[float | None]) -> Any:
    return zip(one.answers, scores, strict=True)


def _reads_one(scorer: Scorer) -> bool:
    """Tell whether a score does not depend on the other answers."""
    return isinstance(scorer, ConversationScorer) or (
        scorer.spec.parameters.get("mode") == "pointwise"
    )


def _alone(scorer: Scorer, one: AnswerSet, seed: int) -> Values:
    """Score each answer of a set by itself: the item failed because some of them do."""
    texts = list(dict.fromkeys(answer.text for answer in one.candidates))
    if isinstance(scorer, ConversationScorer):
        asked = [(*one.prompt.messages, Message(role="assistant", content=text)) for text in texts]
        found = dict(zip(texts, scorer.score(asked), strict=True))
    else:
        found = dict(zip(texts, _judged_alone(scorer, one, texts, seed), strict=True))
    scores: list[float | None] = []
    problems: list[str | None] = []
    for answer in one.answers:
        scored = found.get(answer.text) if answer.status.candidate else None
        scores.append(scored.value if scored else None)
        if scored is None:
            problems.append(answer.status.value)
        else:
            problems.append(None if scored.status is Status.OK else scored.status.value)
    return tuple(scores), tuple(problems)


def _judged_alone(
    scorer: Scorer, one: AnswerSet, texts: Sequence[str], seed: int
) -> Iterator[Scored]:
    """Have a judge rate texts; an item needs two candidates, so each stands twice."""
    items = []
    for number, text in enumerate(texts):
        twice = tuple(
            Answer(
                prompt=one.prompt.id,
                country=one.prompt.country,
                index=index,
                status=GenerationStatus.OK,
                text=text,
            )
            for index in range(2)
        )
        own = AnswerSet(
            one.prompt.model_copy(update={"id": f"{one.prompt.id}/{number}"}), twice
        ).item(distinct=False)
        assert own is not None
        items.append(own)
    for judgement in scorer.judge(items, seed):
        status = judgement.status
        if status.judged:
            yield Scored(next(iter(judgement.scores.values())))
        else:
            yield Scored(None, status, judgement.error)
