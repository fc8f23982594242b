"""Inputs of rows: lengths, trees, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nimblevm.bench.cases import Case, flatten, height, lengths, parse_like_tree
from nimblevm.bench.peers.choose import fastest
from nimblevm.bench.rows import ROWS, fixed, per_unit, slope
from nimblevm.bench.workloads import treelstm


def test_lengths_have_their_mean() -> None:
    found = lengths(10, 10, 50, 26, seed=1)
    assert sum(found) == 260
    assert all(10 <= n <= 50 for n in found)
    assert found == lengths(10, 10, 50, 26, seed=1)


def test_trees_are_as_deep_as_parses() -> None:
    rng = np.random.default_rng(0)
    trees = [parse_like_tree(21, rng, 1) for _ in range(200)]
    assert 10 < np.mean([height(tree) for tree in trees]) < 11.5
    assert len(flatten(trees[0]).words) == 21


def test_a_flat_tree_is_the_tree() -> None:
    """Evaluated from the arrays, in order and level by level, it gives what the tree gives."""
    tree = parse_like_tree(9, np.random.default_rng(1), 1)
    flat = flatten(tree)
    wanted = treelstm.fold(tree, lambda x: float(x[0, 0]), lambda a, b: 2 * a - b)
    values = [float(x[0]) for x in flat.words]
    for left, right in flat.children:
        values.append(2 * values[left] - values[right])
    assert values[-1] == pytest.approx(wanted)
    done = dict(enumerate(values[:9]))
    for level in flat.levels:
        for k in level:
            left, right = flat.children[k]
            done[9 + int(k)] = 2 * done[int(left)] - done[int(right)]
    assert done[16] == pytest.approx(wanted)
    single = flatten(np.zeros((1, 4), np.float32))
    assert single.children.shape == (0, 2)
    assert single.levels == ()


def test_metrics() -> None:
    cases = [Case(10, 10, ()), Case(100, 100, ())]
    assert per_unit(cases, [1.0, 2.0]) == pytest.approx(3 / 110)
    assert slope(cases, [6.0, 15.0]) == pytest.approx(0.1)
    assert fixed(cases, [6.0, 15.0]) == pytest.approx(5.0)


@pytest.mark.parametrize("name", ["lstm-tiny", "treelstm", "chain"])
def test_rows_are_consistent(name: str) -> None:
    """Programs, weights and inputs fit: the numpy reference runs."""
    row = ROWS[name].shortened()
    cases = row.cases()
    weights = row.params()
    assert 2 <= len(cases) <= 3
    assert {case.program for case in cases} <= set(row.programs())
    outputs = row.reference(weights, cases[0])
    assert all(np.isfinite(out).all() for out in outputs)


def test_the_fastest_way_is_chosen_and_broken_ones_are_not() -> None:
    calls: list[str] = []

    def slow(value: object) -> list[object]:
        calls.append("slow")
        return [sum(range(20000))]

    def broken(value: object) -> list[object]:
        raise ValueError("no such operator")

    ways: dict[str, Callable[[Any], list[Any]]] = {
        "slow": slow,
        "broken": broken,
        "quick": lambda value: [1],
    }
    name, _ = fastest(ways, [0, 1], seconds=0.0)
    assert name == "quick"
    with pytest.raises(ValueError, match="no such operator"):
        fastest({"a": broken, "b": broken}, [0])
