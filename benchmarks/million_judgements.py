"""Time and memory of metrics (and the report, where there is one) on a large synthetic run.

    python benchmarks/million_judgements.py --n 1000000
    python benchmarks/million_judgements.py --n 1000000 --cluster-size 4

Writes `items.jsonl` and `judgements.jsonl` with lines like real ones (four candidates, four
passes, 1 % failures) to a temporary folder, then reads and summarises them in a fresh process, so
that the peak resident memory is that of the metrics alone.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CULTURES = (
    ("Arabic", ("Egypt", "Morocco"), "ar", "Arabic", "Afro-Asiatic", "5"),
    ("Chinese", ("China", "Taiwan"), "zh-Hans", "Han", "Sino-Tibetan", "5"),
    ("English", ("United States", "Ireland"), "en", "Latin", "Indo-European", "5"),
    ("German", ("Germany", "Austria"), "de", "Latin", "Indo-European", "5"),
    ("Japanese", ("Japan",), "ja", "Japanese", "Japonic", "5"),
    ("Korean", ("South Korea",), "ko", "Hangul", "Koreanic", "4"),
    ("Russian", ("Russia", "Kazakhstan"), "ru", "Cyrillic", "Indo-European", "4"),
    ("Spanish", ("Mexico", "Spain", "Argentina"), "es", "Latin", "Indo-European", "5"),
    ("Thai", ("Thailand",), "th", "Thai", "Kra-Dai", "3"),
    ("Vietnamese", ("Vietnam",), "vi", "Latin", "Austroasiatic", "4"),
)
DOMAINS = ("commonsense", "values", "safety", "linguistics")
SOURCES = ("carb-open", "imported-a", "imported-b")
WORDS = (
    "guests",
    "tea",
    "before",
    "elders",
    "market",
    "gift",
    "wedding",
    "ข้าวเหนียว",
    "выходной",
    "お年玉",
    "عيد مبارك",
    "neighbour",
    "shoes",
    "school",
    "festival",
    "family",
)
IDS = ("a", "b", "c", "d")


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _item_body(rng: random.Random) -> str:
    """Return an item's line without its opening brace, id and parent."""
    culture, countries, language, *_ = rng.choice(CULTURES)
    body = {
        "prompt": [{"role": "user", "content": _text(rng, 14)}],
        "candidates": [
            {
                "id": name,
                "text": _text(rng, rng.randint(6, 9)),
                "source_model": "synthetic",
                "culture": culture,
                "note": None,
            }
            for name in IDS
        ],
        "best_ids": ["a"],
        "culture": culture,
        "country": rng.choice(countries),
        "language": language,
        "domain": rng.choice(DOMAINS),
        "source": rng.choice(SOURCES),
        "licence": "CC-BY-4.0",
        "references": [{"fact": _text(rng, 10), "title": _text(rng, 4), "publisher": "synthetic"}],
        "reason": _text(rng, 10),
        "author": "language-model",
        "human_validated": False,
    }
    return json.dumps(body, ensure_ascii=False)[1:]


def _judgement_body(rng: random.Random) -> str:
    """Return a judgement's line without its opening brace and item id."""
    head: dict[str, Any] = {
        "unit": f"{rng.getrandbits(64):016x}",
        "scorer": "0123456789abcdef",
        "seed": 0,
    }
    tail: dict[str, Any] = {
        "prompt_tokens": rng.randint(300, 900),
        "completion_tokens": 4,
        "seconds": rng.random(),
    }
    if rng.random() < 0.01:
        failed: dict[str, Any] = {
            "status": rng.choice(("truncated", "error")),
            "scores": {},
            "winner_ids": [],
        }
        failed |= {"order": list(IDS), "passes": [], "raw": None, "error": "too long"}
        return json.dumps(head | failed | tail)[1:]
    passes: list[dict[str, Any]] = []
    for shift in range(4):
        order = IDS[shift:] + IDS[:shift]
        scores = [round(rng.gauss(0.7 if name == "a" else 0.0, 1.0), 4) - 3 for name in order]
        pick = max(range(4), key=scores.__getitem__)
        mass = round(0.9 + rng.random() / 10, 6)
        passes.append({"order": list(order), "scores": scores, "pick": pick, "mass": mass})
    means = {
        name: sum(look["scores"][look["order"].index(name)] for look in passes) / 4 for name in IDS
    }
    if rng.random() < 0.02:
        means["b"] = means["c"] = max(means.values())
    best = max(means.values())
    winners = [name for name, score in means.items() if score == best]
    judged: dict[str, Any] = {"status": "tie" if len(winners) > 1 else "ok", "scores": means}
    judged |= {"winner_ids": winners, "order": list(IDS), "passes": passes}
    return json.dumps(head | judged | {"raw": None, "error": None} | tail)[1:]


def write_run(folder: Path, n: int, cluster_size: int, seed: int = 0) -> None:
    """Write a synthetic run.

    Args:
        folder: Where `items.jsonl` and `judgements.jsonl` go.
        n: Number of items, each with one judgement.
        cluster_size: How many items in a row share a parent.
        seed: Seed of the synthetic content.
    """
    rng = random.Random(seed)
    items = [_item_body(rng) for _ in range(5000)]
    judgements = [_judgement_body(rng) for _ in range(5000)]
    with (
        (folder / "items.jsonl").open("w", encoding="utf-8") as item_file,
        (folder / "judgements.jsonl").open("w", encoding="utf-8") as judgement_file,
    ):
        for index in range(n):
            name = f"synthetic-{index:07d}"
            parent = f'"parent_id": "family-{index // cluster_size}", ' if cluster_size > 1 else ""
            item_file.write(f'{{"id": "{name}", {parent}{rng.choice(items)}\n')
            judgement_file.write(f'{{"item_id": "{name}", {rng.choice(judgements)}\n')


def _write_run_json(folder: Path, n: int) -> None:
    """Write the `run.json` that a report reads."""
    from habitus.types import RunInfo, ScorerSpec

    info = RunInfo(
        id=folder.name,
        config={"benchmark": "synthetic", "scorer": "baseline:synthetic"},
        scorer=ScorerSpec(kind="baseline", model="synthetic"),
        seed=0,
        n_items=n,
        versions={"habitus": "synthetic"},
        started="2026-01-01T00:00:00Z",
    )
    (folder / "run.json").write_text(info.model_dump_json(indent=2), encoding="utf-8")


def measure(folder: Path, n: int) -> None:
    """Do what `habitus report` does with the run in `folder`, and print what each step costs."""
    from habitus.evaluate.summary import write_metrics
    from habitus.report import write_report
    from habitus.store import REPORT, RunFolder

    start = time.perf_counter()

    def lap(step: str) -> None:
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        cpu = time.process_time()
        print(f"{step:<24}{seconds:8.1f} s {cpu:8.1f} s of CPU {peak:8.2f} GiB peak", flush=True)

    _write_run_json(folder, n)
    run = RunFolder(folder)
    figures = write_metrics(run)
    lap("metrics")
    write_report(run, figures)
    lap("report")
    print(f"report.html: {(folder / REPORT).stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Write a synthetic run, then measure it in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000, help="number of judgements")
    parser.add_argument("--cluster-size", type=int, default=1, help="items that share a parent")
    parser.add_argument("--folder", type=Path, help="measure this folder instead of writing one")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        measure(arguments.folder, arguments.n)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, arguments.n, arguments.cluster_size)
        for path in sorted(folder.iterdir()):
            size = path.stat().st_size
            print(f"{path.name}: {size / 2**20:.0f} MiB, {size / arguments.n:.0f} bytes a line")
        command = [sys.executable, __file__, "--n", str(arguments.n), "--folder", name]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
