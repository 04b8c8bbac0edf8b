"""What a report claims, and what it does not."""

from dataclasses import replace

import pytest

from habitus.report.findings import (
    comparison_findings,
    comparison_verdict,
    findings,
    standings,
    verdict,
)
from habitus.report.model import MetricTable, against_baseline, versus
from habitus.types import Metric
from tests import report_samples as samples


def run(value=0.6, low=0.4, high=0.8, n=40, p=0.01, difference=0.35, **extra):
    """A run with chosen figures."""
    accuracy = Metric(name="accuracy", value=value, n=n, ci_low=low, ci_high=high)
    chance = Metric(name="chance", value=0.25, n=n)
    return replace(
        samples.empty("m"),
        metrics=(accuracy, chance, *extra.pop("more", ())),
        comparisons=(samples.comparison("m", "baseline:random", difference, p),),
        n_items=n,
        n_judged=n,
        **extra,
    )


@pytest.mark.parametrize(
    ("case", "tone"),
    [
        ({}, "above"),
        ({"p": 0.06}, "unclear"),  # the test does not say so
        ({"low": 0.2}, "unclear"),  # the interval does not
        ({"value": 0.05, "low": 0.01, "high": 0.15, "difference": -0.2}, "below"),
        ({"value": 0.05, "low": 0.01, "high": 0.3, "difference": -0.2}, "unclear"),
        ({"p": None}, "unclear"),
        ({"value": None, "low": None, "high": None, "n": 0}, "empty"),
    ],
)
def test_above_or_below_needs_both_the_test_and_the_interval(case, tone):
    assert verdict(run(**case)).tone == tone


def test_at_chance_is_said_with_the_number_of_items():
    text = verdict(run(p=0.3)).text
    assert text.startswith("Cannot be told from random picking on these 40 items")


def test_without_a_test_there_is_no_claim():
    assert verdict(replace(run(), comparisons=())).text.startswith("No claim")


def test_baselines_are_found_on_either_side():
    turned = samples.comparison("baseline:random", "m", -0.35, 0.01)
    data = replace(run(), comparisons=(turned,))
    found = against_baseline(data, "random")
    assert found is not None
    assert found.difference == 0.35
    assert (found.low, found.high) == pytest.approx((0.17, 0.53))
    assert verdict(data).tone == "above"


def test_turning_a_comparison_swaps_its_bounds():
    pair = samples.comparison("a", "b", 0.1, 0.01)
    seen = versus(pair, "b")
    assert (seen.other, seen.difference) == ("a", -0.1)
    assert (seen.low, seen.high) == pytest.approx((-0.28, 0.08))
    assert seen.worse
    assert not seen.better


def texts(data):
    return " ".join(finding.text for finding in findings(data))


def test_length_rules_are_judged_by_the_test():
    data = run()
    pairs = (
        samples.comparison("m", "baseline:longest", 0.3, 0.01),
        samples.comparison("m", "baseline:shortest", 0.3, 0.2),
    )
    said = texts(replace(data, comparisons=pairs))
    assert "Beats the rule “always pick the longest response” (+30.0 points" in said
    assert "Cannot be told from the rule “always pick the shortest response”" in said
    worse = samples.comparison("m", "longest", -0.3, 0.01)
    assert "Does worse than the rule" in texts(replace(data, comparisons=(worse,)))


@pytest.mark.parametrize(
    ("n", "words"),
    [(1, "Only 1 item:"), (19, "Only 19 items"), (20, "A small sample: 20 items"), (100, None)],
)
def test_small_samples_are_named(n, words):
    said = texts(run(n=n))
    assert words in said if words else "sample" not in said and "Only" not in said


def counts(**statuses):
    return tuple(
        Metric(name="status_count", value=number, n=40, group={"status": status})
        for status, number in statuses.items()
    )


def test_failures_are_counted_in_words():
    wrong = Metric(name="accuracy_failures_wrong", value=0.5, n=40)
    said = texts(run(more=(*counts(ok=37, unparsed=2, error=1), wrong)))
    assert "3 items of 40 failed (2 unparsed, 1 error) and are left out of the accuracy." in said
    assert "Counted as wrong, accuracy is 50.0\u00a0%." in said
    assert "1 item of 40 failed (1 refused) and is left out" in texts(
        run(more=counts(ok=39, refused=1))
    )
    assert "No item failed." in texts(run(more=counts(ok=40)))


def test_languages_with_most_failures_are_named():
    sizes = {"th": 10, "ar": 20, "en": 10}
    by_language = [("truncated", "th", 5), ("error", "th", 1), ("truncated", "ar", 4)]
    spoken = tuple(
        Metric(
            name="status_count",
            value=number,
            n=sizes[language],
            group={"status": status, "language": language},
        )
        for status, language, number in by_language
    )
    said = texts(run(more=(*counts(ok=30, truncated=9, error=1), *spoken)))
    assert "By language: th 6 of 10, ar 4 of 20." in said


def test_unfinished_runs_say_so():
    assert "Unfinished: 10 of 40 items" in texts(replace(run(), n_judged=10))


def letters(*shares, n=40):
    return tuple(
        Metric(name="letter_share", value=value, n=n, group={"letter": letter})
        for letter, value in zip("ABCD", shares, strict=False)
    )


def test_a_judge_that_always_says_a_is_a_warning():
    found = findings(run(more=letters(1.0, 0.0, 0.0, 0.0)))
    assert [f.text for f in found if f.tone == "warning"] == [
        "Position bias: picks letter A in 100\u00a0% of its looks, where 25\u00a0% is even."
    ]
    assert "Position" not in texts(run(more=letters(0.3, 0.3, 0.2, 0.2)))
    assert "Position" not in texts(run(more=letters(0.6, 0.4)))
    assert "Position" in texts(run(more=letters(0.95, 0.05)))
    # 2 of 4 looks: 0.25 above even, where one standard error is 0.22.
    assert "Position" not in texts(run(more=letters(0.5, 0.5, 0.0, 0.0, n=4)))


def test_flips_and_letter_mass_are_warned_of():
    flip = Metric(name="flip_rate", value=0.5, n=40)
    mass = Metric(name="letter_mass", value=0.1, n=40)
    said = texts(run(more=(flip, mass)))
    assert "on 50\u00a0% of 40 items the pick changes" in said
    assert "only 10\u00a0% of its probability" in said


def test_the_detectable_difference_is_in_words():
    metric = Metric(name="detectable_difference", value=0.223, n=40)
    assert (
        "that 40 items would find in four of five such runs: about 22 percentage points"
        in texts(run(more=(metric,)))
    )


def labelled(label, value):
    accuracy = Metric(name="accuracy", value=value, n=40, ci_low=0.1, ci_high=0.9)
    return replace(samples.empty(label), metrics=(accuracy,))


def test_ranks_are_ranges_where_tests_leave_them_open():
    runs = [
        labelled("low", 0.3),
        labelled("top", 0.7),
        labelled("mid", 0.6),
        labelled("none", None),
    ]
    pairs = [
        samples.comparison("top", "mid", 0.1, 0.5),
        samples.comparison("low", "top", -0.4, 0.01),
        samples.comparison("mid", "low", 0.3, 0.08),
    ]
    table = standings(runs, pairs)
    assert [(row.data.label, row.rank, row.best_group) for row in table] == [
        ("top", "1–2", True),
        ("mid", "1–3", True),
        ("low", "2–3", False),
        ("none", "–", False),
    ]
    said = comparison_verdict(table)
    assert said.tone == "unclear"
    assert said.text.startswith("No single winner: top has the highest accuracy (70.0")
    assert "but mid cannot be told from it" in said.text


def test_a_winner_needs_every_test():
    runs = [labelled("top", 0.7), labelled("low", 0.3)]
    clear = standings(runs, [samples.comparison("top", "low", 0.4, 0.01)])
    assert comparison_verdict(clear).tone == "above"
    open_ = standings(runs, [samples.comparison("top", "low", 0.4, 0.06)])
    assert comparison_verdict(open_).text.startswith("No winner")
    assert comparison_verdict(standings(runs, [])).text.startswith("No winner")


def test_partly_shared_items_and_other_benchmarks_are_said():
    pair = samples.comparison("a", "b", 0.1, 0.2, n=30, n_excluded=10)
    runs = [labelled("a", 0.5), labelled("b", 0.4)]
    said = " ".join(f.text for f in comparison_findings(runs, [pair]))
    assert "1 of 1 pair of runs are compared on 30 items only" in said
    other = replace(runs[1], info=runs[1].info.model_copy(update={"config": {"benchmark": "else"}}))
    said = " ".join(f.text for f in comparison_findings([runs[0], other], []))
    assert "different benchmarks: carb-open, else" in said


def test_metrics_come_in_reading_order():
    table = MetricTable(
        [
            Metric(name="accuracy", value=0.1, n=1, group={"domain": d})
            for d in ("zeta", "safety", "values")
        ]
        + [Metric(name="accuracy", value=0.1, n=1, group={"culture": "x", "domain": "values"})]
    )
    assert [m.group["domain"] for m in table.by("accuracy", "domain")] == [
        "values",
        "safety",
        "zeta",
    ]
    assert table.get("accuracy") is None
    assert table.value("accuracy", domain="safety") == 0.1
