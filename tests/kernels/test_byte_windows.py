"""Convolutions of bytes by the instruction for them: exact whatever the dtypes, layouts, windows and sizes; other ways
of summing; other targets.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nimblevm as nvm
from nimblevm.kernels import llvm, llvm_byte_windows, targets
from nimblevm.kernels.loop_ir import ByteWindows, Kernel, Load, Store
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements, all_values, values_of
from nimblevm.kernels.schedule import STACK, schedule
from nimblevm.kernels.schedule.narrow import narrowed
from nimblevm.kernels.schedule.regions import regions_of
from nimblevm.kernels.targets import BY_NAME
from tests.kernels.native import Library, Program, bind, parsed

DTYPES = ("int8", "uint8")
LAYOUTS = (("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NCHW", "HWIO"))
SIZES = ((1, 7, 7), (2, 5, 11), (0, 4, 4), (1, 17, 16), (3, 1, 1), (1, 1, 40))
"""Batch, height and width of images."""
LEVEL = BY_NAME["x86-64-v4"].features
VNNI = (*LEVEL, "avx512vnni")
WITHOUT = sorted(name for name, level in BY_NAME.items() if "avx512vnni" not in level.features)
Array = NDArray[Any]


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Any numbers of the dtype, the least and the greatest one often among them."""
    info = np.iinfo(dtype)
    found = rng.integers(info.min, info.max + 1, shape)
    for number, share in ((info.min, 0.2), (info.max, 0.1)):
        found = np.where(rng.random(shape) < share, number, found)
    return found.astype(dtype)


def _conv(x: Array, w: Array, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """The convolution of NCHW and OIHW, exact modulo 2**32; sizes of at least one window."""
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    x, w = np.pad(x.astype("int64"), pads), w.astype("int64")
    outs, inner, *kernel = w.shape
    rows, columns = (
        (size - (k - 1) * dilation - 1) // stride + 1
        for size, k in zip(x.shape[2:], kernel, strict=True)
    )
    out = np.zeros((x.shape[0], outs, rows, columns), "int64")
    each = outs // groups
    for group, r, s in itertools.product(range(groups), range(kernel[0]), range(kernel[1])):
        down = slice(r * dilation, r * dilation + (rows - 1) * stride + 1, stride)
        across = slice(s * dilation, s * dilation + (columns - 1) * stride + 1, stride)
        part = x[:, group * inner : (group + 1) * inner, down, across]
        weights = w[group * each : (group + 1) * each, :, r, s]
        out[:, group * each : (group + 1) * each] += np.einsum("nihw,oi->nohw", part, weights)
    return out.astype("int32")


def _arranged(value: Array, layout: str, order: str) -> Array:
    return np.ascontiguousarray(np.transpose(value, [layout.index(c) for c in order]))


def _text(
    x: str, w: str, shape: dict[str, object], layouts: tuple[str, str] = ("NCHW", "OIHW"), groups: int = 1, **attrs: int
) -> str:  # fmt: skip
    """An nn.conv2d of images of any size. shape: I, of a group, O, and the kernel's H and W."""
    inside = shape["I"]
    channels = inside * groups if isinstance(inside, int) else inside
    data = {"N": "?n", "C": channels, "H": "?h", "W": "?w"}
    of_data, of_weight = (
        ", ".join(str(sizes[c]) for c in layout)
        for sizes, layout in zip((data, shape), layouts, strict=True)
    )
    more = "".join(f", {name}=[{value}, {value}]" for name, value in attrs.items())
    return f"""def @main(%x: Tensor[({of_data}), {x}], %w: Tensor[({of_weight}), {w}]) {{
      nn.conv2d(%x, %w, groups={groups}, channels={shape["O"]}, kernel_size=[{shape["H"]}, {shape["W"]}]{more},
                data_layout="{layouts[0]}", kernel_layout="{layouts[1]}", out_dtype="int32") }}"""


def _lowered(*args: Any, **attrs: Any) -> LoweredKernel:
    return lower_primitive(parsed(_text(*args, **attrs))[1])


def _tiles(kernel: Kernel, features: tuple[str, ...] = VNNI) -> list[ByteWindows]:
    body = schedule(kernel, features).body
    return [s for s in all_statements(body) if isinstance(s, ByteWindows)]


def _library(*kernels: Kernel) -> Library:
    """Of this machine's code, by the instruction where the machine has it."""
    code = llvm.build(kernels, "native")
    assert code is not None
    return Library(code)


def _same(lowered: LoweredKernel, library: Library, args: list[Array], expected: Array) -> None:
    found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
    np.testing.assert_array_equal(found, expected)


@given(
    types=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    layouts=st.sampled_from(LAYOUTS),
    inner=st.integers(1, 9),
    outs=st.integers(1, 30),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    groups=st.sampled_from((1, 1, 1, 2)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_window(
    types: tuple[str, str],
    layouts: tuple[str, str],
    inner: int,
    outs: int,
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    outs *= groups
    shape: dict[str, object] = {"O": outs, "I": inner, "H": kernel[0], "W": kernel[1]}
    lowered = _lowered(
        *types, shape, layouts, groups, strides=stride, padding=padding, dilation=dilation
    )
    # A window of one element is no sum.
    assert len(_tiles(lowered.kernel)) == (inner * kernel[0] * kernel[1] > 1)
    library = _library(lowered.kernel)
    reach = [(k - 1) * dilation + 1 - 2 * padding for k in kernel]
    for batch, height, width in SIZES:
        size = (max(height, reach[0]), max(width, reach[1]))
        x = _bytes(rng, (batch, inner * groups, *size), types[0])
        w = _bytes(rng, (outs, inner, *kernel), types[1])
        expected = _arranged(_conv(x, w, stride, padding, dilation, groups), "NCHW", layouts[0])
        args = [_arranged(x, "NCHW", layouts[0]), _arranged(w, "OIHW", layouts[1])]
        _same(lowered, library, args, expected)


@pytest.mark.parametrize("w_type", DTYPES)
@pytest.mark.parametrize("x_type", DTYPES)
def test_rows_and_panels(x_type: str, w_type: str) -> None:
    """All that tiles are made of: numbers of rows and of columns, and what is left of four elements of a window."""
    rng = np.random.default_rng(1)
    outs = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 25, 49)
    kernels = [
        _lowered(x_type, w_type, {"O": o, "I": 2 + number % 5, "H": 1, "W": 1})
        for number, o in enumerate(outs)
    ]
    library = _library(*(lowered.kernel for lowered in kernels))
    for number, (lowered, o) in enumerate(zip(kernels, outs, strict=True)):
        w = _bytes(rng, (o, 2 + number % 5, 1, 1), w_type)
        for width in (1, 15, 16, 17, 32, 33, 48, 64, 65, 130):
            x = _bytes(rng, (1, 2 + number % 5, 1, width), x_type)
            args = [x, w]
            expected = _conv(x, w, 1, 0, 1, 1)
            program = Program(lowered, args, bind(lowered, args, [expected]))
            found = program.run(library, number)[0]
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", DTYPES)
def test_wraps(kind: str) -> None:
    """2**18 products of -128 and -128 are 2**32, of 255 and 255 more: sums wrap in parts of the window too."""
    channels = (1 << 18) + 1
    lowered = _lowered(kind, kind, {"O": 2, "I": channels, "H": 1, "W": 1})
    limits = np.iinfo(kind)
    x = np.full((1, channels, 1, 1), limits.min or limits.max, kind)
    w = np.stack([np.full((channels, 1, 1), n, kind) for n in (limits.min, limits.max)])
    _same(lowered, _library(lowered.kernel), [x, w], _conv(x, w, 1, 0, 1, 1))


@pytest.mark.parametrize("channels", [900, 1000])
def test_window_in_parts(channels: int) -> None:
    """Of known and of unknown channels, where the table of a window has room for all elements or not."""
    rng = np.random.default_rng(2)
    x, w = _bytes(rng, (1, channels, 4, 5), "int8"), _bytes(rng, (26, channels, 3, 3), "int8")
    for inner in (channels, "?c"):
        lowered = _lowered("int8", "int8", {"O": 26, "I": inner, "H": 3, "W": 3}, padding=1)
        (tile,) = _tiles(lowered.kernel)
        table = schedule(lowered.kernel, VNNI).buffers[tile.offsets]
        assert table.name == STACK
        _same(lowered, _library(lowered.kernel), [x, w], _conv(x, w, 1, 1, 1, 1))


def test_window_of_no_channels() -> None:
    lowered = _lowered("int8", "uint8", {"O": 3, "I": "?c", "H": 2, "W": 2})
    assert len(_tiles(lowered.kernel)) == 1
    x, w = np.zeros((1, 0, 3, 20), "int8"), np.zeros((3, 0, 2, 2), "uint8")
    _same(lowered, _library(lowered.kernel), [x, w], np.zeros((1, 3, 2, 19), "int32"))


def test_epilogue() -> None:
    rng = np.random.default_rng(3)
    text = """def @main(%x: Tensor[(?n, ?h, ?w, 6), uint8], %w: Tensor[(3, 3, 6, 5), int8], %b: Tensor[(5), int32]) {
      %0 = nn.conv2d(%x, %w, padding=[2, 2], channels=5, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO",
                     out_dtype="int32");
      nn.relu(%0 + %b) }"""
    lowered = lower_primitive(parsed(text)[1])
    assert len(_tiles(lowered.kernel)) == 1
    library = _library(lowered.kernel)
    b = rng.integers(-(1 << 20), 1 << 20, 5).astype("int32")
    w = _bytes(rng, (5, 6, 3, 3), "int8")
    for size in ((0, 6, 3, 3), (1, 6, 1, 1), (2, 6, 9, 4)):
        x = _bytes(rng, size, "uint8")
        sums = _arranged(_conv(x, w, 1, 2, 1, 1), "NCHW", "NHWC")
        args = [_arranged(x, "NCHW", "NHWC"), _arranged(w, "OIHW", "HWIO"), b]
        _same(lowered, library, args, np.maximum(sums + b, 0))


def test_depthwise() -> None:
    """A row of weights a group."""
    rng = np.random.default_rng(4)
    lowered = _lowered("int8", "int8", {"O": 7, "I": 1, "H": 3, "W": 3}, groups=7, padding=1)
    assert len(_tiles(lowered.kernel)) == 1
    library = _library(lowered.kernel)
    w = _bytes(rng, (7, 1, 3, 3), "int8")
    for size in ((1, 7, 1, 1), (2, 7, 20, 9)):
        x = _bytes(rng, size, "int8")
        _same(lowered, library, [x, w], _conv(x, w, 1, 1, 1, 7))


@pytest.mark.parametrize(("zero", "weight_zero"), [(0, 0), (3, -2)])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("layout", "kernel_layout"), LAYOUTS)
def test_programs(
    layout: str, kernel_layout: str, native: bool, zero: int, weight_zero: int
) -> None:
    """qnn.conv2d with constant weights, on two threads and interpreted: padded with the zero point."""
    rng = np.random.default_rng(5)
    w = _bytes(rng, (40, 8, 3, 3), "int8")
    data = dict(zip("NCHW", ("?n", "8", "?h", "?w"), strict=True))
    sizes = dict(zip("OIHW", w.shape, strict=True))
    text = f"""#[version = "0.0.5"]
    def @main(%x: Tensor[({", ".join(data[c] for c in layout)}), uint8],
              %w: Tensor[({", ".join(str(sizes[c]) for c in kernel_layout)}), int8]) {{
      qnn.conv2d(%x, %w, {zero}, {weight_zero}, 0.5f, 0.25f, padding=[1, 1], channels=40, kernel_size=[3, 3],
                 data_layout="{layout}", kernel_layout="{kernel_layout}", out_dtype="int32") }}"""
    exe = nvm.compile(
        nvm.relay.parse(text), {"w": _arranged(w, "OIHW", kernel_layout)}, native=native
    )
    with nvm.VirtualMachine(exe, threads=2) as vm:
        for size in ((1, 1), (9, 5), (30, 31)) if native else ((1, 1), (4, 3)):
            x = _bytes(rng, (1, 8, *size), "uint8")
            shifted = [x.astype("int32") - zero, w.astype("int32") - weight_zero]
            expected = _arranged(_conv(shifted[0], shifted[1], 1, 1, 1, 1), "NCHW", layout)
            found = vm.run(_arranged(x, "NCHW", layout)).numpy()
            np.testing.assert_array_equal(found, expected)


def test_tiles_are_divided_among_threads() -> None:
    """Rows and columns of tiles are units, whose table and tile are their own."""
    kernel = _lowered("int8", "int8", {"O": 100, "I": 16, "H": 3, "W": 3}, padding=1).kernel
    scheduled = schedule(kernel, VNNI)
    (tile,) = (s for s in all_statements(scheduled.body) if isinstance(s, ByteWindows))
    found = [r for r in regions_of(scheduled).values() if tile.tile in r.buffers]
    assert [tile.offsets in region.buffers for region in found] == [True]
    assert len(found[0].loops) == 3  # images, groups of rows, groups of columns


@pytest.mark.parametrize("level", WITHOUT)
def test_levels_keep_their_way(level: str) -> None:
    """The levels have no such instruction: scratch of widened weights stays, and a CPU with it takes the tiles."""
    kernel = _lowered("int8", "int8", {"O": 32, "I": 16, "H": 3, "W": 3}).kernel
    features = BY_NAME[level].features
    assert not _tiles(kernel, features)
    dtypes = [b.dtype for b in kernel.buffers]
    assert [b.dtype for b in schedule(kernel, features).buffers][: len(dtypes)] == dtypes
    info = llvm.parse_target(level)
    assert info is not None
    assert "vpdpbusd" not in "".join(llvm.module_texts([kernel], info)[0])


@pytest.mark.parametrize("layouts", LAYOUTS)
def test_section_has_the_instruction(layouts: tuple[str, str]) -> None:
    kernel = _lowered("int8", "int8", {"O": 32, "I": 16, "H": 3, "W": 3}, layouts).kernel
    info = llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))
    assert "vpdpbusd" in "".join(llvm.module_texts([kernel], info)[0])
    (code,) = llvm.build_all([kernel], [info])
    assert "+avx512vnni" in code.target.split(",")
    without_masks = tuple(f for f in VNNI if f != "avx512bw")
    assert not _tiles(kernel, without_masks)


def test_named_target() -> None:
    """Code for other machines has the instruction; without a use for it the section is that of the level below."""
    assert set(VNNI) == set(BY_NAME["x86-64-v4-vnni"].features)
    assert [name for name in BY_NAME if name not in WITHOUT] == ["x86-64-v4-vnni"]
    of_bytes = _lowered("int8", "int8", {"O": 32, "I": 16, "H": 3, "W": 3}).kernel
    other = _lowered("int8", "int8", {"O": 1, "I": 1, "H": 1, "W": 1}).kernel
    both = llvm.parse_targets("x86-64-v4,x86-64-v4-vnni")
    texts = [[code.target for code in llvm.build_all([k], both)] for k in (of_bytes, other)]
    level, with_it = (targets.section_text("x86_64", features) for features in (LEVEL, VNNI))
    assert texts == [[with_it, level], [level]]


def test_only_tiles_ask_for_the_instruction() -> None:
    """A transposed convolution of bytes has none, so that its section fits other CPUs."""
    text = """def @main(%x: Tensor[(2, 8, 9, 9), int8], %w: Tensor[(8, 8, 3, 3), int8]) {
      nn.conv2d_transpose(%x, %w, channels=8, kernel_size=[3, 3], out_dtype="int32") }"""
    kernel = lower_primitive(parsed(text)[1]).kernel
    (code,) = llvm.build_all([kernel], [llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))])
    assert "+avx512vnni" not in code.target.split(",")


@pytest.mark.parametrize(
    "call",
    [
        'nn.conv2d(%x, %w, channels=8, kernel_size=[3, 3], out_dtype="int16")',
        'nn.conv2d_transpose(%x, %w, channels=8, kernel_size=[3, 3], out_dtype="int32")',
        'nn.conv2d(cast(%x, dtype="int32"), cast(%w, dtype="int32"), channels=8, kernel_size=[3, 3])',
    ],
)
def test_others_are_left_alone(call: str) -> None:
    """Sums of another dtype, windows that are turned round, and operands that are no bytes."""
    text = f"""def @main(%x: Tensor[(2, 8, 9, 9), int8], %w: Tensor[(8, 8, 3, 3), int8]) {{ {call} }}"""
    kernel = lower_primitive(parsed(text)[1]).kernel
    assert not _tiles(kernel)
    assert schedule(kernel, VNNI).buffers[: len(kernel.buffers)] == kernel.buffers


def test_scratch_is_narrowed() -> None:
    """Weights in another order are copied as bytes; those in order are read where they are."""
    for layouts, copies in ((LAYOUTS[0], 0), (LAYOUTS[1], 1)):
        kernel = _lowered("int8", "int8", {"O": 4, "I": 3, "H": 2, "W": 2}, layouts).kernel
        buffers, body = narrowed(kernel.buffers, kernel.body)
        changed = [
            number
            for number, (old, new) in enumerate(zip(kernel.buffers, buffers, strict=True))
            if old.dtype != new.dtype
        ]
        assert [(kernel.buffers[n].dtype, buffers[n].dtype) for n in changed] == [("int32", "int8")]
        statements = list(all_statements(body))
        stores = [s for s in statements if isinstance(s, Store) and s.buffer == changed[0]]
        assert [s.value.dtype for s in stores] == ["int8"] * copies
        values = all_values([v for s in statements for v in values_of(s)])
        loads = [v for v in values if isinstance(v, Load) and v.buffer == changed[0]]
        assert [v.dtype for v in loads] == ["int8"] * copies


def test_scratch_of_other_values_is_not_narrowed() -> None:
    text = """def @main(%x: Tensor[(2, 8, 9, 9), int8], %w: Tensor[(8, 8, 3, 3), int8]) {
      nn.conv2d(cast(%x, dtype="int32") * 3, cast(%w, dtype="int32") + 1, channels=8, kernel_size=[3, 3]) }"""
    kernel = lower_primitive(parsed(text)[1]).kernel
    assert narrowed(kernel.buffers, kernel.body) == (kernel.buffers, kernel.body)


@pytest.mark.parametrize(("rows", "panels"), [(12, 2), (6, 2), (12, 1)])
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_sums_stay_in_registers(types: tuple[str, str], rows: int, panels: int) -> None:
    """No sum of a micro-kernel is kept on the stack, and each has an instruction in the loop and behind it."""
    info = llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))
    kernel = _lowered(*types, {"O": 32, "I": 16, "H": 3, "W": 3}).kernel
    text = "".join(llvm.module_texts([kernel], info)[0][:1])
    machine, module = llvm.prepared(text, info)
    assembly = machine.emit_assembly(module)
    name = f"{llvm_byte_windows.symbol(*types)}.{rows}x{panels}"
    body = assembly[assembly.index(f"{name}:") :].split(".size")[0]
    assert body.count("vpdpbusd") == 2 * rows * panels
    assert not [line for line in body.splitlines() if "zmm" in line and line.endswith("(%rsp)")]
