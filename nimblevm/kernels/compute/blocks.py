"""Blocks of space, layout_transform and vision.yolo_reorg: the same elements at other indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import flat_position, scalar, tensor_type, unflattened
from nimblevm.kernels.loop_ir import Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Index,
    Tensors,
    find_compute,
    moved,
    register_compute,
    single,
)
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.blocks import SpaceToDepthAttrs
from nimblevm.relay.op.layout_transform import Layout, parsed
from nimblevm.relay.op.pad import PadAttrs
from nimblevm.relay.op.windows import arranged
from nimblevm.relay.types import TensorType


def _apart(em: Emitter, value: Value, size: int) -> tuple[Value, Value]:
    """(value div size, value mod size)."""
    by = em.b.i64(size)
    return em.b.binary("floordiv", value, by), em.b.binary("floormod", value, by)


def _depth_to_space(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, shape = single(args[0]), tensor_type(out).shape
    block, channels = attrs.block_size, shape[attrs.layout.index("C")]

    def where(index: Index) -> Index:
        at = dict(zip(attrs.layout, index, strict=True))
        at["H"], i = _apart(em, at["H"], block)
        at["W"], j = _apart(em, at["W"], block)
        if attrs.mode == "DCR":
            at["C"] = flat_position(em, (block, block, channels), (i, j, at["C"]))
        else:
            at["C"] = flat_position(em, (channels, block, block), (at["C"], i, j))
        return arranged(attrs.layout, at)

    return moved(data, shape, where)


def _space_to_depth(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data = single(args[0])
    block, channels = attrs.block_size, data.shape[attrs.layout.index("C")]

    def where(index: Index) -> Index:
        at = dict(zip(attrs.layout, index, strict=True))
        i, j, at["C"] = unflattened(em, (block, block, channels), at["C"])
        for letter, more in (("H", i), ("W", j)):
            at[letter] = em.b.add(em.b.mul(at[letter], em.b.i64(block)), more)
        return arranged(attrs.layout, at)

    return moved(data, tensor_type(out).shape, where)


def _space_to_batch(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, blocks = single(args[0]), attrs.block_shape
    count = len(blocks)
    width = ((0, 0), *attrs.paddings, *(((0, 0),) * (data.rank - 1 - count)))
    sizes: list[Dim] = [dims.add(n, sum(pads)) for n, pads in zip(data.shape, width, strict=True)]
    pad = find_compute("nn.pad")
    assert pad is not None
    fill = scalar(em.b.const(attrs.pad_value, "float64"))
    padded = single(pad(em, (data, fill), PadAttrs(width), TensorType(sizes, data.dtype)))

    def where(index: Index) -> Index:
        *inner, batch = unflattened(em, (*blocks, data.shape[0]), index[0])
        steps = zip(index[1 : count + 1], blocks, inner, strict=True)
        places = (em.b.add(em.b.mul(i, em.b.i64(block)), j) for i, block, j in steps)
        return (batch, *places, *index[count + 1 :])

    return moved(padded, tensor_type(out).shape, where)


def _batch_to_space(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, blocks, shape = single(args[0]), attrs.block_shape, tensor_type(out).shape
    count = len(blocks)

    def where(index: Index) -> Index:
        cut = zip(index[1 : count + 1], attrs.crops, blocks, strict=True)
        parts = [_apart(em, em.b.add(i, em.b.i64(crop[0])), block) for i, crop, block in cut]
        inner = tuple(j for _, j in parts)
        batch = flat_position(em, (*blocks, shape[0]), (*inner, index[0]))
        return (batch, *(i for i, _ in parts), *index[count + 1 :])

    return moved(data, shape, where)


def _mapped(em: Emitter, given: Layout, wanted: Layout, index: Index) -> Index:
    """The index in layout `wanted` of the element that is at `index` in layout `given`."""
    at = dict(zip(given.axes, index, strict=True))
    found: dict[str, Value] = {}
    for letter in given.letters:
        small, old, new = letter.lower(), given.block(letter), wanted.block(letter)
        if old == new:
            found[letter], found[small] = at[letter], at.get(small, em.b.i64(0))
            continue
        whole = em.b.mul(at[letter], em.b.i64(old))
        whole = em.b.add(whole, at[small]) if small in at else whole
        found[letter], found[small] = _apart(em, whole, new)
    return tuple(found[letter] for letter in wanted.axes)


def _layout_transform(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    source, target = parsed(attrs.src_layout), parsed(attrs.dst_layout)
    assert source is not None
    assert target is not None
    return moved(
        single(args[0]),
        tensor_type(out).shape,
        lambda index: _mapped(em, target, source, index),
        forward=lambda index: _mapped(em, source, target, index),
    )


def _yolo(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    data, block = single(args[0]), attrs.stride
    reshape = find_compute("reshape")
    assert reshape is not None
    n, c, h, w = data.shape
    channels = dims.floordiv(c, block * block)
    seen = TensorType((n, channels, dims.mul(h, block), dims.mul(w, block)), data.dtype)
    image = reshape(em, (data,), None, seen)
    moved_ = _space_to_depth(
        em, (image,), SpaceToDepthAttrs(block), TensorType(data.shape, data.dtype)
    )
    return reshape(em, (moved_,), None, out)


register_compute("vision.yolo_reorg", _yolo)
register_compute("nn.depth_to_space", _depth_to_space)
register_compute("nn.space_to_depth", _space_to_depth)
register_compute("nn.space_to_batch_nd", _space_to_batch)
register_compute("nn.batch_to_space_nd", _batch_to_space)
register_compute("layout_transform", _layout_transform)
