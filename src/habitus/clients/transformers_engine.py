"""Causal language models through the transformers library, in this process, on CPU or GPU.

Label requests take one forward pass each; what prompts share is computed once (`clients.prefix`).
Text requests are written in batches (`clients.writing`), each with its own random numbers
(`clients.sampling`). Grammars are ignored: a judge must read what it gets.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from habitus.clients.causal_lm import LoadOptions, load
from habitus.clients.chat_template import read_template
from habitus.clients.encode import length_limit
from habitus.clients.engine import Reply, Request
from habitus.clients.prompt_encoder import PromptEncoder
from habitus.clients.writing import Writing, writing_batches
from habitus.errors import InputError, ModelError, is_out_of_memory
from habitus.types import Parameter, Status

if TYPE_CHECKING:
    from habitus.clients.decoding import Decoder
    from habitus.clients.prefix import Batch

BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""Tokens of a batch by kind of device, padding and prefixes included; halved when memory ends."""
WRITING = 4
"""A batch of texts may have this many times the tokens: only keys and values grow with it."""
RECORD_VARIABLE = "HABITUS_TOKEN_GRAPHS"
"""Environment variable that, set to 0, keeps tokens from being recorded as CUDA graphs."""
WINDOW = 64
"""Items that a judge should have in flight, so that batches can be full."""
RECORDED_WINDOW = 256
"""The same where tokens are recorded: a row more costs little there."""
DEFAULT_CONTEXT = 8192
"""Tokens of context of a model that does not say how many it has."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Question:
    """A label request, encoded."""

    place: int
    group: str
    tokens: list[int]
    labels: list[int]


class TransformersEngine:
    """A causal language model that judges can ask (see `habitus.clients.engine.Engine`).

    In float32 a reply does not depend on what else is asked, up to rounding (about 1e-6). In
    bfloat16 the shape of a batch shows: by 0.03 on average, on a small model (docs/engines.md).
    """

    prefill = True
    logprobs = True
    window: int = WINDOW
    labels_exact = True

    def __init__(
        self,
        model: Any,
        encoder: PromptEncoder,
        *,
        name: str,
        revision: str | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """Make an engine of a loaded model.

        Args:
            model: A causal language model of the transformers library.
            encoder: Encodes chats for it.
            name: The model's name.
            revision: Digest or revision of the weights.
            parameters: Everything that can change a result.
            batch_tokens: Tokens of a batch; None is `BATCH_TOKENS` of the device.
        """
        from transformers import GenerationConfig

        from habitus.clients.prefix import PASS_TOKENS, NextToken

        self.model = name
        self.revision = revision
        self.parameters: Mapping[str, Parameter] = parameters or {}
        self._model = model
        self._encoder = encoder
        self._next = NextToken(model)
        kind = "cpu" if model.device.type == "cpu" else "cuda"
        self._budget = batch_tokens or BATCH_TOKENS[kind]
        self._pass_tokens = PASS_TOKENS[kind]
        self.share_prefix = self._next.can_share
        """Whether what prompts share may be computed once; off, every prompt is computed whole."""
        self._stops = stop_tokens(model, encoder)
        # its own sampling settings, such as a repetition penalty, would creep into every text
        model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
        self.write_with(make_decoder(model))

    def write_with(self, decoder: Decoder | None) -> None:
        """Write with a decoder of this model; None is the library's `generate`."""
        self.decoder = decoder
        self.window = WINDOW if decoder is None else RECORDED_WINDOW

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests, in their order (see `habitus.clients.engine.Engine`).

        Raises:
            ModelError: When the model fails for another reason than memory.
        """
        replies: list[Reply | None] = [None] * len(requests)
        questions: list[_Question] = []
        writings: list[Writing] = []
        encoded = self._encoder.encode(requests)
        for place, (request, tokens) in enumerate(zip(requests, encoded, strict=True)):
            job = tokens if isinstance(tokens, Reply) else self._job(place, request, tokens)
            if isinstance(job, Reply):
                replies[place] = job
            elif isinstance(job, _Question):
                questions.append(job)
            else:
                writings.append(job)
        self._answer(questions, replies)
        self._write(writings, replies)
        return [reply or Reply(status=Status.ERROR, error="no reply") for reply in replies]

    def _job(self, place: int, request: Request, tokens: list[int]) -> _Question | Writing | Reply:
        from habitus.clients.sampling import Draw

        if request.labels:
            try:
                labels = self._encoder.label_tokens(request.answer, request.labels)
                whole = labels.after(tokens)
            except ModelError as error:
                return Reply(status=Status.ERROR, error=str(error))
            if len(whole) > self._encoder.context:
                return self._encoder.over(len(whole))
            return _Question(place, request.group, whole, list(labels.first))
        if request.max_tokens < 1:
            return Reply(status=Status.ERROR, error="the request asks for no labels and no text")
        if len(tokens) + request.max_tokens > self._encoder.context:
            return self._encoder.over(len(tokens) + request.max_tokens, "prompt and answer have")
        draw = Draw(request.temperature, request.seed, request.top_p)
        opened = "<think>" if self._encoder.opens_thinking and not request.answer else ""
        return Writing(place, tuple(tokens), draw, request.max_tokens, opened)

    def _answer(self, questions: Sequence[_Question], replies: list[Reply | None]) -> None:
        """Answer label requests."""
        from habitus.clients.prefix import plan

        prompts = [question.tokens for question in questions]
        batches = plan(
            prompts,
            [question.group for question in questions],
            budget=self._budget,
            pass_tokens=self._pass_tokens,
            share=self.share_prefix,
        )

        def run(batch: Batch) -> None:
            logits = self._next.logits(prompts, batch)
            asked = [questions[row] for row in batch.rows]
            for question, reply in zip(asked, _label_replies(logits, asked), strict=True):
                replies[question.place] = reply

        def fail(batch: Batch) -> None:
            for row in batch.rows:
                replies[questions[row].place] = _out_of_memory(len(prompts[row]))

        self._through(batches, run, lambda batch: batch.halves(), fail)

    def _write(self, writings: Sequence[Writing], replies: list[Reply | None]) -> None:
        """Answer text requests."""
        from habitus.clients.sampling import write

        left = list(writings)

        def run(batch: list[Writing]) -> None:
            found = write(
                self._model,
                [one.tokens for one in batch],
                [one.draw for one in batch],
                budget=batch[0].stage,
                stops=self._stops,
                pad=min(self._stops, default=0),
                decoder=self.decoder,
            )
            for before, more in zip(batch, found, strict=True):
                one = before.with_more(more)
                if not more.sound:
                    replies[one.place] = _not_a_number(len(one.prompt))
                elif more.finished or len(one.text) >= one.budget:
                    replies[one.place] = self._text(one, more.finished)
                else:
                    left.append(one)

        def halves(batch: list[Writing]) -> list[list[Writing]]:
            cut = len(batch) // 2
            return [batch[:cut], batch[cut:]] if cut else []

        def fail(batch: list[Writing]) -> None:
            for one in batch:
                replies[one.place] = _out_of_memory(len(one.prompt))

        while left:
            planned = writing_batches(left, self._budget * WRITING)
            left.clear()
            self._through(planned, run, halves, fail)

    def _text(self, one: Writing, finished: bool) -> Reply:
        return Reply(
            text=one.opened + self._encoder.decode(one.prompt, one.text),
            finished=finished,
            prompt_tokens=len(one.prompt),
            completion_tokens=len(one.text),
        )

    def _through(
        self,
        batches: Sequence[_T],
        run: Callable[[_T], None],
        halves: Callable[[_T], list[_T]],
        fail: Callable[[_T], None],
    ) -> None:
        """Run batches; one that does not fit into memory is halved, down to a single request."""
        queue = deque(batches)
        while queue:
            batch = queue.popleft()
            try:
                run(batch)
                continue
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    message = str(error).strip().splitlines() or ["no message"]
                    raise ModelError(f"{self.model}: {message[0][:300]}") from error
            if self.decoder is not None:
                self.decoder.forget()
            free()  # outside the handler, whose traceback holds on to tensors
            parts = halves(batch)
            if not parts:
                fail(batch)
                continue
            self._budget = max(self._budget // 2, 256)
            queue.extendleft(reversed(parts))

    def close(self) -> None:
        """Release the model."""
        self._model = self._next = self.decoder = None  # type: ignore[assignment]
        free()


def stop_tokens(model: Any, encoder: PromptEncoder) -> frozenset[int]:
    """Return the ids that end a text: of the generation settings, the tokenizer, the template."""
    named = model.generation_config.eos_token_id if model.generation_config else None
    stops = {*(named if isinstance(named, list) else [named]), *encoder.ends()}
    return frozenset(stop for stop in stops if stop is not None)


def make_decoder(model: Any, say: Callable[[str], None] = lambda line: None) -> Decoder | None:
    """Return what writes with a model on an NVIDIA GPU, unless the user says no; else None.

    Args:
        model: A causal language model.
        say: Called with lines for the user.
    """
    import torch

    refused = os.environ.get(RECORD_VARIABLE) == "0"
    if refused or model.device.type != "cuda" or torch.version.hip:
        return None
    from habitus.clients.decoding import Decoder, can_decode

    return Decoder(model, say) if can_decode(model) else None


def _label_replies(logits: Any, questions: Sequence[_Question]) -> list[Reply]:
    """Return the distribution over each question's labels, and how much of the whole they hold."""
    import torch

    width = max(len(question.labels) for question in questions)
    index = [
        question.labels + question.labels[:1] * (width - len(question.labels))
        for question in questions
    ]
    total = torch.logsumexp(logits, dim=-1, keepdim=True)
    chosen = logits.gather(1, torch.tensor(index, device=logits.device)) - total
    replies = []
    for question, row in zip(questions, chosen.double().cpu(), strict=True):
        raw = row[: len(question.labels)]
        if not bool(torch.isfinite(raw).all()):
            replies.append(_not_a_number(len(question.tokens)))
            continue
        mass = torch.logsumexp(raw, dim=-1)
        replies.append(
            Reply(
                logprobs=tuple(round(value, 6) for value in (raw - mass).tolist()),
                mass=round(min(1.0, float(mass.exp())), 6),
                prompt_tokens=len(question.tokens),
            )
        )
    return replies


def _not_a_number(tokens: int) -> Reply:
    message = "the model's output is not a number; a wider --dtype may help"
    return Reply(status=Status.ERROR, error=message, prompt_tokens=tokens)


def _out_of_memory(tokens: int) -> Reply:
    return Reply(status=Status.ERROR, error=f"out of memory at a prompt of {tokens:,} tokens")


def free() -> None:
    """Give back the GPU memory of models that nobody holds any more."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def create(model: str, options: LoadOptions) -> TransformersEngine:
    """Load a causal language model as an engine for judges.

    Args:
        model: A folder, a GGUF file, a known name of `habitus.clients.weights`, or an id on the
            Hugging Face Hub.
        options: Options of the command line.

    Raises:
        MissingExtraError: When torch or transformers is not installed.
        InputError: When an option, the path or the chat template is wrong.
        ModelError: When the model cannot be loaded.
    """
    if options.no_system not in (None, "merge", "error"):
        raise InputError(f"--no-system {options.no_system}: not one of merge, error")
    template = None if options.template is None else read_template(options.template)
    loaded = load(model, options)
    limit = length_limit(loaded.model.config, loaded.tokenizer, options.context)
    encoder = PromptEncoder(
        loaded.tokenizer,
        context=limit or DEFAULT_CONTEXT,
        template=template,
        merge_system=options.no_system != "error",
    )
    return TransformersEngine(
        loaded.model,
        encoder,
        name=loaded.name,
        revision=loaded.revision,
        parameters={**loaded.parameters, **encoder.parameters},
        batch_tokens=options.batch_tokens,
    )
