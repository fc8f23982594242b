"""Patterns: matching, rewriting, partitioning."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nimblevm import relay
from nimblevm.errors import CompileError, InvalidInputType
from nimblevm.relay.dataflow_pattern import (
    DFPattern,
    DFPatternCallback,
    FunctionPattern,
    has_attr,
    is_constant,
    is_expr,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    rewrite,
    wildcard,
)
from nimblevm.relay.ir import Call, Expr, Function, If
from nimblevm.relay.structural import structural_equal

X = relay.var("x", shape=(2, 3))
Y = relay.var("y", shape=(2, 3))
W = relay.var("w", shape=(3, 3))


def test_operators_and_commutativity() -> None:
    pattern = is_op("add")(is_var("x"), wildcard())
    assert pattern.match(relay.add(X, Y))
    assert pattern.match(relay.add(Y, X))
    assert not pattern.match(relay.subtract(Y, X))
    assert not (is_var("x") - wildcard()).match(relay.subtract(Y, X))
    assert (wildcard() * wildcard()).match(relay.multiply(X, Y))


def test_any_arguments() -> None:
    pattern = is_op("concatenate")(None)
    assert match(pattern, relay.concatenate([X, Y], axis=0))
    assert not match(pattern, relay.add(X, Y))
    assert is_op("add")(None).match(relay.add(X, Y))
    with pytest.raises(InvalidInputType, match="a part of a pattern must be a pattern, not None"):
        is_op("add")(wildcard(), None).match(relay.add(X, Y))


def test_functions() -> None:
    function = Function([X, Y], relay.add(X, Y))
    x, y = wildcard(), wildcard()
    assert FunctionPattern([x, y], x + y).match(function)
    assert FunctionPattern(None, is_op("add")(None)).match(function)
    assert not FunctionPattern([x], x + y).match(function)
    assert not FunctionPattern([x, y], x - y).match(function)
    assert not FunctionPattern(None, wildcard()).match(X)
    called = Call(function, [X, W])
    assert FunctionPattern([x, y], x + y)(is_var("x"), is_var("w")).match(called)


def test_one_pattern_twice_means_one_node() -> None:
    same = wildcard()
    pattern = is_op("add")(same, same)
    assert pattern.match(relay.add(X, X))
    assert not pattern.match(relay.add(X, Y))


def test_alternatives_forget_what_failed() -> None:
    a = wildcard()
    pattern = is_op("add")(is_op("tanh")(a) | is_op("sigmoid")(a), a)
    assert pattern.match(relay.add(relay.tanh(X), X))
    assert pattern.match(relay.add(relay.sigmoid(X), X))
    assert not pattern.match(relay.add(relay.sigmoid(X), Y))


def test_constants_tuples_branches_and_expressions() -> None:
    one = relay.const(1.0)
    assert is_constant().match(one)
    assert is_expr(X).match(X)
    assert is_expr(relay.const(1.0)).match(one)
    pair = relay.Tuple([X, Y])
    assert is_tuple([is_var(), is_var("y")]).match(pair)
    assert is_tuple(None).match(pair)
    assert is_tuple_get_item(is_tuple(None), 1).match(relay.TupleGetItem(pair, 1))
    assert not is_tuple_get_item(is_tuple(None), 0).match(relay.TupleGetItem(pair, 1))
    cond = relay.var("c", shape=(), dtype="bool")
    assert is_if(is_var("c"), is_var("x"), is_var("y")).match(If(cond, X, Y))


def test_attributes_types_and_shapes() -> None:
    call = relay.concatenate([X, Y], axis=1)
    assert is_op("concatenate")(wildcard()).has_attr({"axis": 1}).match(call)
    assert not has_attr({"axis": 0}).match(call)
    assert wildcard().has_dtype("float32").match(X)
    assert not wildcard().has_dtype("int32").match(X)
    assert wildcard().has_shape((2, 6)).match(call)
    assert wildcard().has_type(relay.TensorType((2, 3), "float32")).match(relay.tanh(X))


def test_optional() -> None:
    pattern = is_op("nn.dense")(wildcard(), wildcard()).optional(lambda p: is_op("nn.relu")(p))
    dense = relay.nn.dense(X, W)
    assert pattern.match(dense)
    assert pattern.match(relay.nn.relu(dense))
    assert not pattern.match(relay.tanh(dense))


def test_domination() -> None:
    region = is_op("add")(wildcard(), wildcard()).dominates(
        is_op("nn.dense")(wildcard(), wildcard()), is_op("tanh")(wildcard())
    )
    dense = relay.nn.dense(X, W)
    assert region.match(relay.add(relay.tanh(dense), dense))
    assert not region.match(relay.add(relay.sigmoid(dense), dense))
    assert not region.match(relay.add(relay.tanh(X), Y))


class TanhToSigmoid(DFPatternCallback):
    def __init__(self) -> None:
        super().__init__()
        self.arg = wildcard()
        self.pattern = is_op("tanh")(self.arg)

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
        return relay.sigmoid(node_map[self.arg][0])


def test_rewriting_reaches_all_and_keeps_sharing() -> None:
    shared = relay.tanh(X)
    new = rewrite(TanhToSigmoid(), relay.add(relay.tanh(shared), shared))
    again = relay.sigmoid(X)
    assert structural_equal(new, relay.add(relay.sigmoid(again), again), map_free_vars=True)
    assert isinstance(new, Call)
    assert new.args[0].args[0] is new.args[1]  # type: ignore[attr-defined]


class Grow(DFPatternCallback):
    def __init__(self, once: bool) -> None:
        super().__init__(rewrite_once=once)
        self.pattern = is_var("x")

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
        return relay.tanh(post)


def test_rules_that_never_settle() -> None:
    assert structural_equal(rewrite(Grow(True), X), relay.tanh(X), map_free_vars=True)
    with pytest.raises(CompileError, match="100 rounds"):
        rewrite(Grow(False), X)


def test_rewriting_is_iterative() -> None:
    expr: Expr = X
    for _ in range(20_000):
        expr = relay.tanh(expr)
    new = rewrite(TanhToSigmoid(), expr)
    assert isinstance(new, Call)
    assert new.op is relay.sigmoid(X).op


def test_partition_wraps_matches_that_nothing_else_looks_into() -> None:
    pattern = is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()))
    inner = relay.nn.relu(relay.nn.dense(X, W))
    new = pattern.partition(relay.nn.relu(relay.nn.dense(inner, W)), {"Composite": "mine"})
    assert isinstance(new, Call)
    assert isinstance(new.op, Function)
    assert new.op.attrs["PartitionedFromPattern"] == "nn.dense_nn.relu_"
    assert new.op.attrs["Composite"] == "mine"
    assert isinstance(new.args[0].op, Function)  # type: ignore[attr-defined]
    assert len(new.op.params) == 2
    dense = relay.nn.dense(X, W)
    leaking = relay.add(relay.nn.relu(dense), dense)
    assert structural_equal(pattern.partition(leaking), leaking, map_free_vars=True)
    assert pattern.partition(leaking, check=lambda _: False) is leaking
