"""The HTML pages: structure, escaping, policy, missing figures, size."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from habitus.report import page, render_comparison, render_run
from habitus.types import Candidate, Gloss, Message, Metric, RunInfo, ScorerSpec
from tests import report_samples as samples

NASTY = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</style></details></main>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% for x in y %}{# c #}",
    "<!--",
    "]]>&lt;&amp;",
    "\u2028\u2029\u202e\u0000\x1b[31m",
    "javascript:alert(1)",
]


class Page(HTMLParser):
    """Collects tags, attributes, text and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.ids: list[str] = []
        self.text = ""
        self._script: dict[str, str | None] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "script":
            self._script = dict(attrs)

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", ()))

    def handle_data(self, data):
        if self._script is not None:
            self.scripts.append((self._script, data))
            self._script = None
        else:
            self.text += data


@pytest.fixture(autouse=True)
def _short_bundle(monkeypatch):
    """Leave the chart library out: it is 0.9 MB and takes a second to make."""
    monkeypatch.setattr(page, "_bundle", lambda: "window.vegaEmbed = null;")


def small(suffix: str = "", **changes):
    """A run of 4 items with `suffix` on every string that comes from outside."""

    def edit(item):
        return item.model_copy(
            update={
                "id": item.id + suffix,
                "prompt": (Message(role="user", content="question " + suffix),),
                "candidates": tuple(
                    Candidate(
                        id=c.id,
                        text=c.text + suffix,
                        source_model="m" + suffix,
                        culture="c" + suffix,
                        note="n" + suffix,
                    )
                    for c in item.candidates
                ),
                "culture": f"{item.culture}{suffix}",
                "country": f"{item.country}{suffix}",
                "language": f"{item.language}{suffix}",
                "source": "source" + suffix,
                "licence": "licence" + suffix,
                "author": "author" + suffix,
                "reason": "reason" + suffix,
                "parent_id": "parent" + suffix,
                "cue": "cue" + suffix,
                "gloss": Gloss(prompt="gloss" + suffix, candidates=dict.fromkeys("abcd", suffix)),
                "references": tuple(
                    r.model_copy(
                        update={"fact": r.fact + suffix, "title": suffix, "publisher": suffix}
                    )
                    for r in item.references
                ),
            }
        )

    chosen = samples.items()[:4]
    full = samples.run("label", sample=chosen, failures=0.5, seed=3)
    spec = ScorerSpec(
        kind="kind", model="model" + suffix, revision="r" + suffix, parameters={"p": "v" + suffix}
    )
    return replace(
        full,
        label="label" + suffix,
        info=RunInfo(
            id="run" + suffix,
            config={"benchmark": "bench" + suffix, "digest": "d" + suffix, "k" + suffix: suffix},
            scorer=spec,
            seed=3,
            n_items=4,
            versions={"lib" + suffix: "1" + suffix},
            started="then" + suffix,
        ),
        metrics=tuple(
            metric.model_copy(
                update={
                    "group": {
                        key: value + suffix if key in samples_groups else value
                        for key, value in metric.group.items()
                    }
                }
            )
            for metric in full.metrics
        ),
        comparisons=tuple(c.model_copy(update={"a": "label" + suffix}) for c in full.comparisons),
        examples=tuple(
            (
                edit(item),
                judgement
                and judgement.model_copy(update={"raw": "raw" + suffix, "error": "error" + suffix}),
            )
            for item, judgement in full.examples
        ),
        notes=("note" + suffix,),
        command="habitus" + suffix,
        **changes,
    )


samples_groups = {"culture", "country", "language", "script", "family", "source"}


def both(suffix: str) -> list[Page]:
    run = small(suffix)
    other = replace(run, label="other" + suffix)
    pair = samples.comparison(run.label, other.label, 0.1, 0.2)
    return [
        Page(render_run(run)),
        Page(render_comparison([run, other], [pair], notes=["note" + suffix])),
    ]


PLAIN = None


def plain() -> list[Page]:
    global PLAIN
    PLAIN = PLAIN or both("plain")
    return PLAIN


@pytest.mark.parametrize("nasty", NASTY)
def test_outside_text_never_changes_the_structure(nasty):
    for clean, dirty in zip(plain(), both(nasty), strict=True):
        assert dirty.tags == clean.tags


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.text(alphabet=st.sampled_from("<>&\"'{}%/!-=aä\u2028\u0600\n\x00"), min_size=1, max_size=30)
)
def test_no_string_changes_the_structure(suffix):
    for clean, dirty in zip(plain(), both(suffix), strict=True):
        assert dirty.tags == clean.tags


def test_outside_text_is_shown_as_text():
    nasty = "<b>{{ 7*7 }}</b>"
    run, comparison = both(nasty)
    assert run.text.count(nasty) > 30
    assert comparison.text.count(nasty) > 10
    assert "49" not in run.text.replace("0.49", "")


@pytest.mark.parametrize("nasty", NASTY)
def test_json_blocks_cannot_end_their_script(nasty):
    text = page.script_json({nasty: [nasty, 1, None]})
    assert not re.search("[<>&\u2028\u2029]", text)
    ((key, values),) = json.loads(text).items()
    cleaned = nasty.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert key == cleaned
    assert values == [cleaned, 1, None]


def test_lone_surrogates_do_not_break_the_file():
    render_run(replace(small(), label="bad \ud800", notes=("\udfff",))).encode("utf-8")


def policy(found: Page) -> str:
    return next(
        value
        for tag, name, value in found.attributes
        if tag == "meta" and name == "content" and "default-src" in value
    )


@pytest.mark.parametrize("index", [0, 1])
def test_the_policy_lets_only_our_scripts_run(index):
    found = plain()[index]
    rules = policy(found)
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for attributes, text in found.scripts
        if "type" not in attributes
    }
    allowed = re.search("script-src ([^;]*)", rules)
    assert allowed
    assert set(allowed[1].split()) == hashes
    assert len(hashes) == 2
    assert rules.startswith("default-src 'none'")
    assert "unsafe-eval" not in rules
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]


@pytest.mark.parametrize("index", [0, 1])
def test_nothing_is_loaded_from_elsewhere(index):
    found = plain()[index]
    for tag, name, value in found.attributes:
        if name in {"src", "href", "srcset", "data", "action", "poster"}:
            local = value.startswith(("#", "data:"))
            assert local or (tag == "a" and value.startswith("https://arxiv.org/")), (tag, value)
    assert not {tag for tag, _ in found.tags} & {"iframe", "object", "embed", "img", "base"}


@pytest.mark.parametrize("index", [0, 1])
def test_every_chart_has_a_place_and_a_table(index):
    found = plain()[index]
    specs = json.loads(
        next(text for attrs, text in found.scripts if attrs.get("id") == "chart-specs")
    )
    places = {value.removeprefix("chart-") for value in found.ids if value.startswith("chart-")}
    assert set(specs) == places - {"specs"}
    assert specs
    assert len(found.ids) == len(set(found.ids))
    names = [tag for tag, _ in found.tags]
    assert names.count("table") >= len(specs)
    assert "http" not in json.dumps(specs)


def test_void_and_closed_tags_balance():
    open_tags = []
    for tag, _ in plain()[0].tags:
        if tag in {"meta", "link", "input"}:
            continue
        if tag.startswith("/"):
            assert open_tags.pop() == tag[1:]
        else:
            open_tags.append(tag)
    assert open_tags == []


def test_texts_carry_direction_and_language():
    text = render_run(samples.run(sample=samples.items()))
    assert re.search('<p class="data" dir="auto" lang="ar">أحيّي', text)
    assert re.search('<p class="data" dir="auto" lang="th">ถอด', text)
    assert re.search('<p class="data" dir="auto" lang="zh-Hans">', text)


def test_safety_items_are_folded_away_twice():
    text = render_run(samples.run(sample=samples.items()[2:3], failures=0))
    summary = re.search('<details class="item".*?</summary>', text, re.DOTALL)
    assert summary
    assert samples.TEXTS["Arabic"][5] not in summary[0]
    assert samples.TEXTS["Arabic"][5] in text
    assert text.count('<details class="sensitive">') == 1
    open_text = render_run(samples.run(sample=samples.items()[:1], failures=0))
    assert '<details class="sensitive">' not in open_text


def test_an_empty_run_says_no_data():
    found = Page(render_run(samples.empty()))
    assert "No data: no item of this run has a verdict." in found.text
    assert "no data: no items were given" in found.text
    nothing = Page(render_comparison([], []))
    assert "No data: no run has a verdict" in nothing.text
    assert "No data" in Page(render_comparison([samples.empty()], [])).text


def test_figures_without_values_do_not_break_the_page():
    run = samples.run(sample=samples.items()[:8])
    none = tuple(
        Metric(name=metric.name, value=None, n=0, group=metric.group) for metric in run.metrics
    )
    empty = samples.comparison(run.label, "baseline:random", None, None)
    found = Page(render_run(replace(run, metrics=none, comparisons=(empty,))))
    assert "No data: no item of this run has a verdict." in found.text
    assert "None" not in found.text.replace("None of", "")
    pair = samples.comparison("a", "b", None, None, n=0)
    runs = [replace(run, metrics=none, label=label) for label in "ab"]
    assert "No data" in Page(render_comparison(runs, [pair])).text


@pytest.mark.parametrize("dropped", ["chance", "accuracy", "letter_share", "status_count"])
def test_any_figure_may_be_missing(dropped):
    run = samples.run(sample=samples.items()[:4])
    kept = tuple(metric for metric in run.metrics if metric.name != dropped)
    render_run(replace(run, metrics=kept))
    render_comparison([replace(run, metrics=kept)], [])


def test_long_texts_are_cut_with_a_note_and_the_page_stays_small():
    item = samples.items()[0]
    long = "&" * 10_000_000
    item = item.model_copy(
        update={
            "prompt": (Message(role="user", content=long),),
            "candidates": tuple(c.model_copy(update={"text": long}) for c in item.candidates),
        }
    )
    judgement = samples.judge([item], 1.0, 1)[0].model_copy(update={"raw": long})
    run = replace(samples.run(sample=[item]), examples=((item, judgement),) * 400)
    text = render_run(run)
    assert len(text.encode()) < 19_000_000
    assert re.search("shown: first [0-9,]+ of 10,000,000 characters", text)


def test_many_groups_stay_bounded():
    metrics = [
        samples.share("accuracy", 1, 4, culture=f"c{i}", domain=f"d{i}") for i in range(3000)
    ]
    metrics += [samples.share("accuracy", 1, 4, source=f"s{i}") for i in range(3000)]
    text = render_run(replace(samples.empty(), metrics=tuple(metrics)))
    assert len(text) < 1_000_000
    assert "The 40 largest of 3,000 groups" in text


def test_a_cut_text_says_how_much_is_shown():
    item = samples.items()[0]
    item = item.model_copy(update={"prompt": (Message(role="user", content="y" * 4001),)})
    text = render_run(samples.run(sample=[item]))
    assert "shown: first 4,000 of 4,001 characters" in text
    whole = item.model_copy(update={"prompt": (Message(role="user", content="y" * 4000),)})
    assert "shown: first" not in render_run(samples.run(sample=[whole]))


def test_the_command_and_the_paper_are_given():
    found = Page(render_run(samples.run()))
    assert (
        "habitus evaluate --benchmark carb-open --scorer embedded:qwen3-1.7b --seed 1" in found.text
    )
    assert "arXiv 2509.21798" in found.text
    assert "Benchmark digest" in found.text
    assert samples.run().info.scorer.digest in found.text


def test_the_same_run_renders_to_the_same_bytes():
    data = samples.run(sample=samples.items()[:4])
    assert render_run(data) == render_run(data)


@pytest.mark.slow
def test_the_real_bundle_can_stand_in_a_script(monkeypatch):
    monkeypatch.undo()
    text = render_run(samples.run())
    found = Page(text)
    assert "vegaEmbed" in found.scripts[1][1]
    assert 800_000 < len(text) < 2_000_000
