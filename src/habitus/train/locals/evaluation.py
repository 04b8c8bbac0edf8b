"""How a judge does on held-out pairs: the very judge of `--mode pairwise`, with and without criteria."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from habitus.clients.engine import Engine
from habitus.errors import InputError
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.locals_heldout import BY, figures
from habitus.scorers.judge import Judge
from habitus.train.locals.prompting import CHOSEN, Prompting, pair_item
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
    """Judge pairs in both orders, with criteria and without; the engine stays open.

    Args:
        engine: The model.
        pairs: Held-out pairs.
        translated: Instruct in the pair's language, where there is a prompt in it.
        max_tokens: Most tokens of criteria; they are written greedily.
        seed: Seed of the bootstrap.
        resamples: Number of its replicates.
        advance: Called with the number of judgements just made, two for each pair.

    Returns:
        `pairs` (one record each: the two orders' log-probability of the right letter, with criteria
        and without, and the texts), and `figures`: lists of {name, criteria, value, n,
        n_excluded, ci_low, ci_high, group}. Intervals are 95 %, over groups of pairs. `accuracy`:
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
    records = [_record(pair, found[True][pair.id], found[False][pair.id]) for pair in pairs]
    return {
        "n": len(pairs),
        "seed": seed,
        "figures": figures(records, seed=seed, resamples=resamples),
        "pairs": records,
    }


def _record(pair: PreferencePair, written: Judgement, plain: Judgement) -> dict[str, Any]:
    return {
        "pair": pair.id,
        "group": pair.group,
        **{name: getattr(pair, name) for name in BY},
        "domain": pair.domain,
        "question": pair.prompt[-1].content,
        "criteria": _looks(written) | {"text": written.raw},
        "plain": _looks(plain),
    }


def _looks(judgement: Judgement) -> dict[str, Any]:
    """Return the log-probability of the right letter, shown first and shown second."""
    if not judgement.status.judged:
        return {"first": None, "second": None, "status": judgement.status.value}
    own = {look.order.index(CHOSEN): look.scores for look in judgement.passes}
    return {"first": own[0][0], "second": own[1][1], "status": judgement.status.value}
