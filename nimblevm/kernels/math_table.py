"""exp, log, tanh, ...: one definition each, from which C, loop IR and LLVM are made. Standard library only.

Accuracy: float32 within 4 ulp; float64 within 2 ulp, pow and trigonometry beyond 1e5 within 4 (tested densely).
float16 goes through float32. The polynomials are fits (Chebyshev, minimax) made once with 40 digits or more; beside
each stands what it approximates and where. `definition(name, dtype)` gives the straight-line program,
`emit_c_header()` the C text.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.kernels.math_core import (
    FORMATS,
    absolute,
    at_least,
    clamp,
    exp_parts,
    log_of,
    negative,
    power_of_two,
    scale,
    short_exp,
    table_poly,
    with_sign,
)  # fmt: skip
from nimblevm.kernels.math_more import FUNCTIONS
from nimblevm.kernels.math_pow import power
from nimblevm.kernels.math_program import C_TYPE, FLOAT_TYPE, Definition, Program, Term, c_function
from nimblevm.kernels.math_trig import cosine, sine, tangent

# (tanh(x)/x - 1) / x^2 in z = x^2 on 0 <= z <= 0.305
_TANH: dict[str, tuple[str, ...]] = {
    "f64": ("-0x1.5555555555555p-2", "0x1.1111111111111p-3", "-0x1.ba1ba1ba1b94ap-5", "0x1.664f4882b9a4ep-6",
                "-0x1.226e355c3d65dp-7", "0x1.d6d3d01d416d3p-9", "-0x1.7da34e2e29f0fp-10", "0x1.35567606d0300p-11",
                "-0x1.f55078feb4a2ep-13", "0x1.94dd35b8ec8ffp-14", "-0x1.3f24ea5725102p-15", "0x1.bea879df757ddp-17",
                "-0x1.917fd5faa08e0p-19"),
}  # fmt: skip
# erf(x)/x - 1 in z = x^2 on 0 <= z <= 1
_ERF_SMALL = {
    "f32": ("0x1.06eba2p-3", "-0x1.812672p-2", "0x1.ce08f6p-4", "-0x1.b5a048p-6", "0x1.423978p-8",
                "-0x1.271656p-11"),
    "f64": ("0x1.06eba8214db69p-3", "-0x1.812746b0379e7p-2", "0x1.ce2f21a042be2p-4", "-0x1.b82ce31288b47p-6",
                "0x1.565bcd0e6a2eep-8", "-0x1.c02db40035f1ep-11", "0x1.f9a326f7ac5b1p-14", "-0x1.f4d25bf9af03ap-17",
                "0x1.b9e6c38e5cf3dp-20", "-0x1.5f73c3bf14b91p-23", "0x1.fcbb312b48443p-27", "-0x1.517ce02f1265fp-30",
                "0x1.9a0fcb5e22c5bp-34", "-0x1.b40e7abf9f000p-38", "0x1.3c01fd3a74542p-42"),
}  # fmt: skip
# erfc(x)^(1/8) on 1 <= x <= 4
_ERFC_ROOT: dict[str, tuple[str, ...]] = {
    "f32": ("0x1.0035dep+0", "-0x1.28fb0cp-3", "-0x1.f7df1ap-5", "-0x1.727324p-7", "0x1.a685fcp-7",
                "-0x1.42b98ep-9", "0x1.38b88ap-13"),
}  # fmt: skip
# erfc(x) * exp(x^2) in t = (x - 2)/(x + 2) on 1 <= x <= 6
_ERFC: dict[str, tuple[str, ...]] = {
    "f64": ("0x1.058671b52c776p-2", "-0x1.b57034efd3f72p-2", "0x1.eeea7dc8a78b2p-3", "-0x1.437f0b68c0bf9p-4",
                "0x1.e9471597a34fap-9", "0x1.ca95ed53330abp-8", "-0x1.bc25a48226114p-11", "-0x1.016b5cdd369e9p-10",
                "0x1.6d5f08aa8da72p-15", "0x1.6da96d093525bp-13", "0x1.cdc9f9c4835afp-16", "-0x1.ceb2f59b612b6p-16",
                "-0x1.d478495725ffcp-17", "0x1.729906ef9c143p-20", "0x1.f8ae6103ef0fcp-19", "0x1.5126f5fcd1198p-20",
                "-0x1.0fb4b130c533cp-21", "-0x1.49e10d18d5753p-21", "0x1.1ff3ece6f55cfp-23"),
}  # fmt: skip


INF, NAN = float("inf"), float("nan")


def _exp(p: Program) -> Term:
    """float32: 2^n (1 + p) with 2^n times 2^64 or 1/2, so that it is a normal number where the result is subnormal or
    has the largest exponent (1.1 ulp). float64: with the error of p, in two steps of scaling.
    """
    (x,) = p.params
    if p.dtype == "float32":
        small = x <= 0.0
        s, rest = short_exp(clamp(x, -104.0, 89.0), small.select(p.const(64.0), -1.0))
        return (s + s * rest) * small.select(p.const(2.0**-64), 2.0)
    n, hi, _ = exp_parts(clamp(x, -746.0, 710.0))
    return scale(hi, n, FORMATS[p.float])


def _log(p: Program) -> Term:
    (x,) = p.params
    result = log_of(x)
    result = (x > 0.0).select(result, x.eq(0.0).select(p.const(-INF), NAN))
    return x.eq(INF).select(x, result)


def _sigmoid(p: Program) -> Term:
    """With e = exp(-|x|): 1/(1+e) for x >= 0, else e/(1+e).

    float32: e, and with it 1, is 2^64 times as large, so that it is never subnormal (2.3 ulp). float64: e and 1+e carry
    their rounding errors along.
    """
    (x,) = p.params
    form = FORMATS[p.float]
    positive = x >= 0.0
    if p.dtype == "float32":
        one = p.const(2.0**64, "f32")
        s, rest = short_exp(at_least(negative(x), -104.0), 64)
        e = s + s * rest
        return positive.select(one, e) / (one + e)
    n, hi, lo = exp_parts(clamp(0.0 - absolute(x), -746.0, 0.0))
    e, e_lo = scale(hi, n, form), scale(lo, n, form)
    d = 1.0 + e
    q = positive.select(p.const(1.0), e) / d
    d_lo = (e - (d - 1.0)) + e_lo
    return q + (positive.select(p.const(0.0), e_lo) - q * d_lo) / d


def _tanh(p: Program) -> Term:
    """float32: with m = 1 - exp(-2|x|), which has small relative error, m/(2-m) (2.5 ulp).

    float64: |x| < 0.55: x + x^3 P(x^2); else with e = exp(-2|x|): 1 - 2e/(1+e), rounding errors carried along.
    """
    (x,) = p.params
    form = FORMATS[p.float]
    a = absolute(x)
    if p.dtype == "float32":
        s, rest = short_exp(at_least(a * -2.0, -20.0))
        m = (1.0 - s) - s * rest
        return with_sign(m / (2.0 - m), x)
    z = x * x
    small = a + a * (z * table_poly(z, _TANH))
    n, hi, lo = exp_parts(clamp(a * -2.0, -60.0, 0.0))
    power = power_of_two(n, form)
    e, e_lo = hi * power, lo * power
    d = 1.0 + e
    q = (e + e) / d
    d_lo = (e - (d - 1.0)) + e_lo
    large = 1.0 - (q + ((e_lo + e_lo) - q * d_lo) / d)
    return with_sign((a < 0.55).select(small, large), x)


def _erf(p: Program) -> Term:
    """x + x P(x^2) for |x| < 1, else 1 - erfc(|x|): erfc = exp(-x^2) W((|x| - 2)/(|x| + 2)) for float64.

    float32: erfc = R(|x|)^8. What is left of 1 needs few bits, and the root is so flat that few powers of |x| give it
    (2.2 ulp). The form is that of Hastings, "Approximations for Digital Computers", 1955, without his quotient.
    """
    (x,) = p.params
    a = absolute(x)
    small = a + a * table_poly(a * a, _ERF_SMALL)
    if p.dtype == "float32":
        root = table_poly((a > 4.0).select(4.0, a), _ERFC_ROOT)
        square = root * root
        fourth = square * square
        erfc = fourth * fourth
    else:
        form = FORMATS[p.float]
        b = clamp(a, 0.5, 6.0)
        n, hi, _ = exp_parts((b * b) * -1.0)
        erfc = (hi * power_of_two(n, form)) * table_poly((b - 2.0) / (b + 2.0), _ERFC)
    return with_sign((a < 1.0).select(small, 1.0 - erfc), x)


def _rsqrt(p: Program) -> Term:
    (x,) = p.params
    return 1.0 / x.sqrt()


_BODIES: dict[str, tuple[int, Callable[[Program], Term]]] = {
    "exp": (1, _exp),
    "log": (1, _log),
    "sigmoid": (1, _sigmoid),
    "tanh": (1, _tanh),
    "erf": (1, _erf),
    "rsqrt": (1, _rsqrt),
    "sin": (1, sine),
    "cos": (1, cosine),
    "tan": (1, tangent),
    "pow": (2, power),
    **{name: (1, body) for name, body in FUNCTIONS.items()},
}
NAMES: tuple[str, ...] = tuple(_BODIES)
_DEFINITIONS: dict[tuple[str, str], Definition] = {}
for _name, (_count, _body) in _BODIES.items():
    for _dtype in FLOAT_TYPE:
        _program = Program(_dtype, _count)
        _DEFINITIONS[_name, _dtype] = _program.finish(_name, _body(_program))


def definition(name: str, dtype: str) -> Definition:
    """The program of function `name` (one of NAMES) for float32 or float64. Raises KeyError naming what is known."""
    try:
        return _DEFINITIONS[name, dtype]
    except KeyError:
        raise KeyError(
            f"no math function {name!r} for {dtype}; known: {', '.join(NAMES)}"
        ) from None


def emit_c_header() -> str:
    """native/include/generated/nvm_math.h: static inline functions nvm_<name>_f32 and nvm_<name>_f64."""
    lines = [
        "/* generated by native/gen_tables.py from kernels/math_table.py, do not edit */",
        "/* clang-format off */",
        "#ifndef NVM_MATH_H",
        "#define NVM_MATH_H",
        "",
        "#include <math.h>",
        "#include <stdint.h>",
        "#include <string.h>",
        "",
    ]
    for source, target in (("f32", "i32"), ("i32", "f32"), ("f64", "i64"), ("i64", "f64")):
        lines += [
            f"static inline {C_TYPE[target]} nvm_bits_{source}_{target}({C_TYPE[source]} x) {{",
            f"  {C_TYPE[target]} y;",
            "  memcpy(&y, &x, sizeof y);",
            "  return y;",
            "}",
            "",
        ]
    for row in _DEFINITIONS.values():
        lines += [*c_function(row, row.c_name), ""]
    return "\n".join([*lines, "#endif", ""])
