"""Loop IR: serialized form, the C interpreter against the evaluator in Python, faults, hostile bytes."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

import numpy as np
import pytest

from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from nimblevm.kernels.loop_ir_form import deserialize, serialize, structural_hash
from nimblevm.kernels.loop_ir_text import to_text
from nimblevm.kernels.loop_ir_validate import validate
from tests.kernels.ir_harness import Loaded
from tests.kernels.ir_random import Generator


def _same(got: np.ndarray, expected: np.ndarray) -> bool:
    if got.dtype.kind == "f":
        nan = np.isnan(got) & np.isnan(expected)
        bits = got.view(f"u{got.itemsize}") == expected.view(f"u{got.itemsize}")
        return bool((nan | bits).all())
    return bool((got == expected).all())


def _compare(library: ctypes.CDLL, seed: int) -> str:
    generator = Generator(seed)
    kernel = generator.kernel()
    arrays = generator.arrays()
    expected = [array.copy() for array in arrays]
    dims = [generator.m, generator.n]
    status, out_dims = "OK", [0]
    try:
        out_dims = evaluate(kernel, expected, dims)
    except KernelFault as fault:
        status = fault.code
    outcome = Loaded(library, kernel).run(arrays, dims)
    if status != "OK":
        # several faults may be ahead, and a row meets them in another order
        assert outcome.status in ("INDEX_OUT_OF_RANGE", "DIVISION_BY_ZERO"), f"seed {seed}"
        return status
    assert (outcome.status, outcome.out_dims) == ("OK", out_dims), f"seed {seed}"
    for buffer, got, wanted in zip(kernel.buffers, arrays, expected, strict=True):
        assert _same(got, wanted), f"seed {seed}: {buffer.name} ({buffer.dtype})"
    return status


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_kernels_agree_bit_for_bit(library: ctypes.CDLL, first: int) -> None:
    seen = [_compare(library, seed) for seed in range(first, first + 20)]
    assert "OK" in seen


@pytest.mark.slow
def test_many_random_kernels_agree_bit_for_bit(library: ctypes.CDLL) -> None:
    seen = [_compare(library, seed) for seed in range(1000, 2000)]
    assert seen.count("OK") > 300


@pytest.mark.parametrize("seed", range(30))
def test_serialized_form_is_an_identity(seed: int) -> None:
    kernel = Generator(seed).kernel()
    data = serialize(kernel)
    again = deserialize(data, kernel)
    assert serialize(again) == data
    assert structural_hash(again) == structural_hash(kernel)
    assert len(data) % 8 == 0


VI, VJ = ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
N, M = ir.DimRef("int64", 0), ir.DimRef("int64", 1)
SUM = ir.Local("float32", "sum")
X = ir.Buffer("x", "float32", "in", (ir.Axis(N), ir.Axis(M)))
OUT = ir.Buffer("out", "float32", "out", (ir.Axis(N),))


def _kernel(
    *body: ir.Statement, buffers: tuple[ir.Buffer, ...] = (X, OUT), out_dims: int = 0
) -> ir.Kernel:
    return ir.Kernel("k", buffers, ("n", "m"), body, out_dims)


def _load(*indices: ir.Value) -> ir.Load:
    return ir.Load("float32", 0, indices)


ZERO, ZERO_INT = ir.Const("float32", 0.0), ir.Const("int64", 0)
ROW_SUM = _kernel(
    ir.For(
        VI,
        N,
        (
            ir.SetLocal(SUM, ZERO),
            ir.For(VJ, M, (ir.Accumulate(SUM, "add", _load(VI, VJ)),)),
            ir.Store(1, (VI,), SUM),
        ),
    )
)


def test_text_of_a_kernel() -> None:
    assert to_text(ROW_SUM) == (
        "kernel k(n, m):\n  in x: float32[n, m]\n  out out: float32[n]\n  for i < n:\n    sum = 0.0:float32\n"
        "    for j < m:\n      sum += x[i, j]\n    out[i] = sum\n"
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_have_a_text(seed: int) -> None:
    assert to_text(Generator(seed).kernel()).startswith("kernel random(m, n):")


def test_equal_kernels_have_one_hash_and_others_another() -> None:
    again = deserialize(serialize(ROW_SUM), ROW_SUM)
    other = _kernel(*ROW_SUM.body, buffers=(X, ir.Buffer("out", "float32", "out", (ir.Axis(M),))))
    renamed = ir.Kernel("other", again.buffers, ("a", "b"), again.body)
    assert structural_hash(renamed) == structural_hash(ROW_SUM) != structural_hash(other)


BAD_KERNELS = [
    (ir.Store(1, (VI,), ZERO), "loop variable i is used outside its loop"),
    (ir.Store(1, (ZERO_INT,), SUM), "local sum is read before it is set"),
    (ir.Store(0, (ZERO_INT, ZERO_INT), ZERO), "store to input x"),
    (ir.Store(1, (ZERO_INT,), ZERO_INT), "expected float32, got int64"),
    (ir.Store(1, (), ZERO), "out has 1 axes, got 0 indices"),
    (ir.SetDim(0, ZERO_INT), "no out-dim 0"),
    (ir.For(VI, N, (ir.For(VI, N, ()),)), "loop variable i is bound already"),
    (ir.SetLocal(SUM, ir.Unary("float32", "bitnot", ZERO)), "'bitnot' is not defined for float32"),
    (ir.SetLocal(SUM, ir.Binary("float32", "xor", ZERO, ZERO)), "'xor' is not defined for float32"),
    (ir.For(VI, ir.Const("int64", 1 << 63), ()), "does not fit int64"),
    (ir.For(VI, ir.DimRef("int64", 2), ()), "dims has 2 entries, no number 2"),
    (ir.If(ir.Const("bool", True), (ir.SetLocal(SUM, ZERO),)), ""),
]


@pytest.mark.parametrize(("statement", "message"), BAD_KERNELS)
def test_ill_formed_kernels_are_refused_in_python_and_in_c(
    library: ctypes.CDLL, statement: ir.Statement, message: str
) -> None:
    kernel = _kernel(statement)
    if not message:
        return validate(kernel)
    with pytest.raises(ValueError, match=message):
        validate(kernel)
    if "before it is set" not in message and "does not fit" not in message:  # C starts locals as 0
        with pytest.raises(ValueError, match="INVALID_EXECUTABLE: loop IR"):
            Loaded(library, kernel)
    return None


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels_validate(seed: int) -> None:
    """Their locals may be unset, so these are set first."""
    generator = Generator(seed)
    kernel = generator.kernel()
    zeros = tuple(ir.SetLocal(local, ir.Const(local.dtype, 0)) for local in generator.locals)
    validate(ir.Kernel(kernel.name, kernel.buffers, kernel.dims, (*zeros, *kernel.body), 1))


def test_what_both_branches_set_is_set() -> None:
    branch = ir.If(ir.Const("bool", True), (ir.SetLocal(SUM, ZERO),), (ir.SetLocal(SUM, ZERO),))
    validate(_kernel(branch, ir.Store(1, (ZERO_INT,), SUM)))
    with pytest.raises(ValueError, match="read before it is set"):
        validate(_kernel(ir.If(branch.cond, branch.then), ir.Store(1, (ZERO_INT,), SUM)))


def test_a_row_sum_and_its_faults(library: ctypes.CDLL) -> None:
    loaded = Loaded(library, ROW_SUM)
    x = np.arange(3 * 1000, dtype=np.float32).reshape(3, 1000)
    out = np.zeros(3, np.float32)
    assert loaded.run([x, out], [3, 1000]).status == "OK"
    np.testing.assert_allclose(out, x.sum(axis=1), rtol=1e-6)
    assert loaded.run([x, out], [0, 5]).status == "OK"
    assert loaded.run([x, out], [-1, 5]).status == "DIM_OVERFLOW"
    assert loaded.run([x, out], [1 << 62, 1 << 62]).status == "DIM_OVERFLOW"


def test_a_fault_names_operand_index_and_bound(library: ctypes.CDLL) -> None:
    far = ir.Binary("int64", "add", VI, ir.Const("int64", 2))
    kernel = _kernel(ir.For(VI, N, (ir.Store(1, (far,), ZERO),)))
    outcome = Loaded(library, kernel).run([np.zeros((5, 1), "f4"), np.zeros(5, "f4")], [5, 1])
    assert (outcome.status, outcome.operand, outcome.index, outcome.bound) == (
        "INDEX_OUT_OF_RANGE",
        1,
        5,
        5,
    )
    check = ir.CheckIndex("int64", VI, ir.Const("int64", 3), 0)
    kernel = _kernel(ir.For(VI, N, (ir.Store(1, (check,), ZERO),)))
    outcome = Loaded(library, kernel).run([np.zeros((5, 1), "f4"), np.zeros(5, "f4")], [5, 1])
    assert (outcome.status, outcome.operand, outcome.index, outcome.bound) == (
        "INDEX_OUT_OF_RANGE",
        0,
        3,
        3,
    )


def test_a_scan_keeps_the_order_of_turns(library: ctypes.CDLL) -> None:
    after = ir.Binary("int64", "add", VI, ir.Const("int64", 1))
    turns = ir.Binary("int64", "sub", N, ir.Const("int64", 1))
    total = ir.Binary("float32", "add", ir.Load("float32", 1, (VI,)), ir.Const("float32", 1.0))
    kernel = _kernel(ir.For(VI, turns, (ir.Store(1, (after,), total),)))
    out = np.zeros(1000, np.float32)
    assert Loaded(library, kernel).run([np.zeros((1000, 1), "f4"), out], [1000, 1]).status == "OK"
    np.testing.assert_array_equal(out, np.arange(1000))


def test_endless_work_is_stopped(library: ctypes.CDLL) -> None:
    huge = ir.Const("int64", (1 << 63) - 1)
    row = ir.For(VJ, huge, (ir.Accumulate(SUM, "add", ir.Cast("float32", VJ)),))
    loops = ir.For(VI, huge, (ir.For(VJ, ZERO_INT, ()),))
    for body in (row, loops):
        outcome = Loaded(library, _kernel(body)).run(
            [np.zeros((1, 1), "f4"), np.zeros(1, "f4")], [1, 1]
        )
        assert outcome.status == "TIME_LIMIT"


def test_mutated_bytes_are_refused_or_run(library: ctypes.CDLL) -> None:
    generator, chance, loaded = Generator(5), random.Random(5), 0
    kernel = generator.kernel()
    data, arrays = serialize(kernel), generator.arrays()
    for _ in range(1000):
        mutant = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            mutant[chance.randrange(len(mutant))] = chance.choice(
                (0, 1, 2, 3, 255, chance.randrange(256))
            )
        mutant = mutant[: chance.choice((len(mutant),) * 9 + (chance.randrange(len(mutant)),))]
        try:
            body = Loaded(library, kernel, bytes(mutant))
        except ValueError:
            continue
        loaded += 1
        body.run([array.copy() for array in arrays], [generator.m, generator.n])
    assert loaded > 50


def test_an_output_may_share_an_inputs_storage(library: ctypes.CDLL) -> None:
    out = ir.Buffer("out", "float32", "out", (ir.Axis(N), ir.Axis(M)))
    doubled = ir.Store(1, (VI, VJ), ir.Binary("float32", "add", _load(VI, VJ), _load(VI, VJ)))
    body = (ir.For(VI, N, (ir.For(VJ, M, (doubled,)),)),)
    kernel = ir.Kernel("k", (X, out), ("n", "m"), body, 0, ((1, 0),))
    validate(kernel)
    x = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    expected = x * 2
    assert Loaded(library, kernel).run([x, x], [3, 1000]).status == "OK"
    np.testing.assert_array_equal(x, expected)


@pytest.mark.bench
@pytest.mark.parametrize(("m", "n", "k"), [(1, 512, 300), (16, 128, 16), (4, 1024, 1024)])
def test_bench_dense(
    library: ctypes.CDLL, benchmark: Callable[..., None], m: int, n: int, k: int
) -> None:
    """float32 dense in the interpreter; 0.5 GFLOP/s were aimed at. Rate = 2 m n k / time."""
    dim = [ir.DimRef("int64", number) for number in range(3)]
    place = ir.LoopVar("int64", "k")
    shapes = ((dim[0], dim[2]), (dim[1], dim[2]), (dim[0], dim[1]))
    roles: tuple[ir.Role, ...] = ("in", "in", "out")
    buffers = tuple(
        ir.Buffer(name, "float32", role, tuple(ir.Axis(size) for size in shape))
        for name, role, shape in zip("xwo", roles, shapes, strict=True)
    )
    product = ir.Binary("float32", "mul", _load(VI, place), ir.Load("float32", 1, (VJ, place)))
    sums = ir.For(place, dim[2], (ir.Accumulate(SUM, "add", product),))
    inner = ir.For(VJ, dim[1], (ir.SetLocal(SUM, ZERO), sums, ir.Store(2, (VI, VJ), SUM)))
    kernel = ir.Kernel("dense", buffers, ("m", "n", "k"), (ir.For(VI, dim[0], (inner,)),))
    loaded = Loaded(library, kernel)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (n, k)))
    out = np.zeros((m, n), np.float32)
    benchmark(loaded.run, [x, w, out], [m, n, k])
    np.testing.assert_allclose(out, x @ w.T, rtol=1e-3, atol=1e-3)
