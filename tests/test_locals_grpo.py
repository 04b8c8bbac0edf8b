"""What Think-as-Locals takes from the insides of TRL's GRPOTrainer is still there."""

import inspect

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from habitus.clients import hf  # noqa: E402
from habitus.train.locals import _grpo  # noqa: E402
from habitus.train.locals.model import ModelOptions, Policy  # noqa: E402
from habitus.train.locals.prompting import Prompting, all_views  # noqa: E402
from habitus.train.locals.trainer import arguments  # noqa: E402
from tests.locals_samples import small_plan, tiny_judge  # noqa: E402
from tests.training import make_pairs  # noqa: E402


def source_of(name):
    return inspect.getsource(getattr(trl.GRPOTrainer, name))


def test_trl_is_of_the_minor_version_that_was_read():
    assert trl.__version__.startswith("1.16.")


def test_prompts_are_made_token_ids_in_one_place():
    assert list(inspect.signature(trl.GRPOTrainer._tokenize_prompts).parameters) == [
        "self",
        "prompts",
    ]
    assert "self._tokenize_prompts(prompts)" in source_of("_generate")
    assert "self._generate_single_turn(" in source_of("_generate")


def test_the_reference_is_asked_where_ours_is_put():
    source = source_of("_generate_and_score_completions")
    assert "if self.beta != 0.0:" in source
    assert "if self.ref_model is not None:" in source
    assert 'adapter_name="ref" if "ref" in model.peft_config else None' in source
    assert "self.beta * per_token_kl" in source_of("_compute_loss")


def test_what_the_curve_reads_is_logged():
    source = source_of("_compute_loss")
    for name in ('["kl"]', '["entropy"]', '["clip_ratio/region_mean"]'):
        assert name in source


def make_trainer(folder, reward, kind=_grpo.IdsGRPOTrainer, write=None, **fields):
    from datasets import Dataset

    plan = small_plan(tiny_judge(folder / "model"), folder / "out", **fields)
    policy = Policy(plan.model, plan.load, folder / "base")
    policy.start(0)
    prompting = Prompting(translated=False, max_tokens=12, seed=0)
    views = all_views(make_pairs(4, ("Chile",)), 0)
    requests = [prompting.criteria_request(view) for view in views]
    ids = dict(zip([v.key for v in views], policy.encoder.encode(requests), strict=True))
    trainer = kind(
        model=policy.trained,
        reward_funcs=reward,
        args=arguments(policy, plan),
        train_dataset=Dataset.from_dict({"prompt": list(ids)}),
        processing_class=policy.tokenizer,
        prompt_ids=ids,
        beta=plan.grpo.beta,
        write=write,
    )
    return trainer, ids, plan


def test_the_papers_loss_is_what_trl_is_told(tmp_path):
    trainer, _, _ = make_trainer(tmp_path, lambda prompts, **rest: [0.0] * len(prompts))
    args = trainer.args
    assert (trainer.beta, args.loss_type, args.scale_rewards) == (0.04, "grpo", "group")
    assert (args.epsilon, args.use_bias_correction_kl) == (0.2, False)
    assert (trainer.temperature, trainer.top_p, trainer.top_k) == (1.0, 1.0, 0)
    assert args.disable_dropout


@pytest.mark.slow
def test_both_orders_of_a_pair_are_in_one_batch_and_ids_are_ours(tmp_path):
    seen = []

    def reward(prompts, completion_ids, **rest):
        seen.append(prompts)
        return [float(len(ids)) for ids in completion_ids]

    trainer, ids, plan = make_trainer(tmp_path, reward)
    read = []
    generate = trainer._generate_single_turn
    trainer._generate_single_turn = lambda prompt_ids, *rest, **more: (
        read.append(prompt_ids) or generate(prompt_ids, *rest, **more)
    )
    with hf.quiet(), hf.peft_warnings():
        trainer.train()
    names = list(ids)
    group = plan.grpo.group
    for step, prompts in enumerate(seen):
        expected = names[4 * step : 4 * step + 4]
        assert prompts == [name for name in expected for _ in range(group)]
        assert read[step] == [ids[name] for name in prompts]


def test_a_writer_stands_in_for_generate(tmp_path):
    wrote, seen = [], []

    def write(prompts, pick, budget):
        logits = torch.tensor([[0.0, 80.0, 0.0], [0.0, 0.0, 80.0]])
        assert pick(0, logits).tolist() == [1, 2]
        wrote.append((prompts, budget))
        return [[5, 6, number] for number, _ in enumerate(prompts)]

    def reward(prompts, completion_ids, **rest):
        seen.append((prompts, completion_ids))
        return [float(ids[-1]) for ids in completion_ids]

    trainer, ids, _ = make_trainer(tmp_path, reward, write=write)
    with hf.quiet(), hf.peft_warnings():
        trainer.train()
    assert len(wrote) == len(seen) == 2
    for (prompts, budget), (names, written) in zip(wrote, seen, strict=True):
        assert prompts == [ids[name] for name in names]
        assert written == [[5, 6, number] for number in range(len(names))]
        assert budget == 12


def test_the_reference_of_full_training_is_a_copy(tmp_path):
    def reward(prompts, **rest):
        return [0.0] * len(prompts)

    load = ModelOptions(device="cpu", lora=None, threads=1)
    trainer, _, _ = make_trainer(tmp_path, reward, load=load)
    assert trainer.args.beta == 0.0
    assert trainer.beta == 0.04
    with trainer.as_reference() as reference:
        assert reference is not trainer.model
        assert not any(parameter.requires_grad for parameter in reference.parameters())


# What trained policies take from it


def test_an_answer_without_a_reward_is_left_out_of_its_group(tmp_path):
    rewards = iter([1.0, 3.0, None, 2.0, None, None, None, None, 5.0, 5.0, 5.0, 5.0])

    def reward(prompts, **rest):
        return [next(rewards, 0.0) for _ in prompts]

    trainer, ids, _ = make_trainer(tmp_path, reward, _grpo.MeasuredGRPOTrainer)
    trainer.args.per_device_train_batch_size = 4
    names = [name for name in list(ids)[:3] for _ in range(4)]
    with hf.quiet(), hf.peft_warnings(), _grpo.quiet_failures():
        found = trainer._generate_and_score_completions([{"prompt": name} for name in names])
    one = 1 / (1.0 + 1e-4)  # of 1, 3 and 2: mean 2, standard deviation 1
    expected = [-one, one, 0.0, 0.0, *[0.0] * 8]  # a whole group without, and an even one
    assert found["advantages"].tolist() == pytest.approx(expected, abs=1e-5)


def test_the_distance_of_an_answer_by_hand(tmp_path):
    import torch

    trainer, ids, _ = make_trainer(
        tmp_path, lambda prompts, **rest: [0.0] * len(prompts), _grpo.MeasuredGRPOTrainer
    )
    with hf.quiet(), hf.peft_warnings():
        found = trainer._generate_and_score_completions([{"prompt": next(iter(ids))}] * 4)
        shift = torch.zeros_like(found["ref_per_token_logps"])
        shift[0, :2] = -0.5  # the reference is less sure of two tokens of one answer
        found["ref_per_token_logps"] += shift
        trainer._metrics["train"].clear()
        trainer.current_gradient_accumulation_steps = 1
        trainer._compute_loss(trainer.model, found)
    one = 2.718281828**-0.5 + 0.5 - 1
    assert trainer._metrics["train"]["kl_answer"] == [pytest.approx(2 * one / 4, abs=1e-5)]
    tokens = float(found["completion_mask"].sum())
    assert trainer._metrics["train"]["kl"] == [pytest.approx(2 * one / tokens, abs=1e-5)]


def test_where_the_distance_is_taken_from_is_still_there():
    loss = source_of("_compute_loss")
    assert 'inputs["completion_mask"]' in loss
    assert "self._get_per_token_logps_and_entropies(" in loss
    assert "advantages = torch.nan_to_num(advantages, nan=0.0)" in source_of(
        "_generate_and_score_completions"
    )
    assert trl.trainer.grpo_trainer.logger.logger.name == "trl.trainer.grpo_trainer"
