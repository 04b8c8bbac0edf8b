"""`habitus build` from the command line, against servers."""

import contextlib
import json

import pytest

pytest.importorskip("sklearn")
from click.testing import CliRunner

from habitus.build.checks import find_languages
from habitus.cli.build import build as command
from habitus.data import load
from habitus.errors import HabitusError, InputError
from tests.build_samples import ANSWERS, FACTS, Replay, recording, reference, write_lines
from tests.conftest import read_jsonl
from tests.dummy_server import DummyServer, chat


@pytest.fixture
def references(tmp_path):
    return write_lines(tmp_path / "refs.jsonl", [reference(name) for name in FACTS])


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr("habitus.build.find_languages", lambda tags: None)
    replay = Replay(recording(tmp_path / "recorded.jsonl"))

    def respond(body):
        from tests.build_samples import kind_of, name_of

        system, user = (message["content"] for message in body["messages"])
        kind = kind_of(system)
        return chat(replay._tries[kind, name_of(kind, user)][0], used=(50, 9))

    started = DummyServer(respond)
    yield started
    started.close()


def run(*words):
    result = CliRunner().invoke(command, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_server_writes_a_benchmark(tmp_path, references, server):
    out = tmp_path / "out"
    options = ("--out", out, "--writer", "m", "--base-url", server.url, "--concurrency", 3)
    result = run(references, *options, "--culture", "Japanese")
    assert "1 of 1 items" in result.stdout
    assert "tokens: 250 read, 45 written" in result.stdout
    assert f"next: habitus audit {out / 'items.jsonl'}" in result.stderr.replace("\n", "")
    (item,) = load(str(out / "items.jsonl")).items
    assert {one.text for one in item.candidates} >= {ANSWERS["jp"]}
    built = json.loads((out / "build.json").read_text("utf-8"))
    assert built["command"].startswith("build ")
    assert "--out" not in built["command"]
    assert built["config"]["writers"]["m"]["parameters"]["server"] == "this machine"
    # A kill before the records: the server's answers are still there.
    asked = len(server.asked)
    (out / "stages" / "chosen.jsonl").write_bytes(b"")
    run(references, *options, "--culture", "Japanese", "--resume")
    assert len(server.asked) == asked


def test_writers_at_servers_of_their_own(tmp_path, references, server):
    out = tmp_path / "out"
    weak = f"weak@{server.url}"
    run(references, "--out", out, "--writer", f"m@{server.url}", "--rejected-writer", weak)
    records = read_jsonl(out / "stages" / "rejected.jsonl")
    assert {record["model"] for record in records} == {"weak"}
    assert {body["model"] for body in server.asked} == {"m", "weak"}


def test_no_item_is_an_error_after_everything_is_written(tmp_path, references, server):
    out = tmp_path / "out"
    with pytest.raises(HabitusError, match=r"no item is left; .*card\.md"):
        run(references, "--out", out, "--writer", f"m@{server.url}", "--near", "1", "--attempts", 1)
    card = json.loads((out / "card.json").read_text("utf-8"))
    assert card["dropped"] == {"filtered": {"dissimilar": 5}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--writer-engine", "openai", "--threads", "2"], "--threads does not apply"),
        (["--culture", "Klingon"], "unknown culture 'Klingon'"),
        (["--embedder", "bert"], "unknown embedder"),
        (["--base-url", "ftp://x"], "--base-url is no address"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, references, server, options, message):
    words = [references, "--out", tmp_path / "out", "--writer", "m", "--base-url", server.url]
    with pytest.raises(InputError, match=message) as caught:
        run(*words, *options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "build.json").exists()


def test_languages_come_from_lingua_where_it_is_installed():
    found = find_languages(["en"])
    assert found is None or found.name.startswith("lingua ")


@pytest.mark.slow
def test_a_small_model_behind_llama_builds_the_folder(tmp_path):
    import xllamacpp

    from habitus.clients.weights import locate

    params = xllamacpp.CommonParams()
    params.model.path = str(locate("smollm2-135m")[0])
    params.n_parallel, params.n_ctx = 2, 4096
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib, params.ctx_shift, params.warmup = 0, False, False
    params.verbosity = -1
    llama = xllamacpp.Server(params)
    names = list(FACTS)
    refs = write_lines(tmp_path / "refs.jsonl", [reference(name) for name in names[:3]])
    more = write_lines(tmp_path / "more.jsonl", [reference(name) for name in names[3:]])
    out = tmp_path / "out"
    words = [refs, "--out", out, "--writer", "smollm2", "--mismatch", more, "--near", "-1"]
    words += ["--base-url", f"{llama.listening_address}/v1", "--writer-engine", "vllm"]
    words += ["--concurrency", 2, "--max-tokens", 40, "--attempts", 2]
    try:
        with contextlib.suppress(HabitusError):  # the model is weak: no item may be left
            run(*words)
        card = json.loads((out / "card.json").read_text("utf-8"))
        assert card["planned"] == 3
        dropped = sum(sum(reasons.values()) for reasons in card["dropped"].values())
        assert card["items"] + dropped == 3
        for stage, counts in card["stages"].items():
            lines = read_jsonl(out / "stages" / f"{stage}.jsonl")
            assert counts["records"] == len(lines) == counts["ok"] + sum(counts["failed"].values())
        assert card["stages"]["prompts"]["records"] >= 3
        assert card["tokens"][0]["read"] > 0
        before = {path: path.read_bytes() for path in sorted(out.rglob("*.jsonl"))}
        with contextlib.suppress(HabitusError):
            run(*words, "--resume")
        assert before == {path: path.read_bytes() for path in sorted(out.rglob("*.jsonl"))}
    finally:
        del llama
