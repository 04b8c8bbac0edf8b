"""Rules that are learned from the words of the responses, or compare them with the prompt."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from habitus.audit.features import weighted
from habitus.audit.surface import Scored
from habitus.audit.table import Floats, Ints, Table

FOLDS = 5
"""Folds of the cross-validation of the classifier."""

NGRAMS = (2, 4)
"""Shortest and longest character n-gram of responses and prompts."""


def wording(table: Table, counts: sparse.csr_array, groups: Ints) -> Scored:
    """Return the rule of a classifier that sees the responses only, never the prompt.

    Logistic regression on TF-IDF of character n-grams, cross-validated: items of one group are in
    one fold, and each response is scored by a classifier (and weights of n-grams) that was fitted
    without its fold. Scores are centred within each item.

    Args:
        table: The benchmark.
        counts: N-gram counts of the candidates; shape (candidates, n-grams).
        groups: The group of each item: same item, same parent, or near-duplicate prompt.
    """
    title = "Wording (n-grams)"
    description = (
        "what a classifier of character n-grams, trained on other items, takes for the right "
        "response without reading the prompt"
    )
    folds = min(FOLDS, len(np.unique(groups)))
    if folds < 2:
        reason = "all prompts are near-duplicates or of one parent, so nothing is left to train on"
        return Scored("wording", title, description, None, reason)
    scores, fold = _cross_validated(table, counts, groups, folds)
    means = np.add.reduceat(scores, table.starts) / table.sizes
    # Rounded, so that equal texts tie whatever the order of summation.
    centred = np.round(scores - means[table.owner], 9)
    return Scored("wording", title, description, centred, parts=fold)


def _cross_validated(
    table: Table, counts: sparse.csr_array, groups: Ints, folds: int
) -> tuple[Floats, Ints]:
    """Return each candidate's score by a classifier fitted without its fold, and items' folds."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped,unused-ignore]
        TfidfTransformer,
    )
    from sklearn.linear_model import (  # type: ignore[import-untyped,unused-ignore]
        LogisticRegression,
    )
    from sklearn.model_selection import GroupKFold  # type: ignore[import-untyped,unused-ignore]

    scores, fold = np.zeros(len(table.owner)), np.zeros(len(table.items), dtype=np.int64)
    split = GroupKFold(n_splits=folds).split(counts, groups=groups[table.owner])
    for number, (training, tested) in enumerate(split):
        fold[table.owner[tested]] = number
        weights = TfidfTransformer(sublinear_tf=True)
        seen = np.unique(counts[training].indices)  # fewer columns make the fit faster
        known = weights.fit_transform(counts[training][:, seen])
        classifier = LogisticRegression(C=4.0, solver="liblinear", random_state=0)
        classifier.fit(known, table.best[training])
        scores[tested] = classifier.decision_function(weights.transform(counts[tested][:, seen]))
    return scores, fold


def similarity(
    table: Table, prompts: sparse.csr_array, responses: sparse.csr_array
) -> list[Scored]:
    """Return the rules that pick the response most, or least, like its prompt.

    Args:
        table: The benchmark.
        prompts: N-gram counts of the prompts; shape (items, n-grams).
        responses: N-gram counts of the candidates; shape (candidates, n-grams).
    """
    vectors = weighted(sparse.csr_array(sparse.vstack([prompts, responses])))
    asked = vectors[: prompts.shape[0]][table.owner]
    products = asked.multiply(vectors[prompts.shape[0] :]).sum(axis=1)
    cosine: Floats = np.round(np.asarray(products, dtype=np.float64).ravel(), 9)
    what = "cosine of character n-grams of prompt and response"
    return [
        Scored("most-similar", "Most like the prompt", f"highest {what}", cosine),
        Scored("least-similar", "Least like the prompt", f"lowest {what}", -cosine),
    ]
