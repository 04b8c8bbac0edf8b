"""Scoring on several devices under `accelerate launch`: one process leads, the others compute.

The first process runs the evaluation as if it were alone. It sends each chunk's texts and batches
to the others; process r takes every n-th batch from r on, and all rewards come back to the first.
The others know nothing of run folders: they serve until the first one closes its scorer, and end.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from habitus.clients import hf
from habitus.clients.encode import Encoded

if TYPE_CHECKING:
    from habitus.scorers.runner import Runner


class Ranks:
    """The processes of this launch; usually one."""

    def __init__(self, runner: Runner) -> None:
        """Join the launch, and serve until the end of it in all processes but the first.

        Args:
            runner: Computes batches in this process.

        Raises:
            MissingExtraError: When there are several processes and accelerate is not installed.
            SystemExit: In all processes but the first, with status 0, when the first has closed.
        """
        self._runner = runner
        self._open = True
        self.count = 1
        """How many processes there are."""
        if not hf.launched():
            return
        state = hf.launch_state(cpu=runner.device.type == "cpu")
        self.count = int(state.num_processes)
        self._rank = int(state.process_index)
        if self._rank:
            self._serve()
            raise SystemExit(0)

    def run(self, texts: Sequence[Encoded]) -> list[float | str]:
        """Compute the rewards of texts, in their order, each exactly once."""
        batches = self._runner.plan(texts)
        if self.count == 1:
            found = self._runner.run(texts, batches)
        else:
            self._exchange((texts, batches))
            found = self._take_part(texts, batches)
        return [found[index] for index in range(len(texts))]

    def close(self) -> None:
        """Let the other processes end."""
        if self.count > 1 and self._open and not self._rank:
            self._exchange(None)
        self._open = False

    def _serve(self) -> None:
        while (work := self._exchange(None)) is not None:
            self._take_part(*work)

    def _exchange(self, work: Any) -> Any:
        """Send work from the first process to all."""
        operations = importlib.import_module("accelerate.utils")
        return operations.broadcast_object_list([work], from_process=0)[0]

    def _take_part(
        self, texts: Sequence[Encoded], batches: Sequence[list[int]]
    ) -> dict[int, float | str]:
        """Compute this process's share, and return all shares."""
        operations = importlib.import_module("accelerate.utils")
        own = self._runner.run(texts, batches[self._rank :: self.count])
        shares = operations.gather_object([(own, self._runner.budget)])
        # What did not fit into one device's memory is not tried again on the next chunk.
        self._runner.budget = min(budget for _, budget in shares)
        return {index: value for share, _ in shares for index, value in share.items()}
