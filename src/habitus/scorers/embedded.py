"""The embedded judge: a judge on llama.cpp in this process, for machines without a GPU.

`embedded:NAME` is `judge:NAME` with the engine "embedded". A small judge picks "A" nearly always,
whatever "A" is, so the default is listwise over all rotations (see `judge_modes`).
"""

from __future__ import annotations

from habitus.clients import weights
from habitus.scorers import ModelEntry, ScorerOptions, engines
from habitus.scorers.judge import Judge, build
from habitus.scorers.judge_settings import MODES, OPTIONS

ENGINE = "embedded"
"""Name of the engine, and of the kind."""


def create(model: str, options: ScorerOptions) -> Judge:
    """Load an embedded judge.

    Args:
        model: A known name, the path of a GGUF file, or nothing for the default; then +PATH.gguf
            for a LoRA adapter over it.
        options: Those of judges and of the embedded engine apply.

    Raises:
        UnknownNameError: When the model or the mode is not known.
        ModelError: When the weights cannot be had or loaded.
        InputError: When an option or the prompt file is wrong.
    """
    engines.check_options(ENGINE, ENGINE, options, OPTIONS)
    return build(model, options, kind=ENGINE, engine=ENGINE)


def entries() -> list[ModelEntry]:
    """Return the embedded models for `habitus models`."""
    known = []
    for entry in weights.KNOWN.values():
        cached = weights.cached_path(entry).is_file()
        state = "cached" if cached else f"{entry.size / 1e6:.0f} MB to download"
        name = f"embedded:{entry.name}"
        default = " (the default: plain `embedded`)" if entry.name == weights.DEFAULT else ""
        known.append(ModelEntry(name, entry.description + default, entry.licence, state))
    text = f"any GGUF file as a judge; modes {', '.join(MODES)}"
    adapted = "the same with a LoRA adapter, such as one of habitus export"
    return [
        *known,
        ModelEntry("embedded:PATH.gguf", text),
        ModelEntry("embedded:MODEL+ADAPTER.gguf", adapted),
    ]
