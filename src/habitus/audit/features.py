"""Character n-grams of texts as sparse vectors.

N-grams are hashed, so counting them fits nothing; the weights of rare n-grams (inverse document
frequency) are fitted by whoever uses the counts, on the texts that they may know.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from habitus.progress import progress

N_FEATURES = 2**18
"""Hashed n-grams; collisions are rare enough not to matter."""

MAX_CHARACTERS = 2000
"""Characters of a text that are read; a door that is open shows long before."""

_CHUNK = 2000
_LONG = 20_000  # texts from which on the count shows progress


def ngram_counts(
    texts: Sequence[str], ngrams: tuple[int, int], what: str = "texts"
) -> sparse.csr_array:
    """Count the character n-grams of each text, within words and at their edges.

    Args:
        texts: The texts.
        ngrams: Shortest and longest n-gram.
        what: What the texts are, for the progress.

    Returns:
        Counts of shape (texts, N_FEATURES); a text without letters is an empty row.
    """
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped,unused-ignore]
        HashingVectorizer,
    )

    counter = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=ngrams,
        n_features=N_FEATURES,
        alternate_sign=False,
        norm=None,
    )
    distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    unique = [text[:MAX_CHARACTERS] for text in distinct]
    parts = []
    if len(unique) > _LONG:
        with progress(f"counting n-grams of {what}", len(unique), unit="texts") as advance:
            for start in range(0, len(unique), _CHUNK):
                part = unique[start : start + _CHUNK]
                parts.append(counter.transform(part))
                advance(len(part))
    else:
        parts.append(counter.transform(unique))
    counts = sparse.csr_array(sparse.vstack(parts))
    rows = np.array([distinct[text] for text in texts], dtype=np.int64)
    return sparse.csr_array(counts[rows])


def weighted(counts: sparse.csr_array) -> sparse.csr_array:
    """Return TF-IDF vectors of length 1, fitted on these texts (log counts)."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped,unused-ignore]
        TfidfTransformer,
    )

    return sparse.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts))
