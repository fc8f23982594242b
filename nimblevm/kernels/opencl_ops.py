"""Scalar operations of the loop IR as OpenCL C, meaning what loop_ir.py says bit for bit.

In registers bool is `bool`, integers their own type, float16 a `float` that holds a half's value; memory keeps bool as
uchar and float16 as half, whose loads and stores every OpenCL has. Signed arithmetic goes through unsigned types, since
overflow is undefined in C. What takes more than an expression is a helper function of the module.
"""

from __future__ import annotations

import struct

from nimblevm import dtypes
from nimblevm.errors import Unsupported
from nimblevm.kernels import math_table
from nimblevm.kernels.math_program import Dialect, MathOp, c_function

_INTEGERS = {
    "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar", "uint16": "ushort",
    "uint32": "uint", "uint64": "ulong",
}  # fmt: skip
REGISTER = {
    "bool": "bool",
    "float16": "float",
    "float32": "float",
    "float64": "double",
    **_INTEGERS,
}
"""dtype -> type of a variable."""
MEMORY = {**REGISTER, "bool": "uchar", "float16": "half"}
"""dtype -> type in memory."""

HEAD = """#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef FP_FAST_FMAF
#define NVM_FUSED_float(a, b, c) fma(a, b, c)
#else
#define NVM_FUSED_float(a, b, c) ((a) * (b) + (c))
#endif
#ifdef FP_FAST_FMA
#define NVM_FUSED_double(a, b, c) fma(a, b, c)
#else
#define NVM_FUSED_double(a, b, c) ((a) * (b) + (c))
#endif
typedef struct { int code; int operand; long index; long bound; int number; int unused; } nvm_fault_record;
static void nvm_fault(__global nvm_fault_record *record, int code, int operand, long index, long bound, int number) {
  if (atomic_cmpxchg((volatile __global int *)&record->code, 0, code) != 0) return;
  record->operand = operand;
  record->index = index;
  record->bound = bound;
  record->number = number;
}
static float nvm_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (__private half *)&bits);
  return vload_half(0, (__private half *)&bits);
}
"""
"""What every module starts with. nvm_fault keeps the first fault; nvm_half rounds to the nearest half."""


def guarded(text: str) -> str:
    """Text that only devices with doubles compile."""
    return f"#ifdef cl_khr_fp64\n{text}#endif\n"


def literal(value: bool | int | float, dtype: str) -> str:
    """A constant of a dtype."""
    row = dtypes.dtype(dtype)
    if row.is_bool:
        return "true" if value else "false"
    if row.is_float:
        return _float_literal(float(value), "double" if dtype == "float64" else "float")
    return _int_literal(int(value), REGISTER[dtype], row.bits)


def _float_literal(value: float, type_: str) -> str:
    if type_ == "float":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        bits, convert, suffix = struct.unpack("<I", struct.pack("<f", value))[0], "as_float", "f"
    else:
        bits, convert, suffix = struct.unpack("<Q", struct.pack("<d", value))[0], "as_double", ""
    if value != value or value in (float("inf"), -float("inf")):
        return f"{convert}({bits:#x}u{'' if suffix else 'l'})"
    text = value.hex() + suffix
    return f"({text})" if text.startswith("-") else text


def _int_literal(value: int, type_: str, bits: int) -> str:
    if bits == 64:
        if type_ == "ulong":
            return f"{value}ul"
        return f"{value}l" if value >= 0 else f"as_long({value & (1 << 64) - 1:#x}ul)"
    if type_ == "int":
        return str(value) if value >= 0 else f"as_int({value & 0xFFFFFFFF:#x}u)"
    return f"({type_}){value}" + ("u" if type_.startswith("u") else "")


class Helpers:
    """Functions that a module needs beside its kernels, each once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, name: str, text: str, double: bool) -> str:
        """The name of a function with this text. double: it needs a device with doubles."""
        self.texts.setdefault(name, guarded(text) if double else text)
        return name

    def math(self, name: str, dtype: str) -> str:
        """The function of an entry of the math table; Unsupported if the table has none.

        Definitions for float32 that compute in double give way to OpenCL's own function where a device has no doubles.
        """
        try:
            row = math_table.definition(name, dtype)
        except KeyError:
            raise Unsupported(f"no OpenCL code for {name} of {dtype}") from None
        function = f"nvm_{name}_{dtype}"
        if function not in self.texts:
            text = "\n".join([*c_function(row, function, _OPENCL, "static"), ""])
            if any(op.type == "f64" for op in row.ops):
                text = f"#ifdef cl_khr_fp64\n{text}"
                if dtype == "float32":
                    args = ", ".join(f"x{i}" for i in range(row.params))
                    params = ", ".join(f"float x{i}" for i in range(row.params))
                    text += (
                        f"#else\nstatic float {function}({params}) {{ return {name}({args}); }}\n"
                    )
                text += "#endif\n"
            self.texts[function] = text
        return function


# --- functions of the math table ------------------------------------------------------------------

_TYPE = {"f32": "float", "f64": "double", "i32": "int", "i64": "long", "b": "bool"}


def _math_literal(op: MathOp) -> str:
    match op.type:
        case "f32" | "f64":
            return _float_literal(float(op.value), _TYPE[op.type])
        case "b":
            return "true" if op.value else "false"
        case _:
            return _int_literal(int(op.value), _TYPE[op.type], 32 if op.type == "i32" else 64)


_OPENCL = Dialect(
    _TYPE,
    {"i32": "uint", "i64": "ulong"},
    _math_literal,
    wrapped=lambda type_, x: f"as_{_TYPE[type_]}({x})",
    bits=lambda _, target, x: f"as_{_TYPE[target]}({x})",
    sqrt=lambda _, x: f"sqrt({x})",
)


# --- operations -----------------------------------------------------------------------------------


def _wrapped(expression: str, dtype: str) -> str:
    """An expression of the unsigned type (uint for narrow ones) as a value of an integer dtype."""
    type_ = REGISTER[dtype]
    if type_.startswith("u"):
        return f"({type_})({expression})"
    return f"as_{type_}((u{type_})({expression}))"


def _wide(x: str, dtype: str) -> str:
    """x in the unsigned type in which its dtype computes: uint, or ulong."""
    return f"({'ulong' if dtypes.dtype(dtype).bits == 64 else 'uint'}){x}"


def rounded(x: str, dtype: str) -> str:
    """The result of a float operation as a value of dtype."""
    return f"nvm_half({x})" if dtype == "float16" else x


def unary(helpers: Helpers, op: str, x: str, dtype: str, result: str) -> str:
    """x: a name or literal, as everywhere here."""
    row = dtypes.dtype(dtype)
    if op == "bits":
        return f"as_{REGISTER[result]}({x})"
    if row.is_float:
        return _float_unary(helpers, op, x, dtype)
    match op:
        case "not":
            return f"!{x}"
        case "bitnot":
            return _wrapped(f"~{_wide(x, dtype)}", dtype)
        case "neg":
            return _wrapped(f"0u - {_wide(x, dtype)}", dtype)
        case "abs" if row.is_signed:
            return f"{x} < 0 ? {_wrapped(f'0u - {_wide(x, dtype)}', dtype)} : {x}"
        case "abs":
            return x
        case "sign" if row.is_signed:
            return f"({REGISTER[dtype]})(({x} > 0) - ({x} < 0))"
        case "sign":
            return f"({REGISTER[dtype]})({x} > 0)"
    raise Unsupported(f"no OpenCL code for {op} of {dtype}")


def _float_unary(helpers: Helpers, op: str, x: str, dtype: str) -> str:
    type_ = REGISTER[dtype]
    if op in math_table.NAMES:
        return rounded(f"{helpers.math(op, _base(dtype))}({x})", dtype)
    match op:
        case "neg":
            return f"-{x}"
        case "abs":
            return f"fabs({x})"
        case "sqrt":
            return rounded(f"sqrt({x})", dtype)
        case "floor" | "ceil" | "trunc" | "round":
            return _whole(op, x)
        case "sign":
            one = literal(1.0, dtype)
            return f"{x} > 0 ? {one} : {x} < 0 ? -{one} : {x} != {x} ? {x} : ({type_})0"
        case "isnan":
            return f"{x} != {x}"
        case "isinf":
            return f"fabs({x}) == {literal(float('inf'), dtype)}"
        case "isfinite":
            return f"fabs({x}) < {literal(float('inf'), dtype)}"
    raise Unsupported(f"no OpenCL code for {op} of {dtype}")


def _whole(op: str, x: str) -> str:
    """floor, ceil, trunc or round. PoCL 3.1 folds those of a literal NaN to an undefined value."""
    return f"{x} != {x} ? {x} : {op}({x})"


def _base(dtype: str) -> str:
    """The dtype that a float dtype is computed in."""
    return "float64" if dtype == "float64" else "float32"


_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_BOOL_SYMBOL = {"add": "|", "max": "|", "or": "|", "mul": "&", "min": "&", "and": "&", "xor": "^"}


def binary(helpers: Helpers, op: str, x: str, y: str, dtype: str) -> str:
    """An operation that can't fail; integer divisions have had their divisor checked."""
    row = dtypes.dtype(dtype)
    if row.is_float:
        return _float_binary(helpers, op, x, y, dtype)
    if row.is_bool:
        symbol = _BOOL_SYMBOL.get(op)
        if symbol is None:
            raise Unsupported(f"no OpenCL code for {op} of {dtype}")
        return f"(bool)({x} {symbol} {y})"
    match op:
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return _wrapped(f"{_wide(x, dtype)} {_SYMBOL[op]} {_wide(y, dtype)}", dtype)
        case "min" | "max":
            return f"{x} {'<' if op == 'min' else '>'} {y} ? {x} : {y}"
        case "div" | "mod" | "floordiv" | "floormod":
            return f"{_division(helpers, op, dtype)}({x}, {y})"
        case "shl":
            return _wrapped(f"{_wide(x, dtype)} << ({y} & {row.bits - 1})", dtype)
        case "shr":
            return f"({REGISTER[dtype]})({x} >> ({y} & {row.bits - 1}))"
    raise Unsupported(f"no OpenCL code for {op} of {dtype}")


def _division(helpers: Helpers, op: str, dtype: str) -> str:
    """The function of an integer division; MIN / -1 wraps, its remainder is 0."""
    type_ = REGISTER[dtype]
    name = f"nvm_{op}_{dtype}"
    # Indices mostly fit 31 bits, for which GPUs divide several times as fast.
    sign = "/" if op in ("div", "floordiv") else "%"
    short = f"  if ((((ulong)x | (ulong)y) >> 31) == 0) return ({type_})((uint)x {sign} (uint)y);\n"
    short = short if dtype == "int64" else ""
    if not dtypes.dtype(dtype).is_signed:
        body = f"  return ({type_})(x {sign} y);\n"
        return helpers.add(
            name, f"static {type_} {name}({type_} x, {type_} y) {{\n{body}}}\n", double=False
        )
    negated = _wrapped(f"0u - {_wide('x', dtype)}", dtype)
    results = {
        "div": "quotient",
        "mod": "rest",
        "floordiv": f"({type_})(quotient - down)",
        "floormod": f"down ? ({type_})(rest + y) : rest",
    }
    quick = f"  if (y == -1) return {negated if op in ('div', 'floordiv') else f'({type_})0'};\n"
    body = (
        f"{short}{quick}  const {type_} quotient = ({type_})(x / y);\n"
        f"  const {type_} rest = ({type_})(x - quotient * y);\n"
    )
    if op.startswith("floor"):
        body += "  const int down = rest != 0 && (rest < 0) != (y < 0);\n"
    body += f"  return {results[op]};\n"
    return helpers.add(
        name, f"static {type_} {name}({type_} x, {type_} y) {{\n{body}}}\n", double=False
    )


def _float_binary(helpers: Helpers, op: str, x: str, y: str, dtype: str) -> str:
    base = _base(dtype)
    match op:
        case "add" | "sub" | "mul" | "div":
            return rounded(f"{x} {_SYMBOL[op]} {y}", dtype)
        case "min" | "max":
            return f"{x} {'<' if op == 'min' else '>'} {y} || {x} != {x} ? {x} : {y}"
        case "mod":
            return f"{_fmod(helpers, base)}({x}, {y})"
        case "floormod":
            return rounded(f"{_floormod(helpers, base)}({x}, {y})", dtype)
        case "floordiv":
            return rounded(_whole("floor", f"({x} / {y})"), dtype)
        case "pow":
            return rounded(f"{helpers.math('pow', base)}({x}, {y})", dtype)
    raise Unsupported(f"no OpenCL code for {op} of {dtype}")


_FMOD = """static TYPE NAME(TYPE x, TYPE y) {
  const INT sign = as_INT(x) & SIGN;
  UINT a = as_UINT(x) & ~SIGN, b = as_UINT(y) & ~SIGN;
  if (a >= INFINITE || b > INFINITE || b == 0) return (x * y) / (x * y);
  if (a < b) return x;
  INT ea = (INT)(a >> MANTISSA), eb = (INT)(b >> MANTISSA);
  UINT ma = a & FRACTION, mb = b & FRACTION;
  if (ea) ma |= FRACTION + 1; else ea = 1;
  if (eb) mb |= FRACTION + 1; else eb = 1;
  while (ma <= FRACTION) { ma <<= 1; ea--; }
  while (mb <= FRACTION) { mb <<= 1; eb--; }
  for (; ea > eb; ea--) {
    if (ma >= mb) ma -= mb;
    ma <<= 1;
  }
  if (ma >= mb) ma -= mb;
  if (ma == 0) return as_TYPE(sign);
  while (ma <= FRACTION) { ma <<= 1; ea--; }
  if (ea < 1) { ma >>= 1 - ea; ea = 1; }
  const UINT bits = ma > FRACTION ? (ma & FRACTION) | ((UINT)ea << MANTISSA) : ma;
  return as_TYPE((INT)bits | sign);
}
"""


def _fmod(helpers: Helpers, base: str) -> str:
    """C's fmod, exact: a shift and a subtraction a bit."""
    double = base == "float64"
    name = f"nvm_fmod_{base}"
    words = {
        "NAME": name, "UINT": "ulong" if double else "uint", "INT": "long" if double else "int",
        "TYPE": "double" if double else "float", "MANTISSA": "52" if double else "23",
        "SIGN": "as_long(0x8000000000000000ul)" if double else "as_int(0x80000000u)",
        "FRACTION": "0xffffffffffffful" if double else "0x7fffffu",
        "INFINITE": "0x7ff0000000000000ul" if double else "0x7f800000u",
    }  # fmt: skip
    text = _FMOD
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return helpers.add(name, text, double)


def _floormod(helpers: Helpers, base: str) -> str:
    type_, name, fmod = REGISTER[base], f"nvm_floormod_{base}", _fmod(helpers, base)
    text = (
        f"static {type_} {name}({type_} x, {type_} y) {{\n  const {type_} rest = {fmod}(x, y);\n"
        f"  if (rest == 0) return copysign(rest, y);\n"
        f"  return (rest < 0) != (y < 0) ? rest + y : rest;\n}}\n"
    )
    return helpers.add(name, text, base == "float64")


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compare(op: str, x: str, y: str) -> str:
    """A truth value: eq, ne, lt, le, gt or ge of two values of one dtype."""
    return f"{x} {_COMPARE[op]} {y}"


def cast(x: str, source: str, target: str) -> str:
    """x of dtype `source` in dtype `target`."""
    old, new = dtypes.dtype(source), dtypes.dtype(target)
    type_ = REGISTER[target]
    if source == target:
        return x
    if new.is_bool:
        return f"{x} != 0"
    if new.is_float:
        return rounded(f"({type_}){x}", target)
    if old.is_float:
        return f"{x} != {x} ? ({type_})0 : convert_{type_}_sat_rtz({x})"
    if old.is_bool:
        return f"({type_}){x}"
    return _wrapped(_wide(x, target), target)


__all__ = [
    "HEAD", "MEMORY", "REGISTER", "Helpers", "binary", "cast", "compare", "guarded", "literal", "rounded", "unary",
]  # fmt: skip
