"""The other way of doing a study: one unit after the other, each from the beginning.

Part of `scpo_study.py`, which says what is known of it, and what it shares with ours.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch as typed_torch
import transformers

from habitus.train import study
from habitus.train.fitting import Settings
from habitus.train.losses import weigh, weighted_loss
from habitus.train.study import Grid, Unit
from habitus.types import PreferencePair

torch: Any = typed_torch
"""Much of it has no types."""

PHASES = ("loading", "scoring", "training", "evaluation", "other")
"""What the time is told apart by."""


class Clock:
    """Seconds by phase.

    On a CPU of processor time, all threads together: other work on the machine shows less.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    def now(self) -> float:
        """Return the time when the device has done all it was asked for."""
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        begin = self.now()
        yield
        self.seconds[name] += self.now() - begin

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls count as a phase."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        return call


@dataclass
class Outcome:
    """What one way of doing the study came to."""

    seconds: dict[str, float]
    """By phase."""
    kept: dict[str, int]
    """Pairs that each unit trained on, by its name."""
    accuracy: dict[str, float]
    """Of each unit, on its own country's held-out pairs."""
    scores: dict[str, tuple[float, float]]
    """Global rewards of pairs."""
    steps: int
    """Steps of all units."""

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())


def accuracy(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the share of pairs in order; a tie counts one half."""
    return float(np.mean([0.5 if a == b else float(a > b) for a, b in pairs]))


@dataclass(frozen=True)
class Work:
    """What both do."""

    pairs: Sequence[PreferencePair]
    grid: Grid
    base: Path
    settings: Settings
    device: Any
    precision: str

    @property
    def units(self) -> list[Unit]:
        """All units."""
        return self.grid.units()

    def autocast(self) -> Any:
        """Return the context in which a model computes."""
        on = self.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=on)


class Peer:
    """One unit after the other, each from the beginning."""

    def __init__(self, asked: argparse.Namespace, work: Work, folder: Path) -> None:
        self.asked = asked
        self.work = work
        self.folder = folder
        self.known: dict[str, dict[str, tuple[float, float]]] = {}
        self.kept: dict[str, Any] = {}
        self.model: Any = None
        self.tokenizer: Any = None

    def load(self) -> None:
        """Load model and tokenizer from disk."""
        self.model = None
        auto: Any = transformers.AutoModelForSequenceClassification
        model = auto.from_pretrained(self.work.base, dtype=torch.float32)
        self.model = model.to(self.work.device)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.work.base)
        self.model.config.pad_token_id = self.tokenizer.pad_token_id

    def start(self) -> None:
        """Have the base's weights again."""
        if self.asked.peer_reload:
            self.load()
        else:
            self.model.load_state_dict(self.kept)

    def texts(self, pairs: Sequence[PreferencePair]) -> list[str]:
        """Return the conversations of pairs as text, the preferred one of each pair first."""
        found = []
        for pair in pairs:
            turns = [{"role": each.role, "content": each.content} for each in pair.prompt]
            for response in (pair.chosen, pair.rejected):
                chat = [*turns, {"role": "assistant", "content": response}]
                found.append(str(self.tokenizer.apply_chat_template(chat, tokenize=False)))
        return found

    def encode(self, texts: Sequence[str]) -> dict[str, Any]:
        """Tokenise texts into a padded batch on the host."""
        pad = self.asked.peer_pad
        found: dict[str, Any] = self.tokenizer(
            list(texts), padding="max_length" if pad else True, truncation=True,
            max_length=pad or 512, padding_side="right", add_special_tokens=False,
            return_tensors="pt", return_token_type_ids=False,
        )  # fmt: skip
        return dict(found)

    def rewards(self, batch: dict[str, Any]) -> Any:
        """Return the rewards of a batch."""
        batch = {name: each.to(self.work.device) for name, each in batch.items()}
        with self.work.autocast():
            return self.model(**batch, use_cache=False).logits[:, 0].float()

    def score(self, pairs: Sequence[PreferencePair]) -> dict[str, tuple[float, float]]:
        """Return the rewards of pairs."""
        self.model.eval()
        size = 1 if self.asked.peer_one_by_one else self.work.settings.batch_size
        texts = self.texts(pairs)
        found: list[float] = []
        with torch.no_grad():
            for at in range(0, len(texts), size):
                found += self.rewards(self.encode(texts[at : at + size])).tolist()
        both = zip(found[::2], found[1::2], strict=True)
        return dict(zip([pair.id for pair in pairs], both, strict=True))

    def train(self, pairs: Sequence[PreferencePair], weights: Sequence[float], seed: int) -> None:
        """Train on pairs: texts are tokenised once, as `Dataset.map` does."""
        settings, device = self.work.settings, self.work.device
        steps, done = settings.steps(len(pairs)), 0
        optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        order = torch.Generator().manual_seed(seed)
        encoded = self.encode(self.texts(pairs))
        lengths = encoded["attention_mask"].sum(1)
        weight = torch.tensor(weights, device=device)
        self.model.train()
        while done < steps:
            shuffled = torch.randperm(len(pairs), generator=order)
            for rows in shuffled.split(settings.batch_size)[: steps - done]:
                both = torch.cat([2 * rows, 2 * rows + 1])
                width = self.asked.peer_pad or int(lengths[both].max())
                good, bad = self.rewards(
                    {name: each[both, :width] for name, each in encoded.items()}
                ).chunk(2)
                loss: Any = weighted_loss(good, bad, weight[rows.to(device)])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm)
                optimizer.step()
                decay.step()
                optimizer.zero_grad()
                done += 1
        if self.asked.peer_checkpoints:
            self.model.save_pretrained(self.folder)
            torch.save(optimizer.state_dict(), self.folder / "optimizer.pt")

    def run(self, units: Sequence[Unit], steps: int) -> Outcome:
        """Do units, and scale the time of each phase by its part of the work of all.

        Args:
            units: Those that are timed.
            steps: Steps of all units of the study.
        """
        clock, work = Clock(self.work.device), self.work
        kept: dict[str, int] = {}
        right: dict[str, float] = {}
        scores: dict[str, tuple[float, float]] = {}
        done = Counter[str]()
        with clock.phase("other"):
            self.load()
            if not self.asked.peer_reload:
                self.kept = {name: each.clone() for name, each in self.model.state_dict().items()}
        once = clock.seconds["other"] * (not self.asked.peer_reload)
        for unit in units:
            own = [pair for pair in work.pairs if pair.country == unit.country]
            train = study.training_pairs(own, unit, None)
            test = study.test_pairs(own, unit.fold, None)
            with clock.phase("loading"):
                self.start()
            with clock.phase("scoring"):
                known = None if self.asked.peer_rescore else self.known.get(unit.country)
                if known is None:
                    known = self.known[unit.country] = self.score(own)
                    done["scoring"] += len(own)
            with clock.phase("training"):
                both = np.array([known[pair.id] for pair in train])
                found = weigh(unit.variant, both[:, 0], both[:, 1])
                rows = np.flatnonzero(found.kept)
                weights = [float(found.weight[at]) * train[at].weight for at in rows]
                if len(rows):
                    self.train([train[at] for at in rows], weights, unit.seed)
            with clock.phase("evaluation"):
                right[unit.name] = accuracy(list(self.score(test).values()))
            scores |= known
            kept[unit.name] = len(rows)
            done += Counter(
                loading=1, training=work.settings.steps(len(rows)), evaluation=len(test)
            )
        whole = self._whole(steps)
        seconds = {
            name: clock.seconds[name] * whole[name] / done[name] if done[name] else 0.0
            for name in whole
        }
        return Outcome(seconds | {"other": once}, kept, right, scores, done["training"])

    def _whole(self, steps: int) -> dict[str, int]:
        """Return the amount of work in each phase of all units."""
        units, fold = self.work.units, self.work.grid.folds[0]
        own = Counter(pair.country for pair in self.work.pairs)
        held = Counter(pair.country for pair in self.work.pairs if study.held_out(pair, fold))
        scored = [unit.country for unit in units]
        if not self.asked.peer_rescore:
            scored = list(dict.fromkeys(scored))
        return {
            "loading": len(units),
            "scoring": sum(own[country] for country in scored),
            "training": steps,
            "evaluation": sum(held[unit.country] for unit in units),
        }
