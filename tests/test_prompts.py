"""Prompt files: one pass, trusted and untrusted text kept apart, errors that name the place."""

import pytest

from habitus.errors import InputError
from habitus.prompts import Segment, conversation_text, fill, load_prompt, plain
from habitus.types import Message


def test_what_is_put_in_is_not_looked_at_again():
    segments = fill(
        "Q: {question} / {text}", {"question": "{text} {answer_b}", "text": "{question}"}
    )
    assert plain(segments) == "Q: {text} {answer_b} / {question}"
    assert [segment.trusted for segment in segments] == [True, False, True, False]


def test_segments_are_spliced_as_they_are():
    inner = (Segment("A", True), Segment("x", False))
    assert fill("{candidates}!", {"candidates": inner}) == (*inner, Segment("!", True))


@pytest.mark.parametrize("name", ["listwise", "criteria"])
def test_bundled_prompts_load(name):
    prompt = load_prompt(name)
    assert {"system", "user", "candidate", "assistant"} == set(prompt.sections)
    assert len(prompt.digest) == 16


def test_a_users_prompt_replaces_ours(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(
        "[user]\n{question}\n{candidates}\n[candidate]\n{letter}) {text}\n[assistant]\nIs:"
    )
    prompt = load_prompt(str(path))
    assert prompt.sections["user"] == "{question}\n{candidates}"
    assert prompt.sections["assistant"] == "Is:"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", r"no section \[user\]"),
        ("[user]\n{question}\n[candidate]\n{text}\n[assistant]\nx", "no {candidates}"),
        (
            "[user]\n{question}{candidates}{secret}\n[candidate]\n{text}\n[assistant]\nx",
            r"section \[user\]: unknown placeholder {secret}",
        ),
    ],
)
def test_a_wrong_prompt_file_is_one_clear_line(tmp_path, text, message):
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_prompt(str(path))
    assert "\n" not in str(caught.value)


def test_missing_prompts_are_named(tmp_path):
    with pytest.raises(InputError, match="no such prompt file"):
        load_prompt(str(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="bundled: criteria, listwise"):
        load_prompt("pairwize")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"[user]\n\xff")
    with pytest.raises(InputError, match="not UTF-8 at byte 7"):
        load_prompt(str(bad))


def test_a_conversation_keeps_its_speakers():
    one = [Message(role="user", content="Hi")]
    assert conversation_text(one) == "Hi"
    more = [*one, Message(role="assistant", content="Yes?"), Message(role="user", content="Tea?")]
    assert conversation_text(more) == "User: Hi\nAssistant: Yes?\nUser: Tea?"
