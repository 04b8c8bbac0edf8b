"""Loading and importing benchmarks: bundled ones, and the formats that people have.

See `docs/formats.md`.
"""

from habitus.data.benchmark import Benchmark, BundledBenchmark
from habitus.data.bundles import bundled
from habitus.data.cards import ImportCard
from habitus.data.formats import FORMATS
from habitus.data.importing import import_benchmark
from habitus.data.loading import load
from habitus.data.sampling import take

__all__ = [
    "FORMATS",
    "Benchmark",
    "BundledBenchmark",
    "ImportCard",
    "bundled",
    "import_benchmark",
    "load",
    "take",
]
