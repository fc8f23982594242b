"""nn.dilate(data, strides, dilation_value=0.0): one value between the elements.

    out[i] = data[i div strides] where strides divide i, else dilation_value         size (n - 1) * stride + 1; 0 of 0

data: any rank and dtype. Result: data's dtype. Attrs: strides (integers >= 1, one an axis), dilation_value (converted
to data's dtype). Source: Relay's nn.dilate.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.cast import convert
from nimblevm.relay.op.common import ALL, Array, Attrs, dtype_name, set_axes, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class DilateAttrs(Attrs):
    """strides: from one element to the next, one an axis. dilation_value: what lies between."""

    strides: tuple[int, ...]
    dilation_value: float = 0.0

    def __post_init__(self) -> None:
        set_axes(self, "strides")
        Attrs.__post_init__(self)


def _size(size: Dim, stride: int) -> Dim:
    if stride == 1:
        return size
    return dims.max_(0, dims.add(dims.mul(dims.sub(size, 1), stride), 1))


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DilateAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if len(attrs.strides) != len(data.shape) or any(not 1 <= s < 2**31 for s in attrs.strides):
        raise ctx.fail(f"strides must be an integer >= 1 for each axis, not {attrs.strides!r}", 0)
    return TensorType(map(_size, data.shape, attrs.strides), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: DilateAttrs, result: Type) -> Array:
    (data,) = inputs
    shape = [int(_size(n, s)) for n, s in zip(data.shape, attrs.strides, strict=True)]  # type: ignore[arg-type]
    out = np.full(shape, convert(np.asarray(attrs.dilation_value), dtype_name(data)), data.dtype)
    out[tuple(slice(None, None, s) for s in attrs.strides)] = data
    return out


register(
    Op(
        name="nn.dilate",
        args=("data",),
        attrs=DilateAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
