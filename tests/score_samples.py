"""A model and files for the tests of scoring."""

import json

import habitus.score as scoring
from habitus.score import ScorePlan, record
from habitus.scorers.batching import Scored
from habitus.types import ScorerSpec, Status


class Lengths:
    """Scores a response by its length, and counts in the size of the batch, as floats may."""

    spec = ScorerSpec(kind="test", model="lengths")

    def __init__(self):
        self.batches = []
        self.closed = False

    def responses(self):
        return self

    def score(self, conversations):
        self.batches.append(len(conversations))
        return [self._one(conversation[-1].content) for conversation in conversations]

    def _one(self, text):
        if text == "long":
            return Scored(None, Status.TRUNCATED, "12 tokens; the limit is 8", 12)
        if text == "nan":
            return Scored(float("nan"), Status.OK, None, 3)
        return Scored(len(text) + self.batches[-1] / 1000, Status.OK, None, 2)

    def close(self):
        self.closed = True


def use_lengths(monkeypatch):
    """Let "test:lengths" be a model that scores single responses, and return it."""
    model = Lengths()
    resolve = scoring.resolve
    monkeypatch.setattr(
        scoring,
        "resolve",
        lambda name, options: model if name == "test:lengths" else resolve(name, options),
    )
    return model


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def many(n):
    return [{"id": f"r{i}", "prompt": f"p{i}", "response": "x" * (i * 7 % 11)} for i in range(n)]


def plan(tmp_path, out="scores.jsonl", **settings):
    values = {"file": tmp_path / "in.jsonl", "model": "baseline:longest", "out": tmp_path / out}
    return ScorePlan(**(values | settings))


def files(path):
    return path.read_bytes(), record.record_path(path).read_bytes()


GOOD = b'{"prompt":"p","response":"r"}\n'
"""One row of JSONL."""
