"""Programs between qnn.dequantize and qnn.quantize, one kind for each rule of integer_rules.RULES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm import relay
from nimblevm.relay import qnn
from nimblevm.relay.call import call_op
from nimblevm.relay.ir import Expr, Var

Array = np.ndarray[Any, Any]


class Writer:
    """Draws quantized operands. Scales and weights may be constants or parameters, first sizes unknown."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.params: list[Var] = []
        self.values: list[Array] = []
        self.batch = relay.DimVar("n") if self.flag() else None
        self.late = self.rng.random() < 0.25
        """Scales and zero points of the run."""
        self.dtype = str(self.pick("int8", "uint8"))
        """The result's."""

    def flag(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def size(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def param(self, value: Array, shape: Any = None) -> Var:
        shape = value.shape if shape is None else shape
        var = relay.var(f"p{len(self.params)}", shape=shape, dtype=value.dtype.name)
        self.params.append(var)
        self.values.append(value)
        return var

    def number(self, value: Array) -> Expr:
        return self.param(value) if self.late else relay.const(value)

    def integers(self, shape: tuple[int, ...], dtype: str) -> Array:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def scale(self, size: int | None = None) -> Array:
        return np.asarray(self.rng.uniform(0.02, 0.2, () if size is None else size), "float32")

    def zero(self, dtype: str) -> Array:
        info = np.iinfo(dtype)
        if dtype == "int32" or self.flag():
            return np.asarray(0, "int32")
        return np.asarray(self.rng.integers(info.min, info.max + 1), "int32")

    def real(
        self,
        *shape: int,
        dtype: str | None = None,
        axis: int | None = None,
        const: bool = False,
        batch: bool = False,
        scale: Array | None = None,
        signed: bool = False,
    ) -> Expr:
        """A dequantized tensor. axis: its scales are along that. batch: the first size may be unknown."""
        dtype = dtype or self.pick("int8", "uint8")
        value = self.integers(shape, dtype)
        declared = (self.batch, *shape[1:]) if batch and shape and self.batch else shape
        data = relay.const(value) if const else self.param(value, declared)
        scale = self.scale(None if axis is None else shape[axis]) if scale is None else scale
        zero = np.asarray(0, "int32") if signed or axis is not None else self.zero(dtype)
        return qnn.dequantize(
            data, self.number(scale), self.number(zero), axis=-1 if axis is None else axis
        )

    def weight(self, *shape: int, axis: int) -> Expr:
        per_channel = self.flag()
        return self.real(
            *shape, dtype="int8", axis=axis if per_channel else None, const=self.flag(), signed=True
        )


# --- products ---------------------------------------------------------------------------------------


def dense(w: Writer) -> Expr:
    n, k, m = w.size(1, 3), w.size(1, 6), w.size(1, 4)
    return relay.nn.dense(w.real(n, k, batch=True), w.weight(m, k, axis=0))


def batch_matmul(w: Writer) -> Expr:
    b, n, k, m = (w.size(1, 3) for _ in range(4))
    return relay.nn.batch_matmul(w.real(b, n, k), w.real(b, m, k))


def conv2d(w: Writer) -> Expr:
    groups = w.pick(1, 1, 2)
    i, o, size = 2 * groups, 2 * groups, w.size(3, 5)
    padding = w.pick((0, 0), (1, 1), (0, 1, 2, 1))
    if w.flag():
        return relay.nn.conv2d(
            w.real(2, i, size, size, batch=True), w.weight(o, i // groups, 3, 2, axis=0), padding=padding,
            groups=groups, channels=o, kernel_size=(3, 2),
        )  # fmt: skip
    return relay.nn.conv2d(
        w.real(1, size, size, i, batch=True), w.weight(3, 2, i // groups, o, axis=3), padding=padding,
        groups=groups, channels=o, kernel_size=(3, 2), data_layout="NHWC", kernel_layout="HWIO",
    )  # fmt: skip


def conv2d_transpose(w: Writer) -> Expr:
    return relay.nn.conv2d_transpose(
        w.real(1, 2, 3, 4, batch=True), w.weight(2, 3, 2, 2, axis=1), channels=3, kernel_size=(2, 2),
        strides=w.pick((1, 1), (2, 2)), padding=w.pick((0, 0), (1, 1)),
    )  # fmt: skip


# --- sums, products of elements ---------------------------------------------------------------------


def operand(w: Writer, *shape: int) -> Expr:
    """Bytes, the sum of products of bytes, or something of its own."""
    kind = w.size(0, 4)
    if kind == 0 and len(shape) == 2:
        return relay.nn.dense(w.real(shape[0], 3), w.weight(shape[1], 3, axis=0))
    if kind == 1:
        return relay.multiply(w.real(*shape), w.real(*shape[-1:]))
    if kind == 2 and shape and not w.late:
        return w.real(*shape, axis=len(shape) - 1)
    return w.real(*shape, batch=True)


def other(w: Writer, *shape: int) -> Expr:
    """What may be broadcast, or a constant."""
    if w.size(0, 3) == 0:
        shape = w.pick(shape[-1:], (1,), (), shape[:1] + (1,) * (len(shape) - 1))
        return relay.const(w.rng.normal(0, 3, shape).astype("float32"))
    return operand(w, *w.pick(shape, shape, shape[-1:]))


def pair(w: Writer) -> list[Expr]:
    shape = w.pick((w.size(1, 3), w.size(2, 4)), (2, 3), (), (0, 3), (2, 1, 3))
    w.batch = None
    both = [operand(w, *shape), other(w, *shape)]
    return both if w.flag() else both[::-1]


def binary(name: str) -> Callable[[Writer], Expr]:
    return lambda w: getattr(relay, name)(*pair(w))


def bias_add(w: Writer) -> Expr:
    rows = operand(w, 3, 4)
    bias = w.pick(
        lambda: w.real(4, dtype="int32", scale=np.asarray(1e-9, "float32"), const=w.flag()),
        lambda: w.real(4),
        lambda: relay.const(w.rng.normal(0, 3, 4).astype("float32")),
    )()
    return relay.nn.bias_add(rows, bias)


def bias_of_conv(w: Writer) -> Expr:
    conv = relay.nn.conv2d(
        w.real(1, 2, 4, 4), w.weight(3, 2, 2, 2, axis=0), channels=3, kernel_size=(2, 2)
    )
    bias = w.pick(
        lambda: relay.const(w.rng.normal(0, 3, 3).astype("float32")),
        lambda: w.real(3),
        lambda: qnn.dequantize(
            w.param(w.rng.integers(-9, 9, 3).astype("int32")), w.number(w.scale()), 0
        ),
    )()
    return relay.nn.bias_add(conv, bias)


def multiply(w: Writer) -> Expr:
    w.batch = None
    data = w.real(3, 4) if w.flag() else relay.nn.dense(w.real(3, 5), w.weight(4, 5, axis=0))
    shape = w.pick((), (4,), (3, 1), (3, 4), (1, 1))
    if w.flag():
        factor = w.rng.normal(0, 1, shape) * (w.rng.random(shape) < 0.8)
        return relay.multiply(data, relay.const(factor.astype("float32")))
    return relay.multiply(data, w.real(*shape))


def divide(w: Writer) -> Expr:
    shape = w.pick((), (4,), (3, 1), (1, 4))
    factor = w.rng.uniform(0.5, 2, shape) * w.pick(-1, 1)
    return relay.divide(operand(w, 3, 4), relay.const(factor.astype("float32")))


def where(w: Writer) -> Expr:
    w.batch = None
    condition = w.param(w.rng.random((3, 4)) < 0.5)
    return relay.where(condition, operand(w, 3, 4), other(w, 3, 4))


def concatenate(w: Writer) -> Expr:
    w.batch = None
    fields = [operand(w, 2, w.size(2, 3)) for _ in range(w.size(1, 3))]
    return relay.concatenate(fields, w.pick(1, -1))


def stack(w: Writer) -> Expr:
    w.batch = None
    return relay.stack([operand(w, 2, 3), operand(w, 2, 3)], 0)


# --- functions --------------------------------------------------------------------------------------


def unary(make: Callable[[Expr], Expr]) -> Callable[[Writer], Expr]:
    return lambda w: make(operand(w, *w.pick((2, 3), (), (0, 2))))


def table(name: str) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        # What has no value somewhere keeps its dtype.
        dtype = w.dtype if name in ("sqrt", "rsqrt", "log") else None
        data = w.real(*w.pick((2, 3), (), (0, 2)), dtype=dtype)
        return getattr(relay, name)(data)

    return made


def clip(w: Writer) -> Expr:
    low, high = sorted(w.rng.normal(0, 5, 2))
    bounds = w.pick((low, high), (0, 6), (-np.inf, high), (low, np.inf), (-1000, 1000))
    return relay.clip(operand(w, *w.pick((3, 4), (), (0, 2))), float(bounds[0]), float(bounds[1]))


def pad(w: Writer) -> Expr:
    value = w.pick(lambda: 0.0, lambda: float(w.rng.normal(0, 5)), lambda: -np.inf)()
    if w.flag():
        value = w.real()
    return relay.nn.pad(operand(w, 3, 4), ((0, 1), (2, 0)), value)


# --- moves, windows, axes ---------------------------------------------------------------------------


def move(make: Callable[[Expr], Expr], *shape: int) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        w.batch = None
        axis = w.size(0, len(shape) - 1) if w.flag() and not w.late else None
        return make(w.real(*shape, axis=axis))

    return made


def taken(w: Writer) -> Expr:
    indices = w.param(w.rng.integers(0, 3, (2, 2)).astype("int32"))
    return relay.take(w.real(3, 4), indices, axis=0)


def gathered(w: Writer) -> Expr:
    indices = w.param(w.rng.integers(0, 3, (2, 4)).astype("int32"))
    return relay.gather(w.real(3, 4), 0, indices)


def with_shape(make: Callable[[Expr, Expr], Expr], *values: int) -> Callable[[Writer], Expr]:
    """An operator that takes a shape of the run."""
    return lambda w: make(w.real(2, 1, 6), w.param(np.asarray(values, "int64")))


def sliced(w: Writer) -> Expr:
    begin, end, strides = (
        w.param(np.asarray(v, "int64")) for v in ((0, 0, 1), (2, 1, 4), (1, 1, 2))
    )
    return relay.strided_slice(w.real(2, 1, 6), begin, end, strides)


def dynamic(name: str, *values: int) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        axis = w.param(np.asarray(values, "int64"))
        return call_op(name, w.real(2, 1, 6), axis)

    return made


def split(w: Writer) -> Expr:
    w.late = False
    parts = relay.split(operand(w, 2, 4), w.pick(2, (1, 3)), w.pick(1, -1))
    return relay.add(parts[0], relay.const(0.0)) if w.flag() else parts[w.pick(0, 1)]


def reduction(name: str) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        shape = (2, 3, 4)
        data = operand(w, *shape) if w.flag() else w.real(*shape, batch=True)
        named = w.pick({}, {"axis": 1}, {"axis": (0, -1)}, {"axis": 1, "exclude": True})
        return getattr(relay, name)(data, keepdims=w.flag(), **named)

    return made


def window(name: str, rank: int, **attrs: Any) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        axis = 1 if w.flag() and not w.late else None
        data = w.real(1, 3, *(4,) * rank, axis=axis)
        return getattr(relay.nn, name)(data, **attrs)

    return made


def pool(name: str, rank: int) -> Callable[[Writer], Expr]:
    def made(w: Writer) -> Expr:
        attrs: dict[str, Any] = {
            "strides": (w.pick(1, 2),) * rank,
            "padding": (w.pick(0, 1),) * rank,
        }
        if "avg" in name:
            attrs["count_include_pad"] = w.flag()
        attrs["ceil_mode"] = w.flag()
        return window(name, rank, pool_size=(2,) * rank, **attrs)(w)

    return made


CASES: dict[str, tuple[Callable[[Writer], Expr], ...]] = {
    "nn.dense": (dense,),
    "nn.batch_matmul": (batch_matmul,),
    "nn.conv2d": (conv2d,),
    "nn.conv2d_transpose": (conv2d_transpose,),
    "add": (binary("add"),),
    "subtract": (binary("subtract"),),
    "nn.bias_add": (bias_add, bias_of_conv),
    "multiply": (multiply,),
    "divide": (divide,),
    "negative": (unary(relay.negative),),
    "maximum": (binary("maximum"),),
    "minimum": (binary("minimum"),),
    "where": (where,),
    "concatenate": (concatenate,),
    "stack": (stack,),
    **{name: (table(name),) for name in ("exp", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "log")},
    "abs": (unary(relay.abs), table("abs")),
    "nn.relu": (unary(relay.nn.relu),),
    "nn.leaky_relu": (unary(lambda x: relay.nn.leaky_relu(x, 0.3)),),
    "clip": (clip,),
    "nn.pad": (pad,),
    **{f"nn.avg_pool{n}d": (pool(f"avg_pool{n}d", n),) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": (pool(f"max_pool{n}d", n),) for n in (1, 2, 3)},
    **{f"nn.global_{k}_pool{n}d": (window(f"global_{k}_pool{n}d", n),) for n in (1, 2, 3) for k in ("avg", "max")},
    **{
        f"nn.adaptive_{k}_pool{n}d": (window(f"adaptive_{k}_pool{n}d", n, output_size=3),)
        for n in (1, 2, 3) for k in ("avg", "max")
    },
    **{name: (reduction(name),) for name in ("mean", "sum", "max", "min")},
    "broadcast_to": (move(lambda x: relay.broadcast_to(x, (2, 3, 4)), 3, 4),),
    "copy": (move(relay.copy, 3, 4),),
    "dyn.broadcast_to": (with_shape(relay.broadcast_to, 2, 3, 6),),
    "dyn.expand_dims": (with_shape(lambda x, s: relay.expand_dims(x, relay.take(s, relay.const(0))), 1),),
    "dyn.reshape": (with_shape(relay.reshape, 3, 4),),
    "dyn.squeeze": (dynamic("dyn.squeeze", 1),),
    "dyn.strided_slice": (sliced,),
    "dyn.tile": (with_shape(relay.tile, 2, 1, 1),),
    "gather": (gathered,),
    "layout_transform": (move(lambda x: relay.layout_transform(x, "NCHW", "NHWC"), 1, 3, 2, 2),),
    "nn.batch_flatten": (move(relay.nn.batch_flatten, 2, 3, 4),),
    "nn.batch_to_space_nd": (move(lambda x: relay.nn.batch_to_space_nd(x, [2], [[0, 1]]), 2, 3, 4),),
    "nn.depth_to_space": (move(lambda x: relay.nn.depth_to_space(x, 2), 1, 4, 2, 2),),
    "nn.space_to_depth": (move(lambda x: relay.nn.space_to_depth(x, 2), 1, 2, 2, 4),),
    "nn.mirror_pad": (move(lambda x: relay.nn.mirror_pad(x, ((0, 0), (1, 2))), 3, 4),),
    "repeat": (move(lambda x: relay.repeat(x, 2, 1), 3, 4),),
    "reshape": (move(lambda x: relay.reshape(x, (4, -1)), 3, 4),),
    "reverse": (move(lambda x: relay.reverse(x, 1), 3, 4),),
    "sliding_window": (move(lambda x: relay.sliding_window(x, 1, (2,), (1,)), 3, 4),),
    "take": (taken,),
    "tile": (move(lambda x: relay.tile(x, (2, 1)), 3, 4),),
    "transpose": (
        move(lambda x: relay.transpose(x, (2, 0, 1)), 2, 3, 4), move(relay.transpose, 2, 3, 4),
    ),
    "expand_dims": (move(lambda x: relay.expand_dims(x, 1, 2), 3, 4), move(lambda x: relay.expand_dims(x, -1), 3, 4)),
    "squeeze": (move(lambda x: relay.squeeze(x, [1]), 3, 1, 4), move(relay.squeeze, 1, 3, 4)),
    "strided_slice": (
        move(lambda x: relay.strided_slice(x, [1], [3], axes=[1]), 3, 4),
        move(lambda x: relay.strided_slice(x, [0, 1], [2, 4]), 3, 4),
    ),
    "split": (split,),
    "image.resize2d": (
        move(lambda x: relay.image.resize2d(x, (4, 6), None, "NCHW", "nearest_neighbor", "asymmetric"), 1, 2, 2, 3),
    ),
    "nn.upsampling": (move(lambda x: relay.nn.upsampling(x, 2, 2), 1, 2, 2, 3),),
}  # fmt: skip
"""Operator -> programs whose last operator it is."""


# --- several operators in a region ------------------------------------------------------------------

LINKS: tuple[Callable[[Writer, Expr], Expr], ...] = (
    lambda w, x: relay.nn.relu(x),
    lambda w, x: relay.clip(x, *sorted(w.rng.normal(0, 5, 2).tolist())),
    lambda w, x: relay.nn.leaky_relu(x, 0.25),
    lambda w, x: relay.negative(x),
    lambda w, x: relay.abs(x),
    lambda w, x: relay.multiply(x, relay.const(w.rng.normal(0, 1, w.pick((), (4,), (3, 1, 1))).astype("float32"))),
    lambda w, x: relay.add(x, relay.const(w.rng.normal(0, 3, w.pick((), (4,), (3, 1, 1))).astype("float32"))),
    lambda w, x: relay.subtract(x, w.real(3, 4, 4)),
    lambda w, x: relay.maximum(x, w.real(*w.pick((4,), (2, 3, 4, 4)))),
    lambda w, x: relay.add(x, x),
    lambda w, x: relay.nn.bias_add(x, relay.const(w.rng.normal(0, 3, 3).astype("float32"))),
    lambda w, x: relay.nn.max_pool2d(x, (3, 3), padding=(1, 1)),
    lambda w, x: relay.nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=w.flag()),
    lambda w, x: relay.add(x, relay.mean(x, (2, 3), keepdims=True)),
    lambda w, x: relay.transpose(relay.transpose(x, (0, 2, 3, 1)), (0, 3, 1, 2)),
    lambda w, x: relay.reshape(relay.nn.batch_flatten(x), (-1, 3, 4, 4)),
    lambda w, x: relay.concatenate([relay.split(x, (1,), 1)[1], relay.split(x, (1,), 1)[0]], 1),
    lambda w, x: relay.nn.pad(relay.strided_slice(x, [1, 1], [4, 4], axes=[2, 3]), ((0, 0), (0, 0), (1, 0), (0, 1)), 0.5),
    lambda w, x: relay.where(w.param(w.rng.random((4,)) < 0.5), x, relay.const(0.25)),
)  # fmt: skip
"""Operators on a tensor (n, 3, 4, 4)."""


def chain(w: Writer) -> Expr:
    """A few operators in a row, of bytes or of the sums of a convolution."""
    body = w.real(2, 3, 4, 4, batch=True)
    if w.flag():
        kernel = w.weight(3, 3, 3, 3, axis=0)
        body = relay.nn.conv2d(body, kernel, padding=(1, 1), channels=3, kernel_size=(3, 3))
    for _ in range(w.size(1, 5)):
        body = w.pick(*LINKS)(w, body)
    return body
