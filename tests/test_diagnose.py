"""Diagnosis end to end: planted reward models are named for what they are."""

import json
import math
from pathlib import Path

import pytest

from habitus.data import Benchmark
from habitus.diagnose import DiagnosePlan, diagnose, pad_length, prepare, rebuild
from habitus.diagnose.model import Diagnosis
from habitus.errors import InputError, RunError
from habitus.scorers.base import ItemFailureError
from habitus.types import Status
from tests.cue_samples import BEST, PLANTED, Planted, cue_items, parents, planted


def benchmark(items=None):
    return Benchmark("cues", tuple(items or cue_items()), "native", Path("cues.jsonl"))


def quick(scorer, cues, out, **options):
    return DiagnosePlan(scorer, cues, out, resamples=200, **options)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Diagnoses of all planted reward models."""
    base = tmp_path_factory.mktemp("runs")
    return {name: diagnose(quick(planted(name), benchmark(), base / name))[1] for name in PLANTED}


def figure(diagnosis: Diagnosis, name: str, **group: str):
    [metric] = [m for m in diagnosis.metrics if m.name == name and m.group == group]
    return metric


def change(diagnosis, cue, target="best"):
    return figure(diagnosis, "change_sd", form="raw", cue=cue, target=target).value


@pytest.mark.parametrize(
    ("name", "traits"),
    [
        ("label", ["follows the label"]),
        ("length", ["follows length"]),
        ("english", ["prefers English"]),
        ("concept", ["follows the concept"]),
        ("obeys", ["obeys instructions in responses"]),
        ("same", []),
        ("random", []),
    ],
)
def test_each_planted_model_is_named_for_what_it_is(found, name, traits):
    assert [trait.name for trait in found[name].traits] == traits


def test_the_label_lover(found):
    # Parents score 1, 1, 0, 0: SD 1/2. Only RC takes the label away: -1 / 0.5.
    label = found["label"]
    assert label.sd == pytest.approx(0.5)
    assert {cue: change(label, cue) for cue in ("CC", "RC", "CL", "RP", "GN", "OP")} == {
        "CC": 0, "RC": -2, "CL": 0, "RP": 0, "GN": 0, "OP": 0,
    }  # fmt: skip
    assert figure(label, "relative_change", form="raw", cue="RC", target="best").value == 1
    # |CC| = 0 over (2 + 0 + 0) / 3: the ratio is 0, and its log has no value.
    ratio = figure(label, "causal_to_spurious", form="raw")
    assert (ratio.value, ratio.n) == (None, 80)
    # CC ties with CL and RP, and falls less than RC: (0 + 1/2 + 1/2) / 3.
    assert figure(label, "auc", form="raw").value == pytest.approx(1 / 3)
    # Of two that named it one is left: a and b tied before, now b alone wins.
    assert figure(label, "flip_rate", cue="RC", target="best").value == 1
    assert label.verdict == "This model follows the label."
    assert label.tone == "bad"


def test_the_length_lover(found):
    # Parents score 24, 30, 36 and 42: variance (0 + 36 + 144 + 324) / 4 - 9^2 = 45.
    length = found["length"]
    sd = math.sqrt(45)
    assert length.sd == pytest.approx(sd)
    padded = [len(pad_length(BEST, language)) - len(BEST) for language in ("ja", "en")]
    assert change(length, "LN") == pytest.approx(sum(padded) / 2 / sd)
    # "- **" before and "**" after; marks and instructions do no more than their length does.
    assert change(length, "FM") == pytest.approx(6 / sd)
    by_name = {test.name: test for test in length.tests}
    assert by_name["FM best"].raises
    assert by_name["FM best beyond length"].p == 1
    assert by_name["IN rival beyond length"].p == 1


def test_the_english_lover(found):
    # Japanese parents score 0 and English ones 1: SD 1/2. Another language is +2 or -2.
    english = found["english"]
    assert english.sd == pytest.approx(0.5)
    assert change(english, "CL") == 0
    assert figure(english, "change_sd_abs", form="raw", cue="CL", target="best").value == 2
    assert figure(english, "language_favour", form="raw", language="en").value == 2
    assert figure(english, "language_favour", form="raw", language="ja").value == -2
    pair = {"form": "raw", "language_a": "en", "language_b": "ja"}
    assert figure(english, "language_favour", **pair).value == 2
    assert figure(english, "consistency", form="raw").value == pytest.approx(math.exp(-2))
    assert figure(english, "consistency", **pair).value == pytest.approx(math.exp(-2))
    assert figure(english, "consistency", form="raw").n == 20


def test_the_concept_reader(found):
    # Parents score 1, 0, 0, 0: SD sqrt(3/16). CC and OP take it all, GN half.
    concept = found["concept"]
    sd = math.sqrt(3) / 4
    assert concept.sd == pytest.approx(sd)
    expected = {"CC": -1 / sd, "GN": -0.5 / sd, "OP": -1 / sd, "RC": 0, "CL": 0, "RP": 0}
    assert {cue: change(concept, cue) for cue in expected} == pytest.approx(expected)
    assert figure(concept, "relative_change", form="raw", cue="GN", target="best").value == 0.5
    assert figure(concept, "auc", form="raw").value == 1
    ratio = figure(concept, "causal_to_spurious", form="raw")
    assert (ratio.value, ratio.n) == (None, 80)
    assert any("no finite value" in note for note in concept.notes)
    assert figure(concept, "triplet_top1").value == 1
    assert figure(concept, "triplet_full_order").value == 1
    assert figure(concept, "consistency", form="raw").value == 1
    # After OP all four score 0, after CC too; after GN a still wins.
    assert figure(concept, "flip_rate", cue="OP", target="best").value == 1
    assert figure(concept, "flip_rate", cue="GN", target="best").value == 0
    assert concept.tone == "good"


def test_the_model_that_ties_everything(found):
    same = found["same"]
    assert same.sd == 0
    assert "all responses the same score" in same.verdict
    metric = figure(same, "change_sd", form="raw", cue="CC", target="best")
    assert (metric.value, metric.n, metric.n_excluded) == (None, 0, 20)
    auc = figure(same, "auc", form="raw")
    assert (auc.value, auc.n, auc.n_excluded) == (None, 0, 80)
    # Ties are broken at random, in expectation.
    assert figure(same, "triplet_top1").value == pytest.approx(1 / 3)
    assert figure(same, "triplet_full_order").value == pytest.approx(1 / 6)
    assert figure(same, "injection_success").value == 0
    assert any("all scores are equal" in note for note in same.notes)


def test_the_one_that_obeys(found):
    # Scores 0.3, 0.2, 0.1, 0: variance (0.09 + 0.04 + 0.01) / 4 - 0.15^2 = 0.0125.
    obeys = found["obeys"]
    sd = math.sqrt(0.0125)
    assert obeys.sd == pytest.approx(sd)
    assert figure(obeys, "injection_success").value == 1
    assert figure(obeys, "injection_rise", form="raw").value == pytest.approx(1 / sd)
    assert change(obeys, "IN", "rival") == pytest.approx(1 / sd)


def test_the_random_one_cannot_be_told(found):
    assert found["random"].verdict.startswith("What this model follows cannot be told")
    assert found["random"].tone == "unclear"


def test_cues_without_items_are_listed(tmp_path):
    items = [item for item in cue_items(4) if item.cue in (None, "CC")]
    _, diagnosis = diagnose(quick(planted("concept"), benchmark(items), tmp_path / "run"))
    counts = {row.cue: row.n_items for row in diagnosis.cues}
    assert counts == {
        "CC": 4, "GN": 0, "OP": 0, "RC": 0, "CL": 0, "RP": 0,
        "LN": 4, "FM": 4, "IN": 4, "GN-OP": 0,
    }  # fmt: skip
    ratio = figure(diagnosis, "causal_to_spurious", form="raw")
    assert (ratio.value, ratio.n) == (None, 0)
    consistency = figure(diagnosis, "consistency", form="raw")
    assert (consistency.value, consistency.n) == (None, 0)
    # Four parents are too few for any test to be clear.
    assert diagnosis.traits == ()


def test_failures_are_left_out_and_counted(tmp_path):
    class Half(Planted):
        def scores_of(self, item, order, seed):
            if item.id in ("p0", "p1--CC"):
                raise ItemFailureError(Status.UNPARSED, "no verdict")
            return super().scores_of(item, order, seed)

    scorer = Half("half", PLANTED["concept"])
    _, diagnosis = diagnose(quick(scorer, benchmark(), tmp_path / "run"))
    metric = figure(diagnosis, "change_sd", form="raw", cue="CC", target="best")
    assert (metric.n, metric.n_excluded) == (18, 2)
    assert (diagnosis.n_parents_judged, diagnosis.n_failed) == (19, 2)
    assert any("2 unparsed" in note for note in diagnosis.notes)


def test_a_rebuild_needs_no_model_and_gives_the_same_bytes(tmp_path):
    folder, diagnosis = diagnose(quick(planted("label"), benchmark(), tmp_path / "run"))
    first = (folder.path / "diagnosis.json").read_bytes()
    (folder.path / "diagnosis.json").unlink()
    assert rebuild(folder, resamples=200) == diagnosis
    assert (folder.path / "diagnosis.json").read_bytes() == first
    assert Diagnosis.model_validate(json.loads(first)) == diagnosis
    assert figure(rebuild(folder, k=2, resamples=200), "consistency", form="raw").value == 1


def test_resume_goes_on_where_it_stopped(tmp_path):
    asked = []

    def rule(item, one):
        asked.append(item.id)
        if len(asked) == 200:
            raise KeyboardInterrupt
        return PLANTED["label"](item, one)

    with pytest.raises(KeyboardInterrupt):
        diagnose(quick(Planted("label", rule), benchmark(), tmp_path / "run"))
    kept = len((tmp_path / "run" / "judgements.jsonl").read_text().splitlines())
    assert 40 < kept < 60
    plan = quick(planted("label"), benchmark(), tmp_path / "run", resume=True)
    _, diagnosis = diagnose(plan)
    _, expected = diagnose(quick(planted("label"), benchmark(), tmp_path / "b"))
    assert diagnosis == expected
    with pytest.raises(RunError, match="digest"):
        diagnose(quick(planted("label"), benchmark(), tmp_path / "run", limit=4, resume=True))


def test_a_limit_keeps_all_edits_of_a_parent():
    limited = prepare(benchmark(), limit=4, seed=1)
    kept = [item for item in limited.items if item.cue is None]
    assert len(kept) == 4
    assert {item.domain for item in kept} == {"commonsense", "values", "safety", "linguistics"}
    assert len(limited.items) == 4 * (1 + 6 + 3 + 1)
    assert {item.parent_id for item in limited.items if item.cue} == {item.id for item in kept}


def test_a_benchmark_without_edits_names_the_remedy():
    with pytest.raises(InputError, match="habitus perturb"):
        prepare(benchmark(parents()))


def test_worst_cases_are_the_wrongest(found):
    worst = found["label"].worst
    assert {case.cue for case in worst} == {"RC"}
    assert len(worst) == 4
    assert all(case.change == -2 and case.flipped for case in worst)
    assert found["concept"].worst == ()
