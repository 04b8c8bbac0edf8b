"""Training steps recorded as CUDA graphs: the same gradients, and no harm where that fails."""

import pytest

pytest.importorskip("torch")

import torch

import habitus.train.graphs as graphs_module
from habitus.train.graphs import EAGER, StepGraphs


def make_model(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(50, 8), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ).to(device)


def loss_of(model):
    return lambda inputs: (model(inputs["ids"])[..., 0] * inputs["weight"][:, None]).square().sum()


def batch(seed, device, width=5):
    made = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (3, width), generator=made)
    return {"ids": ids.to(device), "weight": torch.rand(3, generator=made).to(device)}


@pytest.mark.skipif(torch.cuda.is_available(), reason="recording works here")
def test_where_recording_fails_the_gradients_stay_and_a_line_says_so():
    model, lines = make_model("cpu"), []
    graphs = StepGraphs(model.parameters(), lines.append)
    inputs, compute = batch(0, "cpu"), loss_of(model)
    assert [graphs.run(inputs, compute, "") for _ in range(EAGER)] == [None] * EAGER
    assert not lines
    compute(inputs).backward()
    before = [each.grad for each in model.parameters()]
    assert graphs.run(inputs, compute, "") is None
    assert [each.grad for each in model.parameters()] == before
    assert (graphs.failed, graphs.used) == (True, False)
    assert len(lines) == 1
    assert lines[0].endswith("going on without")
    assert graphs.run(inputs, compute, "") is None
    assert len(lines) == 1


def test_a_larger_shape_starts_over_so_that_memory_is_that_of_the_largest(monkeypatch):
    """What is recorded first makes the memory; a small shape's would stay beside a large one's."""
    model, recorded = make_model("cpu"), []

    class Graph:
        def replay(self):
            """Compute nothing."""

    def record(self, inputs, compute):
        recorded.append((inputs["ids"].shape[1], self._pool))
        self._pool = self._pool or object()
        self._used = list(model.parameters())
        self._gradients = [torch.zeros_like(each) for each in self._used]
        return graphs_module._Recorded(Graph(), dict(inputs), torch.zeros(()))

    monkeypatch.setattr(StepGraphs, "_record_now", record)
    graphs = StepGraphs(model.parameters(), pytest.fail)
    for width in (5, 4, 8, 5, 4, 8, 5):
        for _ in range(EAGER + 1):
            graphs.run(batch(0, "cpu", width), loss_of(model), "")
    assert [width for width, _ in recorded] == [5, 4, 8, 5, 4]
    pools = [pool for _, pool in recorded]
    assert pools[0] is pools[2] is None  # memory of its own
    assert pools[1] is not pools[3] is pools[4] is not None
    graphs.forget()
    assert not graphs.used


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of NVIDIA's")
def test_replayed_steps_give_the_gradients_of_eager_ones():
    model, eager = make_model("cuda"), make_model("cuda")
    graphs = StepGraphs(model.parameters(), pytest.fail)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each in (model, eager)]
    compute, expected = loss_of(model), loss_of(eager)
    replayed = 0
    for step in range(12):
        for each in (model, eager):
            each.zero_grad()
        for micro in range(2):  # two micro-batches of two shapes add up
            inputs = batch(10 * step + micro, "cuda", width=5 + micro)
            loss = graphs.run(inputs, compute, "")
            if loss is None:
                loss = compute(inputs)
                loss.backward()
            else:
                replayed += 1
            wanted = expected(inputs)
            wanted.backward()
            assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
            del loss  # while it lives, nodes of the usual stream do, and they cannot be recorded
        for one, other in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)
        for optimizer in optimizers:
            optimizer.step()
    assert replayed == 2 * (12 - EAGER)
