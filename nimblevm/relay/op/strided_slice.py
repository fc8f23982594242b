"""strided_slice(data, begin, end, strides=None, axes=None, slice_mode="end"): Python's slices with attributes.

    out = data[begin[0]:end[0]:strides[0], begin[1]:end[1]:strides[1], ...]

begin, end and strides are about the axes in `axes` (None: the first ones, and the shorter of begin and end may leave
bounds out); axes that are not named stay whole. Negative begin and end count from the end of the axis, then both are
clamped to it, as in Python; a slice that ends before it begins is empty, and an end of 2**31 - 1 or more (-2**31 + 1
or less for a negative stride) is the end; other numbers beyond 2**60 are 2**60. slice_mode "size": end holds sizes
instead (-1: to the end), strides are not used. data: any dtype, rank >= 1; result: data's dtype. Attrs: begin, end,
strides (default 1 each, not 0), slice_mode, axes. Source: Relay's strided_slice.
Differs from numpy: none (an end before begin is an error in TVM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, axis_list, set_axes, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

# What programs write for "to the end"; read as that, it keeps the size a simple expression of the axis.
FAR = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StridedSliceAttrs(Attrs):
    """begin, end, strides: one entry an axis of `axes`; strides None or shorter: 1. slice_mode: "end" or "size"."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    slice_mode: str = "end"
    axes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("begin", "end", "strides", "axes"):
            set_axes(self, name)
        Attrs.__post_init__(self)
        if self.axes is None:
            self._complete()

    def _complete(self) -> None:
        """The first axes are meant: the shorter of begin and end goes on with the axis's own bounds, as in TVM."""
        begin, end, strides = self.begin, self.end, self.strides or ()
        if not all(isinstance(value, tuple) for value in (begin, end, strides)):
            return
        count = max(len(begin), len(end))
        whole = [self._whole(stride) for stride in (*strides, *[1] * count)]
        for name, given, place in (("begin", begin, 0), ("end", end, 1)):
            rest = [bounds[place] for bounds in whole[len(given) : count]]
            object.__setattr__(self, name, (*given, *rest))

    def _whole(self, stride: object) -> tuple[int, int]:
        """The begin and end of all of an axis."""
        if self.slice_mode == "size":
            return 0, -1
        return (FAR, -FAR) if isinstance(stride, int) and stride < 0 else (0, FAR)


# No axis of a tensor with elements is longer, and sums of a few such numbers are int64.
LONGEST = 2**60


def _near(value: int) -> int:
    return max(-LONGEST, min(value, LONGEST))


def slice_of(attrs: StridedSliceAttrs, position: int) -> tuple[int, int | None, int]:
    """(begin, end or None for "to the end", stride) of the entry at `position`, with slice_mode resolved."""
    begin, end = attrs.begin[position], attrs.end[position]
    if attrs.slice_mode == "size":
        # begin + size, but a negative begin may not run past the end into positive numbers.
        stop = None if end < 0 or (begin < 0 <= begin + end) else _near(begin + end)
        return _near(begin), stop, 1
    strides = attrs.strides or ()
    stride = _near(strides[position]) if position < len(strides) else 1
    beyond = end >= FAR if stride > 0 else end <= -FAR
    return _near(begin), None if beyond else _near(end), stride


def start_of(size: Dim, begin: int, stride: int) -> Dim:
    """The first index that a slice reads, clamped to [0, size], or to [-1, size - 1] for a negative stride."""
    low, high = (0, size) if stride > 0 else (-1, dims.sub(size, 1))
    position = begin if begin >= 0 else dims.add(size, begin)
    return dims.max_(dims.min_(position, high), low)


def slice_size(size: Dim, begin: int, end: int | None, stride: int) -> Dim:
    """The number of elements that a slice keeps of an axis.

    Of the clamps of `start_of` only those are written that matter for the length, so that x[1:] is max(n - 1, 0).
    """
    step = abs(stride)
    if stride > 0 and end is None and begin < 0:
        length = dims.min_(size, -begin)
    elif stride > 0:
        start = begin if begin >= 0 else dims.max_(dims.add(size, begin), 0)
        stop = size if end is None else dims.min_(size, end) if end >= 0 else dims.add(size, end)
        length = dims.sub(stop, start)
    else:
        last = dims.sub(size, 1)
        start = dims.min_(begin, last) if begin >= 0 else dims.add(size, begin)
        stop = -1 if end is None else end if end >= 0 else dims.max_(dims.add(size, end), -1)
        length = dims.sub(start, stop)
    return dims.max_(dims.floordiv(dims.add(length, step - 1), step), 0)


def sliced_axes(ctx: TypeContext, attrs: StridedSliceAttrs, rank: int) -> tuple[int, ...]:
    """The axes that the entries of begin are about."""
    axes = tuple(range(len(attrs.begin))) if attrs.axes is None else attrs.axes
    if len(attrs.begin) != len(attrs.end) or len(axes) != len(attrs.begin):
        raise ctx.fail("begin, end and axes must have equally many entries")
    if attrs.strides is not None and (len(attrs.strides) > len(axes) or 0 in attrs.strides):
        raise ctx.fail(
            f"strides {attrs.strides} must hold at most {len(axes)} entries, none of them 0"
        )
    if attrs.slice_mode not in ("end", "size"):
        raise ctx.fail(f"slice_mode must be 'end' or 'size', not {attrs.slice_mode!r}")
    return axis_list(ctx, axes, rank)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: StridedSliceAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    shape = list(data.shape)
    for position, axis in enumerate(sliced_axes(ctx, attrs, len(shape))):
        shape[axis] = slice_size(shape[axis], *slice_of(attrs, position))
    return TensorType(shape, data.dtype)


def _reference(inputs: tuple[Array, ...], attrs: StridedSliceAttrs, result: Type) -> Array:
    (data,) = inputs
    axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
    index = [slice(None)] * data.ndim
    for position, axis in enumerate(axes):
        index[axis % data.ndim] = slice(*slice_of(attrs, position))
    return np.array(data[tuple(index)])


register(
    Op(
        name="strided_slice",
        args=("data",),
        attrs=StridedSliceAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
