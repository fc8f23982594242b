"""qnn.avg_pool2d(data, input_scale, input_zero_point, output_scale, output_zero_point): means of windows.

    out = saturated(nn.avg_pool2d(q)),   q = qnn.requantize of data to int32 with the output's scale and zero point

which is data itself where both are the same. The mean is that of integers: the exact sum divided towards zero. data:
int8 or uint8 of rank 4; the result has its dtype. Scales (float32) and zero points (int32) are scalars. Attrs: those
of nn.avg_pool2d (pool_size, strides, dilation, padding, layout, out_layout, ceil_mode, count_include_pad); rounding
and compute_dtype as qnn.requantize has them. With count_include_pad a padded element is the number 0, not the zero
point, as in TVM. The Python function has TVM's defaults: layout "NHWC", and padding is counted.
Source: Relay's qnn dialect. Differs from numpy: there is no such function.
"""

from __future__ import annotations

import dataclasses
from dataclasses import make_dataclass
from typing import Any

import numpy as np

from nimblevm.relay.op.common import BYTES, Array, Attrs, tensor_of
from nimblevm.relay.op.pool import ATTRS
from nimblevm.relay.op.qnn_common import (
    UNSET,
    RoundingAttrs,
    check_rounding,
    check_scalars,
    moved,
    saturated,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.types import Type

PLAIN = "nn.avg_pool2d"
_MODES = ("rounding", "compute_dtype")
_FIELDS = [(f.name, f.type, f.default) for f in dataclasses.fields(ATTRS[PLAIN])]
_DOC = "Those of nn.avg_pool2d. rounding, compute_dtype: as in qnn.requantize."
AvgPool2DAttrs: Any = make_dataclass(
    "AvgPool2DAttrs", [*_FIELDS, *((name, str, UNSET) for name in _MODES)], bases=(Attrs,), frozen=True, slots=True,
    namespace={"__doc__": _DOC, "__module__": __name__},
)  # fmt: skip


def plain_attrs(attrs: Any) -> Any:
    """The attributes of the pool of plain numbers."""
    return ATTRS[PLAIN](**{name: getattr(attrs, name) for name, _, _ in _FIELDS})


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    tensor_of(ctx, arg_types, 0, BYTES)
    check_rounding(ctx, attrs.rounding, attrs.compute_dtype)
    check_scalars(ctx, arg_types, 1)
    return get(PLAIN).relation(ctx, arg_types[:1], plain_attrs(attrs))


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    data, scale, zero_point, out_scale, out_zero_point = inputs
    modes = RoundingAttrs(attrs.rounding, attrs.compute_dtype)
    with np.errstate(all="ignore"):
        found = moved(data, scale, zero_point, out_scale, modes) + out_zero_point
    whole = saturated(found, "int32")
    mean = get(PLAIN).reference((whole,), plain_attrs(attrs), result)
    return saturated(np.asarray(mean), data.dtype.name)


register(
    Op(
        name="qnn.avg_pool2d",
        args=("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        attrs=AvgPool2DAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        effect=Effect.TOTAL,
        dtypes=(BYTES, *(("float32",), ("int32",)) * 2),
        doc=__doc__ or "",
    )
)
