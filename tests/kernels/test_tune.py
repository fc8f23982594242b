"""Choosing variants, and records of choices."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from nimblevm.errors import CompileError
from nimblevm.kernels.tune import candidates, fastest, from_json, scores, to_json
from nimblevm.kernels.variants import PLAIN, Choices, Shape, Variant

SHAPE = Shape("float32", "float32", 300, 512)
OTHER = Variant((1, 2, 4), ahead=512)


def test_the_fastest_in_the_mean_of_all_row_counts_wins() -> None:
    runs: dict[Variant | str, list[Callable[[], float]]] = {
        PLAIN: [lambda: 2.0, lambda: 2.0],
        OTHER: [lambda: 1.0, lambda: 3.0],
    }
    found = scores(runs)
    assert found == {PLAIN: pytest.approx(2), OTHER: pytest.approx(3**0.5)}
    assert fastest(found) == (OTHER, "")
    runs[OTHER] = [lambda: 1.0, lambda: 5.0]
    assert fastest(scores(runs)) == (PLAIN, "")


def test_the_plain_variant_wins_a_tie() -> None:
    assert fastest({OTHER: 0.99, PLAIN: 1.0}) == (PLAIN, "")


def test_a_backend_must_be_faster_than_the_best_variant() -> None:
    assert fastest({PLAIN: 1.0, OTHER: 0.5, "lib": 0.495}) == (OTHER, "")
    assert fastest({PLAIN: 1.0, OTHER: 0.5, "lib": 0.45, "slow": 3.0}) == (OTHER, "lib")


def test_a_disturbed_round_does_not_count() -> None:
    times = iter([9.0, *[1.0] * 20])
    assert fastest(scores({PLAIN: [lambda: next(times)], OTHER: [lambda: 2.0]}))[0] == PLAIN


def test_candidates_differ_and_hold_the_plain_one() -> None:
    found = list(candidates())
    assert PLAIN in found
    assert len(set(found)) == len(found)


def test_a_record_is_read_back() -> None:
    small = Shape("float32", "float32", 8, 16)
    text = to_json("x86_64", Choices({SHAPE: OTHER, small: PLAIN}, {small: "lib"}))
    choices = from_json(text)
    assert choices.external == {small: "lib"}
    assert choices.of(SHAPE, ("avx512f",)) == OTHER
    assert choices.of(Shape("float32", "float32", 1, 1), ("avx512f",)) == PLAIN
    assert to_json("x86_64", choices) == text


def test_the_table_prefetches_where_it_helps() -> None:
    assert Choices().of(SHAPE, ("avx2", "avx512f")).ahead == 0
    assert Choices().of(SHAPE, ("avx2",)).ahead > 0
    assert Choices().of(Shape("float32", "float16", 30, 512), ("avx2",)).ahead == 0
    assert Choices().of(SHAPE, ()) == PLAIN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format="x"), '"format"'),
        (lambda r: r.update(version=2), "version 2"),
        (lambda r: r.pop("products"), "products"),
        (lambda r: r["products"][0].pop("depth"), "product 0 .* lacks 'depth'"),
        (lambda r: r["products"][0]["variant"].update(rows=[2]), "with 1"),
        (lambda r: r["products"][0]["variant"].update(rows=[1, 13]), "with 1"),
        (lambda r: r["products"][0]["variant"].update(panels=3), "panels"),
        (lambda r: r["products"][0]["variant"].update(ahead=-1), "ahead"),
        (lambda r: r["products"][0]["variant"].update(height=0), "height"),
        (lambda r: r["products"][0].update(external=3), "name of a backend"),
        (lambda r: r["products"].append(3), "product 1"),
        (lambda r: r["products"][0].update(depth=float("inf")), "product 0 .* infinity"),
        (
            lambda r: r["products"][0]["variant"].update(rows=[float("inf")]),
            "product 0 .* infinity",
        ),
    ],
)
def test_a_wrong_record_is_an_error(change: object, message: str) -> None:
    record = json.loads(to_json("x86_64", Choices({SHAPE: OTHER})))
    assert callable(change)
    change(record)
    with pytest.raises(CompileError, match=message):
        from_json(json.dumps(record))


def test_what_is_no_record_is_an_error() -> None:
    for text in ("", "[", "3", "[]", "{}", "[" * 100_000, "9" * 5_000):
        with pytest.raises(CompileError, match="tuning record"):
            from_json(text)
