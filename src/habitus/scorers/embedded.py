"""The embedded judge: listwise best-of-N by the letters' log-probabilities, over all rotations.

A small judge picks "A" nearly always, whatever "A" is. So each candidate stands once at each
position, and its score is its mean log-probability over the rotations. The mode "criteria" lets
the judge first write what matters, as a local would (papers: Think-as-Locals A5).
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from habitus.clients import weights
from habitus.clients.embedded import (
    ContextExceededError,
    EmbeddedModel,
    engine_version,
)
from habitus.clients.engine import Turn
from habitus.errors import ModelError, UnknownNameError
from habitus.prompts import Prompt, Segment, conversation_text, fill, load_prompt
from habitus.scorers import ModelEntry, ScorerOptions
from habitus.scorers.base import ItemFailureError, ItemScorer, refuse_options
from habitus.types import Item, Pass, ScorerSpec, Status

MODES = {"listwise": "listwise", "criteria": "criteria"}
"""Mode to the name of its prompt file."""

CRITERIA_BUDGET = 400
"""Most tokens that the criteria may take."""

CRITERIA_GRAMMAR = r"""
root ::= " " claim "\n2. " claim ("\n3. " claim)? "\n</criteria>"
claim ::= [^\n<>0-9. ] [^\n<>]{8,120}
"""
"""Two or three one-line claims; the prompt has already begun the first."""

VERDICT = "\n<judgement>"
"""What follows the criteria; the letter comes next."""

LETTERS = string.ascii_uppercase
"""Labels of the candidates; more candidates than letters cannot be judged listwise."""


class EmbeddedJudge(ItemScorer):
    """A GGUF model as a listwise judge."""

    def __init__(self, model: EmbeddedModel, spec: ScorerSpec, prompt: Prompt, mode: str) -> None:
        """Make a judge.

        Args:
            model: The loaded model.
            spec: What it is.
            prompt: The prompt file.
            mode: "listwise" or "criteria".
        """
        self.spec = spec
        self._model = model
        self._prompt = prompt
        self._criteria = mode == "criteria"
        self._before = VERDICT if self._criteria else prompt.sections["assistant"]
        self._labels: dict[int, tuple[list[int], list[int]]] = {}

    def _label_tokens(self, count: int) -> tuple[list[int], list[int]]:
        if count not in self._labels:
            space = "" if self._criteria else " "
            labels = [space + letter for letter in LETTERS[:count]]
            self._labels[count] = self._model.label_tokens(self._before, labels)
        return self._labels[count]

    def scores_of(self, item: Item, order: Sequence[str], seed: int) -> Mapping[str, Any]:
        """Average each candidate's log-probability over all rotations of the order."""
        if len(order) > len(LETTERS):
            message = f"{len(order)} candidates; a listwise judge has {len(LETTERS)} letters"
            raise ItemFailureError(Status.ERROR, message)
        looks: list[Pass] = []
        written: list[str] = []
        spent = {"prompt_tokens": 0, "completion_tokens": 0}
        try:
            for shift in range(len(order)):
                shown = (*order[shift:], *order[:shift])
                looks.append(self._look(item, shown, written, spent, fresh=shift == 0))
        except ContextExceededError as error:
            message = f"{error}; the context holds {self._model.context:,}"
            raise ItemFailureError(Status.TRUNCATED, message, order=order) from error
        scores = {
            candidate_id: round(
                math.fsum(look.scores[look.order.index(candidate_id)] for look in looks)
                / len(looks),
                6,
            )
            for candidate_id in order
        }
        raw = {"raw": "\n\n".join(written)} if written else {}
        return {"scores": scores, "passes": tuple(looks)} | spent | raw

    def _look(
        self,
        item: Item,
        shown: tuple[str, ...],
        written: list[str],
        spent: dict[str, int],
        *,
        fresh: bool,
    ) -> Pass:
        """Show the candidates once, in one order."""
        tokens = self._model.encode_chat(
            self._chat(item, shown), self._prompt.sections["assistant"]
        )
        shared, labels = self._label_tokens(len(shown))
        spent["prompt_tokens"] += len(tokens)
        if self._criteria:
            answer = self._model.generate(
                tokens, grammar=CRITERIA_GRAMMAR, budget=CRITERIA_BUDGET, fresh=fresh
            )
            spent["completion_tokens"] += answer.tokens
            written.append(self._prompt.sections["assistant"] + answer.text)
            if not answer.finished:
                message = f"the criteria did not end within {CRITERIA_BUDGET} tokens"
                raise ItemFailureError(Status.TRUNCATED, message, raw="\n\n".join(written))
            tokens = tokens + self._model.encode_text(answer.text + VERDICT)
            fresh = False
        found = self._model.label_scores([*tokens, *shared], labels, fresh=fresh)
        pick = found.logprobs.index(max(found.logprobs))
        return Pass(order=shown, scores=found.logprobs, pick=pick, mass=found.mass)

    def _chat(self, item: Item, shown: Sequence[str]) -> list[Turn]:
        texts = {candidate.id: candidate.text for candidate in item.candidates}
        sections = self._prompt.sections
        candidates: list[Segment] = []
        for letter, candidate_id in zip(LETTERS, shown, strict=False):
            gap = (Segment("\n", True),) if candidates else ()
            values: dict[str, str | Sequence[Segment]] = {
                "letter": (Segment(letter, True),),
                "text": texts[candidate_id],
            }
            candidates += (*gap, *fill(sections["candidate"], values))
        values_of_user: dict[str, str | Sequence[Segment]] = {
            "question": conversation_text(item.prompt),
            "candidates": candidates,
            "letters": (Segment(", ".join(LETTERS[: len(shown)]), True),),
            "culture": item.culture or "",
            "country": item.country or "",
            "language": item.language or "",
        }
        chat = [Turn("user", fill(sections["user"], values_of_user))]
        if "system" in sections:
            chat.insert(0, Turn("system", fill(sections["system"], values_of_user)))
        return chat

    def close(self) -> None:
        """Unload the model."""
        self._model.close()


def create(model: str, options: ScorerOptions) -> EmbeddedJudge:
    """Load an embedded judge.

    Args:
        model: A known name, the path of a GGUF file, or nothing for the default.
        options: `mode`, `prompt`, `context` and `threads` apply.

    Raises:
        UnknownNameError: When the model or the mode is not known.
        ModelError: When the weights cannot be had or loaded.
        InputError: When the prompt file is wrong.
    """
    name = model or weights.DEFAULT
    mode = options.mode or "listwise"
    refuse_options("embedded", options, ("mode", "prompt", "context", "threads"))
    if mode not in MODES:
        raise UnknownNameError("mode of the embedded judge", mode, MODES)
    if options.context is not None and options.context < 256:
        raise ModelError(f"--context {options.context} is too short to judge anything; 256 or more")
    prompt = load_prompt(options.prompt or MODES[mode])
    path, revision = weights.locate(name, options.say)
    loaded = EmbeddedModel(path, context=options.context, threads=options.threads)
    spec = ScorerSpec(
        kind="embedded",
        model=name if name in weights.KNOWN else Path(name).name,
        revision=f"sha256:{revision}",
        parameters={
            "mode": mode,
            "engine": engine_version(),
            "context": loaded.context,
            "system_role": "own" if loaded.system_role else "merged into the user's turn",
            "weights": loaded.parameters,
        }
        | ({"criteria_budget": CRITERIA_BUDGET} if mode == "criteria" else {}),
        prompt_digest=prompt.digest,
    )
    return EmbeddedJudge(loaded, spec, prompt, mode)


def entries() -> list[ModelEntry]:
    """Return the embedded models for `habitus models`."""
    known = []
    for entry in weights.KNOWN.values():
        cached = weights.cached_path(entry).is_file()
        state = "cached" if cached else f"{entry.size / 1e6:.0f} MB to download"
        name = f"embedded:{entry.name}"
        default = " (the default: plain `embedded`)" if entry.name == weights.DEFAULT else ""
        known.append(ModelEntry(name, entry.description + default, entry.licence, state))
    text = "any GGUF file as a judge; modes listwise (default) and criteria"
    return [*known, ModelEntry("embedded:PATH.gguf", text)]
