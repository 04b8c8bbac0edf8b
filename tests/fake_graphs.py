"""CUDA graphs for machines without a GPU: what is recorded computes again when it is replayed."""

from types import SimpleNamespace

import torch

from habitus.train.graphs import StepGraphs, _Recorded


def fake_graphs(monkeypatch, recorded=None, full=lambda shape: False):
    """Let `StepGraphs` record on the CPU.

    Args:
        monkeypatch: pytest's.
        recorded: A list that gets the shape of the first input of each recording.
        full: Whether memory runs out when a batch of that shape is recorded.
    """

    def record(self, inputs, compute):
        shape = tuple(next(iter(inputs.values())).shape)
        if full(shape):
            raise torch.OutOfMemoryError("no memory")
        if recorded is not None:
            recorded.append((shape, self._pool))
        self._pool = self._pool or object()
        if not self._gradients:
            self._used = [each for each in self._parameters if each.requires_grad]
            self._gradients = [torch.zeros_like(each) for each in self._used]
        kept = {name: value.clone() for name, value in inputs.items()}
        loss = torch.zeros(())

        def replay():
            with torch.enable_grad():
                found = compute(kept)
                found.backward()
            loss.copy_(found.detach())

        return _Recorded(SimpleNamespace(replay=replay), kept, loss)

    monkeypatch.setattr(StepGraphs, "_record_now", record)
