"""Cases of products, convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.relay.op import (
    adaptive_pool,
    conv,
    conv2d_pack,
    conv2d_winograd,
    conv_backward_weight,
    correlation,
    deformable_conv2d,
    einsum,
    matmul,
    pool,
    pool_grad,
    registry,
    resize,
)
from nimblevm.relay.types import TensorType
from tests.relay.op.draw import (
    SIZES,
    Case,
    Source,
    array,
    flag,
    other_dtype,
    pick,
    product_dtype,
    shape,
)


def _layout(source: Source, standard: str, other: str) -> str:
    return other if flag(source) else standard


def _shaped(layout: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _padding(source: Source, rank: int) -> tuple[int, ...]:
    count = pick(source, (1, rank, 2 * rank))
    return tuple(source.integer(0, 2) for _ in range(count))


def _pairs(padding: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    if len(padding) == 1:
        padding = padding * (2 * rank)
    elif len(padding) == rank:
        padding = padding * 2
    return list(zip(padding[:rank], padding[rank:], strict=True))


def conv_case(source: Source, dtype: str, name: str) -> Case:
    row = conv.ROWS[name]
    rank, letters = row.rank, row.spatial
    kernel = [source.integer(1, 3) for _ in range(rank)]
    strides = tuple(source.integer(1, 3) for _ in range(rank))
    dilation = tuple(source.integer(1, 2) for _ in range(rank))
    padding = _padding(source, rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    groups = pick(source, (1, 1, 2, 3))
    inner, outer = pick(source, (0, 1, 2, 3)), pick(source, (0, 1, 2, 5))
    if groups == 1 and inner == 0 and outer == 0:
        inner = 1
    more = tuple(source.integer(0, s - 1) for s in strides)
    sizes = []
    for reached, (before, after) in zip(reach, _pairs(padding, rank), strict=True):
        least = max(reached - before - after, 0)
        if row.transposed:
            # So many elements that something of the result is left.
            least = max(before + after - reached, 0) + 1
        sizes.append(least + source.integer(0, 3))
    data_layout = _layout(source, row.data_layout, "N" + letters + "C")
    kernel_layout = _layout(source, row.kernel_layout, letters + row.kernel_layout[1::-1])
    data = {
        "N": pick(source, (0, 1, 2)),
        "C": groups * inner,
        **dict(zip(letters, sizes, strict=True)),
    }
    if row.transposed:
        weight = {"I": groups * inner, "O": outer}
    else:
        weight = {"I": inner, "O": groups * outer}
    weight.update(zip(letters, kernel, strict=True))
    out_dtype = product_dtype(source, dtype)
    names: dict[str, Any] = {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": groups,
        "channels": groups * outer if flag(source) else None, "kernel_size": tuple(kernel) if flag(source) else None,
        "data_layout": data_layout, "kernel_layout": kernel_layout,
        "out_layout": pick(source, ("", "", row.data_layout)),
        "out_dtype": out_dtype,
    }  # fmt: skip
    if row.transposed:
        names["output_padding"] = more
    inputs = (
        array(source, _shaped(data_layout, data), dtype, special=False),
        array(
            source,
            _shaped(kernel_layout, weight),
            other_dtype(source, dtype, out_dtype),
            special=False,
        ),
    )
    return Case(inputs, conv.ATTRS[name](**names))


def _conv2d_pack(source: Source, dtype: str) -> Case:
    kernel, strides, dilation = (
        tuple(source.integer(1, most) for _ in range(2)) for most in (3, 3, 2)
    )
    padding = _padding(source, 2)
    inner, outer = pick(source, (0, 1, 2, 5, 16)), pick(source, (1, 3, 15, 16, 17, 40, 70))
    layout = _layout(source, "NHWC", "NCHW")
    data = {"N": pick(source, (0, 1, 2)), "C": inner}
    for letter, k, d, (before, after) in zip(
        "HW", kernel, dilation, _pairs(padding, 2), strict=True
    ):
        data[letter] = max((k - 1) * d + 1 - before - after, 0) + source.integer(0, 4)
    weight = array(source, (outer, inner, *kernel), dtype, special=False)
    attrs = conv2d_pack.Conv2DPackAttrs(strides, padding, dilation, outer, kernel, layout)
    inputs = (
        array(source, _shaped(layout, data), dtype, special=False),
        conv2d_pack.packed_kernel(weight, "OIHW"),
    )
    return Case(inputs, attrs)


def _winograd(source: Source, dtype: str) -> Case:
    padding = _padding(source, 2)
    inner, outer = pick(source, (0, 1, 2, 16, 33)), pick(source, (1, 3, 16, 17, 70))
    layout = _layout(source, "NHWC", "NCHW")
    data = {"N": pick(source, (0, 1, 2)), "C": inner}
    for letter, (before, after) in zip("HW", _pairs(padding, 2), strict=True):
        data[letter] = max(3 - before - after, 0) + source.integer(0, 7)
    weight = array(source, (outer, inner, 3, 3), dtype, special=False)
    panels = conv2d_winograd.transformed(conv2d_pack.packed_kernel(weight, "OIHW"))
    attrs = conv2d_winograd.WinogradAttrs(padding, outer, layout)
    return Case((array(source, _shaped(layout, data), dtype, special=False), panels), attrs)


def _deformable(source: Source, dtype: str) -> Case:
    kernel, strides, dilation = (
        tuple(source.integer(1, most) for _ in range(2)) for most in (3, 2, 2)
    )
    padding = _padding(source, 2)
    layout = _layout(source, "NCHW", "NHWC")
    moved, groups = pick(source, (1, 2)), pick(source, (1, 2))
    data = {"N": pick(source, (0, 1, 2)), "C": moved * groups * pick(source, (1, 1, 2))}
    place = {"N": data["N"], "C": 2 * kernel[0] * kernel[1] * moved}
    for n, (letter, (before, after)) in enumerate(zip("HW", _pairs(padding, 2), strict=True)):
        reach = (kernel[n] - 1) * dilation[n] + 1
        data[letter] = max(reach - before - after, 1) + source.integer(0, 3)
        place[letter] = (data[letter] + before + after - reach) // strides[n] + 1
    weight = (groups * pick(source, (0, 1, 2)), data["C"] // groups, *kernel)
    attrs = deformable_conv2d.DeformableConv2DAttrs(
        strides, padding, dilation, moved, groups, weight[0] if flag(source) else None, kernel,
        layout, out_layout=pick(source, ("", "NCHW")), out_dtype=product_dtype(source, dtype),
    )  # fmt: skip
    shapes = (_shaped(layout, data), _shaped(layout, place), weight)
    return Case(tuple(array(source, dims, dtype, special=False) for dims in shapes), attrs)


def _correlation(source: Source, dtype: str) -> Case:
    kernel, most = pick(source, (1, 3)), source.integer(0, 3)
    padding = _padding(source, 2)
    sizes = [
        max(kernel + 2 * most - sum(pads), 1) + source.integer(0, 3) for pads in _pairs(padding, 2)
    ]
    dims = (pick(source, (0, 1, 2)), pick(source, (1, 2, 3)), *sizes)
    attrs = correlation.CorrelationAttrs(
        kernel, most, source.integer(1, 2), source.integer(1, 2), padding, flag(source)
    )
    return Case(tuple(array(source, dims, dtype, special=False) for _ in range(2)), attrs)


def _backward_weight(source: Source, dtype: str) -> Case:
    kernel, strides, dilation = (
        tuple(source.integer(1, most) for _ in range(2)) for most in (3, 3, 2)
    )
    padding, groups = _padding(source, 2), pick(source, (1, 1, 2))
    data = {"N": pick(source, (0, 1, 2)), "C": groups * pick(source, (0, 1, 3))}
    grad = {"N": data["N"], "C": groups * pick(source, (0, 1, 2))}
    for n, (letter, (before, after)) in enumerate(zip("HW", _pairs(padding, 2), strict=True)):
        reach = (kernel[n] - 1) * dilation[n] + 1
        data[letter] = max(reach - before - after, 0) + source.integer(0, 4)
        grad[letter] = (data[letter] + before + after - reach) // strides[n] + 1
    layouts = [_layout(source, "NCHW", "NHWC") for _ in range(2)]
    attrs = conv_backward_weight.BackwardWeightAttrs(
        strides, padding, dilation, groups, grad["C"] if flag(source) else None, kernel, data_layout=layouts[0],
        kernel_layout=layouts[1], out_layout=_layout(source, "OIHW", "HWIO"),
        out_dtype=pick(source, ("", "float32", "float64")),
    )  # fmt: skip
    shapes = (_shaped(layout, sizes) for layout, sizes in zip(layouts, (grad, data), strict=True))
    return Case(tuple(array(source, dims, dtype, special=False) for dims in shapes), attrs)


def pool_case(source: Source, dtype: str, name: str) -> Case:
    row = pool.ROWS[name]
    rank, letters = row.rank, row.spatial
    size, strides = (tuple(source.integer(1, 3) for _ in range(rank)) for _ in range(2))
    dilation = tuple(source.integer(1, 2) for _ in range(rank))
    padding = _padding(source, rank)
    ceil_mode = flag(source)
    names: dict[str, Any] = {
        "pool_size": size, "strides": strides, "dilation": dilation, "padding": padding, "ceil_mode": ceil_mode,
        "layout": _layout(source, row.layout, "N" + letters + "C"), "out_layout": pick(source, ("", "", row.layout)),
    }  # fmt: skip
    if row.mean:
        names["count_include_pad"] = flag(source)
    found = {"N": pick(source, (0, 1, 2)), "C": pick(source, (0, 1, 2))}
    for letter, k, d, pads in zip(letters, size, dilation, _pairs(padding, rank), strict=True):
        found[letter] = max((k - 1) * d + 1 - sum(pads), 0) + source.integer(0, 4)
    data = array(source, _shaped(names["layout"], found), dtype, special=not row.mean)
    return Case((data,), pool.ATTRS[name](**names))


def _pool_grad(source: Source, dtype: str, name: str) -> Case:
    """Of numbers that occur twice, also NaN and infinities."""
    row = pool_grad.ROWS[name].pool
    plain = pool_case(source, dtype, row.name)
    (data,) = plain.inputs
    if flag(source):
        data = np.round(data)
    result = plain.infer(registry.get(row.name))
    assert isinstance(result, TensorType)
    sizes = tuple(size for size in result.shape if isinstance(size, int))
    return Case((array(source, sizes, dtype, special=False), data), plain.attrs)


def _adaptive_pool(source: Source, dtype: str, name: str) -> Case:
    row = adaptive_pool.ROWS[name]
    layout = _layout(source, row.layout, "N" + row.spatial + "C")
    found = {letter: pick(source, (1, 2, 3, 7)) for letter in row.spatial}
    found.update(N=pick(source, (0, 1, 2)), C=pick(source, (0, 1, 2)))
    data = array(source, _shaped(layout, found), dtype, special=not row.mean)
    names: dict[str, Any] = {"layout": layout, "out_layout": pick(source, ("", "", row.layout))}
    if not row.whole:
        count = pick(source, (0, 1, row.rank))
        names["output_size"] = tuple(source.integer(1, 4) for _ in range(count)) or None
    return Case((data,), adaptive_pool.attrs_of(row)(**names))


def _matmul(source: Source, dtype: str) -> Case:
    m, k, n = (pick(source, SIZES) for _ in range(3))
    ta, tb = flag(source), flag(source)
    outer = shape(source, 0, 2)
    if not ta and flag(source):
        a = (k,)
    else:
        a = (*outer, k, m) if ta else (*outer, m, k)
    out_dtype = product_dtype(source, dtype)
    second = other_dtype(source, dtype, out_dtype)
    attrs = matmul.MatmulAttrs(n if flag(source) else None, out_dtype, ta, tb)
    b = (n, k) if tb else (k, n)
    return Case(
        (array(source, a, dtype, special=False), array(source, b, second, special=False)), attrs
    )


EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ii->i", "ii", "i,j->ij", "ij->ji", "i,i->", "ij,jk", "->", ",->",
    "...ij,...jk->...ik", "...i->...", "b...,b...->...b", "bhqd,bhkd->bhqk", "ij,j,jk->ki", "...a,...a->...a",
)  # fmt: skip


def _einsum(source: Source, dtype: str) -> Case:
    equation = pick(source, EQUATIONS)
    terms = equation.split("->")[0].split(",")
    sizes = {letter: pick(source, SIZES) for letter in "".join(terms) if letter.isalpha()}
    dots = shape(source, 0, 2)
    parts = []
    for term in terms:
        short = term.replace("...", ".")
        mine = (
            dots
            if len(terms) == 1 or flag(source)
            else tuple(1 if flag(source) else n for n in dots)
        )
        dims: list[int] = []
        for letter in short:
            dims += mine if letter == "." else [sizes[letter]]
        parts.append(array(source, tuple(dims), dtype, special=False))
    return Case((tuple(parts),), einsum.EinsumAttrs(equation))


def _resize(source: Source, dtype: str, rank: int) -> Case:
    letters = {1: "W", 2: "HW", 3: "DHW"}[rank]
    layout = _layout(source, "NC" + letters, "N" + letters + "C")
    found = {letter: pick(source, (1, 2, 3, 4, 7)) for letter in letters}
    found.update(N=pick(source, (0, 1, 2)), C=pick(source, (0, 1, 2)))
    mode = pick(source, resize.MODES)
    start = [source.integer(-2, 4) / 8 for _ in letters]
    roi = (*start, *(v + source.integer(0, 8) / 8 for v in start))
    size = tuple(source.integer(1, 6) for _ in letters[: pick(source, (1, rank))])
    method = pick(source, resize.METHODS)
    # Sums that are almost a whole number would be cut to either side of it.
    plain = np.dtype(dtype).kind == "f" or method == "nearest_neighbor"
    names: dict[str, Any] = {
        "size": size, "roi": roi if mode == "tf_crop_and_resize" else None, "layout": layout, "method": method,
        "coordinate_transformation_mode": mode, "rounding_method": pick(source, resize.ROUNDINGS),
        "cubic_alpha": pick(source, (-0.5, -0.75)), "cubic_exclude": source.integer(0, 1),
        "extrapolation_value": pick(source, (0.0, 2.5)), "out_dtype": None if plain else "float32",
    }  # fmt: skip
    cls = resize.RESIZES[f"image.resize{rank}d"][1]
    return Case((array(source, _shaped(layout, found), dtype, special=False),), cls(**names))


def _upsampling(source: Source, dtype: str) -> Case:
    layout = _layout(source, "NCHW", "NHWC")
    found = {letter: pick(source, (1, 2, 3, 5)) for letter in "HW"}
    found.update(N=pick(source, (0, 1, 2)), C=pick(source, (0, 1, 2)))
    height, width = (pick(source, (0.5, 1.0, 2.0, 1.5, 3.0, 1.3)) for _ in range(2))
    whole = np.dtype(dtype).kind != "f"
    method = (
        "nearest_neighbor" if whole else pick(source, ("nearest_neighbor", "bilinear", "bicubic"))
    )
    attrs = resize.UpSamplingAttrs(height, width, layout, method, flag(source))
    return Case((array(source, _shaped(layout, found), dtype, special=False),), attrs)


def _named(generator: Callable[..., Case], name: str) -> Callable[[Source, str], Case]:
    return lambda source, dtype: generator(source, dtype, name)


CASES: dict[str, Callable[[Source, str], Case]] = {
    "nn.matmul": _matmul,
    "nn.deformable_conv2d": _deformable,
    "nn.correlation": _correlation,
    "nn.conv2d_backward_weight": _backward_weight,
    "einsum": _einsum,
    "nn.contrib_conv2d_pack": _conv2d_pack,
    "nn.contrib_conv2d_winograd_pack": _winograd,
    "image.resize1d": lambda source, dtype: _resize(source, dtype, 1),
    "image.resize2d": lambda source, dtype: _resize(source, dtype, 2),
    "image.resize3d": lambda source, dtype: _resize(source, dtype, 3),
    "nn.upsampling": _upsampling,
    **{row.name: _named(conv_case, row.name) for row in conv.TABLE},
    **{row.name: _named(pool_case, row.name) for row in pool.TABLE},
    **{row.name: _named(_pool_grad, row.name) for row in pool_grad.TABLE},
    **{row.name: _named(_adaptive_pool, row.name) for row in adaptive_pool.TABLE},
}
