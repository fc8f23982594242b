"""Products with packed weights: rows, columns and depths around the tiles, several products in a kernel, targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.loop_ir import Binary, Const, DimRef, For, PanelProduct, Value
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.variants import Choices, Shape, Variant
from nimblevm.relay.op.dense_pack import (
    block_panels,
    in_pairs,
    panels_of,
    shared_panels,
    to_bfloat16,
    widened,
)
from tests.kernels.fused import floats
from tests.kernels.native import Library, Program, agree, bind, parsed

ROWS = (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 18, 24, 25)
UNITS = (1, 15, 16, 17, 64, 70, 150)


def _dense(rows: str, depth: int, units: int, dtype: str = "float32", width: int = 16) -> str:
    panels = -(-units // width)
    return f"""def @main(%x: Tensor[({rows}, {depth}), {dtype}], %w: Tensor[({panels}, {depth}, {width}), {dtype}],
      %b: Tensor[({units}), {dtype}]) {{
      tanh(nn.contrib_dense_pack(%x, %w, weight_layout="NC{width}n", units={units}) + %b) }}"""


def _products(lowered: LoweredKernel, features: tuple[str, ...]) -> int:
    body = schedule(lowered.kernel, features).body
    return sum(isinstance(s, PanelProduct) for s in all_statements(body))


def _crossed() -> Iterator[Any]:
    """All of units, dtype and width; fast are what floats' wide panels do at their edges, and the others at one."""
    for units in UNITS:
        for width, dtype in ((16, "float32"), (64, "float32"), (16, "float64"), (64, "float64")):
            fast = (units in (1, 64, 150)) if (width, dtype) == (64, "float32") else units == 17
            yield pytest.param(units, dtype, width, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("units", "dtype", "width"), [*_crossed()])
def test_every_row_count(units: int, dtype: str, width: int) -> None:
    depth = 37
    lowered = lower_primitive(parsed(_dense("?m", depth, units, dtype, width))[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    assert _products(lowered, ("avx512f",)) == (1 if units > 1 else 0)
    w, b = floats(units, depth).astype(dtype), floats(units).astype(dtype)
    for rows in ROWS:
        x = floats(rows, depth).astype(dtype)
        expected = np.tanh(x @ w.T + b)
        args = [x, panels_of(w, width), b]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-5, 1e-5), rows


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("width", [pytest.param(16, marks=pytest.mark.slow), 64])
def test_every_target_this_machine_runs(target: str, width: int) -> None:
    info, host = llvm.parse_target(target), llvm.parse_target("native")
    if info is None or host is None or not set(info.features) <= set(host.features):
        pytest.skip(f"this machine does not run {target}")
    lowered = lower_primitive(parsed(_dense("?m", 21, 70, width=width))[1])
    code = llvm.build([lowered.kernel], target)
    assert code is not None
    library = Library(code)
    w, b = floats(70, 21), floats(70)
    for rows in ROWS:
        x = floats(rows, 21)
        expected = np.tanh(x @ w.T + b)
        args = [x, panels_of(w, width), b]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-5, 1e-5), rows


def _evaluate(value: Value, at: dict[Value, int]) -> int:
    match value:
        case Const(value=number):
            return int(number)
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = _evaluate(lhs, at), _evaluate(rhs, at)
            return {
                "add": a + b,
                "sub": a - b,
                "mul": a * b,
                "min": min(a, b),
                "max": max(a, b),
                "floordiv": a // max(b, 1),
                "floormod": a % max(b, 1),
            }[op]
        case DimRef():
            return at[_ROWS]
        case _:
            return at[value]


_ROWS = DimRef("int64", 0)
"""Stands for the number of rows in `_evaluate`."""


def _blocks_of(tile: str) -> tuple[For, PanelProduct]:
    """The loop over blocks of rows of a kernel with one product or several, and its first product."""
    text = _dense("?m", 40, 150)
    if tile == "several":
        two = " + ".join(
            f'nn.contrib_dense_pack(%x, %{w}, weight_layout="NC16n", units=32)' for w in "uv"
        )
        weights = ", ".join(f"%{w}: Tensor[(2, 40, 16), float32]" for w in "uv")
        text = f"def @main(%x: Tensor[(?m, 40), float32], {weights}) {{ {two} }}"
    body = schedule(lower_primitive(parsed(text)[1]).kernel, ("avx512f",)).body
    product = next(s for s in all_statements(body) if isinstance(s, PanelProduct))
    block = next(s for s in all_statements(body) if isinstance(s, For) and s.var.name.endswith("q"))
    return block, product


@pytest.mark.parametrize("tile", ["one", "several"])
def test_no_block_is_a_single_row(tile: str) -> None:
    height = 12 if tile == "one" else 6
    block, product = _blocks_of(tile)
    for rows in range(100):
        number = _evaluate(block.extent, {_ROWS: rows})
        found = [_evaluate(product.rows, {_ROWS: rows, block.var: q}) for q in range(number)]
        assert sum(found) == rows
        assert len(found) == -(-rows // height)
        assert all(1 < r <= height for r in found) or rows == 1
        assert sum(r < height for r in found) <= (2 if rows % height == 1 else 1)


@pytest.mark.parametrize("width", [16, 64])
def test_what_is_fetched_meanwhile(width: int) -> None:
    """Blocks of rows fetch the next group's weights in turns: the whole of it, the first group's after the last one."""
    depth, units = 40, 150
    body = schedule(
        lower_primitive(parsed(_dense("?m", depth, units, width=width))[1]).kernel, ("avx512f",)
    ).body
    group = next(s for s in all_statements(body) if isinstance(s, For))
    block = next(s for s in group.body if isinstance(s, For))
    product = next(s for s in all_statements(body) if isinstance(s, PanelProduct))
    assert product.following is not None
    assert product.following.buffer == product.w.buffer
    indices = product.following.indices

    def places(g: int, rows: int) -> list[int]:
        """Where the weights begin that each block fetches, in elements."""
        found = []
        for q in range(-(-rows // 12)):
            at: dict[Value, int] = {group.var: g, block.var: q, _ROWS: rows}
            panel, k, lane = (_evaluate(index, at) for index in indices)
            assert lane == 0
            found.append((panel * depth + k) * width)
        return found

    for g, following in enumerate((1, 2, 0)):
        quarters = [following * 64 * depth + part * 16 * depth for part in range(4)]
        assert places(g, 48) == [quarters[0], quarters[2]] * 2  # six rows fetch a quarter
        assert places(g, 64) == [*quarters, *quarters[:2]]  # an eighth, as there are many blocks


def test_few_blocks_of_rows_are_known() -> None:
    block, product = _blocks_of("one")
    assert product.blocks is block.extent
    for rows, blocks in ((1, 1), (12, 1), (13, 2), (24, 2), (25, 3)):
        assert _evaluate(block.extent, {_ROWS: rows}) == blocks


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 5])
def test_short_depths(depth: int) -> None:
    lowered = lower_primitive(parsed(_dense("2", depth, 20))[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    x, w, b = floats(2, depth), floats(20, depth), floats(20)
    expected = np.tanh(x @ w.T + b)
    args: list[np.ndarray[Any, Any]] = [x, panels_of(w), b]
    found = Program(lowered, args, bind(lowered, args, [expected])).run(Library(code))[0]
    assert agree(found, expected, 1e-5, 1e-5)


def test_nothing_is_said_about_wishes(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM says on stderr which loops that should be vectors are none."""
    lowered = lower_primitive(parsed(_dense("?m", 33, 66, width=64))[1])
    assert llvm.build([lowered.kernel], "native") is not None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("units", [16, 40])
def test_gates_of_a_cell_share_a_kernel(units: int) -> None:
    """Products of two inputs of different depth, two results."""
    panels = -(-units // 16)
    text = f"""def @main(%x: Tensor[(?m, 5), float32], %h: Tensor[(?m, 9), float32], %c: Tensor[(?m, {units}), float32],
      %u: Tensor[({panels}, 5, 16), float32], %v: Tensor[({panels}, 9, 16), float32],
      %w: Tensor[({panels}, 9, 16), float32]) {{
      let %a = nn.contrib_dense_pack(%x, %u, weight_layout="NC16n", units={units});
      let %b = nn.contrib_dense_pack(%h, %v, weight_layout="NC16n", units={units});
      let %d = nn.contrib_dense_pack(%h, %w, weight_layout="NC16n", units={units});
      let %new = sigmoid(%a + %b) * %c;
      (%new, tanh(%new) * %d) }}"""
    lowered = lower_primitive(parsed(text)[1])
    assert _products(lowered, ("avx512f",)) == 3
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    u, v, w = floats(units, 5), floats(units, 9), floats(units, 9)
    for rows in ROWS:
        x, h, c = floats(rows, 5), floats(rows, 9), floats(rows, units)
        new = (1 / (1 + np.exp(-(x @ u.T + h @ v.T))) * c).astype("float32")
        expected = [new, (np.tanh(new) * (h @ w.T)).astype("float32")]
        args = [x, h, c, panels_of(u), panels_of(v), panels_of(w)]
        found = Program(lowered, args, bind(lowered, args, expected)).run(library)
        assert agree(found[0], expected[0], 1e-5, 1e-5)
        assert agree(found[1], expected[1], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("units", "pieces", "block", "dtype"),
    [
        (150, 5, 75, "float32"),
        (20, 3, 20, "float32"),
        pytest.param(22, 4, 11, "float32", marks=pytest.mark.slow),
        pytest.param(6, 3, 2, "float32", marks=pytest.mark.slow),
        pytest.param(40, 2, 10, "float64", marks=pytest.mark.slow),
    ],
)
def test_gates_that_share_panels(units: int, pieces: int, block: int, dtype: str) -> None:
    """One product, whose tile is read at any column."""
    depth, panels = 7, units // block * block_panels(pieces, block)
    gates = "\n".join(
        f'let %g{i} = nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units={units}, '
        f"piece=({i}, {pieces}, {block}));"
        for i in range(pieces)
    )
    total = " + ".join(
        f"%g{i} * {i + 1}{'f' if dtype == 'float32' else 'f64'}" for i in range(pieces)
    )
    text = f"""def @main(%x: Tensor[(?m, {depth}), {dtype}], %w: Tensor[({panels}, {depth}, 16), {dtype}]) {{
      {gates} (tanh({total}), %g1) }}"""
    lowered = lower_primitive(parsed(text)[1])
    assert _products(lowered, ("avx512f",)) == (1 if block_panels(pieces, block) > 1 else 0)
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    weights = [floats(units, depth).astype(dtype) for _ in range(pieces)]
    for rows in ROWS:
        x = floats(rows, depth).astype(dtype)
        products = [x @ w.T for w in weights]
        total_of = sum((i + 1) * p for i, p in enumerate(products))
        expected = [np.tanh(total_of).astype(dtype), products[1]]
        args = [x, shared_panels(weights, block)]
        found = Program(lowered, args, bind(lowered, args, expected)).run(library)
        assert agree(found[0], expected[0], 1e-5, 1e-5)
        assert agree(found[1], expected[1], 1e-5, 1e-5)


def test_some_of_the_products_that_share_panels() -> None:
    """Only the panels that these have columns in are multiplied."""
    text = """def @main(%x: Tensor[(?m, 7), float32], %w: Tensor[(10, 7, 16), float32]) {
      nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units=36, piece=(2, 4, 18))
        * tanh(nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units=36, piece=(3, 4, 18))) }"""
    lowered = lower_primitive(parsed(text)[1])
    (product,) = [
        s
        for s in all_statements(schedule(lowered.kernel, ("avx512f",)).body)
        if isinstance(s, PanelProduct)
    ]
    assert isinstance(product.panels, Const)
    assert product.panels.value == 3  # columns 36 to 71 of 80
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    weights = [floats(36, 7) for _ in range(4)]
    for rows in (1, 9):
        x = floats(rows, 7)
        expected = ((x @ weights[2].T) * np.tanh(x @ weights[3].T)).astype("float32")
        args = [x, shared_panels(weights, 18)]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(Library(code))[0]
        assert agree(found, expected, 1e-5, 1e-5)


def test_batches_of_rows() -> None:
    text = """def @main(%x: Tensor[(?b, ?m, 6), float32], %w: Tensor[(2, 6, 16), float32]) {
      nn.relu(nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units=30)) }"""
    lowered = lower_primitive(parsed(text)[1])
    assert _products(lowered, ("avx512f",)) == 1
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    w = floats(30, 6)
    for batch, rows in ((0, 3), (1, 1), (3, 0), (2, 13), (3, 7)):
        x = floats(batch, rows, 6)
        expected = np.maximum(x @ w.T, 0)
        args = [x, panels_of(w)]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "uint16"])
def test_weights_of_16_bits(dtype: str) -> None:
    text = f"""def @main(%x: Tensor[(?m, 37), float32], %w: Tensor[(5, 37, 16), {dtype}]) {{
      nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units=70) }}"""
    lowered = lower_primitive(parsed(text)[1])
    assert _products(lowered, ("avx512f",)) == 1
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    w = floats(70, 37)
    half = to_bfloat16(w) if dtype == "uint16" else w.astype("float16")
    for rows in ROWS:
        x = floats(rows, 37)
        expected = x @ widened(half).T
        args = [x, panels_of(half)]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-5, 1e-5), rows


@pytest.mark.parametrize("target", ["native", "x86-64-v3", "x86-64"])
@pytest.mark.parametrize("units", [2, 16, 31, 64, 70, 100, 128])
@pytest.mark.parametrize("depth", [0, 2, 37])
def test_weights_in_pairs(depth: int, units: int, target: str) -> None:
    """They meet the micro-kernel of one row, also where the second panel of a pair is empty."""
    panels = -(-units // 64)
    text = f"""def @main(%x: Tensor[(1, {depth}), float32], %w: Tensor[({panels}, {depth}, 2, 16, 2), uint16]) {{
      nn.contrib_dense_pack(%x, %w, weight_layout="NC2n16n2n", units={units}) }}"""
    lowered = lower_primitive(parsed(text)[1])
    assert _products(lowered, ("avx512f",)) == 1
    code = llvm.build([lowered.kernel], target)
    assert code is not None
    w, x = to_bfloat16(floats(units, depth)), floats(1, depth)
    expected = x @ widened(w).T
    args = [x, in_pairs(panels_of(w, 64))]
    found = Program(lowered, args, bind(lowered, args, [expected])).run(Library(code))[0]
    assert agree(found, expected, 1e-5, 1e-5)


def test_bfloat16_rounds_to_nearest_even() -> None:
    bits = np.array(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0xBF7FFFFF, 0x7F7FFFFF], np.uint32
    )
    wanted = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xBF80, 0x7F80]
    assert to_bfloat16(bits.view(np.float32)).tolist() == wanted
    special = to_bfloat16(np.array([np.inf, -np.inf, np.nan], np.float32))
    assert special[:2].tolist() == [0x7F80, 0xFF80]
    assert np.isnan(widened(special))[2]


@pytest.mark.parametrize(
    "variant", [Variant((1,), 1), Variant((1, 2, 4), 2, 512, 7), Variant((1, 6), 4, 0, 48), Variant((1, 9, 12), 4, 0, 24)], ids=lambda v: v.key
)  # fmt: skip
def test_variants_compute_the_same(variant: Variant) -> None:
    lowered = lower_primitive(parsed(_dense("?m", 21, 70))[1])
    choices = Choices({Shape("float32", "float32", 21, 70): variant})
    code = llvm.build([lowered.kernel], "native", choices)
    assert code is not None
    library = Library(code)
    w, b = floats(70, 21), floats(70)
    for rows in (*ROWS, 49, 97):
        x = floats(rows, 21)
        expected = np.tanh(x @ w.T + b)
        args = [x, panels_of(w), b]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        assert agree(found, expected, 1e-5, 1e-5), rows


@pytest.mark.parametrize("units", [8, 40, 70])
def test_columns_that_fill_no_panel_stay_one_masked_vector(units: int) -> None:
    """The schedules after that of panels rebuilt the loops around them without the wish, up to 64 columns."""
    kernel = lower_primitive(parsed(_dense("?m", 37, units))[1]).kernel
    for features in (("avx512f",), ("avx", "avx2", "fma"), ("neon",)):
        loops = [s for s in all_statements(schedule(kernel, features).body) if isinstance(s, For)]
        (masked,) = [loop for loop in loops if loop.masked]
        assert isinstance(masked.extent, Const)
        assert masked.extent.value == units % 16
