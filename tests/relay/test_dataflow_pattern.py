"""Patterns: matching, rewriting, partitioning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
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
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    rewrite,
    wildcard,
)
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Expr, Function, If, Tuple
from nimblevm.relay.module import IRModule
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
    assert structural_equal(rewrite(Grow(once=True), X), relay.tanh(X), map_free_vars=True)
    with pytest.raises(CompileError, match="100 rounds"):
        rewrite(Grow(once=False), X)


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


class Drop(DFPatternCallback):
    """p(x) becomes x."""

    def __init__(self, make: Callable[[DFPattern], DFPattern]) -> None:
        super().__init__()
        self.rest = wildcard()
        self.pattern = make(self.rest)

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
        return node_map[self.rest][0]


def test_rules_go_on_until_none_changes_anything() -> None:
    """What a later rule makes is seen by an earlier one."""
    rules = [Drop(is_op("tanh")), Drop(is_op("exp")), Drop(is_op("sigmoid"))]
    expr: Expr = X
    for wrap in (relay.tanh, relay.exp, relay.sigmoid, relay.exp, relay.tanh):
        expr = wrap(expr)
    assert rewrite(rules, expr) is X
    zero = relay.const(0.0)
    add, subtract = Drop(lambda p: p + is_expr(zero)), Drop(lambda p: p - is_expr(zero))
    assert rewrite([add, subtract], (X + zero - zero) + zero - zero) is X


def test_rules_of_one_change_stop_after_it() -> None:
    class Shorter(Drop):
        def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
            assert isinstance(post, Call)
            fields = post.args[0]
            assert isinstance(fields, Tuple)
            assert len(fields) == len(fields.fields)
            return relay.concatenate(Tuple(fields.fields[1:]), 0)

    rule = Shorter(lambda p: is_op("concatenate")(p))
    rule.rewrite_once = True
    new = rewrite([rule, Drop(is_op("exp"))], relay.exp(relay.concatenate((X, X, X), 0)))
    assert structural_equal(new, relay.concatenate((X, X), 0), map_free_vars=True)


def test_larger_matches_are_taken_first_and_none_overlaps() -> None:
    """The path has additions, too, so that the inner one is a match of its own."""
    dense = is_op("nn.dense")(wildcard(), wildcard())
    path = is_op("tanh")(wildcard()) | is_op("add")(wildcard(), wildcard())
    region = is_op("add")(wildcard(), wildcard()).dominates(dense, path)

    class ToDense(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__(rewrite_once=True)
            self.pattern = region

        def callback(self, pre: Expr, post: Expr, node_map: Mapping[DFPattern, list[Expr]]) -> Expr:
            return node_map[dense][0]

    inner = relay.nn.dense(X, W)
    tanh = relay.tanh(inner)
    new = rewrite(ToDense(), relay.add(relay.add(tanh, tanh), tanh))
    assert structural_equal(new, inner, map_free_vars=True)


def test_what_is_used_outside_of_a_match_is_not_rewritten() -> None:
    pair = Drop(lambda p: is_op("tanh")(is_op("exp")(p)))
    middle = relay.exp(X)
    used = relay.add(relay.tanh(middle), middle)
    assert rewrite(pair, used) is used
    # Unless what uses it is an input of the match.
    gate = Drop(lambda p: is_op("multiply")(is_op("exp")(p), wildcard()))
    assert rewrite(gate, relay.multiply(middle, relay.sigmoid(middle))) is X


def test_no_path_begins_at_variables() -> None:
    region = is_op("add")(wildcard(), wildcard()).dominates(
        is_op("nn.dense")(wildcard(), wildcard()), is_op("tanh")(wildcard())
    )
    dense = relay.nn.dense(X, W)
    assert not region.match(relay.add(relay.tanh(X), relay.tanh(dense)))
    assert region.match(relay.add(X, relay.tanh(dense)))


def test_patterns_that_have_themselves_inside() -> None:
    rest = wildcard()
    chain = is_op("tanh")(rest)
    rest.redirect_to(chain | is_op("nn.dense")(wildcard(), wildcard()))
    dense = relay.nn.dense(X, W)
    assert chain.match(relay.tanh(relay.tanh(relay.tanh(dense))))
    assert not chain.match(relay.tanh(relay.tanh(X)))


def test_parts_of_patterns_have_names() -> None:
    a, b, c = wildcard(), wildcard(), wildcard()
    branch = is_if(a, b, c)
    assert (branch.cond, branch.true_branch, branch.false_branch) == (a, b, c)
    let = is_let(a, b, c)
    assert (let.var, let.value, let.body) == (a, b, c)
    type_ = relay.TensorType((2,))
    assert (a.has_type(type_).type, a.has_dtype("int8").dtype) == (type_, "int8")
    assert a.has_shape([2, 3]).shape == (2, 3)


def test_inputs_come_in_the_pattern_s_order() -> None:
    scale, data, shift = wildcard(), wildcard(), wildcard()
    pattern = shift + scale * data
    new = pattern.partition(relay.add(relay.multiply(X, W), Y))
    assert isinstance(new, Call)
    assert list(new.args) == [Y, X, W]
    again = pattern.partition(new)
    assert structural_equal(again, new, map_free_vars=True), (
        "a function that partition made is left alone"
    )


def test_function_literals_are_wrapped_whole() -> None:
    v = relay.var("v", shape=(2, 3))
    literal = Function([v], relay.tanh(v))
    pattern = is_op("exp")(FunctionPattern([wildcard()], is_op("tanh")(wildcard()))(wildcard()))
    new = pattern.partition(relay.exp(Call(literal, [X])))
    assert isinstance(new, Call)
    assert list(new.args) == [X]
    assert isinstance(new.op, Function)
    assert new.op.attrs["PartitionedFromPattern"] == "tanh_FunctionCall_exp_"
    mod = infer_type(IRModule.from_expr(Function([X], new)))
    np.testing.assert_allclose(
        evaluate(mod, [np.ones((2, 3), "float32")]), np.exp(np.tanh(np.ones((2, 3)))), 1e-6
    )
    fields = is_op("concatenate")(is_tuple(None)).partition(relay.concatenate((X, X), 0))
    assert fields.op.attrs["PartitionedFromPattern"] == "Tuple_concatenate_"  # type: ignore[attr-defined]
