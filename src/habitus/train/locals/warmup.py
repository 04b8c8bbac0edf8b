"""Warm-up, first part: criteria by rejection sampling.

For each pair and order criteria are sampled from the model as it is. Kept are those after which the
right verdict is likelier than without them in both orders, the one that they were written for and
the other: what helps in one order only has learned a letter, not a place.

A model that was never trained to judge says "A" whatever it reads, and the two prompts, with
criteria and without, differ in how strongly. Then no criteria help in both orders. Where a view has
none that do, those are kept that raise the log-odds of the right verdict on average over the orders,
where a liking for a letter cancels.

The others are of use too: a judge should judge well after whatever it writes, so the verdict after them is
learned, and they are not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.clients.engine import Engine, Request, answers
from habitus.store import write_json
from habitus.train.locals.prompting import Prompting, View
from habitus.train.locals.written import mended
from habitus.train.study import read_json, write_lines

SAMPLED = "criteria.jsonl"
PROGRESS = "sampled.json"


@dataclass(frozen=True)
class SamplingSettings:
    """How criteria are sampled."""

    samples: int = 8
    """Texts that are sampled for each pair and order."""
    keep: int = 2
    """At most so many of each are learned, the ones that help most."""
    temperature: float = 1.0
    """Sampling temperature."""
    gain: float = 0.0
    """Gains must be above this."""
    strict: bool = False
    """Keep only what helps in both orders."""
    chunk: int = 16
    """Views that are sampled together, and at most lost by a kill."""


@dataclass(frozen=True)
class Sampled:
    """Criteria that were sampled."""

    pair: str
    """The pair."""
    view: str
    """Name of the view that they were written for."""
    criteria: str
    """From `<criteria>` to `</criteria>`."""
    gain: float | None
    """Rise of the right verdict's log-probability, in the order where it is smaller; where
    criteria do not help in both, the mean rise of its log-odds; None where they do not help."""
    both: bool = True
    """Whether they help in both orders."""
    kept: bool = True
    """Whether they are learned; only the verdict after the others is."""


def sample_criteria(
    engine: Engine,
    prompting: Prompting,
    views: Sequence[View],
    folder: Path,
    settings: SamplingSettings,
    *,
    deadline: float | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> list[Sampled] | None:
    """Sample criteria for views and see which help; goes on where it was stopped.

    Args:
        engine: The model.
        prompting: Makes the judge's requests.
        views: What to sample for.
        folder: Where `criteria.jsonl` goes.
        settings: How.
        deadline: `time.monotonic()` after which no chunk but the first is begun; None is never.
        advance: Called with the number of views just done.

    Returns:
        All criteria, or None where time ran out first.
    """
    done, sampled = _before(folder)
    begun = done
    advance(done)
    while done < len(views):
        if deadline is not None and time.monotonic() > deadline and done > begun:
            return None
        chunk = views[done : done + settings.chunk]
        for found in _sampled(engine, prompting, chunk, settings):
            sampled += found
        done += len(chunk)
        # the lines first: a count without its lines would lose them
        write_lines(folder / SAMPLED, [vars(each) for each in sampled])
        counts = {"views": done, "sampled": done * settings.samples, **tally(sampled)}
        write_json(folder / PROGRESS, counts)
        advance(len(chunk))
    return sampled


def tally(sampled: Sequence[Sampled]) -> dict[str, int]:
    """Return how many criteria there are, how many are kept, and how many of these help in both orders."""
    kept = [each for each in sampled if each.kept]
    return {
        "criteria": len(sampled),
        "kept": len(kept),
        "both": sum(each.both for each in kept),
    }


def _before(folder: Path) -> tuple[int, list[Sampled]]:
    found = read_json(folder / PROGRESS)
    if found is None or not (folder / SAMPLED).exists():
        return 0, []
    lines = (folder / SAMPLED).read_bytes().splitlines()
    return found["views"], [Sampled(**json.loads(line)) for line in lines[: found["criteria"]]]


def _sampled(
    engine: Engine, prompting: Prompting, views: Sequence[View], settings: SamplingSettings
) -> Iterator[list[Sampled]]:
    """Yield the criteria of each view, those that are kept first."""
    asked = [
        (view, prompting.criteria_request(view, vote=vote, temperature=settings.temperature))
        for view in views
        for vote in range(settings.samples)
    ]
    replies = answers(engine, [request for _, request in asked])
    texts: dict[str, list[str]] = {view.key: [] for view in views}
    for (view, request), reply in zip(asked, replies, strict=True):
        if reply.status is None:
            found = mended(request.answer + (reply.text or ""))
            if found is not None and found not in texts[view.key]:
                texts[view.key].append(found)
    scored = [(view, text) for view in views for text in texts[view.key]]
    own = _right(engine, prompting, scored)
    other = _right(engine, prompting, [(view.swapped, text) for view, text in scored])
    plain = _right(engine, prompting, [(view, None) for view in views])
    plain_other = _right(engine, prompting, [(view.swapped, None) for view in views])
    bases = {
        v.key: pair for v, pair in zip(views, zip(plain, plain_other, strict=True), strict=True)
    }
    found_of: dict[str, list[Sampled]] = {view.key: [] for view in views}
    for (view, text), *after in zip(scored, own, other, strict=True):
        gain, both = _gain(after, bases[view.key], settings) or (None, False)
        each = Sampled(view.item.id, view.key, text, gain, both, kept=False)
        found_of[view.key].append(each)
    for view in views:
        every = sorted(
            found_of[view.key], key=lambda each: (not each.both, -(each.gain or 0), each.criteria)
        )
        helping = [each for each in every if each.gain is not None]
        best = ([each for each in helping if each.both] or helping)[: settings.keep]
        yield [replace(each, kept=each in best) for each in every]


def _gain(
    after: Sequence[float | None], before: Sequence[float | None], settings: SamplingSettings
) -> tuple[float, bool] | None:
    """Return by how much criteria help, and whether in both orders; None where they do not.

    Args:
        after: Log-probability of the right verdict after the criteria, in each order.
        before: The same without.
        settings: What counts.
    """
    pairs = [(a, b) for a, b in zip(after, before, strict=True) if a is not None and b is not None]
    if len(pairs) < len(before):
        return None
    least = round(min(a - b for a, b in pairs), 6)  # as many digits as the engine gives
    if least > settings.gain:
        return least, True
    mean = round(sum(_log_odds(a) - _log_odds(b) for a, b in pairs) / len(pairs), 6)
    return None if settings.strict or mean <= settings.gain else (mean, False)


def _log_odds(logprob: float) -> float:
    """Return log p / (1 - p); the engine's 6 digits bound it."""
    logprob = min(logprob, -1e-6)
    return logprob - math.log(-math.expm1(logprob))


def _right(
    engine: Engine, prompting: Prompting, asked: Sequence[tuple[View, str | None]]
) -> list[float | None]:
    """Return the log-probability of the right verdict, after criteria or without."""
    requests: list[Request] = []
    for view, text in asked:
        found = (
            prompting.plain_request(view) if text is None else prompting.verdict_request(view, text)
        )
        requests.append(found or prompting.stand_in_request(view, text or ""))
    replies = answers(engine, requests)
    return [
        None if reply.logprobs is None else reply.logprobs[view.right]
        for (view, _), reply in zip(asked, replies, strict=True)
    ]
