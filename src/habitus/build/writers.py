"""Writers: the models that are asked for text, within one budget of tokens for the whole build.

Tasks are taken in their order, a window at a time, and recorded in that order, so that the file of a
killed build is the beginning of an unbroken one's. What has a record is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from habitus.build.checks import Checked
from habitus.build.records import StageLog, StageRecord
from habitus.clients.budget import TokenBudget
from habitus.clients.engine import Engine, Reply, Request, Turn, answers, describe
from habitus.errors import HabitusError
from habitus.progress import progress
from habitus.prompts import plain
from habitus.types import digest


@dataclass(frozen=True)
class Task:
    """One text to ask for."""

    key: str
    """What it is for."""
    attempt: int
    """Which try it is, from 1."""
    writer: str
    """The writer's name, as given."""
    chat: tuple[Turn, ...]
    """What is asked."""
    check: Callable[[Reply], Checked]
    """Cleans the text and says what is wrong with it; called in the order of the tasks."""
    reference: str | None = None
    """Id of the reference that is shown."""


class Writers:
    """All writers of a build."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        *,
        seed: int = 0,
        temperature: float = 0.7,
        max_tokens: int = 1024,
        budget: int | None = None,
    ) -> None:
        """Make them of engines.

        Args:
            engines: Name to engine; the writers close them.
            seed: The build's seed.
            temperature: Sampling temperature; 0 is greedy.
            max_tokens: Most tokens of one text, thinking included.
            budget: Most tokens of the build, those of earlier calls included.
        """
        self._engines = engines
        self._digests = {name: digest(describe(engine)) for name, engine in engines.items()}
        self._seed = seed
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._budget = TokenBudget(budget)

    def model(self, writer: str) -> str:
        """Return the name of a writer's model."""
        return self._engines[writer].model

    def unit(self, stage: str, task: Task) -> str:
        """Name a task by all that its text depends on."""
        said = [[turn.role, plain(turn.segments)] for turn in task.chat]
        settings = [self._seed, self._temperature, self._max_tokens]
        return digest([stage, task.key, said, self._digests[task.writer], settings, task.attempt])

    def ask(
        self,
        stage: str,
        tasks: Sequence[Task],
        log: StageLog,
        seen: Callable[[StageRecord], None] = lambda record: None,
    ) -> list[StageRecord]:
        """Return the records of tasks, asking for those that are not there.

        Args:
            stage: The stage.
            tasks: What to ask, in the order of the records.
            log: The stage's records.
            seen: Called with each record, old or new, in order, before the next text is checked.

        Raises:
            HabitusError: When the budget is used up or an engine cannot go on. What was answered
                before is kept.
        """
        units = [self.unit(stage, task) for task in tasks]
        pending = []
        for task, unit in zip(tasks, units, strict=True):
            record = log.find(unit)
            if record is None:
                pending.append((task, unit))
                continue
            log.use(record)
            self._spend(task, record)
            seen(record)
        if pending:
            done = len(tasks) - len(pending)
            label = f"{stage}, try {pending[0][0].attempt}"
            with progress(label, len(tasks), done, unit="texts") as advance:
                for record in self._write(stage, pending, log):
                    seen(record)
                    advance(1)
        found = [log.find(unit) for unit in units]
        return [record for record in found if record is not None]

    def _write(
        self, stage: str, pending: Sequence[tuple[Task, str]], log: StageLog
    ) -> Iterator[StageRecord]:
        window = max(1, *(engine.window for engine in self._engines.values()))
        start = 0
        while start < len(pending):
            batch = self._affordable(pending[start : start + window])
            replies = self._execute(batch)
            for (task, unit), reply in zip(batch, replies, strict=True):
                checked = task.check(reply)
                record = StageRecord(
                    stage=stage,
                    key=task.key,
                    unit=unit,
                    attempt=task.attempt,
                    status=checked.status,
                    reason=checked.reason,
                    text=checked.text,
                    model=self.model(task.writer),
                    reference=task.reference,
                    prompt_tokens=reply.prompt_tokens,
                    completion_tokens=reply.completion_tokens,
                )
                log.append(record)
                self._spend(task, record)
                yield record
            start += len(batch)

    def _affordable(self, batch: Sequence[tuple[Task, str]]) -> Sequence[tuple[Task, str]]:
        """Return as many of the next tasks as the budget surely pays for.

        Raises:
            HabitusError: When it does not pay for one.
        """
        limit = self._budget.limit
        if limit is None:
            return batch
        reserved = 0
        for number, (task, _) in enumerate(batch):
            cost = self._budget.estimate(_size(task), self._max_tokens)
            if self._budget.spent + reserved + cost > limit:
                if number:
                    return batch[:number]
                raise HabitusError(
                    f"the budget of {limit:,} tokens is used up: {self._budget.spent:,} are spent "
                    f"and the next text may take {cost:,}; what is finished is kept: go on with "
                    "--resume and a larger --budget-tokens"
                )
            reserved += cost
        return batch

    def _spend(self, task: Task, record: StageRecord) -> None:
        self._budget.spend(_size(task), record.prompt_tokens, record.completion_tokens)

    def spend(self, text: str, tokens: int) -> None:
        """Count the tokens that the embedding of a text has cost."""
        self._budget.spend(len(text.encode()), tokens, 0)

    def _execute(self, batch: Sequence[tuple[Task, str]]) -> list[Reply]:
        """Answer a batch, writer by writer, and return the replies in its order."""
        replies: dict[int, Reply] = {}
        for writer in dict.fromkeys(task.writer for task, _ in batch):
            places = [place for place, (task, _) in enumerate(batch) if task.writer == writer]
            requests = [self._request(*batch[place]) for place in places]
            found = answers(self._engines[writer], requests)
            replies |= zip(places, found, strict=True)
        return [replies[place] for place in range(len(batch))]

    def _request(self, task: Task, unit: str) -> Request:
        return Request(
            group=unit,  # nothing is shared, so a reply does not depend on what came before
            chat=task.chat,
            max_tokens=self._max_tokens,
            temperature=self._temperature,
            seed=int(unit[:8], 16) >> 1,
        )

    def close(self) -> None:
        """Release the models."""
        for engine in self._engines.values():
            engine.close()


def _size(task: Task) -> int:
    return sum(len(plain(turn.segments).encode()) for turn in task.chat)
