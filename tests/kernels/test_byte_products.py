"""Products of bytes by the instruction for them: exact whatever the dtypes, rows, columns and depths; other targets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import nimblevm as nvm
from nimblevm.kernels import llvm, llvm_bytes
from nimblevm.kernels.loop_ir import ByteProduct, Const, Kernel
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.targets import BY_NAME
from tests.kernels.native import Library, Program, bind, parsed

DTYPES = ("int8", "uint8")
ROWS = (0, 1, 2, 3, 5, 6, 7, 12, 23, 24, 25, 50)
COLUMNS = (1, 3, 4, 63, 64, 65, 131)
DEPTHS = (0, 1, 3, 4, 63, 64, 65, 130)
LEVEL = BY_NAME["x86-64-v4"].features
VNNI = (*LEVEL, "avx512vnni")
WITHOUT = sorted(name for name, level in BY_NAME.items() if "avx512vnni" not in level.features)


def _dense(rows: str, depth: str, units: str, x: str, w: str) -> LoweredKernel:
    text = f"""def @main(%x: Tensor[({rows}, {depth}), {x}], %w: Tensor[({units}, {depth}), {w}]) {{
      nn.dense(%x, %w, out_dtype="{"int32" if x in DTYPES else x}") }}"""
    return lower_primitive(parsed(text)[1])


def _products(kernel: Kernel, features: tuple[str, ...]) -> list[ByteProduct]:
    body = schedule(kernel, features).body
    return [s for s in all_statements(body) if isinstance(s, ByteProduct)]


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
    """Any numbers of the dtype, the least and the greatest one often among them."""
    info = np.iinfo(dtype)
    found = rng.integers(info.min, info.max + 1, shape)
    for number, share in ((info.min, 0.2), (info.max, 0.1)):
        found = np.where(rng.random(shape) < share, number, found)
    return found.astype(dtype)


def _library(*kernels: Kernel) -> Library:
    """Of this machine's code, by the instruction where the machine has it."""
    code = llvm.build(kernels, "native")
    assert code is not None
    return Library(code)


def _same(lowered: LoweredKernel, library: Library, *args: NDArray[np.generic]) -> None:
    x, w = (a.astype("int32") for a in args[:2])
    expected = np.matmul(x, np.swapaxes(w, -1, -2))
    found = Program(lowered, list(args), bind(lowered, list(args), [expected])).run(library)[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("w_type", DTYPES)
@pytest.mark.parametrize("x_type", DTYPES)
def test_every_size(x_type: str, w_type: str) -> None:
    rng = np.random.default_rng(1)
    lowered = _dense("?m", "?k", "?n", x_type, w_type)
    library = _library(lowered.kernel)
    for rows in ROWS:
        for columns, depth in _sizes(rows):
            x, w = _bytes(rng, (rows, depth), x_type), _bytes(rng, (columns, depth), w_type)
            _same(lowered, library, x, w)


def _sizes(rows: int) -> Iterator[tuple[int, int]]:
    """All columns at each number of rows, and all depths."""
    for number, columns in enumerate((0, *COLUMNS)):
        yield columns, DEPTHS[(number + rows) % len(DEPTHS)]
    for depth in DEPTHS:
        yield 65, depth


@pytest.mark.parametrize("columns", COLUMNS)
def test_known_columns(columns: int) -> None:
    rng = np.random.default_rng(2)
    lowered = _dense("?m", "70", str(columns), "int8", "int8")
    library = _library(lowered.kernel)
    for rows in ROWS:
        _same(lowered, library, _bytes(rng, (rows, 70), "int8"), _bytes(rng, (columns, 70), "int8"))


@pytest.mark.parametrize("w_type", DTYPES)
@pytest.mark.parametrize("x_type", DTYPES)
def test_extremes(x_type: str, w_type: str) -> None:
    """All pairs of the least and the greatest numbers: a corrected sum of flipped bytes is still exact."""
    lowered = _dense("4", "4096", "4", x_type, w_type)
    library = _library(lowered.kernel)
    limits = [np.iinfo(dtype) for dtype in (x_type, w_type)]
    numbers = [[i.min, i.max, i.min // 2, 0] for i in limits]
    x, w = (
        np.repeat(np.asarray(n, dtype)[:, None], 4096, axis=1)
        for n, dtype in zip(numbers, (x_type, w_type), strict=True)
    )
    _same(lowered, library, x, w)


def test_wraps() -> None:
    """2**18 products of -128 and -128 are 2**32, and one more wraps to what it is alone."""
    depth = (1 << 18) + 1
    lowered = _dense("1", "?k", "2", "int8", "int8")
    library = _library(lowered.kernel)
    x = np.full((1, depth), -128, "int8")
    w = np.stack([np.full(depth, -128, "int8"), np.full(depth, 127, "int8")])
    exact = x.astype("int64") @ w.astype("int64").T
    out = np.zeros((1, 2), "int32")
    found = Program(lowered, [x, w], bind(lowered, [x, w], [out])).run(library)[0]
    np.testing.assert_array_equal(found, exact.astype("int32"))
    assert found[0, 0] == 128 * 128


def test_batches_and_epilogue() -> None:
    rng = np.random.default_rng(3)
    text = """def @main(%x: Tensor[(3, ?m, 40), int8], %w: Tensor[(3, 50, 40), uint8], %b: Tensor[(50), int32]) {
      nn.relu(nn.batch_matmul(%x, %w, out_dtype="int32", transpose_b=True) + %b) }"""
    lowered = lower_primitive(parsed(text)[1])
    assert len(_products(lowered.kernel, VNNI)) == 1
    library = _library(lowered.kernel)
    b = rng.integers(-(1 << 31), 1 << 31, 50).astype("int32")
    for rows in (0, 1, 30):
        x, w = _bytes(rng, (3, rows, 40), "int8"), _bytes(rng, (3, 50, 40), "uint8")
        product = np.matmul(x.astype("int32"), np.swapaxes(w, 1, 2).astype("int32"))
        expected = np.maximum(product + b, 0)
        args = [x, w, b]
        found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
        np.testing.assert_array_equal(found, expected)


def test_two_threads() -> None:
    """A whole program, with a constant weight that is as large as what threads divide."""
    rng = np.random.default_rng(4)
    w = _bytes(rng, (200, 300), "int8")
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?m, 300), uint8], %w: Tensor[(200, 300), int8]) {
      qnn.dense(%x, %w, 3, -2, 0.5f, 0.25f, units=200, out_dtype="int32") }"""
    exe = nvm.compile(nvm.relay.parse(text), {"w": w})
    with nvm.VirtualMachine(exe, threads=2) as vm:
        for rows in (0, 1, 100):
            x = _bytes(rng, (rows, 300), "uint8")
            expected = (x.astype("int32") - 3) @ (w.astype("int32") + 2).T
            np.testing.assert_array_equal(vm.run(x).numpy(), expected)


@pytest.mark.parametrize("level", WITHOUT)
def test_levels_keep_their_way(level: str) -> None:
    """The levels have no such instruction: their code is what it was, and a CPU with it takes the tiles."""
    kernel = _dense("?m", "70", "131", "int8", "int8").kernel
    features = BY_NAME[level].features
    assert not _products(kernel, features)
    info = llvm.parse_target(level)
    assert info is not None
    assert "vpdpbusd" not in "".join(llvm.module_texts([kernel], info)[0])


def test_tiles_with_the_instruction() -> None:
    kernel = _dense("?m", "70", "131", "int8", "int8").kernel
    columns = [p.columns for p in _products(kernel, VNNI)]
    assert [c.value for c in columns if isinstance(c, Const)] == [64, 3]
    info = llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))
    assert "vpdpbusd" in "".join(llvm.module_texts([kernel], info)[0])
    without_masks = tuple(f for f in VNNI if f != "avx512bw")
    assert not _products(kernel, without_masks)


def test_only_products_of_bytes_ask_for_the_instruction() -> None:
    """A section for this machine fits others as long as it has no use for what they lack."""
    info = llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))
    product = _dense("?m", "70", "131", "int8", "int8").kernel
    floats = _dense("?m", "70", "131", "float32", "float32").kernel
    asked = {}
    for name, kernels in (("floats", [floats]), ("both", [floats, product])):
        (code,) = llvm.build_all(kernels, [info])
        asked[name] = set(code.target.removeprefix("x86_64:").split(","))
    assert asked["both"] - asked["floats"] == {"+avx512vnni"}
    assert asked["floats"] == {f"+{f}" for f in LEVEL}


@pytest.mark.parametrize(
    ("dtype", "product"),
    [
        ("int8", 'nn.dense(%x, %w, out_dtype="int16")'),
        ("int8", 'nn.batch_matmul(%x, %w, out_dtype="int32")'),
        ("int32", "nn.dense(%x, %w)"),
    ],
)
def test_others_are_left_alone(dtype: str, product: str) -> None:
    """Sums of another dtype, a right operand that runs along the columns, and operands that are no bytes."""
    shape = (2, 8, 8) if "batch" in product else (8, 8)
    operands = ", ".join(f"%{name}: Tensor[{shape}, {dtype}]" for name in "xw")
    lowered = lower_primitive(parsed(f"def @main({operands}) {{ {product} }}")[1])
    assert not _products(lowered.kernel, VNNI)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8")])
def test_sums_stay_in_registers(types: tuple[str, str], rows: int) -> None:
    """No loop of a micro-kernel stores to the stack, and each has an instruction a sum."""
    info = llvm.TargetInfo("x86_64", tuple(sorted(VNNI)))
    text = "".join(llvm.module_texts([_dense("?m", "?k", "?n", *types).kernel], info)[0][:1])
    machine, module = llvm.prepared(text, info)
    assembly = machine.emit_assembly(module)
    name = f"{llvm_bytes.symbol(*types)}.{rows}x4"
    body = assembly[assembly.index(f"{name}:") :].split(".size")[0]
    assert body.count("vpdpbusd") == 2 * 4 * rows
    assert not [line for line in body.splitlines() if "zmm" in line and "(%rsp)" in line]
