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


def test_te_names_sizes() -> None:
    n = tvm.te.size_var("n", "int32")
    x, y = relay.var("x", shape=(n, 3)), relay.var("y", shape=(n, 3))
    typed = relay.testing.run_infer_type(x + y)
    assert typed.checked_type == relay.TensorType((n, 3))
    assert tvm.te.var("m").name == "m"


def test_types_take_their_kind() -> None:
    assert relay.TypeVar("a", relay.TypeKind.Type).name_hint == "a"
    assert relay.GlobalTypeVar("T", relay.TypeKind.AdtHandle) is relay.GlobalTypeVar("T")
    assert relay.IncompleteType(relay.TypeKind.Type) != relay.IncompleteType()
    with pytest.raises(ValueError, match=r"TypeVar: kind must be 0 \(Type\), not .*DimVar"):
        relay.TypeVar("s", relay.TypeKind.ShapeVar)


def test_names_of_other_modules() -> None:
    assert tvm.instrument.pass_instrument is tvm.ir.instrument.pass_instrument
    assert tvm.runtime.convert([1, 2]) == tvm.convert([1, 2]) == [1, 2]
    assert relay.testing.enabled_targets is tvm.testing.enabled_targets
    x = relay.var("x", shape=(2,))
    new = relay.testing.run_opt_pass(x + x, relay.transform.InferType(), import_prelude=True)
    assert new.checked_type == relay.TensorType((2,))


def test_calls_that_stay_as_they_are() -> None:
    call = relay.Function([X], relay.exp(X) * relay.exp(X) + (relay.tanh(X) - relay.tanh(X)))
    skip = relay.transform.EliminateCommonSubexpr(lambda e: e.op.name == "exp")
    text = str(relay.testing.run_opt_pass(call, skip))
    assert (text.count("exp("), text.count("tanh(")) == (2, 1)
    text = str(relay.testing.run_opt_pass(call, relay.transform.EliminateCommonSubexpr()))
    assert (text.count("exp("), text.count("tanh(")) == (1, 1)


def test_text_has_the_defaults_of_attributes() -> None:
    """Those of TVM 0.18's attribute structures, which the Python functions of these three don't have."""
    text = (
        '#[version = "0.0.5"]\n'
        "def @main(%a: Tensor[(1, 2, 3), float32], %b: Tensor[(1, 3, 4), float32], %i: Tensor[(2), int8]) {\n"
        "  (nn.batch_matmul(%a, %b), cumsum(%i), cumprod(%i))\n}"
    )
    fields = relay.parse(text)["main"].body.fields
    assert fields[0].attrs.transpose_b is False
    assert [(f.attrs.dtype, f.attrs.exclusive) for f in fields[1:]] == [("", False)] * 2
    assert relay.nn.batch_matmul(X, X).attrs.transpose_b is True


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_natural_numbers(kind: str) -> None:
    mod = tvm.IRModule()
    mod.import_from_std("nat.rly")
    mod.import_from_std("nat.rly")
    p = relay.prelude.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    _, zero, succ = mod.get_type("nat")
    n, add = relay.testing.make_nat_expr, mod.get_global_var("nat_add")
    xs = cons(n(p, 5), cons(n(p, 6), cons(n(p, 7), nil())))
    item = relay.Var("item", relay.GlobalTypeVar("nat")())
    up = relay.Function([item], succ(succ(item)))
    nth, update = mod.get_global_var("nat_nth"), mod.get_global_var("nat_update")
    parts = [
        add(n(p, 3), n(p, 4)), mod.get_global_var("nat_double")(n(p, 4)), nth(xs, n(p, 1)),
        nth(update(xs, n(p, 2), zero()), n(p, 2)), nth(update(xs, n(p, 2), zero()), n(p, 0)),
        relay.Call(mod.get_global_var("nat_iterate")(up, n(p, 3)), [n(p, 1)]), zero(),
    ]  # fmt: skip
    mod["main"] = relay.Function([], relay.Tuple(parts))
    found = relay.create_executor(kind, mod).evaluate()()
    assert [relay.testing.count(p, value) for value in found] == [7, 8, 6, 0, 5, 7, 0]
    with pytest.raises(ValueError, match="n must be >= 0, not -1"):
        n(p, -1)
