"""save_json and load_json."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import InvalidInput
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.node_json import load_json, save_json

TEXT = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @main(%x: Tensor[(?n, 4), float32], %l: List[int32]) { (%x + 1f, %l) }
"""


def test_modules() -> None:
    mod = relay.parse(TEXT)
    found = load_json(save_json(mod))
    assert relay.structural_equal(found, mod)
    assert found.function("main").checked_type is not None
    untyped = load_json(save_json(relay.parse_module(TEXT)))
    assert untyped.function("main").checked_type is None


def test_expressions_and_types() -> None:
    x = relay.var("x", shape=(2,))
    expr = relay.exp(x) + relay.const(np.array([1, 2], "float32"))
    found = load_json(save_json(expr))
    assert relay.structural_equal(found, expr, map_free_vars=True)
    function = relay.parse(TEXT).function("main")
    assert relay.structural_equal(load_json(save_json(function)), function)
    type_ = relay.TupleType([relay.TensorType((2, 3)), relay.RefType(relay.scalar_type("bool"))])
    assert load_json(save_json(type_)) == type_


def test_containers() -> None:
    array = np.arange(6, dtype="int16").reshape(2, 3)
    value = {"a": [1, 2.5, None, True, "text"], "w": array, "t": relay.TensorType((1,))}
    found = load_json(save_json(value))
    assert found["a"] == value["a"]
    assert found["t"] is value["t"]
    assert np.array_equal(found["w"], array)
    assert found["w"].dtype == array.dtype


def test_mistakes() -> None:
    with pytest.raises(
        TypeError, match="save_json takes modules, expressions, types and arrays, not object"
    ):
        save_json(object())
    for text, words in {
        "{": "no JSON of save_json",
        '{"root": 1, "nodes": []}': "this is TVM's own JSON",
        '{"nimblevm": 2, "kind": "type"}': "version 2 of save_json; this reads 1",
        '{"nimblevm": 1, "kind": "type"}': "a node of kind 'type' lacks 'text'",
        '{"nimblevm": 1, "kind": "odd"}': "no node kind 'odd'",
        '{"nimblevm": 1, "kind": "module", "typed": true, "text": 5}': "'text' must be a string, not int",
        '{"nimblevm": 1, "kind": "expr", "text": null}': "'text' must be a string, not NoneType",
        '{"nimblevm": 1, "kind": "tensor", "data": []}': "'data' must be a string, not list",
        '{"nimblevm": 1, "kind": "tensor", "data": "AAAA"}': "a tensor is damaged",
        "[" * 700 + "]" * 700: "no JSON of save_json",
        "[" * 100_000: "no JSON of save_json",
    }.items():
        with pytest.raises(InvalidInput, match=words):
            load_json(text)
    with pytest.raises(SyntaxError, match="load_json:1"):  # fmt: skip
        load_json(json.dumps({"nimblevm": 1, "kind": "type", "text": "Tensor[(1"}))


def test_deep_programs() -> None:
    expr: relay.Expr = relay.var("x", shape=(2,))
    for _ in range(5_000):
        expr = relay.tanh(expr)
    assert len(relay.post_order(load_json(save_json(expr)))) == len(relay.post_order(expr))


def test_modules_are_pickled_and_copied() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n, 2), float32]) { %x * 2f }'
    mod = relay.parse(text)
    mod["bound"] = relay.Function([], relay.const(np.arange(3)))
    again = pickle.loads(pickle.dumps(mod))
    assert relay.structural_equal(again, mod)
    assert np.array_equal(evaluate(again, (), "bound"), np.arange(3))
    for copied in (copy.copy(mod), copy.deepcopy({"m": mod})["m"]):
        copied["more"] = mod["main"]
        assert "more" not in mod
        assert copied["main"] is mod["main"]


def test_parts_of_modules_are_their_own_copies() -> None:
    n = relay.DimVar("n")
    x = relay.var("x", shape=(n, n + 1))
    call = relay.exp(x)
    for part in (n, n + 1, x, call, call.op, x.checked_type, relay.TypeVar("A")):
        assert copy.copy(part) is part
        assert copy.deepcopy([part])[0] is part
        with pytest.raises(TypeError, match="pickle the IRModule that it is in"):
            pickle.dumps(part)
