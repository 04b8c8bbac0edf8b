"""Our overhead on llama.cpp: judging items against the bare engine on the same prompts.

    python benchmarks/embedded_overhead.py [--items 20]

For each item, in alternating order: (a) the embedded judge as `habitus evaluate` runs it, and
(b) xllamacpp alone, given the same token ids, asked for one token and no probabilities, with the
same reuse of prefixes. Prints the ratio of the summed times, and tokens per second of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from habitus.clients.embedded import EmbeddedModel
from habitus.clients.embedded_engine import EmbeddedEngine
from habitus.data import load, take
from habitus.scorers import resolve
from habitus.scorers.judge import Judge
from habitus.types import Item


def record_prompts(judge: Judge, model: EmbeddedModel, item: Item) -> list[dict[str, Any]]:
    """Return the requests that judging `item` sends to the engine."""
    sent: list[dict[str, Any]] = []
    complete = model._complete

    def spy(request: Mapping[str, Any]) -> Any:
        sent.append({"prompt": request["prompt"], "cache_prompt": request["cache_prompt"]})
        return complete(request)

    model._complete = spy  # type: ignore[method-assign]
    list(judge.judge([item], 0))
    model._complete = complete  # type: ignore[method-assign]
    return sent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=20)
    count = parser.parse_args().items
    items = take(load("carb-open:quick").items, count, 0)
    judge = resolve("embedded")
    assert isinstance(judge, Judge)
    assert isinstance(judge.engine, EmbeddedEngine)
    model = judge.engine.loaded
    requests = {item.id: record_prompts(judge, model, item) for item in items}
    ours = bare = 0.0
    for number, item in enumerate(items):
        for turn in ("ours", "bare") if number % 2 else ("bare", "ours"):
            start = time.perf_counter()
            if turn == "ours":
                list(judge.judge([item], 0))
                ours += time.perf_counter() - start
            else:
                for request in requests[item.id]:
                    model._server.handle_completions(request | {"n_predict": 1})
                bare += time.perf_counter() - start
    tokens = sum(len(request["prompt"]) for sent in requests.values() for request in sent)
    print(f"items {len(items)}, passes {sum(map(len, requests.values()))}, tokens {tokens}")
    print(f"ours {ours:.1f} s ({tokens / ours:.0f} tokens/s)")
    print(f"bare {bare:.1f} s ({tokens / bare:.0f} tokens/s)")
    print(f"overhead ratio {ours / bare:.3f}")
    judge.close()


if __name__ == "__main__":
    main()
