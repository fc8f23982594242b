"""Cases of operators that move blocks of space, and of those around them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import (
    blocks,
    dilate,
    layout_transform,
    lrn,
    resize,
    sliding_window,
    sparse_to_dense,
)
from nimblevm.relay.op.common import ALL
from tests.relay.op.draw import SIZES, Case, Source, array, flag, pick, shape

LAYOUTS = ("NCHW", "NHWC", "HWCN")


def _sized(layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _depth_to_space(source: Source, dtype: str) -> Case:
    block, layout = source.integer(1, 3), pick(source, LAYOUTS)
    sizes = {letter: pick(source, (0, 1, 2, 3)) for letter in "NCHW"}
    sizes["C"] *= block * block
    attrs = blocks.DepthToSpaceAttrs(block, layout, pick(source, blocks.MODES))
    return Case((array(source, _sized(layout, sizes), dtype),), attrs)


def _space_to_depth(source: Source, dtype: str) -> Case:
    block, layout = source.integer(1, 3), pick(source, LAYOUTS)
    sizes = {letter: pick(source, (0, 1, 2)) for letter in "NCHW"}
    for letter in "HW":
        sizes[letter] *= block
    attrs = blocks.SpaceToDepthAttrs(block, layout)
    return Case((array(source, _sized(layout, sizes), dtype),), attrs)


def _space_to_batch(source: Source, dtype: str) -> Case:
    count = source.integer(1, 3)
    block = tuple(source.integer(1, 3) for _ in range(count))
    pads, sizes = [], [pick(source, (0, 1, 2))]
    for size in block:
        pair = (source.integer(0, 2), source.integer(0, 2))
        least = -(-sum(pair) // size)
        sizes.append((least + source.integer(0, 2)) * size - sum(pair))
        pads.append(pair)
    value = float(source.integer(0, 2))
    attrs = blocks.SpaceToBatchNDAttrs(block, tuple(pads), value)
    return Case((array(source, (*sizes, *shape(source, 0, 1)), dtype),), attrs)


def _batch_to_space(source: Source, dtype: str) -> Case:
    count = source.integer(1, 3)
    block = tuple(source.integer(1, 3) for _ in range(count))
    crops = tuple((source.integer(0, 2), source.integer(0, 2)) for _ in block)
    sizes = [-(-sum(c) // b) + source.integer(0, 2) for c, b in zip(crops, block, strict=True)]
    batch = int(np.prod(block)) * pick(source, (0, 1, 2))
    data = array(source, (batch, *sizes, *shape(source, 0, 1)), dtype)
    return Case((data,), blocks.BatchToSpaceNDAttrs(block, crops))


TRANSFORMS = (
    ("NCHW", "NHWC"), ("NCHW", "NCHW4c"), ("NCHW4c", "NCHW"), ("NCHW4c", "NHWC6c"), ("NHWC", "NCHW2n3c"),
    ("NC4cHW", "CNHW4c"), ("OIHW", "OIHW2i3o"), ("OIHW2i3o", "IHWO6o"), ("NC", "CN"), ("W", "W5w"), ("NCHW6c", "NCHW4c"),
)  # fmt: skip


def _layout_transform(source: Source, dtype: str) -> Case:
    names = pick(source, TRANSFORMS)
    old, new = (layout_transform.parsed(name) for name in names)
    assert old is not None
    assert new is not None
    sizes = {}
    for letter in old.letters:
        whole = np.lcm(old.block(letter), new.block(letter)) * pick(source, (0, 1, 2))
        sizes[letter], sizes[letter.lower()] = int(whole) // old.block(letter), old.block(letter)
    data = array(source, _sized(old.axes, sizes), dtype)
    return Case((data,), layout_transform.LayoutTransformAttrs(*names))


def _dilate(source: Source, dtype: str) -> Case:
    dims = shape(source)
    strides = tuple(source.integer(1, 3) for _ in dims)
    attrs = dilate.DilateAttrs(strides, pick(source, (0.0, 1.0, 2.5)))
    return Case((array(source, dims, dtype),), attrs)


def _lrn(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 4, (0, 1, 2, 7))
    axis = source.integer(-len(dims), len(dims) - 1)
    attrs = lrn.LRNAttrs(pick(source, (1, 3, 5, 9)), axis, 1.5, pick(source, (0.5, 1e-3)), 0.75)
    return Case((array(source, dims, dtype, special=False),), attrs)


def _sliding_window(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 4, (1, 2, 3, 5))
    axis = source.integer(0, len(dims) - 1)
    window = tuple(source.integer(1, n) for n in dims[axis:])
    strides = tuple(source.integer(1, 3) for _ in window)
    dims = tuple(0 if a < axis and source.integer(0, 5) == 0 else n for a, n in enumerate(dims))
    place = axis - len(dims) if flag(source) else axis
    attrs = sliding_window.SlidingWindowAttrs(place, window, strides)
    return Case((array(source, dims, dtype),), attrs)


def _sparse_to_dense(source: Source, dtype: str) -> Case:
    rank = source.integer(0, 2)
    dims = shape(source, 0, 3) if rank == 2 else (pick(source, SIZES),)
    count = pick(source, SIZES)
    places = {0: (), 1: (count,), 2: (count, len(dims))}[rank]
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    indices = np.asarray(rng.integers(-1, 6, places)).astype(dtype)
    kind = pick(source, ALL)
    values = array(source, (count,) if rank and flag(source) else (), kind)
    default = array(source, (), pick(source, (kind, "int32")), special=False)
    return Case((indices, values, default), sparse_to_dense.SparseToDenseAttrs(dims))


def _upsampling3d(source: Source, dtype: str) -> Case:
    layout = pick(source, ("NCDHW", "NDHWC"))
    sizes = {letter: pick(source, (1, 2, 3)) for letter in "DHW"}
    sizes.update(N=pick(source, (0, 1, 2)), C=pick(source, (0, 1, 2)))
    depth, height, width = (pick(source, (0.5, 1.0, 2.0, 1.3)) for _ in range(3))
    method = "nearest_neighbor"
    if np.dtype(dtype).kind == "f" and flag(source):
        method = "trilinear"
    mode = pick(source, resize.MODES[:3])
    attrs = resize.UpSampling3DAttrs(depth, height, width, layout, method, mode)
    return Case((array(source, _sized(layout, sizes), dtype, special=False),), attrs)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "nn.depth_to_space": _depth_to_space, "nn.space_to_depth": _space_to_depth,
    "nn.space_to_batch_nd": _space_to_batch, "nn.batch_to_space_nd": _batch_to_space,
    "layout_transform": _layout_transform, "nn.dilate": _dilate, "nn.lrn": _lrn, "sliding_window": _sliding_window,
    "sparse_to_dense": _sparse_to_dense, "nn.upsampling3d": _upsampling3d,
}  # fmt: skip
