"""What writing in stages saves where one text of many does not end: the same texts, both ways.

    python benchmarks/writing_stages.py [--model FOLDER] [--device cuda] [--repeats 3]

32 questions are asked for one sentence of at most 400 tokens, as a judge is for its criteria: in
stages as the engine writes, and at once, in alternating order. Printed are seconds (the median),
tokens, how many texts the limit ended, and the ratio of stages to at once. Needs habitus[hf].
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import product

from habitus.clients import writing
from habitus.clients.engine import Request, Turn
from habitus.clients.transformers_engine import create
from habitus.prompts import Segment
from habitus.scorers import ScorerOptions

LIMIT = 400
"""Most tokens of a text, as of a judge's criteria."""
THINGS, VERBS = ("dish", "drink", "sport", "plant"), ("like", "know")
COUNTRIES = ("Mexico", "Spain", "Korea", "Algeria")


def requests() -> list[Request]:
    """Return the questions."""
    found = []
    for thing, verb, country in product(THINGS, VERBS, COUNTRIES):
        text = f"Name one {thing} that people {verb} in {country}. Answer in one sentence."
        found.append(Request("g", (Turn("user", (Segment(text, False),)),), max_tokens=LIMIT))
    return found


def main() -> None:
    """Print both ways' seconds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    engine = create(options.model, ScorerOptions(device=options.device))
    asked, ways = requests(), {"in stages": writing.STAGE, "at once": LIMIT}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    texts = {}
    for turn in range(1 + options.repeats):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            writing.STAGE = ways[name]
            start = time.perf_counter()
            replies = engine.execute(asked)
            seconds[name].append(time.perf_counter() - start)
            texts[name] = [reply.text for reply in replies]
    # what is recorded and loaded at first counts in neither
    found = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name, value in found.items():
        print(f"{name:<10} {value:8.2f} s")
    unfinished = sum(not reply.finished for reply in replies)
    tokens = sum(reply.completion_tokens for reply in replies)
    same = sum(map(str.__eq__, *texts.values()))
    print(
        f"{len(asked)} texts, {tokens:,} tokens, {unfinished} ended by the limit; {same} the same "
        f"both ways; ratio {found['in stages'] / found['at once']:.2f}"
    )


if __name__ == "__main__":
    main()
