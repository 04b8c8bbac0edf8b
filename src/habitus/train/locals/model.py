"""The judge that is trained: a causal language model, all of it or an adapter on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from habitus.clients import hf, weights
from habitus.clients.causal_lm import load
from habitus.clients.encode import length_limit
from habitus.clients.prompt_encoder import PromptEncoder
from habitus.clients.transformers_engine import (
    DEFAULT_CONTEXT,
    TransformersEngine,
    create,
    free,
    make_decoder,
    stop_tokens,
)
from habitus.errors import InputError
from habitus.scorers import ScorerOptions
from habitus.store import whole_folder
from habitus.train import base
from habitus.train.graphs import StepGraphs, can_record
from habitus.types import Parameter

PRECISIONS = ("fp32", "bf16")

CONTEXT = 1024
"""Most tokens of a prompt with its answer, unless asked otherwise: one long text in a batch makes all
of it as wide, and the memory of a step with it."""


@dataclass(frozen=True)
class ModelOptions:
    """How the model is loaded, and how it computes."""

    revision: str | None = None
    """Revision on the Hugging Face Hub."""
    context: int | None = None
    """Most tokens of a prompt with its answer; None is `CONTEXT`, or the model's own limit where that
    is lower."""
    device: str | None = None
    """Such as "cpu"; None is the best there is."""
    precision: str | None = None
    """"bf16" computes under autocast, what is trained stays float32; None is that on a GPU, fp32 on a CPU."""
    threads: int | None = None
    """CPU threads; None leaves torch's choice."""
    lora: int | None = 16
    """Rank of a LoRA adapter on all linear layers; None trains all weights."""
    batch_tokens: int | None = None
    """Tokens of a batch when scoring; None is the device's default."""
    graphs: bool = True
    """Record tokens and supervised steps as CUDA graphs, where that can be done."""
    say: Callable[[str], None] = field(default=lambda line: None, compare=False)
    """Called with lines for the user."""


class Policy:
    """A model in memory with its encoder; `trained` is what is trained."""

    def __init__(self, name: str, options: ModelOptions, merged: Path) -> None:
        """Load a model.

        Args:
            name: A folder, an id on the Hugging Face Hub, or a known model.
            options: How.
            merged: Where the weights go when the model is an adapter itself, merged into its base:
                a new adapter needs a base that can be found again.

        Raises:
            HabitusError: When it cannot be had, or an extra is missing.
        """
        base.require()
        if options.precision not in (None, *PRECISIONS):
            raise InputError(f"--precision {options.precision}: one of {', '.join(PRECISIONS)}")
        base.check_device(options.device)
        self.options = options
        folder = str(base.dequantised(name, options.say))
        if name not in weights.KNOWN:
            folder = _plain(folder, options, merged)
        loaded = load(folder, _load_options(options))
        self.model = loaded.model
        """The transformers model, which holds the layers of an adapter too."""
        self.tokenizer = loaded.tokenizer
        self.name = name
        self.folder = folder
        """What the base is found by."""
        self.revision = loaded.revision
        """`sha256:...` of the files, or the commit on the Hub."""
        limit = length_limit(self.model.config, self.tokenizer, options.context) or DEFAULT_CONTEXT
        room = limit if options.context else min(limit, CONTEXT)
        self.encoder = PromptEncoder(self.tokenizer, context=room)
        self.trained: Any = self.model
        """The model itself, or the adapter around it."""
        self.stops = stop_tokens(self.model, self.encoder)
        """Ids that end a text."""
        self.decoder = make_decoder(self.model, options.say) if options.graphs else None
        """Writes faster than the library's `generate`; None where it cannot."""
        self._settle_generation()

    def _settle_generation(self) -> None:
        from transformers import GenerationConfig

        # sampling settings of its own, such as a repetition penalty, would creep into every text
        self.model.generation_config = GenerationConfig(eos_token_id=sorted(self.stops) or None)  # type: ignore[no-untyped-call,unused-ignore]

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self.model.device

    @property
    def bf16(self) -> bool:
        """Whether it computes in bfloat16."""
        precision = self.options.precision
        return precision == "bf16" or (precision is None and self.device.type != "cpu")

    def autocast(self) -> Any:
        """Return the context in which it computes."""
        import torch

        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    def about(self) -> dict[str, Parameter]:
        """Return what can change a result, for the record."""
        return {
            "model": self.name,
            "revision": self.revision,
            "lora": self.options.lora,
            "precision": "bf16" if self.bf16 else "fp32",
            **self.encoder.parameters,
        }

    def start(self, seed: int, adapter: Path | None = None, *, merged: bool = False) -> None:
        """Put a new adapter on the model, or one that was saved; nothing where all is trained.

        Args:
            seed: Seed of a new adapter's weights.
            adapter: Folder of an adapter to go on from.
            merged: Whether the adapter will be merged and taken out again, as for vLLM: frozen
                matrices stay float32 then, since bfloat16 would not come back as it was.
        """
        import torch

        if self.options.lora is None:
            return
        import peft

        torch.manual_seed(seed)
        with hf.peft_warnings():
            if adapter is not None:
                self.trained = peft.PeftModel.from_pretrained(
                    self.model, adapter, is_trainable=True
                )
            else:
                settings = peft.LoraConfig(
                    task_type="CAUSAL_LM",
                    r=self.options.lora,
                    lora_alpha=2 * self.options.lora,
                    target_modules="all-linear",
                )
                self.trained = peft.get_peft_model(self.model, settings)
        self.trained.peft_config["default"].base_model_name_or_path = self.base_name
        if self.bf16 and not merged:
            self._halve()

    def _halve(self) -> None:
        """Hold frozen matrices as bfloat16 where that loses nothing: autocast casts them at each use.

        The output layer stays, because R_appr computes it in float32.
        """
        import torch

        output = self.model.get_output_embeddings()
        for module in self.model.modules():
            weight = getattr(module, "weight", None)
            if not isinstance(module, torch.nn.Linear) or module is output or weight is None:
                continue
            if not weight.requires_grad and weight.dtype == torch.float32:
                half = weight.data.to(torch.bfloat16)
                if torch.equal(half.float(), weight.data):
                    weight.data = half

    @property
    def base_name(self) -> str:
        """What the base is found by from anywhere on this machine."""
        local = Path(self.folder).expanduser()
        return str(local.resolve()) if local.is_dir() else self.folder

    def engine(self) -> TransformersEngine:
        """Return the model, as it is now, as an engine for judges; use it before training goes on."""
        self.model.eval()
        engine = _AutocastEngine(
            self.model, self.encoder, name=self.name, batch_tokens=self.options.batch_tokens
        )
        engine.context = self.autocast
        engine.write_with(self.decoder)
        self._settle_generation()  # the engine has put its own in place
        return engine

    @property
    def writer(self) -> Callable[..., list[list[int]]] | None:
        """What writes for the trainer in place of the library's `generate`; None where it cannot."""
        decoder = self.decoder
        if decoder is None:
            return None

        def write(prompts: Any, pick: Any, budget: int) -> list[list[int]]:
            with self.autocast():
                pad = min(self.stops, default=0)
                stops = self.stops
                found: list[list[int]] = decoder.write(
                    prompts, pick, budget=budget, stops=stops, pad=pad
                )
                return found

        return write

    def release(self) -> None:
        """Let go of the model with all its memory, whoever else holds this policy: it is over."""
        self.model = self.trained = self.decoder = None
        free()

    def graphs(self) -> StepGraphs | None:
        """Return where supervised steps are recorded; None where they cannot be."""
        if self.decoder is None or not can_record(self.device):
            return None
        return StepGraphs(self.trained.parameters(), self.options.say)

    def save(self, folder: Path) -> None:
        """Save so that `judge:FOLDER --engine transformers` loads it."""
        with hf.quiet(), hf.peft_warnings():
            if self.options.lora is None:
                self.model.save_pretrained(folder)
            else:
                settings = self.trained.peft_config["default"]
                # PEFT has a set of them, whose order in the file would differ between processes
                settings.target_modules = sorted(settings.target_modules)
                self.trained.save_pretrained(folder, selected_adapters=["default"])
            self.tokenizer.save_pretrained(folder)


class _AutocastEngine(TransformersEngine):
    """The engine of judges, under the autocast of training."""

    context: Callable[[], Any] = nullcontext

    def execute(self, requests: Any) -> Any:
        """Answer requests (see `habitus.clients.engine.Engine`)."""
        with self.context():
            return super().execute(requests)


def open_engine(model: str, options: ModelOptions) -> TransformersEngine:
    """Return a model as `judge:MODEL --engine transformers` loads it.

    Args:
        model: A folder, an id on the Hugging Face Hub, or a known model.
        options: Where and how.
    """
    engine = create(
        model,
        ScorerOptions(
            revision=None if Path(model).is_dir() else options.revision,
            device=options.device,
            threads=options.threads,
            context=options.context,
            batch_tokens=options.batch_tokens,
            say=options.say,
        ),
    )
    if not options.graphs:
        engine.write_with(None)
    return engine


def _load_options(options: ModelOptions) -> ScorerOptions:
    return ScorerOptions(
        revision=options.revision,
        device=options.device,
        threads=options.threads,
        dtype="float32",
        context=options.context,
        say=options.say,
    )


def _plain(name: str, options: ModelOptions, merged: Path) -> str:
    """Return a model without an adapter: itself, or an adapter merged into its base."""
    if hf.locate(name, options.revision, options.say).adapter is None:
        return name
    merged.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(merged.with_name(f".{merged.name}.lock")):  # one process of a launch merges
        if not (merged / "config.json").is_file():
            options.say(f"{name} is an adapter: its merged weights go to {merged}")
            loaded = load(name, _load_options(options))
            with hf.quiet(), whole_folder(merged) as folder:
                loaded.tokenizer.save_pretrained(folder)
                loaded.model.save_pretrained(folder)
    return str(merged)
