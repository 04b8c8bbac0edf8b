"""Classifier reward models: one number per response, read as the model's authors read it.

`classifier:ORG/NAME` or `classifier:FOLDER`. See `docs/classifiers.md` for what is decided for each
kind of model, and `habitus.scorers.adapters` for the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from habitus.clients import hf
from habitus.clients.chat_template import ChatTemplate, read_template
from habitus.clients.compiling import compile_layers
from habitus.clients.encode import ChatEncoder, Encoder, Length, PairEncoder, length_limit
from habitus.errors import InputError
from habitus.scorers import ScorerOptions
from habitus.scorers.adapters import Asked, RemoteScore, RewardModel, load_reward_model
from habitus.scorers.base import refuse_options
from habitus.scorers.batching import BatchedScorer, ConversationScorer, Scored
from habitus.scorers.runner import Batch, Runner
from habitus.types import Message, Parameter, ScorerSpec, Status

if TYPE_CHECKING:
    import torch

SHARED = (
    "context",
    "threads",
    "truncate",
    "dtype",
    "device",
    "batch_tokens",
    "compile",
    "template",
    "no_system",
    "revision",
    "trust_remote_code",
)
"""Options of all reward models that run on transformers."""

ALLOWED = (*SHARED, "label", "allow_new_head")
"""Options of classifiers."""

CHOICES = {"truncate": ("error", "left", "right"), "no_system": ("merge", "error")}
"""Values of the options that have few."""


class TextScorer(BatchedScorer):
    """A classifier that reads token ids: judges items and scores conversations."""


class RemoteScorer(ConversationScorer):
    """A classifier whose own code reads conversations, one at a time."""

    def __init__(self, spec: ScorerSpec, model: RemoteScore, tokenizer: Any) -> None:
        """Make a scorer of a loaded model."""
        self.spec = spec
        self._model = model
        self._tokenizer = tokenizer
        self.chunk_tokens = 4096

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> Any:
        """Leave conversations as they are."""
        return conversations

    def run(self, prepared: Sequence[Sequence[Message]]) -> list[Scored]:
        """Score conversations one after the other."""
        return [self._score(messages) for messages in prepared]

    def _score(self, messages: Sequence[Message]) -> Scored:
        import torch

        try:
            with torch.inference_mode():
                value = self._model.score(self._tokenizer, messages)
        except Exception as error:  # noqa: BLE001 - a bad conversation is data
            return Scored(None, Status.ERROR, f"{type(error).__name__}: {error}"[:300])
        if value != value or value in (float("inf"), float("-inf")):
            return Scored(None, Status.ERROR, f"the reward is not a finite number ({value})")
        return Scored(float(f"{value:.6g}"))


def create(model: str, options: ScorerOptions | None = None) -> ConversationScorer:
    """Load a classifier; its `score` takes conversations, its `judge` items.

    Args:
        model: A folder, or an id on the Hugging Face Hub.
        options: The options in `ALLOWED` apply.

    Raises:
        InputError: When an option is wrong or missing.
        ModelError: When the model cannot be had, or is not what it should be.
        MissingExtraError: When torch or transformers is not installed.
    """
    options = options or ScorerOptions()
    opened = open_checkpoint(model, options)
    loaded, tokenizer = opened.model, opened.tokenizer
    trust = bool(options.trust_remote_code)
    about: dict[str, Parameter] = {"adapter": loaded.adapter, **loaded.parameters}
    about |= model_parameters(loaded.model, opened.placement, trust)
    if isinstance(loaded, RemoteScore):
        refused = {"context", "truncate", "template", "no_system", "label", "batch_tokens"}
        refuse_options("remote-score", options, {*ALLOWED} - refused)
        remote = RemoteScorer(make_spec("classifier", opened.checkpoint, about), loaded, tokenizer)
        remote.weights = count_weights(loaded.model)
        return remote
    encoder = make_encoder(opened, options)
    about |= encoder.parameters
    runner = make_runner(opened, loaded.rewards, options.batch_tokens, options.say)
    about |= compiled(options, runner, [loaded.model])
    spec = make_spec("classifier", opened.checkpoint, about)
    scorer = TextScorer(spec, encoder, runner, options.say)
    scorer.weights = count_weights(loaded.model)
    return scorer


def count_weights(model: Any) -> int:
    """Return the number of a model's weights, those of its reward head among them."""
    return sum(weight.numel() for weight in model.parameters())


@dataclass(frozen=True)
class Opened:
    """A classifier in memory, with what is needed to make token ids for it."""

    checkpoint: hf.Checkpoint
    """The checkpoint."""
    placement: hf.Placement
    """Device and number format."""
    tokenizer: Any
    """Its tokenizer."""
    template: str | None
    """The user's chat template; None is the tokenizer's own."""
    model: RewardModel
    """The loaded model with its way of reading the reward."""


def open_checkpoint(model: str, options: ScorerOptions) -> Opened:
    """Load a classifier, for scoring or for training.

    Args:
        model: A folder, or an id on the Hugging Face Hub.
        options: The options in `ALLOWED` apply.

    Raises:
        InputError: When an option is wrong or missing.
        ModelError: When the model cannot be had, or is not what it should be.
        MissingExtraError: When torch or transformers is not installed.
    """
    check_options("classifier", model, options, ALLOWED)
    hf.require("a classifier reward model")
    trust = bool(options.trust_remote_code)
    checkpoint = hf.locate(model, options.revision, options.say)
    placement = hf.place(options.device, options.dtype, options.threads)
    tokenizer = hf.load_tokenizer(checkpoint, trust_remote_code=trust)
    template = read_template(options.template) if options.template else None
    asked = Asked(
        checkpoint,
        placement,
        label=options.label,
        allow_new_head=bool(options.allow_new_head),
        trust_remote_code=trust,
        has_template=bool(template or tokenizer.chat_template),
    )
    return Opened(checkpoint, placement, tokenizer, template, load_reward_model(asked))


def make_encoder(opened: Opened, options: ScorerOptions) -> Encoder:
    """Return what makes token ids for a classifier: the same for scoring and for training.

    Raises:
        InputError: When `context` is above the model's limit, or the template is of no use.
    """
    limit = length_limit(opened.model.model.config, opened.tokenizer, options.context)
    length = Length(limit, options.truncate)
    if opened.model.pairs:
        return PairEncoder(opened.tokenizer, length)
    template = ChatTemplate(
        opened.tokenizer, opened.template, options.no_system, opened.checkpoint.name
    )
    return ChatEncoder(opened.tokenizer, template, length)


def make_runner(
    opened: Opened,
    rewards: Callable[[Batch], torch.Tensor],
    budget: int | None,
    say: Callable[[str], None],
) -> Runner:
    """Return what runs a classifier, or several that read the same texts, over encoded texts.

    Args:
        opened: The classifier.
        rewards: Gives the reward of each row of a batch.
        budget: Tokens of a batch to begin with; None is the default of the device.
        say: Called with lines for the user.
    """
    return Runner(
        rewards,
        opened.placement.device,
        budget=budget,
        padded=opened.model.padded,
        pad_id=opened.tokenizer.pad_token_id or 0,
        vocabulary=opened.model.model.get_input_embeddings().num_embeddings,
        say=say,
    )


def compiled(options: ScorerOptions, runner: Runner, models: Sequence[Any]) -> dict[str, Parameter]:
    """Compile models if that was asked for, and return what the record holds of it."""
    if not options.compile:
        return {}
    done = [compile_layers(model, runner.try_once, options.say) for model in models]
    return {"compiled": True} if all(done) else {}


def check_options(kind: str, model: str, options: ScorerOptions, allowed: Sequence[str]) -> None:
    """Check the options of a reward model that runs on transformers.

    Raises:
        InputError: When the model is not named, an option does not apply, or has no such value.
    """
    if not model:
        raise InputError(f"{kind}: which model? write {kind}:FOLDER or {kind}:ORG/NAME")
    refuse_options(kind, options, allowed)
    for name, choices in CHOICES.items():
        given = getattr(options, name)
        if given is not None and given not in choices:
            option = name.replace("_", "-")
            raise InputError(f"--{option} {given}: one of {', '.join(choices)}")
    for name in ("context", "batch_tokens", "threads"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise InputError(f"--{name.replace('_', '-')} {given}: at least 1")


def model_parameters(model: Any, placement: hf.Placement, trust: bool) -> dict[str, Parameter]:
    """Return what can change a score of any transformers model."""
    import torch
    import transformers

    found: dict[str, Parameter] = {
        **placement.names,
        "attention": getattr(model.config, "_attn_implementation", None),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return found | ({"trust_remote_code": True} if trust else {})


def make_spec(kind: str, checkpoint: hf.Checkpoint, parameters: dict[str, Parameter]) -> ScorerSpec:
    """Name a checkpoint as a scorer (see `hf.shown_name`)."""
    name = hf.shown_name(checkpoint.name)
    return ScorerSpec(kind=kind, model=name, revision=checkpoint.revision, parameters=parameters)
