"""Engines that run judges: a name gives a factory, imported on first use."""

from __future__ import annotations

from habitus.clients.engine import Engine
from habitus.registry import Registry
from habitus.scorers import ScorerOptions
from habitus.scorers.base import refuse_options

ENGINES = Registry(
    "engine",
    {
        "embedded": "habitus.clients.embedded_engine:create",
        "openai": "habitus.clients.openai_engine:create",
        "transformers": "habitus.clients.transformers_engine:create",
        "vllm": "habitus.clients.openai_engine:create",
    },
    group="habitus.engines",
)
"""A factory takes (model, ScorerOptions) and returns a `habitus.clients.engine.Engine`."""

_SERVER = (
    *("base_url", "api_key_env", "concurrency", "budget_tokens", "cache", "context", "no_system"),
)

OPTIONS: dict[str, tuple[str, ...]] = {
    "embedded": ("context", "threads", "template", "no_system"),
    "openai": _SERVER,
    "transformers": (
        *("context", "threads", "template", "no_system", "revision", "trust_remote_code"),
        *("dtype", "device", "batch_tokens"),
    ),
    "vllm": _SERVER,
}
"""Options that each engine reads. Engines of other packages may read any."""

DEFAULT = "embedded"
"""The engine when none is named."""


def check_options(kind: str, engine: str, options: ScorerOptions, others: tuple[str, ...]) -> None:
    """Refuse options that neither the engine nor its user reads.

    Args:
        kind: What the options were given to, for the message.
        engine: The engine's name.
        options: The options.
        others: Names of options that apply whatever the engine.

    Raises:
        UnknownNameError: When there is no such engine.
        InputError: Naming an option that does not apply.
    """
    if engine not in ENGINES.targets():
        ENGINES.get(engine)
    if engine in OPTIONS:
        refuse_options(kind, options, (*OPTIONS[engine], *others))


def start(engine: str, model: str, options: ScorerOptions) -> Engine:
    """Start an engine.

    Args:
        engine: Its name.
        model: The model's name, as that engine knows it.
        options: Options of the command line.

    Raises:
        UnknownNameError: When there is no such engine or model.
        HabitusError: When the model cannot be had.
    """
    started: Engine = ENGINES.get(engine)(model, options)
    return started
