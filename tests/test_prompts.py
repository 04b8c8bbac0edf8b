"""Prompt files: one pass, trusted and untrusted text kept apart, errors that name the place."""

import re

import pytest

from habitus.errors import InputError
from habitus.prompts import (
    Segment,
    conversation_text,
    fill,
    load_prompt,
    load_prompts,
    plain,
    translations,
)
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


NAMES = [
    *("listwise", "pairwise", "pointwise"),
    *("criteria", "pairwise-criteria", "pointwise-criteria"),
]
LANGUAGES = ["ar", "de", "es", "ja", "ko", "ru", "th", "vi", "zh-Hans"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", [None, *LANGUAGES])
def test_bundled_prompts_load_and_ask_for_the_same_in_every_language(name, language):
    prompt = load_prompt(f"{name}.{language}" if language else name)
    english = load_prompt(name)
    assert prompt.name == (f"{name}.{language}" if language else name)
    assert {"system", "user", "candidate", "assistant"} == set(prompt.sections)
    assert len(prompt.digest) == 16
    for section in ("user", "candidate"):
        held = [
            sorted(re.findall(r"\{[a-z]+\}|</?[a-z]+>", one.sections[section]))
            for one in (prompt, english)
        ]
        assert held[0] == held[1]
    asks_for_rating = {"{low}", "{high}"} <= set(re.findall(r"\{[a-z]+\}", prompt.sections["user"]))
    assert asks_for_rating == name.startswith("pointwise")
    if "criteria" in name:
        assert prompt.sections["assistant"] == "<criteria>\n1."
    else:
        assert prompt.sections["assistant"].endswith(":")


def test_the_measured_prompts_are_unchanged():
    assert load_prompt("listwise").digest == "0e0161993610801f"
    assert load_prompt("criteria").digest == "c0f541c7778e66eb"


def test_every_prompt_is_translated_and_no_text_twice():
    assert [translations(name) for name in NAMES] == [LANGUAGES] * 6
    loaded = [load_prompts(name, translated=True) for name in NAMES]
    users = {
        prompt.sections["user"] for one in loaded for prompt in (one.base, *one.languages.values())
    }
    assert len(users) == 60


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("en", "listwise"),
        ("en-GB", "listwise"),
        ("th", "listwise.th"),
        ("es-MX", "listwise.es"),
        ("ar_EG", "listwise.ar"),
        ("zh", "listwise.zh-Hans"),
        ("zh-Hans", "listwise.zh-Hans"),
        ("zh-CN", "listwise.zh-Hans"),
        ("zh-Hant", None),
        ("zh-HK", None),
        ("sw", None),
        ("", None),
        (None, None),
    ],
)
def test_a_language_finds_its_prompt(tag, name):
    found = load_prompts("listwise", translated=True).find(tag)
    assert (found.name if found else None) == name


def test_the_digest_covers_all_files_that_are_used(tmp_path):
    assert load_prompts("listwise").digest == load_prompt("listwise").digest
    digests = {load_prompts(name, translated=True).digest for name in NAMES}
    assert len(digests) == 6
    assert digests.isdisjoint(load_prompt(name).digest for name in NAMES)


def test_every_prefilled_rating_is_a_cue_of_the_parser():
    from habitus.verdicts import parse_letter, parse_rating

    for language in ("", *(f".{tag}" for tag in LANGUAGES)):
        rating = load_prompt(f"pointwise{language}").sections["assistant"]
        assert parse_rating(f"{rating} 7, not 8", 1, 10).value == 7
        for name in ("listwise", "pairwise"):
            best = load_prompt(f"{name}{language}").sections["assistant"]
            assert parse_letter(f"{best} B. It fits.", "AB").value == "B"


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
