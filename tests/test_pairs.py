"""Sets of preference pairs: reading, parts and folds, options, the folder, the command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from habitus.cli.pairs import pairs as command
from habitus.errors import InputError, RunError, UnknownNameError
from habitus.pairs import non_commercial, pairs_digest, read_pairs
from habitus.pairs.making import (
    EXCLUDED_COUNTRY,
    EXCLUDED_QUESTION,
    OTHER_COUNTRY,
    OTHER_QUESTIONS,
    OVER_LIMIT,
    PairsPlan,
    make_pairs,
)
from habitus.pairs.splits import assign, draw, leakage, normalise
from habitus.types import Message, PreferencePair


def pair(id="a", group="g", **fields):
    values = {
        "item_id": "q",
        "prompt": (Message(role="user", content="Tea or coffee?"),),
        "chosen": "Tea",
        "rejected": "Coffee",
    }
    return PreferencePair(id=id, group=group, **(values | fields))


def write(path, rows):
    lines = [
        row.model_dump_json(exclude_none=True) if isinstance(row, PreferencePair) else row
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def survey(tmp_path, n=40, countries=("Chile", "S. Africa"), name="survey.json"):
    """Write n questions, each asked in every country: 0.7 against 0.3, one pair each."""
    rows = [
        {"country": one, "question": f"Question {i}?", "options": ["Yes", "No"],
         "distribution": [0.7, 0.3]}
        for i in range(n)
        for one in countries
    ]  # fmt: skip
    path = tmp_path / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


def made(tmp_path, out="out", n=40, **options):
    source = survey(tmp_path, n)
    card = make_pairs(PairsPlan(source=source, out=tmp_path / out, **options))
    return card, read_pairs(tmp_path / out)


# Reading


def test_pairs_are_read_from_a_folder_or_a_file(tmp_path):
    written = [pair("a", split="train", fold=0), pair("b", "h", split="test", fold=1)]
    file = write(tmp_path / "pairs.jsonl", written)
    assert read_pairs(tmp_path) == read_pairs(file) == read_pairs(str(file)) == written


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([pair(), '{"id": "b"'], r"pairs.jsonl, line 2, column \d+: broken JSON"),
        ([pair(), '{"id": "b"}'], "pairs.jsonl, line 2: item_id: is missing"),
        ([pair(), pair()], "line 2: the id 'a' stands in line 1 already"),
        (
            [pair(split="train"), pair("b", split="test")],
            "line 2: the group 'g' has split test here and train in line 1",
        ),
        ([pair(fold=0), pair("b", fold=1)], "line 2: the group 'g' has fold 1 here and 0"),
        ([], "pairs.jsonl: is empty"),
    ],
)
def test_a_broken_set_is_refused_with_its_line(tmp_path, lines, message):
    file = write(tmp_path / "pairs.jsonl", lines)
    with pytest.raises(InputError, match=message) as error:
        read_pairs(tmp_path)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no pairs.jsonl in this folder"):
        read_pairs(tmp_path)
    with pytest.raises(InputError, match="no such file or folder of pairs"):
        read_pairs(tmp_path / "none")


def test_the_digest_names_the_pairs_whatever_their_order():
    one, two = pair("a"), pair("b")
    assert pairs_digest([one, two]) == pairs_digest([two, one])
    assert len(pairs_digest([])) == 16
    others = [one.model_copy(update=change) for change in ({"fold": 1}, {"weight": 2.0})]
    assert len({pairs_digest([each]) for each in (one, two, *others)}) == 4


@pytest.mark.parametrize(
    ("licences", "expected"),
    [
        (("CC-BY-4.0", "CC-BY-NC-SA-4.0"), True),
        (("CC-BY-4.0 AND CC-BY-NC-4.0",), True),
        (("CC-BY-4.0", "MIT"), False),
        ((None,), False),
        ((), False),
    ],
)
def test_one_non_commercial_licence_makes_the_set_so(licences, expected):
    assert non_commercial([pair(str(i), licence=one) for i, one in enumerate(licences)]) is expected


# Parts and folds


def test_texts_that_differ_in_case_spacing_and_punctuation_are_equal():
    assert normalise("What’s  your name?") == normalise("WHATS your, name")
    assert normalise("Ｔｅａ") == "tea"
    assert normalise("?!") == "?!"  # nothing but punctuation is kept, or all such were equal
    assert normalise("กิน") != normalise("กน")  # vowel signs count


def test_people_of_a_country_are_split_exactly_and_folds_take_turns():
    people = [f"p{i}" for i in range(20)]
    pairs = [
        pair(f"{who}-{k}", who, annotator=who, country="Chile") for who in people for k in "ab"
    ]
    pairs += [pair("other", "p-other", annotator="p-other", country="Israel")]
    parts = assign(pairs, test_share=0.15, folds=5, seed=0)
    chile = [parts[who] for who in people]
    assert sum(part.test for part in chile) == 3  # 15 % of 20
    assert sorted(part.fold for part in chile) == sorted(list(range(5)) * 4)
    other = assign(pairs, test_share=0.15, folds=5, seed=1)
    assert [other[who] for who in people] != chile


def test_a_question_has_one_part_and_fold_whatever_else_is_there():
    pairs = [pair(f"{c}{i}", f"q{i}", country=c) for c in ("Chile", "Israel") for i in range(200)]
    parts = assign(pairs, test_share=0.15, folds=5, seed=0)
    alone = assign(pairs[:50], test_share=0.15, folds=5, seed=0)
    assert all(parts[group] == part for group, part in alone.items())
    assert 15 <= sum(part.test for part in parts.values()) <= 45  # 30 expected
    assert {part.fold for part in parts.values()} == set(range(5))


def test_draws_are_spread_evenly():
    drawn = [draw(0, "x", str(i)) for i in range(2000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert abs(sum(drawn) / 2000 - 0.5) < 0.03


def test_leakage_is_counted():
    said = [(Message(role="user", content=text),) for text in ("Tea?", " tea ", "Rice?")]
    pairs = [
        pair("a", "g", prompt=said[0], split="train", fold=0),
        pair("b", "h", prompt=said[1], split="test", fold=0),
        pair("c", "h", prompt=said[2], split="test", fold=1),
        pair("d", "h", prompt=said[2], split="train", fold=1),
    ]
    found = leakage(pairs)
    assert (found.groups_in_both, found.prompts_in_both, found.test_pairs_affected) == (1, 2, 2)
    assert found.groups_in_several_folds == 1
    assert (found.prompts_in_several_folds, found.fold_pairs_affected) == (0, 0)


# Making


def test_all_countries_share_a_questions_part_and_fold(tmp_path):
    card, pairs = made(tmp_path)
    assert (card.n_pairs, card.n_groups, card.n_annotators) == (80, 40, 0)
    assert {name: count.pairs for name, count in card.countries.items()} == {
        "Chile": 40,
        "South Africa": 40,
    }
    assert sum(card.folds.values()) == sum(card.splits.values()) == 80
    assert card.non_commercial == "yes"
    assert card.longer_chosen == 1.0  # Yes is longer than No
    assert card.leakage.groups_in_both == card.leakage.prompts_in_several_folds == 0
    assert card.digest == pairs_digest(pairs)
    assert {one.weight for one in pairs} == {1.0}


def test_folds_are_listed_by_number(tmp_path):
    card, _ = made(tmp_path, n=400, folds=12)
    assert list(card.folds) == [str(fold) for fold in range(12)]


def test_countries_are_kept_and_left_out_by_any_name(tmp_path):
    everything, pairs = made(tmp_path, "all")
    card, kept = made(tmp_path, "one", countries=("south africa",))
    assert card.left_out == {OTHER_COUNTRY: 40}
    # Parts and folds are those of the whole source.
    assert kept == [one for one in pairs if one.country == "South Africa"]
    card, rest = made(tmp_path, "rest", excluded=("S. Africa",))
    assert card.left_out == {EXCLUDED_COUNTRY: 40}
    assert kept + rest == sorted(pairs, key=lambda one: one.country == "Chile")
    assert everything.countries["Chile"] == card.countries["Chile"]
    with pytest.raises(UnknownNameError, match="did you mean Chile"):
        made(tmp_path, "none", countries=("Chili",))


def test_question_shares_are_disjoint_and_complete(tmp_path):
    card, a = made(tmp_path, "a", questions="a", questions_share=0.3)
    _, b = made(tmp_path, "b", questions="b", questions_share=0.3)
    groups_a, groups_b = ({one.group for one in part} for part in (a, b))
    assert not groups_a & groups_b
    assert len(groups_a | groups_b) == 40
    assert 5 <= len(groups_a) <= 19  # 12 expected
    assert len(a) == 2 * len(groups_a)  # both countries of each question
    assert card.left_out == {OTHER_QUESTIONS: len(b)}


def test_questions_of_another_set_are_left_out_by_group_and_by_prompt(tmp_path):
    _, half = made(tmp_path, "half", questions="a")
    card, rest = made(tmp_path, "rest", exclude_questions_of=(tmp_path / "half",))
    assert card.left_out == {EXCLUDED_QUESTION: len(half)}
    assert len(rest) == 80 - len(half)
    said = (Message(role="user", content="QUESTION 3"),)
    by_prompt = write(tmp_path / "other.jsonl", [pair("x", "elsewhere", prompt=said)])
    card, rest = made(tmp_path, "third", exclude_questions_of=(by_prompt,))
    assert card.left_out == {EXCLUDED_QUESTION: 2}


def test_a_smaller_limit_is_part_of_a_larger_one_and_takes_whole_questions(tmp_path):
    card, small = made(tmp_path, "small", limit=11)
    _, large = made(tmp_path, "large", limit=20)
    assert card.left_out == {OVER_LIMIT: 69}
    assert len(small) == 11
    assert len({one.group for one in small}) == 6  # five whole questions and one half
    assert {one.id for one in small} < {one.id for one in large}


def test_weights_by_margin_have_mean_one(tmp_path):
    rows = [
        {"prompt": "a", "chosen": "x", "rejected": "y", "margin": 0.1},
        {"prompt": "b", "chosen": "x", "rejected": "y", "margin": 0.3},
    ]
    source = write(tmp_path / "rows.jsonl", map(json.dumps, rows))
    make_pairs(PairsPlan(str(source), tmp_path / "out", weight="margin"))
    assert [one.weight for one in read_pairs(tmp_path / "out")] == pytest.approx([0.5, 1.5])
    bare = write(tmp_path / "bare.jsonl", ['{"prompt": "a", "chosen": "x", "rejected": "y"}'])
    with pytest.raises(InputError, match="--weight margin: the pair 'row-1' has no margin"):
        make_pairs(PairsPlan(str(bare), tmp_path / "out2", weight="margin"))
    with pytest.raises(InputError, match="no margin; leave --min-margin out"):
        make_pairs(PairsPlan(str(bare), tmp_path / "out2", min_margin=0.2))


def test_nothing_left_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no pair is left"):
        made(tmp_path, countries=("Chile",), excluded=("Chile",))


# The folder


def test_equal_input_gives_equal_bytes_and_is_accepted_again(tmp_path):
    made(tmp_path)
    out = tmp_path / "out"
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    (out / "card.json").unlink()  # as after an interruption
    made(tmp_path)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert str(tmp_path) not in (out / "card.json").read_text()


def test_another_folder_is_not_overwritten(tmp_path):
    made(tmp_path)
    before = (tmp_path / "out" / "pairs.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"holds other pairs \(pairs.jsonl differs\)"):
        made(tmp_path, seed=1)
    assert (tmp_path / "out" / "pairs.jsonl").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds other data \(notes.txt\)"):
        made(tmp_path, "mine")
    with pytest.raises(RunError, match="is a file"):
        made(tmp_path, "survey.json")


def test_a_pairs_folder_is_a_source_and_keeps_its_parts(tmp_path):
    _, pairs = made(tmp_path)
    card = make_pairs(PairsPlan(str(tmp_path / "out"), tmp_path / "chile", countries=("Chile",)))
    assert card.format == "pairs"
    assert read_pairs(tmp_path / "chile") == [one for one in pairs if one.country == "Chile"]
    with pytest.raises(RunError, match="is in the source"):
        make_pairs(PairsPlan(str(tmp_path / "out"), tmp_path / "out"))


def test_the_licence_of_pairs_without_one(tmp_path):
    bare = write(tmp_path / "bare.jsonl", ['{"prompt": "a", "chosen": "x", "rejected": "y"}'])
    card = make_pairs(PairsPlan(str(bare), tmp_path / "out", licence="MIT"))
    assert (card.licences, card.non_commercial) == ({"MIT": 1}, "no")
    with pytest.raises(InputError, match="every pair has a licence already"):
        made(tmp_path, "out2", licence="MIT")


def test_the_command_tells_counts_and_the_card_is_readable(tmp_path):
    args = [survey(tmp_path), "--out", str(tmp_path / "o"), "--country", "Chile", "--limit", "10"]
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 0, result.output
    assert "10 pairs of 10 groups in 1 countries, read as globalopinionqa" in result.output
    assert "left out: 40 x the country is not one of --country" in result.output
    assert "non-commercial use only (CC-BY-NC-SA-4.0)" in result.output
    text = (tmp_path / "o" / "card.md").read_text()
    assert "| Chile | 10 | 10 |" in text
    assert "Non-commercial use only" in text
    assert json.loads((tmp_path / "o" / "card.json").read_text())["options"]["limit"] == 10
