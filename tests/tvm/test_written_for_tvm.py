"""What people write for TVM and nothing in TVM's list of names says: arguments left out, names in other modules."""

# mypy: disable-error-code="arg-type,attr-defined,call-arg,operator,misc,assignment,index,union-attr"
# Programs are written as people who come from TVM write them.

from __future__ import annotations

import numpy as np
import pytest

from nimblevm import tvm
from nimblevm.tvm import relay

X = relay.var("x", shape=(2,))


def test_operators_are_in_relay_op_too() -> None:
    assert relay.op.add is relay.add
    assert relay.op.nn.dense is relay.nn.dense
    assert relay.op.annotation.on_device is relay.annotation.on_device
    assert relay.op.get("add").name == "add"
    assert not hasattr(relay.op, "no_such_operator")


def test_errors_have_tvm_s_names() -> None:
    text = '#[version = "0.0.5"]\ndef @main() { add(1f, (2f, 3f)) }'
    for kind in (tvm.TVMError, tvm.error.TVMError, tvm.error.DiagnosticError):
        with pytest.raises(kind):
            relay.parse(text)


def test_devices_have_dlpack_s_numbers() -> None:
    assert (tvm.cpu().device_type, tvm.cpu(0).device_id) == (1, 0)
    assert tvm.cuda(3).device_type == 2
    assert tvm.cuda(3).device_id == 3


def test_a_module_makes_functions_of_expressions() -> None:
    mod = tvm.IRModule()
    mod["main"] = X + X
    assert list(mod["main"].params) == [X]
    np.testing.assert_array_equal(
        relay.create_executor("vm", mod).evaluate()(np.ones(2, "float32")).numpy(), [2, 2]
    )


def test_constructors_are_numbered_by_their_type() -> None:
    tree, item = relay.GlobalTypeVar("Tree"), relay.TypeVar("a")
    leaf = relay.Constructor("Leaf", [], tree)
    node = relay.Constructor("Node", [tree(item), item, tree(item)], tree)
    mod = tvm.IRModule()
    mod[tree] = relay.TypeData(tree, [item], [leaf, node])
    assert [c.tag for c in mod[tree].constructors] == [0, 1]
    one = relay.const(1.5, relay.scalar_type("float32"))
    v = relay.Var("v")
    clauses = [
        relay.Clause(relay.PatternConstructor(leaf), relay.const(0.0)),
        relay.Clause(
            relay.PatternConstructor(
                node, [relay.PatternWildcard(), relay.PatternVar(v), relay.PatternWildcard()]
            ),
            v,
        ),
    ]
    mod["main"] = relay.Function([], relay.Match(node(leaf(), one, leaf()), clauses))
    for kind in ("debug", "vm"):
        assert relay.create_executor(kind, mod).evaluate()().numpy() == 1.5
    assert relay.structural_equal(relay.parse(mod.astext()), relay.transform.InferType()(mod))


def test_types_take_lists_and_no_constraints() -> None:
    scalar = relay.scalar_type("int32")
    assert relay.FuncType([scalar], scalar, [], []) == relay.FuncType([scalar], scalar)
    with pytest.raises(ValueError, match="no type constraints"):
        relay.FuncType([scalar], scalar, [], [scalar])


def test_executors_take_constants() -> None:
    for kind in ("debug", "vm"):
        run = relay.create_executor(kind).evaluate(relay.Function([X], X * X))
        np.testing.assert_array_equal(run(relay.const([2.0, 3.0])).numpy(), [4, 9])
        np.testing.assert_array_equal(run(x=relay.const([2.0, 3.0])).numpy(), [4, 9])


def test_any_is_another_size_wherever_it_stands() -> None:
    x = relay.var("x", shape=(relay.Any(),) * 2)
    y = relay.var("y", relay.TensorType((relay.Any(),) * 2))
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.nn.dense(x, y)))
    one, two = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    for kind in ("debug", "vm"):
        assert relay.create_executor(kind, mod).evaluate()(one, two).shape == (2, 4)
    n = relay.DimVar()
    square = relay.TensorType((n, n))
    assert square.shape == (n, n)


def test_expressions_with_free_variables() -> None:
    bias = relay.var("bias")
    z = relay.nn.bias_add(relay.var("x", shape=(10, 2, 3)), bias)
    typed = relay.testing.run_infer_type(z)
    assert typed.checked_type == relay.TensorType((10, 2, 3))
    assert typed.args[1].checked_type == relay.TensorType((2,))
    assert relay.analysis.well_formed(z)
    assert not relay.analysis.well_formed(relay.Let(bias, X, z + bias) + relay.Let(bias, X, bias))


def test_fields_of_tuples() -> None:
    pair = relay.Tuple([X, relay.exp(X)])
    assert pair[0] is X
    assert pair[-1] is pair.fields[1]


def test_scales_that_must_be_numbers() -> None:
    with pytest.raises(TypeError, match="upsampling3d: a scale must be a number, not a Var"):
        relay.nn.upsampling3d(relay.var("x", shape=(1, 2, 3, 4, 5)), relay.var("s"), 2, 2)


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_values_of_both_executors_read_alike(kind: str) -> None:
    mod = tvm.IRModule()
    prelude = relay.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    mod["main"] = relay.Function([], cons(relay.const(7), nil()))
    value = relay.create_executor(kind, mod).evaluate()()
    assert (value.tag, len(value), value[0].numpy()) == (cons.tag, 2, 7)
    assert value[1].tag == prelude.mod.get_type("List")[2].tag
    assert value[1]
    assert [type(part) for part in value[1]] == []
