"""How many tokens a pair has for a model that is to learn from it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from habitus.errors import InputError, MissingExtraError
from habitus.types import PreferencePair

FILE = "tokenizer.json"


def token_counter(tokenizer: Path) -> Callable[[PreferencePair], int]:
    """Return what counts the tokens of a pair: of its prompt and of both responses.

    A model's chat template and instruction come on top of them.

    Args:
        tokenizer: A `tokenizer.json`, or a folder that holds one.

    Raises:
        InputError: When there is none, or it is broken.
        MissingExtraError: When the package tokenizers is not installed.
    """
    file = tokenizer / FILE if tokenizer.is_dir() else tokenizer
    if not file.is_file():
        raise InputError(f"no {FILE} at {tokenizer}; give the model's folder with --tokenizer")
    if importlib.util.find_spec("tokenizers") is None:
        raise MissingExtraError("--max-tokens", "hf")
    try:
        loaded: Any = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        raise InputError(f"{file} is no tokenizer: {' '.join(str(error).split())}") from error
    loaded.no_truncation()  # a tokenizer's file may ask for either
    loaded.no_padding()
    sizes: dict[str, int] = {}

    def size(text: str) -> int:
        if text not in sizes:
            sizes[text] = len(loaded.encode(text, add_special_tokens=False).ids)
        return sizes[text]

    def count(pair: PreferencePair) -> int:
        return (
            sum(size(turn.content) for turn in pair.prompt)
            + size(pair.chosen)
            + size(pair.rejected)
        )

    return count
