"""Parts that mathematical functions share: formats, exp and log before their last step, exact sums and products.

Standard library only. The polynomials are Chebyshev fits made once with 50 digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.kernels.math_program import FLOAT_OF, Term, poly

_h = float.fromhex


@dataclass(frozen=True, slots=True)
class Format:
    """What differs between float32 and float64."""

    mantissa: int  # stored bits
    bias: int
    magic: float  # adding it rounds to an integer, which then stands in the low bits
    ln2_hi: float  # ln 2 with enough trailing zeros that n * ln2_hi is exact
    ln2_lo: float
    smallest_normal: float
    scale_bits: int  # a subnormal times 2^scale_bits is normal


FORMATS = {
    "f32": Format(23, 127, _h("0x1.8p23"), _h("0x1.62e4p-1"), _h("0x1.7f7d1cp-20"), 2.0**-126, 25),
    "f64": Format(
        52, 1023, _h("0x1.8p52"), _h("0x1.62e42feep-1"), _h("0x1.a39ef35793c76p-33"), 2.0**-1022, 54
    ),
}  # fmt: skip

# (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2
EXP = {
    "f32": ("0x1p-1", "0x1.5554dcp-3", "0x1.555518p-5", "0x1.120be2p-7", "0x1.6d117cp-10"),
    "f64": ("0x1p-1", "0x1.5555555555557p-3", "0x1.5555555555556p-5", "0x1.11111111100bep-7",
                "0x1.6c16c16c162c3p-10",
                "0x1.a01a01abf85abp-13", "0x1.a01a01a6e1e2ap-16", "0x1.71de01fdbf9cap-19", "0x1.27e4db46cddd1p-22",
                "0x1.af4e554377204p-26", "0x1.1f7340dbc337ep-29"),
}  # fmt: skip
# (log((1+s)/(1-s)) - 2s) / s^3 in z = s^2 on 0 <= z <= 0.02945
LOG = {
    "f32": ("0x1.555556p-1", "0x1.9999ecp-2", "0x1.245c38p-2", "0x1.ddd172p-3"),
    "f64": ("0x1.5555555555558p-1", "0x1.99999999952b2p-2", "0x1.2492492df6947p-2", "0x1.c71c62debf86bp-3",
                "0x1.7462b69705382p-3", "0x1.39fe208c33457p-3", "0x1.2b5b5fb2eac92p-3"),
}  # fmt: skip


def table_poly(x: Term, table: dict[str, tuple[str, ...]]) -> Term:
    return poly(x, (_h(text) for text in table[x.type]))


def absolute(x: Term) -> Term:
    mask = (1 << (31 if x.type == "f32" else 63)) - 1
    return (x.bits() & mask).bits()


def negative(x: Term) -> Term:
    """-|x|"""
    return (x.bits() | _sign_bit(x)).bits()


def with_sign(magnitude: Term, x: Term) -> Term:
    """`magnitude` (sign bit 0) with the sign bit of x."""
    return ((x.bits() & _sign_bit(x)) | magnitude.bits()).bits()


def _sign_bit(x: Term) -> int:
    return -(1 << (31 if x.type == "f32" else 63))


def power_of_two(n: Term, form: Format) -> Term:
    """2^n for an integer n in the normal range."""
    return ((n + form.bias) << form.mantissa).bits()


def exp_parts(x: Term, rest: Term | None = None) -> tuple[Term, Term, Term]:
    """n, hi, lo with exp(x + rest) = 2^n (hi + lo), 0.7 < hi < 1.42; x must be clamped (NaN gives a NaN hi)."""
    form = FORMATS[x.type]
    shifted = (
        x * _h("0x1.71547652b82fep+0" if form.mantissa == 52 else "0x1.715476p+0") + form.magic
    )
    n = shifted.bits() - x.program.const(form.magic, x.type).bits()
    turns = shifted - form.magic
    high = x - turns * form.ln2_hi
    low = turns * form.ln2_lo
    if rest is not None:
        low = low - rest
    r = high - low
    p = r + (((high - r) - low) + (r * r) * table_poly(r, EXP))
    hi = 1.0 + p
    return n, hi, p - (hi - 1.0)


def short_exp(x: Term, offset: Term | float = 0.0) -> tuple[Term, Term]:
    """s, p with exp(x) = s (1 + p) 2^-offset, s a power of two, |p| < 0.42; float32, within 1 ulp of 1 + p and of p.

    n + offset must be in the normal range; offset is an integer, or a choice between two. Half the operations of
    exp_parts and scale: no errors are carried along, and n goes from the low bits of a float into the exponent by one
    shift.
    """
    form = FORMATS[x.type]
    magic = (form.magic + form.bias) + offset
    shifted = x * _h("0x1.715476p+0") + magic
    turns = shifted - magic
    r = (x - turns * form.ln2_hi) - turns * form.ln2_lo
    return (shifted.bits() << form.mantissa).bits(), r + (r * r) * table_poly(r, EXP)


def scale(y: Term, n: Term, form: Format) -> Term:
    """y * 2^n in two steps, so that results may be subnormal or overflow."""
    half = n >> 1
    return (y * power_of_two(half, form)) * power_of_two(n - half, form)


def clamp(x: Term, low: float, high: float) -> Term:
    """x within [low, high]; NaN stays."""
    x = at_least(x, low)
    return (x > high).select(high, x)


def at_least(x: Term, low: float) -> Term:
    """The larger one; NaN stays."""
    return (x < low).select(low, x)


def small_int_to_float(n: Term, form: Format) -> Term:
    """|n| < 2^21 as float of the same width, without a convert (which SSE2 lacks for 64 bits)."""
    magic = n.program.const(form.magic, FLOAT_OF[n.type])
    return (n + magic.bits()).bits() - form.magic


def split_log(x: Term) -> tuple[Term, Term]:
    """k as a float and f with x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for positive finite x."""
    form = FORMATS[x.type]
    tiny = x < form.smallest_normal
    scaled = tiny.select(x * 2.0**form.scale_bits, x)
    root = 0x3F3504F3 if x.type == "f32" else 0x3FE6A09E667F3BCD
    shifted = scaled.bits() + ((form.bias << form.mantissa) - root)
    m = ((shifted & ((1 << form.mantissa) - 1)) + root).bits()
    exponent = (shifted >> form.mantissa) - form.bias
    exponent = tiny.select(exponent - form.scale_bits, exponent)
    return small_int_to_float(exponent, form), m - 1.0


def log_of(x: Term) -> Term:
    """log x of a positive finite x: with s = f/(2+f), log(1+f) = f - (f^2/2 - s (f^2/2 + R(s^2)))."""
    form = FORMATS[x.type]
    k, f = split_log(x)
    s = f / (2.0 + f)
    z = s * s
    half_square = (f * f) * 0.5
    tail = s * (half_square + z * table_poly(z, LOG)) + k * form.ln2_lo
    return k * form.ln2_hi - ((half_square - tail) - f)


# --- pairs: hi + lo, about 106 bits (float64) ---------------------------------------------------------

Pair = tuple[Term, Term]


def fast_two_sum(a: Term, b: Term) -> Pair:
    """a + b exactly, if |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_sum(a: Term, b: Term) -> Pair:
    """a + b exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Term, b: Term) -> Pair:
    """a * b exactly (float64, no overflow; Veltkamp's splitting, since there is no FMA)."""
    product = a * b
    a_big, b_big = a * 134217729.0, b * 134217729.0
    a_hi, b_hi = a_big - (a_big - a), b_big - (b_big - b)
    a_lo, b_lo = a - a_hi, b - b_hi
    return product, a_lo * b_lo - (((product - a_hi * b_hi) - a_lo * b_hi) - a_hi * b_lo)


def pair_product(a: Pair, b: Pair) -> Pair:
    """The product of two pairs, the last bits rounded."""
    hi, lo = two_product(a[0], b[0])
    return fast_two_sum(hi, lo + (a[0] * b[1] + a[1] * b[0]))
