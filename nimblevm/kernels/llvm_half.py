"""float16 <-> float32 as LLVM text: instructions where the target has them (F16C, aarch64, PTX), else inline integer
code, so that no library is called. Both round to nearest, ties to even, and are exact; the bits of a NaN may differ.

The integer code is that of F. Giesen, "half <-> float conversions" (half_to_float_fast4, float_to_half_fast3_rtne).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

Do = Callable[[str], str]
"""Appends an instruction and returns the register with its result."""


def has_instructions(features: tuple[str, ...]) -> bool:
    """Whether a target (LLVM's names) converts in hardware."""
    return bool({"f16c", "neon", "ptx"}.intersection(features))


class _Code:
    """Writes instructions on 32-bit elements; `lanes` 0: scalars."""

    def __init__(self, do: Do, lanes: int) -> None:
        self.do, self.lanes = do, lanes
        self.i16, self.i32, self.half, self.float = map(self.of, ("i16", "i32", "half", "float"))
        self.i1 = self.of("i1")

    def of(self, type_: str) -> str:
        return f"<{self.lanes} x {type_}>" if self.lanes else type_

    def number(self, value: int) -> str:
        """A constant of 32 bits."""
        return f"splat (i32 {value})" if self.lanes else str(value)

    def float_of(self, value: float) -> str:
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return f"splat (float 0x{bits:016X})" if self.lanes else f"0x{bits:016X}"

    def op(self, name: str, x: str, y: str | int) -> str:
        return self.do(f"{name} {self.i32} {x}, {self.number(y) if isinstance(y, int) else y}")

    def pick(self, cond: str, x: str | int, y: str | int) -> str:
        first, second = (self.number(v) if isinstance(v, int) else v for v in (x, y))
        return self.do(f"select {self.i1} {cond}, {self.i32} {first}, {self.i32} {second}")

    def as_float(self, bits: str) -> str:
        return self.do(f"bitcast {self.i32} {bits} to {self.float}")

    def as_bits(self, value: str) -> str:
        return self.do(f"bitcast {self.float} {value} to {self.i32}")


def half_to_float(do: Do, bits: str, features: tuple[str, ...], lanes: int = 0) -> str:
    """i16 bits of halves -> floats."""
    c = _Code(do, lanes)
    if has_instructions(features):
        half = do(f"bitcast {c.i16} {bits} to {c.half}")
        return do(f"fpext {c.half} {half} to {c.float}")
    wide = do(f"zext {c.i16} {bits} to {c.i32}")
    shifted = c.op("shl", c.op("and", wide, 0x7FFF), 13)
    exponent = c.op("and", shifted, 0x7C00 << 13)
    moved = c.op("add", shifted, (127 - 15) << 23)
    special = c.op("icmp eq", exponent, 0x7C00 << 13)  # infinity, NaN
    normal = c.pick(special, c.op("add", moved, (127 - 15) << 23), moved)
    tiny = c.op("icmp eq", exponent, 0)
    raised = c.as_float(c.op("add", moved, 1 << 23))
    subnormal = c.as_bits(do(f"fsub {c.float} {raised}, {c.float_of(2.0**-14)}"))
    sign = c.op("shl", c.op("and", wide, 0x8000), 16)
    return c.as_float(c.op("or", c.pick(tiny, subnormal, normal), sign))


def float_to_half(do: Do, value: str, features: tuple[str, ...], lanes: int = 0) -> str:
    """Floats -> i16 bits of the nearest halves."""
    c = _Code(do, lanes)
    if has_instructions(features):
        half = do(f"fptrunc {c.float} {value} to {c.half}")
        return do(f"bitcast {c.half} {half} to {c.i16}")
    bits = c.as_bits(value)
    magnitude = c.op("and", bits, 0x7FFFFFFF)
    big = c.pick(c.op("icmp ugt", magnitude, 0x7F800000), 0x7E00, 0x7C00)  # NaN, infinity
    total = do(f"fadd {c.float} {c.as_float(magnitude)}, {c.float_of(0.5)}")
    small = c.op("sub", c.as_bits(total), 0x3F000000)  # bits of 0.5
    odd = c.op("and", c.op("lshr", magnitude, 13), 1)
    rebased = c.op("add", magnitude, -((127 - 15) << 23) + 0xFFF)
    normal = c.op("lshr", c.op("add", rebased, odd), 13)
    found = c.pick(c.op("icmp ult", magnitude, (127 - 14) << 23), small, normal)
    found = c.pick(c.op("icmp uge", magnitude, (127 + 16) << 23), big, found)
    sign = c.op("and", c.op("lshr", bits, 16), 0x8000)
    return do(f"trunc {c.i32} {c.op('or', found, sign)} to {c.i16}")


__all__ = ["float_to_half", "half_to_float", "has_instructions"]
