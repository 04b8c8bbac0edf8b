"""Figures of whole runs, worked out by hand."""

import json
import math

import polars as pl
import pytest

from habitus.errors import InputError
from habitus.metrics import LabelledRun, compare, credits, summarise
from habitus.metrics.read import ITEM_COLUMNS, JUDGEMENT_COLUMNS

LANGUAGES = pl.DataFrame(
    {
        "language": ["th", "de"],
        "script": ["Thai", "Latin"],
        "family": ["Kra-Dai", "Indo-European"],
        "joshi_class": ["3", "5"],
    }
)


def items(*rows):
    """Make a table of items a to d, of which a is right."""
    base = dict.fromkeys(ITEM_COLUMNS) | {
        "best_ids": ["a"],
        "candidate_ids": ["a", "b", "c", "d"],
        "n_candidates": 4,
        "chance": 0.25,
        "longest_credit": 0.0,
        "shortest_credit": 1.0,
        "content": 1,
    }
    full = [base | {"parent": row["item_id"]} | row for row in rows]
    return pl.DataFrame(full, schema=dict(ITEM_COLUMNS))


def judgements(*rows):
    """Make a table of judgements; the status follows from the winners unless given."""
    full = []
    for row in rows:
        winners = row.get("winner_ids", [])
        status = {0: "error", 1: "ok"}.get(len(winners), "tie")
        base = dict.fromkeys(JUDGEMENT_COLUMNS) | {"winner_ids": [], "picks": [], "positions": []}
        picks = row.get("picks", [])
        base |= {"n_shown": 4, "looked_again": len(picks) > 1, "flipped": len(set(picks)) > 1}
        full.append(base | {"status": status} | row)
    return pl.DataFrame(full, schema=dict(JUDGEMENT_COLUMNS))


def won(name, *winners, **more):
    return {"item_id": name, "winner_ids": list(winners)} | more


def summary(item_table, judgement_table, **more):
    options = {"languages": LANGUAGES, "seed": 0, "label": "run"} | more
    return summarise(item_table, judgement_table, **options)


def find(result, name, **group):
    [found] = [m for m in result.metrics if m.name == name and m.group == group]
    return found


def names(count):
    return [{"item_id": f"i{k}"} for k in range(count)]


def test_credit_is_shared_between_equals():
    """[2.0, 2.0, 1.5, 1.0] with the chosen first earns 1/2; all equal 1/4."""
    table = items(*names(6), {"item_id": "two", "best_ids": ["a", "b"]})
    given = judgements(
        won("i0", "a"),
        won("i1", "a", "b"),
        won("i2", "a", "b", "c", "d"),
        won("i3", "b", "c"),
        won("i4", status="unparsed"),
        won("two", "a", "b", "c"),
    )
    earned = credits(table, given)
    assert earned["credit"].to_list() == [1.0, 0.5, 0.25, 0.0, None, None, 2 / 3]
    assert earned["status"].to_list() == ["ok", "tie", "tie", "tie", "unparsed", "missing", "tie"]
    result = summary(table, given)
    assert find(result, "tie_rate").value == pytest.approx(4 / 5)
    accuracy = find(result, "accuracy")
    assert accuracy.value == pytest.approx((1 + 0.5 + 0.25 + 2 / 3) / 5)
    assert (accuracy.n, accuracy.n_excluded, accuracy.interval) == (5, 2, "wilson")


def test_files_that_do_not_belong_together_are_refused():
    with pytest.raises(InputError, match="'other', which is not among the items"):
        credits(items(*names(1)), judgements(won("other", "a")))
    with pytest.raises(InputError, match="'i0' has a winner that is none"):
        credits(items(*names(1)), judgements(won("i0", "z")))


def test_failures_are_counted_apart_from_wrong_answers():
    table = items(*names(6))
    given = judgements(
        won("i0", "a"),
        won("i1", "b"),
        won("i2", status="unparsed"),
        won("i3", status="refused"),
        won("i4", status="refused"),
    )
    result = summary(table, given)
    assert find(result, "accuracy").value == 1 / 2
    wrong = find(result, "accuracy_failures_wrong")
    assert (wrong.value, wrong.n, wrong.n_excluded) == (1 / 5, 5, 1)
    counts = {
        m.group["status"]: m.value
        for m in result.metrics
        if m.name == "status_count" and "language" not in m.group
    }
    assert counts == {
        "ok": 2,
        "tie": 0,
        "unparsed": 1,
        "refused": 2,
        "truncated": 0,
        "error": 0,
        "missing": 1,
    }
    assert find(result, "status_count", status="ok").n == 6


def test_failures_are_counted_by_language():
    """Behaviour 5: a limit can hit one script and spare another."""
    table = items(*names(5)).with_columns(language=pl.Series(["th", "th", "th", "en", None]))
    given = judgements(
        won("i0", status="truncated"),
        won("i1", status="truncated"),
        won("i2", "a"),
        won("i3", "a"),
        won("i4", status="truncated"),
    )
    found = {
        tuple(sorted(m.group.values())): (m.value, m.n)
        for m in summary(table, given).metrics
        if m.name == "status_count" and "language" in m.group
    }
    assert found == {("th", "truncated"): (2, 3)}


def test_a_judge_that_always_says_a():
    """About 0.25 accuracy, the highest flip rate, and the letter's share is 1."""
    turns = [["a", "b", "c", "d"][k:] + ["a", "b", "c", "d"][:k] for k in range(4)]
    table = items(*names(40))
    # The final winner of an A-sayer is whoever stood first in the first order.
    rows = [
        won(
            f"i{k}",
            turns[k % 4][0],
            picks=[turns[(k + j) % 4][0] for j in range(4)],
            positions=[0] * 4,
            mass=0.5 if k % 2 else 1.0,
        )
        for k in range(40)
    ]
    result = summary(table, judgements(*rows))
    assert find(result, "accuracy").value == 0.25
    assert find(result, "flip_rate").value == 1.0
    assert find(result, "letter_share", letter="A").value == 1.0
    assert find(result, "letter_share", letter="D").value == 0.0
    assert find(result, "letter_share", letter="A").n == 160
    assert find(result, "letter_mass").value == 0.75
    [random, *_] = result.comparisons
    assert (random.b, random.difference, random.p) == ("baseline:random", 0.0, 1.0)


def test_flip_rate_needs_two_passes():
    table = items(*[row | {"language": "th"} for row in names(4)])
    given = judgements(
        won("i0", "a", picks=["a", "a"], positions=[0, 1]),
        won("i1", "a", picks=["a", "b"], positions=[0, 0]),
        won("i2", "a", picks=["a"], positions=[2]),
        won("i3", status="error", picks=["a", "b"], positions=[3, 3]),
    )
    result = summary(table, given)
    for flips in (find(result, "flip_rate"), find(result, "flip_rate", language="th")):
        assert (flips.value, flips.n, flips.n_excluded) == (1 / 2, 2, 1)
    # A, B, A, A, C over the five passes of judged items.
    shares = [find(result, "letter_share", letter=letter).value for letter in "ABCD"]
    assert shares == pytest.approx([3 / 5, 1 / 5, 1 / 5, 0])
    assert not [m for m in result.metrics if m.name == "letter_mass"]


def test_groups_chance_and_macro():
    thai = {"culture": "Thai", "language": "th", "domain": "values"}
    german = {"culture": "German", "language": "de", "domain": "values", "chance": 0.5}
    table = items(
        {"item_id": "1"} | thai,
        {"item_id": "2"} | thai,
        {"item_id": "3"} | thai,
        {"item_id": "4"} | german,
        {"item_id": "5"},
    )
    given = judgements(
        won("1", "a"), won("2", "b"), won("3"), won("4", "a"), won("5", "b", "c", "d")
    )
    result = summary(table, given)
    assert find(result, "accuracy").value == 2 / 4
    for group in ({"culture": "Thai"}, {"script": "Thai"}, {"family": "Kra-Dai"}):
        found = find(result, "accuracy", **group)
        assert (found.value, found.n, found.n_excluded) == (1 / 2, 2, 1)
    assert find(result, "accuracy", joshi_class="5").value == 1.0
    assert find(result, "accuracy", domain="values").value == pytest.approx(2 / 3)
    assert find(result, "accuracy", culture="Thai", domain="values").n == 2
    # Cells: Thai 1/2, German 1; item 5 is in none.
    macro = find(result, "accuracy_macro")
    assert (macro.value, macro.n, macro.n_excluded) == (3 / 4, 3, 1)
    assert find(result, "chance").value == pytest.approx((0.25 + 0.25 + 0.5 + 0.25) / 4)
    assert find(result, "chance", culture="German").value == 0.5
    assert not [m for m in result.metrics if "country" in m.group or "source" in m.group]
    cultures = [m.group["culture"] for m in result.metrics if list(m.group) == ["culture"]]
    assert cultures == ["German", "Thai"] * 2


def test_unknown_language_has_no_script():
    table = items({"item_id": "1", "language": "xx"})
    result = summary(table, judgements(won("1", "a")))
    assert find(result, "accuracy", language="xx").value == 1.0
    assert not [m for m in result.metrics if "script" in m.group]


def test_baselines_and_their_comparisons():
    rows = [
        {"domain": "values", "longest_credit": k % 2, "shortest_credit": 0.5} | row
        for k, row in enumerate(names(6))
    ]
    result = summary(items(*rows), judgements(*[won(f"i{k}", "a") for k in range(6)]))
    for group in ({}, {"domain": "values"}):
        assert find(result, "baseline_accuracy", baseline="random", **group).value == 0.25
        assert find(result, "baseline_accuracy", baseline="longest", **group).value == 0.5
        assert find(result, "baseline_accuracy", baseline="shortest", **group).value == 0.5
    assert find(result, "baseline_accuracy", baseline="random").interval is None
    random, longest, shortest = result.comparisons
    assert [row.b for row in result.comparisons] == [
        "baseline:random",
        "baseline:longest",
        "baseline:shortest",
    ]
    # All six right by chance: 1/4^6, and no total is as far below. Longest: 3 against 0, 2/2^3.
    # Shortest: six halves, all one way, 2/2^6. Holm: times 3, 1, 2.
    assert random.p == pytest.approx(1 / 4096)
    assert longest.p == pytest.approx(1 / 4)
    assert shortest.p == pytest.approx(1 / 32)
    assert random.p_holm == pytest.approx(3 / 4096)
    assert shortest.p_holm == pytest.approx(2 / 32)
    assert longest.p_holm == pytest.approx(1 / 4)
    assert (random.difference, random.ci_high) == (0.75, 0.75)
    assert (longest.difference, longest.n, longest.n_excluded) == (0.5, 6, 0)


def test_detectable_difference_counts_clusters():
    rows = [{"parent": f"p{k // 4}"} | row for k, row in enumerate(names(16))]
    given = [won(f"i{k}", "a" if k % 2 else "b") for k in range(16)]
    clustered = find(summary(items(*rows), judgements(*given)), "detectable_difference")
    plain = find(summary(items(*names(16)), judgements(*given)), "detectable_difference")
    assert plain.value == pytest.approx((1.959964 + 0.841621) * math.sqrt(0.5 / 16))
    assert clustered.value == pytest.approx(2 * plain.value)


@pytest.mark.parametrize("case", ["empty", "failed", "missing", "one", "tied"])
def test_degenerate_runs_say_nothing_rather_than_zero(case):
    table = items(*names({"empty": 0, "one": 1}.get(case, 3)))
    rows = {
        "one": [won("i0", "a")],
        "failed": [won(f"i{k}") for k in range(3)],
        "tied": [won(f"i{k}", "a", "b", "c", "d") for k in range(3)],
    }.get(case, [])
    result = summary(table, judgements(*rows))
    accuracy, [random, *_] = find(result, "accuracy"), result.comparisons
    if case in ("one", "tied"):
        assert accuracy.value == (1.0 if case == "one" else 0.25)
        assert accuracy.ci_low < accuracy.ci_high
        assert random.p == pytest.approx(0.25 if case == "one" else 1.0)
    else:
        assert (accuracy.value, accuracy.n, accuracy.n_excluded) == (None, 0, table.height)
        for name in ("chance", "accuracy_macro", "tie_rate", "flip_rate", "detectable_difference"):
            assert find(result, name).value is None
        assert (random.difference, random.p, random.p_holm, random.n) == (None, None, None, 0)


def dump(result):
    rows = [row.model_dump() for row in (*result.metrics, *result.comparisons)]
    return json.dumps(rows).encode()


def test_same_seed_same_bytes_whatever_the_order_of_lines():
    rows = [
        {
            "parent": f"p{k // 3}",
            "culture": "Thai" if k % 2 else None,
            "chance": [1 / 3, 0.25][k % 2],
        }
        | row
        for k, row in enumerate(names(300))
    ]
    winners = [("a",), ("b",), ("a", "b", "c"), (), ("a",)]
    given = judgements(*[won(f"i{k}", *winners[k % 5], mass=0.1 * (k % 7)) for k in range(300)])
    table = items(*rows)
    first = dump(summary(table, given))
    assert dump(summary(table, given)) == first
    assert dump(summary(table, given.reverse())) == first
    assert dump(summary(table.sample(fraction=1, shuffle=True, seed=1), given)) == first
    assert dump(summary(table, given, seed=1)) != first


def run(label, table, *rows):
    return LabelledRun(label, table, judgements(*rows))


def test_identical_runs_do_not_differ():
    rows = [won(f"i{k}", "a" if k % 3 else "b") for k in range(40)]
    [found] = compare(
        [run("x", items(*names(40)), *rows), run("y", items(*names(40)), *rows)], seed=0
    )
    assert (found.difference, found.p, found.p_holm, found.n, found.n_excluded) == (0, 1, 1, 40, 0)
    assert found.ci_low < 0 < found.ci_high
    assert found.detectable > 0


def test_comparison_is_of_shared_items_only():
    table = items(*names(6))
    other = items(*names(4), {"item_id": "i4", "content": 2}, {"item_id": "new"})
    x = run("x", table, *[won(f"i{k}", "a") for k in range(6)])
    y = run("y", other, won("i0"), *[won(f"i{k}", "b") for k in (1, 2, 3, 4)], won("new", "a"))
    [found] = compare([x, y], seed=0)
    # Shared, alike and judged by both: i1, i2, i3. Left out: i0, i4 (differs), i5, new.
    assert (found.n, found.n_excluded, found.difference) == (3, 4, 1.0)
    assert found.p == pytest.approx(2 / 2**3)


def test_all_pairs_with_holm():
    table = items(*names(8))
    runs = [
        run("all", table, *[won(f"i{k}", "a") for k in range(8)]),
        run("none", table, *[won(f"i{k}", "b") for k in range(8)]),
        run("six", table, *[won(f"i{k}", "a" if k < 6 else "b") for k in range(8)]),
        run("failed", table, *[won(f"i{k}") for k in range(8)]),
    ]
    found = {(row.a, row.b): row for row in compare(runs, seed=0)}
    assert len(found) == 6
    assert found["all", "none"].p == pytest.approx(2 / 2**8)
    assert found["all", "six"].p == pytest.approx(2 / 2**2)
    assert found["none", "six"].p == pytest.approx(2 / 2**6)
    # Three p-values; pairs with the failed run have none and do not count.
    assert found["all", "none"].p_holm == pytest.approx(3 * 2 / 2**8)
    assert found["none", "six"].p_holm == pytest.approx(2 * 2 / 2**6)
    assert found["all", "six"].p_holm == pytest.approx(2 / 2**2)
    assert found["six", "failed"].p_holm is None
    assert found["six", "failed"].n_excluded == 8


def test_clusters_flip_together():
    """Eight items of two clusters, one way each: two signs to flip, so p cannot be small."""
    rows = [{"parent": f"p{k // 4}"} | row for k, row in enumerate(names(8))]
    x = run("x", items(*rows), *[won(f"i{k}", "a") for k in range(8)])
    y = run("y", items(*rows), *[won(f"i{k}", "b") for k in range(8)])
    [found] = compare([x, y], seed=0)
    assert found.p == pytest.approx(2 / 2**2)


def test_equal_labels_are_refused():
    table = items(*names(1))
    with pytest.raises(InputError, match="two runs are labelled 'x'"):
        compare([run("x", table, won("i0", "a")), run("x", table, won("i0", "a"))], seed=0)
    assert compare([], seed=0) == ()
