"""Small preference pairs for the tests of training. Needs no torch."""

from habitus.types import PreferencePair

FOODS = ("Soba noodles", "A goose", "Twelve grapes", "Borscht", "Tamales", "Rice cakes")


def make_pair(number: int, country: str = "Chile", **fields) -> PreferencePair:
    """A pair of question number // 2, in fold question % 2, whose responses differ."""
    question = number // 2
    values = {
        "id": f"{country}-{number}",
        "item_id": f"q{question}",
        "prompt": [{"role": "user", "content": f"{question}: what is eaten?"}],
        "chosen": f"{FOODS[number % 6]}, {number}.",
        "rejected": f"{FOODS[(number + 1 + len(country) % 2) % 6]}, {number}.",
        "country": country,
        "group": f"q{question}",
        "split": "test" if question % 4 == 0 else "train",
        "fold": question % 2,
        "source": "test",
    }
    return PreferencePair.model_validate(values | fields)


def make_pairs(count: int = 24, countries=("Chile", "Israel")) -> list[PreferencePair]:
    """Pairs of several countries on the same questions."""
    return [make_pair(number, country) for country in countries for number in range(count)]
