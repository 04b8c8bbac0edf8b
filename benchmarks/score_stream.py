"""Rows per second and peak memory of `habitus score` on many rows.

    python benchmarks/score_stream.py --n 1000000

Writes JSONL rows (a prompt, a response, an id and a column that nothing reads; 400 bytes on the
average) to a temporary folder. Then, each in a fresh process: a bare `for line: json.loads` loop,
`habitus score` with baseline:longest, which costs nothing itself, and the bare loop again. So what
is measured is all that is done around a reward model: reading, checking, encoding, writing. The
ratio is to the faster of the two loops.
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

WORDS = ("guests", "tea", "before", "elders", "market", "ข้าวเหนียว", "выходной", "お年玉", "عيد")


def write_rows(path: Path, n: int, seed: int = 0) -> None:
    """Write `n` rows of texts of many lengths."""
    rng = random.Random(seed)

    def text(low: int, high: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))

    bodies = [
        json.dumps(
            {"prompt": text(5, 15), "response": text(5, 60), "x": [1, 2]}, ensure_ascii=False
        )
        for _ in range(5000)
    ]
    with path.open("w", encoding="utf-8") as out:
        for index in range(n):
            out.write(f'{{"id": "row-{index:08d}", {rng.choice(bodies)[1:]}\n')


def bare(path: Path) -> int:
    """Parse every line and do nothing."""
    rows = 0
    with path.open("rb") as lines:
        for line in lines:
            json.loads(line)
            rows += 1
    return rows


def scored(path: Path) -> int:
    """Score every row."""
    from habitus.score import ScorePlan, score_file

    return score_file(ScorePlan(path, "baseline:longest", path.with_name("scores.jsonl")))


STEPS = {"bare": bare, "score": scored}


def measure(step: str, path: Path) -> None:
    """Print what a step costs in this process, as JSON."""
    start = time.perf_counter()
    rows = STEPS[step](path)
    seconds = time.perf_counter() - start
    used = {
        "rows": rows,
        "seconds": seconds,
        "cpu": time.process_time(),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }
    print(json.dumps(used))


def _run(step: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", step, "--file", str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(
        f"{step:<6}{found['rows']:>9,} rows {found['seconds']:7.1f} s {found['cpu']:7.1f} s of CPU "
        f"{found['rows'] / found['seconds']:>9,.0f} rows/s {found['mib']:6.0f} MiB peak",
        flush=True,
    )
    return found


def main() -> None:
    """Write the rows, then measure each step in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000, help="number of rows")
    parser.add_argument("--step", choices=STEPS, help="measure this step on --file, and stop")
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.step:
        measure(arguments.step, arguments.file)
        return
    with tempfile.TemporaryDirectory() as name:
        small, path = Path(name) / "small.jsonl", Path(name) / "rows.jsonl"
        write_rows(path, arguments.n)
        write_rows(small, arguments.n // 100)
        size = path.stat().st_size
        print(f"{arguments.n:,} rows, {size / 2**20:.0f} MiB, {size / arguments.n:.0f} bytes a row")
        few = _run("score", small)
        small.with_name("scores.jsonl").unlink()
        small.with_name("scores.jsonl.run.json").unlink()
        loops = [_run("bare", path)]
        found = _run("score", path)
        loops.append(_run("bare", path))
    fastest = min(loop["seconds"] for loop in loops)
    print(f"score takes {found['seconds'] / fastest:.1f} times as long as the bare loop")
    print(f"memory: {found['mib'] - few['mib']:+.0f} MiB for 100 times the rows")


if __name__ == "__main__":
    main()
