"""nn.batch_norm, nn.instance_norm, nn.group_norm: normalize, then scale and shift by vectors along `axis`.

    out = (data - mean) / sqrt(variance + epsilon) * gamma + beta

    batch_norm(data, gamma, beta, moving_mean, moving_var, axis=1, epsilon=1e-5, center=True, scale=True)
        mean and variance are the vectors moving_mean and moving_var; result: (out, moving_mean, moving_var),
        as at inference
    instance_norm(data, gamma, beta, axis=1, epsilon=1e-5, center=True, scale=True)
        mean and (biased) variance over all axes but the first and `axis`
    group_norm(data, gamma, beta, num_groups, axis=1, epsilon=1e-5, center=True, scale=True)
        `axis`, whose size is a multiple of num_groups, is cut into num_groups parts; mean and (biased)
        variance over such a part and the axes behind it

data: a float tensor of rank >= 1; the vectors: rank 1 of the size of `axis`, the same dtype; without scale
gamma is not used, without center beta is not. Result: data's shape and dtype. float16 is computed in
float32. Attrs: axis, epsilon, center, scale, num_groups. Source: Relay's nn/nn.cc, simplify_inference.cc.
Differs from numpy: numpy has no such function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
    axis_index,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class NormAttrs(Attrs):
    """axis: where gamma and beta lie. epsilon: added to the variance. center, scale: use beta, gamma."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@dataclass(frozen=True, slots=True)
class GroupNormAttrs(Attrs):
    """num_groups: parts of `axis`; axis, epsilon, center, scale: as NormAttrs."""

    num_groups: int = 0
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


def channel_vectors(
    ctx: TypeContext,
    arg_types: tuple[Type, ...],
    data: TensorType,
    axis: int,
    names: Sequence[str],
) -> tuple[TensorType, tuple[TensorType, ...]]:
    """Check that arguments 1, 2, ... are vectors along `axis` of data; data and them with the more precise size."""
    size = data.shape[axis]
    for index, name in enumerate(names, 1):
        vector = tensor_of(ctx, arg_types, index, FLOATS)
        same_dtype(ctx, data, vector, index)
        if len(vector.shape) != 1:
            raise ctx.fail(f"{name} must have rank 1, not {len(vector.shape)}", index)
        size = require_same(ctx, (0, axis, size), (index, 0, vector.shape[0]))
    whole = TensorType((*data.shape[:axis], size, *data.shape[axis + 1 :]), data.dtype)
    return whole, tuple(TensorType((size,), data.dtype) for _ in names)


def along_axis(op: str, name: str, vector: Array, data: Array, axis: int) -> Array:
    """A vector in the shape that broadcasts along `axis` of data; ShapeMismatch if its size is another."""
    axis %= data.ndim
    if vector.shape != (data.shape[axis],):
        raise ShapeMismatch(f"{op}: axis {axis} of {data.shape} and {name} {vector.shape} differ")
    return vector.reshape((-1,) + (1,) * (data.ndim - axis - 1))


def _batch_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: NormAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    names = ("gamma", "beta", "moving_mean", "moving_var")
    out, vectors = channel_vectors(ctx, arg_types, data, axis, names)
    return TupleType((out, vectors[2], vectors[3]))


def _instance_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: NormAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    return channel_vectors(ctx, arg_types, data, axis, ("gamma", "beta"))[0]


def _group_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: GroupNormAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    axis = axis_index(ctx, attrs.axis, len(data.shape))
    if attrs.num_groups < 1:
        raise ctx.fail(f"num_groups must be at least 1, not {attrs.num_groups}")
    data = channel_vectors(ctx, arg_types, data, axis, ("gamma", "beta"))[0]
    size = data.shape[axis]
    if isinstance(size, int):
        if size % attrs.num_groups:
            raise ctx.fail(
                f"axis {axis} of size {size} is no multiple of {attrs.num_groups} groups", 0
            )
    else:
        whole = dims.mul(dims.floordiv(size, attrs.num_groups), attrs.num_groups)
        ctx.require_dim(0, axis, whole)
    return data


def _scaled(op: str, inputs: Sequence[Array], attrs: Any, out: Array) -> Array:
    data, gamma, beta = inputs[:3]
    gamma = along_axis(op, "gamma", gamma, data, attrs.axis)
    beta = along_axis(op, "beta", beta, data, attrs.axis)
    if attrs.scale:
        out = out * as_wide(gamma)
    if attrs.center:
        out = out + as_wide(beta)
    return rounded(out, dtype_name(data))


def _standard(wide: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Centred and divided by the deviation over `axes`."""
    centred = wide - np.mean(wide, axis=axes, keepdims=True)
    variance = np.mean(centred * centred, axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + epsilon))


def _batch_reference(
    inputs: tuple[Array, ...], attrs: NormAttrs, result: Type
) -> tuple[Array, ...]:
    data, mean, variance = inputs[0], inputs[3], inputs[4]
    name = "nn.batch_norm"
    middle = as_wide(along_axis(name, "moving_mean", mean, data, attrs.axis))
    spread = as_wide(along_axis(name, "moving_var", variance, data, attrs.axis))
    with np.errstate(all="ignore"):
        out = (as_wide(data) - middle) / np.sqrt(spread + attrs.epsilon)
        return _scaled(name, inputs, attrs, out), mean, variance


def _instance_reference(inputs: tuple[Array, ...], attrs: NormAttrs, result: Type) -> Array:
    data, axis = inputs[0], attrs.axis % inputs[0].ndim
    axes = tuple(a for a in range(data.ndim) if a not in (0, axis))
    with np.errstate(all="ignore"):
        out = _standard(as_wide(data), axes, attrs.epsilon) if data.size else as_wide(data)
        return _scaled("nn.instance_norm", inputs, attrs, out)


def _group_reference(inputs: tuple[Array, ...], attrs: GroupNormAttrs, result: Type) -> Array:
    data, axis = inputs[0], attrs.axis % inputs[0].ndim
    groups, size = attrs.num_groups, data.shape[axis]
    if size % groups:
        raise ShapeMismatch(
            f"nn.group_norm: axis {axis} of {data.shape} is no multiple of {groups}"
        )
    shape = (*data.shape[:axis], groups, size // groups, *data.shape[axis + 1 :])
    axes = tuple(range(axis + 1, len(shape)))
    with np.errstate(all="ignore"):
        wide = as_wide(data).reshape(shape)
        out = _standard(wide, axes, attrs.epsilon) if data.size else wide
        return _scaled("nn.group_norm", inputs, attrs, out.reshape(data.shape))


def _register(
    name: str,
    args: tuple[str, ...],
    attrs: type,
    relation: Callable[[TypeContext, tuple[Type, ...], Any], Type],
    reference: Callable[..., Any],
    pattern: OpPattern,
) -> None:
    register(
        Op(
            name=name,
            args=args,
            attrs=attrs,
            relation=relation,
            reference=reference,
            pattern=pattern,
            effect=Effect.TOTAL,
            dtypes=(FLOATS,),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )


_register(
    "nn.batch_norm", ("data", "gamma", "beta", "moving_mean", "moving_var"), NormAttrs,
    _batch_relation, _batch_reference, OpPattern.INJECTIVE,
)  # fmt: skip
_register(
    "nn.instance_norm", ("data", "gamma", "beta"), NormAttrs,
    _instance_relation, _instance_reference, OpPattern.OPAQUE,
)  # fmt: skip
_register(
    "nn.group_norm", ("data", "gamma", "beta"), GroupNormAttrs,
    _group_relation, _group_reference, OpPattern.OPAQUE,
)  # fmt: skip
