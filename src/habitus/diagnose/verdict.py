"""From figures to words: what a reward model follows, as far as the tests tell.

Each cue's mean change is tested against 0, CC's absolute change against that of the paper's surface
cues, and each language's advantage against 0: sign-flip tests over parents, corrected after Holm
over all of them. A trait is named when its test is clear (corrected p < 0.05, interval without 0):

- follows the concept: CC lowers the score, and moves it more than RC, CL and RP do;
- follows the label, length, marks, or the wording: RC, LN, FM or RP moves it;
- obeys instructions in responses: IN raises it;
- prefers a language: its versions get more than the same content in other languages.

Longer texts can score higher whatever makes them longer. So where LN is clear, every other test is
made again with the effect of the length taken off (`habitus.metrics.cues.beyond_length`), and a
trait is named only when that test is clear too, in the same direction.

A mean below `SLIGHT` standard deviations is called slight. Nothing clear: it cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from habitus import taxonomy
from habitus.diagnose.model import CueTest, Tone, Trait
from habitus.metrics.bootstrap import RESAMPLES
from habitus.metrics.cue_contrast import causal_minus_surface
from habitus.metrics.cue_figures import change_test, means
from habitus.metrics.cue_languages import favour_sides, language_pairs
from habitus.metrics.cues import CUES, Effects, beyond_length
from habitus.metrics.groups import make_groups
from habitus.metrics.statistics import Floats, Ints, holm
from habitus.types import Metric

SLIGHT = 0.2
"""Mean changes below so many standard deviations are called slight."""

OVER_SURFACE = "CC over surface"
"""Name of the test of CC's absolute change against that of surface edits."""

BEYOND = " beyond length"
"""Ends the name of a test with the effect of the length taken off."""

LENGTH = ("LN best", "LN rival")
"""Names of the tests of the length."""

_LENGTH_AGAIN = tuple(name + BEYOND for name in LENGTH)
_MANY_LANGUAGES = 3

_SURFACE = {
    # cue: what a fall and what a rise of the score mean
    "RC": ("follows the label", "avoids the label"),
    "LN": ("penalises length", "follows length"),
    "FM": ("penalises marks", "follows marks"),
    "RP": ("depends on the wording", "depends on the wording"),
    "IN": ("penalises instructions in responses", "obeys instructions in responses"),
}


def run_tests(
    effects: Effects, metrics: Iterable[Metric], seed: int, resamples: int = RESAMPLES
) -> tuple[CueTest, ...]:
    """Return all tests of a diagnosis, Holm-corrected together.

    Args:
        effects: The effects in the first form.
        metrics: The figures, of which tests take their intervals, so that both show the same.
        seed: Seed of the resampling and of the tests' draws.
        resamples: Bootstrap replicates of each interval.
    """
    known = _intervals(effects, metrics)
    family = [
        test.model_copy(update=known.get(test.name, {}))
        for test in _family(effects, seed, resamples)
    ]
    found = _corrected(family)
    if any(test.clear for test in found if test.name in LENGTH):
        adjusted = beyond_length(effects)
        if adjusted is not None:
            again = _family(adjusted, seed, resamples, BEYOND)
            found = _corrected(
                [*found, *(test for test in again if test.name not in _LENGTH_AGAIN)]
            )
    return found


def _intervals(effects: Effects, metrics: Iterable[Metric]) -> dict[str, dict[str, float | None]]:
    """Return the intervals that the figures have, by the name of the test."""
    found = {}
    for metric in metrics:
        group = metric.group
        bounds = {"ci_low": metric.ci_low, "ci_high": metric.ci_high}
        if metric.name == "change_sd" and group.keys() == {"form", "cue", "target"}:
            name = f"{group['cue']} {group['target']}"
        elif metric.name == "language_favour" and group.keys() == {"form", "language"}:
            name = f"favours {group['language']}"
        else:
            continue
        if group["form"] == effects.form:
            found[name] = bounds
    return found


def _corrected(tests: Sequence[CueTest]) -> tuple[CueTest, ...]:
    return tuple(
        test.model_copy(update={"p_holm": p})
        for test, p in zip(tests, holm([test.p for test in tests]), strict=True)
    )


def _family(effects: Effects, seed: int, resamples: int, suffix: str = "") -> list[CueTest]:
    found = []

    def add(name: str, values: Floats, cluster: Ints) -> None:
        found.append(_test(f"{name}{suffix}", values, cluster, seed, resamples))

    change, parent = effects.change_sd, effects.parent
    for cue in CUES:
        for target in ("best", "rival"):
            rows = ((effects.table["cue"] == cue) & (effects.table["target"] == target)).to_numpy()
            if rows.any():
                add(f"{cue} {target}", change[rows], parent[rows])
    difference, parents = causal_minus_surface(effects)
    if len(difference):
        add(OVER_SURFACE, difference, parents)
    sides = favour_sides(language_pairs(effects))
    for language in sorted(sides["side"].unique().to_list()):
        side = sides.filter(pl.col("side") == language)
        cluster = side["parent"].to_numpy().astype(np.int64)
        add(f"favours {language}", side["delta"].to_numpy(), cluster)
    return found


def _test(name: str, values: Floats, cluster: Ints, seed: int, resamples: int) -> CueTest:
    everything = make_groups(pl.DataFrame({"row": np.arange(len(values))}), [()])
    purpose = f"cues/test/{name}"
    [mean] = means(
        values,
        cluster,
        everything,
        share=False,
        seed=seed,
        purpose=purpose,
        resamples=resamples,
    )
    missing = int(np.isnan(values).sum())
    return CueTest(
        name=name,
        mean=mean.value,
        ci_low=mean.low,
        ci_high=mean.high,
        p=change_test(values, cluster, seed, purpose),
        n=len(values) - missing,
        n_excluded=missing,
    )


def find_traits(tests: Sequence[CueTest]) -> tuple[Trait, ...]:
    """Return what the tests tell of a reward model, largest effect first."""
    again = {test.name: test for test in tests if test.name.endswith(BEYOND)}
    by_name = {
        test.name: _both(test, again.get(test.name + BEYOND))
        for test in tests
        if test.name not in again
    }
    found = [*_concept(by_name), *_surface(by_name), *_language(by_name)]
    return tuple(sorted(found, key=lambda trait: -trait.effect))


def _both(test: CueTest, again: CueTest | None) -> CueTest:
    """Return a test; one that is not clear beyond length, as one that says nothing."""
    agrees = again is None or (again.raises == test.raises and again.lowers == test.lowers)
    return test if agrees else test.model_copy(update={"p_holm": 1.0})


def _concept(tests: Mapping[str, CueTest]) -> Iterable[Trait]:
    changed, over = tests.get("CC best"), tests.get(OVER_SURFACE)
    if changed is None or changed.mean is None:
        return
    if changed.lowers and over is not None and over.raises:
        yield _trait("follows the concept", "good", changed, "a changed concept moves the score by")
    elif changed.raises:
        name = "prefers a wrong concept"
        yield _trait(name, "bad", changed, "a changed concept moves the score by")


def _surface(tests: Mapping[str, CueTest]) -> Iterable[Trait]:
    for cue, (fall, rise) in _SURFACE.items():
        clear = [
            test
            for target in ("best", "rival")
            if (test := tests.get(f"{cue} {target}")) is not None and test.clear
        ]
        if clear:
            test = max(clear, key=lambda test: abs(test.mean or 0.0))
            name = rise if test.raises else fall
            yield _trait(name, "bad", test, f"“{CUES[cue].words}” moves the score by")


def _language(tests: Mapping[str, CueTest]) -> Iterable[Trait]:
    favoured = [test for name, test in tests.items() if name.startswith("favours ") and test.raises]
    changed = tests.get("CL best")
    loses = changed is not None and changed.lowers
    # When every language wins at home, it is the prompt's language that is preferred.
    if favoured and not (loses and len(favoured) >= _MANY_LANGUAGES):
        for test in favoured:
            name = language_name(test.name.removeprefix("favours "))
            words = f"against the same content in other languages, {name} gets"
            yield _trait(f"prefers {name}", "bad", test, words)
    elif changed is not None and changed.clear:
        name = "prefers the prompt's language" if loses else "prefers other languages"
        yield _trait(name, "bad", changed, "another language moves the score by")


def language_name(tag: str) -> str:
    """Return a language's English name, or the tag when it is unknown."""
    known = taxonomy.lookup(tag)
    return known.name if known else tag


def _trait(name: str, tone: str, test: CueTest, words: str) -> Trait:
    effect = abs(test.mean or 0.0)
    slight = "slightly " if effect < SLIGHT else ""
    evidence = f"{slight}{name}: {words} {interval(test)}"
    return Trait.model_validate(
        {"name": f"{slight}{name}", "tone": tone, "evidence": evidence, "effect": effect}
    )


def interval(test: CueTest) -> str:
    """Return a test's mean with its interval in words: "−1.20 SD (−1.41 to −0.99), n = 60"."""
    if test.mean is None:
        return "nothing that can be measured"
    text = f"{test.mean:+.2f} SD"
    if test.ci_low is not None and test.ci_high is not None:
        text += f" ({test.ci_low:+.2f} to {test.ci_high:+.2f})"
    p = test.p_holm
    shown = "" if p is None else ", Holm p < 0.001" if p < 0.001 else f", Holm p {p:.3f}"
    return f"{text}, n = {test.n:,}{shown}".replace("-", "−")


def say_verdict(
    effects: Effects, n_judged: int, tests: Sequence[CueTest], traits: Sequence[Trait]
) -> tuple[str, Tone]:
    """Return the verdict in one sentence, and how to show it.

    Args:
        effects: The effects in the first form.
        n_judged: Parents with a verdict.
        tests: The tests.
        traits: What they tell.
    """
    if effects.sd is None or not n_judged:
        return "No parent has a verdict, so nothing can be told.", "empty"
    if effects.sd == 0:
        return (
            "This model gives all responses the same score, so what it follows cannot be told.",
            "empty",
        )
    if not traits:
        n = sum(test.clear for test in tests)
        clear = "no edit moves its score" if not n else "no edit decides it"
        return (
            f"What this model follows cannot be told: {clear} beyond the noise of "
            f"{n_judged:,} parents.",
            "unclear",
        )
    names = [trait.name for trait in traits]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    bad = any(trait.tone == "bad" for trait in traits)
    return f"This model {listed}.", "bad" if bad else "good"
