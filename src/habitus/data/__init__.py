"""Loading benchmarks: bundled ones, and the formats that people have (`docs/formats.md`)."""

from habitus.data.benchmark import Benchmark, BundledBenchmark
from habitus.data.bundles import bundled
from habitus.data.formats import FORMATS
from habitus.data.loading import load
from habitus.data.sampling import take

__all__ = ["FORMATS", "Benchmark", "BundledBenchmark", "bundled", "load", "take"]
