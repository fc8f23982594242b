"""Dim expressions: every fold keeps the value, equality is identity, verdicts are never wrong."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimblevm.errors import DimOverflow, DivisionByZero, ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dim_facts import DimFacts
from nimblevm.relay.dims import Dim, DimOp, DimVar

N, M, K = DimVar("n"), DimVar("m"), DimVar("k")
VARS = (N, M, K)

# A tree of operations, evaluated once by the algebra and once by Python.
Tree = Any


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.sampled_from(VARS) | st.integers(0, 6)
    ops = st.sampled_from(("add", "sub", "mul", "floordiv", "floormod", "min", "max", "bcast"))
    return st.recursive(leaves, lambda t: st.tuples(ops, t, t), max_leaves=10)


BUILD = {
    "add": dims.add,
    "sub": dims.sub,
    "mul": dims.mul,
    "floordiv": dims.floordiv,
    "floormod": dims.floormod,
    "min": dims.min_,
    "max": dims.max_,
    "bcast": dims.bcast,
}


class Undefined(Exception):
    """The tree has no value at these sizes."""


def build(tree: Tree) -> Dim:
    if not isinstance(tree, tuple):
        return tree
    op, a, b = tree
    try:
        return BUILD[op](build(a), build(b))
    except (DivisionByZero, ValueError):
        raise Undefined from None


def value(tree: Tree, env: dict[DimVar, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, DimVar):
        return env[tree]
    op, a, b = tree[0], value(tree[1], env), value(tree[2], env)
    if op == "bcast":
        if a != b and 1 not in (a, b):
            raise Undefined
        return b if a == 1 else a
    if op.startswith("floor"):
        if b == 0:
            raise Undefined
        return a // b if op == "floordiv" else a % b
    return {"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}[op]


envs = st.fixed_dictionaries({v: st.integers(0, 7) for v in VARS})


@settings(max_examples=400, deadline=None)
@given(trees(), envs)
def test_folding_keeps_the_value(tree: Tree, env: dict[DimVar, int]) -> None:
    try:
        expected = value(tree, env)
        dim = build(tree)
    except Undefined:
        return
    assert dims.evaluate(dim, env) == expected
    low, high = dims.bounds(dim)
    assert low is None or low <= expected
    assert high is None or expected <= high


@settings(max_examples=400, deadline=None)
@given(trees(), trees(), envs)
def test_a_verdict_is_never_wrong(a: Tree, b: Tree, env: dict[DimVar, int]) -> None:
    try:
        left, right = value(a, env), value(b, env)
        verdict = dims.compare(build(a), build(b))
    except Undefined:
        return
    if verdict is not None:
        assert verdict == (left == right)


@settings(max_examples=200, deadline=None)
@given(trees(), envs)
def test_substitute_then_evaluate(tree: Tree, env: dict[DimVar, int]) -> None:
    try:
        expected = value(tree, env)
        dim = build(tree)
        mapping: dict[DimVar, Dim] = {N: dims.add(M, 1), M: 3}
        inner = {N: env[M] + 1, M: 3, K: env[K]}
        expected = value(tree, inner)
        result = dims.substitute(dim, mapping)
    except (Undefined, DivisionByZero, ValueError):
        return
    assert dims.evaluate(result, env) == expected


def test_equal_expressions_are_one_object() -> None:
    assert dims.add(N, M) is dims.add(M, N)
    assert dims.mul(dims.add(N, 1), dims.add(M, 2)) is dims.add(
        dims.add(dims.mul(N, M), dims.mul(2, N)), dims.add(M, 2)
    )
    assert dims.sub(dims.add(N, M), M) is N
    assert dims.max_(N, dims.max_(M, K)) is dims.max_(dims.max_(K, M), N)
    assert dims.bcast(dims.bcast(N, M), N) is dims.bcast(M, N)


def test_the_table_lets_go_of_expressions() -> None:
    gc.collect()
    before = len(dims._TABLE)
    made = dims.add(DimVar(), DimVar())
    assert len(dims._TABLE) == before + 1
    del made
    gc.collect()
    assert len(dims._TABLE) == before


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (dims.floordiv(dims.add(dims.mul(4, N), 2), 4), N),
        (dims.floormod(dims.add(dims.mul(4, N), 2), 4), 2),
        (dims.floordiv(dims.add(N, 1), 1), dims.add(N, 1)),
        (dims.min_(N, dims.add(N, 3)), N),
        (dims.max_(0, N), N),
        (dims.min_(0, N), 0),
        (dims.floormod(dims.floormod(N, 3), 5), dims.floormod(N, 3)),
        (dims.floordiv(dims.add(N, 1), dims.add(N, 1)), 1),
        (dims.bcast(N, 5), 5),
        (dims.bcast(1, N), N),
        (dims.bcast(N, N), N),
        (dims.bcast(0, N), 0),
        (dims.bcast(dims.add(N, 2), M), dims.add(N, 2)),
    ],
)
def test_folds(dim: Dim, expected: Dim) -> None:
    assert dim is expected or dim == expected


def test_operators_of_python() -> None:
    n, m = DimVar("n"), DimVar("m")
    assert n + 1 is dims.add(n, 1) is 1 + n
    assert n - 1 is dims.sub(n, 1)
    assert 1 - n is dims.sub(1, n)
    assert 2 * n * m is dims.mul(dims.mul(2, n), m) is m * n * 2
    assert n // 2 is dims.floordiv(n, 2)
    assert n % 2 is dims.floormod(n, 2)
    assert -n is dims.neg(n)
    assert n - n == 0


def test_compare() -> None:
    assert dims.compare(dims.add(N, 1), N) is False
    assert dims.compare(N, M) is None
    assert dims.compare(N, 5) is None
    assert dims.compare(dims.mul(2, N), 3) is False  # parity
    assert dims.compare(dims.add(N, 3), 2) is False  # n >= 0
    assert dims.compare(dims.floormod(N, 4), 4) is False
    assert dims.compare(dims.sub(N, M), 0) is None


def test_evaluate_is_checked() -> None:
    with pytest.raises(DimOverflow):
        dims.evaluate(dims.mul(N, N), {N: 2**40})
    with pytest.raises(DivisionByZero):
        dims.evaluate(dims.floordiv(N, M), {N: 1, M: 0})
    with pytest.raises(ShapeMismatch):
        dims.evaluate(dims.bcast(N, M), {N: 2, M: 3})
    with pytest.raises(ValueError, match="broadcast"):
        dims.bcast(2, 3)
    with pytest.raises(DivisionByZero):
        dims.floormod(N, 0)


def test_growth_ends_in_an_unknown() -> None:
    dim: Dim = N
    for _ in range(dims.MAX_NODES):
        dim = dims.add(dim, DimVar())
        assert isinstance(dim, int) or dim.nodes <= dims.MAX_NODES
    deep: Dim = N
    for _ in range(10 * dims.MAX_DEPTH):
        deep = dims.floordiv(deep, M)
    assert isinstance(deep, DimOp | DimVar)
    assert deep.depth <= dims.MAX_DEPTH


def test_facts_union_and_linear_equations() -> None:
    facts = DimFacts()
    facts.assume_equal(N, dims.add(M, 1))
    assert facts.compare(dims.sub(N, 1), M) is True
    assert facts.compare(N, M) is False
    facts.assume_equal(K, M)
    assert facts.compare(dims.add(K, 1), N) is True
    facts.assume_equal(M, 4)
    assert facts.normal(N) == 5
    with pytest.raises(ValueError, match="can't equal"):
        facts.assume_equal(K, 7)


def test_facts_that_can_not_be_solved() -> None:
    facts = DimFacts()
    facts.assume_equal(dims.mul(N, M), dims.mul(K, K))
    assert facts.compare(dims.mul(N, M), dims.mul(K, K)) is True
    assert facts.compare(dims.mul(N, M), K) is None
