"""What Habitus relies on inside TRL and transformers' Trainer."""

import pytest

pytest.importorskip("trl")

from habitus.clients.encode import Encoded
from habitus.train import _trl
from habitus.train.base import LoadOptions, load_base
from habitus.train.fitting import Row, Settings, fit
from habitus.train.losses import weighted_loss
from tests.conftest import read_jsonl
from tests.tiny_models import make_classifier, torch


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return load_base(
        str(make_classifier(tmp_path_factory.mktemp("base"))), LoadOptions(device="cpu")
    )


def text(*ids):
    return Encoded(ids, length=len(ids))


ROWS = [
    Row(f"p{n}", text(1, 10 + n, 50, 60, *range(70, 70 + n)), text(1, 90 - n, 80), weight)
    for n, weight in enumerate([1.0, 0.5, 2.0, 0.25, 1.0, 0.125, 0.75, 3.0])
]


def test_the_collator_keeps_weights_and_pads_on_the_right():
    collator = _trl.WeightedCollator(pad_token_id=0)
    batch = collator([
        {"chosen_ids": [5, 6], "rejected_ids": [7], "weight": 0.5, "row": 3},
        {"chosen_ids": [8], "rejected_ids": [9, 9, 9], "weight": 2.0, "row": 4},
    ])  # fmt: skip
    assert batch["input_ids"].tolist() == [[5, 6, 0], [8, 0, 0], [7, 0, 0], [9, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 1]]
    assert batch["weight"].tolist() == [0.5, 2.0]
    assert batch["row"].tolist() == [3, 4]


def test_behaviour_21_a_pair_without_a_weight_is_an_error():
    collator = _trl.WeightedCollator(pad_token_id=0)
    with pytest.raises(ValueError, match="a pair in the batch has no weight"):
        collator([{"chosen_ids": [5], "rejected_ids": [7], "row": 3}])


def weights_after(base, rows, folder, **settings):
    chosen = Settings(**({"lr": 1e-2, "epochs": 1, "batch_size": 8} | settings))
    with fit(base, rows, folder, chosen, 0) as (model, _):
        found = {name: value.clone() for name, value in model.state_dict().items()}
    return found, read_jsonl(folder / "curve.jsonl")


@pytest.mark.slow
def test_behaviour_20_micro_batches_give_the_same_step(base, tmp_path):
    """Also where the last step is ragged: 7 pairs by threes are 3, 3 and 1."""
    whole, curve = weights_after(base, ROWS, tmp_path / "a")
    # AdamW's first step is lr * sign(gradient): its size is seen in the gradient's norm.
    for micro in (1, 2, 4):
        parts, other = weights_after(base, ROWS, tmp_path / f"m{micro}", micro_batch=micro)
        assert other[0]["loss"] == pytest.approx(curve[0]["loss"], abs=1e-5)
        assert other[0]["grad_norm"] == pytest.approx(curve[0]["grad_norm"], rel=1e-4)
        assert other[0]["mean_weight"] == pytest.approx(8.625 / 8)
        assert max((parts[name] - whole[name]).abs().max() for name in whole) < 1e-3
    ragged = {"batch_size": 9}
    _, curve = weights_after(base, ROWS[:7], tmp_path / "b", **ragged)
    _, other = weights_after(base, ROWS[:7], tmp_path / "c", micro_batch=3, **ragged)
    assert other[0]["loss"] == pytest.approx(curve[0]["loss"], abs=1e-5)
    assert other[0]["grad_norm"] == pytest.approx(curve[0]["grad_norm"], rel=1e-4)


def test_the_first_step_is_that_of_a_plain_loop(base, tmp_path):
    _, curve = weights_after(base, ROWS, tmp_path / "a")
    with base.fresh(lora=None, seed=0) as model:
        rewards = [
            [model(torch.tensor([list(each.ids)])).logits[0, 0] for each in (row.chosen, row.rejected)]
            for row in ROWS
        ]  # fmt: skip
        chosen, rejected = torch.tensor(0), torch.tensor(0)
        chosen, rejected = (torch.stack([pair[at] for pair in rewards]) for at in (0, 1))
        loss = weighted_loss(chosen, rejected, torch.tensor([row.weight for row in ROWS]))
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert curve[0]["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert curve[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_equal_rewards_cost_log_2_and_large_ones_stay_numbers():
    far = torch.tensor([-1000.0, 1000.0], requires_grad=True)
    loss = weighted_loss(far, torch.zeros(2), torch.ones(2))
    loss.backward()
    assert loss.item() == pytest.approx(500.0)  # (1000 + 0) / 2
    assert torch.isfinite(far.grad).all()
    zero = weighted_loss(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.0]))
    assert zero.item() == pytest.approx(0.693147 / 2)  # by pairs, not by weights


def test_no_step_looks_for_the_parameters_again(base, tmp_path, monkeypatch):
    """With many layers that would take longer than a small model's passes."""
    walks = []
    members = torch.nn.Module._named_members
    monkeypatch.setattr(
        torch.nn.Module, "_named_members", lambda *a, **k: walks.append(1) or members(*a, **k)
    )
    found = []
    for epochs in (1, 3):
        walks.clear()
        _, curve = weights_after(base, ROWS, tmp_path / str(epochs), batch_size=4, epochs=epochs)
        assert len(curve) == 2 * epochs
        found.append(len(walks))
    assert found[0] == found[1]
    assert "zero_grad" not in vars(base.model)


@pytest.mark.parametrize("rank", [None, 2])
def test_all_of_the_model_is_in_training_mode_in_every_step(base, tmp_path, rank):
    """Also under an adapter, whose own switch is on before that of what it wraps."""
    modes = []
    watch = base.model.score.register_forward_pre_hook(
        lambda module, _: modes.append((module.training, base.model.model.training))
    )
    try:
        weights_after(base, ROWS, tmp_path, batch_size=4, lora=rank)
    finally:
        watch.remove()
    assert modes == [(True, True)] * 2


def test_gradients_do_not_outlive_their_step(base, tmp_path):
    """With the rate at nearly 0 the second step sees the same pairs and weights."""
    _, curve = weights_after(base, ROWS, tmp_path, epochs=2, lr=1e-12)
    assert curve[1]["grad_norm"] == pytest.approx(curve[0]["grad_norm"], rel=1e-4)


def test_autocast_leaves_weights_and_head_in_float32(tmp_path):
    folder = make_classifier(tmp_path / "base")
    rounded = load_base(str(folder), LoadOptions(device="cpu", precision="bf16"))
    with rounded.fresh(lora=None, seed=0) as model:
        assert {value.dtype for value in model.parameters()} == {torch.float32}
        with rounded.autocast():
            logits = model(torch.tensor([[1, 5, 6]]), use_cache=False).logits
        assert logits.dtype == torch.float32
    _, curve = weights_after(rounded, ROWS, tmp_path / "run")
    assert curve[0]["grad_norm"] > 0
