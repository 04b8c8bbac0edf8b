"""Read a run folder's items and judgements into tables, quickly and in bounded memory.

Lines are parsed in blocks by polars with an explicit schema that names only the needed keys;
everything else in a line, `scores` with its ever-different keys among it, is skipped. Each block
is reduced to short columns before the next one is read, so a million lines of a kilobyte never
lie in memory at once.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from habitus.errors import InputError
from habitus.types import Status

BLOCK_BYTES = 8 << 20
"""Bytes that are parsed at a time; parsed text needs a few times as much memory."""

_WORKERS = 3  # blocks parsed at once: polars' own threads leave gaps that these fill

GROUP_KEYS = ("culture", "country", "language", "domain", "source")
"""The item's own columns that figures are grouped by."""

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

_ITEM_SCHEMA: Schema = {
    "id": pl.String,
    "prompt": pl.String,  # only hashed; polars keeps the JSON of a nested value as text
    "candidates": pl.List(pl.Struct({"id": pl.String, "text": pl.String})),
    "best_ids": pl.List(pl.String),
    **dict.fromkeys(GROUP_KEYS, pl.String),
    "parent_id": pl.String,
}

_JUDGEMENT_SCHEMA: Schema = {
    "item_id": pl.String,
    "status": pl.String,
    "winner_ids": pl.List(pl.String),
    "passes": pl.List(
        pl.Struct({"order": pl.List(pl.String), "pick": pl.Int64, "mass": pl.Float64})
    ),
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "seconds": pl.Float64,
}

ITEM_COLUMNS: Schema = {
    "item_id": pl.String,
    **dict.fromkeys(GROUP_KEYS, pl.String),
    "parent": pl.String,
    "best_ids": pl.List(pl.String),
    "candidate_ids": pl.List(pl.String),
    "n_candidates": pl.Int64,
    "chance": pl.Float64,
    "longest_credit": pl.Float64,
    "shortest_credit": pl.Float64,
    "content": pl.UInt64,
}
"""Columns of `read_items`."""

JUDGEMENT_COLUMNS: Schema = {
    "item_id": pl.String,
    "status": pl.String,
    "winner_ids": pl.List(pl.String),
    "picks": pl.List(pl.String),
    "positions": pl.List(pl.Int64),
    "n_shown": pl.Int64,
    "looked_again": pl.Boolean,
    "flipped": pl.Boolean,
    "mass": pl.Float64,
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "seconds": pl.Float64,
}
"""Columns of `read_judgements`."""

LONGEST_COLUMNS: Schema = {"item_id": pl.String, "longest_ids": pl.List(pl.String)}
"""Columns of `read_longest`."""


def read_items(path: Path) -> pl.DataFrame:
    """Read `items.jsonl`.

    Args:
        path: The file, one `habitus.types.Item` a line.

    Returns:
        One row per item in the file's order: `item_id`; `culture`, `country`, `language`,
        `domain`, `source` (null where not given); `parent` (the parent's id, or the item's own);
        `best_ids` and `candidate_ids` (lists); `n_candidates`; `chance`, the probability that a
        random pick is right; `longest_credit` and `shortest_credit`, what picking the candidate
        with most or fewest characters earns (1/k of it for each right one among k equals); and
        `content`, a hash of prompt, candidates and best ids, comparable within one process.

    Raises:
        InputError: When the file cannot be read, or a line is no valid item, or an id is repeated.
    """
    table = _read(path, _ITEM_SCHEMA, ITEM_COLUMNS, _check_items, _reduce_items, torn=False)
    repeated = table["item_id"].is_duplicated()
    if repeated.any():
        name = table["item_id"].filter(repeated)[0]
        raise InputError(f"{path}: several items have the id {name!r}; keep one of them")
    return table


def read_longest(path: Path) -> pl.DataFrame:
    """Read which candidates of each item of `items.jsonl` have most characters.

    Args:
        path: The file, as of `read_items`.

    Returns:
        One row per item in the file's order: `item_id` and `longest_ids`, several when equal.

    Raises:
        InputError: When the file cannot be read or a line is no valid item.
    """
    return _read(path, _ITEM_SCHEMA, LONGEST_COLUMNS, _check_items, _reduce_longest, torn=False)


def read_judgements(path: Path) -> pl.DataFrame:
    """Read `judgements.jsonl`.

    Args:
        path: The file, one `habitus.types.Judgement` a line. A last line without a line end was
            torn by a kill and is left out, as when the run is resumed.

    Returns:
        One row per judgement in the file's order: `item_id`, `status`, `winner_ids`; of the passes
        that show several candidates: `picks` and `positions`, the candidate id picked in each and
        where it stood (0 is letter A), `n_shown`, the most candidates shown, `looked_again`,
        whether the same candidates were seen more than once, and `flipped`, whether the pick among
        them then changed; `mass`, the mean over passes of the probability on any letter (null
        where not recorded); `prompt_tokens`, `completion_tokens`, `seconds`.

    Raises:
        InputError: When the file cannot be read, or a line is no valid judgement, or an item has
            several.
    """
    table = _read(
        path,
        _JUDGEMENT_SCHEMA,
        JUDGEMENT_COLUMNS,
        _check_judgements,
        _reduce_judgements,
        torn=True,
    )
    repeated = table["item_id"].is_duplicated()
    if repeated.any():
        name = table["item_id"].filter(repeated)[0]
        raise InputError(f"{path}: several judgements of item {name!r}; keep one of them")
    return table


def _read(
    path: Path,
    schema: Schema,
    columns: Schema,
    check: Callable[[pl.DataFrame], Iterator[tuple[pl.Series, str]]],
    reduce: Callable[[pl.DataFrame], pl.DataFrame],
    *,
    torn: bool,
) -> pl.DataFrame:
    """Parse, check and reduce `path` block by block.

    Args:
        path: The file.
        schema: The keys to parse.
        columns: The columns of the result.
        check: Yields a boolean series that is true where a row is wrong, and what is wrong.
        reduce: Makes the result's columns of a block.
        torn: Whether a last line without a line end is left out.
    """

    def parse(start: int, block: bytes) -> pl.DataFrame:
        try:
            frame = pl.read_ndjson(block, schema=dict(schema))
        except pl.exceptions.PolarsError as error:
            raise _unreadable(path, start, block, schema, str(error)) from error
        for wrong, message in check(frame):
            row = wrong.fill_null(True).arg_true().head(1)
            if len(row):
                line = _line_of_row(path, start, block, row.item())
                raise InputError(f"{path}, line {line}: {message}")
        return reduce(frame).select(list(columns))

    parts = [pl.DataFrame(schema=dict(columns))]
    pending: deque[Future[pl.DataFrame]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for start, block in _blocks(path, torn):
            pending.append(pool.submit(parse, start, block))
            if len(pending) > _WORKERS:
                parts.append(pending.popleft().result())
        parts += [future.result() for future in pending]
    return pl.concat(parts).rechunk()


def _blocks(path: Path, torn: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the file in blocks of whole lines, each with the offset of its first byte.

    Args:
        path: The file.
        torn: A last line without a line end was cut off by a kill; leave it out.
    """
    start = 0
    rest = b""
    try:
        with Path(path).open("rb") as file:
            while data := file.read(BLOCK_BYTES):
                end = data.rfind(b"\n") + 1
                block, rest = (rest + data[:end], data[end:]) if end else (b"", rest + data)
                if block.strip():
                    yield start, block
                start += len(block)
            if rest.strip() and not torn:
                yield start, rest
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _first_line(path: Path, start: int) -> int:
    """Return the number of the line that begins at byte `start`; only errors need it."""
    with Path(path).open("rb") as file:
        return 1 + sum(
            file.read(min(BLOCK_BYTES, start - done)).count(b"\n")
            for done in range(0, start, BLOCK_BYTES)
        )


def _line_of_row(path: Path, start: int, block: bytes, row: int) -> int:
    """Return the number of the line that holds a block's `row`, blank lines not being rows."""
    filled = [index for index, line in enumerate(block.split(b"\n")) if line.strip()]
    return _first_line(path, start) + filled[row]


def _unreadable(path: Path, start: int, block: bytes, schema: Schema, reason: str) -> InputError:
    """Find the first line of `block` that cannot be parsed and say so."""
    for number, line in enumerate(block.split(b"\n"), _first_line(path, start)):
        if not line.strip():
            continue
        try:
            pl.read_ndjson(line, schema=dict(schema))
        except pl.exceptions.PolarsError as error:
            reason = " ".join(str(error).split())
            return InputError(
                f"{path}, line {number}: not the expected JSON object ({reason}); "
                "mend or remove this line"
            )
    return InputError(f"{path}: not JSON lines ({' '.join(reason.split())}); one object a line")


def _check_items(frame: pl.DataFrame) -> Iterator[tuple[pl.Series, str]]:
    """Yield what can be wrong with items, as far as figures depend on it."""
    yield frame["id"].is_null(), "item without id; give it one"
    ids = pl.col("candidates").list.eval(pl.element().struct.field("id"))
    texts = pl.col("candidates").list.eval(pl.element().struct.field("text"))
    has_null = pl.element().is_null().any()
    facts = frame.select(
        few=pl.col("candidates").list.len() < 2,
        nameless=ids.list.agg(has_null) | texts.list.agg(has_null),
        repeated=ids.list.n_unique() < ids.list.len(),
        no_best=pl.col("best_ids").list.len() == 0,
        unknown=pl.col("best_ids").list.set_difference(ids).list.len() > 0,
        all_best=pl.col("best_ids").list.n_unique() >= pl.col("candidates").list.len(),
    )
    yield facts["few"], "candidates has fewer than two entries; nothing can be chosen"
    yield facts["nameless"], "a candidate has no id or no text; give it both"
    yield facts["repeated"], "candidate ids are not unique; rename one"
    yield facts["no_best"], "best_ids is empty or missing; name the right candidates"
    yield facts["unknown"], "best_ids names no candidate; use the candidates' ids"
    yield facts["all_best"], "every candidate is in best_ids, so nothing can be measured"


def _reduce_items(frame: pl.DataFrame) -> pl.DataFrame:
    """Make the columns of `read_items` of a block."""
    flat = frame.select("best_ids", "candidates").explode("candidates").unnest("candidates")
    flat = flat.with_columns(best=pl.col("id").is_in(pl.col("best_ids"))).select(
        "best",
        length=pl.col("text").str.len_chars(),
        content=pl.struct("id", "text", "best").hash(),
    )
    best = flat["best"].to_numpy().astype(np.int64)
    length = flat["length"].to_numpy()
    sizes = frame["candidates"].list.len().to_numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def credit(extreme: np.ufunc) -> npt.NDArray[np.float64]:
        chosen = (length == np.repeat(extreme.reduceat(length, starts), sizes)).astype(np.int64)
        right = np.add.reduceat(chosen * best, starts)
        return np.asarray(right / np.add.reduceat(chosen, starts), dtype=np.float64)

    # The sum wraps around and does not depend on the candidates' order, which no scorer sees.
    content = np.add.reduceat(flat["content"].to_numpy(), starts)
    return frame.select(
        pl.col("id").alias("item_id"),
        *GROUP_KEYS,
        pl.coalesce("parent_id", "id").alias("parent"),
        "best_ids",
        candidate_ids=pl.col("candidates").list.eval(pl.element().struct.field("id")),
        content=pl.col("prompt").hash() ^ pl.lit(pl.Series(content)),
        n_candidates=pl.lit(pl.Series(sizes)),
        chance=pl.lit(pl.Series(np.add.reduceat(best, starts) / sizes)),
        longest_credit=pl.lit(pl.Series(credit(np.maximum))),
        shortest_credit=pl.lit(pl.Series(credit(np.minimum))),
    )


def _reduce_longest(frame: pl.DataFrame) -> pl.DataFrame:
    """Make the columns of `read_longest` of a block."""
    field = pl.element().struct.field
    length = field("text").str.len_chars()
    longest = pl.element().filter(length == length.max()).struct.field("id")
    return frame.select(
        item_id="id", longest_ids=pl.col("candidates").list.eval(longest).list.unique()
    )


def _check_judgements(frame: pl.DataFrame) -> Iterator[tuple[pl.Series, str]]:
    """Yield what can be wrong with judgements, as far as figures depend on it."""
    yield frame["item_id"].is_null(), "judgement without item_id; remove this line"
    known = [str(status) for status in Status]
    yield ~frame["status"].is_in(known), f"status is none of {', '.join(known)}"
    judged = [str(status) for status in Status if status.judged]
    winners = pl.col("winner_ids").list.len().fill_null(0)
    facts = frame.select(
        wrong=pl.col("status").is_in(judged) != (winners > 0),
        picks=pl.col("passes")
        .list.eval(
            (pl.element().struct.field("pick") < 0)
            | (pl.element().struct.field("pick") >= pl.element().struct.field("order").list.len())
        )
        .list.any()
        .fill_null(False),
    )
    yield facts["wrong"], "winner_ids must be given exactly when status is ok or tie"
    yield facts["picks"], "a pass's pick is no position of its order"


def _reduce_judgements(frame: pl.DataFrame) -> pl.DataFrame:
    """Make the columns of `read_judgements` of a block."""
    look = pl.element().struct
    several = look.field("order").list.len() > 1
    each = functools.partial(pl.col("passes").list.eval)
    pick = look.field("order").list.get(look.field("pick"))
    seen = look.field("order").list.sort().list.join("\x00")  # one text for each set of candidates
    sets = each(seen.filter(several)).list.n_unique()
    picked = each(pl.concat_str(seen, pick, separator="\x01").filter(several)).list.n_unique()
    return frame.select(
        "item_id",
        "status",
        pl.col("winner_ids").fill_null([]),
        each(pick.filter(several)).fill_null([]).alias("picks"),
        each(look.field("pick").filter(several)).fill_null([]).alias("positions"),
        each(look.field("order").list.len()).list.max().cast(pl.Int64).alias("n_shown"),
        (each(several).list.sum() > sets).fill_null(False).alias("looked_again"),
        (picked > sets).fill_null(False).alias("flipped"),
        each(look.field("mass")).list.mean().alias("mass"),
        "prompt_tokens",
        "completion_tokens",
        "seconds",
    )
