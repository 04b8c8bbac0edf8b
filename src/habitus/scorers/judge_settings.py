"""What a judge is told to do: its options, checked against each other and against its engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from habitus.clients.engine import Engine, Request, Turn
from habitus.errors import InputError, UnknownNameError
from habitus.prompts import PromptSet, Segment, load_prompts
from habitus.scorers import ScorerOptions
from habitus.types import Parameter

MODES = ("listwise", "pairwise", "pointwise", "criteria")
"""Ways to judge; "criteria" is listwise with criteria first."""

OPTIONS = (
    *("mode", "criteria", "prompt", "instructions", "verdict", "votes", "temperature"),
    *("max_tokens", "pairs", "scale"),
)
"""Options that judges read, whatever the engine."""

SCALE = "1-10"
"""The scale of ratings, unless the user says otherwise."""

CRITERIA_TOKENS = 400
"""Most tokens that criteria may take when the verdict does not follow in the same text."""

TEXT_TOKENS = 2048
"""Most tokens of a text that holds the verdict; thoughts count too."""

RATING_TOKENS = 8
"""Most tokens of a rating that comes next, after a beginning such as "Rating:"."""

LONGEST_SCALE = 100
"""Most steps of a scale."""

CRITERIA_END = "\n<judgement>"
"""What is put after the criteria; the verdict comes next."""


@dataclass(frozen=True)
class Settings:
    """How a judge judges, resolved."""

    mode: str
    """"listwise", "pairwise" or "pointwise"."""
    criteria: bool
    """Whether criteria are written before the verdict (papers: Think-as-Locals A5)."""
    verdict: str
    """"logprobs": of the labels after what has been written; "text": read by `verdicts`."""
    prefill: bool
    """Whether the assistant's turn is begun with the prompt's [assistant]."""
    votes: int
    """How many times each question is asked."""
    temperature: float
    """Sampling temperature of what is written."""
    max_tokens: int
    """Most tokens of what is written."""
    pairs: str
    """"all" or "knockout"."""
    scale: tuple[int, int]
    """Lowest and highest rating."""

    @property
    def name(self) -> str:
        """Name of the way of judging, as prompt files have it."""
        return mode_name(self.mode, self.criteria)

    def parameters(self) -> dict[str, Parameter]:
        """Return what can change a score, for the scorer's spec; what has no effect is left out."""
        found: dict[str, Parameter] = {"mode": self.name, "verdict": self.verdict}
        if self.mode == "pairwise":
            found["pairs"] = self.pairs
        if self.mode == "pointwise":
            found["scale"] = "-".join(map(str, self.scale))
        if self.criteria or self.verdict == "text":
            found |= {
                "prefill": self.prefill,
                "max_tokens": self.max_tokens,
                "temperature": self.temperature,
                "votes": self.votes,
            }
        return found


def mode_name(mode: str, criteria: bool) -> str:
    """Return the name of a prompt file: "criteria" alone is that of listwise with criteria."""
    if not criteria:
        return mode
    return "criteria" if mode == "listwise" else f"{mode}-criteria"


def check(options: ScorerOptions, kind: str = "judge") -> tuple[str, bool]:
    """Check a judge's options among themselves, before any model is loaded.

    Returns:
        The mode, and whether criteria are written.

    Raises:
        UnknownNameError: When there is no such mode.
        InputError: When options do not go together or have wrong values.
    """
    mode, criteria = options.mode or "listwise", bool(options.criteria)
    if mode not in MODES:
        article = "an" if kind[0] in "aeiou" else "a"
        what = "a judge" if kind == "judge" else f"{article} {kind} judge"
        raise UnknownNameError(f"mode of {what}", mode, MODES)
    if mode == "criteria":
        if options.criteria is False:
            raise InputError("--mode criteria is listwise with criteria; use --mode listwise")
        mode, criteria = "listwise", True
    _choice("instructions", options.instructions, ("english", "item"))
    _choice("verdict", options.verdict, ("logprobs", "text"))
    _choice("pairs", options.pairs, ("all", "knockout"))
    if options.pairs is not None and mode != "pairwise":
        raise InputError(f"--pairs does not apply to the mode {mode}; use --mode pairwise")
    if options.scale is not None and mode != "pointwise":
        raise InputError(f"--scale does not apply to the mode {mode}; use --mode pointwise")
    if options.prompt is not None and options.instructions == "item":
        raise InputError("--instructions item has prompts of its own; leave out --prompt")
    parse_scale(options.scale or SCALE)
    for name in ("votes", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be 1 or more")
    heat = options.temperature
    if heat is not None and not 0 <= heat <= 100:
        raise InputError(f"--temperature {heat}: must be a number from 0")
    if (options.votes or 1) > 1 and heat == 0:
        raise InputError("--votes at --temperature 0 would all be equal; use a higher one")
    if options.verdict == "logprobs" and not criteria:
        for name in ("votes", "temperature", "max_tokens"):
            if getattr(options, name) not in (None, 0, 1):
                raise _nothing_written(name)
    return mode, criteria


def _choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise UnknownNameError(f"value of --{name}", value, known)


def _nothing_written(name: str) -> InputError:
    return InputError(
        f"--{name.replace('_', '-')} has no effect: nothing is written before a verdict from "
        "log-probabilities; add --criteria or --verdict text"
    )


def parse_scale(text: str) -> tuple[int, int]:
    """Return the ends of a scale such as "1-10".

    Raises:
        InputError: When it is none.
    """
    match = re.fullmatch(r"\s*([0-9]{1,4})\s*-\s*([0-9]{1,4})\s*", text)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not low < high <= low + LONGEST_SCALE:
        raise InputError(
            f"--scale {text}: not LOW-HIGH in whole numbers, such as 1-10, with at most "
            f"{LONGEST_SCALE} steps"
        )
    return low, high


def load_judge_prompts(options: ScorerOptions, mode: str, criteria: bool) -> PromptSet:
    """Load the prompt files that the options ask for.

    Raises:
        InputError: When the user's file is wrong.
    """
    translated = options.instructions == "item"
    return load_prompts(options.prompt or mode_name(mode, criteria), translated=translated)


def resolve_settings(
    options: ScorerOptions, mode: str, criteria: bool, engine: Engine, prompts: PromptSet
) -> Settings:
    """Settle what depends on the engine.

    Raises:
        InputError: When the engine cannot do what the options ask for.
    """
    votes = options.votes or 1
    scale = parse_scale(options.scale or SCALE)
    verdict = options.verdict or _best_verdict(engine, criteria, votes)
    prefill = engine.prefill and verdict == "logprobs"
    if verdict == "logprobs":
        _check_logprobs(engine, criteria)
        if mode == "pointwise" and not _tells_apart(engine, criteria, scale, prompts):
            if options.verdict == "logprobs":
                raise InputError(
                    f"{engine.model} has no single token for each rating of the scale "
                    f"{scale[0]}-{scale[1]}; use --verdict text, or single digits: --scale 1-9"
                )
            verdict = "text"
    writes = criteria or verdict == "text"
    if not writes:
        for name in ("votes", "temperature", "max_tokens"):
            if getattr(options, name) not in (None, 0, 1):
                raise _nothing_written(name)
    short = CRITERIA_TOKENS if criteria else RATING_TOKENS
    default = TEXT_TOKENS if verdict == "text" and not prefill else short
    return Settings(
        mode=mode,
        criteria=criteria,
        verdict=verdict,
        prefill=prefill,
        votes=votes,
        temperature=options.temperature or (1.0 if votes > 1 else 0.0),
        max_tokens=options.max_tokens or default,
        pairs=options.pairs or "all",
        scale=scale,
    )


def _best_verdict(engine: Engine, criteria: bool, votes: int) -> str:
    """Return where to read the verdict: votes on what is not written would all be equal."""
    if not (engine.logprobs and engine.prefill) or (votes > 1 and not criteria):
        return "text"
    return "logprobs"


def _check_logprobs(engine: Engine, criteria: bool) -> None:
    if not engine.logprobs:
        raise InputError(f"{engine.model} gives no log-probabilities; use --verdict text")
    if criteria and not engine.prefill:
        raise InputError(
            f"the engine of {engine.model} cannot go on after written criteria; use --verdict text"
        )


def rating_labels(scale: tuple[int, int], space: str) -> tuple[str, ...]:
    """Return the labels of a scale's ratings, lowest first."""
    return tuple(f"{space}{rating}" for rating in range(scale[0], scale[1] + 1))


def verdict_start(criteria: bool, prefill: bool, assistant: str) -> tuple[str, str]:
    """Return how the text before a verdict's label ends, and the white space before the label."""
    if criteria:
        return CRITERIA_END, ""
    return (assistant, " ") if prefill else ("", "")


def _tells_apart(
    engine: Engine, criteria: bool, scale: tuple[int, int], prompts: PromptSet
) -> bool:
    """Return whether each rating has a token of its own.

    "1" and "10" may begin with the same token. An engine that knows its tokens (`labels_exact`)
    is asked; of others nothing is known, and only scales of single digits are safe.
    """
    if not engine.labels_exact:
        return scale[1] <= 9
    requests = []
    for prompt in (prompts.base, *prompts.languages.values()):
        before, space = verdict_start(criteria, engine.prefill, prompt.sections["assistant"])
        chat = (Turn("user", (Segment("?", True),)),)
        labels = rating_labels(scale, space)
        requests.append(Request("scale", chat, answer=before, labels=labels))
    return all(reply.status is None for reply in engine.execute(requests))
