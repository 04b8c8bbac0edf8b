"""What a reader should know of each data set whose format is read: for the data cards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """A published data set."""

    title: str
    """Its name."""
    paper: str
    """Where it is described."""
    limits: tuple[str, ...]
    """What its items cannot show, a sentence each."""
    harmful: bool = False
    """True when it contains text that offends or harms."""
    fixed_prompt: bool = False
    """True when all items have one prompt: only their responses tell them apart."""


_SURVEY = (
    "A majority is not everyone: each reference has the share of people who gave the answer.",
    "A country is no culture, and those who were asked differ from the country's people as the "
    "survey's sample does.",
    "Shares are of the year in which the survey was made; opinions change.",
)

ABOUT = {
    "blend": About(
        "BLEnD",
        "Myung et al. 2024, arXiv:2406.09948",
        (
            "A majority among few people is not everyone: an answer may rest on two votes.",
            "A rejected answer is one that no local person gave, which does not make it wrong.",
        ),
    ),
    "blend-own": About(
        "BLEnD, own languages",
        "Myung et al. 2024, arXiv:2406.09948",
        (
            "A majority among few people is not everyone: an answer may rest on two votes.",
            "A rejected answer is one that no local person gave, which does not make it wrong.",
            "Rejected answers are worded as people of the language worded such an answer to another "
            "question; the wording may fit this question less well.",
        ),
    ),
    "care": About(
        "CARE",
        "Guo et al. 2025, arXiv:2504.05154",
        ("Ratings are few people's; best are the responses with the highest one.",),
    ),
    "globalopinionqa": About(
        "GlobalOpinionQA",
        "Durmus et al. 2023, arXiv:2306.16388",
        (
            *_SURVEY,
            "All is in English, whatever language people were asked in.",
            "Some questions name politicians or events of another country than the one asked.",
            "Some samples are not of the whole nation; their ids and reasons say so.",
        ),
    ),
    "helpsteer3": About(
        "HelpSteer3-Preference",
        "Wang et al. 2025, arXiv:2505.11475",
        ("Preference is for helpfulness in general; it has no culture.",),
    ),
    "hh-rlhf": About(
        "hh-rlhf",
        "Bai et al. 2022, arXiv:2204.05862",
        (
            "Crowd workers in the United States chose; the data do not say who chose what.",
            "People often disagree on such pairs, so no reward model gets near 100 %.",
        ),
        harmful=True,
    ),
    "include": About(
        "INCLUDE",
        "Romanou et al. 2025, arXiv:2411.19799",
        ("Exam questions test knowledge; a reward model may know an answer and prefer another.",),
    ),
    "jcm": About(
        "JCommonsenseMorality",
        "Takeshita et al. 2023",
        (
            "Pairs are found by their neighbourhood and likeness, as the data do not name them.",
            "The prompt is ours, the same for all items.",
        ),
        fixed_prompt=True,
    ),
    "kosbi": About(
        "KoSBi",
        "Lee et al. 2023, arXiv:2305.17701",
        ("The instruction before the context is ours.",),
        harmful=True,
    ),
    "mena-values": About(
        "MENA Values",
        "Zahraei and Asgari 2025",
        (
            *_SURVEY,
            "All is in English; people were asked in their own languages.",
            "Shares are of those who answered: the data leave out who did not.",
        ),
    ),
    "oasst1-zh": About(
        "OpenAssistant Conversations, Chinese",
        "Köpf et al. 2023, arXiv:2304.07327",
        (
            "Rankings are by volunteers, wherever they live; some answers are not in Chinese.",
            "Rankings are of quality in general, not of culture.",
        ),
    ),
    "omgeval": About(
        "OMGEval",
        "Liu et al. 2024, arXiv:2402.13524",
        (
            "Prompts were written for an English set and translated; a part of each language is "
            "localised.",
        ),
    ),
    "petci": About(
        "PETCI",
        "Tang 2022, arXiv:2202.09509",
        (
            "Machines are often right: what is like a person's translation is left out by its "
            "words only.",
            "The dictionary's translation is told from a machine's by style as well.",
        ),
    ),
    "ruhhh": About(
        "ruHHH",
        "Fenogenova et al. 2024, arXiv:2401.04531",
        ("A Russian version of an English set: it shows the language, hardly the culture.",),
        harmful=True,
    ),
    "square": About(
        "SQuARe",
        "Lee et al. 2023, arXiv:2305.17696",
        ("Some questions name living persons.",),
        harmful=True,
    ),
    "wikiquote-proverbs": About(
        "Wikiquote proverbs",
        "test set of the authors of Sockeye (branch naacl2022)",
        ("The literal translation may be understood as well; the idiomatic one is usual.",),
    ),
}
"""Format to what is known of its data set. A format that many data have, such as generic, has
no entry."""
