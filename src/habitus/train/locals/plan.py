"""What a training of a judge is asked to do, and in which order it sees pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from habitus.errors import InputError
from habitus.train.grpo import Grpo, rounds
from habitus.train.locals.model import ModelOptions
from habitus.train.locals.prompting import View
from habitus.train.locals.rewards import RewardSettings
from habitus.train.locals.supervised import SupervisedSettings
from habitus.train.locals.warmup import SamplingSettings
from habitus.types import PreferencePair

STAGES = ("warmup", "rl", "both", "verdict", "base")
"""`warmup`: criteria by rejection sampling and verdicts, supervised. `rl`: reinforcement. `both`:
one after the other. What to compare with: `verdict`, verdicts without criteria, supervised, and
`base`, nothing trained, the model measured as it is."""


@dataclass(frozen=True)
class GrpoSettings(Grpo):
    """How to reinforce a judge: both orders of each pair are prompts of one step."""

    policy: str = "current"
    """Whose log-probabilities R_appr is made of: "current" or "reference"."""
    on_collapse: str = "stop"
    """"stop" or "warn"."""

    def check(self) -> None:
        """Check the values.

        Raises:
            InputError: When one of them makes no sense.
        """
        if self.prompts_per_step % 2:
            raise InputError(
                f"--prompts-per-step {self.prompts_per_step}: must be even (both orders of a pair)"
            )
        if self.policy == "reference" and not self.beta:
            raise InputError("--policy reference needs a reference: --beta above 0")
        super().check()


@dataclass(frozen=True)
class LocalsPlan:
    """What to train."""

    pairs: Sequence[PreferencePair]
    """All pairs; those of the part `test` are not trained on."""
    model: str
    """A causal language model: a folder, an id on the Hub or a known model."""
    out: Path
    """The run's folder."""
    stage: str = "rl"
    """One of `STAGES`."""
    rewards: RewardSettings = field(default_factory=RewardSettings)
    """Weights and ranges of the rewards."""
    grpo: GrpoSettings = field(default_factory=GrpoSettings)
    """How to reinforce."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How criteria are sampled in the warm-up."""
    supervised: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How the warm-up learns."""
    warmup_pairs: int = 256
    """Pairs that criteria are sampled for."""
    warmup_from: Path | None = None
    """A run of stage `both` whose warm-up is taken in place of one's own, to compare rewards, or, in
    stage `warmup`, to measure it."""
    load: ModelOptions = field(default_factory=ModelOptions)
    """How the model is loaded."""
    translated: bool = False
    """Instruct in the pair's language, where there is a prompt in it."""
    seed: int = 0
    """Seed of everything."""
    limit: int | None = None
    """At most so many training pairs."""
    evaluate: Sequence[PreferencePair] | None = None
    """Pairs to measure on at the end."""
    evaluate_limit: int | None = None
    """At most so many of them."""
    max_seconds: float | None = None
    """Stop at the next point that can be gone on from after so long."""
    resume: bool = False
    """Go on in an existing folder."""
    command: str | None = None
    """The command line, for the record."""

    def check(self) -> None:
        """Check that what was asked for goes together.

        Raises:
            InputError: When it does not.
        """
        if self.stage not in STAGES:
            raise InputError(f"--stage {self.stage}: one of {', '.join(STAGES)}")
        self.rewards.check()
        self.grpo.check()
        if self.stage not in ("base", "rl"):
            self.supervised.check()
        if self.supervised.verdict_steps and self.stage not in ("warmup", "both"):
            raise InputError(
                f"--verdict-steps comes before criteria, and --stage {self.stage} learns none; for "
                "--stage verdict say --warmup-steps"
            )
        if self.warmup_from is not None and self.stage not in ("warmup", "both"):
            raise InputError(
                f"--warmup-from goes with --stage both or warmup, not with --stage {self.stage}"
            )
        if self.warmup_from is not None and self.stage == "warmup" and self.evaluate is None:
            raise InputError(
                "--stage warmup with --warmup-from trains nothing, it only measures: add --evaluate-pairs"
            )
        if self.stage == "base" and self.evaluate is None:
            raise InputError("--stage base trains nothing, it only measures: add --evaluate-pairs")


def schedule(
    views: Sequence[View],
    prompts: int,
    steps: int,
    seed: int,
    shown: Mapping[str, int] | None = None,
) -> list[str]:
    """Return the names of the prompts of all steps, both orders of a pair side by side.

    Every pair is seen once before any is seen again; each round has an order of its own. Pairs that
    the warm-up showed less often come first: of those it has seen a judge may know the answer by
    heart, and no criteria make that likelier.

    Args:
        views: Both orders of each pair.
        prompts: Prompts of a step, an even number.
        steps: Steps.
        seed: Seed of the orders.
        shown: Id of a pair to how often the warm-up showed it; it never did where it is not named.
    """
    pairs: dict[str, list[str]] = {}
    for view in views:
        pairs.setdefault(view.item.id, []).append(view.key)
    total, one_round = prompts * steps, len(views)
    names = rounds(pairs, max(total, one_round), seed)
    often = {view.key: (shown or {}).get(view.item.id, 0) for view in views}
    first = sorted(names[:one_round], key=lambda name: often[name])  # stable: orders stay together
    return [*first, *names[one_round:]][:total]
