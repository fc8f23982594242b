"""Building operators that move elements: TVM's signatures, and expressions in the place of sizes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.relay import ir
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op

# As in TVM 0.18.
SIGNATURES = {
    relay.tile: "(data, reps)",
    relay.repeat: "(data, repeats, axis)",
    relay.reverse: "(data, axis)",
    relay.reverse_sequence: "(data, seq_lengths, seq_axis=1, batch_axis=0)",
    relay.meshgrid: "(data, indexing='ij')",
    relay.trilu: "(data, k, upper=True)",
    relay.sequence_mask: "(data, valid_length, mask_value=0, axis=0)",
    relay.one_hot: "(indices, on_value, off_value, depth, axis, dtype)",
    relay.gather: "(data, axis, indices)",
    relay.gather_nd: "(data, indices, batch_dims=0, index_rank=None)",
    relay.scatter_elements: "(data, indices, updates, axis=0, reduction='update')",
    relay.scatter_nd: "(data, indices, updates, mode='update')",
    relay.strided_set: "(data, v, begin, end, strides=None)",
    relay.broadcast_to_like: "(data, broadcast_type)",
    relay.reshape_like: "(data, shape_like, lhs_begin=0, lhs_end=None, rhs_begin=0, rhs_end=None)",
    relay.slice_like: "(data, shape_like, axes=None)",
    relay.full_like: "(data, fill_value)",
    relay.collapse_sum_like: "(data, collapse_type)",
    relay.collapse_sum_to: "(data, shape)",
    relay.unravel_index: "(indices, shape)",
    relay.invert_permutation: "(data)",
    relay.nn.pad: "(data, pad_width, pad_value=0, pad_mode='constant')",
    relay.nn.mirror_pad: "(data, pad_width, mode='SYMMETRIC')",
    relay.reshape: "(data, newshape, allowzero=False)",
    relay.strided_slice: "(data, begin, end, strides=None, axes=None, slice_mode='end')",
}


def run(expr: Any, params: list[ir.Var], *args: Any) -> Any:
    body = expr.tuple_value if isinstance(expr, relay.TupleWrapper) else expr
    return evaluate(IRModule.from_expr(ir.Function(params, body)), args)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_signatures_are_tvm_s(function: Any) -> None:
    found = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    assert str(inspect.Signature(plain)) == SIGNATURES[function]


def test_static_forms() -> None:
    x = relay.var("x", shape=(2, 3))
    value = np.arange(6, dtype="float32").reshape(2, 3)
    assert run(relay.tile(x, (2, 1)), [x], value).shape == (4, 3)
    assert run(relay.nn.pad(x, ((0, 0), (1, 2)), 9), [x], value)[0].tolist() == [9, 0, 1, 2, 9, 9]
    assert run(relay.one_hot(relay.const([1, 5]), 2, 0, 3, -1, "int8"), []).tolist() == [
        [0, 2, 0],
        [0, 0, 0],
    ]
    assert run(relay.strided_set(x, relay.const([[7.0]]), [0, 1], [1, 2]), [x], value)[0, 1] == 7
    assert run(relay.gather(x, 1, relay.const([[-1], [0]])), [x], value).tolist() == [[2], [3]]
    first, second = relay.meshgrid([relay.const([1, 2]), relay.const([3, 4, 5])], "xy")
    assert run(ir.Tuple((first, second)), [])[1].shape == (3, 2)
    assert run(relay.full_like(x, 2), [x], value).dtype == "float32"


def test_expressions_make_dyn_operators() -> None:
    x, s = relay.var("x", shape=(2, 3)), relay.var("s", shape=(2,), dtype="int64")
    n = relay.var("n", "int32")
    value, sizes, three = (
        np.ones((2, 3), "float32"),
        np.asarray([3, 2], "int64"),
        np.asarray(3, "int32"),
    )
    made = {
        "dyn.reshape": (relay.reshape(x, s), (3, 2)),
        "dyn.zeros": (relay.zeros(s, "int8"), (3, 2)),
        "dyn.ones": (relay.ones([n, 2], "int8"), (3, 2)),
        "dyn.full": (relay.full(relay.const(1), s), (3, 2)),
        "dyn.broadcast_to": (relay.broadcast_to(x, [n, 2, 3]), (3, 2, 3)),
        "dyn.tile": (relay.tile(x, s), (6, 6)),
        "dyn.one_hot": (relay.one_hot(relay.const([0]), 1, 0, n, 0, "bool"), (3, 1)),
        "dyn.strided_slice": (relay.strided_slice(x, [0, 1], s), (2, 1)),
        "dyn.squeeze": (relay.squeeze(relay.expand_dims(x, 0), [n - relay.const(3)]), (2, 3)),
        "dyn.expand_dims": (relay.expand_dims(x, n - relay.const(3)), (1, 2, 3)),
        "dyn.nn.pad": (relay.nn.pad(x, [[n, 0], [1, n]]), (5, 7)),
    }
    for name, (expr, shape) in made.items():
        assert isinstance(expr.op, Op)
        assert expr.op.name == name
        assert run(expr, [x, s, n], value, sizes, three).shape == shape


def test_constants_make_static_operators() -> None:
    x = relay.var("x", shape=(2, 3))
    assert relay.reshape(x, relay.const([3, 2])).op is relay.op.get("reshape")
    assert relay.zeros(relay.const([3, 2]), "int8").attrs.shape == (3, 2)
    with pytest.raises(TypeError, match="axes can't be given"):
        relay.strided_slice(x, relay.shape_of(x), [1, 1], axes=[0, 1])
