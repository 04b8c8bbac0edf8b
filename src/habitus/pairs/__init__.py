"""Preference pairs with country and annotator, from public data (papers: SCPO). See `docs/pairs.md`."""

from habitus.pairs.reading import non_commercial, pairs_digest, read_pairs

__all__ = ["non_commercial", "pairs_digest", "read_pairs"]
