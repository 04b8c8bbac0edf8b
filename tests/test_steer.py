"""Steered mixtures: shares, which models are taken, and scores against the plain classifiers."""

from __future__ import annotations

import json

import pytest

from habitus.errors import InputError, UnknownNameError
from habitus.scorers import ScorerOptions, resolve
from habitus.scorers.steer_models import choose, find_models, parse_shares

silent = lambda line: None  # noqa: E731


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Chile=0.7,Israel=0.3", {"Chile": 0.7, "Israel": 0.3}),
        (" South Africa = 3 , Chile = 1 ", {"South Africa": 0.75, "Chile": 0.25}),
        ("Korea, Republic of=1,Chile=1,", {"Korea, Republic of": 0.5, "Chile": 0.5}),
        ("Chile=2", {"Chile": 1.0}),
    ],
)
def test_shares_by_hand(text, expected):
    assert parse_shares(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "which countries"),
        (" ", "which countries"),
        ("Chile", "is no COUNTRY=SHARE"),
        ("Chile=1,Israel", "'Israel' is no COUNTRY=SHARE"),
        ("Chile=0", "share of Chile, '0', must be above 0"),
        ("Chile=-1", "must be above 0"),
        ("Chile=nan", "must be above 0"),
        ("Chile=inf", "must be above 0"),
        ("Chile=much", "must be above 0"),
        ("Chile=1,Chile=2", "Chile is there twice"),
    ],
)
def test_shares_that_make_no_sense_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_shares(text)


def test_a_country_is_found_whatever_its_folder_could_hold(tmp_path):
    models = {"South-Africa": tmp_path / "a", "Chile": tmp_path / "b"}
    found = choose({"south africa": 0.5, "Chile": 0.5}, models)
    assert found == {"South-Africa": (tmp_path / "a", 0.5), "Chile": (tmp_path / "b", 0.5)}
    with pytest.raises(UnknownNameError, match="unknown country 'Chil'; did you mean Chile"):
        choose({"Chil": 1.0}, models)
    with pytest.raises(UnknownNameError, match="known: Chile, South-Africa"):
        choose({"Xyzzy": 1.0}, models)
    with pytest.raises(InputError, match="there twice"):
        choose({"Chile": 0.5, "chile": 0.5}, models)


def add_unit(out, country, variant="scpo", fold=0, seed=0, share=1.0, *, done=True, model=True):
    folder = out / "units" / f"{country}--{variant}--fold{fold}--seed{seed}--share{share:g}"
    (folder / "model" if model else folder).mkdir(parents=True)
    run = {"country": country, "variant": variant, "fold": fold, "seed": seed, "share": share}
    (folder / "run.json").write_text(json.dumps(run | {"done": done}))
    return folder / "model"


def test_the_models_of_a_study_are_chosen_and_said(tmp_path):
    (tmp_path / "study.json").write_text('{"non_commercial": true}')
    add_unit(tmp_path, "Chile", share=0.5)
    best = add_unit(tmp_path, "Chile", fold=0)
    add_unit(tmp_path, "Chile", fold=1)
    add_unit(tmp_path, "Chile", "finetune")
    israel = add_unit(tmp_path, "Israel", fold=1)
    add_unit(tmp_path, "Mexico", done=False)
    add_unit(tmp_path, "Canada", model=False)
    said = []
    assert find_models(tmp_path, said.append) == {"Chile": best, "Israel": israel}
    assert said[0] == "Chile: Chile--scpo--fold0--seed0--share1 of 3 kept models"
    assert "not for commercial use" in said[1]


def test_folders_without_models_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        find_models(tmp_path / "none", silent)
    with pytest.raises(InputError, match="give one folder with a model folder for each country"):
        find_models(tmp_path, silent)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="train with --keep-model"):
        find_models(tmp_path, silent)
    add_unit(tmp_path, "Chile", "finetune")
    add_unit(tmp_path, "Chile", "weight")
    with pytest.raises(InputError, match="models of finetune, weight but none of scpo"):
        find_models(tmp_path, silent)


def test_steering_options_belong_to_steering():
    with pytest.raises(InputError, match="--countries does not apply to baseline models"):
        resolve("baseline:longest", ScorerOptions(countries="Chile=1"))
    with pytest.raises(InputError, match="which models"):
        resolve("steer", ScorerOptions(countries="Chile=1"))
