"""layout_transform(data, src_layout, dst_layout): the axes in another order, some of them split into blocks.

A layout has a capital letter for each axis, and may have numbers with the small letter for its innermost blocks:
"NCHW", "NHWC", "NCHW16c", "OIHW4i8o". Element c of channels in blocks of 16 is at (c div 16, c mod 16).
    out[place of each letter in dst_layout] = data[place of the same elements in src_layout]

data: rank and sizes of blocks as src_layout says, any dtype. Result: data's dtype. Both layouts have the same capital
letters, each once, a small letter once and only beside its capital. A split axis must be a multiple of its block.
Attrs: src_layout, dst_layout. Source: Relay's layout_transform.
Differs from numpy: transpose moves axes only.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import ALL, Array, Attrs, require_multiple, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import TensorType, Type

_AXIS = re.compile(r"([A-Z])|([1-9][0-9]{0,8})([a-z])")


@dataclass(frozen=True, slots=True)
class LayoutTransformAttrs(Attrs):
    """src_layout: data's. dst_layout: the result's."""

    src_layout: str
    dst_layout: str


@dataclass(frozen=True, slots=True)
class Layout:
    """axes: one letter an axis, small for blocks. blocks: capital letter -> size of its blocks, 1 without."""

    axes: str
    blocks: dict[str, int]

    @property
    def letters(self) -> str:
        return "".join(letter for letter in self.axes if letter.isupper())

    def block(self, letter: str) -> int:
        return self.blocks.get(letter, 1)


def parsed(text: str) -> Layout | None:
    """A layout, or None where the text is none."""
    axes, blocks, place = "", {}, 0
    while place < len(text):
        found = _AXIS.match(text, place)
        if found is None:
            return None
        whole, size, part = found.groups()
        axes += whole or part
        if part:
            blocks[part.upper()] = int(size)
        place = found.end()
    if len(set(axes)) != len(axes) or any(letter not in axes for letter in blocks):
        return None
    return Layout(axes, blocks)


def _layouts(ctx: TypeContext, attrs: LayoutTransformAttrs) -> tuple[Layout, Layout]:
    made = []
    for name in ("src_layout", "dst_layout"):
        found = parsed(getattr(attrs, name))
        if found is None or not found.axes:
            raise ctx.fail(
                f"{name} must have capital letters, each once, and blocks like 16c of them, "
                f"not {getattr(attrs, name)!r}"
            )
        made.append(found)
    source, target = made
    if set(source.letters) != set(target.letters):
        raise ctx.fail(
            f"{attrs.src_layout!r} and {attrs.dst_layout!r} must have the same capital letters"
        )
    return source, target


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LayoutTransformAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    source, target = _layouts(ctx, attrs)
    if len(data.shape) != len(source.axes):
        raise ctx.fail(
            f"data must have rank {len(source.axes)} ({attrs.src_layout}), not {len(data.shape)}", 0
        )
    sizes: dict[str, Dim] = {}
    for axis, letter in enumerate(source.axes):
        if letter.islower():
            ctx.require_dim(0, axis, source.block(letter.upper()))
            continue
        old, new = source.block(letter), target.block(letter)
        # old * size is a multiple of new where size is one of this.
        factor = new // math.gcd(old, new)
        groups = require_multiple(ctx, 0, axis, data.shape[axis], factor, f"blocks {new}{letter}")
        sizes[letter] = dims.mul(groups, old * factor // new)
    return TensorType(
        (target.block(a.upper()) if a.islower() else sizes[a] for a in target.axes), data.dtype
    )


def _reference(inputs: tuple[Array, ...], attrs: LayoutTransformAttrs, result: Type) -> Array:
    (data,) = inputs
    source, target = parsed(attrs.src_layout), parsed(attrs.dst_layout)
    assert source is not None
    assert target is not None
    # All letters with their blocks beside them, then whole, then in the other blocks.
    order = [
        source.axes.index(a) for letter in target.letters for a in (letter, letter.lower())
        if a in source.axes
    ]  # fmt: skip
    sizes = dict(zip(source.axes, data.shape, strict=True))
    whole = [sizes[c] * source.block(c) for c in target.letters]
    split: list[int] = []
    axes = ""
    for letter, size in zip(target.letters, whole, strict=True):
        block = target.block(letter)
        if size % block:
            raise ShapeMismatch(f"layout_transform: {size} is no multiple of {block}")
        split += [size // block, block] if letter in target.blocks else [size]
        axes += letter + letter.lower() * (letter in target.blocks)
    moved = data.transpose(order).reshape(whole).reshape(split)
    return np.ascontiguousarray(moved.transpose([axes.index(a) for a in target.axes]))


register(
    Op(
        name="layout_transform",
        args=("data",),
        attrs=LayoutTransformAttrs,
        relation=_relation,
        reference=_reference,
        pattern=OpPattern.INJECTIVE,
        effect=Effect.TOTAL,
        dtypes=(ALL,),
        doc=__doc__,
    )
)
