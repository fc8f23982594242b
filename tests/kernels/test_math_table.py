"""Accuracy of the mathematical functions, special values, and equal bits in C and in the straight-line definition.

References are fixed-point integers of 1400 bits or extended long doubles, so nothing else is needed.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.kernels.loop_ir_eval import evaluate_math
from nimblevm.kernels.math_table import NAMES, definition, emit_c_header
from tests.kernels.ir_harness import ROOT

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64")
SIZES = {"float32": "f32", "float64": "f64"}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Array]:
    """Calls the C functions of the generated header on arrays."""
    folder = tmp_path_factory.mktemp("math")
    lines = ['#include "generated/nvm_math.h"']
    for name in NAMES:
        for dtype, suffix in SIZES.items():
            kind = {"f32": "float", "f64": "double"}[suffix]
            params = definition(name, dtype).params
            arrays = ", ".join(f"const {kind} *x{k}" for k in range(params))
            call = ", ".join(f"x{k}[i]" for k in range(params))
            lines.append(f"void {name}_{suffix}({kind} *out, {arrays}, long n) {{")
            lines.append(
                f"  for (long i = 0; i < n; ++i) out[i] = nvm_{name}_{suffix}({call});\n}}"
            )
    source, target = folder / "math.c", folder / "math.so"
    source.write_text("\n".join(lines) + "\n")
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-ffp-contract=off",
        "-fno-math-errno",
    ]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", f"-I{ROOT}/native/include", str(source), "-o", str(target), "-lm"], check=True)  # fmt: skip
    library = ctypes.CDLL(str(target))

    def call_c(name: str, *params: Array) -> Array:
        out = np.empty_like(params[0])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (out, *params)]
        getattr(library, f"{name}_{SIZES[str(out.dtype)]}")(*pointers, ctypes.c_long(out.size))
        return out

    return call_c


def _bits(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def _samples(dtype: str, count: int, seed: int) -> Array:
    """Numbers around 1, of every exponent, all bit patterns, and the edges."""
    rng = np.random.default_rng(seed)
    integers = np.int32 if dtype == "float32" else np.int64
    info = np.iinfo(integers)
    finfo = np.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, finfo.max, finfo.min, finfo.tiny, finfo.smallest_subnormal,
             -finfo.smallest_subnormal, finfo.tiny / 3, 0.5, 2.0, 88.7, 88.8, -87.4, -103.9, 709.7, 709.8, -745.2]  # fmt: skip
    parts = [
        rng.normal(0, 1, count),
        rng.uniform(-110, 110, count),
        rng.uniform(-750, 750, count),
        rng.normal(0, 1, count) * 2.0 ** rng.uniform(-60, 8, count),
        1 - np.copysign(2.0 ** rng.uniform(-50, 1, count), rng.normal(0, 1, count)),
        rng.integers(info.min, info.max, count).astype(integers).view(dtype),
        np.array(edges),
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([part.astype(dtype) for part in parts])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_c_and_definition_have_equal_bits(
    functions: Callable[..., Array], name: str, dtype: str
) -> None:
    params = [_samples(dtype, 4000, seed) for seed in range(definition(name, dtype).params)]
    if len(params) == 2:
        params[1] = np.roll(params[1], 1777)
    c, python = functions(name, *params), evaluate_math(definition(name, dtype), *params)
    equal = (_bits(c) == _bits(python)) | (np.isnan(c) & np.isnan(python))
    assert equal.all(), [array[~equal][:5] for array in (*params, c, python)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_ten_million_values_have_equal_bits(
    functions: Callable[..., Array], name: str, dtype: str
) -> None:
    for seed in range(40):
        params = [
            _samples(dtype, 50_000, seed + 100 * k) for k in range(definition(name, dtype).params)
        ]
        if len(params) == 2:
            params[1] = np.roll(params[1], 17_777)
        c, python = functions(name, *params), evaluate_math(definition(name, dtype), *params)
        equal = (_bits(c) == _bits(python)) | (np.isnan(c) & np.isnan(python))
        assert equal.all(), [array[~equal][:5] for array in (*params, c, python)]


def _ulps(got: Array, exact: Array) -> float:
    """Largest error in units of the last place; where the rounded result is no finite number it must be equal."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        finite = np.isfinite(rounded)
        assert ((got == rounded) | (np.isnan(got) & np.isnan(rounded)))[~finite].all()
        spacing = np.abs(np.spacing(rounded[finite])).astype(np.longdouble)
        errors = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / spacing
    return float(errors.max()) if errors.size else 0.0


EXTENDED: dict[str, Callable[[Array], Array]] = {
    "log2": np.log2,
    "log10": np.log10,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
}  # fmt: skip


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="the reference needs an extended long double"
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXTENDED)
def test_accuracy(functions: Callable[..., Array], name: str, dtype: str) -> None:
    x = _samples(dtype, 40000, 7)
    with np.errstate(all="ignore"):
        exact = EXTENDED[name](x.astype(np.longdouble))
    assert _ulps(functions(name, x), exact) <= (4.0 if dtype == "float32" else 2.0)


PRECISION = 1400  # bits of the fixed-point references


def _fixed_sin_cos(x: float) -> tuple[int, int]:
    """sin and cos of x as integers over 2^PRECISION, by reduction modulo pi/2 and Taylor series."""
    one = 1 << PRECISION
    numerator, denominator = x.as_integer_ratio()
    value = numerator * one // denominator
    turns, rest = divmod(value, _half_pi())
    sin = cos = 0
    term, k = one, 0
    while term:
        if k % 2 == 0:
            cos += term if k % 4 == 0 else -term
        else:
            sin += term if k % 4 == 1 else -term
        k += 1
        term = term * rest // (k * one)
    table = [(sin, cos), (cos, -sin), (-sin, -cos), (-cos, sin)]
    return table[turns % 4]


def _half_pi() -> int:
    """pi/2 over 2^PRECISION by Machin's formula."""
    guard = 1 << (PRECISION + 32)

    def arctan_inverse(n: int) -> int:
        total, power, k = 0, guard // n, 0
        while power:
            total += (1 if k % 2 == 0 else -1) * (power // (2 * k + 1))
            power //= n * n
            k += 1
        return total

    return (8 * arctan_inverse(5) - 2 * arctan_inverse(239)) >> 32


def _longdouble(numerator: int, denominator: int) -> np.longdouble:
    sign = -1 if numerator < 0 else 1
    shift = denominator.bit_length() - abs(numerator).bit_length() + 70
    scaled = (
        (abs(numerator) << shift) // denominator
        if shift >= 0
        else abs(numerator) // (denominator << -shift)
    )
    high, low = divmod(scaled, 1 << 40)
    return sign * (np.ldexp(np.longdouble(high), 40 - shift) + np.ldexp(np.longdouble(low), -shift))


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="the reference needs an extended long double"
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy_of_trigonometry_over_the_whole_range(
    functions: Callable[..., Array], dtype: str
) -> None:
    rng = np.random.default_rng(3)
    largest = np.finfo(dtype).maxexp
    parts = [rng.uniform(-10, 10, 60), rng.uniform(-1e6, 1e6, 60), rng.integers(1, 10**6, 60) * (math.pi / 2),
             2.0 ** rng.uniform(19, largest, 60), 2.0 ** rng.uniform(-40, 0, 20)]  # fmt: skip
    x = np.concatenate(parts).astype(dtype)
    pairs = [_fixed_sin_cos(float(value)) for value in x]
    one = 1 << PRECISION
    limit = 4.0 if dtype == "float32" else 2.0
    sin = np.array([_longdouble(pair[0], one) for pair in pairs])
    cos = np.array([_longdouble(pair[1], one) for pair in pairs])
    tan = np.array(
        [_longdouble(pair[0] * (1 if pair[1] > 0 else -1), abs(pair[1])) for pair in pairs]
    )
    for name, exact in (("sin", sin), ("cos", cos), ("tan", tan)):
        assert _ulps(functions(name, x), exact) <= limit, name


@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy_of_erf(functions: Callable[..., Array], dtype: str) -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), 2.0 ** np.linspace(-100, 0, 500)]).astype(dtype)
    exact = np.array([math.erf(float(value)) for value in x])
    # the reference itself is rounded: one more unit for float64
    assert _ulps(functions("erf", x), exact.astype(np.longdouble)) <= (
        4.0 if dtype == "float32" else 3.0
    )


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="the reference needs an extended long double"
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy_of_pow(functions: Callable[..., Array], dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(0.5, 2, 5000), 2.0 ** rng.uniform(-100, 100, 5000)]).astype(
        dtype
    )
    y = np.concatenate([rng.uniform(-80, 80, 5000), rng.uniform(-1, 1, 5000)]).astype(dtype)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert _ulps(functions("pow", x, y), exact) <= 4.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_of_pow_are_those_of_c(functions: Callable[..., Array], dtype: str) -> None:
    mantissa = np.finfo(dtype).nmant
    odd = 2.0 ** (mantissa + 1) - 1
    values: list[float] = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 7, -7, np.inf, -np.inf, np.nan, odd, -odd, odd + 1,
              float(np.finfo(dtype).tiny) / 4, 1e30, -1e30]  # fmt: skip
    x, y = (grid.ravel().astype(dtype) for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    got = functions("pow", x, y)
    nan = np.isnan(got) & np.isnan(expected)
    close = np.isclose(got, expected, rtol=1e-6, atol=0) & (np.signbit(got) == np.signbit(expected))
    assert (nan | close).all(), list(zip(x[~(nan | close)], y[~(nan | close)], strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["sin", "tan", "tanh", "erf", "sinh", "asin", "atan", "asinh", "atanh"]
)
def test_odd_functions_keep_the_sign_of_zero(
    functions: Callable[..., Array], name: str, dtype: str
) -> None:
    got = functions(name, np.array([0.0, -0.0], dtype))
    assert list(np.signbit(got)) == [False, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_of_whole_powers_are_exact(functions: Callable[..., Array], dtype: str) -> None:
    info = np.finfo(dtype)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp).astype(dtype)
    assert (functions("log2", np.exp2(exponents)) == exponents).all()
    tens = np.arange(11 if dtype == "float32" else 23)
    assert (functions("log10", np.array([10.0**k for k in tens], dtype)) == tens).all()


def test_the_committed_header_is_what_the_table_gives() -> None:
    header = Path(ROOT, "native", "include", "generated", "nvm_math.h")
    assert header.read_text(encoding="utf-8") == emit_c_header()
