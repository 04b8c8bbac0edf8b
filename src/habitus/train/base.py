"""The model that training starts from: loaded once, trained on, scored with, and put back.

Every unit of a study starts from the same weights. They are kept beside the model in memory, so
that a unit neither reads them from disk nor encodes a text again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from habitus.clients import causal_lm, hf, weights
from habitus.clients.encode import Encoded, Encoder, length_limit
from habitus.errors import InputError, MissingExtraError, ModelError
from habitus.scorers import ScorerOptions
from habitus.scorers.adapters import RewardModel
from habitus.scorers.batching import BatchedScorer
from habitus.scorers.classifier import (
    Opened,
    make_encoder,
    make_runner,
    make_spec,
    model_parameters,
)
from habitus.scorers.classifier import open_checkpoint as open_classifier
from habitus.scorers.runner import Batch, Runner
from habitus.train.graphs import StepGraphs, can_record
from habitus.types import Parameter, ScorerSpec

CONTEXT = 512
"""Most tokens of a text, as in the paper, where the model reads that many."""

TRAINABLE = ("last-token", "encoder", "text-pair")
"""Adapters whose models can be trained: those whose forward pass pools what the scorer pools."""

PRECISIONS = ("fp32", "bf16")
"""`bf16` computes the body under autocast; weights, head and loss are float32 in both."""


@dataclass(frozen=True)
class LoadOptions:
    """How the base is loaded, and how it computes."""

    revision: str | None = None
    """Revision on the Hugging Face Hub."""
    context: int | None = None
    """Most tokens of a text; None is 512, or the model's own limit where that is lower."""
    device: str | None = None
    """Such as "cpu"; None is the best there is."""
    precision: str = "fp32"
    """One of `PRECISIONS`."""
    threads: int | None = None
    """CPU threads; None leaves torch's choice."""
    batch_tokens: int | None = None
    """Tokens in a batch when scoring; None is the device's default."""
    graphs: bool = True
    """Record training steps as CUDA graphs (see `habitus.train.graphs`), on one GPU of NVIDIA's."""
    new_head: bool = False
    """Give a model without a reward head a new one with small random weights."""
    say: Callable[[str], None] = field(default=lambda line: None, compare=False)
    """Called with lines for the user."""


def require() -> None:
    """Check that what training needs is installed.

    Raises:
        MissingExtraError: When it is not.
    """
    names = ("torch", "transformers", "trl", "datasets", "peft", "accelerate", "safetensors")
    if any(importlib.util.find_spec(name) is None for name in names):
        raise MissingExtraError("training", "train")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


class Base:
    """A classifier in memory, with its own weights kept to start again from."""

    def __init__(self, opened: Opened, encoder: Encoder, options: LoadOptions) -> None:
        """Keep the weights of a model that was just loaded.

        Args:
            opened: The model.
            encoder: What makes its token ids.
            options: How it was loaded.

        Raises:
            ModelError: When such a model cannot be trained.
        """
        self.opened = opened
        self.encoder = encoder
        self.options = options
        self._reward: RewardModel = opened.model
        if self._reward.adapter not in TRAINABLE:
            raise ModelError(
                f"{opened.checkpoint.name} is read by the adapter {self._reward.adapter}; only "
                f"models of {', '.join(TRAINABLE)} can be trained"
            )
        if self.model.config.num_labels != 1:
            raise ModelError(
                f"{opened.checkpoint.name} has {self.model.config.num_labels} outputs; a reward "
                "model to be trained has one"
            )
        for head in getattr(self._reward, "heads", {}).values():
            head.register_forward_pre_hook(_leave_autocast)
            head.register_forward_hook(_enter_autocast, always_call=True)
        self._pad_id = self.model.config.get_text_config().pad_token_id
        self._kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        self._graphs: StepGraphs | None = None

    @property
    def model(self) -> Any:
        """The transformers model."""
        return self._reward.model

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self.opened.placement.device

    @property
    def causal(self) -> bool:
        """Whether it is a decoder."""
        return self._reward.adapter == "last-token"

    @property
    def spec(self) -> ScorerSpec:
        """What the base is as a scorer, with everything that can change a score."""
        about: dict[str, Parameter] = {
            "adapter": self._reward.adapter,
            **self._reward.parameters,
            **self.encoder.parameters,
            **model_parameters(self.model, self.opened.placement, trust=False),
            "precision": self.options.precision,
        }
        return make_spec("classifier", self.opened.checkpoint, about)

    def autocast(self) -> Any:
        """Return the context in which the body computes."""
        import torch

        on = self.options.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=on)

    def pad_id(self, texts: Sequence[Encoded]) -> int:
        """Return what training batches are padded with.

        A decoder's pooling looks for the last token that is not this one, so it must end no text.
        A text that is pooled at a padding token may also give a gradient that is not a number
        while its loss is finite (see `docs/scpo.md`).
        """
        own = self.opened.tokenizer.pad_token_id
        ends = {text.ids[-1] for text in texts}
        if not self.causal:
            return int(own or 0)
        if (
            own is not None
            and own not in ends
            and own < len(self.model.get_input_embeddings().weight)
        ):
            return int(own)
        return next(number for number in range(len(ends) + 1) if number not in ends)

    def scorer(self, spec: ScorerSpec | None = None, *, alone: bool = False) -> BatchedScorer:
        """Return the model, as it is now, as a scorer: the path of `classifier:`.

        Args:
            spec: What it is; None is the base.
            alone: Compute all of it in this process, whatever others there are.
        """
        runner = make_runner(
            self.opened, self._rewards, self.options.batch_tokens, self.options.say
        )
        return StudyScorer(spec or self.spec, self.encoder, runner, alone, self.options.say)

    def graphs(self, model: Any) -> StepGraphs | None:
        """Return where the steps of a model of `fresh` are recorded; None where they cannot be.

        Those of the base itself outlast a unit: its weights are put back where they were.
        """
        if not self.options.graphs or not can_record(self.device):
            return None
        if model is not self.model:
            return StepGraphs(model.parameters(), self.options.say)
        if self._graphs is None:
            self._graphs = StepGraphs(model.parameters(), self.options.say)
        return self._graphs

    def _rewards(self, batch: Batch) -> Any:
        self.model.eval()  # no dropout when measuring
        with self.autocast():
            return self._reward.rewards(batch)

    @contextlib.contextmanager
    def fresh(self, *, lora: int | None, seed: int) -> Iterator[Any]:
        """Give the model to be trained, and put the base back afterwards.

        Args:
            lora: Rank of an adapter; None trains all weights.
            seed: Seed of the adapter's weights.
        """
        self._put_back()
        if lora is None:
            try:
                yield self.model
            finally:
                self._put_back()
            return
        with hf.peft_warnings():
            adapted = self._adapt(lora, seed)
        try:
            yield adapted
        finally:
            adapted.unload()
            self._put_back()

    def _adapt(self, rank: int, seed: int) -> Any:
        import peft
        import torch

        if self.opened.checkpoint.adapter is not None:
            raise InputError(
                f"{self.opened.checkpoint.name} is an adapter itself; train without --lora, or "
                "merge it into its base first"
            )
        torch.manual_seed(seed)
        settings = peft.LoraConfig(
            task_type="SEQ_CLS", r=rank, lora_alpha=2 * rank, target_modules="all-linear"
        )
        adapted = peft.get_peft_model(self.model, settings)
        adapted.peft_config["default"].base_model_name_or_path = self._name()
        return adapted

    def _name(self) -> str:
        """Return what the base is found by from anywhere on this machine."""
        name = self.opened.checkpoint.name
        local = Path(name).expanduser()
        return str(local.resolve()) if local.is_dir() else name

    def _put_back(self) -> None:
        import torch

        self.model.zero_grad(set_to_none=True)
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
        with torch.no_grad():
            self.model.load_state_dict(self._kept)
        self.model.config.get_text_config().pad_token_id = self._pad_id
        self.model.eval()

    def save(self, model: Any, folder: Path) -> None:
        """Save a model of `fresh` so that `classifier:FOLDER` and transformers load it.

        Args:
            model: The model, or the adapter with its head.
            folder: Where to.
        """
        text, tokenizer = self.model.config.get_text_config(), self.opened.tokenizer
        used = text.pad_token_id
        spare = tokenizer.pad_token_id
        text.pad_token_id = self._pad_id if self._pad_id is not None else spare
        if text.pad_token_id is None:
            text.pad_token_id = tokenizer.eos_token_id
        self.model.config.architectures = [type(self.model).__name__]
        try:
            with hf.quiet(), hf.peft_warnings():
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
        finally:
            text.pad_token_id = used


class StudyScorer(BatchedScorer):
    """A scorer of a model in memory; under `accelerate launch` every process gets all scores."""

    def __init__(
        self,
        spec: ScorerSpec,
        encoder: Encoder,
        runner: Runner,
        alone: bool,
        say: Callable[[str], None],
    ) -> None:
        """Make a scorer; unlike its parent it ends no process."""
        self.spec = spec
        self._encoder = encoder
        self._say = say
        self._ranks: Any = _Shares(runner, alone)
        self.chunk_tokens = 16 * runner.budget * self._ranks.count


class _Shares:
    """Splits texts over the processes of a launch, and gives all of them all rewards."""

    def __init__(self, runner: Runner, alone: bool) -> None:
        self._runner = runner
        self.count, self._rank = 1, 0
        if hf.launched() and not alone:
            state = hf.launch_state(cpu=runner.device.type == "cpu")
            self.count, self._rank = int(state.num_processes), int(state.process_index)

    def run(self, texts: Sequence[Encoded]) -> list[float | str]:
        batches = self._runner.plan(texts)
        found = self._runner.run(texts, batches[self._rank :: self.count])
        if self.count > 1:
            from accelerate.utils import gather_object

            found = {at: value for share in gather_object([found]) for at, value in share.items()}
        return [found[at] for at in range(len(texts))]

    def close(self) -> None:
        """Hold on to nothing."""


def load_base(name: str, options: LoadOptions) -> Base:
    """Load the model that training starts from.

    Args:
        name: A folder, an id on the Hugging Face Hub, or a model that Habitus knows by name.
        options: How.

    Raises:
        HabitusError: When it cannot be had, cannot be trained, or an extra is missing.
    """
    require()
    if options.precision not in PRECISIONS:
        raise InputError(f"--precision {options.precision}: one of {', '.join(PRECISIONS)}")
    check_device(options.device)
    asked = ScorerOptions(
        revision=options.revision,
        context=options.context,
        device=options.device,
        threads=options.threads,
        dtype="float32",
        allow_new_head=options.new_head or None,
        say=options.say,
    )
    opened = open_classifier(str(dequantised(name, options.say)), asked)
    if opened.placement.device.type == "cpu" and options.precision == "bf16":
        options.say("--precision bf16 on a CPU is slow and rounds; fp32 is the better choice there")
    if opened.model.parameters.get("new_head"):
        options.say(f"{name} has no reward head: a new one with small random weights is trained")
    if opened.model.adapter in TRAINABLE and options.context is None:
        own = length_limit(opened.model.model.config, opened.tokenizer, None)
        asked = ScorerOptions(context=min(CONTEXT, own or CONTEXT))
    return Base(opened, make_encoder(opened, asked), options)


def check_device(device: str | None) -> None:
    """Refuse a GPU that the trainer would not take: it moves the model to the first it sees.

    Raises:
        InputError: When another one is named.
    """
    if device and device.partition(":")[2] not in ("", "0"):
        raise InputError(
            f"--device {device}: training takes the first GPU that it sees; leave --device out "
            "and set CUDA_VISIBLE_DEVICES"
        )


def dequantised(name: str, say: Callable[[str], None]) -> Path | str:
    """Return the folder of a known GGUF model, made of its file once; other names as they are.

    Args:
        name: A model that Habitus knows by name, or anything else.
        say: Called with lines for the user.

    Raises:
        ModelError: When the file cannot be fetched or read.
    """
    if name not in weights.KNOWN:
        return name
    path, sha256 = weights.locate(name, say)
    folder = path.with_name(f"{name}-{sha256[:12]}-float32")
    if (folder / "model.safetensors").is_file():
        return folder
    from safetensors.torch import save_file

    say(f"making float32 weights of {name}, once")
    loaded = causal_lm.load(name, ScorerOptions(device="cpu", dtype="float32", say=say))
    model = loaded.model
    with hf.quiet(), hf.as_model_error(name, "model"):
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.config.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
        tensors = {
            name: value.contiguous()
            for name, value in model.state_dict().items()
            if name not in tied
        }
        partial = folder / "model.partial"
        save_file(tensors, partial, metadata={"format": "pt"})
        partial.replace(folder / "model.safetensors")
    return folder


def _leave_autocast(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Before a head: compute in float32, also where the body does not."""
    import torch

    floats = tuple(arg.float() if torch.is_floating_point(arg) else arg for arg in args)
    kind = floats[0].device.type
    module.was_autocast = torch.is_autocast_enabled(kind)
    torch.set_autocast_enabled(kind, False)
    return floats


def _enter_autocast(module: Any, args: tuple[Any, ...], output: Any) -> None:
    """After a head: go on as before."""
    import torch

    torch.set_autocast_enabled(args[0].device.type, module.was_autocast)
