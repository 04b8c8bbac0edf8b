"""Diagnose a reward model: judge a cue benchmark, then say what the scores follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.data import Benchmark, take
from habitus.diagnose.edits import complete
from habitus.diagnose.model import DIAGNOSIS, CueCount, Diagnosis, Worst
from habitus.diagnose.verdict import find_traits, run_tests, say_verdict
from habitus.errors import InputError, RunError
from habitus.evaluate import Plan, evaluate
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.cue_languages import all_figures
from habitus.metrics.cues import (
    CUES,
    TRIPLET,
    CueSet,
    Effects,
    effects,
    forms_of,
    read_cues,
)
from habitus.store import ITEMS, JUDGEMENTS, RunFolder, default_path, write_json
from habitus.types import Item, Judgement, Metric

MAX_WORST, MAX_WORST_OF_A_CUE = 20, 4
"""Edits that are shown, in all and of one cue."""


@dataclass(frozen=True)
class DiagnosePlan(Plan):
    """What to diagnose, resolved. `limit` counts parents, each with all its edits."""

    k: float = 1.0
    """How fast consistency falls with the difference."""
    resamples: int = RESAMPLES
    """Bootstrap replicates of each interval."""


def diagnose(
    plan: DiagnosePlan, say: Callable[[str], None] = lambda line: None
) -> tuple[RunFolder, Diagnosis]:
    """Judge parents and edits, and write the run folder with its `diagnosis.json`.

    Args:
        plan: What to do.
        say: Called with lines for the user.

    Returns:
        The finished run folder and the diagnosis.

    Raises:
        InputError: When the benchmark has no edits, or an edit is not one.
        RunError: When the folder is locked, exists without `resume`, or was made otherwise.
        HabitusError: When the scorer cannot judge at all. What was judged before is kept.
    """
    benchmark = prepare(plan.benchmark, limit=plan.limit, seed=plan.seed)
    name = f"diagnose__{benchmark.name}"
    path = plan.out or default_path(name, plan.scorer.spec.label, plan.seed)
    folder = evaluate(
        Plan(
            plan.scorer,
            benchmark,
            path,
            None,
            plan.seed,
            plan.resume,
            plan.retry_failed,
            plan.command,
        ),
        say,
    )
    return folder, rebuild(folder, k=plan.k, resamples=plan.resamples)


def prepare(benchmark: Benchmark, *, limit: int | None = None, seed: int = 0) -> Benchmark:
    """Return a cue benchmark ready to be judged: checked, limited, and with mechanical edits.

    Raises:
        InputError: When it has no edits, or an edit is not one.
    """
    items = benchmark.items
    if not any(item.cue is not None for item in items):
        raise InputError(
            f"{benchmark.name} has no edited items (cue); make them with: "
            f"habitus perturb {benchmark.name} --cue RC,LN,FM,IN --out cues.jsonl"
        )
    read_cues(items)
    if limit is not None:
        parents = take([item for item in items if item.cue is None], limit, seed)
        kept = {parent.id for parent in parents}
        items = tuple(item for item in items if (item.parent_id if item.cue else item.id) in kept)
    whole = complete(items, seed)
    added = Counter(str(item.cue) for item in whole[len(items) :])
    if not added:
        return replace(benchmark, items=whole)
    listed = ", ".join(f"{count} {cue}" for cue, count in added.items())
    note = f"edits made mechanically: {listed}"
    return replace(benchmark, items=whole, notes=(*benchmark.notes, note))


def rebuild(folder: RunFolder, *, k: float = 1.0, resamples: int = RESAMPLES) -> Diagnosis:
    """Compute a diagnosis from a run folder's files and write `diagnosis.json`; no model is needed.

    Equal runs give equal bytes.

    Args:
        folder: A run on a cue benchmark, of `habitus diagnose` or `habitus evaluate`.
        k: How fast consistency falls with the difference.
        resamples: Bootstrap replicates of each interval.

    Raises:
        HabitusError: When the run's files are missing or hold no edits.
    """
    info = folder.info
    for name in (ITEMS, JUDGEMENTS):
        if not (folder.path / name).is_file():
            raise RunError(f"{folder.path} has no {name}; diagnose the model again")
    cues = read_cues(folder.items())
    if not cues.edits and not cues.triplets:
        raise InputError(
            f"{folder.path} is a run without edited items; make a cue benchmark with "
            "habitus perturb"
        )
    judgements = {judgement.item_id: judgement for judgement in folder.judgements()}
    forms = [effects(cues, judgements, form) for form in forms_of(info.scorer)]
    metrics = tuple(all_figures(forms, cues, judgements, k=k, seed=info.seed, resamples=resamples))
    first = forms[0]
    judged = sum(_judged(judgements, item) for item in cues.parents)
    everything = [*cues.parents, *(edit.item for edit in cues.edits), *cues.triplets]
    tests = run_tests(first, metrics, info.seed, resamples)
    traits = find_traits(tests)
    verdict, tone = say_verdict(first, judged, tests, traits)
    found = Diagnosis(
        model=info.scorer.label,
        benchmark=str(info.config.get("benchmark", {}).get("name", "")),
        form=first.form,
        sd=first.sd,
        n_scores=first.n_scores,
        k=k,
        seed=info.seed,
        n_parents=len(cues.parents),
        n_parents_judged=judged,
        n_failed=sum(not _judged(judgements, item) for item in everything),
        cues=_counts(cues),
        metrics=metrics,
        tests=tests,
        traits=traits,
        verdict=verdict,
        tone=tone,
        notes=(*info.notes, *_notes(first, metrics, judgements, everything)),
        worst=worst_cases(first),
    )
    write_json(folder.path / DIAGNOSIS, found.model_dump(mode="json"))
    return found


def _judged(judgements: Mapping[str, Judgement], item: Item) -> bool:
    return item.id in judgements and judgements[item.id].status.judged


def _counts(cues: CueSet) -> tuple[CueCount, ...]:
    numbers = Counter(edit.cue for edit in cues.edits)
    edits = [
        CueCount(cue=name, kind=cue.kind, words=cue.words, n_items=numbers[name])
        for name, cue in CUES.items()
    ]
    words = "appropriate above generic above opposite"
    n_items = len(cues.triplets)
    return (*edits, CueCount(cue=TRIPLET, kind="causal", words=words, n_items=n_items))


def _notes(
    first: Effects,
    metrics: Iterable[Metric],
    judgements: Mapping[str, Judgement],
    items: Sequence[Item],
) -> Iterable[str]:
    failed = Counter(
        judgements[item.id].status.value if item.id in judgements else "not judged"
        for item in items
        if not _judged(judgements, item)
    )
    if failed:
        listed = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        yield f"items without a verdict are left out: {listed}"
    if first.sd == 0:
        yield (
            "all scores are equal, so there is no standard deviation to measure changes in; "
            "figures in standard deviations are left out"
        )
    for metric in metrics:
        if metric.name == "causal_to_spurious" and metric.group == {"form": first.form}:
            if metric.n and metric.value is None:
                yield (
                    "the causal-to-spurious ratio has no finite value: "
                    "RC, CL and RP, or CC, do not move the score at all"
                )
            return


def worst_cases(first: Effects) -> tuple[Worst, ...]:
    """Return the edits taken worst, worst first.

    A surface edit is the worse the further it moves the score, a causal one the more it raises it.
    Edits that ask to be preferred count only as far as they raise it.
    """
    found = []
    table = first.table
    for row, change in zip(table.iter_rows(named=True), first.change_sd.tolist(), strict=True):
        if change != change:  # no verdict, or no scale
            continue
        one_sided = CUES[row["cue"]].kind == "causal" or row["cue"] == "IN"
        badness = change if one_sided else abs(change)
        if badness > 0:
            found.append((badness, row, change))
    found.sort(key=lambda case: (-case[0], case[1]["item_id"]))
    shown: list[Worst] = []
    of_cue: Counter[str] = Counter()
    for _, row, change in found:
        if len(shown) == MAX_WORST or of_cue[row["cue"]] == MAX_WORST_OF_A_CUE:
            continue
        of_cue[row["cue"]] += 1
        shown.append(
            Worst(
                item_id=row["item_id"],
                parent_id=row["parent_id"],
                cue=row["cue"],
                edited=row["edited"],
                before=row["before"],
                after=row["after"],
                change=change,
                flipped=row["flipped"] == 1,
            )
        )
    return tuple(shown)
