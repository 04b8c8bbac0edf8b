"""The embedded model as an engine for judges: one request after another, prefixes reused.

llama.cpp computes a prompt in batches, and the last bits of a result depend on where a batch
begins. So the first request of a group is computed anew, and later ones reuse what they share with
the one before (decision 0001): a group's replies depend on the group alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from habitus.clients import dates, gguf, weights
from habitus.clients.embedded import ContextExceededError, EmbeddedModel, engine_version
from habitus.clients.engine import Reply, Request, Turn
from habitus.clients.labels import LabelTokens, last_line
from habitus.errors import InputError, ModelError
from habitus.types import Parameter, Status, digest

CHATML = "chatml"
"""llama.cpp's name of its ChatML template, which can be asked for by it."""

LEAST_CONTEXT = 256
"""Tokens; in fewer, nothing can be judged."""


class EmbeddedOptions(Protocol):
    """The options that this engine reads; `habitus.scorers.ScorerOptions` has them."""

    @property
    def context(self) -> int | None:
        """Tokens of context."""

    @property
    def threads(self) -> int | None:
        """CPU threads."""

    @property
    def template(self) -> str | None:
        """Path of a chat template, or "chatml"."""

    @property
    def no_system(self) -> str | None:
        """Either "merge" or "error"."""

    @property
    def say(self) -> Callable[[str], None]:
        """Called with lines for the user."""


@dataclass(frozen=True)
class _Written:
    """A text that was just written: a request that goes on from it needs no new encoding."""

    chat: tuple[Turn, ...]
    before: str
    text: str
    tokens: list[int]

    def continues(self, request: Request) -> bool:
        whole = self.before + self.text
        return self.chat == request.chat and request.answer.startswith(whole)


class EmbeddedEngine:
    """A GGUF model that judges can ask (see `habitus.clients.engine.Engine`)."""

    prefill = True
    logprobs = True
    window = 1
    labels_exact = True
    """Labels are told apart by token: labels that are not are refused."""

    def __init__(
        self,
        loaded: EmbeddedModel,
        *,
        name: str,
        revision: str | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        no_system: str = "merge",
    ) -> None:
        """Make an engine; `create` does so from options.

        Args:
            loaded: The model.
            name: Its name.
            revision: Digest of the weights.
            parameters: Everything that can change a result.
            no_system: "merge" a system turn into the user's when the template has no system role,
                or "error".
        """
        self.loaded = loaded
        """The model."""
        self.model: str = name
        self.revision: str | None = revision
        self.parameters: Mapping[str, Parameter] = parameters or {}
        self._no_system = no_system
        self._group: str | None = None
        self._written: _Written | None = None
        self._labels: dict[tuple[str, tuple[str, ...]], LabelTokens] = {}

    def execute(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests, one after another.

        Raises:
            ModelError: When a system turn cannot be had and must not be merged.
        """
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        self._check_system(request.chat)
        fresh, self._group = request.group != self._group, None
        try:
            reply = self._ask(request, fresh=fresh)
        except ContextExceededError as error:
            message = f"{error}; the context holds {self.loaded.context:,}"
            return Reply(status=Status.TRUNCATED, error=message)
        except Exception as error:  # noqa: BLE001 - a bad request is data, never the end of a run
            return Reply(status=Status.ERROR, error=f"{type(error).__name__}: {error}"[:500])
        self._group = request.group
        return reply

    def _check_system(self, chat: Sequence[Turn]) -> None:
        refused = self._no_system == "error" and not self.loaded.system_role
        if refused and any(turn.role == "system" for turn in chat):
            raise no_system_role(self.model)

    def _ask(self, request: Request, *, fresh: bool) -> Reply:
        tokens, read = self._encode(request)
        if request.labels:
            labels = self._label_tokens(request)
            found = self.loaded.label_scores(labels.after(tokens), labels.first, fresh=fresh)
            return Reply(logprobs=found.logprobs, mass=found.mass, prompt_tokens=read)
        answer = self.loaded.generate(
            tokens,
            grammar=request.grammar,
            budget=request.max_tokens,
            fresh=fresh,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
        )
        self._written = _Written(request.chat, request.answer, answer.text, tokens)
        opened = "<think>" if self.loaded.opens_thinking and not request.answer else ""
        return Reply(
            text=opened + answer.text,
            finished=answer.finished,
            prompt_tokens=read,
            completion_tokens=answer.tokens,
        )

    def _encode(self, request: Request) -> tuple[list[int], int]:
        """Return a request's tokens, and how many of them were not counted before."""
        written = self._written
        if written is not None and written.continues(request):
            rest = self.loaded.encode_text(request.answer[len(written.before) :])
            return written.tokens + rest, 0
        tokens = self.loaded.encode_chat(request.chat, request.answer)
        return tokens, len(tokens)

    def _label_tokens(self, request: Request) -> LabelTokens:
        before = last_line(request.answer)
        key = (before, request.labels)
        if key not in self._labels:
            self._labels[key] = self.loaded.label_tokens(before, request.labels)
        return self._labels[key]

    def close(self) -> None:
        """Unload the model."""
        self.loaded.close()


def no_system_role(model: str) -> ModelError:
    """Return the error of a prompt with a system section and a template without a system role."""
    return ModelError(
        f"the chat template of {model} has no system role; allow the prompt's [system] to be "
        "merged into the user's turn with --no-system merge, or give a template: --template FILE"
    )


def create(model: str, options: EmbeddedOptions) -> EmbeddedEngine:
    """Load a model.

    Args:
        model: A known name, the path of a GGUF file, or nothing for the default; then +PATH.gguf
            for a LoRA adapter over it.
        options: `context`, `threads`, `template` and `no_system` apply.

    Raises:
        UnknownNameError: When the model is not known.
        InputError: When an option is wrong.
        ModelError: When the weights cannot be had or loaded, or have no chat template.
    """
    name, adapter = weights.split_adapter(model or weights.DEFAULT)
    if options.no_system not in (None, "merge", "error"):
        raise InputError(f"--no-system {options.no_system}: not one of merge, error")
    if options.context is not None and options.context < LEAST_CONTEXT:
        raise ModelError(
            f"--context {options.context} is too short to judge anything; {LEAST_CONTEXT} or more"
        )
    given = None if options.template is None else _read(options.template)
    path, revision = weights.locate(name, options.say)
    laid = None if adapter is None else weights.locate_adapter(adapter)
    own = gguf.chat_template(path)
    source = given or own
    replaces = given or (own if own and "strftime_now" in own else None)
    loaded = EmbeddedModel(
        path,
        context=options.context,
        threads=options.threads,
        template=dates.pinned(replaces) if replaces else None,
        adapter=None if laid is None else laid[0],
    )
    if source is None:
        loaded.close()
        raise ModelError(
            f"{path} has no chat template; give the one that it was trained with: --template "
            "FILE.jinja, or --template chatml for llama.cpp's guess"
        )
    no_system = options.no_system or "merge"
    parameters: dict[str, Parameter] = {
        "engine": engine_version(),
        "context": loaded.context,
        "weights": loaded.parameters,
        "template": digest(source),
        "template_from": "model" if given is None else CHATML if given == CHATML else "file",
        "system_role": "own" if loaded.system_role else no_system,
    }
    if gguf.dated(source):
        parameters["date"] = dates.TODAY.isoformat()
    short = name if name in weights.KNOWN else Path(name).name
    if laid is not None:
        parameters["adapter"] = f"sha256:{laid[1]}"
        short = f"{short}+{laid[0].name}"
    return EmbeddedEngine(
        loaded,
        name=short,
        revision=f"sha256:{revision}",
        parameters=parameters,
        no_system=no_system,
    )


def _read(template: str) -> str:
    path = Path(template)
    if template == CHATML and not path.exists():
        return CHATML
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--template {template}: cannot be read: {error}") from error
    if not text.strip():
        raise InputError(f"--template {template}: the file is empty")
    return text
