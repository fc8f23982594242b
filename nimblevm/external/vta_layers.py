"""What VTA computes of Relay: an int8 dense or conv2d with int32 arithmetic behind it, as a Layer.

    cast(clip(right_shift(nn.bias_add(nn.dense(x, W, out_dtype="int32"), b), 8), 0, 127), "int8")

The steps behind the product may come in any order and number: nn.bias_add and add of constants (one number, or one a
channel), right_shift by such, nn.relu, clip, maximum and minimum with one number; then cast to int8, and behind it
again nn.relu, clip, maximum, minimum. Weights and steps are constants. Everything wraps as the operators say, so
results are equal bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nimblevm.devices.vta_isa import AluOp
from nimblevm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, is_known
from nimblevm.relay.op.clip import bounds
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.op.windows import padding_pairs, per_axis
from nimblevm.relay.types import TensorType

MAX_STEPS = 8
MAX_PADDING = 15
"""Of a transfer: what its four bits hold."""

DENSE, CONV2D = get("nn.dense"), get("nn.conv2d")

Vector = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Step:
    """acc = acc op operand; the operand is one number, or one a channel."""

    op: AluOp
    operand: int | Vector

    @property
    def immediate(self) -> int | None:
        """The operand as an instruction's immediate; None if it is a vector or does not fit."""
        if isinstance(self.operand, int) and -(2**15) <= self.operand < 2**15:
            return self.operand
        return None


@dataclass(frozen=True, slots=True)
class Geometry:
    """Windows of a convolution over images of height x width; pads are (before, after) of an axis."""

    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]

    def _out(self, axis: int, size: int) -> int:
        reach = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        return (size + sum(self.pads[axis]) - reach) // self.strides[axis] + 1

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the result."""
        return self._out(0, self.height), self._out(1, self.width)


POINT = Geometry(1, 1, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))


@dataclass(frozen=True, slots=True)
class Layer:
    """One product and what follows it.

    data      its input expression
    leading   dims that count rows: the leading dims of a dense, the batch of a convolution
    weight    int8 (out channels, in channels, kernel height, kernel width)
    steps     in int32, the cast to int8 included
    geometry  of the convolution; None for a dense
    channels_last  tensors are NHWC
    """

    data: Expr
    leading: tuple[Dim, ...]
    weight: npt.NDArray[np.int8]
    steps: tuple[Step, ...]
    geometry: Geometry | None
    channels_last: bool = False

    @property
    def in_channels(self) -> int:
        return int(self.weight.shape[1])

    @property
    def out_channels(self) -> int:
        return int(self.weight.shape[0])


# --- patterns -----------------------------------------------------------------------------------


def _wide_step(value: DFPattern) -> DFPattern:
    """One operator in int32 or int8 on top of `value`."""
    step: DFPattern = is_op("nn.bias_add")(value, is_constant())
    for name in ("add", "right_shift", "maximum", "minimum"):
        step = step | is_op(name)(value, is_constant())
    return step | is_op("nn.relu")(value) | is_op("clip")(value)


def _steps(value: DFPattern, count: int) -> DFPattern:
    """Up to `count` of them; the longer match first, which is found without looking twice."""
    for _ in range(count):
        value = _wide_step(value) | value
    return value


def pattern(product: str) -> DFPattern:
    """An int8 product of that operator with its steps."""
    wide = _steps(is_op(product)(wildcard(), is_constant()), MAX_STEPS)
    return _steps(is_op("cast")(wide), 2)


# --- expressions --------------------------------------------------------------------------------


def layer_of(root: Expr) -> Layer | None:
    """The layer whose result `root` is, with types; None if VTA can't compute it."""
    chain: list[Call] = []
    expr: Expr = root
    while isinstance(expr, Call) and isinstance(expr.op, Op):
        chain.append(expr)
        if expr.op in (DENSE, CONV2D):
            break
        expr = _main_operand(expr)
    if not chain or chain[-1].op not in (DENSE, CONV2D):
        return None
    product = chain.pop()
    layer = _dense(product) if product.op is DENSE else _conv2d(product)
    if layer is None:
        return None
    steps = _all_steps(chain[::-1], layer)
    return None if steps is None else replace(layer, steps=steps)


def _main_operand(call: Call) -> Expr:
    """The operand that is no constant, of add and the like."""
    first = call.args[0]
    return call.args[1] if is_known(first) and len(call.args) > 1 else first


def _tensor(expr: Expr) -> TensorType | None:
    return expr.checked_type if isinstance(expr.checked_type, TensorType) else None


def _operands(call: Call) -> tuple[TensorType, npt.NDArray[np.int8]] | None:
    """The data's type and the weight of an int8 product with an int32 result."""
    data, result, weight = _tensor(call.args[0]), _tensor(call), call.args[1]
    if data is None or result is None or not is_known(weight):
        return None
    array = np.asarray(weight.data)
    if (
        data.dtype != "int8"
        or array.dtype != np.int8
        or result.dtype != "int32"
        or 0 in array.shape
    ):
        return None
    return data, array


def _dense(call: Call) -> Layer | None:
    found = _operands(call)
    if found is None:
        return None
    data, weight = found
    return Layer(call.args[0], data.shape[:-1], weight[:, :, None, None], (), None)


def _conv2d(call: Call) -> Layer | None:
    found = _operands(call)
    attrs = call.attrs
    if (
        found is None
        or attrs is None
        or attrs.groups != 1
        or attrs.data_layout not in ("NCHW", "NHWC")
    ):
        return None
    data, array = found
    if (attrs.out_layout or attrs.data_layout) != attrs.data_layout:
        return None
    sizes = dict(zip(attrs.data_layout, data.shape, strict=True))
    height, width = sizes["H"], sizes["W"]
    if not isinstance(height, int) or not isinstance(width, int):
        return None
    weight = array.transpose([attrs.kernel_layout.index(letter) for letter in "OIHW"])
    pads = padding_pairs(attrs.padding, 2)
    if max(p for pair in pads for p in pair) > MAX_PADDING:
        return None
    strides, dilation = (per_axis(v, 2) for v in (attrs.strides, attrs.dilation))
    kernel = (int(weight.shape[2]), int(weight.shape[3]))
    geometry = Geometry(height, width, kernel, strides, dilation, (pads[0], pads[1]))
    last = attrs.data_layout == "NHWC"
    return Layer(call.args[0], (sizes["N"],), np.ascontiguousarray(weight), (), geometry, last)


# --- steps --------------------------------------------------------------------------------------


def _all_steps(calls: list[Call], layer: Layer) -> tuple[Step, ...] | None:
    """What follows the product, one cast to int8 in it; bounds that follow each other are made one pair."""
    steps: list[Step] = []
    narrowed = False
    for call in calls:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == "cast":
            result = _tensor(call)
            if narrowed or result is None or result.dtype != "int8":
                return None
            narrowed = True
            if not _within_int8(steps):  # the low eight bits, with their sign
                steps += [Step(AluOp.SHR, -24), Step(AluOp.SHR, 24)]
            continue
        made = _step(call, name, layer)
        if made is None or (narrowed and any(s.op not in (AluOp.MIN, AluOp.MAX) for s in made)):
            return None
        steps = _joined(steps, made)
    return tuple(_without_final_wrap(steps)) if narrowed else None


def _step(call: Call, name: str, layer: Layer) -> list[Step] | None:
    match name:
        case "nn.relu":
            return [Step(AluOp.MAX, 0)]
        case "clip":
            low, high = (int(bound) for bound in bounds(call.attrs, _dtype(call)))
            return [Step(AluOp.MAX, low), Step(AluOp.MIN, high)]
        case "nn.bias_add" | "add":
            operand = _operand(call, layer)
            return None if operand is None else [Step(AluOp.ADD, operand)]
        case "right_shift":
            operand = None if is_known(call.args[0]) else _operand(call, layer)
            return None if operand is None else [Step(AluOp.SHR, operand & 31)]
        case "maximum" | "minimum":
            operand = _operand(call, layer)
            op = AluOp.MAX if name == "maximum" else AluOp.MIN
            return [Step(op, operand)] if isinstance(operand, int) else None
        case _:
            return None


def _dtype(call: Call) -> str:
    type_ = _tensor(call)
    return "" if type_ is None else type_.dtype


def _operand(call: Call, layer: Layer) -> int | Vector | None:
    """The constant operand: one number, or one a channel; None if it lies otherwise."""
    constant = call.args[0] if is_known(call.args[0]) else call.args[1]
    result = _tensor(call)
    if not is_known(constant) or result is None:
        return None
    array = np.asarray(constant.data)
    rank = len(result.shape)
    if array.size == 1 and array.ndim <= rank:
        return int(array.reshape(-1)[0])
    axis = rank - 1 if layer.geometry is None or layer.channels_last else 1
    if isinstance(call.op, Op) and call.op.name == "nn.bias_add":
        aligned = call.attrs is not None and call.attrs.axis % rank == axis
    else:
        shape = array.shape
        while len(shape) > rank - axis and shape[0] == 1:
            shape = shape[1:]
        aligned = shape == (layer.out_channels,) + (1,) * (rank - 1 - axis) and array.ndim <= rank
    return array.reshape(-1).astype(np.int32) if aligned else None


def _bounds(steps: list[Step]) -> tuple[int, int, list[Step]]:
    """What the steps at the end limit values to, and the steps before those."""
    low, high, rest = -(2**31), 2**31 - 1, list(steps)
    while rest:
        op, bound = rest[-1].op, rest[-1].operand
        if op not in (AluOp.MAX, AluOp.MIN) or not isinstance(bound, int):
            break
        rest.pop()
        limited = min(max(bound, low), high)
        low, high = (limited, high) if op is AluOp.MAX else (low, limited)
    return low, high, rest


def _within_int8(steps: list[Step]) -> bool:
    low, high, _ = _bounds(steps)
    return low >= -128 and high <= 127


def _joined(steps: list[Step], more: list[Step]) -> list[Step]:
    """The steps, bounds at the end as one pair."""
    low, high, rest = _bounds([*steps, *more])
    if low > -(2**31):
        rest.append(Step(AluOp.MAX, low))
    if high < 2**31 - 1:
        rest.append(Step(AluOp.MIN, high))
    return rest


def _without_final_wrap(steps: list[Step]) -> list[Step]:
    """What is stored are the low eight bits anyway."""
    if [(s.op, s.immediate) for s in steps[-2:]] == [(AluOp.SHR, -24), (AluOp.SHR, 24)]:
        return steps[:-2]
    return steps


__all__ = ["POINT", "Geometry", "Layer", "Step", "layer_of", "pattern"]
