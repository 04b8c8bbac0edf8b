"""Counts on the published data sets, where the environment variable HABITUS_DATA names a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from habitus.data import load
from habitus.errors import InputError

# Folder, format, items, and all that was read: items (times the rows of one) plus rows left out.
SETS = [
    ("globalopinionqa-NC", "globalopinionqa", 6298, 4633 + 5752),
    ("hh-rlhf-harmless-test", "hh-rlhf", 2303, 2312),
    ("oasst1-zh-ranked", "oasst1-zh", 769, 775),
    ("korean-safety/SQuARe", "square", 104, None),
    ("korean-safety/KoSBi", "kosbi", 64, None),
    ("mera-ru/ruHHH.multiple_prompts", "ruhhh", 178, 178),
    ("petci", "petci", 3952, 4310),
    ("wikiquote-proverbs", "wikiquote-proverbs", 352, 94 + 262),
    ("jcommonsense-morality", "jcm", 7830, None),
    ("mena-values", "mena-values", 3726, None),
]


def folder(name):
    root = os.environ.get("HABITUS_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"HABITUS_DATA names no folder with {name}")
    return str(Path(root) / name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "format", "n_items", "n_read"), SETS)
def test_counts(name, format, n_items, n_read):
    found = load(folder(name))
    left_out = sum(found.skipped.values())
    assert (found.format, len(found.items)) == (format, n_items)
    assert n_read is None or n_items + left_out == n_read
    assert all(item.licence and item.language for item in found.items)


@pytest.mark.slow
def test_every_row_of_jcm_is_paired_or_counted():
    found = load(folder("jcommonsense-morality"))
    assert 2 * len(found.items) + sum(found.skipped.values()) == 13975 + 1996 + 3992


@pytest.mark.slow
def test_the_copies_of_globalopinionqa():
    found = load(folder("globalopinionqa-NC"))
    broken = "the shares do not fit the options (their number or their sum)"
    assert found.skipped[broken] == 9
    # 571 rows are in both files; one more is twice in the second.
    assert found.skipped["question and country are repeated"] == 572
    for item in found.items:
        shares = item.references[0].share
        assert shares is not None
        assert shares >= 0.15
    assert not {"Britain", "S. Korea", "Czech Rep."} & {item.country for item in found.items}


@pytest.mark.slow
def test_the_questions_of_care_are_refused():
    with pytest.raises(InputError, match="questions without rated answers"):
        load(folder("care-test"))
