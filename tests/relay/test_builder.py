"""The builder: TVM's signatures, operands from Python values, scopes and loops."""

# mypy: disable-error-code="arg-type"
# Numbers of numpy where Python's are declared are part of what is tested.

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.relay import ir, nn
from nimblevm.relay.call import TupleWrapper
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.loops import while_loop
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import all_ops
from nimblevm.relay.scope_builder import ScopeBuilder
from nimblevm.relay.types import TensorType, scalar_type

# Facts of TVM 0.18: argument order and defaults.
RELAY = """
log(data) exp(data) sqrt(data) rsqrt(data) sigmoid(data) floor(data) ceil(data) round(data) abs(data) sign(data)
tanh(data) negative(data) logical_not(data) copy(data) log2(data) log10(data) tan(data) cos(data) cosh(data) sin(data)
sinh(data) acos(data) acosh(data) asin(data) asinh(data) atan(data) atanh(data) erf(data) trunc(data) isnan(data)
isinf(data) isfinite(data) bitwise_not(data) bitwise_and(lhs, rhs) bitwise_or(lhs, rhs) bitwise_xor(lhs, rhs)
left_shift(lhs, rhs) right_shift(lhs, rhs) cast_like(data, dtype_like) reinterpret(data, dtype) ndarray_size(data, dtype='int32')
variance(data, axis=None, keepdims=False, exclude=False, unbiased=False, with_mean=None)
std(data, axis=None, keepdims=False, exclude=False, unbiased=False)
mean_variance(data, axis=None, keepdims=False, exclude=False, unbiased=False)
mean_std(data, axis=None, keepdims=False, exclude=False) logsumexp(data, axis=None, keepdims=False)
cumsum(data, axis=None, dtype=None, exclusive=None) cumprod(data, axis=None, dtype=None, exclusive=None)
add(lhs, rhs) subtract(lhs, rhs) multiply(lhs, rhs) divide(lhs, rhs) floor_divide(lhs, rhs) trunc_divide(lhs, rhs)
power(lhs, rhs) mod(lhs, rhs) floor_mod(lhs, rhs) trunc_mod(lhs, rhs) logical_and(lhs, rhs) logical_or(lhs, rhs)
logical_xor(lhs, rhs) equal(lhs, rhs) not_equal(lhs, rhs) less(lhs, rhs) less_equal(lhs, rhs) greater(lhs, rhs)
greater_equal(lhs, rhs) maximum(lhs, rhs) minimum(lhs, rhs)
zeros(shape, dtype) zeros_like(data) ones(shape, dtype) ones_like(data) clip(a, a_min, a_max)
concatenate(data, axis) stack(data, axis) shape_of(data, dtype='int32') cast(data, dtype)
expand_dims(data, axis, num_newaxis=1) transpose(data, axes=None) squeeze(data, axis=None)
reshape(data, newshape, allowzero=False) take(data, indices, axis=None, batch_dims=0, mode='clip')
full(fill_value, shape=(), dtype='') arange(start, stop=None, step=None, dtype='float32') where(condition, x, y)
broadcast_to(data, shape) split(data, indices_or_sections, axis=0)
strided_slice(data, begin, end, strides=None, axes=None, slice_mode='end')
argmax(data, axis=None, keepdims=False, exclude=False, select_last_index=False)
argmin(data, axis=None, keepdims=False, exclude=False, select_last_index=False)
sum(data, axis=None, keepdims=False, exclude=False) all(data, axis=None, keepdims=False, exclude=False)
any(data, axis=None, keepdims=False, exclude=False) max(data, axis=None, keepdims=False, exclude=False)
min(data, axis=None, keepdims=False, exclude=False) mean(data, axis=None, keepdims=False, exclude=False)
prod(data, axis=None, keepdims=False, exclude=False)
var(name_hint, type_annotation=None, shape=None, dtype='float32', span=None) const(value, dtype=None, span=None)
bind(expr, binds)
"""
NN = """
dense(data, weight, units=None, out_dtype='') bias_add(data, bias, axis=1) relu(data) softmax(data, axis=-1)
layer_norm(data, gamma, beta, axis=-1, epsilon=1e-05, center=True, scale=True)
batch_matmul(tensor_a, tensor_b, out_dtype='', transpose_a=False, transpose_b=True)
fast_softmax(data, axis=-1) log_softmax(data, axis=-1) batch_flatten(data) leaky_relu(data, alpha=0.01)
prelu(data, alpha, axis=1) l2_normalize(data, eps, axis=None) dropout(data, rate=0.5) dropout_raw(data, rate=0.5)
batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-05, center=True, scale=True)
instance_norm(data, gamma, beta, axis=1, epsilon=1e-05, center=True, scale=True)
group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-05, center=True, scale=True)
"""


def facts(text: str) -> list[tuple[str, str]]:
    """(name, signature) of every entry; the shape=() of full has brackets of its own."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == ")" and depth == 0:
            name, signature = text[start : at + 1].strip().split("(", 1)
            found.append((name, "(" + " ".join(signature.split())))
            start = at + 1
    return found


def signature(module: ModuleType, name: str) -> str:
    found = inspect.signature(getattr(module, name))
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


@pytest.mark.parametrize(("name", "expected"), facts(RELAY))
def test_signature_in_relay(name: str, expected: str) -> None:
    assert signature(relay, name) == expected


@pytest.mark.parametrize(("name", "expected"), facts(NN))
def test_signature_in_nn(name: str, expected: str) -> None:
    assert signature(nn, name) == expected


def test_every_public_operator_has_a_function() -> None:
    for op in all_ops():
        # One function offers an operator and its dyn form.
        *path, name = op.name.removeprefix("dyn.").split(".")
        name = {"contrib_reverse_reshape": "reverse_reshape"}.get(name, name)
        if op.name.startswith(("vm.", "memory.")) or op.name == "dyn.window":
            continue
        assert hasattr(functools.reduce(getattr, path, relay), name), op.name


def run(body: ir.Expr, params: list[ir.Var], *args: object) -> Any:
    return evaluate(IRModule.from_expr(ir.Function(tuple(params), body)), args)


def test_operators_of_expressions() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    value = np.asarray([3.0, -4.0], "float32")
    for built, expected in [
        (x + 1, value + 1), (1 + x, value + 1), (x - 2, value - 2), (2 - x, 2 - value), (x * 0.5, value / 2),
        (3 * x, value * 3), (x / 2, value / 2), (12 / x, 12 / value), (-x, -value), (x < 0, value < 0),
        (x > 0, value > 0), (x <= 3, value <= 3), (x >= 0, value >= 0), (x.astype("int32"), value.astype("int32")),
        (np.ones(2, "float32") + x, value + 1),
    ]:  # fmt: skip
        result = run(built, [x], value)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
    assert (x == x) is True
    assert (x == relay.var("x")) is False


def test_numbers_take_the_other_operand_s_dtype() -> None:
    x = relay.var("x", shape=(2,), dtype="float16")
    assert relay.add(x, 1).args[1].checked_type is scalar_type("float16")
    assert relay.add(relay.exp(x), 1).args[1].checked_type is scalar_type("float16")
    assert (relay.argmax(x) + 1).args[1].checked_type is scalar_type("int32")
    assert (relay.var("y") + 1.5).args[1].checked_type is scalar_type("float32")
    assert relay.const(3).checked_type is scalar_type("int32")
    assert relay.const(2**40).checked_type is scalar_type("int64")
    assert relay.const(3.5).checked_type is scalar_type("float32")
    assert relay.const(True).checked_type is scalar_type("bool")
    assert relay.const(np.float64(3)).checked_type is scalar_type("float64")
    assert relay.const([1, 2], "int8").checked_type is TensorType((2,), "int8")
    with pytest.raises(TypeError, match="300 is no int8"):
        relay.var("z", "int8") + 300


def test_var_annotations() -> None:
    assert relay.var("x").type_annotation is None
    assert relay.var("x", "int32").type_annotation is scalar_type("int32")
    assert relay.var("x", shape=(1, 2)).type_annotation is TensorType((1, 2), "float32")
    with pytest.raises(ValueError, match="not both"):
        relay.var("x", scalar_type("int32"), shape=(1,))
    assert relay.Any() is not relay.Any()


def test_split_gives_a_tuple_wrapper() -> None:
    x = relay.var("x", shape=(6,), dtype="int32")
    parts = relay.split(x, 3)
    assert isinstance(parts, TupleWrapper)
    assert len(parts) == 3
    a, _, c = parts
    np.testing.assert_array_equal(run(a * c, [x], np.arange(6, dtype="int32")), [0, 5])
    assert len(relay.split(x, (1, 4))) == 3
    joined = relay.concatenate(relay.split(x, 2), 0)
    np.testing.assert_array_equal(run(joined, [x], np.arange(6, dtype="int32")), np.arange(6))
    with pytest.raises(IndexError):
        parts[3]


def test_a_tuple_wrapper_stands_for_its_tuple_in_nodes() -> None:
    x = relay.var("x", shape=(6,), dtype="int32")
    parts: Any = relay.split(x, 3)
    whole = parts.tuple_value
    y, yes = relay.var("y"), relay.const(True)
    assert ir.Function([x], parts).body is whole
    let = ir.Let(y, parts, parts)
    assert (let.value, let.body) == (whole, whole)
    branch = ir.If(yes, parts, parts)
    assert (branch.true_branch, branch.false_branch) == (whole, whole)
    assert ir.TupleGetItem(parts, 1).tuple_value is whole
    assert ir.Tuple([parts, x]).fields == ir.Tuple((parts, x)).fields == (whole, x)
    assert ir.Call(y, [parts]).args == (whole,)
    assert ir.RefCreate(parts).value is whole
    assert ir.RefWrite(y, parts).value is whole
    match = ir.Match(parts, [ir.Clause(ir.PatternWildcard(), parts)])
    assert (match.data, match.clauses[0].rhs) == (whole, whole)
    data = np.arange(6, dtype="int32")
    for mod in (
        relay.IRModule.from_expr(ir.Function([x], parts)),
        relay.IRModule.from_expr(parts),
    ):
        with nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm:
            found = [part.numpy() for part in vm.run(data)]
        np.testing.assert_array_equal(found, data.reshape(3, 2))


def test_spans_by_position_as_in_tvm() -> None:
    x = relay.var("x", shape=(6,))
    span = ir.Span("a.py", 1, 2)
    sum_ = relay.op.get("sum")
    nodes = (
        ir.Var("x", None, span), ir.Constant(np.zeros(1), span), ir.Tuple([x], span),
        ir.Call(sum_, [x], None, (), span), ir.Function([x], x, None, None, None, span), ir.Let(x, x, x, span),
        ir.If(x, x, x, span), ir.TupleGetItem(x, 0, span), ir.RefCreate(x, span), ir.RefRead(x, span),
        ir.RefWrite(x, x, span),
    )  # fmt: skip
    assert all(node.span is span for node in nodes)
    assert ir.Call(sum_, [x], span=span).span is span
    assert relay.var("x", span=span).span is span
    assert relay.const(1, "int32", span=span).span is span


def test_lists_where_tvm_takes_lists() -> None:
    x = relay.var("x", shape=(2, 3))
    function = ir.Function([x], relay.concatenate([x, x], axis=0))
    assert function.params == (x,)
    assert ir.Call(function, [x]).args == (x,)
    assert ir.Tuple([x, x]).fields == (x, x)
    assert relay.reshape(x, [3, -1]).attrs.newshape == (3, -1)
    assert relay.sum(x, [0]).attrs.axis == (0,)
    assert relay.sum(x, 0).attrs.axis == (0,)


def test_arange_and_full() -> None:
    assert run(relay.arange(3), []).tolist() == [0, 1, 2]
    assert run(relay.arange(1, 7, 2, dtype="int64"), []).dtype == "int64"
    assert run(relay.full(relay.const(2), (2,), "int8"), []).tolist() == [2, 2]
    assert run(relay.zeros((0, 2), "bool"), []).shape == (0, 2)
    assert run(relay.zeros(relay.const([1, 2]), "int32"), []).shape == (1, 2)


def test_bind() -> None:
    x, y = relay.var("x", "int32"), relay.var("y", "int32")
    function = relay.bind(ir.Function((x, y), x - y), {"y": 2})
    assert evaluate(IRModule.from_expr(function), (5,)) == 3
    assert run(relay.bind(x * y, {y: x}), [x], 4) == 16
    with pytest.raises(KeyError, match="no parameter 'z'"):
        relay.bind(function, {"z": 1})


def test_scope_builder() -> None:
    x = relay.var("x", "int32")
    scope = ScopeBuilder()
    double = scope.let("double", x * 2)
    with scope.if_scope(double > 10):
        less = scope.let(("less", scalar_type("int32")), double - 10)
        scope.ret(less)
    with scope.else_scope():
        scope.ret(double)
    body = scope.get()
    assert run(body, [x], 3) == 6
    assert run(body, [x], 8) == 6
    with pytest.raises(RuntimeError, match="result already"):
        scope.ret(x)
    with pytest.raises(RuntimeError, match="no result"):
        ScopeBuilder().get()


def test_while_loop() -> None:
    i = relay.var("i", "int32")
    grown = relay.var("grown", shape=(relay.Any(), 1))
    loop = while_loop(
        lambda i, _: i < 4,
        [i, grown],
        lambda i, grown: [
            i + 1,
            relay.concatenate([grown, relay.reshape(i.astype("float32"), (1, 1))], 0),
        ],
    )
    start = relay.zeros((1, 1), "float32")
    result = run(ir.Call(loop, (relay.const(0), start)), [])
    assert result[0] == 4
    np.testing.assert_array_equal(result[1].ravel(), [0, 0, 1, 2, 3])


def test_numpy_values_stand_for_python_s() -> None:
    one, two, three = np.int64(1), np.int32(2), np.uint8(3)
    x = relay.var("x", shape=(two, three))
    image = relay.var("image", shape=(1, 4, 8, 8))
    weight = relay.var("weight", shape=(4, 4, 3, 3))
    pairs = [
        (relay.reshape(x, (three, np.prod([2, 1]))), relay.reshape(x, (3, 2))),
        (relay.reshape(x, np.array([3, 2])), relay.reshape(x, (3, 2))),
        (relay.reshape(x, np.int64(6)), relay.reshape(x, 6)),
        (relay.sum(x, one, keepdims=np.bool_(True)), relay.sum(x, 1, keepdims=True)),
        (relay.sum(x, np.array([0, 1])), relay.sum(x, (0, 1))),
        (relay.argmax(x, axis=one), relay.argmax(x, axis=1)),
        (relay.std(x, one), relay.std(x, 1)),
        (relay.expand_dims(x, one, two), relay.expand_dims(x, 1, 2)),
        (relay.split(x, three, one).astuple(), relay.split(x, 3, 1).astuple()),
        (relay.split(x, np.array([1, 2]), 1).astuple(), relay.split(x, (1, 2), 1).astuple()),
        (relay.strided_slice(x, np.array([0, 1]), [one, two]), relay.strided_slice(x, (0, 1), (1, 2))),
        (relay.nn.pad(x, np.array([[0, 1], [1, 0]])), relay.nn.pad(x, ((0, 1), (1, 0)))),
        (relay.tile(x, (two, one)), relay.tile(x, (2, 1))),
        (relay.repeat(x, two, one), relay.repeat(x, 2, 1)),
        (relay.topk(x, two, ret_type="values"), relay.topk(x, 2, ret_type="values")),
        (relay.zeros(np.array([2, 3]), np.float32), relay.zeros((2, 3), "float32")),
        (relay.cast(x, np.dtype("int8")), relay.cast(x, "int8")),
        (relay.clip(x, np.float64(0), np.float32(6)), relay.clip(x, 0.0, 6.0)),
        (relay.nn.conv2d(image, weight, (one, two), one), relay.nn.conv2d(image, weight, (1, 2), 1)),
        (relay.nn.max_pool2d(image, np.array([2, 2]), two), relay.nn.max_pool2d(image, (2, 2), 2)),
        (relay.nn.l2_normalize(x, 1e-5, one), relay.nn.l2_normalize(x, 1e-5, 1)),
        (relay.image.resize2d(image, (two, three)), relay.image.resize2d(image, (2, 3))),
    ]  # fmt: skip
    for given, plain in pairs:
        assert relay.structural_equal(given, plain, map_free_vars=True)
        assert str(given) == str(plain)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: relay.reshape(x, "ab"), "expected sizes.*, got the str 'ab'"),
        (lambda x: relay.Tuple(x), "fields of a Tuple must be a list or tuple, not Var"),
        (lambda x: relay.Function(x, x), "params of a Function must be a list or tuple, not Var"),
        (lambda x: vars(relay.IRModule)["__setitem__"](relay.IRModule(), "main", "a"), "holds relay.Functions and TypeData, not the str 'a'"),
    ],
)  # fmt: skip
def test_what_is_no_node_says_so(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(relay.var("x", shape=(3,)))


def test_constants_are_in_the_machine_s_byte_order() -> None:
    swapped = np.array([1, 2, 3], ">f4")
    assert relay.const(swapped).data.dtype == np.float32
    x = relay.var("x", shape=(3,))
    mod = relay.IRModule.from_expr(relay.Function([x], relay.Tuple([x, relay.const(swapped)])))
    given, kept = evaluate(mod, (swapped,))
    assert given.dtype == kept.dtype == np.dtype(np.float32)
    with nvm.VirtualMachine(nvm.compile(mod, {"x": swapped}, native=False)) as vm:
        for found in vm.run():
            assert found.tolist() == [1, 2, 3]
