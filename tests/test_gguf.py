"""Chat templates of GGUF files, read from the header, and their pinned date."""

import struct

import jinja2
import pytest

from habitus.clients.dates import pinned
from habitus.clients.gguf import chat_template, dated


def entry(key, value):
    """A metadata entry with a string value, as the GGUF format has it."""
    name, text = key.encode(), value.encode()
    return struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(text)) + text


def header(*entries):
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


@pytest.mark.parametrize(
    ("entries", "template"),
    [
        ([entry("general.name", "x"), entry("tokenizer.chat_template", "{{ é }}")], "{{ é }}"),
        ([entry("tokenizer.chat_template.tool_use", "{{ tools }}")], None),
        ([entry("tokenizer.chat_template", "")], None),
        ([entry("general.name", "tokenizer.chat_template")], None),
        ([], None),
    ],
)
def test_templates_in_headers(tmp_path, entries, template):
    path = tmp_path / "model.gguf"
    path.write_bytes(header(*entries) + bytes(64))
    assert chat_template(path) == template


def test_a_header_that_is_cut_off_has_no_template(tmp_path):
    path = tmp_path / "model.gguf"
    whole = header(entry("tokenizer.chat_template", "{{ messages }}"))
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert chat_template(path) is None
    path.write_bytes(whole)
    assert chat_template(path) == "{{ messages }}"


@pytest.mark.parametrize(
    ("form", "day"),
    [("%d %b %Y", "26 Jul 2024"), ("%Y-%m-%d", "2024-07-26"), ("%A, %-d %B", "Friday, 26 July")],
)
def test_templates_that_print_todays_date_print_the_pinned_one(form, day):
    source = f"\nToday: {{{{ strftime_now('{form}') }}}}"
    rendered = jinja2.Template(pinned(source)).render(strftime_now=lambda form: "another day")
    assert rendered == f"\nToday: {day}"
    assert dated(source)


def test_other_templates_stay_as_they_are():
    source = "{% for message in messages %}{{ message.content }}{% endfor %}"
    assert pinned(source) == source
    assert not dated(source)
    assert dated("{{ date_string }}")
