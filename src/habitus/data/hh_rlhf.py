"""hh-rlhf (Bai et al. 2022): which of two replies people found more harmless or helpful."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from habitus.data.fields import require
from habitus.data.generic import COLUMNS, read_row
from habitus.data.source import Place, Source
from habitus.types import Item, digest

SUBSETS = {
    "harmless-base": "safety",
    "helpful-base": "helpfulness",
    "helpful-online": "helpfulness",
    "helpful-rejection-sampled": "helpfulness",
}
"""The folders of the published data, and the domain of each."""


def subset(file: Path) -> str | None:
    """Return which of the published folders a file lies in, the innermost first."""
    return next((part for part in reversed(file.parts[:-1]) if part in SUBSETS), None)


def read(source: Source) -> Iterator[tuple[Item, Place]]:
    r"""Read rows of two transcripts, "\n\nHuman: ...\n\nAssistant: ...", with a shared beginning.

    The shared turns are the prompt; the last ones are the candidates. What is left out is counted
    as in the generic format. Pairs on the same turns share `parent_id`. The domain comes from the
    published folder's name; it is None elsewhere.

    Raises:
        InputError: When a column is missing, or a text is no such transcript.
    """
    for row in source.rows():
        require(row, COLUMNS, "hh-rlhf")
        item = read_row(row, source)
        if item is None:
            continue
        part = subset(row.place.file.absolute())
        yield (
            item.model_copy(
                update={
                    "language": "en",
                    "domain": SUBSETS[part] if part else None,
                    "source": f"hh-rlhf:{part}" if part else "hh-rlhf",
                    "licence": "MIT",
                    "parent_id": digest([[turn.role, turn.content] for turn in item.prompt]),
                }
            ),
            row.place,
        )
