"""How near two texts are: cosines of character n-grams, of a server's or of a local embedding.

`tfidf` compares wording within one language. The others compare meaning, also across languages when
their model does; then references need no translation. Whatever a server is asked is kept, so that a
resumed build does not pay for it twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from habitus.clients.answer_cache import AnswerCache, answer_key
from habitus.clients.engine import Reply
from habitus.clients.openai_address import DEFAULT_URL, Address, find_key
from habitus.errors import HabitusError, InputError, MissingExtraError
from habitus.registry import Registry

Vector = NDArray[np.float64]

EMBEDDERS = Registry(
    "embedder",
    {
        "openai": "habitus.build.embedders:ServerEmbedder",
        "st": "habitus.build.embedders:SentenceEmbedder",
        "tfidf": "habitus.build.embedders:TfidfEmbedder",
    },
    group="habitus.embedders",
)
"""A factory takes (model, EmbedderOptions) and returns an `Embedder`."""


@dataclass(frozen=True)
class EmbedderOptions:
    """Options of the command line that an embedder may use."""

    url: str | None = None
    """Address of an OpenAI-compatible server."""
    api_key_env: str | None = None
    """Environment variable that holds the server's key."""
    concurrency: int = 8
    """Most requests under way at once."""
    cache: Path | None = None
    """Folder where a server's answers are kept."""


class Embedder(Protocol):
    """Compares texts."""

    name: str
    """What compares, with its version: a part of the build's configuration."""
    near: float
    """The least cosine to its own reference that an answer should have, when none is given."""
    across_languages: bool
    """Whether texts in different languages can be compared."""

    def fit(self, facts: Sequence[str]) -> int:
        """Learn from the facts, before anything is compared; return the tokens that it cost."""
        ...

    def prepare(self, texts: Sequence[str]) -> None:
        """Get ready to compare these texts; `cosines` is called for each of them next."""
        ...

    def cosines(self, text: str, others: Sequence[str]) -> tuple[list[float], int]:
        """Return the cosines of a text to others, and the tokens that the text has cost."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class TfidfEmbedder:
    """TF-IDF of character 2- to 4-grams within words, with weights learnt from the facts."""

    near = 0.1
    across_languages = False

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        """Make one.

        Raises:
            InputError: When a model is named.
            MissingExtraError: When scikit-learn is not installed.
        """
        if model:
            raise InputError(f"--embedder tfidf has no models; leave out {model!r}")
        if importlib.util.find_spec("sklearn") is None:
            raise MissingExtraError("habitus build --embedder tfidf", "audit")
        self.name: str = f"tfidf of scikit-learn {version('scikit-learn')}"
        self._vectorizer: Any = None

    def fit(self, facts: Sequence[str]) -> int:
        """Learn how rare each n-gram is."""
        module: Any = importlib.import_module("sklearn.feature_extraction.text")
        vectorizer = module.TfidfVectorizer(
            analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True
        )
        self._vectorizer = vectorizer.fit(facts)
        return 0

    def prepare(self, texts: Sequence[str]) -> None:
        """Do nothing: n-grams are quick."""

    def cosines(self, text: str, others: Sequence[str]) -> tuple[list[float], int]:
        """Return the cosines; they cost no tokens."""
        rows = self._vectorizer.transform([text, *others])  # of length 1, or 0 without n-grams
        found = (rows[1:] @ rows[0].T).toarray()[:, 0]
        return [float(value) for value in found], 0

    def close(self) -> None:
        """Release nothing."""


class SentenceEmbedder:
    """A sentence-transformers model in a local folder, on the CPU."""

    near = 0.3
    across_languages = True

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        """Load the model.

        Raises:
            InputError: When there is no such folder, or sentence-transformers is not installed.
        """
        if not model or not Path(model).is_dir():
            raise InputError(f"--embedder st:FOLDER needs a folder with a model, found {model!r}")
        if importlib.util.find_spec("sentence_transformers") is None:
            raise InputError("--embedder st needs: pip install sentence-transformers")
        module: Any = importlib.import_module("sentence_transformers")
        self._model: Any = module.SentenceTransformer(model, device="cpu")
        installed = version("sentence-transformers")
        self.name: str = f"st:{Path(model).resolve().name} of sentence-transformers {installed}"
        self._kept: dict[str, Vector] = {}

    def fit(self, facts: Sequence[str]) -> int:
        """Embed the facts, once for all."""
        self._kept = {fact: self._embed(fact) for fact in facts}
        return 0

    def prepare(self, texts: Sequence[str]) -> None:
        """Do nothing: in a batch, the last digits would depend on the other texts."""

    def _embed(self, text: str) -> Vector:
        rows = self._model.encode([text], normalize_embeddings=True)
        return np.asarray(rows[0], dtype=np.float64)

    def cosines(self, text: str, others: Sequence[str]) -> tuple[list[float], int]:
        """Return the cosines; they cost no tokens."""
        row = self._embed(text)
        return [float(row @ self._kept[other]) for other in others], 0

    def close(self) -> None:
        """Release nothing."""


class ServerEmbedder:
    """An embedding model behind an OpenAI-compatible server, one text a request."""

    near = 0.3
    across_languages = True

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        """Connect; nothing is sent yet.

        Raises:
            InputError: When the model is not named, the address is wrong, or there is no key.
        """
        import openai  # takes half a second

        if not model:
            raise InputError("--embedder openai:MODEL needs the model's name at the server")
        self._address = Address.parse(options.url or DEFAULT_URL)
        key = find_key(self._address, options.api_key_env)
        http: dict[str, Any] = {}
        if self._address.loopback:  # a proxy of the environment does not lead to this machine
            http["http_client"] = openai.DefaultHttpxClient(trust_env=False)
        self._openai = openai
        self._client = openai.OpenAI(
            api_key=key or "none", base_url=self._address.url, max_retries=5, timeout=120, **http
        )
        self._model = model
        self._cache = AnswerCache(options.cache) if options.cache else None
        self._concurrency = options.concurrency
        self._facts: dict[str, Vector] = {}
        self._texts: dict[str, tuple[Vector, int]] = {}
        server = "this machine" if self._address.loopback else self._address.host
        self.name: str = f"openai:{model} at {server}"

    def fit(self, facts: Sequence[str]) -> int:
        """Embed the facts, once for all; requests go side by side."""
        found = self._embed_all(facts)
        self._facts = {fact: vector for fact, (vector, _) in found.items()}
        return sum(tokens for _, tokens in found.values())

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed texts side by side."""
        self._texts = self._embed_all(texts)

    def _embed_all(self, texts: Sequence[str]) -> dict[str, tuple[Vector, int]]:
        distinct = list(dict.fromkeys(texts))
        with ThreadPoolExecutor(self._concurrency) as threads:
            return dict(zip(distinct, threads.map(self._embed, distinct), strict=True))

    def cosines(self, text: str, others: Sequence[str]) -> tuple[list[float], int]:
        """Return the cosines, and the tokens of the text.

        Raises:
            HabitusError: When the server does not answer, or not with an embedding.
        """
        row, tokens = self._texts[text] if text in self._texts else self._embed(text)
        return [float(row @ self._facts[other]) for other in others], tokens

    def _embed(self, text: str) -> tuple[Vector, int]:
        key = answer_key({"url": self._address.url, "embedding": self._model, "text": text})
        reply = self._cache.get(key) if self._cache else None
        if reply is None:
            reply = self._ask(text)
            if self._cache:
                self._cache.put(key, reply)
        row = np.asarray(json.loads(reply.text or "[]"), dtype=np.float64)
        length = float(np.linalg.norm(row))
        if not length or not np.isfinite(length):
            raise HabitusError(f"{self._model} at {self._address.host} gave no usable embedding")
        return row / length, reply.prompt_tokens

    def _ask(self, text: str) -> Reply:
        try:
            answer = self._client.embeddings.create(
                model=self._model, input=[text], encoding_format="float"
            )
            vector = [float(value) for value in answer.data[0].embedding]
        except (self._openai.OpenAIError, IndexError, TypeError, AttributeError) as error:
            said = " ".join(str(error).split())[:200]
            raise HabitusError(
                f"{self._address.host} gives no embedding by {self._model}: {said}; what is "
                "finished is kept: mend it, then go on with --resume"
            ) from error
        tokens = answer.usage.prompt_tokens if answer.usage else 0
        return Reply(text=json.dumps(vector), prompt_tokens=tokens)

    def close(self) -> None:
        """Close the connection and the cache."""
        self._client.close()
        if self._cache:
            self._cache.close()


def make_embedder(name: str, options: EmbedderOptions) -> Embedder:
    """Return what compares texts.

    Args:
        name: "tfidf", "openai:MODEL" or "st:FOLDER".
        options: Options of the command line.

    Raises:
        UnknownNameError: When there is no such embedder.
        HabitusError: When it cannot be had.
    """
    kind, _, model = name.partition(":")
    if options.url and kind != "openai":
        raise InputError(f"--embedder-url needs --embedder openai:MODEL, found {name}")
    found: Embedder = EMBEDDERS.get(kind)(model, options)
    return found
