"""pow(x, y) = exp(y log x), with C99's special cases. float32 goes through float64, float64 carries log x as a pair.

Source of the special cases: ISO C11, F.10.4.4.
"""

from __future__ import annotations

from nimblevm.kernels.math_core import (
    FORMATS,
    Pair,
    absolute,
    clamp,
    exp_parts,
    fast_two_sum,
    log_of,
    pair_product,
    scale,
    split_log,
    two_product,
)
from nimblevm.kernels.math_program import Program, Term, poly

_h = float.fromhex
INF, NAN = float("inf"), float("nan")
# ((log((1+s)/(1-s)) - 2s) / s^3 - 2/3) / s^2 in z = s^2 on 0 <= z <= 0.02945
_LOG_TAIL = (
    "0x1.999999999999ap-2", "0x1.2492492492522p-2", "0x1.c71c71c6ea871p-3", "0x1.745d177aad02ap-3",
    "0x1.3b1395c881220p-3", "0x1.1118c9ee5b8a4p-3", "0x1.df7c5bc7c7563p-4", "0x1.e032e4d8436a1p-4",
)  # fmt: skip


def log_pair(x: Term) -> Pair:
    """log x of a positive finite float64 to about 2^-64: 2s + 2/3 s^3 (pairs) + s^5 T(s^2) with s = f/(2+f)."""
    p, form = x.program, FORMATS["f64"]
    k, f = split_log(x)
    d, d_lo = fast_two_sum(p.const(2.0, "f64"), f)
    s = f / d
    product, error = two_product(s, d)
    s_lo = (((f - product) - error) - s * d_lo) / d
    z = pair_product((s, s_lo), (s, s_lo))
    cube = pair_product((s, s_lo), z)
    third = p.const(_h("0x1.5555555555555p-1"), "f64"), p.const(_h("0x1.5555555555555p-55"), "f64")
    t, t_lo = pair_product(cube, third)
    tail = (cube[0] * z[0]) * poly(z[0], map(_h, _LOG_TAIL))
    hi, lo = fast_two_sum(s + s, t)
    hi, lo = fast_two_sum(hi, lo + ((s_lo + s_lo) + (t_lo + tail)))
    total, rest = fast_two_sum(k * form.ln2_hi, hi)
    return fast_two_sum(total, rest + (k * form.ln2_lo + lo))


def _magnitude(x: Term, y: Term) -> Term:
    """x^y of positive finite x; y may be anything but NaN. A y of 2^65 decides as an infinite one does."""
    y = clamp(y, -(2.0**65), 2.0**65)
    form = FORMATS["f64"]
    if x.program.dtype == "float32":
        n, hi, _ = exp_parts(clamp(y * log_of(x), -746.0, 710.0))
        return scale(hi, n, form).convert("f32")
    log, log_lo = log_pair(x)
    product, error = two_product(y, log)
    n, hi, _ = exp_parts(clamp(product, -760.0, 720.0), clamp(error + y * log_lo, -1.0, 1.0))
    return scale(hi, n, form)


def _is_integer(y: Term) -> Term:
    """For any y; infinities count as integers."""
    size = absolute(y)
    large = 2.0 ** FORMATS[y.type].mantissa
    return (size >= large) | (((size + large) - large).eq(size))


def power(p: Program) -> Term:
    """C's pow."""
    x, y = p.params
    size = absolute(x)
    result = _magnitude(size.convert("f64"), y.convert("f64"))
    rising = y > 0.0
    result = size.eq(0.0).select(rising.select(p.const(0.0), INF), result)
    result = size.eq(INF).select(rising.select(p.const(INF), 0.0), result)
    whole = _is_integer(y)
    odd = whole & ~_is_integer(y * 0.5)
    negative = x.bits() < 0
    result = (negative & odd).select(result * -1.0, result)
    result = (((x < 0.0) & (size < INF)) & ~whole).select(NAN, result)
    result = (x.eq(x) & y.eq(y)).select(result, NAN)
    return (x.eq(1.0) | y.eq(0.0)).select(1.0, result)
