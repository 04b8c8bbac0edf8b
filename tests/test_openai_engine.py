"""Judges behind a server: what is sent, what comes back, what servers refuse."""

import asyncio
import math
import re

import pytest

from habitus.clients.engine import Request, Turn
from habitus.errors import ModelError
from habitus.prompts import Segment
from habitus.types import Status
from tests.dummy_server import (
    Act,
    chat,
    connecting,
    echo,
    label,
    refuse,
    text,
)


@pytest.fixture
def connect(monkeypatch):
    yield from connecting(monkeypatch)


def test_text_with_its_seed_temperature_and_tokens(connect):
    server, engine = connect(lambda body: chat("Hi", used=(7, 2)))
    (reply,) = engine.execute([text(temperature=0.7, seed=2**31 + 4, max_tokens=33)])
    assert (reply.text, reply.finished, reply.status) == ("Hi", True, None)
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 2)
    assert server.asked == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 33,
            "temperature": 0.7,
            "seed": 5,  # 2**31 + 4 modulo 2**31 - 1
        }
    ]


def test_a_nucleus_is_asked_for_only_where_it_leaves_something_out(connect):
    server, engine = connect(lambda body: chat("Hi", used=(7, 2)))
    engine.execute([text(temperature=1.0, top_p=0.9), text(temperature=1.0, top_p=1.0)])
    assert sorted(body.get("top_p", 1) for body in server.asked) == [0.9, 1]


def test_replies_are_in_order_and_no_more_than_concurrency_are_under_way(connect):
    server, engine = connect(
        lambda body: Act(
            body=echo(body).body, delay=0.02 * (int(body["messages"][0]["content"]) % 3)
        ),
        concurrency=4,
    )
    replies = engine.execute([text(str(number)) for number in range(12)])
    assert [reply.text for reply in replies] == [f"re {number}" for number in range(12)]
    assert 2 <= server.most <= 4
    assert engine.window == 4
    assert engine.execute([]) == []


def test_labels_are_the_stripped_tokens_and_a_missing_one_gets_the_floor(connect):
    # A: 0.5 + 0.1; B: 0.2; C: 0.05; D is not listed: the last one listed has 0.05 and 0.1 is left
    top = {"A": 0.5, " A": 0.1, "B": 0.2, "C": 0.05, "x": 0.05}
    server, engine = connect(lambda body: chat("A", top=top))
    (reply,) = engine.execute([label()])
    assert [math.exp(value) for value in reply.logprobs] == pytest.approx(
        [0.6 / 0.9, 0.2 / 0.9, 0.05 / 0.9, 0.05 / 0.9], abs=1e-5
    )
    assert reply.mass == pytest.approx(0.85)
    (body,) = server.asked
    assert body["logprobs"] is True
    assert (body["max_tokens"], body["top_logprobs"], body["temperature"]) == (1, 20, 1.0)
    assert "seed" not in body


def test_the_floor_is_no_more_than_what_is_left_over(connect):
    _, engine = connect(lambda body: chat("A", top={"A": 0.6, "B": 0.39}))  # 0.01 is left
    (reply,) = engine.execute([label(labels=("A", "B", "C"))])
    assert [math.exp(value) for value in reply.logprobs] == pytest.approx(
        [0.6, 0.39, 0.01], abs=1e-5
    )


def test_no_label_in_the_list_is_no_verdict(connect):
    _, engine = connect(lambda body: chat("The", top={"The": 0.9, "Well": 0.05}))
    (reply,) = engine.execute([label()])
    assert reply.status is Status.UNPARSED
    assert reply.logprobs is None
    assert "'The', 'Well'" in reply.error


def test_vllm_begins_the_turn_and_asks_again_within_the_labels(connect):
    def respond(body):
        if "structured_outputs" in body:
            return chat("A", top={" A": 0.75, " B": 0.25}, used=(10, 1))
        return chat("A", top={" A": 0.3, "The": 0.6}, used=(10, 1))

    server, engine = connect(respond, engine="vllm")
    assert engine.prefill
    (reply,) = engine.execute([label(labels=(" A", " B"), answer="Best:")])
    assert [math.exp(value) for value in reply.logprobs] == pytest.approx([0.75, 0.25], abs=1e-5)
    assert reply.mass == pytest.approx(0.3)  # from the first answer, which was not limited
    assert (reply.prompt_tokens, reply.completion_tokens) == (20, 2)
    first, second = server.asked
    assert first["messages"][-1] == {"role": "assistant", "content": "Best:"}
    assert first["continue_final_message"] is True
    assert first["add_generation_prompt"] is False
    assert second["structured_outputs"] == {"choice": [" A", " B"]}


def split_joining(text):
    """Token ids of a tokenizer that joins ">" and the capital letter behind it, as many do."""
    return [
        sum(ord(letter) << 8 * place for place, letter in enumerate(piece))
        for piece in re.findall(">[A-Z]|.", text)
    ]


BEGUN = "<criteria>\n1. Guests first.\n</criteria>\n<judgement>"


def test_labels_that_a_tokenizer_joins_are_asked_for_as_joined(connect):
    server, engine = connect(
        lambda body: chat("x", top={">B": 0.6, ">A": 0.2, ">": 0.1}),
        engine="vllm",
        split=split_joining,
    )
    replies = engine.execute([label(str(n), labels=("A", "B"), answer=BEGUN) for n in range(3)])
    for reply in replies:
        assert [math.exp(v) for v in reply.logprobs] == pytest.approx([0.25, 0.75], abs=1e-5)
        assert reply.mass == pytest.approx(0.8)
    assert {body["messages"][-1]["content"] for body in server.asked} == {BEGUN[:-1]}
    # each text once for all requests: the beginning, with each label, and without its last letter
    lines = [body["prompt"].removeprefix("\n<judgement") for body in server.splits]
    assert lines == [">", ">A", ">B", ""]
    assert server.splits[0]["content"] == server.splits[0]["prompt"]


@pytest.mark.parametrize(
    ("split", "answer"),
    [
        (None, BEGUN),  # the server does not say
        (lambda text: [ord(letter) for letter in text], BEGUN),  # nothing is joined
        (split_joining, "Best: "),
        (lambda text: ["a"], BEGUN),  # no ids
        (lambda text: [len(text)], BEGUN),  # no beginning in common
    ],
)
def test_labels_that_are_not_joined_are_asked_for_alone(split, answer, connect):
    server, engine = connect(
        lambda body: chat("x", top={"A": 0.6, "B": 0.2}), engine="vllm", split=split
    )
    (reply,) = engine.execute([label(labels=("A", "B"), answer=answer)])
    assert [math.exp(v) for v in reply.logprobs] == pytest.approx([0.75, 0.25], abs=1e-5)
    assert server.asked[0]["messages"][-1]["content"] == answer


def test_a_server_that_ignores_the_choice_gives_the_floor(connect):
    def respond(body):
        if "structured_outputs" in body:
            return chat("A", top={" A": 0.3, "The": 0.6, " B": 0.01})
        return chat("A", top={" A": 0.3, "The": 0.6})

    _, engine = connect(respond, engine="vllm")
    (reply,) = engine.execute([label(labels=(" A", " B"), answer="Best:")])
    # B gets what the first answer leaves over, 0.1
    assert [math.exp(value) for value in reply.logprobs] == pytest.approx([0.75, 0.25], abs=1e-5)


def test_what_is_not_offered_cannot_be_asked(connect):
    _, engine = connect(probe=lambda body: chat())  # no log-probabilities, although asked for
    assert not engine.logprobs
    assert not engine.prefill
    with pytest.raises(ValueError, match="logprobs is False"):
        engine.execute([label()])
    with pytest.raises(ValueError, match="prefill is False"):
        engine.execute([text(answer="Best:")])


def test_thoughts_come_first_and_stay_open_when_cut(connect):
    _, engine = connect(
        script=(
            chat("[[B]]", reasoning_content="Hm."),
            chat("[[B]]", reasoning="Hm."),
            chat("", reasoning_content="Hm, so", finish="length"),
            chat("[[B", finish="length"),
            chat("", finish="length"),
        ),
        concurrency=1,
    )
    replies = engine.execute([text(str(number)) for number in range(5)])
    assert [(reply.text, reply.finished) for reply in replies] == [
        ("<think>Hm.</think>[[B]]", True),
        ("<think>Hm.</think>[[B]]", True),
        ("<think>Hm, so", False),
        ("[[B", False),
        ("", False),
    ]


@pytest.mark.parametrize(
    "first", [chat("", top={"<think>": 1.0}), chat("B", top={"B": 1.0}, reasoning="Let me see")]
)
def test_a_model_that_thinks_first_is_not_read_by_its_first_token(connect, first):
    _, engine = connect(probe=lambda body: first)
    assert not engine.logprobs
    assert engine.parameters["logprobs"] == "none"


def test_control_tokens_in_data_are_broken_and_ours_are_kept(connect):
    server, engine = connect()
    turn = Turn(
        "user",
        (
            Segment("<|ours|> ", True),
            Segment("a <|im_end|> [/INST] </s> <end_of_turn> <b> x", False),
        ),
    )
    engine.execute([Request("g", (turn,), max_tokens=5)])
    assert server.asked[0]["messages"][0]["content"] == (
        "<|ours|> a <\u200b|im_end|> [\u200b/INST] <\u200b/s> <\u200bend_of_turn> <b> x"
    )


def test_it_works_where_an_event_loop_is_running(connect):
    _, engine = connect(echo)

    async def notebook():
        return engine.execute([text("x")])[0].text

    assert asyncio.run(notebook()) == "re x"


def test_what_a_server_refuses_is_left_out_and_recorded(connect):
    def probe(body):
        if "max_tokens" in body:
            return refuse(400, "Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'.")
        if "logprobs" in body:
            return refuse(403, "You are not allowed to request logprobs from this model")
        if "temperature" in body:
            return refuse(400, "Unsupported value: 'temperature' does not support 0")
        if "seed" in body:
            return Act(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]})
        if body["messages"][0]["role"] == "system":
            return refuse(400, "System role not supported")
        return chat()

    server, engine = connect(echo, probe=probe)
    assert not engine.logprobs
    assert engine.parameters["temperature_field"] == "refused by the server"
    assert engine.parameters["seed_field"] == "refused by the server"
    assert engine.parameters["system_role"] == "merged into the user's turn"
    system = Turn("system", (Segment("Be fair.", True),))
    engine.execute([text(chat=(system, *text().chat))])
    assert server.asked == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Be fair.\n\nHello"}],
            "max_completion_tokens": 20,
        }
    ]


def test_fewer_alternatives_are_asked_for_where_twenty_are_too_many(connect):
    def probe(body):
        if body["top_logprobs"] > 5:
            return refuse(
                400, "Requested sample logprobs of 20, which is greater than max allowed: 5"
            )
        return chat(top={"A": 1.0})

    _, engine = connect(probe=probe)
    assert engine.parameters["logprobs"] == "top 5"


def test_a_system_turn_is_not_merged_when_that_is_an_error(connect):
    def probe(body):
        return refuse(400, "System role not supported")

    with pytest.raises(ModelError, match="--no-system merge"):
        connect(probe=probe, no_system="error")


def test_statuses_of_single_requests(connect):
    _, engine = connect(
        script=(
            refuse(400, "This model's maximum context length is 4096 tokens. However, ..."),
            chat(None, refusal="I will not judge this."),
            chat("", finish="content_filter"),
            refuse(400, "The response was filtered: content management policy"),
            refuse(400, "messages must alternate"),
            chat("fine"),
        ),
        concurrency=1,
    )
    replies = engine.execute([text(str(number)) for number in range(6)])
    assert [reply.status for reply in replies] == [
        Status.TRUNCATED,
        Status.REFUSED,
        Status.REFUSED,
        Status.REFUSED,
        Status.ERROR,
        None,
    ]
    assert replies[1].error == "I will not judge this."


def test_a_context_is_kept_to(connect):
    server, engine = connect(lambda body: chat("A", used=(99, 2)), context=100)
    long, over = engine.execute([text("x" * 25_601), text("short")])
    assert (long.status, over.status) == (Status.TRUNCATED, Status.TRUNCATED)
    assert "25,601 bytes" in long.error  # more than 100 tokens of 256 bytes: not even sent
    assert "101 tokens" in over.error
    assert len(server.asked) == 1
