"""Supervised steps recorded as CUDA graphs, and frozen weights in half the memory."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from habitus.train.graphs import EAGER, StepGraphs  # noqa: E402
from habitus.train.locals._supervised import (  # noqa: E402
    ExampleTrainer,
    collate,
    taken,
    whole_mask,
)
from habitus.train.locals.model import Policy  # noqa: E402
from habitus.train.locals.prompting import Prompting, all_views  # noqa: E402
from habitus.train.locals.run import train_locals  # noqa: E402
from habitus.train.locals.scoring import VerdictScorer  # noqa: E402
from habitus.train.locals.supervised import SupervisedSettings, learn, make_examples  # noqa: E402
from habitus.train.locals.warmup import Sampled  # noqa: E402
from tests.conftest import read_jsonl  # noqa: E402
from tests.fake_graphs import fake_graphs  # noqa: E402
from tests.locals_samples import CPU, TEXT, small_plan, tiny_judge  # noqa: E402
from tests.training import make_pairs  # noqa: E402

SETTINGS = SupervisedSettings(steps=6, batch_size=4, micro_batch=2, lr=1e-2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_judge(tmp_path_factory.mktemp("model") / "judge")


class Eager:
    """What a recording would do, kernel by kernel."""

    def __init__(self):
        self.calls, self.replayed = 0, 0

    def run(self, inputs, compute, key, size):
        assert size > 0
        self.calls += 1
        if self.calls <= EAGER:
            return None
        self.replayed += 1
        loss = compute(inputs)
        loss.backward()
        return loss.detach()

    def unrecorded(self, compute):
        return compute()

    def forget(self):
        self.forgotten = True


def train(model, folder, monkeypatch, graphs, options=CPU):
    """Train on both kinds of examples with such graphs; return the adapter and the losses."""
    policy = Policy(str(model), options, folder / "base")
    policy.start(0)
    prompting = Prompting(translated=False, max_tokens=40, seed=0)
    every = all_views(make_pairs(8, ("Chile",)), 0)
    kept = [Sampled(view.item.id, view.key, TEXT, 1.0) for view in every]
    examples = make_examples(policy, prompting, every, kept, SETTINGS, 0)
    monkeypatch.setattr(Policy, "graphs", graphs)
    learn(policy, examples, folder, SETTINGS, 0)
    weights = {n: w.detach().clone() for n, w in policy.trained.named_parameters() if "lora" in n}
    return weights, [line["loss"] for line in read_jsonl(folder / "curve.jsonl")]


@pytest.mark.slow
def test_recorded_steps_learn_what_the_others_learn(model, tmp_path, monkeypatch):
    graphs = Eager()
    plain, losses = train(model, tmp_path / "plain", monkeypatch, lambda policy: None)
    found, recorded = train(model, tmp_path / "recorded", monkeypatch, lambda policy: graphs)
    assert graphs.replayed == 2 * SETTINGS.steps - EAGER
    assert graphs.forgotten
    assert recorded == pytest.approx(losses, rel=1e-4)
    assert any(weight.abs().max() > 0.01 for name, weight in plain.items() if "lora_B" in name)
    for name, weight in plain.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_steps_in_which_memory_runs_out_learn_what_the_others_learn(model, tmp_path, monkeypatch):
    """It is late in a backward pass, and the recorded steps give way."""
    plain, losses = train(model, tmp_path / "plain", monkeypatch, lambda policy: None)
    lines, replayed, failed, hooks = [], [], [], []
    own, run = ExampleTrainer.compute_loss, StepGraphs.run

    def noted(graphs, *args):
        if any(replayed) and not failed:
            failed.append(True)  # as if the shape had not come before
            return None
        loss = run(graphs, *args)
        replayed.append(loss is not None)
        return loss

    def loss_of(trainer, *args, **kwargs):
        if failed and not lines:
            weights = [each for each in trainer.model.parameters() if each.requires_grad]
            hooks.append(weights[0].register_hook(no_memory))  # its gradient comes late
        return own(trainer, *args, **kwargs)

    def no_memory(gradient):
        hooks.pop().remove()
        raise torch.OutOfMemoryError("no memory")

    fake_graphs(monkeypatch)
    monkeypatch.setattr(StepGraphs, "run", noted)
    monkeypatch.setattr(ExampleTrainer, "compute_loss", loss_of)
    found, rescued = train(
        model,
        tmp_path / "rescued",
        monkeypatch,
        lambda policy: StepGraphs(policy.trained.parameters(), lines.append),
    )
    assert [line.partition(":")[0] for line in lines] == ["memory ran out"]
    assert rescued == pytest.approx(losses, rel=1e-4)
    for name, weight in plain.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-2, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of NVIDIA's")
def test_steps_recorded_on_a_gpu_learn_what_the_others_learn(model, tmp_path, monkeypatch):
    options = replace(CPU, device="cuda", precision="fp32", say=pytest.fail)
    used, own, forget = [], Policy.graphs, StepGraphs.forget

    def noted(graphs):
        used.append(graphs.used)
        forget(graphs)

    monkeypatch.setattr(StepGraphs, "forget", noted)
    plain, losses = train(model, tmp_path / "plain", monkeypatch, lambda policy: None, options)
    found, recorded = train(model, tmp_path / "recorded", monkeypatch, own, options)
    assert used == [True]
    assert recorded == pytest.approx(losses, rel=1e-3)
    for name, weight in plain.items():
        torch.testing.assert_close(found[name], weight, rtol=5e-2, atol=1e-3)


def test_a_token_looks_at_real_ones_up_to_itself():
    found = whole_mask(torch.tensor([[0, 1, 1]]))[0, 0].int().tolist()
    assert found == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize(("answer", "width"), [(1, 1), (2, 32), (32, 32)])
def test_widths_of_recorded_steps_are_few(answer, width):
    examples = [
        {"prompt": [5] * 65, "answer": [7] * answer, "verdict": 0},
        {"prompt": [5], "answer": [7], "verdict": 0},
    ]
    found = collate(examples, rounded=True)
    assert found["input_ids"].shape == (2, 128)
    assert found["labels"].shape == (2, width)
    assert found["attention_mask"].sum(1).tolist() == [65 + answer, 2]
    assert found["position_ids"].max() == 64 + answer


def test_a_verdict_counts_as_much_after_criteria_as_without():
    found = collate(
        [
            {"prompt": [5], "answer": [7, 7, 8, 7, 7], "verdict": 2},
            {"prompt": [5], "answer": [8], "verdict": 0},
        ]
    )
    assert found["weights"].tolist() == [[0.25, 0.25, 1.0, 0.25, 0.25], [1.0, 0, 0, 0, 0]]


# Frozen weights


@pytest.fixture(scope="module")
def exact(model, tmp_path_factory):
    """The judge with weights that bfloat16 holds exactly, as published models have them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("exact") / "judge"
    judge = AutoModelForCausalLM.from_pretrained(model)
    judge.bfloat16().float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def passes(policy):
    """Logits and gradients of a made-up adapter."""
    policy.start(0)
    torch.manual_seed(1)
    adapter = [each for each in policy.trained.parameters() if each.requires_grad]
    for weight in adapter:
        weight.data.normal_(std=0.05)
    with policy.autocast():
        found = policy.trained(input_ids=torch.arange(5, 45).reshape(2, 20))
    found.logits.float().square().mean().backward()
    return found.logits, [weight.grad for weight in adapter]


def test_frozen_weights_are_held_as_bfloat16_without_a_difference(exact, tmp_path, monkeypatch):
    options = replace(CPU, precision="bf16")
    half, whole = (Policy(str(exact), options, tmp_path / "base") for _ in range(2))
    logits, gradients = passes(half)
    monkeypatch.setattr(Policy, "_halve", lambda self: None)
    expected, wanted = passes(whole)
    layer = half.model.model.layers[0].mlp.up_proj
    assert layer.base_layer.weight.dtype == torch.bfloat16
    assert layer.lora_A["default"].weight.dtype == torch.float32
    assert half.model.lm_head.weight.dtype == torch.float32
    assert torch.equal(logits, expected)
    assert all(torch.equal(a, b) for a, b in zip(gradients, wanted, strict=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_that_would_lose_something_stay(precision, model, tmp_path):
    policy = Policy(str(model), replace(CPU, precision=precision), tmp_path / "base")
    policy.start(0)
    assert {each.dtype for each in policy.model.parameters()} == {torch.float32}


@pytest.mark.slow
def test_reinforcement_in_bfloat16_writes_with_the_library_too(exact, tmp_path):
    load = replace(CPU, precision="bf16")
    record = train_locals(small_plan(exact, tmp_path / "run", load=load))
    assert record["done"]
    lines = read_jsonl(tmp_path / "run" / "curve.jsonl")
    assert [line["completions"] for line in lines] == [16, 16]


def test_letters_do_not_tie_under_autocast(exact, tmp_path):
    """Logits of bfloat16 are an eighth apart where they are large."""
    policy = Policy(str(exact), replace(CPU, precision="bf16"), tmp_path / "base")
    policy.model.get_output_embeddings().weight.data *= 8
    policy.start(0)
    prompting = Prompting(translated=False, max_tokens=12, seed=0)
    requests = [prompting.plain_request(view) for view in all_views(make_pairs(8, ("Chile",)), 0)]
    replies = policy.engine().execute(requests)
    logits = [value for reply in replies for value in reply.logprobs]
    margins = [a - b for a, b in zip(logits[::2], logits[1::2], strict=True)]
    assert any(abs(128 * margin - round(128 * margin)) > 0.05 for margin in margins)
    direct = VerdictScorer(policy.model, policy.encoder, autocast=policy.autocast)
    found = [value for pair in direct.logprobs(requests) for value in pair]
    expected = [a - b for a, b in zip(found[::2], found[1::2], strict=True)]
    assert margins == pytest.approx(expected, abs=2e-2)


def test_weights_that_an_adapter_is_merged_into_stay(exact, tmp_path):
    policy = Policy(str(exact), replace(CPU, precision="bf16"), tmp_path / "base")
    policy.start(0, merged=True)
    assert {each.dtype for each in policy.model.parameters()} == {torch.float32}


def test_answers_weigh_in_what_a_batch_takes(model, tmp_path):
    policy = Policy(str(model), CPU, tmp_path / "base")
    policy.start(0)

    def batch(before, after):
        example = {"prompt": [1] * before, "answer": [1] * after, "verdict": 0}
        return collate([example] * 2, rounded=True)

    wide, answers = batch(300, 1), batch(100, 80)
    assert answers["input_ids"].numel() < wide["input_ids"].numel()
    assert taken(policy.trained, answers) > taken(policy.trained, wide)
