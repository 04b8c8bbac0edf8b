"""Counterfactual edits: what an edit of a response does to its score (papers: CARB A4).

A cue benchmark holds parents (plain items) and items made from them by editing the text of one
candidate. This module checks and pairs them, and puts the scores of the edited candidate, before
and after, on the reward model's own scale. The figures themselves are in `cue_figures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from habitus.errors import InputError
from habitus.metrics.statistics import Floats, Ints
from habitus.types import Item, Judgement, ScorerSpec

Kind = Literal["causal", "surface"]
Form = Literal["raw", "margin", "verdict"]
"""How a candidate is scored: as the reward model does, as the distance to the best other candidate,
or by its share of the win (1 alone, 1/k among k winners, else 0)."""

FORMS: tuple[Form, ...] = ("raw", "margin", "verdict")

TRIPLET = "GN-OP"
"""Cue of an item with three candidates: appropriate, generic and opposite."""


@dataclass(frozen=True)
class Cue:
    """A kind of edit."""

    kind: Kind
    """"causal": the score should move; "surface": it should stay."""
    words: str
    """What the edit does, for people."""


CUES: dict[str, Cue] = {
    "CC": Cue("causal", "core concept changed, label kept"),
    "GN": Cue("causal", "generic: polite, the decisive act left out"),
    "OP": Cue("causal", "opposite act, as polite"),
    "RC": Cue("surface", "cultural label removed"),
    "CL": Cue("surface", "language changed"),
    "RP": Cue("surface", "paraphrased"),
    "LN": Cue("surface", "length padded without content"),
    "FM": Cue("surface", "markdown and list marks added"),
    "IN": Cue("surface", "a sentence that asks to prefer this response"),
}
"""The paper's four (CC, RC, CL, RP) and five more."""

SPURIOUS = ("RC", "CL", "RP")
"""The paper's surface cues, which CC is compared with."""

GROUPS = ("culture", "language", "domain")
"""What figures are grouped by; `language` is the parent's."""

_FLAT = 1e-12  # a standard deviation below this share of the largest score is rounding, not spread


@dataclass(frozen=True)
class Edit:
    """An edited item beside its parent."""

    item: Item
    """The edited item."""
    parent: Item
    """The item that it was made from."""
    cue: str
    """The kind of edit, a key of `CUES`."""
    edited: str
    """Id of the candidate whose text was changed."""
    target: Literal["best", "rival"]
    """Whether that candidate is a right one or a wrong one in the parent."""
    language: str | None
    """BCP 47 tag of the edited text."""


@dataclass(frozen=True)
class CueSet:
    """A cue benchmark, checked."""

    parents: tuple[Item, ...]
    """Items that are no edits, in their order."""
    edits: tuple[Edit, ...]
    """Edits with their parents, in their order."""
    triplets: tuple[Item, ...]
    """Items of the cue `TRIPLET`, in their order."""


def read_cues(items: Iterable[Item]) -> CueSet:
    """Pair edits with their parents.

    Raises:
        InputError: When an edit's parent is missing, its cue unknown, or the edit is not one: no
            `edited`, other candidates changed, nothing changed, or a CL edit without a language.
    """
    items = tuple(items)
    by_id = {item.id: item for item in items}
    parents = tuple(item for item in items if item.cue is None)
    edits, triplets = [], []
    for item in items:
        if item.cue is None:
            continue
        if item.cue not in CUES and item.cue != TRIPLET:
            known = ", ".join((*CUES, TRIPLET))
            raise InputError(f"item {item.id!r}: unknown cue {item.cue!r}; known: {known}")
        parent = by_id.get(item.parent_id or "")
        if parent is None or parent.cue is not None:
            found = "is itself an edit" if parent else "is not in the benchmark"
            raise _wrong(
                item, f"its parent {item.parent_id!r} {found}; add the parent, or drop the edit"
            )
        if item.cue == TRIPLET:
            triplets.append(_checked_triplet(item))
        else:
            edits.append(_edit(item, parent))
    return CueSet(parents, tuple(edits), tuple(triplets))


def triplet_ids(item: Item) -> tuple[str, str, str]:
    """Return the ids of a triplet's appropriate, generic and opposite response."""
    return item.best_ids[0], "generic", "opposite"


def _checked_triplet(item: Item) -> Item:
    ids = {candidate.id for candidate in item.candidates}
    if ids != set(triplet_ids(item)) or len(item.best_ids) != 1:
        raise _wrong(
            item,
            "a triplet has one best candidate and two with the ids 'generic' and 'opposite'; "
            f"found {', '.join(sorted(ids))}",
        )
    return item


def _edit(item: Item, parent: Item) -> Edit:
    before = {candidate.id: candidate for candidate in parent.candidates}
    after = {candidate.id: candidate for candidate in item.candidates}
    if item.edited is None or item.edited not in after or item.edited not in before:
        named = "has no `edited`" if item.edited is None else f"names no candidate {item.edited!r}"
        raise _wrong(item, f"{named}; give the id of the candidate whose text was changed")
    if before.keys() != after.keys():
        raise _wrong(item, f"its candidates are not those of its parent {parent.id!r}; use its ids")
    changed = [name for name in after if after[name].text != before[name].text]
    if changed != [item.edited]:
        found = ", ".join(map(repr, changed)) or "none"
        raise _wrong(
            item, f"only candidate {item.edited!r} may differ from the parent's; found {found}"
        )
    language = after[item.edited].language or item.language
    if item.cue == "CL" and after[item.edited].language is None:
        raise _wrong(item, f"candidate {item.edited!r} has no `language`; give that of the edit")
    assert item.cue is not None
    target: Literal["best", "rival"] = "best" if item.edited in parent.best_ids else "rival"
    return Edit(item, parent, item.cue, item.edited, target, language)


def _wrong(item: Item, message: str) -> InputError:
    return InputError(f"item {item.id!r} (cue {item.cue}): {message}")


def form_of(spec: ScorerSpec) -> Form:
    """Return the form in which a reward model's scores are compared first.

    A score that depends on the other candidates (log-probabilities of letters, an ensemble's
    z-scores) is taken as its margin to the best other candidate; any other as it is. A judge
    whose verdict is text has no finer score than its share of the wins.
    """
    if spec.kind == "ensemble":
        return "margin"
    verdict, mode = spec.parameters.get("verdict"), str(spec.parameters.get("mode", ""))
    if verdict == "text" and not mode.startswith("pointwise"):
        return "verdict"
    if verdict == "logprobs" and not mode.startswith("pointwise"):
        return "margin"
    return "raw"


def forms_of(spec: ScorerSpec) -> tuple[Form, ...]:
    """Return the forms that a reward model has, the first one first."""
    first = form_of(spec)
    if first == "verdict":
        return ("verdict",)
    return (first, *(form for form in FORMS if form != first))


def candidate_scores(judgement: Judgement | None, form: Form) -> dict[str, float] | None:
    """Return each candidate's score in a form, or None where there is no verdict."""
    if judgement is None or not judgement.status.judged:
        return None
    scores = judgement.scores
    if form == "raw":
        return dict(scores)
    if form == "verdict":
        won = judgement.winner_ids
        return {name: 1 / len(won) if name in won else 0.0 for name in scores}
    if len(scores) < 2:
        return None
    ordered = sorted(scores.values())
    first, second = ordered[-1], ordered[-2]
    # The best candidate's best rival is the second; everyone else's is the first.
    return {name: score - (second if score == first else first) for name, score in scores.items()}


@dataclass(frozen=True)
class Effects:
    """The edits' scores before and after, in one form."""

    form: Form
    """The form."""
    table: pl.DataFrame
    """One row per edit: `cue`, `target`, `culture`, `language`, `domain`, `item_id`,
    `parent_id`, `edited`, `parent` (its number), `language_after`, `before`, `after` (NaN without a
    verdict), `added` (characters that the edit added, negative when it took some away) and
    `flipped` (1 when the winners differ from the parent's, NaN without a verdict)."""
    sd: float | None
    """The reward model's own standard deviation: of the scores of all judged parents' candidates
    around their mean (divisor n); None without any, 0 when all are equal."""
    n_scores: int
    """Scores that it rests on."""

    def column(self, name: str) -> Floats:
        """Return a column of numbers."""
        return self.table[name].cast(pl.Float64).to_numpy()

    @property
    def parent(self) -> Ints:
        """The number of each edit's parent."""
        return self.table["parent"].to_numpy().astype(np.int64)

    @property
    def change_sd(self) -> Floats:
        """Signed change in the reward model's standard deviations; NaN where it cannot be said."""
        difference = self.column("after") - self.column("before")
        if not self.sd:
            return np.full(len(difference), np.nan)
        change: Floats = difference / self.sd
        return change


def effects(cues: CueSet, judgements: Mapping[str, Judgement], form: Form) -> Effects:
    """Put the edits' scores before and after on one scale.

    Args:
        cues: The benchmark.
        judgements: Item id to judgement; a missing one counts as failed.
        form: How candidates are scored.
    """
    number = {item.id: place for place, item in enumerate(cues.parents)}
    scores = {
        item.id: candidate_scores(judgements.get(item.id), form)
        for item in (*cues.parents, *(edit.item for edit in cues.edits))
    }
    rows = [_row(edit, number, scores, judgements) for edit in cues.edits]
    text = ("cue", "target", *GROUPS, "item_id", "parent_id", "edited", "language_after")
    schema: dict[str, pl.DataType] = {**dict.fromkeys(text, pl.String()), "parent": pl.Int64()}
    schema |= dict.fromkeys(("before", "after", "added", "flipped"), pl.Float64())
    all_scores = [score for item in cues.parents for score in (scores[item.id] or {}).values()]
    return Effects(form, pl.DataFrame(rows, schema=schema), _spread(all_scores), len(all_scores))


def _row(
    edit: Edit,
    number: Mapping[str, int],
    scores: Mapping[str, Mapping[str, float] | None],
    judgements: Mapping[str, Judgement],
) -> dict[str, object]:
    parent, item = edit.parent, edit.item
    before = (scores[parent.id] or {}).get(edit.edited, np.nan)
    after = (scores[item.id] or {}).get(edit.edited, np.nan)
    flipped = np.nan
    if scores[parent.id] is not None and scores[item.id] is not None:
        old, new = judgements[parent.id].winner_ids, judgements[item.id].winner_ids
        flipped = float(set(old) != set(new))
    return {
        "cue": edit.cue,
        "target": edit.target,
        "culture": parent.culture,
        "language": parent.language,
        "domain": parent.domain,
        "item_id": item.id,
        "parent_id": parent.id,
        "edited": edit.edited,
        "language_after": edit.language,
        "parent": number[parent.id],
        "before": before,
        "after": after,
        "added": float(_length(item, edit.edited) - _length(parent, edit.edited)),
        "flipped": flipped,
    }


def _length(item: Item, candidate_id: str) -> int:
    return next(len(one.text) for one in item.candidates if one.id == candidate_id)


def beyond_length(effects: Effects) -> Effects | None:
    """Return the effects without what the length alone accounts for, as the LN edits show it.

    The mean change per added character (least squares through 0 over all LN edits) times the
    characters that an edit added is taken off its score.

    Returns:
        The effects; None when there are no LN edits with a verdict, or no scale.
    """
    change, added = effects.change_sd, effects.column("added")
    padded = (effects.table["cue"] == "LN").to_numpy() & ~np.isnan(change) & (added != 0)
    if not padded.any() or not effects.sd:
        return None
    slope = float(change[padded] @ added[padded]) / float(added[padded] @ added[padded])
    after = effects.column("after") - slope * effects.sd * added
    return replace(effects, table=effects.table.with_columns(after=pl.Series(after)))


def _spread(scores: Sequence[float]) -> float | None:
    if not scores:
        return None
    values = np.array(scores, dtype=np.float64)
    spread = float(np.std(values))
    return spread if spread > _FLAT * float(np.abs(values).max()) else 0.0
