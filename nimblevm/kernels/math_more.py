"""log2, log10, the hyperbolic functions and the inverse ones, computed in float64; float32 is rounded once at the end.

Standard library only. Logarithms carry hi + lo (math_pow), so that they are right to the last place and exact where
the result is an integer. The polynomials are Chebyshev fits made once with 50 digits; those of sinh are Taylor's.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.kernels.math_core import (
    FORMATS,
    Pair,
    absolute,
    clamp,
    exp_parts,
    fast_two_sum,
    pair_product,
    scale,
    two_product,
    two_sum,
    with_sign,
)
from nimblevm.kernels.math_pow import log_pair
from nimblevm.kernels.math_program import Program, Term, poly

_h = float.fromhex
INF, NAN = float("inf"), float("nan")
_F64 = FORMATS["f64"]
_HUGE = 2.0**28  # from here on x^2 + 1 and x^2 - 1 are x^2 in float64
_HALF_PI = ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")
_PI = ("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53")
_LN2 = ("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
_PER_LN2 = ("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56")
_PER_LN10 = ("0x1.bcb7b1526e50ep-2", "0x1.95355baaafad3p-57")
# (sinh(x)/x - 1) / x^2 in z = x^2 on 0 <= z <= 1
_SINH = (
    "0x1.5555555555555p-3", "0x1.1111111111111p-7", "0x1.a01a01a01a01ap-13", "0x1.71de3a556c734p-19",
    "0x1.ae64567f544e4p-26", "0x1.6124613a86d09p-33", "0x1.ae7f3e733b81fp-41", "0x1.952c77030ad4ap-49",
    "0x1.2f49b46814157p-57",
)  # fmt: skip
# (asin(x)/x - 1) / x^2 in z = x^2 on 0 <= z <= 1/4
_ASIN = (
    "0x1.5555555555556p-3", "0x1.3333333332ec4p-4", "0x1.6db6db6e3292ep-5", "0x1.f1c71c1d4aa0dp-6",
    "0x1.6e8bb1d89492bp-6", "0x1.1c4d343fa57f6p-6", "0x1.c9cf3759fd8ffp-7", "0x1.78246f32d075cp-7",
    "0x1.524ea8b3aad31p-7", "0x1.653a8f8cfd43cp-8", "0x1.1d661531b222ep-6", "-0x1.e7a24f548c99fp-7",
    "0x1.d78189767524ep-6",
)  # fmt: skip
# (atan(x)/x - 1) / x^2 in z = x^2 on 0 <= z <= 0.1915
_ATAN = (
    "-0x1.5555555555555p-2", "0x1.99999999998c4p-3", "-0x1.2492492485417p-3", "0x1.c71c71bd21787p-4",
    "-0x1.745d154ac3da3p-4", "0x1.3b1375a0eb258p-4", "-0x1.110c9a0c8644ap-4", "0x1.e1704532a7e28p-5",
    "-0x1.ab582fd05ec97p-5", "0x1.6ffb4e901f5dbp-5", "-0x1.0f54730d6c30ep-5", "0x1.e3ddb8d3850abp-7",
)  # fmt: skip
# atan x = c + atan t:  upper bound of x, t = (p x + q) / (r x + s), c as a pair; above the last bound t = -1/x
_ATAN_PIECES = (
    (7 / 16, (1.0, 0.0, 0.0, 1.0), ("0x0p+0", "0x0p+0")),
    (11 / 16, (2.0, -1.0, 1.0, 2.0), ("0x1.dac670561bb4fp-2", "0x1.a2b7f222f65e2p-56")),
    (19 / 16, (1.0, -1.0, 1.0, 1.0), ("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55")),
    (39 / 16, (1.0, -1.5, 1.5, 1.0), ("0x1.f730bd281f69bp-1", "0x1.007887af0cbbdp-56")),
)  # fmt: skip

Body = Callable[[Term], Term]


def in_float64(function: Body) -> Callable[[Program], Term]:
    """`function` of float64, for both dtypes."""

    def body(p: Program) -> Term:
        return function(p.params[0].convert("f64")).convert(p.float)

    return body


def _pair(like: Term, texts: tuple[str, str]) -> Pair:
    return like.program.const(_h(texts[0]), "f64"), like.program.const(_h(texts[1]), "f64")


def _sum(a: Pair, b: Pair) -> Pair:
    hi, lo = two_sum(a[0], b[0])
    return fast_two_sum(hi, lo + (a[1] + b[1]))


def _either(choice: Term, if_true: Pair, if_false: Pair) -> Pair:
    return choice.select(if_true[0], if_false[0]), choice.select(if_true[1], if_false[1])


def _log_of_pair(x: Pair) -> Pair:
    """log(hi + lo), |lo| at most an ulp of hi: log hi + q - q^2/2 with q = lo/hi."""
    q = x[1] / x[0]
    hi, lo = log_pair(x[0])
    return _sum((hi, lo), (q, q * q * -0.5))


def _root(square: Pair) -> Pair:
    """The square root of hi + lo >= 0."""
    root = square[0].sqrt()
    product, error = two_product(root, root)
    rest = ((square[0] - product) - error) + square[1]
    return root, root.eq(0.0).select(0.0, rest / (root + root))


def _logarithm(factor: tuple[str, str]) -> Body:
    def body(x: Term) -> Term:
        hi, lo = pair_product(log_pair(x), _pair(x, factor))
        result = hi + lo
        result = (x > 0.0).select(result, x.eq(0.0).select(x.program.const(-INF, "f64"), NAN))
        return x.eq(INF).select(x, result)

    return body


def _half_exp(a: Term) -> Pair:
    """exp(a) / 2 of a >= 0."""
    n, hi, lo = exp_parts(clamp(a, 0.0, 711.0))
    return scale(hi, n - 1, _F64), scale(lo, n - 1, _F64)


def _sinh(x: Term) -> Term:
    """|x| < 1: x + x^3 P(x^2); else (e - 1/e) / 2."""
    a = absolute(x)
    z = a * a
    small = a + a * (z * poly(z, map(_h, _SINH)))
    hi, lo = _half_exp(a)
    large = hi.eq(INF).select(hi, hi + (lo - 0.25 / hi))
    return with_sign((a < 1.0).select(small, large), x)


def _cosh(x: Term) -> Term:
    hi, lo = _half_exp(absolute(x))
    return hi.eq(INF).select(hi, hi + (lo + 0.25 / hi))


def _asinh(x: Term) -> Term:
    """log(1 + u), u = a + a^2 / (1 + sqrt(1 + a^2)); of huge a log(a) + log 2."""
    a = absolute(x)
    huge = a > _HUGE
    b = huge.select(1.0, a)
    square = b * b
    u = fast_two_sum(b, square / (1.0 + (1.0 + square).sqrt()))
    hi, lo = two_sum(b.program.const(1.0, "f64"), u[0])
    hi, lo = fast_two_sum(hi, lo + u[1])
    log = _log_of_pair(_either(huge, (a, a * 0.0), (hi, lo)))
    log = _either(huge, _sum(log, _pair(x, _LN2)), log)
    return with_sign((a < INF).select(log[0] + log[1], a), x)


def _acosh(x: Term) -> Term:
    """log(x + sqrt((x - 1)(x + 1))); of huge x log(x) + log 2."""
    huge = x > _HUGE
    b = huge.select(2.0, x)
    one = x.program.const(1.0, "f64")
    below, above = two_sum(b, one * -1.0), two_sum(b, one)
    root = _root(pair_product(below, above))
    # The smaller parts first: near 1 the root is tiny, and so is what it is added to.
    rest = _sum(below, root)
    hi, lo = _sum((one, one * 0.0), rest)
    log = _log_of_pair(_either(huge, (x, one * 0.0), (hi, lo)))
    log = _either(huge, _sum(log, _pair(x, _LN2)), log)
    result = (x >= 1.0).select(log[0] + log[1], NAN)
    return x.eq(INF).select(x, result)


def _atanh(x: Term) -> Term:
    """|x| < 1/8: x + x^3 P(x^2), the series of log; else log((1 + x) / (1 - x)) / 2."""
    a = absolute(x)
    one = x.program.const(1.0, "f64")
    z = a * a
    series = poly(z, (1 / k for k in range(3, 23, 2)))
    small = a + a * (z * series)
    above, below = two_sum(one, a), two_sum(one, 0.0 - a)
    q = above[0] / below[0]
    product, error = two_product(q, below[0])
    rest = ((above[0] - product) - error) + (above[1] - q * below[1])
    log = _log_of_pair(fast_two_sum(q, rest / below[0]))
    large = (log[0] + log[1]) * 0.5
    result = (a < 0.125).select(small, (a < 1.0).select(large, a.eq(1.0).select(one * INF, NAN)))
    return with_sign(absolute(result), x)


def _atan(x: Term) -> Term:
    a = absolute(x)
    one = x.program.const(1.0, "f64")
    above, below, base = one * -1.0, a, _pair(x, _HALF_PI)
    for bound, (p, q, r, s), constant in reversed(_ATAN_PIECES):
        inside = a < bound
        above = inside.select(a * p + q, above)
        below = inside.select(a * r + s, below)
        base = _either(inside, _pair(x, constant), base)
    t = above / below
    z = t * t
    result = base[0] - ((t * (z * -1.0) * poly(z, map(_h, _ATAN)) - base[1]) - t)
    return with_sign((a <= INF).select(result, a), x)


def _arc(x: Term) -> tuple[Term, Pair]:
    """|x| < 1/2, and asin of r as a pair: r = |x| there, else sqrt((1 - |x|) / 2)."""
    a = absolute(x)
    small = a < 0.5
    w = (1.0 - a) * 0.5
    root = _root((w, w * 0.0))
    r = _either(small, (a, a * 0.0), root)
    z = small.select(a * a, w)
    return small, fast_two_sum(r[0], r[0] * (z * poly(z, map(_h, _ASIN))) + r[1])


def _asin(x: Term) -> Term:
    small, (hi, lo) = _arc(x)
    top, rest = _sum(_pair(x, _HALF_PI), (hi * -2.0, lo * -2.0))
    return with_sign(absolute(small.select(hi + lo, top + rest)), x)


def _acos(x: Term) -> Term:
    small, (hi, lo) = _arc(x)
    negative = x < 0.0
    near = negative.select(hi, hi * -1.0), negative.select(lo, lo * -1.0)
    middle = _sum(_pair(x, _HALF_PI), near)
    low = _sum(_pair(x, _PI), (hi * -2.0, lo * -2.0))
    far = _either(negative, low, (hi + hi, lo + lo))
    result = _either(small, middle, far)
    return result[0] + result[1]


FUNCTIONS: dict[str, Callable[[Program], Term]] = {
    "log2": in_float64(_logarithm(_PER_LN2)),
    "log10": in_float64(_logarithm(_PER_LN10)),
    "sinh": in_float64(_sinh),
    "cosh": in_float64(_cosh),
    "asin": in_float64(_asin),
    "acos": in_float64(_acos),
    "atan": in_float64(_atan),
    "asinh": in_float64(_asinh),
    "acosh": in_float64(_acosh),
    "atanh": in_float64(_atanh),
}
"""name -> body of a program of one parameter."""
