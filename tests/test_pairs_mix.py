"""Mix files: shares, parts across sources, what runs short, what is left out, the card."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from habitus.cli.pairs import pairs as command
from habitus.errors import InputError, RunError
from habitus.pairs import read_pairs
from habitus.pairs.drawing import apportion, draw_cell
from habitus.pairs.making import TOO_LONG, PairsPlan, make_pairs
from habitus.pairs.mix import read_mix
from habitus.pairs.mix_pools import CONTRADICTED, NOT_NAMED, REPEATED
from habitus.pairs.mixing import BOTH_PARTS, EXCLUDED, MixPlan, make_mix
from habitus.types import Message, PreferencePair

EXAMPLE = Path(__file__).parent.parent / "examples" / "mixes" / "locals.toml"


def pair(id="a", group="g"):
    return PreferencePair(
        id=id,
        item_id="q",
        prompt=(Message(role="user", content="Tea or coffee?"),),
        chosen="Tea",
        rejected="Coffee",
        group=group,
    )


def rows(path, found):
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


def questions(n, name="q", **fields):
    """N questions with one pair each."""
    return [
        {"prompt": f"{name} {i}?", "chosen": "yes", "rejected": "no", "licence": "MIT"} | fields
        for i in range(n)
    ]


def mixed(tmp_path, text, out="out", say=lambda line: None, **options):
    file = tmp_path / "mix.toml"
    file.write_text(text, encoding="utf-8")
    card = make_mix(MixPlan(file, tmp_path / out, **options), say)
    return card, read_pairs(tmp_path / out)


def by_source(pairs, split=None):
    names = [one.id.partition(":")[0] for one in pairs if split in (None, one.split)]
    return {name: names.count(name) for name in sorted(set(names))}


# Shares and draws


@pytest.mark.parametrize(
    ("total", "shares", "expected"),
    [
        (10, [1, 1, 1], [4, 3, 3]),  # equal rests: the first
        (7, [2, 1, 1], [3, 2, 2]),  # 3.5, 1.75, 1.75
        (4, [0.5, 0.5], [2, 2]),
        (0, [1, 2], [0, 0]),
        (1, [1, 8], [0, 1]),
    ],
)
def test_shares_become_whole_numbers_that_sum_up(total, shares, expected):
    assert apportion(total, shares) == expected


def test_each_group_gives_one_pair_before_any_gives_two():
    pool = [pair(f"{group}{i}", group) for group in "abc" for i in range(5)]
    four = draw_cell(pool, 4, seed=0)
    assert (four.wanted, four.there, four.repeated) == (4, 15, 0)
    assert {one.group for one in four.pairs[:3]} == {"a", "b", "c"}
    assert draw_cell(reversed(pool), 9, seed=0).pairs[:4] == four.pairs
    assert draw_cell(pool, 4, seed=1).pairs != four.pairs


def test_pairs_are_taken_again_under_other_ids_only_when_asked_for():
    pool = [pair("a", "x"), pair("b", "y")]
    assert len(draw_cell(pool, 5, seed=0).pairs) == 2
    again = draw_cell(pool, 5, seed=0, repeat=True)
    assert again.repeated == 3
    first, second = (one.id for one in again.pairs[:2])
    assert [one.id for one in again.pairs[2:]] == [f"{first}#2", f"{second}#2", f"{first}#3"]
    assert draw_cell([], 5, seed=0, repeat=True).pairs == ()


def test_a_mix_has_the_shares_asked_for(tmp_path):
    rows(tmp_path / "one.jsonl", questions(200, "one"))
    rows(tmp_path / "two.jsonl", questions(200, "two"))
    text = """
train = 80
test = 20
[sources.one]
path = "one.jsonl"
share = 3
[sources.two]
path = "two.jsonl"
share = 1
"""
    card, pairs = mixed(tmp_path, text)
    assert by_source(pairs, "train") == {"one": 60, "two": 20}
    assert by_source(pairs, "test") == {"one": 15, "two": 5}
    assert [(n.source, n.share, n.asked_train, n.train) for n in card.mix.counts] == [
        ("one", 0.75, 60, 60),
        ("two", 0.25, 20, 20),
    ]
    there = card.mix.counts[0]
    assert there.there_train + there.there_test == 200
    assert all(one.fold is not None for one in pairs)
    assert len({one.id for one in pairs}) == 100
    # Equal input gives equal bytes; another mix does not overwrite it.
    mixed(tmp_path, text)
    with pytest.raises(RunError, match="holds other pairs"):
        mixed(tmp_path, text.replace("share = 3", "share = 2"))


def test_a_share_is_divided_by_country(tmp_path):
    found = [
        row
        for name in ("Chile", "Peru", "South Korea")
        for row in questions(60, f"In {name}", country=name)
    ]
    rows(tmp_path / "one.jsonl", found)
    text = """
train = 40
[sources.one]
path = "one.jsonl"
share = 1
countries = {countries}
"""
    card, pairs = mixed(tmp_path, text.format(countries='{ "S. Korea" = 3, Chile = 1 }'))
    countries = [one.country for one in pairs]
    assert (countries.count("South Korea"), countries.count("Chile")) == (30, 10)
    assert card.left_out == {NOT_NAMED: 60}
    assert [(n.name, n.asked_train) for n in card.mix.counts] == [("S. Korea", 30), ("Chile", 10)]
    _, equal = mixed(tmp_path, text.format(countries='["Chile", "Peru"]'), "equal")
    assert [one.country for one in equal].count("Peru") == 20
    with pytest.raises(InputError, match=r"mix.toml, source one: unknown countries 'Perou'; did"):
        mixed(tmp_path, text.format(countries='["Perou"]'), "none")
    with pytest.raises(InputError, match="both stand for South Korea"):
        mixed(tmp_path, text.format(countries='["S. Korea", "South Korea"]'), "none")


def test_a_language_stands_for_its_scripts_and_a_culture_is_no_language(tmp_path):
    found = [
        *questions(10, "a", language="zh-Hans", culture="Chinese"),
        *questions(10, "b", language="zh-Hant", culture="Chinese"),
        *questions(10, "c", language="en", culture="Chinese"),
    ]
    rows(tmp_path / "one.jsonl", found)
    text = 'train = 30\n[sources.one]\npath = "one.jsonl"\nshare = 1\n'
    _, pairs = mixed(tmp_path, text + 'languages = ["zh"]')
    assert sorted(one.language for one in pairs) == ["zh-Hans"] * 10 + ["zh-Hant"] * 10
    card, pairs = mixed(tmp_path, text + 'cultures = ["chinese"]', "cultures")
    assert len(pairs) == 30
    assert [(n.culture, n.language, n.train) for n in card.mix.composition] == [
        ("Chinese", "en", 10),
        ("Chinese", "zh-Hans", 10),
        ("Chinese", "zh-Hant", 10),
    ]


SHORT = """
train = 20
short = "{short}"
[sources.one]
path = "one.jsonl"
share = 1
[sources.two]
path = "two.jsonl"
share = 1
"""


def test_what_runs_short_is_said_refused_or_repeated(tmp_path):
    rows(tmp_path / "one.jsonl", questions(4, "one"))
    rows(tmp_path / "two.jsonl", questions(50, "two"))
    said = []
    card, pairs = mixed(tmp_path, SHORT.format(short="warn"), say=said.append)
    assert by_source(pairs) == {"one": 4, "two": 10}
    assert "short: one: training part 4 of 10 pairs" in said
    assert "Ran short: one." in (tmp_path / "out" / "card.md").read_text()
    with pytest.raises(InputError, match=r"one: training part 4 of 10 pairs; lower its share"):
        mixed(tmp_path, SHORT.format(short="error"), "error")
    card, pairs = mixed(tmp_path, SHORT.format(short="repeat"), "repeat", say=said.append)
    assert by_source(pairs) == {"one": 10, "two": 10}
    assert card.mix.counts[0].repeated == 6
    assert "short: one: training part 4 of 10 pairs, 6 repeated" in said
    assert len({one.id.partition("#")[0] for one in pairs if one.id.startswith("one:")}) == 4


# Across sources


TWO = """
train = 60
test = 60
{more}
[sources.one]
path = "one.jsonl"
share = 1
[sources.two]
path = "two.jsonl"
share = 1
"""


def test_nothing_is_there_twice_and_the_first_source_keeps_it(tmp_path):
    first = {"prompt": "Tea?", "chosen": "Yes", "rejected": "No", "country": "Peru"}
    rows(tmp_path / "one.jsonl", [first])
    rows(
        tmp_path / "two.jsonl",
        [
            first | {"prompt": "tea", "chosen": "yes!"},
            first | {"chosen": "No", "rejected": "Yes"},
            first | {"chosen": "No", "rejected": "Yes", "country": "Chile"},
        ],
    )
    card, pairs = mixed(tmp_path, TWO.format(more=""))
    assert sorted((one.id[:3], one.country) for one in pairs) == [("one", "Peru"), ("two", "Chile")]
    assert card.left_out == {REPEATED: 1, CONTRADICTED: 1}
    assert card.mix.sources[1].left_out == card.left_out


def test_a_question_of_two_sources_has_one_part(tmp_path):
    rows(tmp_path / "one.jsonl", questions(40, "Same", group="own"))
    found = [
        row | {"group": f"other {i}", "chosen": "so"} for i, row in enumerate(questions(40, "same"))
    ]
    rows(tmp_path / "two.jsonl", found)
    card, pairs = mixed(tmp_path, TWO.format(more=""))
    assert len({one.split for one in pairs}) == 1  # the group "own" has all 40 questions
    assert {one.group for one in pairs} == {"other 0"}  # the first by name
    assert card.mix.joined_groups == 40
    # Without "own" they are 40 groups in two parts, so some pairs moved.
    assert 0 < card.mix.moved_pairs < 80
    assert card.leakage.prompts_in_both == 0


def test_people_who_were_asked_the_same_stay_themselves(tmp_path):
    found = [
        {
            "prompt": "Hello",
            "chosen": "hi",
            "rejected": "no",
            "annotator": f"p{i}",
            "country": "Peru",
        }
        for i in range(40)
    ]
    rows(tmp_path / "one.jsonl", found)
    rows(tmp_path / "two.jsonl", questions(40, "two"))
    card, pairs = mixed(tmp_path, TWO.format(more=""))
    people = [one for one in pairs if one.annotator]
    assert len(people) == 20  # half of them are for testing
    assert {one.split for one in people} == {"test"}
    assert card.left_out == {BOTH_PARTS: 20}


def test_a_benchmarks_prompts_and_groups_are_left_out(tmp_path):
    rows(tmp_path / "bench.jsonl", questions(5, "One"))
    rows(tmp_path / "one.jsonl", questions(20, "one"))
    rows(tmp_path / "two.jsonl", questions(20, "two"))
    card, pairs = mixed(tmp_path, TWO.format(more='exclude = ["bench.jsonl"]'))
    assert by_source(pairs) == {"one": 15, "two": 20}
    assert card.left_out == {EXCLUDED: 5}
    # A set of pairs is left out, too, by its groups and by its prompts.
    rows(tmp_path / "half.jsonl", questions(7, "two"))
    make_pairs(PairsPlan(str(tmp_path / "half.jsonl"), tmp_path / "half"))
    card, _ = mixed(tmp_path, TWO.format(more='exclude = ["bench.jsonl", "half"]'), "both")
    assert card.left_out == {EXCLUDED: 12}


def test_items_of_the_bundled_test_part_are_left_out(tmp_path):
    text = """
train = 10
exclude = ["carb-open"]
[sources.quick]
path = "{part}"
share = 1
"""
    with pytest.raises(InputError, match=f"no pair is left .*x {EXCLUDED}"):
        mixed(tmp_path, text.format(part="carb-open"))
    card, pairs = mixed(tmp_path, text.format(part="carb-open:train"))
    assert len(pairs) == 10
    assert card.left_out == {}
    assert {one.licence for one in pairs} == {"CC-BY-4.0"}


def test_one_prompt_for_all_items_joins_and_leaks_nothing(tmp_path):
    lines = ["sent,label"]
    for i in range(40):
        lines += [f"友だち{i}人に本を返した,0", f"友だち{i}人に本を返さなかった,1"]
    (tmp_path / "jcm.csv").write_text("\n".join(lines), encoding="utf-8")
    text = 'train = 20\ntest = 20\n[sources.values]\npath = "jcm.csv"\nformat = "jcm"\nshare = 1\n'
    card, pairs = mixed(tmp_path, text)
    assert len({one.group for one in pairs}) == len(pairs)
    assert set(card.splits) == {"train", "test"}
    assert (card.mix.joined_groups, card.leakage.prompts_in_both) == (0, 0)


# What each pair says of its licence


def test_licences_are_told_by_pair_and_by_source(tmp_path):
    rows(tmp_path / "one.jsonl", questions(2, "one", licence="CC-BY-NC-4.0"))
    rows(tmp_path / "two.jsonl", [row | {"licence": None} for row in questions(2, "two")])
    rows(tmp_path / "three.jsonl", [row | {"licence": None} for row in questions(2, "three")])
    text = TWO.format(more="") + 'licence = "MIT"\n[sources.three]\npath = "three.jsonl"\nshare = 1'
    card, pairs = mixed(tmp_path, text)
    told = {one.id[:3]: (one.licence, one.non_commercial) for one in pairs}
    assert told == {"one": ("CC-BY-NC-4.0", True), "two": ("MIT", False), "thr": (None, None)}
    assert [one.non_commercial for one in card.mix.sources] == ["yes", "no", "unknown"]
    assert card.non_commercial == "yes"
    assert "Non-commercial use only" in (tmp_path / "out" / "card.md").read_text()


# Lengths


def test_long_pairs_are_left_out(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.enable_truncation(2)  # what a model's file asks for must not hide a length
    made.save(str(tmp_path / "tokenizer.json"))
    one = {"prompt": "one two three", "chosen": "four", "rejected": "five"}
    found = [one, one | {"prompt": "one two three four"}]
    rows(tmp_path / "one.jsonl", found)
    text = 'train = 2\n[sources.one]\npath = "one.jsonl"\nshare = 1\n'
    card, pairs = mixed(tmp_path, text, max_tokens=5, tokenizer=tmp_path)
    assert [one.prompt[0].content for one in pairs] == ["one two three"]
    assert card.left_out == {TOO_LONG: 1}
    plan = PairsPlan(
        str(tmp_path / "one.jsonl"),
        tmp_path / "p",
        max_tokens=5,
        tokenizer=tmp_path / "tokenizer.json",
    )
    card = make_pairs(plan)
    assert (card.n_pairs, card.left_out) == (1, {TOO_LONG: 1})
    assert card.options["tokenizer"] == tmp_path.name
    with pytest.raises(InputError, match="go together"):
        mixed(tmp_path, text, "x", max_tokens=5)
    with pytest.raises(InputError, match=r"no tokenizer.json at"):
        mixed(tmp_path, text, "x", max_tokens=5, tokenizer=tmp_path / "nowhere")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(InputError, match=r"broken.json is no tokenizer"):
        mixed(tmp_path, text, "x", max_tokens=5, tokenizer=tmp_path / "broken.json")


# Files and options that are wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train = ", "no TOML: Invalid value"),
        ("train = 1", "sources: is missing"),
        ("train = 0\n[sources.a]\npath = 'a'\nshare = 1", "train: Input should be greater"),
        ("[sources.a]\npath = 'a'\nshare = 1", "train: is missing"),
        ("train = 1\n[sources.a]\npath = 'a'", "sources.a.share: is missing"),
        ("train = 1\n[sources.a]\npath = 'a'\nshare = 0", "sources.a.share: Input should be g"),
        (
            "train = 1\n[sources.a]\npath = 'a'\nshare = 1\nmin_margin = 1",
            "unknown key 'min_margin'",
        ),
        ("train = 1\n[sources.a]\npath = 'a'\nshare = 1\ncountries = []", "is empty"),
        ("train = 1\n[sources.a]\npath = 'a'\nshare = 1\ncountries = ['x', 'x']", "is repeated"),
        (
            "train = 1\n[sources.a]\npath = 'a'\nshare = 1\ncountries = ['x']\nlanguages = ['y']",
            "has countries and languages",
        ),
        ("train = 1\n[sources.'a:b']\npath = 'a'\nshare = 1", "'a:b' is no name"),
        ("train = 1\nshort = 'maybe'\n[sources.a]\npath = 'a'\nshare = 1", "short: Input should"),
    ],
)
def test_a_wrong_mix_file_is_refused_in_one_line(tmp_path, text, message):
    file = tmp_path / "mix.toml"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        read_mix(file)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)


def test_wrong_paths_and_options_are_refused(tmp_path):
    def run(*args):
        return CliRunner().invoke(command, [*args, "--out", str(tmp_path / "o")]).exception

    file = tmp_path / "mix.toml"
    assert "cannot be read: No such file" in str(run(str(file)))
    file.write_text("train = 1\n[sources.a]\npath = 'blend'\nshare = 1\n")
    assert "name its folder with --data" in str(run(str(file)))
    assert "--limit does not go with a mix file" in str(run(str(file), "--limit", "3"))
    assert "--seed does not go with a mix file" in str(run(str(file), "--seed", "0"))
    assert "--data applies to mix files" in str(run("carb-open:train", "--data", str(tmp_path)))
    file.write_text("train = 1\n[sources.a]\npath = '.'\nshare = 1\nmin-margin = 2\n")
    rows(tmp_path / "one.jsonl", questions(3))
    assert "mix.toml, source a: the pair" in str(run(str(file)))
    assert not (tmp_path / "o").exists()


def test_the_command_makes_a_mix(tmp_path):
    (tmp_path / "data").mkdir()
    rows(tmp_path / "data" / "one.jsonl", questions(9, licence="CC-BY-NC-4.0", country="Peru"))
    file = tmp_path / "mix.toml"
    file.write_text("train = 4\n[sources.a]\npath = 'one.jsonl'\nshare = 1\n")
    args = [str(file), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 0, result.output
    assert "4 pairs of 4 groups in 1 countries, read as mix; test part: 0" in result.output
    assert "non-commercial use only (CC-BY-NC-4.0)" in result.output
    text = (tmp_path / "o" / "card.md").read_text()
    assert "| a | all | 100.0% | 4 | 9 | 4 | 0 | 0 | 0 |" in text
    assert "Nothing ran short." in text
    assert str(tmp_path) not in text + (tmp_path / "o" / "card.json").read_text()


def test_the_example_is_a_mix():
    mix = read_mix(EXAMPLE)
    assert mix.train + mix.test == 13500
    total = sum(one.share for one in mix.sources.values())
    assert mix.sources["globalopinionqa"].share / total == pytest.approx(0.15, abs=0.002)
    assert tomllib.loads(EXAMPLE.read_text())["exclude"] == ["carb-open", "carb-open:dev"]


@pytest.mark.slow
def test_the_example_on_the_published_data(tmp_path):
    data = os.environ.get("HABITUS_DATA")
    if not data or not (Path(data) / "blend").is_dir():
        pytest.skip("HABITUS_DATA names no folder with blend")
    card = make_mix(MixPlan(EXAMPLE, tmp_path / "out", Path(data)))
    assert card.splits["train"] == 12000
    assert card.leakage.prompts_in_both == card.leakage.groups_in_both == 0
    # 15 of 100.04 parts of 12,000 and of 1,500; Thailand is 6 test pairs short.
    assert card.sources["globalopinionqa"] == 1800 + 225 - 6
