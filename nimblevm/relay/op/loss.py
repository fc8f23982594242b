"""nn.cross_entropy, nn.cross_entropy_with_logits and nn.nll_loss: how far predictions are from what is true.

    nn.cross_entropy(predictions, targets)                 out = -sum(targets * log(predictions)) / N
    nn.cross_entropy_with_logits(predictions, targets)     out = -sum(targets * predictions) / N
    nn.nll_loss(predictions, targets, weights, reduction="mean", ignore_index=-100)      with t = targets[n, d..]
        out[n, d..] = -predictions[n, t, d..] * weights[t], 0 where t is ignore_index ("none"); the sum of all of
        these ("sum"), or that divided by the sum of weights[t] where t is not ignore_index ("mean")

predictions: float; of the first two (N, classes), as targets of the same dtype; of nll_loss (N, classes, d..) or
(classes,). targets of nll_loss: int32 or int64, predictions' shape without the classes; weights: (classes,) of
predictions' dtype.
Result: predictions' dtype; a scalar, but for "none". Sums are in float32 at least. Errors: IndexOutOfRange for a target
that is neither a class nor ignore_index. Attrs: reduction, ignore_index. Source: Relay's nn/nn.py (TOPI).
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import IndexOutOfRange
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_compute,
    as_wide,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

INDICES = ("int32", "int64")
REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True, slots=True)
class NLLLossAttrs(Attrs):
    """reduction: mean, sum or none. ignore_index: the target that counts for nothing."""

    reduction: str = "mean"
    ignore_index: int = -100


def _entropy(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    predictions, targets = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    same_dtype(ctx, predictions, targets, 1)
    for index, found in enumerate((predictions, targets)):
        if len(found.shape) != 2:
            raise ctx.fail(f"argument {index} must be (N, classes), not {found!r}", index)
    for axis, sizes in enumerate(zip(predictions.shape, targets.shape, strict=True)):
        require_same(ctx, (0, axis, sizes[0]), (1, axis, sizes[1]))
    return TensorType((), predictions.dtype)


def _nll(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: NLLLossAttrs) -> Type:
    predictions, weights = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 2))
    targets = tensor_of(ctx, arg_types, 1, INDICES)
    same_dtype(ctx, predictions, weights, 2)
    if attrs.reduction not in REDUCTIONS:
        raise ctx.fail(f"reduction must be one of {', '.join(REDUCTIONS)}, not {attrs.reduction!r}")
    if not predictions.shape or len(targets.shape) != len(predictions.shape) - 1:
        raise ctx.fail("targets must have predictions' axes but the one of the classes", 1)
    if len(weights.shape) != 1:
        raise ctx.fail(f"weights must have rank 1, not {len(weights.shape)}", 2)
    classes = min(1, len(predictions.shape) - 1)
    others = [axis for axis in range(len(predictions.shape)) if axis != classes]
    for place, axis in enumerate(others):
        sizes = (predictions.shape[axis], targets.shape[place])
        require_same(ctx, (0, axis, sizes[0]), (1, place, sizes[1]))
    require_same(ctx, (0, classes, predictions.shape[classes]), (2, 0, weights.shape[0]))
    return TensorType(targets.shape if attrs.reduction == "none" else (), predictions.dtype)


def _entropy_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    predictions, targets = (as_wide(value) for value in inputs)
    with np.errstate(all="ignore"):
        total = np.sum(targets * np.log(predictions))
        return rounded(-total / np.float64(len(predictions)), dtype_name(inputs[0]))


def _logits_reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    predictions, targets = (as_wide(value) for value in inputs)
    with np.errstate(all="ignore"):
        total = np.sum(targets * predictions)
        return rounded(-total / np.float64(len(predictions)), dtype_name(inputs[0]))


def _nll_reference(inputs: tuple[Array, ...], attrs: NLLLossAttrs, result: Type) -> Array:
    predictions, targets, weights = inputs
    count = len(weights)
    used = targets != attrs.ignore_index
    wrong = targets[used & ((targets < 0) | (targets >= count))]
    if wrong.size:
        raise IndexOutOfRange(f"nn.nll_loss: target {wrong.flat[0]} is outside 0..{count - 1}")
    rows = as_compute(predictions if predictions.ndim > 1 else predictions[None])
    labels = np.where(used, targets, 0).reshape(-1 if predictions.ndim == 1 else targets.shape)
    if not used.any():
        factor = chosen = np.zeros(targets.shape)
    else:
        factor = np.where(used, as_compute(weights)[labels].reshape(targets.shape), 0)
        chosen = np.take_along_axis(rows, np.expand_dims(labels, 1), 1).reshape(targets.shape)
    with np.errstate(all="ignore"):
        losses = np.where(used, -chosen * factor, np.zeros_like(factor))
        if attrs.reduction != "none":
            losses = np.asarray(losses.sum(dtype="float64"))
        if attrs.reduction == "mean":
            losses = losses / factor.sum(dtype="float64")
    return rounded(losses, dtype_name(predictions))


for _name, _reference in (
    ("nn.cross_entropy", _entropy_reference),
    ("nn.cross_entropy_with_logits", _logits_reference),
):
    register(
        Op(
            name=_name,
            args=("predictions", "targets"),
            relation=_entropy,
            reference=_reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(FLOATS, FLOATS),
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )
register(
    Op(
        name="nn.nll_loss",
        args=("predictions", "targets", "weights"),
        attrs=NLLLossAttrs,
        relation=_nll,
        reference=_nll_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.MAY_FAIL,
        dtypes=(FLOATS, INDICES, FLOATS),
        doc=__doc__ or "",
        tolerance=ACCUMULATED,
    )
)
