"""The language taxonomy: look-ups and the table's own consistency."""

from __future__ import annotations

import re

import pytest

from habitus import taxonomy

CARB = ["ar", "zh", "en", "de", "ja", "ko", "ru", "es", "th", "vi"]
M_REWARDBENCH = [
    "arb_Arab",
    "ces_Latn",
    "deu_Latn",
    "ell_Grek",
    "eng_Latn",
    "fra_Latn",
    "heb_Hebr",
    "hin_Deva",
    "ind_Latn",
    "ita_Latn",
    "jpn_Jpan",
    "kor_Hang",
    "nld_Latn",
    "pes_Arab",
    "pol_Latn",
    "por_Latn",
    "ron_Latn",
    "rus_Cyrl",
    "spa_Latn",
    "tur_Latn",
    "ukr_Cyrl",
    "vie_Latn",
    "zho_Hans",
    "zho_Hant",
]
BLEND = ["ar", "as", "az", "zh", "am", "el", "id", "fa", "es", "ko", "ha", "en", "su"]


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("ar", "ar"),
        ("AR", "ar"),
        ("es-MX", "es"),
        ("es_MX", "es"),
        ("zh-Hant-TW", "zh-Hant"),
        ("zh-hant", "zh-Hant"),
        ("zh-TW", "zh"),
        ("pt-BR-x-private", "pt"),
    ],
)
def test_lookup_falls_back_by_dropping_subtags(tag, expected):
    found = taxonomy.lookup(tag)
    assert found is not None
    assert found.tag == expected


@pytest.mark.parametrize("tag", ["", "-", "tlh", "xx-Latn", "arabic"])
def test_lookup_of_unknown_tag_is_none(tag):
    assert taxonomy.lookup(tag) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arb_Arab", "ar"),
        ("ARB_ARAB", "ar"),
        ("Arabic", "ar"),
        ("zho_Hans", "zh-Hans"),
        ("de", "de"),
    ],
)
def test_resolve_knows_flores_codes_and_names(text, expected):
    found = taxonomy.resolve(text)
    assert found is not None
    assert found.tag == expected


def test_resolve_of_nonsense_is_none():
    assert taxonomy.resolve("Klingon") is None


def test_the_ten_cultures():
    cultures = [taxonomy.culture_of_language(tag) for tag in CARB]
    assert cultures == [
        *["Arabic", "Chinese", "English", "German", "Japanese"],
        *["Korean", "Russian", "Spanish", "Thai", "Vietnamese"],
    ]
    assert taxonomy.culture_of_language("zh-Hant-TW") == "Chinese"
    assert taxonomy.culture_of_language("fr") is None


@pytest.mark.parametrize("tag", CARB + BLEND)
def test_covers_carb_and_blend(tag):
    assert tag in taxonomy.languages()


@pytest.mark.parametrize("code", M_REWARDBENCH)
def test_covers_m_rewardbench(code):
    found = taxonomy.resolve(code)
    assert found is not None
    assert found.flores == code


@pytest.mark.parametrize(
    ("tag", "expected"),
    # Joshi et al. 2020, lang2tax.txt: two or three entries of each class.
    [
        ("en", 5),
        ("ja", 5),
        ("zh", 5),
        ("ko", 4),
        ("vi", 4),
        ("fa", 4),
        ("th", 3),
        ("el", 3),
        ("id", 3),
        ("ha", 2),
        ("am", 2),
        ("su", 1),
        ("as", 1),
        ("az", 1),
        ("yue", 1),
    ],
)
def test_joshi_classes(tag, expected):
    assert taxonomy.languages()[tag].joshi_class == expected


@pytest.mark.parametrize(
    ("tag", "script", "family"),
    [
        ("ar", "Arabic", "Afro-Asiatic"),
        ("ja", "Japanese", "Japonic"),
        ("ko", "Hangul", "Koreanic"),
        ("th", "Thai", "Tai-Kadai"),
        ("ru", "Cyrillic", "Indo-European"),
        ("vi", "Latin", "Austroasiatic"),
        ("zh-Hant", "Han", "Sino-Tibetan"),
        ("ha", "Latin", "Afro-Asiatic"),
    ],
)
def test_script_and_family(tag, script, family):
    language = taxonomy.languages()[tag]
    assert (language.script, language.family) == (script, family)


def test_table_is_strings_for_joining():
    rows = taxonomy.table()
    assert len(rows) == len(taxonomy.languages()) >= 60
    assert {"language": "ko", "script": "Hangul", "family": "Koreanic", "joshi_class": "4"} in rows
    assert all(set(row) == {"language", "script", "family", "joshi_class"} for row in rows)
    assert all(isinstance(value, str) and value for row in rows for value in row.values())


def test_entries_are_well_formed():
    entries = taxonomy.languages()
    assert list(entries) == sorted(entries)
    codes = [entry.flores for entry in entries.values() if entry.flores]
    assert len(codes) == len(set(codes))
    for tag, entry in entries.items():
        assert re.fullmatch(r"[a-z]{2,3}(-[A-Z][a-z]{3})?", tag)
        assert entry.flores is None or re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}", entry.flores)
        assert entry.joshi_class is None or 0 <= entry.joshi_class <= 5


def test_languages_returns_a_copy():
    taxonomy.languages().clear()
    assert taxonomy.languages()
