"""References: what is read, what is refused, and which mislead about which."""

import pytest

from habitus.build.references import read_references, targets
from habitus.data.answers import fold
from habitus.errors import InputError, UnknownNameError
from tests.build_samples import FACTS, reference, write_lines


def read(tmp_path, lines, **options):
    return read_references(write_lines(tmp_path / "refs.jsonl", lines), **options)


def everything():
    return [reference(name) for name in FACTS]


def test_a_reference_is_normalised(tmp_path):
    line = reference("jp", text="  Guests\n take  off shoes. ", language="Thai", id=None)
    (one,) = read(tmp_path, [line]).references
    assert (one.text, one.language, one.text_language) == ("Guests take off shoes.", "th", "th")
    assert one.id.startswith("ref-")
    assert len(one.id) == 16
    (again,) = read(tmp_path, [line | {"topic": "other"}]).references
    assert again.id == one.id


def test_the_language_of_a_text_is_recognised_where_it_is_not_given(tmp_path):
    lines = [reference("jp", language="th"), reference("de", language="th", text_language="de")]
    found = read(tmp_path, lines, recognise=lambda text: "en").references
    assert [one.text_language for one in found] == ["en", "de"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": " "}, "text"),
        ({"topic": None}, "topic"),
        ({"language": None}, "language is missing"),
        ({"language": "not a tag"}, "language 'not a tag' is unknown"),
        ({"source": {"title": "x"}}, r"source\.publisher: is missing"),
        ({"source": "x"}, "source"),
        ({"share": 2}, "share"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"id": "jp"}, "id 'jp' is also that of .*line 1"),
    ],
)
def test_a_broken_line_is_named(tmp_path, change, message):
    lines = [reference("jp"), reference("de") | change]
    with pytest.raises(InputError, match=rf"refs\.jsonl, line 2: .*{message}") as caught:
        read(tmp_path, lines)
    assert "\n" not in str(caught.value)


def test_broken_json_and_missing_files_are_named(tmp_path):
    path = tmp_path / "refs.jsonl"
    path.write_text('{"id": 1,\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"refs\.jsonl, line 1"):
        read_references(path)
    with pytest.raises(InputError, match=r"gone\.jsonl"):
        read_references(tmp_path / "gone.jsonl")


def test_duplicates_are_left_out_and_counted(tmp_path):
    lines = [reference("jp"), reference("jp", id="again", text=FACTS["jp"].upper() + "!")]
    found = read(tmp_path, lines)
    assert ([one.id for one in found.references], found.duplicates) == (["jp"], 1)


def test_fold_keeps_what_tells_texts_apart():
    assert fold("Tea, PLEASE!") == fold("tea please")
    assert fold("ข้าว") != fold("ขาว")  # vowel signs and tones are marks


def test_mismatches_come_from_the_topic_then_the_domain_then_anywhere(tmp_path):
    lines = [
        reference("jp"),
        reference("de"),  # same topic
        reference("ru", topic="greeting"),  # same domain
        reference("th", topic="greeting", domain="values"),
        reference("kr", culture="Japanese"),  # the same culture comes last
    ]
    for seed in range(3):
        first, last = targets(read(tmp_path, lines), culture="japanese", seed=seed)
        assert [one.id for one in first.wrong] == ["de", "ru", "th"]
        assert last.reference.id == "kr"
        assert [one.id for one in last.wrong[2:]] == ["th"]


def test_mismatches_spread_over_cultures(tmp_path):
    lines = [reference("jp"), reference("de"), reference("ru", culture="German")]
    lines += [reference("th", culture="German"), reference("kr", topic="visiting")]
    for seed in range(5):
        target = targets(read(tmp_path, lines), culture="Japanese", seed=seed)[0]
        assert "Korean" in {one.culture for one in target.wrong[:2]}


def test_too_few_references_and_unknown_cultures_are_refused(tmp_path):
    few = read(tmp_path, everything()[:3])
    with pytest.raises(InputError, match=r"reference jp: only 2 others .*--mismatch"):
        targets(few)
    with pytest.raises(UnknownNameError, match="did you mean Japanese"):
        targets(read(tmp_path, everything()), culture="Japanes")


def test_further_references_only_mislead(tmp_path):
    more = write_lines(tmp_path / "more.jsonl", everything()[1:])
    found = read(tmp_path, everything()[:1], mismatch=more)
    (target,) = targets(found)
    assert target.reference.id == "jp"
    assert len(found.mismatch) == 4


def test_a_limit_spreads_over_cultures_and_grows(tmp_path):
    lines = [
        reference(name, id=f"{name}{n}", text=f"{FACTS[name]} {n}")
        for name in ("jp", "de")
        for n in range(5)
    ]
    found = read(tmp_path, lines)
    drawn = [{one.key for one in targets(found, limit=limit)} for limit in (2, 4, 6)]
    assert drawn[0] < drawn[1] < drawn[2]
    assert {key[:2] for key in drawn[0]} == {"jp", "de"}
