"""sin, cos, tan over the whole range. The argument is reduced modulo pi/2 to a pair of float64, float32 included.

Below 2^20 by subtraction of multiples of pi/2 in four parts (Cody and Waite); above by multiplication with 192 bits of
2/pi, chosen by the exponent (Payne and Hanek). Both are computed and one is selected: there are no branches.
"""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.kernels.math_core import (
    FORMATS,
    Pair,
    absolute,
    clamp,
    fast_two_sum,
    pair_product,
    two_sum,
)
from nimblevm.kernels.math_program import Program, Term, poly

_h = float.fromhex
INF, NAN = float("inf"), float("nan")
_SMALL = 2.0**20
# pi/2: three parts of 33 bits, so that a multiple below 2^20 is exact, and the rest; and as a pair
_PI_PARTS = ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104")
_HALF_PI = ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")
# bits of 2/pi behind the point, after 64 zeros
_ZERO_BITS = 64
_TWO_OVER_PI = (
    0, 0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
    0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
    0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F,
    0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B,
    0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB, 0xF0CFBC20,
)  # fmt: skip
# (sin(x)/x - 1) / x^2 and (cos(x) - 1 + x^2/2) / x^4 in z = x^2 on |x| <= pi/4
_SIN = ("-0x1.5555555555555p-3", "0x1.1111111110ba5p-7", "-0x1.a01a019e80693p-13", "0x1.71de379252004p-19",
        "-0x1.ae60069e53ef1p-26", "0x1.5e098556d302ep-33")  # fmt: skip
_COS = ("0x1.5555555555555p-5", "-0x1.6c16c16c16960p-10", "0x1.a01a019f4d0edp-16", "-0x1.27e4fa15bd814p-22",
        "0x1.1eeb66b683028p-29", "-0x1.907c0e63adbb6p-37")  # fmt: skip
_LOW = 0xFFFFFFFF


def _reduce_small(x: Term) -> tuple[Term, Pair]:
    """Quadrant (i64) and rest of 0 <= x < 2^20."""
    form = FORMATS["f64"]
    shifted = x * _h("0x1.45f306dc9c883p-1") + form.magic
    turns = shifted - form.magic
    first, second, third, rest = (turns * _h(part) for part in _PI_PARTS)
    hi, error = two_sum(x - first, 0.0 - second)
    hi, error_2 = two_sum(hi, 0.0 - third)
    return shifted.bits() & 3, fast_two_sum(hi, (error + error_2) - rest)


def _window(offset: Term, words: int) -> list[Term]:
    """Six 32-bit limbs (i64, the last bits first) of the first `words` words of the table, from bit `offset` on."""
    p = offset.program
    table = [p.const(word, "i64") for word in _TWO_OVER_PI[:words]]
    index, shift = offset.lshr(5), offset & 31
    step = 1 << (words - 7).bit_length() >> 1
    while step:
        chosen = (index & step).eq(step)
        kept = min(len(table), 6 + step)
        pad = table + [p.const(0, "i64")] * step
        table = [chosen.select(pad[k + step], pad[k]) for k in range(kept)]
        step >>= 1
    limbs = [(((table[k] << 32) | table[k + 1]) << shift).lshr(32) for k in range(6)]
    return limbs[::-1]


def _multiply(m: Term, limbs: list[Term]) -> list[Term]:
    """m (53 bits) times the limbs, modulo 2^192, as limbs."""
    m_lo, m_hi = m & _LOW, m.lshr(32)
    zero = m.program.const(0, "i64")
    low = [m_lo * limb for limb in limbs]
    high = [zero, *(m_hi * limb for limb in limbs[:5])]
    result: list[Term] = []
    carry = zero
    for k in range(6):
        total = carry + (low[k] & _LOW) + (high[k] & _LOW)
        if k:
            total = total + low[k - 1].lshr(32) + high[k - 1].lshr(32)
        result.append(total & _LOW)
        carry = total.lshr(32)
    return result


def _reduce_large(x: Term, words: int) -> tuple[Term, Pair]:
    """Quadrant and rest of x >= 2^20. With x = m 2^E, bits of 2/pi that are worth 2^2 or more times m are left out, so
    that 192 further bits times m, modulo 2^192, are x * 2/pi modulo 4 in units of 2^-190."""
    p = x.program
    bits = x.bits()
    offset = bits.lshr(52) - (1023 + 52 + 2 - _ZERO_BITS)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    product = _multiply(m, _window(offset, words))
    top = (product[5] << 32) | product[4]
    turns = (top + (1 << 61)).lshr(62)
    fraction = top - (turns << 62)
    a = (fraction >> 32).convert("f64") * 2.0**-30
    b = (fraction & _LOW).convert("f64") * 2.0**-62
    c = product[3].convert("f64") * 2.0**-94
    d = product[2].convert("f64") * 2.0**-126
    hi, lo = fast_two_sum(a, b)
    hi, lo = fast_two_sum(hi, lo + (c + d))
    half_pi = p.const(_h(_HALF_PI[0]), "f64"), p.const(_h(_HALF_PI[1]), "f64")
    return turns & 3, pair_product((hi, lo), half_pi)


def _reduce(x: Term) -> tuple[Term, Pair]:
    """Quadrant and rest of |x|, a float64; infinities and NaN give nonsense."""
    small_turns, small = _reduce_small(clamp(x, 0.0, _SMALL))
    words = 11 if x.program.dtype == "float32" else 39  # as many as the largest exponent asks for
    turns, large = _reduce_large(x, words)
    near = x < _SMALL
    rest = near.select(small[0], large[0]), near.select(small[1], large[1])
    return near.select(small_turns, turns), rest


def _sin_cos(rest: Pair) -> tuple[Pair, Pair]:
    r, lo = rest
    z = r * r
    half = z * 0.5
    sin = fast_two_sum(r, r * (z * poly(z, map(_h, _SIN))) + lo * (1.0 - half))
    w = 1.0 - half
    cos = fast_two_sum(w, ((1.0 - w) - half) + ((z * z) * poly(z, map(_h, _COS)) - r * lo))
    return sin, cos


def _finish(p: Program, result: Term) -> Term:
    (x,) = p.params
    return (absolute(x) < INF).select(result.convert(p.float), NAN)


def _wave(shift: int) -> Callable[[Program], Term]:
    def body(p: Program) -> Term:
        (x,) = p.params
        turns, rest = _reduce(absolute(x).convert("f64"))
        sin, cos = _sin_cos(rest)
        turns = turns + shift
        value = (turns & 1).eq(1).select(cos[0], sin[0])
        value = (turns & 2).eq(2).select(value * -1.0, value)
        if shift == 0:
            value = (x.bits() < 0).select(value * -1.0, value)
        return _finish(p, value)

    return body


sine = _wave(0)
cosine = _wave(1)


def tangent(p: Program) -> Term:
    """sin/cos, or -cos/sin in odd quadrants, the quotient corrected by the low parts."""
    (x,) = p.params
    turns, rest = _reduce(absolute(x).convert("f64"))
    sin, cos = _sin_cos(rest)
    odd = (turns & 1).eq(1)
    above = odd.select(cos[0], sin[0]), odd.select(cos[1], sin[1])
    below = odd.select(0.0 - sin[0], cos[0]), odd.select(0.0 - sin[1], cos[1])
    quotient = above[0] / below[0]
    quotient = quotient + (above[1] - quotient * below[1]) / below[0]
    return _finish(p, (x.bits() < 0).select(quotient * -1.0, quotient))
