"""Judges behind a server: servers that fail, budgets, cached answers, keys."""

import os
import signal
import threading
import time

import pytest

from habitus.clients.openai_address import Address
from habitus.clients.openai_engine import create
from habitus.clients.openai_session import Patience
from habitus.errors import HabitusError, InputError, UnknownNameError
from habitus.scorers import ScorerOptions
from habitus.types import Status
from tests.dummy_server import KEY, QUICK, Act, chat, connecting, echo, refuse, text


@pytest.fixture
def connect(monkeypatch):
    yield from connecting(monkeypatch)


@pytest.mark.parametrize(
    ("acts", "sent"),
    [
        ((refuse(500, "oops"), refuse(503, "oops")), 3),
        ((refuse(408, "slow"), refuse(409, "busy"), refuse(429, "rate")), 4),
        ((chat(""), chat("  ")), 3),
        ((Act(body=b"{not json"), Act(body=["odd"]), Act(body={"choices": []})), 4),
        ((Act(reset=True),), 2),
        ((Act(200, {"error": {"message": "upstream", "code": 502}}),), 2),
    ],
    ids=["500", "4xx", "empty", "garbage", "reset", "error in 200"],
)
def test_failures_that_pass_are_tried_again(connect, acts, sent):
    server, engine = connect(lambda body: chat("at last"), script=acts)
    (reply,) = engine.execute([text()])
    assert (reply.text, reply.status) == ("at last", None)
    assert len(server.asked) == sent


@pytest.mark.parametrize(
    ("act", "sent", "said"),
    [
        (refuse(500, "oops"), 6, "oops"),
        (chat(""), 3, "empty"),
        (Act(body=b"<html>"), 6, "no JSON"),
        (Act(reset=True), 6, "connection failed"),
    ],
    ids=["500", "empty", "garbage", "reset"],
)
def test_failures_that_stay_are_a_status_and_the_rest_goes_on(connect, act, sent, said):
    def respond(body):
        return act if body["messages"][0]["content"] == "bad" else echo(body)

    server, engine = connect(respond)
    bad, good = engine.execute([text("bad"), text("good")])
    assert bad.status is Status.ERROR
    assert f"given up after {sent} tries" in bad.error
    assert said in bad.error
    assert good.text == "re good"
    assert len(server.asked) == sent + 1


def test_a_server_that_hangs_is_given_up(connect):
    patience = Patience(tries=2, timeout=0.2, first=0.01)
    server, engine = connect(lambda body: Act(hang=True), patience=patience)
    start = time.perf_counter()
    (reply,) = engine.execute([text()])
    assert time.perf_counter() - start < 2
    assert reply.status is Status.ERROR
    assert "no answer within 0.2 seconds" in reply.error
    assert len(server.asked) == 2


def test_retry_after_is_kept_to_by_all_requests(connect):
    times = []

    def respond(body):
        times.append(time.perf_counter())
        if len(times) == 1:
            return refuse(429, "slow down", Retry_After="0.3")
        return Act(body=chat("ok").body, delay=0.05)

    _, engine = connect(respond, concurrency=2)
    replies = engine.execute([text(name) for name in "abcd"])
    assert [reply.text for reply in replies] == ["ok"] * 4
    assert len(times) == 5
    # two were under way when the server asked to wait; all others come later
    assert min(times[2:]) - times[0] >= 0.3


def test_a_wait_beyond_the_time_allowed_is_not_begun(connect):
    server, engine = connect(
        lambda body: refuse(429, "tomorrow", Retry_After="86400"), patience=Patience(total=5)
    )
    start = time.perf_counter()
    (reply,) = engine.execute([text()])
    assert reply.status is Status.ERROR
    assert time.perf_counter() - start < 2
    assert len(server.asked) == 1


def test_a_server_that_fails_all_requests_ends_the_run(connect):
    patience = Patience(tries=2, first=0.01, failures=5)
    server, engine = connect(lambda body: refuse(500, "down"), patience=patience, concurrency=2)
    with pytest.raises(HabitusError, match=r"failed 5 requests in a row.*down.*--resume"):
        engine.execute([text(str(number)) for number in range(50)])
    assert len(server.asked) <= 12
    with pytest.raises(HabitusError, match="in a row"):
        engine.execute([text()])


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "TEST_KEY"), (402, "add credit"), (403, "TEST_KEY"), (404, "--base-url")],
)
def test_a_server_that_serves_nobody_ends_the_run(connect, status, said):
    server, engine = connect(lambda body: refuse(status, f"bad request with {KEY}"), concurrency=1)
    with pytest.raises(HabitusError, match=said) as caught:
        engine.execute([text(str(number)) for number in range(9)])
    assert KEY not in str(caught.value)
    assert "***" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.asked) == 1


def test_used_up_credit_is_no_rate_limit(connect):
    act = Act(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    server, engine = connect(lambda body: act)
    with pytest.raises(HabitusError, match="add credit"):
        engine.execute([text()])
    assert len(server.asked) == 1


def test_a_wrong_model_is_told_with_the_ones_there_are(connect):
    models = [{"id": "mm"}, {"id": "other"}]
    with pytest.raises(UnknownNameError, match="did you mean mm"):
        connect(probe=lambda body: refuse(404, "no such model"), models=models)


def test_no_server_is_one_line():
    with pytest.raises(HabitusError, match=r"no server answers at 127\.0\.0\.1:9 .*--base-url"):
        create("m", ScorerOptions(base_url="http://127.0.0.1:9/v1"))


def test_ctrl_c_stops_at_once_and_the_engine_can_be_closed(connect):
    server, engine = connect(lambda body: Act(hang=True), concurrency=4)
    # A shell starts what runs in its background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.execute([text(str(number)) for number in range(20)])
    finally:
        signal.signal(signal.SIGINT, before)
    engine.close()
    assert time.perf_counter() - start < 1.5
    assert len(server.asked) == 4


def test_the_budget_stops_the_run_and_a_larger_one_goes_on(connect, tmp_path):
    def respond(body):
        return chat("x" + body["messages"][0]["content"], used=(10, 10))

    requests = [text(f"{number:040}") for number in range(30)]  # 40 bytes, 20 tokens each
    server, engine = connect(respond, budget_tokens=211, cache=str(tmp_path), concurrency=8)
    with pytest.raises(HabitusError, match=r"budget of 211 tokens.* --budget-tokens") as caught:
        engine.execute(requests)
    read, written = engine.spent
    assert 160 < read + written <= 211
    assert f"{read + written:,} are spent" in str(caught.value)
    done = len(server.asked)
    assert read + written == 20 * done + 11  # the first small request took 11

    engine.close()
    more = create(
        "m",
        ScorerOptions(base_url=server.url, api_key_env="TEST_KEY", cache=str(tmp_path)),
        QUICK,
    )
    replies = more.execute(requests)
    more.close()
    assert [reply.text for reply in replies] == [f"x{number:040}" for number in range(30)]
    assert len(server.asked) == 30


def test_a_server_that_does_not_count_is_counted_for(connect):
    _, engine = connect(lambda body: chat("x", used=None), budget_tokens=400)
    with pytest.raises(HabitusError, match="budget"):
        engine.execute([text("y" * 40) for _ in range(50)])
    assert sum(engine.spent) <= 400


def test_what_was_answered_is_not_asked_again_but_failures_are(connect, tmp_path):
    script = (refuse(400, "odd"),)
    server, engine = connect(echo, script=script, cache=str(tmp_path), concurrency=1)
    first = engine.execute([text("a"), text("b")])
    second = engine.execute([text("a"), text("b"), text("b", seed=1), text("b", max_tokens=9)])
    assert [reply.status for reply in first] == [Status.ERROR, None]
    assert second[0].text == "re a"
    assert second[1] == first[1]
    asked = [body["messages"][0]["content"] for body in server.asked]
    assert asked == ["a", "b", "a", "b", "b"]
    assert {header["authorization"] for header in server.headers} == {f"Bearer {KEY}"}
    for path in tmp_path.iterdir():
        assert KEY.encode() not in path.read_bytes()


def test_keys_and_addresses(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"OPENAI_API_KEY holds no key for api\.openai\.com"):
        create("m", ScorerOptions(engine="openai"))
    with pytest.raises(InputError, match="MY_KEY holds no key for 127"):
        create("m", ScorerOptions(base_url="http://127.0.0.1:9/v1", api_key_env="MY_KEY"))
    with pytest.raises(InputError, match="not the key itself") as caught:
        create("m", ScorerOptions(api_key_env="sk-proj-4711"))
    assert "4711" not in str(caught.value)
    for url in ("http://me:4711@host/v1", "https://host/v1?key=4711"):
        with pytest.raises(InputError, match="must hold no user") as caught:
            create("m", ScorerOptions(base_url=url))
        assert "4711" not in str(caught.value)
    for url in ("host:8000/v1", "ftp://host/v1", "http://", "http://[::1/v1"):
        with pytest.raises(InputError, match="no address of a server"):
            create("m", ScorerOptions(base_url=url))
    with pytest.raises(InputError, match="--engine vllm needs --base-url"):
        create("m", ScorerOptions(engine="vllm"))
    with pytest.raises(InputError, match="--concurrency 0"):
        create("m", ScorerOptions(concurrency=0))


def test_only_the_host_is_recorded():
    assert Address.parse("https://a.example:8443/secret/v1").host == "a.example:8443"
    assert Address.parse("http://[::1]:80/v1").loopback
    assert Address.parse("http://localhost/v1").loopback
    assert not Address.parse("http://127.example/v1").loopback


def test_parameters_name_the_server_and_what_it_serves(connect):
    models = [{"id": "m", "root": "/data/models/Big-8B", "max_model_len": 4096}]
    _, engine = connect(models=models)
    assert engine.parameters["engine"].startswith("openai ")
    assert engine.parameters["server"] == "this machine"  # a port would name a new scorer each time
    assert engine.parameters["served"] == "Big-8B"
    assert engine.parameters["context"] == 4096
    assert engine.parameters["logprobs"] == "top 20"
    assert KEY not in str(engine.parameters)
