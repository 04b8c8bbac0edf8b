"""Pairs as the judge sees them, with criteria and without.

The requests are those of `judge:PATH --mode pairwise`, made by the judge's own code, so that
training, evaluation and serving read the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from habitus.clients.engine import Reply, Request
from habitus.prompts import Prompt, PromptSet, load_prompts
from habitus.scorers.base import ItemFailureError
from habitus.scorers.judge_looks import CLOSING, Questions
from habitus.scorers.judge_settings import Settings, mode_name
from habitus.train.locals.written import LETTERS
from habitus.types import Candidate, Item, PreferencePair, candidate_order

CHOSEN, REJECTED = "chosen", "rejected"


def pair_item(pair: PreferencePair) -> Item:
    """Return a pair as a benchmark item with two candidates, of which "chosen" is best."""
    return Item(
        id=pair.id,
        prompt=pair.prompt,
        candidates=(
            Candidate(id=CHOSEN, text=pair.chosen),
            Candidate(id=REJECTED, text=pair.rejected),
        ),
        best_ids=(CHOSEN,),
        culture=pair.culture,
        country=pair.country,
        language=pair.language,
        domain=pair.domain,
        source=pair.source,
        licence=pair.licence,
    )


@dataclass(frozen=True)
class View:
    """A pair in one order."""

    item: Item
    """The pair, as an item."""
    shown: tuple[str, str]
    """Candidate ids in the order shown."""

    @property
    def right(self) -> int:
        """Place of the preferred response, 0 or 1."""
        return self.shown.index(CHOSEN)

    @property
    def key(self) -> str:
        """Name of the view: the pair's id and the letter of the preferred response."""
        return f"{self.item.id}\t{LETTERS[self.right]}"

    @property
    def swapped(self) -> View:
        """The same pair in the other order."""
        return replace(self, shown=self.shown[::-1])


def views(pair: PreferencePair, seed: int) -> tuple[View, View]:
    """Return both orders of a pair; which comes first is drawn from hash(seed, pair id)."""
    item = pair_item(pair)
    first, second = candidate_order(item, seed)
    one = View(item, (first, second))
    return one, one.swapped


class Prompting:
    """Makes the judge's requests of views."""

    def __init__(self, *, translated: bool, max_tokens: int, seed: int) -> None:
        """Load the prompt files.

        Args:
            translated: Instruct in the pair's language, where there is a prompt in it.
            max_tokens: Most tokens of what is written.
            seed: Seed of sampled text.
        """
        self._sets = {
            criteria: load_prompts(mode_name("pairwise", criteria), translated=translated)
            for criteria in (True, False)
        }
        self._translated = translated
        self._seed = seed
        self._max_tokens = max_tokens

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the prompt files."""
        return {"criteria": self._sets[True].digest, "plain": self._sets[False].digest}

    def prompts(self, criteria: bool) -> PromptSet:
        """Return the prompts with criteria, or those without."""
        return self._sets[criteria]

    def settings(self, criteria: bool, temperature: float = 0.0) -> Settings:
        """Return how the judge judges."""
        return Settings(
            mode="pairwise",
            criteria=criteria,
            verdict="logprobs",
            prefill=True,
            votes=1,
            temperature=temperature,
            max_tokens=self._max_tokens,
            pairs="all",
            scale=(1, 10),
        )

    def _questions(self, view: View, criteria: bool, temperature: float = 0.0) -> Questions:
        prompts = self._sets[criteria]
        found: Prompt | None = prompts.find(view.item.language) if self._translated else None
        settings = self.settings(criteria, temperature)
        group = view.key if criteria else f"{view.key}\tplain"  # they share no beginning
        return Questions(view.item, found or prompts.base, settings, self._seed, group)

    def criteria_request(self, view: View, *, vote: int = 0, temperature: float = 0.0) -> Request:
        """Return the request for criteria.

        Args:
            view: The pair in an order.
            vote: Number of the sample: each has random numbers of its own.
            temperature: Sampling temperature.
        """
        return next(self._questions(view, True, temperature).compare(view.shown, vote).steps)

    def verdict_request(self, view: View, written: str) -> Request | None:
        """Return the request for the verdict after criteria; None where they do not end.

        Args:
            view: The pair in an order; the criteria may have been written for the other one.
            written: What was written, from `<criteria>` on.
        """
        steps = self._questions(view, True).compare(view.shown).steps
        begun = next(steps).answer
        if not written.startswith(begun):
            return None
        try:
            return steps.send(Reply(text=written.removeprefix(begun)))
        except ItemFailureError:
            return None

    def stand_in_request(self, view: View, written: str) -> Request:
        """Return a request for a text without the form, of about the same size.

        Its answer is not used: every completion goes through every forward pass, so that the
        processes of a launch stay in step.
        """
        begun = self.criteria_request(view).answer
        text = written if written.startswith(begun) else begun
        found = self.verdict_request(view, text.replace(CLOSING, "") + "\n" + CLOSING)
        assert found is not None
        return found

    def plain_request(self, view: View) -> Request:
        """Return the request for the verdict without criteria: the baseline of R_appr."""
        return next(self._questions(view, False).compare(view.shown).steps)


def all_views(pairs: Iterable[PreferencePair], seed: int) -> list[View]:
    """Return the views of all pairs, both orders of each side by side."""
    return [view for pair in pairs for view in views(pair, seed)]


def by_key(found: Sequence[View]) -> dict[str, View]:
    """Return views by name."""
    return {view.key: view for view in found}
