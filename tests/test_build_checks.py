"""What a writer's text must be, what compares texts, and the builder's prompts."""

import importlib.util
import json

import pytest

from habitus.build.checks import Lingua, check_reply, repeats
from habitus.build.embedders import EmbedderOptions, make_embedder
from habitus.build.filtering import Case, Filter
from habitus.build.records import Outcome, StageLog
from habitus.clients.engine import Reply
from habitus.clients.recognise import base
from habitus.errors import HabitusError, InputError, MissingExtraError, UnknownNameError
from habitus.prompts.building import BUILD_PROMPTS, load_build_prompts, parse_build_prompt
from habitus.types import Status
from tests.dummy_server import DummyServer


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("  You bow. ", "You bow."),
        ("Answer: You bow.", "You bow."),
        ("**Answer:** You **bow**.", "You bow."),
        ("<think>hm\n- a</think>\nYou bow.", "You bow."),
        ('"You bow."', "You bow."),
        ("「お辞儀をします。」", "お辞儀をします。"),
        ('"Bow" means "hello"', '"Bow" means "hello"'),
    ],
)
def test_wrapping_is_taken_off(written, text):
    assert check_reply(Reply(text=written), "en", None).text == text


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(text="You bow."), "ok"),
        (Reply(text="You can't bow here, I'm sorry to say."), "ok"),
        (Reply(text=" \n"), "empty"),
        (Reply(text="?!"), "empty"),
        (Reply(text="<think>and so"), "empty"),
        (Reply(text="You", finished=False), "truncated"),
        (Reply(text="As an AI language model, I"), "refused"),
        (Reply(text="申し訳ありませんが、お答えできません。"), "refused"),
        (Reply(text="1. Bow\n2. Sit"), "markup"),
        (Reply(text="Bow.\n\nThen sit."), "markup"),
        (Reply(status=Status.REFUSED, error="filter"), "refused"),
        (Reply(status=Status.TRUNCATED, error="long"), "truncated"),
        (Reply(status=Status.UNPARSED, error="?"), "error"),
    ],
)
def test_failures_have_a_status(reply, outcome):
    assert check_reply(reply, "en", None).status == outcome


def test_repetition_is_seen_through_case_and_marks():
    assert repeats("Shoes off, in the HALL!", "You take shoes off in the hall, then")
    assert not repeats("Shoes off in the hall", "What happens in the hall?")
    assert repeats("玄関で靴を脱ぐ", "日本では玄関で靴を脱ぐのですか")
    assert not repeats("", "anything")


def test_base_languages():
    assert [base(tag) for tag in ("zh-Hans", "es_MX", "EN", "no")] == ["zh", "es", "en", "nb"]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lingua"), reason="needs lingua")
def test_lingua_tells_languages_apart():
    lingua = Lingua(["de", "th", "zh-Hans", "xx"])
    german = "Man zieht die Schuhe im Flur aus."
    assert check_reply(Reply(text=german), "de-AT", lingua).status is Outcome.OK
    assert check_reply(Reply(text=german), "th", lingua).status is Outcome.LANGUAGE
    assert (
        check_reply(Reply(text="在门口脱鞋，然后换上拖鞋。"), "zh-Hans", lingua).status
        is Outcome.OK
    )
    assert check_reply(Reply(text=german), "xx", lingua).status is Outcome.OK  # not known
    assert check_reply(Reply(text="Ja."), "th", lingua).status is Outcome.OK  # too short
    assert lingua.recognise(german) == "de"


@pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="needs scikit-learn")
def test_ngrams_compare_wording():
    embedder = make_embedder("tfidf", EmbedderOptions())
    facts = ["Guests take off shoes.", "Guests bring flowers.", "玄関で靴を脱ぐ。"]
    embedder.fit(facts)
    (own, other, same), tokens = embedder.cosines(
        "You take off your shoes.", [facts[0], facts[1], "You take off your shoes."]
    )
    assert same == pytest.approx(1)
    assert own > other > 0
    assert tokens == 0
    assert embedder.cosines("靴を脱ぐ", [facts[2]])[0][0] > 0.3
    assert embedder.cosines("qqq", facts)[0] == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [("tfidf:x", "has no models"), ("openai", "needs the model's name"), ("st:/nowhere", "folder")],
)
def test_embedders_that_cannot_be_had(name, message):
    with pytest.raises(InputError, match=message):
        make_embedder(name, EmbedderOptions())


def test_unknown_embedders_and_missing_libraries(monkeypatch):
    with pytest.raises(UnknownNameError, match="tfidf"):
        make_embedder("tfid", EmbedderOptions())
    with pytest.raises(InputError, match="--embedder-url needs"):
        make_embedder("tfidf", EmbedderOptions(url="http://127.0.0.1:1/v1"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"habitus\[audit\]"):
        make_embedder("tfidf", EmbedderOptions())


class Embeddings(DummyServer):
    """Embeds a text as (number of a, number of b, 1)."""

    def __init__(self, broken=False):
        super().__init__()
        self.broken = broken

    def act(self, body):
        from tests.dummy_server import Act

        (text,) = body["input"]
        self.asked.append(body)
        if self.broken:
            return Act(400, {"error": {"message": "no such model"}})
        vector = [text.count("a"), text.count("b"), 1.0]
        data = [{"object": "embedding", "index": 0, "embedding": vector}]
        usage = {"prompt_tokens": len(text), "total_tokens": len(text)}
        return Act(body={"object": "list", "model": "e", "data": data, "usage": usage})


def test_a_servers_embeddings_are_asked_for_once(tmp_path):
    server = Embeddings()
    options = EmbedderOptions(server.url, None, 2, tmp_path / "kept")
    try:
        for _ in range(2):
            embedder = make_embedder("openai:e", options)
            assert embedder.fit(["aa", "bb", "aa"]) == 4
            embedder.prepare(["aa", "ab"])
            # (2, 0, 1) with itself and with (0, 2, 1): 1 and 1/5.
            assert embedder.cosines("aa", ["aa", "bb"]) == (
                [pytest.approx(1), pytest.approx(0.2)],
                2,
            )
            assert embedder.cosines("c", ["aa"])[1] == 1
            embedder.close()
        assert sorted(body["input"][0] for body in server.asked) == ["aa", "ab", "bb", "c"]
        assert embedder.across_languages
    finally:
        server.close()


def test_a_server_without_embeddings_ends_the_build(tmp_path):
    server = Embeddings(broken=True)
    embedder = make_embedder("openai:e", EmbedderOptions(server.url))
    try:
        with pytest.raises(HabitusError, match=r"gives no embedding by e: .*no such model"):
            embedder.fit(["aa"])
    finally:
        embedder.close()
        server.close()


class Fixed:
    name, near, across_languages = "fixed", 0.5, True

    def __init__(self, *values):
        self.values = list(values)

    def prepare(self, texts):
        pass

    def cosines(self, text, others):
        return self.values, 7


@pytest.mark.parametrize(
    ("values", "margin", "outcome"),
    [
        ((0.5, 0.4, 0.1), 0.0, "ok"),
        ((0.49, 0.1, 0.1), 0.0, "dissimilar"),  # below near
        ((0.6, 0.1, 0.6), 0.0, "dissimilar"),  # as near to another
        ((0.6, 0.1, 0.55), 0.1, "dissimilar"),  # within the margin
        ((0.7, 0.1, 0.5), 0.1, "ok"),
    ],
)
def test_the_filter(tmp_path, values, margin, outcome):
    log = StageLog(tmp_path / "filtered.jsonl")
    spent = []
    keep = Filter(Fixed(*values), 0.5, margin, lambda text, tokens: spent.append(tokens))
    case = Case("x", 1, "text", "own", ("b", "c"), "chosen")
    (record,) = keep.judge([case], log)
    assert record.status == outcome
    assert record.similarities == {"own": values[0], "other": max(values[1:])}
    unused = Filter(None, 0.5, margin)
    unused._embedder = Fixed()  # what has a record is not compared again
    assert unused.judge([case], log) == [record]
    assert spent == [7]
    log.close()


def test_prompts_of_the_builder_load_and_mark_data():
    prompts = load_build_prompts()
    assert prompts.keys() == BUILD_PROMPTS.keys()
    assert all({"system", "user"} == set(prompt.sections) for prompt in prompts.values())
    assert len({prompt.digest for prompt in prompts.values()}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{text}", r"no section \[user\]"),
        ("[user]\n{text} {target} {length}\n", r"\{language\} is missing or unknown"),
        ("[user]\n{text} {target} {length} {language} {fact}\n", r"\{fact\} is missing or unknown"),
    ],
)
def test_broken_prompts_of_the_builder_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_build_prompt("length", text.encode())


def test_records_are_readable_and_written_whole(tmp_path):
    from habitus.build.records import StageRecord

    log = StageLog(tmp_path / "a.jsonl")
    record = StageRecord(stage="chosen", key="a", unit="u", attempt=1, status="ok", text="ข้าว")
    log.append(record)
    log.close()
    line = (tmp_path / "a.jsonl").read_text("utf-8")
    assert "ข้าว" in line
    assert json.loads(line)["status"] == "ok"
    again = StageLog(tmp_path / "a.jsonl")
    assert again.find("u") == record
    again.close()
