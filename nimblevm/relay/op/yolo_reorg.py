"""vision.yolo_reorg(data, stride): darknet's reorganization of an image.

    seen = data as (N, C div s**2, H * s, W * s)            s = stride, the same elements in the same order
    blocks = nn.space_to_depth of seen with blocks of s      (N, C, H, W)
    out = blocks as (N, C * s**2, H div s, W div s)

data: (N, C, H, W), any dtype; C is a multiple of s * s, H and W of s. Result: data's dtype. Attrs: stride. Source:
Relay's vision.yolo_reorg.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.op.blocks import LARGEST
from nimblevm.relay.op.common import ALL, Array, Attrs, require_multiple, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class YoloReorgAttrs(Attrs):
    """stride: of the blocks."""

    stride: int


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: YoloReorgAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if len(data.shape) != 4:
        raise ctx.fail(f"data must have rank 4 (NCHW), not {len(data.shape)}", 0)
    stride = attrs.stride
    if not 1 <= stride < LARGEST:
        raise ctx.fail(f"stride must be in 1..{LARGEST - 1}, not {stride}")
    batch, channels, *space = data.shape
    require_multiple(ctx, 0, 1, channels, stride * stride, "blocks of channels")
    sizes = [
        require_multiple(ctx, 0, axis, size, stride, "blocks") for axis, size in enumerate(space, 2)
    ]
    return TensorType((batch, dims.mul(channels, stride * stride), *sizes), data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: YoloReorgAttrs, result: Type) -> Array:
    (data,) = inputs
    s, (n, c, h, w) = attrs.stride, data.shape
    if c % (s * s) or h % s or w % s:
        raise ShapeMismatch(f"vision.yolo_reorg: {data.shape} has no blocks of {s}")
    seen = data.reshape(n, c // (s * s), h, s, w, s)
    out = seen.transpose(0, 3, 5, 1, 2, 4)
    return np.ascontiguousarray(out).reshape(n, c * s * s, h // s, w // s)


register(
    Op(
        name="vision.yolo_reorg",
        args=("data",),
        attrs=YoloReorgAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
