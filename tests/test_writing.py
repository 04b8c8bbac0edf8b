"""Texts are written in stages: the same texts, and long ones hold no short ones up."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from habitus.clients import sampling, writing
from habitus.clients.decoding import Decoder
from habitus.clients.engine import Request, Turn
from habitus.clients.sampling import Draw, Written
from habitus.clients.transformers_engine import create
from habitus.clients.writing import Writing, writing_batches
from habitus.prompts import Segment
from habitus.scorers import ScorerOptions
from habitus.types import Status
from tests.tiny_models import make_language_model

REQUESTS = [
    Request(
        "g",
        (Turn("user", (Segment(question, True),)),),
        max_tokens=30,
        temperature=heat,
        seed=seed,
        top_p=top_p,
    )
    for question in ("Who?", "What is eaten at New Year in a long street?")
    for seed, heat, top_p in ((0, 0.0, 1.0), (1, 1.0, 1.0), (2, 1.0, 0.9))
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A random model that ends some texts and not others: a common token ends them, too."""
    folder = make_language_model(tmp_path_factory.mktemp("model"), "llama")
    made = create(str(folder), ScorerOptions(device="cpu", threads=1))
    made._stops |= frozenset(range(40, 48))
    return made


def recorded(engine, monkeypatch):
    """Write, and return the replies with (prompts, budget) of each batch."""
    asked = []
    write = sampling.write

    def spy(model, prompts, draws, *, budget, **rest):
        asked.append((len(prompts), budget))
        return write(model, prompts, draws, budget=budget, **rest)

    monkeypatch.setattr(sampling, "write", spy)
    return engine.execute(REQUESTS), asked


def test_a_text_in_stages_is_the_text_at_once(engine, monkeypatch):
    whole, asked = recorded(engine, monkeypatch)
    assert {budget for _, budget in asked} == {30}
    ended = [reply.finished for reply in whole]
    assert True in ended
    assert False in ended
    monkeypatch.undo()
    monkeypatch.setattr(writing, "STAGE", 4)
    staged, asked = recorded(engine, monkeypatch)
    assert staged == whole
    assert [budget for _, budget in asked] == [4, 4, 8, 14]
    counts = [count for count, _ in asked]
    assert counts[0] == len(REQUESTS) > counts[-1] >= ended.count(False)
    assert counts == sorted(counts, reverse=True)


def test_what_writes_on_a_gpu_writes_in_stages_too(engine, monkeypatch):
    whole = engine.execute(REQUESTS)
    monkeypatch.setattr(writing, "STAGE", 4)
    monkeypatch.setattr(engine, "decoder", Decoder(engine._model, record=False))
    assert engine.execute(REQUESTS) == whole


def test_a_stage_that_is_not_a_number_ends_its_text_alone(engine, monkeypatch):
    whole = engine.execute(REQUESTS)
    monkeypatch.setattr(writing, "STAGE", 4)
    write, calls = sampling.write, []

    def broken(*args, **rest):
        calls.append(rest["budget"])
        found = write(*args, **rest)
        if len(calls) == 2:
            found[0] = Written(found[0].tokens, False, False)
        return found

    monkeypatch.setattr(sampling, "write", broken)
    replies = engine.execute(REQUESTS)
    [failed] = [place for place, reply in enumerate(replies) if reply.status is Status.ERROR]
    assert "not a number" in replies[failed].error
    assert [*replies[:failed], *replies[failed + 1 :]] == [*whole[:failed], *whole[failed + 1 :]]


def test_a_stage_is_what_is_written_again_and_never_over_the_budget(monkeypatch):
    monkeypatch.setattr(writing, "STAGE", 10)
    one = Writing(0, (7, 8), Draw(1.0, 3), 35, "")
    stages = []
    while one.stage:
        stages.append(one.stage)
        one = one.with_more(Written((5,) * one.stage, False, True))
    assert stages == [10, 10, 15]
    assert (len(one.text), one.draw.spent) == (35, 35)
    assert one.tokens == (7, 8, *(5,) * 35)


def test_batches_are_of_one_stage_and_keep_to_the_budget():
    short = [Writing(n, (1,) * 5, Draw(0, 0), 20, "") for n in range(5)]
    other = Writing(5, (1,) * 5, Draw(0, 0), 30, "")
    long = Writing(6, (1,) * 500, Draw(0, 0), 20, "")
    found = writing_batches([*short, other, long], 60)
    assert [[one.place for one in batch] for batch in found] == [[5], [6], [0, 1], [2, 3], [4]]
