"""How a judge does on held-out pairs: the very judge of `--mode pairwise`, with and without criteria.

And after borrowed ones: criteria that it wrote about another question. A judge that uses what it
writes is better after its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from habitus.clients.engine import Engine, answers
from habitus.errors import InputError
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.locals_heldout import BY, figures
from habitus.scorers.judge import Judge
from habitus.train.locals.prompting import CHOSEN, REJECTED, Prompting, View, pair_item
from habitus.train.locals.written import OPENING
from habitus.types import Judgement, PreferencePair


def held_out_pairs(pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """Return the pairs of the part `test`, or all where none has a part.

    Raises:
        InputError: When all pairs are for training.
    """
    found = [pair for pair in pairs if pair.split == "test"]
    if not found and any(pair.split is not None for pair in pairs):
        raise InputError("no pair is of the part test; nothing held out can be measured")
    return found or list(pairs)


def evaluate_pairs(
    engine: Engine,
    pairs: Sequence[PreferencePair],
    *,
    translated: bool = False,
    max_tokens: int = 160,
    seed: int = 0,
    resamples: int = RESAMPLES,
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """Judge pairs in both orders, with criteria, without and after borrowed ones.

    Borrowed criteria are those that the judge wrote about a pair of another group: one of the same
    source, language and country where there is one, drawn from the seed. Whether they were written
    in the same order or the other one is drawn too, so that a letter that they give away is right
    by chance. The engine stays open.

    Args:
        engine: The model.
        pairs: Held-out pairs.
        translated: Instruct in the pair's language, where there is a prompt in it.
        max_tokens: Most tokens of criteria; they are written greedily.
        seed: Seed of the bootstrap.
        resamples: Number of its replicates.
        advance: Called with the number of judgements just made, three for each pair.

    Returns:
        `pairs` (one record each: the two orders' log-probability of the right letter, after
        `criteria`, `plain` and after `borrowed` ones, and the texts), and `figures`: lists of
        {name, criteria ("with", "without" or "borrowed"), value, n, n_excluded, ci_low, ci_high,
        group}. Intervals are 95 %, over groups of pairs. `accuracy`:
        the right response has the higher probability over both orders, a tie counts one half;
        `both_orders`: it has in each order; `p_a`: looks that favour the first response; `r_appr`:
        mean over orders of log p(right | criteria) - log p(right), not clipped.
    """
    prompting = Prompting(translated=translated, max_tokens=max_tokens, seed=seed)
    found: dict[bool, dict[str, Judgement]] = {}
    for criteria in (True, False):
        settings, prompts = prompting.settings(criteria), prompting.prompts(criteria)
        judge = Judge(engine, settings, prompts, item_language=translated)
        found[criteria] = {}
        for judgement in judge.judge([pair_item(pair) for pair in pairs], seed):
            found[criteria][judgement.item_id] = judgement
            advance(1)
    borrowed = _borrowed(engine, prompting, pairs, found[True], seed)
    advance(len(pairs))
    records = [
        _record(pair, found[True][pair.id], found[False][pair.id], borrowed[pair.id])
        for pair in pairs
    ]
    return {
        "n": len(pairs),
        "seed": seed,
        "figures": figures(records, seed=seed, resamples=resamples),
        "pairs": records,
    }


def _borrowed(
    engine: Engine,
    prompting: Prompting,
    pairs: Sequence[PreferencePair],
    written: dict[str, Judgement],
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Return the looks at each pair after the criteria of another."""
    texts = {pair.id: _texts(written[pair.id]) for pair in pairs}
    lenders = _lenders([pair for pair in pairs if texts[pair.id]], seed)
    turned = {name: _draw(seed, name) < 0.5 for name in lenders}
    asked = [
        (pair.id, order, request)
        for pair in pairs
        if pair.id in lenders
        for order, shown in enumerate(((CHOSEN, REJECTED), (REJECTED, CHOSEN)))
        for text in (texts[lenders[pair.id]][1 - order if turned[pair.id] else order],)
        if (request := prompting.verdict_request(View(pair_item(pair), shown), text)) is not None
    ]
    replies = answers(engine, [request for _, _, request in asked])
    found: dict[str, list[float | None]] = {pair.id: [None, None] for pair in pairs}
    for (name, order, _), reply in zip(asked, replies, strict=True):
        if reply.logprobs is not None:
            found[name][order] = reply.logprobs[order]
    return {
        name: {
            "first": first if second is not None else None,
            "second": second if first is not None else None,
            "from": lenders.get(name),
            "turned": turned.get(name),
        }
        for name, (first, second) in found.items()
    }


def _texts(judgement: Judgement) -> list[str]:
    """Return the criteria with the right response shown first, and shown second.

    None where the judgement failed, or where they cannot be told apart.
    """
    texts = [OPENING + text.rstrip() for text in (judgement.raw or "").split(OPENING)[1:]]
    if not judgement.status.judged or len(texts) != len(judgement.passes):
        return []
    found = {
        look.order.index(CHOSEN): text for look, text in zip(judgement.passes, texts, strict=True)
    }
    return [found[0], found[1]]


def _lenders(pairs: Sequence[PreferencePair], seed: int) -> dict[str, str]:
    """Return whose criteria each pair borrows: those of a pair of another group, where there is one.

    Args:
        pairs: Pairs with criteria.
        seed: Seed of their order: each takes the next of its source, language and country, or of
            all where all of those are of its own group; after the last comes the first.
    """
    order = sorted(pairs, key=lambda pair: _draw(seed, f"{pair.id} lends"))
    blocks: dict[tuple[str | None, ...], list[PreferencePair]] = {}
    for pair in order:
        blocks.setdefault((pair.source, pair.language, pair.country), []).append(pair)
    places = {pair.id: place for place, pair in enumerate(order)}
    found = {}
    for block in blocks.values():
        for place, pair in enumerate(block):
            every = itertools.chain(_after(block, place), _after(order, places[pair.id]))
            lender = next((other for other in every if other.group != pair.group), None)
            if lender is not None:
                found[pair.id] = lender.id
    return found


def _after(pairs: Sequence[PreferencePair], place: int) -> Iterator[PreferencePair]:
    """Return all others, those behind a place first."""
    return itertools.chain(itertools.islice(pairs, place + 1, None), itertools.islice(pairs, place))


def _draw(seed: int, name: str) -> float:
    return random.Random(f"{seed} {name}").random()  # noqa: S311 - no secret


def _record(
    pair: PreferencePair, written: Judgement, plain: Judgement, borrowed: dict[str, Any]
) -> dict[str, Any]:
    return {
        "pair": pair.id,
        "group": pair.group,
        **{name: getattr(pair, name) for name in BY},
        "domain": pair.domain,
        "question": pair.prompt[-1].content,
        "criteria": _looks(written) | {"text": written.raw},
        "plain": _looks(plain),
        "borrowed": borrowed,
    }


def _looks(judgement: Judgement) -> dict[str, Any]:
    """Return the log-probability of the right letter, shown first and shown second."""
    if not judgement.status.judged:
        return {"first": None, "second": None, "status": judgement.status.value}
    own = {look.order.index(CHOSEN): look.scores for look in judgement.passes}
    return {"first": own[0][0], "second": own[1][1], "status": judgement.status.value}
