"""Judges behind llama.cpp's own server, with a real model."""

import pytest

from habitus.clients.engine import Request, Turn
from habitus.clients.openai_engine import create
from habitus.errors import HabitusError
from habitus.prompts import Segment
from habitus.scorers import ScorerOptions
from habitus.types import Status
from tests.dummy_server import KEY, label, text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weights():
    from habitus.clients.weights import locate

    return locate("smollm2-135m")[0]


@pytest.fixture(scope="module")
def llama(weights):
    """The address of a llama.cpp server with two slots of 1,024 tokens."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_parallel, params.n_ctx = 2, 2048
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib, params.ctx_shift, params.warmup = 0, False, False
    params.verbosity = -1
    params.api_keys = [KEY]
    server = xllamacpp.Server(params)
    yield server.listening_address + "/v1"
    del server


@pytest.fixture
def real(llama, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    options = ScorerOptions(engine="vllm", base_url=llama, api_key_env="TEST_KEY", concurrency=2)
    engine = create("smollm2", options)
    yield engine
    engine.close()


def test_llama_text_seed_grammar_and_prefill(real):
    poem = "Write a poem."
    one, same, other, begun, bound = real.execute(
        [
            text(poem, temperature=1.0, seed=1),
            text(poem, temperature=1.0, seed=1),
            text(poem, temperature=1.0, seed=2),
            text(poem, answer="Roses are"),
            text(poem, grammar='root ::= "red" | "blue"'),
        ]
    )
    assert one.text == same.text != other.text
    assert (one.finished, one.completion_tokens) == (False, 20)
    assert one.prompt_tokens > 5
    assert not begun.text.startswith("Roses")  # this server repeats it; the engine takes it off
    assert bound.text in ("red", "blue")
    assert bound.finished
    assert real.parameters["served"] == "smollm2-135m-b179c9523d0e.gguf (134,515,008 weights)"
    assert real.parameters["context"] == 1024


def test_llama_labels_agree_with_the_embedded_engine(real, weights):
    """The same weights, template and kernels: what is left is the shape of a batch, since the
    server decodes two requests side by side. Rounding then differs, by far less than 0.01."""
    from habitus.clients.embedded import EmbeddedModel

    labels = (" A", " B", " C", " D")
    asks = [
        label(
            f"What is eaten on New Year's Eve in {place}?\nA. Soba\nB. Goose\nC. Grapes\nD. Borscht",
            labels=labels,
            answer="Best answer:",
        )
        for place in ("Japan", "Spain", "Ukraine", "Germany")
    ]
    replies = real.execute(asks)
    embedded = EmbeddedModel(weights, context=1024, threads=1)
    for ask, reply in zip(asks, replies, strict=True):
        tokens = embedded.encode_chat(ask.chat, ask.answer)
        found = embedded.label_tokens(ask.answer, labels)
        expected = embedded.label_scores(found.after(tokens), found.first, fresh=True)
        assert reply.logprobs == pytest.approx(expected.logprobs, abs=0.01)
        assert reply.mass == pytest.approx(expected.mass, abs=0.01)
        assert reply.prompt_tokens == len(tokens)
    embedded.close()
    for reply, again in zip(replies, real.execute(asks[::-1])[::-1], strict=True):
        assert again.logprobs == pytest.approx(reply.logprobs, abs=0.01)


def test_llama_refuses_what_is_too_long_and_a_wrong_key(real, llama, monkeypatch):
    long, fine = real.execute([text("word " * 1500), text("Hello")])
    assert long.status is Status.TRUNCATED
    assert "exceeds the available context" in long.error
    assert fine.status is None
    monkeypatch.setenv("OTHER_KEY", "wrong-key-4711")
    with pytest.raises(HabitusError, match="refuses the key in OTHER_KEY") as caught:
        create("m", ScorerOptions(base_url=llama, api_key_env="OTHER_KEY"))
    assert "4711" not in str(caught.value)


def test_llama_reads_control_tokens_in_data_as_text(real):
    marker = "<|im_end|>" * 20

    def tokens(trusted):
        turn = Turn("user", (Segment("a ", True), Segment(marker, trusted)))
        (reply,) = real.execute([Request("g", (turn,), max_tokens=1)])
        return reply.prompt_tokens

    assert tokens(False) > tokens(True) + 60  # one token each when obeyed, at least four as text
