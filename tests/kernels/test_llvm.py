"""Machine code: fused functions, exact bits of conversions and math, faults, targets, equal bytes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import pytest

from nimblevm.errors import Cancelled, CompileError, DivisionByZero, IndexOutOfRange, NimbleWarning
from nimblevm.kernels import link, llvm, llvm_kernel, targets
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.loop_ir_eval import evaluate_math
from nimblevm.kernels.lower import lower_primitive
from nimblevm.kernels.math_table import NAMES, definition
from nimblevm.relay.op.registry import find
from tests.kernels import native
from tests.kernels.fused import FUSED, floats
from tests.kernels.native import Library, Program, agree, bind, parsed, program


def compiled(text: str, target: str = "native") -> tuple[Library, Kernel]:
    kernel = lower_primitive(parsed(text)[1]).kernel
    code = llvm.build([kernel], target)
    assert code is not None
    assert code.functions == (0,)
    return Library(code), kernel


def run(text: str, *args: np.ndarray, target: str = "native") -> np.ndarray:
    """The first output, by machine code."""
    lowered = lower_primitive(parsed(text)[1])
    env = {d: n for t, a in zip(lowered.param_types, args, strict=True)
           for d, n in zip(t.shape, a.shape, strict=True) if not isinstance(d, int)}  # fmt: skip
    code = llvm.build([lowered.kernel], target)
    assert code is not None
    return Program(lowered, list(args), env).run(Library(code))[0]  # type: ignore[arg-type]


def test_fused_functions_agree_with_the_oracle() -> None:
    made = {name: program(text, *args) for name, (text, args) in FUSED.items()}
    code = llvm.build([p.lowered.kernel for p, _ in made.values()], "native")
    assert code is not None
    library = Library(code)
    for index, (name, (made_, expected)) in zip(code.functions, made.items(), strict=True):
        for a, b in zip(made_.run(library, index), expected, strict=True):
            assert agree(a, b, 1e-4, 1e-5), name


def test_products_of_all_tile_sizes() -> None:
    """Rows and columns below, at and above the tile, and depths with every remainder of a vector."""
    text = """def @main(%x: Tensor[(?m, ?k), float32], %w: Tensor[(?n, ?k), float32], %b: Tensor[(?n), float32]) {
    tanh(nn.bias_add(nn.dense(%x, %w), %b)) }"""
    lowered = lower_primitive(parsed(text)[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    for m in (0, 1, 2, 3, 4, 5, 8, 9):
        for n in (0, 1, 3, 4, 6, 17):
            for k in (0, 1, 7, 8, 15, 33):
                x, w, b = floats(m, k), floats(n, k), floats(n)
                expected = np.tanh(x.astype("float64") @ w.T.astype("float64") + b).astype(
                    "float32"
                )
                args = [x, w, b]
                found = Program(lowered, args, bind(lowered, args, [expected])).run(library)[0]
                assert agree(found, expected, 1e-4, 1e-5), (m, n, k)


@pytest.mark.parametrize("transpose", ["True", "False"])
def test_batch_matmul_with_either_operand_order(transpose: str) -> None:
    shape = (2, 21, 13) if transpose == "True" else (2, 13, 21)
    text = f"""def @main(%x: Tensor[(2, ?m, 13), float32], %w: Tensor[{shape}, float32]) {{
    nn.batch_matmul(%x, %w, transpose_b={transpose}) }}"""
    x, w = floats(2, 5, 13), floats(*shape)
    right = np.swapaxes(w, 1, 2) if transpose == "True" else w
    assert agree(run(text, x, w), np.matmul(x, right), 1e-4, 1e-5)


def test_in_place_gives_the_same() -> None:
    """An output on its input's storage, where the kernel allows it."""
    library, kernel = compiled("def @main(%x: Tensor[(?n), float32]) { add(multiply(%x, %x), %x) }")
    assert kernel.alias == ((1, 0),)
    for size in (0, 1, 7, 64, 1001):
        x = floats(size)
        expected = x * x + x
        assert library.call(0, [x, x], [size]) == 0
        np.testing.assert_array_equal(x, expected)


def levels() -> list[str]:
    """The targets that this CPU runs."""
    host = llvm.parse_target("native")
    infos = (llvm.parse_target(level.name) for level in targets.LEVELS)
    return [
        info.name
        for info in infos
        if host and info and info.arch == host.arch and {*info.features} <= {*host.features}
    ]


@pytest.mark.parametrize("target", levels())
def test_float16_conversion_is_exact(target: str) -> None:
    halves = np.arange(65536, dtype="uint16").view("float16")
    widen = 'def @main(%x: Tensor[(?n), float16]) { cast(%x, dtype="float32") }'
    np.testing.assert_array_equal(run(widen, halves, target=target), halves.astype("float32"))
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 200_000, dtype="uint32")
    # Ties and neighbours of halves decide the rounding.
    near = halves[np.isfinite(halves)].astype("float32").view("uint32")
    values = np.concatenate((bits, near, near + 0x1000, near + 0xFFF, near + 0x1001)).view(
        "float32"
    )
    narrow = 'def @main(%x: Tensor[(?n), float32]) { cast(%x, dtype="float16") }'
    with np.errstate(all="ignore"):
        found = run(narrow, values, target=target)
        np.testing.assert_array_equal(found, values.astype("float16"))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_math_has_the_bits_of_its_definition(dtype: str) -> None:
    check_math(dtype, "native", NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("target", levels())
def test_math_has_the_same_bits_with_every_target(target: str) -> None:
    """No product is fused into a sum where there is FMA."""
    for dtype in ("float32", "float64"):
        check_math(dtype, target, NAMES)


def check_math(dtype: str, target: str, names: Iterable[str]) -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate(
        (rng.normal(0, 20, 20_000), rng.normal(0, 1, 20_000), 10.0 ** rng.uniform(-40, 38, 5_000))
    )
    x = np.concatenate((x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])).astype(dtype)
    unary = [
        name for name in names if find(name) is not None and definition(name, dtype).params == 1
    ]
    programs = [
        program(f"def @main(%x: Tensor[(?n), {dtype}]) {{ {name}(%x) }}", x)[0] for name in unary
    ]
    code = llvm.build([one.lowered.kernel for one in programs], target)
    assert code is not None
    library = Library(code)
    for index, name, one in zip(code.functions, unary, programs, strict=True):
        with np.errstate(all="ignore"):
            expected = evaluate_math(definition(name, dtype), x)
        found = one.run(library, index)[0]
        integer = "int32" if dtype == "float32" else "int64"
        same = (found.view(integer) == expected.view(integer)) | (
            np.isnan(found) & np.isnan(expected)
        )
        assert same.all(), (name, x[~same][:3], found[~same][:3], expected[~same][:3])


def test_rounding_without_instructions_for_it() -> None:
    """x86-64 without SSE4.1 has no floor; the C library must not be called."""
    x = np.concatenate(
        (
            floats(1000) * 100,
            [0.5, -0.5, 0.49999997, 2.5, -2.5, 0.0, -0.0, 2.0**23 + 1, -(2.0**31), np.inf, np.nan],
        )
    )
    x = x.astype("float32")
    with np.errstate(all="ignore"):
        fraction = np.abs(x - np.trunc(x))
        rounded = np.trunc(np.where(fraction >= 0.5, x + np.copysign(np.float32(0.5), x), x))
    for name, expected in (("floor", np.floor(x)), ("ceil", np.ceil(x)), ("round", rounded)):
        library, _ = compiled(f"def @main(%x: Tensor[(?n), float32]) {{ {name}(%x) }}", "x86-64")
        out = np.empty_like(x)
        assert library.call(0, [x.astype("float32"), out], [x.size]) == 0
        np.testing.assert_array_equal(np.signbit(out), np.signbit(expected), name)
        np.testing.assert_array_equal(out, expected, name)


def test_remainders_are_exact() -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate(
        (rng.normal(0, 1e6, 2000), [5.0, -5.0, 0.0, -0.0, np.inf, 3.0, np.nan, 1e-310, 5e-324])
    )
    y = np.concatenate(
        (rng.normal(0, 3, 2000), [np.inf, np.inf, 2.0, 2.0, 2.0, 0.0, 1.0, 3e-320, 1e-323])
    )
    with np.errstate(all="ignore"):
        expected, floored = np.fmod(x, y), np.mod(x, y)
    params = "%x: Tensor[(?n), float64], %y: Tensor[(?n), float64]"
    np.testing.assert_array_equal(run(f"def @main({params}) {{ mod(%x, %y) }}", x, y), expected)
    np.testing.assert_array_equal(
        run(f"def @main({params}) {{ floor_mod(%x, %y) }}", x, y), floored
    )


def test_faults_are_reported_not_trapped() -> None:
    divide = "def @main(%x: Tensor[(?n), int32], %y: Tensor[(?n), int32]) { divide(%x, %y) }"
    least = np.iinfo("int32").min
    x, y = np.asarray([7, least, -7], "int32"), np.asarray([2, -1, 2], "int32")
    np.testing.assert_array_equal(run(divide, x, y), [3, least, -3])
    with pytest.raises(DivisionByZero):
        run(divide, x, np.asarray([1, 0, 1], "int32"))
    take = """def @main(%t: Tensor[(?n), float32], %i: Tensor[(?k), int64]) {
    take(%t, %i, axis=0, mode="fast") }"""
    with pytest.raises(IndexOutOfRange):
        run(take, floats(3), np.asarray([0, 3]))
    with pytest.raises(IndexOutOfRange):
        run(take, floats(3), np.asarray([-1]))


def test_long_loops_ask_whether_to_go_on() -> None:
    text = (
        "def @main(%x: Tensor[(?m, 8), float32], %w: Tensor[(8, 8), float32]) { nn.dense(%x, %w) }"
    )
    args = (floats(1000, 8), floats(8, 8))
    native.polled[0] = 0
    run(text, *args)
    assert 10 <= native.polled[0] <= 1000
    native.polls[:] = [native.STOP]
    with pytest.raises(Cancelled):
        run(text, *args)
    assert native.polls == []


ROWS = {
    "broadcast": "def @main(%x: Tensor[(?m, ?n), float32], %y: Tensor[(?n), float32]) { %x + %y }",
    "sum": "def @main(%x: Tensor[(?m, ?n), float32]) { sum(%x, axis=[1]) }",
    "softmax": "def @main(%x: Tensor[(?m, ?n), float32]) { nn.softmax(%x) }",
    "cumsum": "def @main(%x: Tensor[(?m, ?n), float32]) { cumsum(%x, axis=1) }",
    "transpose": "def @main(%x: Tensor[(?m, ?n), float32]) { transpose(%x) }",
}


@pytest.mark.parametrize("name", ROWS)
def test_long_rows_ask_in_the_middle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row between two polls is what a Ctrl-C waits for at most."""
    for most in ("POLL_ROW", "POLL_ELEMENTS"):
        monkeypatch.setattr(llvm_kernel, most, 100)
    text = ROWS[name]
    shape = (2000, 2) if name == "transpose" else (2, 2000)
    args = [floats(*shape), *([floats(2000)] if name == "broadcast" else [])]
    native.polled[0] = 0
    expected = run(text, *args)
    assert native.polled[0] >= 2 * 19, "20 pieces a row"
    native.polls[:] = [
        native.STOP,
        *([0] * 25),
    ]  # the last one is given first: stop in the second row
    with pytest.raises(Cancelled):
        run(text, *args)
    assert native.polls == []
    np.testing.assert_array_equal(run(text, *args), expected)


def test_equal_input_gives_equal_bytes_and_needs_nothing() -> None:
    kernels = [lower_primitive(parsed(text)[1]).kernel for text, _ in list(FUSED.values())[:6]]
    first, second = llvm.build(kernels, "x86-64-v3"), llvm.build(kernels, "x86-64-v3")
    assert first is not None
    assert second is not None
    assert first.elf == second.elf
    assert link.undefined_symbols(first.elf) == ()
    assert b"DT_NEEDED" not in first.elf
    assert first.target.startswith("x86_64:")
    assert "+avx2" in first.target.split(":")[1].split(",")
    assert set(first.producer) == {"llvmlite", "linker", "target"}


def test_targets() -> None:
    generic = llvm.parse_target("generic")
    assert generic is not None
    assert generic.text == "x86_64"
    assert llvm.parse_target("llvm") == llvm.parse_target("native")
    assert llvm.parse_target("none") is None
    with pytest.raises(CompileError, match="unknown target 'cuda'; known: native"):
        llvm.parse_target("cuda")
    kernel = lower_primitive(parsed(FUSED["lstm_cell"][0])[1]).kernel
    assert llvm.build([kernel], "none") is None
    assert llvm.build([], "native") is None
    (text,), functions = llvm.module_texts([kernel], llvm.TargetInfo("aarch64", ("neon",)))
    assert functions == (0,)
    assert llvm.compile_text(text, llvm.TargetInfo("aarch64", ("neon",)))[:4] == b"\x7fELF"


def test_without_llvmlite_or_linker_the_caller_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = lower_primitive(parsed(FUSED["tuple_parameter"][0])[1]).kernel
    with monkeypatch.context() as patch:
        patch.setattr(llvm, "HAVE_LLVM", False)
        with pytest.warns(NimbleWarning, match="llvmlite is not installed"):
            assert llvm.build([kernel]) is None
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(NimbleWarning, match="no linker"):
        assert llvm.build([kernel]) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert llvm.build([kernel], "none") is None
