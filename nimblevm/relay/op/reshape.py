"""reshape and contrib_reverse_reshape: the same elements in another shape, row-major.

    reshape(data, newshape, allowzero=False)      contrib_reverse_reshape(data, newshape), of which out has newshape too

    newshape entries, read from left to right beside data's axes (contrib_reverse_reshape: from right to left, no -4):
    n > 0   this size
    0       the size of data's axis at this place (allowzero: the size 0)
    -1      what the axes that no 0, -2, -3 or -4 takes make with the other entries (at most once)
    -2      all of data's axes that are left
    -3      the product of data's next two axes
    -4 a b  data's next axis split in a and b; one of them may be -1

data: any rank and dtype. Result: as many elements as data, data's dtype. Attrs: newshape (ints),
allowzero. Source: Relay's reshape.
Differs from numpy: the entries 0, -2, -3 and -4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.op.common import ALL, Array, Attrs, product, set_axes, tensor_of
from nimblevm.relay.op.other_context import OtherContext
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class ReshapeAttrs(Attrs):
    """newshape: entries as in the module's docstring. allowzero: 0 means an empty axis."""

    newshape: tuple[int, ...]
    allowzero: bool = False

    def __post_init__(self) -> None:
        set_axes(self, "newshape")
        Attrs.__post_init__(self)


class _Reader:
    """Walks newshape and data's axes side by side.

    `shape` is the result with None for the place of -1, `taken` the axes that entries take over, `given` the product
    of the other entries. An axis that is taken may have size 0, so equations keep it as a factor.
    """

    def __init__(self, ctx: TypeContext, data: TensorType, attrs: ReshapeAttrs) -> None:
        self.ctx = ctx
        self.source = data.shape
        self.entries: Iterator[int] = iter(attrs.newshape)
        self.allowzero = attrs.allowzero
        self.at = 0
        self.taken: set[int] = set()
        self.given = 1
        self.shape: list[Dim | None] = []

    def next_axis(self) -> Dim:
        if self.at >= len(self.source):
            raise self.ctx.fail("newshape refers to more axes than data has", 0)
        self.at += 1
        self.taken.add(self.at - 1)
        return self.source[self.at - 1]

    def left(self) -> list[int]:
        """The axes that are not taken."""
        return [axis for axis in range(len(self.source)) if axis not in self.taken]

    def read(self) -> None:
        for entry in self.entries:
            match entry:
                case 0 if not self.allowzero:
                    self.shape.append(self.next_axis())
                case -1:
                    if None in self.shape:
                        raise self.ctx.fail("newshape has more than one -1")
                    self.shape.append(None)
                    self.at += 1
                case -2:
                    self.shape.extend(self.source[self.at :])
                    self.taken.update(range(self.at, len(self.source)))
                    self.at = len(self.source)
                case -3:
                    self.shape.append(dims.mul(self.next_axis(), self.next_axis()))
                case -4:
                    self.split(self.next_axis())
                case int() if entry >= 0:
                    self.shape.append(entry)
                    self.given *= entry
                    self.at += 1
                case _:
                    raise self.ctx.fail(f"newshape must hold integers >= -4, not {entry!r}")

    def split(self, size: Dim) -> None:
        """The two entries after -4."""
        axis = self.at - 1
        first, second = next(self.entries, None), next(self.entries, None)
        if (
            first is None
            or second is None
            or (first == -1 and second == -1)
            or min(first, second) < -1
        ):
            raise self.ctx.fail("-4 must be followed by two sizes, one of which may be -1")
        known = second if first == -1 else first
        if known == 0:
            raise self.ctx.fail("a size after -4 must not be 0")
        rest = dims.floordiv(size, known)
        other = rest if -1 in (first, second) else second
        if isinstance(size, int):
            if size != dims.mul(known, other):
                raise self.ctx.fail(
                    f"axis {axis} of size {size} can't be split into {first} and {second}", 0
                )
        else:
            self.ctx.require_dim(0, axis, dims.mul(known, other))
        self.shape.extend((other, known) if first == -1 else (known, other))


def require_count(
    ctx: TypeContext, data: TensorType, axes: Sequence[int], want: Dim, common: Dim = 1
) -> None:
    """Demand that `axes` of argument 0, of type `data`, have `want` elements, or that `common`, the number of
    elements of the other axes, is 0.
    """
    have = product([data.shape[axis] for axis in axes])
    if have is want or have == want or common == 0:
        return
    if isinstance(have, int) and isinstance(want, int):
        raise ctx.fail(f"data has {product(data.shape)} elements; newshape does not fit them", 0)
    unknown = [axis for axis in axes if not isinstance(data.shape[axis], int)]
    if not unknown:
        raise ctx.fail("newshape does not fit the number of elements", 0)
    axis = unknown[0]
    size = data.shape[axis]
    if isinstance(common, int):
        if have is size:
            ctx.require_dim(0, axis, want)
            return
        if isinstance(want, int) and len(unknown) == 1:
            scale = dims.floordiv(have, size)
            if isinstance(scale, int) and scale > 0 and dims.mul(scale, size) == have:
                if want % scale:
                    raise ctx.fail(f"newshape does not fit: {want} is no multiple of {scale}", 0)
                ctx.require_dim(0, axis, want // scale)
                return
    # have == want, written as an equation for one axis, since demands are equations of axes.
    ctx.require_dim(0, axis, dims.add(size, dims.mul(common, dims.sub(have, want))))


_NAMES: WeakKeyDictionary[DimOp, DimVar] = WeakKeyDictionary()
"""One for each expression, since a relation runs more than once and has to say the same."""


def _countable(ctx: TypeContext, data: TensorType) -> TensorType:
    """`data`, its axes under names of their own where its number of elements is too large an expression (dims.py)."""
    sizes = {v for dim in data.shape for v in dims.free_vars(dim)}
    if sizes.issuperset(dims.free_vars(product(data.shape))):
        return data
    shape = list(data.shape)
    for axis, dim in enumerate(shape):
        if isinstance(dim, DimOp):
            shape[axis] = ctx.require_dim(0, axis, _NAMES.setdefault(dim, DimVar()))
    return TensorType(shape, data.dtype)


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReshapeAttrs) -> Type:
    data = _countable(ctx, tensor_of(ctx, arg_types, 0))
    reader = _Reader(ctx, data, attrs)
    reader.read()
    left = reader.left()
    rest: Dim = 1
    if None in reader.shape:
        if reader.given == 0:
            raise ctx.fail("-1 can't be found beside a size of 0", 0)
        rest = dims.floordiv(product([data.shape[axis] for axis in left]), reader.given)
    taken = product([data.shape[axis] for axis in sorted(reader.taken)])
    require_count(ctx, data, left, dims.mul(rest, reader.given), taken)
    return TensorType((rest if size is None else size for size in reader.shape), data.dtype)


def _concrete(source: tuple[int, ...], attrs: ReshapeAttrs) -> tuple[int, ...]:
    """The result shape by the plain reading of the docstring, without dim expressions."""
    shape, at, entries = list[int](), 0, iter(attrs.newshape)
    left, given = list(source), 1
    for entry in entries:
        match entry:
            case 0 if not attrs.allowzero:
                shape.append(source[at])
                left[at] = 1
            case -2:
                shape.extend(source[at:])
                left[at:] = [1] * (len(source) - at)
                at = len(source)
            case -3:
                shape.append(source[at] * source[at + 1])
                left[at : at + 2] = [1, 1]
                at += 1
            case -4:
                first, second = next(entries), next(entries)
                shape.append(source[at] // second if first == -1 else first)
                shape.append(source[at] // first if second == -1 else second)
                left[at] = 1
            case -1:
                shape.append(-1)
            case _:
                shape.append(entry)
                given *= entry
        at += 1
    if -1 in shape:
        shape[shape.index(-1)] = math.prod(left) // given
    return tuple(shape)


def _reference(inputs: tuple[Array, ...], attrs: ReshapeAttrs, result: Type) -> Array:
    return _reshaped(inputs[0], _concrete(inputs[0].shape, attrs))


def _reshaped(data: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.reshape(data, shape)
    except ValueError:
        raise ShapeMismatch(f"reshape: {data.shape} has not the elements of {shape}") from None


def _turned(attrs: ReshapeAttrs) -> ReshapeAttrs:
    return ReshapeAttrs(attrs.newshape[::-1], attrs.allowzero)


def _reverse_relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReshapeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if -4 in attrs.newshape:
        raise ctx.fail("newshape from right to left must have sizes, 0, -1, -2 and -3, not -4")
    turned = TensorType(data.shape[::-1], data.dtype)
    seen = OtherContext(ctx, axis=lambda axis: len(data.shape) - 1 - axis)
    found = _relation(seen, (turned,), _turned(attrs))
    assert isinstance(found, TensorType)
    return TensorType(found.shape[::-1], data.dtype)


def _reverse_reference(inputs: tuple[Array, ...], attrs: ReshapeAttrs, result: Type) -> Array:
    (data,) = inputs
    return _reshaped(data, _concrete(data.shape[::-1], _turned(attrs))[::-1])


for _name, _typed, _valued in (
    ("reshape", _relation, _reference),
    ("contrib_reverse_reshape", _reverse_relation, _reverse_reference),
):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=ReshapeAttrs,
            relation=_typed,
            reference=_valued,
            pattern=OpPattern.INJECTIVE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__ or "",
            views=True,
        )
    )
