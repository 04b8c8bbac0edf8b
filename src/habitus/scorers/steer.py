"""Steering: several countries' reward models mixed into one (papers: SCPO, use of the models).

`steer:BASE --countries Chile=0.7,Israel=0.3`, where BASE is a folder of `habitus train scpo` that
kept its models, or a folder with one model folder for each country. See `docs/steer.md`.

*scores* (default): r(x, y) = sum of w_c r_c(x, y). Models of one base that were trained with the
same loss score on one scale, so their raw scores are added: a model that sees no difference then
adds none, where z-scores would blow its noise up. Adapters share one base in memory.

*weights*: one model with the weights sum of w_c theta_c, an adapter being merged into the base
first. For adapters that is theta_base + sum of w_c delta_c, which has none of the cross terms that
mixing LoRA's factors has; the heads are mixed likewise. It costs one forward pass however many
countries there are.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from habitus.clients import hf
from habitus.errors import InputError, MissingExtraError, ModelError
from habitus.scorers import ScorerOptions
from habitus.scorers.adapters import RemoteScore, RewardModel
from habitus.scorers.base import refuse_options
from habitus.scorers.batching import BatchedScorer
from habitus.scorers.classifier import (
    ALLOWED,
    Opened,
    compiled,
    make_encoder,
    make_runner,
    model_parameters,
    open_checkpoint,
)
from habitus.scorers.runner import Batch
from habitus.scorers.steer_models import choose, find_models, parse_shares
from habitus.types import Parameter, ScorerSpec

if TYPE_CHECKING:
    import torch

WAYS = ("scores", "weights")
"""What may be mixed."""

OWN = ("countries", "steer_by")
"""Options of steering alone."""

REFUSED = ("revision", "allow_new_head")
"""Options of classifiers that make no sense for several local models."""


class SteeredScorer(BatchedScorer):
    """A mixture of countries' reward models: judges items and scores conversations."""


@dataclass(frozen=True)
class Mixture:
    """Loaded models and how they are mixed."""

    opened: Opened
    """The first model, with tokenizer and placement, which all share."""
    rewards: Callable[[Batch], torch.Tensor]
    """The mixture's reward of each row."""
    models: tuple[Any, ...]
    """The transformers models in memory."""


def create(model: str, options: ScorerOptions) -> SteeredScorer:
    """Load a mixture of countries' reward models.

    Args:
        model: The folder; see `find_models`.
        options: The options of classifiers, `countries` and `steer_by`.

    Raises:
        InputError: When an option is wrong, a country is not known, or the models do not go
            together.
        ModelError: When a model cannot be loaded.
        MissingExtraError: When torch, transformers or PEFT is not installed.
    """
    if not model:
        raise InputError("steer: which models? write steer:FOLDER, a folder of habitus train scpo")
    refuse_options("steer", options, {*ALLOWED, *OWN} - {*REFUSED})
    way = options.steer_by or WAYS[0]
    if way not in WAYS:
        raise InputError(f"--steer-by {way}: one of {', '.join(WAYS)}")
    shares = parse_shares(options.countries)
    hf.require("steering")
    base = Path(model).expanduser()
    chosen = choose(shares, find_models(base, options.say))
    named = ", ".join(f"{name} {share:.4g}" for name, (_, share) in chosen.items())
    options.say(f"steering by {way}: {named} (shares are normalised to sum 1)")
    plain = replace(options, countries=None, steer_by=None)
    checkpoints = {name: hf.locate(str(folder)) for name, (folder, _) in chosen.items()}
    _check(checkpoints)
    parts = [share for _, share in chosen.values()]
    load = _mix_scores if way == "scores" else _mix_weights
    mixture = load(list(checkpoints.values()), parts, plain)
    return _scorer(
        base, named, way, checkpoints, dict(zip(chosen, parts, strict=True)), mixture, plain
    )


def _scorer(
    base: Path,
    named: str,
    way: str,
    checkpoints: Mapping[str, hf.Checkpoint],
    shares: Mapping[str, float],
    mixture: Mixture,
    options: ScorerOptions,
) -> SteeredScorer:
    opened, loaded = mixture.opened, mixture.opened.model
    encoder = make_encoder(opened, options)
    runner = make_runner(opened, mixture.rewards, options.batch_tokens, options.say)
    about: dict[str, Parameter] = {"mode": named, "steer_by": way, "adapter": loaded.adapter}
    for name, checkpoint in checkpoints.items():
        about[f"share of {name}"] = shares[name]
        about[f"model of {name}"] = checkpoint.revision
    about |= loaded.parameters | encoder.parameters
    about |= model_parameters(loaded.model, opened.placement, bool(options.trust_remote_code))
    about |= compiled(options, runner, mixture.models)
    spec = ScorerSpec(kind="steer", model=base.resolve().name, parameters=about)
    return SteeredScorer(spec, encoder, runner, options.say)


def _check(checkpoints: Mapping[str, hf.Checkpoint]) -> None:
    """Refuse models that do not share a base: their scores and weights mean different things.

    Raises:
        InputError: Naming two countries whose models differ in kind, base or tokenizer.
    """
    (first, one), *rest = checkpoints.items()
    for name, other in rest:
        if (one.adapter is None) != (other.adapter is None):
            problem = "one is an adapter, the other is not"
        elif one.adapter is not None and one.folder != other.folder:
            problem = "they are adapters of different bases"
        elif _shape(one) != _shape(other):
            problem = "their architectures differ"
        elif _tokens(one) != _tokens(other):
            problem = "their tokenizers differ"
        else:
            continue
        raise InputError(f"the models of {first} and {name} do not mix: {problem}")


def _shape(checkpoint: hf.Checkpoint) -> tuple[Any, ...]:
    keys = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")
    return tuple(checkpoint.config.get(key) for key in keys)


def _tokens(checkpoint: hf.Checkpoint) -> str:
    """Return a digest of what makes token ids."""
    sha = hashlib.sha256()
    for name in ("tokenizer.json", "tokenizer.model", "chat_template.jinja"):
        path = checkpoint.tokenizer_folder / name
        sha.update(path.read_bytes() if path.is_file() else b"-")
    return sha.hexdigest()


def _open(checkpoint: hf.Checkpoint, options: ScorerOptions) -> Opened:
    opened = open_checkpoint(checkpoint.name, options)
    if isinstance(opened.model, RemoteScore):
        raise InputError(f"{checkpoint.name} scores with code of its own and cannot be steered")
    return opened


def _open_base(checkpoints: Sequence[hf.Checkpoint], options: ScorerOptions) -> Opened:
    """Load the base of adapters, with the adapters' own tokenizer."""
    base = hf.locate(str(checkpoints[0].folder))
    try:
        opened = _open(base, options)
    except ModelError as error:
        raise ModelError(f"the base of {checkpoints[0].name}: {error}") from error
    return replace(opened, tokenizer=hf.load_tokenizer(checkpoints[0]))


def _mix_scores(
    checkpoints: Sequence[hf.Checkpoint], shares: Sequence[float], options: ScorerOptions
) -> Mixture:
    """Load the models, adapters onto one base, and add their scores."""
    if checkpoints[0].adapter is None:
        opened = [_open(checkpoint, options) for checkpoint in checkpoints]
        loaded = [each.model for each in opened]

        def rewards(batch: Batch) -> torch.Tensor:
            return _sum(shares, [each.rewards(batch) for each in loaded])

        return Mixture(opened[0], rewards, tuple(each.model for each in loaded))
    base = _open_base(checkpoints, options)
    names = [f"country_{number}" for number in range(len(checkpoints))]
    # PEFT puts its layers into the base itself, so the base's own way of reading a reward holds.
    switch = _with_adapters(base.model.model, checkpoints, names)

    def by_adapter(batch: Batch) -> torch.Tensor:
        found = []
        for name in names:
            switch.set_adapter(name)
            found.append(base.model.rewards(batch))
        return _sum(shares, found)

    return Mixture(base, by_adapter, (base.model.model,))


def _sum(shares: Sequence[float], rewards: Sequence[torch.Tensor]) -> torch.Tensor:
    total = shares[0] * rewards[0]
    for share, each in zip(shares[1:], rewards[1:], strict=True):
        total = total + share * each
    return total


def _mix_weights(
    checkpoints: Sequence[hf.Checkpoint], shares: Sequence[float], options: ScorerOptions
) -> Mixture:
    """Mix weights into one model, in float32, whatever it then runs in."""
    exact = replace(options, dtype="float32")
    adapters = checkpoints[0].adapter is not None
    opened = _open_base(checkpoints, exact) if adapters else _open(checkpoints[0], exact)
    placement = hf.place(options.device, options.dtype, options.threads)
    total: dict[str, torch.Tensor] = {}
    for checkpoint, share in zip(checkpoints, shares, strict=True):
        _add(total, _weights(opened, checkpoint, exact), share)
    model = opened.model.model
    model.load_state_dict(total)
    _lower(opened.model, placement, total)
    return Mixture(replace(opened, placement=placement), opened.model.rewards, (model,))


def _weights(
    opened: Opened, checkpoint: hf.Checkpoint, options: ScorerOptions
) -> dict[str, torch.Tensor]:
    """Return a model's weights, an adapter's merged into a copy of the base."""
    if checkpoint.adapter is not None:
        model = _with_adapters(copy.deepcopy(opened.model.model), [checkpoint], ["country"])
        found: dict[str, torch.Tensor] = model.merge_and_unload().state_dict()
        return found
    if checkpoint.name == opened.checkpoint.name:
        own: dict[str, torch.Tensor] = opened.model.model.state_dict()
        return own
    other: dict[str, torch.Tensor] = _open(checkpoint, options).model.model.state_dict()
    return other


def _add(total: dict[str, torch.Tensor], weights: Mapping[str, torch.Tensor], share: float) -> None:
    """Add a model's weights times its share; what is no number with a point is the first's."""
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            total.setdefault(name, tensor.clone())
        elif name in total:
            total[name] += share * tensor.to(total[name].device)
        else:
            total[name] = share * tensor


def _lower(loaded: RewardModel, placement: hf.Placement, total: Mapping[str, torch.Tensor]) -> None:
    """Put the body into the number format asked for; heads stay in float32."""
    import torch

    model = loaded.model
    if placement.dtype is torch.float32:
        return
    model.to(placement.dtype)
    for name, head in getattr(loaded, "heads", {}).items():
        head.float()
        own = {key: total[f"{name}.{key}"] for key in head.state_dict()}
        head.load_state_dict(own)


def _with_adapters(model: Any, checkpoints: Sequence[hf.Checkpoint], names: Sequence[str]) -> Any:
    """Put adapters into a model, in place, and return PEFT's view of it.

    Raises:
        MissingExtraError: When PEFT is not installed.
        ModelError: When an adapter does not fit.
    """
    try:
        peft: Any = importlib.import_module("peft")
    except ImportError as error:
        raise MissingExtraError("a PEFT adapter", "hf") from error
    with hf.peft_warnings(), hf.quiet():
        wrapped: Any = None
        for checkpoint, name in zip(checkpoints, names, strict=True):
            with hf.as_model_error(checkpoint.name, "adapter"):
                folder = str(checkpoint.adapter)
                if wrapped is None:
                    wrapped = peft.PeftModel.from_pretrained(model, folder, adapter_name=name)
                else:
                    wrapped.load_adapter(folder, adapter_name=name)
    return wrapped.eval()
