"""unique(data, sorted=True, return_counts=False): the distinct elements of a vector.

    a tuple: unique out[u], the distinct elements;  indices[u], where each occurs first;
    inverse[i], with unique[inverse[i]] = data[i];  num_unique[0], their number;  with return_counts counts[u]

data: rank 1, any dtype; all NaNs are one element, as -0 and 0 are (the first that occurs is kept). sorted:
ascending with NaN last, else in the order of first occurrence. The size u depends on data; inverse has data's size,
num_unique size 1; all but unique are int32. Attrs: sorted, return_counts. Source: Relay's unique, whose outputs
are padded to data's size: here they end after num_unique elements.
Differs from numpy: order of first occurrence exists; num_unique is a result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.sort import order
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class UniqueAttrs(Attrs):
    """sorted: ascending, else in order of first occurrence. return_counts: a fifth result."""

    sorted: bool = True
    return_counts: bool = False


def _types(data: TensorType, size: object, attrs: UniqueAttrs) -> tuple[TensorType, ...]:
    found = TensorType((size,), "int32")  # type: ignore[arg-type]
    values = TensorType((size,), data.dtype)  # type: ignore[arg-type]
    types = (values, found, TensorType(data.shape, "int32"), TensorType((1,), "int32"))
    return (*types, found) if attrs.return_counts else types


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: UniqueAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if len(data.shape) != 1:
        raise ctx.fail(f"data must have rank 1, not {len(data.shape)}", 0)
    return TupleType(_types(data, ctx.fresh_dim(), attrs))


def _bound(arg_types: tuple[Type, ...], attrs: UniqueAttrs) -> tuple[TensorType, ...]:
    (data,) = arg_types
    if not isinstance(data, TensorType):
        raise TypeError(f"unique of {data!r}")
    return _types(data, data.shape[0], attrs)


def _reference(inputs: tuple[Array, ...], attrs: UniqueAttrs, result: Type) -> tuple[Array, ...]:
    (data,) = inputs
    places = order(data, 0, is_ascend=True)
    ordered = data[places]
    differs = ordered[1:] != ordered[:-1]
    if data.dtype.kind == "f":
        differs &= ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    starts = np.concatenate([np.ones(min(1, data.size), bool), differs])
    label = np.empty(data.shape, "int64")
    label[places] = np.cumsum(starts) - 1
    first = places[starts]
    if not attrs.sorted:
        renumbered = np.argsort(first)
        label = np.argsort(renumbered)[label] if first.size else label
        first = first[renumbered]
    counts = np.bincount(label, minlength=first.size)
    number = np.asarray([first.size])
    found = (first, label, number, *((counts,) if attrs.return_counts else ()))
    return (data[first], *(f.astype("int32") for f in found))


register(
    Op(
        name="unique",
        args=("data",),
        attrs=UniqueAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.OPAQUE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
        bound=_bound,
    )
)
