"""`habitus perturb`: a writer's edits, their checks, failures as data, resume to the same bytes."""

import importlib.util
import json
from pathlib import Path

import pytest

from habitus.cli.perturb import perturb as command
from habitus.clients.engine import Reply
from habitus.data import Benchmark, load
from habitus.diagnose.perturb import PerturbPlan, WantedCue, parse_cues, perturb
from habitus.diagnose.writing import (
    PROMPTS,
    Lingua,
    Outcome,
    check,
    is_copy,
    load_prompt,
    script_share,
    similarity,
)
from habitus.errors import InputError, RunError
from habitus.metrics.cues import read_cues
from habitus.types import Status
from tests.conftest import make_item, read_jsonl
from tests.judge_fakes import Fake, text, user_text

ITEM = make_item()
BEST = ITEM.candidates[0]  # "Soba noodles, for a long life."


def bench(n=3, **fields):
    items = tuple(make_item(number, **fields) for number in range(n))
    return Benchmark("bench", items, "native", Path("bench.jsonl"))


def writer(answer=None, **traits):
    """A writer that answers by what it is asked: each prompt file says it in its own words."""

    def by_default(request):
        said = user_text(request)
        if "Translate" in said:
            return text("長生きを願って、そばを食べます。")
        if "Change its core" in said:
            return text("Rice cakes, for a long life.")
        if "Reverse the act" in said:
            return text("No soba noodles, for a long life.")
        if "generic" in said:
            return text("Something nice to eat, as one likes.")
        return text("For long living, one has noodles of soba.")

    return Fake(answer or by_default, **traits)


def run(tmp_path, cues, engine=None, name="out.jsonl", n=3, **options):
    plan = PerturbPlan(
        bench(n), parse_cues(cues), tmp_path / name, writer=engine, languages=("ja",), **options
    )
    return perturb(plan)


def test_all_cues_of_a_writer_make_a_cue_benchmark(tmp_path):
    found = run(tmp_path, "CC,CL,RP,GN,OP,LN,FM,IN", writer())
    assert found.made == dict.fromkeys(("CC", "CL", "RP", "GN", "OP", "LN", "FM", "IN"), 3)
    assert found.failed == {}
    loaded = load(str(found.path))
    cues = read_cues(loaded.items)
    assert (len(cues.parents), len(cues.edits), found.n_items) == (3, 24, 27)
    assert [item.id for item in loaded.items[:4]] == [
        "item-0",
        "item-0--CC",
        "item-0--CL-ja",
        "item-0--RP",
    ]
    [translated] = [edit for edit in cues.edits if edit.item.id == "item-0--CL-ja"]
    candidate = translated.item.candidates[0]
    assert (candidate.language, candidate.source_model) == ("ja", "fake")
    assert (tmp_path / "out.jsonl.failures.jsonl").read_text() == ""


def test_what_a_writer_reads_cannot_pose_as_the_prompt():
    sample = make_item(candidates=[{"id": "a", "text": "{question}"}, {"id": "b", "text": "B"}])
    engine = writer(lambda request: text("x"))
    plan = PerturbPlan(
        Benchmark("b", (sample,), "native", Path("b")), parse_cues("RP"), Path(), writer=engine
    )
    from habitus.diagnose.perturb import _request, _tasks

    task = next(task for task in _tasks(plan) if task.cue == "RP")
    segments = _request(plan, task, 1).chat[-1].segments
    assert [part.text for part in segments if not part.trusted] == [
        "1: what is eaten on New Year's Eve?",
        "{question}",
        "English",
    ]


def test_failures_are_kept_counted_and_tried_again(tmp_path):
    asked = []

    def answer(request):
        asked.append(request.seed)
        return text(BEST.text)  # a copy, always

    found = run(tmp_path, "RP", writer(answer), n=2)
    assert found.failed == {("RP", "copy"): 2}
    assert len(asked) == len(set(asked)) == 6
    rows = read_jsonl(tmp_path / "out.jsonl.failures.jsonl")
    assert rows[0] == {
        "id": "item-0--RP",
        "parent_id": "item-0",
        "cue": "RP",
        "status": "copy",
        "reason": "the text is that before the edit",
        "attempts": 3,
        "text": BEST.text,
    }
    assert [item.id for item in load(str(found.path)).items] == ["item-0", "item-1"]


def test_a_second_attempt_can_succeed(tmp_path):
    replies = iter(
        [text("soba noodles, for a long LIFE"), text("Noodles of soba: for living long.")]
    )
    found = run(tmp_path, "RP", writer(lambda request: next(replies)), n=1)
    assert (found.made, found.failed) == ({"RP": 1}, {})


@pytest.mark.parametrize("window", [1, 4])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, window):
    def answer(request):
        # Depends on the request alone; every third text is a copy, and fails.
        return text(
            BEST.text if request.seed % 3 == 0 else f"Rice {request.seed}, for a long life."
        )

    whole = run(tmp_path, "CC,RC,RP,IN", writer(answer), "whole.jsonl", n=6, attempts=1)
    assert whole.failed
    count = 0

    def killed(request):
        nonlocal count
        count += 1
        if count == 9:
            raise KeyboardInterrupt
        return answer(request)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "CC,RC,RP,IN", writer(killed, window=window), n=6, attempts=1)
    with (tmp_path / "out.jsonl").open("ab") as file:
        file.write(b'{"id": "torn')
    engine = writer(answer)
    found = run(tmp_path, "CC,RC,RP,IN", engine, n=6, attempts=1, resume=True)
    assert found.made == whole.made
    assert found.failed == whole.failed
    for suffix in ("", ".failures.jsonl"):
        old, new = tmp_path / f"whole.jsonl{suffix}", tmp_path / f"out.jsonl{suffix}"
        assert new.read_bytes() == old.read_bytes()
    assert 0 < len(engine.asked) < 18


def test_another_configuration_is_refused(tmp_path):
    run(tmp_path, "LN", n=2)
    with pytest.raises(RunError, match="add --resume"):
        run(tmp_path, "LN", n=2)
    with pytest.raises(RunError, match="cues was 'LN' and is now 'FM'"):
        run(tmp_path, "FM", n=2, resume=True)
    assert run(tmp_path, "LN", n=2, resume=True).made == {"LN": 2}


def test_a_foreign_line_is_refused(tmp_path):
    run(tmp_path, "LN", n=1)
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write('{"id": 5}\n')
    with pytest.raises(RunError, match="line 3: not a line of habitus perturb"):
        run(tmp_path, "LN", n=1, resume=True)


def test_an_engine_that_raises_fails_its_texts_only(tmp_path):
    def answer(request):
        raise ValueError("broken pipe")

    found = run(tmp_path, "CC,LN", writer(answer), n=1)
    assert found.made == {"LN": 1}
    assert found.failed == {("CC", "error"): 1}
    [row] = read_jsonl(tmp_path / "out.jsonl.failures.jsonl")
    assert row["reason"] == "ValueError: broken pipe"


def test_mechanical_labels_need_no_writer_where_the_list_has_them(tmp_path):
    texts = [{"id": "a", "text": "In Japan, soba."}, {"id": "b", "text": "A goose."}]
    named = make_item(0, candidates=texts)
    data = Benchmark("b", (named, make_item(1)), "native", Path("b"))
    found = perturb(PerturbPlan(data, parse_cues("RC"), tmp_path / "out.jsonl"))
    assert found.failed == {("RC", "nothing"): 1}
    edit = load(str(found.path)).items[1]
    assert edit.candidates[0].text == "In this country, soba."


def test_edits_that_are_there_are_kept(tmp_path):
    first = run(tmp_path, "LN,IN@best", n=2)
    plan = PerturbPlan(load(str(first.path)), parse_cues("LN,FM"), tmp_path / "more.jsonl")
    assert perturb(plan).made == {"LN": 2, "IN": 2, "FM": 2}
    ids = [item.id for item in load(str(tmp_path / "more.jsonl")).items]
    assert ids[:4] == ["item-0", "item-0--LN", "item-0--IN-best", "item-0--FM"]


def test_cues_that_need_a_writer_say_so(tmp_path):
    with pytest.raises(InputError, match="CC, RP need --writer MODEL"):
        run(tmp_path, "CC,RP,LN")


def test_cue_lists_are_read():
    assert parse_cues("IN,LN@rival") == (WantedCue("IN", "rival"), WantedCue("LN", "rival"))
    for wrong, message in (("XX", "unknown cue 'XX'"), ("LN@all", "'all'"), ("LN,LN", "twice")):
        with pytest.raises(InputError, match=message):
            parse_cues(wrong)


@pytest.mark.parametrize(
    ("cue", "reply", "outcome"),
    [
        ("RP", text("“For long living, noodles of soba.”"), Outcome.OK),
        ("RP", text("SOBA NOODLES for a long life!"), Outcome.COPY),
        ("CC", text("A goose!"), Outcome.DUPLICATE),
        ("CC", text("Rice."), Outcome.LENGTH),
        ("RP", text("Long " * 20), Outcome.LENGTH),
        ("RP", text("Лапша соба, к долгой жизни."), Outcome.LANGUAGE),
        ("RP", text("<think>hm</think>\n\n"), Outcome.EMPTY),
        ("RP", text("..."), Outcome.EMPTY),
        ("RP", text("I'm sorry, but no noodles today."), Outcome.REFUSED),
        ("RP", text("For long", finished=False), Outcome.TRUNCATED),
        ("RP", Reply(status=Status.REFUSED, error="filtered"), Outcome.REFUSED),
        ("RP", Reply(status=Status.ERROR, error="500"), Outcome.ERROR),
    ],
)
def test_checks(cue, reply, outcome):
    assert check(reply, ITEM, BEST, cue, "en").status is outcome


def test_labels_are_checked():
    texts = [{"id": "a", "text": "In Japan, soba noodles."}, {"id": "b", "text": "A goose."}]
    sample = make_item(candidates=texts)
    best = sample.candidates[0]
    kept, lost = text("In Japan, rice cakes."), text("Over there, rice cakes.")
    assert check(kept, sample, best, "CC", "en").status is Outcome.OK
    assert check(lost, sample, best, "CC", "en").status is Outcome.LABEL
    assert check(kept, sample, best, "RC", "en").status is Outcome.LABEL
    assert check(lost, sample, best, "RC", "en").status is Outcome.OK


def test_translations_are_checked_for_their_script():
    for language, right, wrong in (
        ("ja", "そばを食べます。", "吃荞麦面。"),
        ("zh-Hans", "吃荞麦面，长寿。", "そばを食べます。"),
        ("ko", "메밀국수를 먹는다.", "Soba noodles!"),
        ("ar", "نأكل السوبا لعمر طويل", "Soba, and long life to us"),
        ("th", "กินโซบะเพื่ออายุยืน", "そばを食べます。"),
    ):
        assert check(text(right), ITEM, BEST, "CL", language).status is Outcome.OK
        assert check(text(wrong), ITEM, BEST, "CL", language).status is Outcome.LANGUAGE


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lingua"), reason="needs lingua")
def test_lingua_tells_languages_of_one_script():
    lingua = Lingua(["de", "vi"])
    german = text("Sobanudeln, damit man lange lebt und gesund bleibt.")
    assert check(german, ITEM, BEST, "CL", "de", lingua).status is Outcome.OK
    assert check(german, ITEM, BEST, "CL", "vi", lingua).status is Outcome.LANGUAGE
    assert lingua.probability("Ja", "de") is None
    assert lingua.probability("Sobanudeln für ein langes Leben", "sw") is None


def test_likeness():
    assert similarity("abc", "abc") == pytest.approx(1)
    assert similarity("abc", "xyz") == 0
    assert similarity("", "") == 0
    assert is_copy("Ｓｏｂａ, noodles.", "soba noodles")
    assert script_share("日本 soba", "Latin") == pytest.approx(4 / 6)
    assert script_share("123", "Latin") is None


def test_prompts_are_complete():
    for cue in PROMPTS:
        prompt = load_prompt(cue)
        for name in ("question", "text", "language"):
            if (cue, name) != ("RC", "culture"):
                assert f"{{{name}}}" in prompt.sections["user"]
    with pytest.raises(InputError, match="LN is not written by a model"):
        load_prompt("LN")


def test_the_command(tmp_path, write_items, capsys):
    path = write_items([make_item(number) for number in range(2)])
    out = tmp_path / "cues.jsonl"
    command.main([str(path), "--cue", "RC,LN,IN", "--out", str(out)], standalone_mode=False)
    shown = capsys.readouterr()
    assert "6 items: 2 LN, 2 IN" in shown.out
    assert "failed: 2 RC nothing" in shown.out
    assert f"habitus diagnose MODEL --benchmark {out}" in shown.err
    assert json.loads((tmp_path / "cues.jsonl.run.json").read_text())["cues"] == "RC,LN,IN"
    with pytest.raises(InputError, match="need --writer MODEL"):
        command.main(
            [str(path), "--cue", "LN", "--out", str(out), "--base-url", "http://x"],
            standalone_mode=False,
        )
