"""Training steps recorded as CUDA graphs: the same gradients, and no harm where that fails."""

import pytest

pytest.importorskip("torch")

import torch

from habitus.train.graphs import EAGER, StepGraphs
from tests.fake_graphs import fake_graphs


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
    fake_graphs(monkeypatch, recorded)
    graphs = StepGraphs(model.parameters(), pytest.fail)
    for width in (5, 4, 8, 5, 4, 8, 5):
        for _ in range(EAGER + 1):
            graphs.run(batch(0, "cpu", width), loss_of(model), "")
    assert [shape[1] for shape, _ in recorded] == [5, 4, 8, 5, 4]
    pools = [pool for _, pool in recorded]
    assert pools[0] is pools[2] is None  # memory of its own
    assert pools[1] is not pools[3] is pools[4] is not None
    graphs.forget()
    assert not graphs.used


def test_what_a_shape_takes_can_be_told(monkeypatch):
    model, recorded = make_model("cpu"), []
    fake_graphs(monkeypatch, recorded)
    graphs = StepGraphs(model.parameters(), pytest.fail)
    for width, size in ((5, 10), (4, 20)):
        for _ in range(EAGER + 1):
            graphs.run(batch(0, "cpu", width), loss_of(model), "", size)
    assert [pool for _, pool in recorded] == [None, None]  # the second takes more


def gradients_of(model):
    return [None if each.grad is None else each.grad.clone() for each in model.parameters()]


def step_beside(model, lines, monkeypatch, recorded, width=8):
    """Record a shape, replay it, and return graphs in whose gradients there is half a step."""
    fake_graphs(monkeypatch, recorded)
    graphs, compute = StepGraphs(model.parameters(), lines.append), loss_of(model)
    for _ in range(EAGER + 1):
        model.zero_grad()
        graphs.run(batch(0, "cpu", width), compute, "")
    assert graphs.used
    return graphs, compute


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_where_memory_runs_out_beside_recorded_steps_they_give_way(monkeypatch, first, error):
    model, other, lines, recorded = make_model("cpu"), make_model("cpu"), [], []
    graphs, compute = step_beside(model, lines, monkeypatch, recorded)
    if first:  # of its step: there are no gradients before
        model.zero_grad()
    else:
        loss_of(other)(batch(0, "cpu", 8)).backward()
    tries = []

    def both_passes():
        tries.append(graphs.used)
        loss = compute(batch(1, "cpu", 9))
        loss.backward()
        if graphs.used:  # the gradients are in already
            raise error
        return loss.item()

    wanted = loss_of(other)(batch(1, "cpu", 9))
    wanted.backward()
    assert graphs.unrecorded(both_passes) == pytest.approx(wanted.item())
    assert tries == [True, False]
    for found, each in zip(gradients_of(model), gradients_of(other), strict=True):
        torch.testing.assert_close(found, each)
    assert not graphs.failed
    assert len(lines) == 1
    assert lines[0].startswith("memory ran out")
    for width in (8, 5, 3):
        for _ in range(EAGER + 1):
            graphs.run(batch(0, "cpu", width), compute, "")
    assert [shape[1] for shape, _ in recorded] == [8, 3]  # half of what there was, and no more


def test_where_there_is_no_room_for_a_copy_of_the_gradients_they_give_way_too(monkeypatch):
    model, lines = make_model("cpu"), []
    graphs, _ = step_beside(model, lines, monkeypatch, [])
    before, tries, clone = gradients_of(model), [], torch.Tensor.clone

    def full(tensor, *args, **kwargs):
        if graphs.used:
            raise torch.OutOfMemoryError("no memory")
        return clone(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "clone", full)
    graphs.unrecorded(lambda: tries.append(graphs.used))
    assert tries == [False]
    assert len(lines) == 1
    for found, each in zip(gradients_of(model), before, strict=True):
        torch.testing.assert_close(found, each)


def test_other_errors_are_not_tried_again(monkeypatch):
    graphs, _ = step_beside(make_model("cpu"), [], monkeypatch, [])

    def fail():
        raise RuntimeError("of another kind")

    with pytest.raises(RuntimeError, match="of another kind"):
        graphs.unrecorded(fail)
    assert graphs.used


def test_where_memory_runs_out_in_a_recording_smaller_ones_are_recorded(monkeypatch):
    model, lines, recorded = make_model("cpu"), [], []
    fake_graphs(monkeypatch, recorded, full=lambda shape: shape[1] > 4)
    graphs, compute = StepGraphs(model.parameters(), lines.append), loss_of(model)
    for width in (9, 9, 6, 4):
        for _ in range(EAGER + 1):
            graphs.run(batch(0, "cpu", width), compute, "")
    assert [shape[1] for shape, _ in recorded] == [4]
    assert not graphs.failed
    assert len(lines) == 1


def test_without_recorded_steps_no_memory_is_no_memory():
    graphs = StepGraphs(make_model("cpu").parameters(), pytest.fail)

    def both_passes():
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        graphs.unrecorded(both_passes)


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of NVIDIA's")
@pytest.mark.parametrize("widths", [(60, 58) * 3, (60, 60, 60, 58)], ids=["recording", "pass"])
def test_on_a_gpu_recorded_steps_give_way_where_memory_runs_out(widths):
    """There is room for a pass and a half: for none beside a recorded one, and for no recording."""
    torch.manual_seed(0)
    model, lines = torch.nn.Sequential(torch.nn.Embedding(50, 512), torch.nn.Linear(512, 1)), []
    model.cuda()
    graphs, compute = StepGraphs(model.parameters(), lines.append), loss_of(model)

    def wide(seed, width):
        inputs = batch(seed, "cuda", width)
        return inputs | {"ids": inputs["ids"].repeat(1, 1000)}

    def step(seed, width):
        model.zero_grad()
        inputs = wide(seed, width)

        def both_passes():
            loss = compute(inputs)
            loss.backward()
            return loss.detach()

        loss = graphs.run(inputs, compute, "")
        return (graphs.unrecorded(both_passes) if loss is None else loss).item()

    wanted = [step(seed, 60) for seed in (0, 1)]  # eager, and what each keeps is made
    gradients = gradients_of(model)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    step(1, 58)
    taken = torch.cuda.max_memory_reserved() - before
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction((before + 1.5 * taken) / total)
        for width in widths:
            step(0, width)
        assert [line.partition(":")[0] for line in lines] == ["memory ran out"]
        assert not graphs.failed
        assert [step(seed, 60) for seed in (0, 1)] == pytest.approx(wanted, rel=1e-4)
        for found, each in zip(gradients_of(model), gradients, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-3, atol=1e-5)
        for _ in range(EAGER + 1):
            step(0, 12)
        assert graphs.used
        assert torch.rand(3, device="cuda").isfinite().all()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
