"""The cache of answers: kept, sealed, shared by processes and threads, never in the way."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from habitus.clients.answer_cache import FILE, AnswerCache, answer_key
from habitus.clients.engine import Reply
from habitus.errors import InputError
from habitus.types import Status

REPLY = Reply(logprobs=(-0.5, -1.25), mass=0.75, text="ደህና\u200b", prompt_tokens=3)


@pytest.fixture
def cache(tmp_path):
    opened = AnswerCache(tmp_path)
    yield opened
    opened.close()


def change(tmp_path, column, value):
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        connection.execute(f"UPDATE answers SET {column} = ?", (value,))
    connection.close()


def test_a_reply_comes_back_equal_also_after_a_restart(tmp_path, cache):
    assert cache.get("k") is None
    cache.put("k", REPLY)
    assert cache.get("k") == REPLY
    again = AnswerCache(tmp_path)
    assert again.get("k") == REPLY
    again.close()


def test_the_key_depends_on_content_and_not_on_order():
    assert answer_key({"a": 1, "b": "x"}) == answer_key({"b": "x", "a": 1})
    assert answer_key({"a": 1}) != answer_key({"a": 2})
    assert len(answer_key({})) == 64


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", '{"text": "another"}'),
        ("value", "{"),
        ("value", b"\x80\x00"),
        ("seal", "0"),
        ("key", "k2"),
    ],
)
def test_a_changed_entry_counts_as_missing_and_is_replaced(tmp_path, cache, column, value):
    cache.put("k", REPLY)
    change(tmp_path, column, value)
    assert cache.get("k") is None
    assert cache.get("k2") is None
    cache.put("k", REPLY)
    assert cache.get("k") == REPLY


def test_an_entry_of_another_form_counts_as_missing(tmp_path, cache):
    from habitus.clients.answer_cache import _seal

    cache.put("k", REPLY)
    value = '{"text": 5}'
    change(tmp_path, "value", value)
    change(tmp_path, "seal", _seal("k", value))
    assert cache.get("k") is None


def test_failures_are_not_kept(cache):
    cache.put("k", Reply(status=Status.ERROR, error="down"))
    assert cache.get("k") is None


def test_a_file_that_is_no_cache_is_named(tmp_path):
    (tmp_path / FILE).write_bytes(b"plain text, long enough to be no database" * 9)
    with pytest.raises(InputError, match=r"answers\.sqlite3 is no answer cache"):
        AnswerCache(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot use the cache"):
        AnswerCache(tmp_path / "file")


def test_what_cannot_be_written_is_said_once(tmp_path):
    said = []
    cache = AnswerCache(tmp_path, said.append)
    cache._connection.execute("PRAGMA query_only = 1")
    cache.put("a", REPLY)
    cache.put("b", REPLY)
    assert len(said) == 1
    assert "no longer cached" in said[0]
    cache.close()


def test_threads_share_one_cache(cache):
    def work(number):
        cache.put(f"k{number % 20}", Reply(text=str(number % 20)))
        return cache.get(f"k{number % 20}").text == str(number % 20)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


WRITER = """
import sys
from pathlib import Path
from habitus.clients.answer_cache import AnswerCache
from habitus.clients.engine import Reply
cache = AnswerCache(Path(sys.argv[1]))
for number in range(100):
    cache.put(f"{sys.argv[2]}-{number}", Reply(text=str(number)))
cache.close()
"""


@pytest.mark.slow
def test_processes_share_one_cache(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "abc"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    cache = AnswerCache(tmp_path)
    found = [cache.get(f"{name}-{number}").text for name in "abc" for number in range(100)]
    cache.close()
    assert found == [str(number) for number in range(100)] * 3
