"""Scalar operations of the loop IR as LLVM instructions (text).

Values live in registers as: bool i1, integers iN, float16 as `float` that holds a half's value,
float32 `float`, float64 `double`. A float16 operation is a float operation whose result is rounded
(llvm_half.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nimblevm import dtypes
from nimblevm.errors import Unsupported
from nimblevm.kernels import (
    llvm_beside,
    llvm_byte_windows,
    llvm_bytes,
    llvm_half,
    llvm_pack,
    llvm_panels,
    llvm_windows,
    math_table,
)
from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.math_program import Definition, MathOp
from nimblevm.kernels.variants import Variant

REGISTER = {
    "bool": "i1", "float16": "float", "float32": "float", "float64": "double",
    **{row.name: f"i{row.bits}" for row in dtypes.DTYPES if row.is_integer},
}  # fmt: skip
"""dtype -> LLVM type in a register."""
MEMORY = {**REGISTER, "bool": "i8", "float16": "i16"}
"""dtype -> LLVM type in memory."""

SCHEDULED = "!nvm.scheduled = !{}\n"
"""Marks modules whose loops are unrolled and scheduled already."""
_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
MATH = frozenset(math_table.NAMES)
_ROUNDING = {"floor", "ceil", "trunc"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def literal(value: bool | int | float, type_: str) -> str:
    """A constant of an LLVM type."""
    match type_:
        case "float":
            single = struct.unpack("<f", struct.pack("<f", _finite32(float(value))))[0]
            return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"
        case "double":
            return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
        case "i1":
            return "true" if value else "false"
        case _:
            return str(int(value))


def _finite32(value: float) -> float:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


class Lines:
    """The text of one function: instructions appended to the current block, fresh names, needed helpers."""

    def __init__(self, helpers: Helpers) -> None:
        self.text: list[str] = []
        self.helpers = helpers
        self._count = 0

    def name(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def do(self, instruction: str) -> str:
        """Append `%fresh = instruction`, return the register."""
        register = f"%{self.name()}"
        self.text.append(f"  {register} = {instruction}")
        return register

    def void(self, instruction: str) -> None:
        self.text.append(f"  {instruction}")

    def label(self, name: str) -> None:
        self.text.append(f"{name}:")

    def call(self, type_: str, function: str, *args: tuple[str, str]) -> str:
        """Call an intrinsic or helper; args are (type, register)."""
        if function.startswith("llvm."):
            self.helpers.declare(type_, function, [t for t, _ in args])
        return self.do(f"call {type_} @{function}({', '.join(f'{t} {v}' for t, v in args)})")


class Helpers:
    """What a module needs beside its kernels: intrinsic declarations and internal functions, each
    once.

    rounds: the CPU has instructions for floor, ceil and trunc; without them LLVM would call the C
    library. features: of the CPU, LLVM names.

    texts: of this module, by function. modules: of modules that others share, by the function that this one calls.
    products: those of all modules.
    """

    def __init__(
        self,
        rounds: bool = True,
        features: tuple[str, ...] = (),
        products: Sequence[PanelCalls] = (),
    ) -> None:
        self.texts: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.rounds = rounds
        self.features = features
        self.products = products

    def declare(self, type_: str, function: str, args: list[str]) -> None:
        self.texts.setdefault(function, f"declare {type_} @{function}({', '.join(args)})\n")

    def math(self, name: str, dtype: str) -> str:
        """The internal function of a table entry; Unsupported if the table has none."""
        try:
            row = math_table.definition(name, dtype)
        except KeyError:
            raise Unsupported(f"no generated code for {name} of {dtype}") from None
        function = f"nvm_{name}_{dtype}"
        if function not in self.texts:
            self.texts[function] = ""
            self.texts[function] = _math_function(function, row, self)
        return function

    def panels(self, calls: PanelCalls) -> PanelCalls:
        """Those whose function is to be called for such products."""
        calls = next((wider for wider in self.products if wider.serves(calls)), calls)
        name = calls.symbol
        if name not in self.texts:
            self.texts[name] = calls.declaration() + "\n"
            text = llvm_panels.module_text(calls, self.features)
            self.modules[name] = f"{SCHEDULED}{_PREFETCH}{text}"
        return calls

    def beside(self, form: llvm_beside.Form, variant: Variant) -> str:
        """The micro-kernels of a row of float32 and rows beside it."""
        name = f"{form.symbol}.{variant.key}"
        if name not in self.texts:
            alone = PanelCalls.of_row("float32", variant, form.w_step, form.w_panel)
            self.texts[name] = llvm_beside.declaration(name)
            self.modules[name] = llvm_beside.module_text(name, form, self.panels(alone))
        return name

    def windows(self, dtype: str) -> str:
        """The micro-kernels of sums over windows."""
        name = llvm_windows.symbol(dtype)
        if name not in self.texts:
            self.texts[name] = llvm_windows.declaration(dtype)
            self.modules[name] = SCHEDULED + llvm_windows.module_text(dtype, self.features)
        return name

    def byte_windows(self, x_type: str, w_type: str) -> str:
        """The micro-kernels of sums over windows of bytes."""
        name = llvm_byte_windows.symbol(x_type, w_type)
        if name not in self.texts:
            self.texts[name] = llvm_byte_windows.declaration(x_type, w_type)
            self.modules[name] = SCHEDULED + llvm_byte_windows.module_text(x_type, w_type)
        return name

    def bytes(self, x_type: str, w_type: str) -> str:
        """The micro-kernels of products of bytes."""
        name = llvm_bytes.symbol(x_type, w_type)
        if name not in self.texts:
            self.texts[name] = llvm_bytes.declaration(x_type, w_type)
            self.modules[name] = SCHEDULED + llvm_bytes.module_text(x_type, w_type)
        return name

    def pack(self, dtype: str) -> str:
        """The function that copies rows into panels."""
        name = llvm_pack.symbol(dtype)
        if name not in self.texts:
            self.texts[name] = llvm_pack.module_text(dtype)
        return name

    def fmod(self) -> str:
        self.declare("i64", "llvm.ctlz.i64", ["i64", "i1"])
        for name in ("llvm.smin.i64", "llvm.smax.i64"):
            self.declare("i64", name, ["i64", "i64"])
        self.texts.setdefault("nvm_fmod", FMOD)
        return "nvm_fmod"


# --- functions of the math table ------------------------------------------------------------------

_TYPE = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64", "b": "i1"}
_PLAIN = {
    ("add", "f"): "fadd", ("sub", "f"): "fsub", ("mul", "f"): "fmul", ("div", "f"): "fdiv",
    ("add", "i"): "add", ("sub", "i"): "sub", ("mul", "i"): "mul",
    ("and", "i"): "and", ("or", "i"): "or", ("xor", "i"): "xor", ("and", "b"): "and", ("or", "b"):
    "or", ("xor", "b"): "xor", ("shl", "i"): "shl", ("lshr", "i"): "lshr", ("ashr", "i"): "ashr",
}  # fmt: skip
_LESS = {"lt": ("olt", "slt"), "le": ("ole", "sle"), "eq": ("oeq", "eq")}


def _math_function(function: str, row: Definition, helpers: Helpers) -> str:
    """An internal function that runs a straight-line program."""
    lines = Lines(helpers)
    registers: list[str] = []
    for op in row.ops:
        registers.append(_math_op(lines, op, row.ops, registers))
    type_ = REGISTER[row.dtype]
    params = ", ".join(f"{type_} %p{i}" for i in range(row.params))
    body = "\n".join(lines.text)
    return f"define internal {type_} @{function}({params}) #1 {{\n{body}\n  ret {type_} {registers[-1]}\n}}\n"


def _math_op(lines: Lines, op: MathOp, ops: tuple[MathOp, ...], registers: list[str]) -> str:
    type_ = _TYPE[op.type]
    args = [registers[a] for a in op.args]
    types = [_TYPE[ops[a].type] for a in op.args]
    plain = _PLAIN.get((op.op, op.type[0]))
    if plain is not None:
        return lines.do(f"{plain} {type_} {args[0]}, {args[1]}")
    match op.op:
        case "param":
            return f"%p{op.value}"
        case "const":
            return literal(op.value, type_)
        case "sqrt":
            return lines.call(
                type_, f"llvm.sqrt.f{64 if types[0] == 'double' else 32}", (type_, args[0])
            )
        case "not":
            return lines.do(f"xor i1 {args[0]}, true")
        case "lt" | "le" | "eq":
            is_float = types[0] in ("float", "double")
            compare = f"fcmp {_LESS[op.op][0]}" if is_float else f"icmp {_LESS[op.op][1]}"
            return lines.do(f"{compare} {types[0]} {args[0]}, {args[1]}")
        case "select":
            return lines.do(f"select i1 {args[0]}, {type_} {args[1]}, {type_} {args[2]}")
        case "bits":
            return lines.do(f"bitcast {types[0]} {args[0]} to {type_}")
        case "convert":
            return lines.do(f"{_conversion(types[0], type_)} {types[0]} {args[0]} to {type_}")
    raise ValueError(f"unknown operation {op.op} in a math definition")


def _conversion(source: str, target: str) -> str:
    match source, target:
        case "float", "double":
            return "fpext"
        case "double", "float":
            return "fptrunc"
        case (("i32" | "i64"), ("float" | "double")):
            return "sitofp"
        case "i32", "i64":
            return "sext"
        case "i64", "i32":
            return "trunc"
    raise ValueError(f"a math definition converts {source} to {target}")


# --- float16 --------------------------------------------------------------------------------------


def half_to_float(b: Lines, bits: str) -> str:
    """i16 bits of a half -> float, exact."""
    return llvm_half.half_to_float(b.do, bits, b.helpers.features)


def float_to_half(b: Lines, value: str) -> str:
    """float -> i16 bits of the nearest half, ties to even."""
    return llvm_half.float_to_half(b.do, value, b.helpers.features)


def rounded(b: Lines, value: str, dtype: str) -> str:
    """The result of a float operation as a value of dtype."""
    return half_to_float(b, float_to_half(b, value)) if dtype == "float16" else value


# --- operations -----------------------------------------------------------------------------------


def unary(b: Lines, op: str, x: str, dtype: str) -> str:
    row = dtypes.dtype(dtype)
    type_ = REGISTER[dtype]
    if op == "bits":
        other = {"float": "i32", "double": "i64", "i32": "float", "i64": "double"}[type_]
        return b.do(f"bitcast {type_} {x} to {other}")
    if row.is_float:
        return _float_unary(b, op, x, dtype)
    match op:
        case "not":
            return b.do(f"xor i1 {x}, true")
        case "bitnot":
            return b.do(f"xor {type_} {x}, -1")
        case "neg":
            return b.do(f"sub {type_} 0, {x}")
        case "abs" if row.is_signed:
            return b.call(type_, f"llvm.abs.{type_}", (type_, x), ("i1", "false"))
        case "abs":
            return x
        case "sign":
            positive = b.do(f"icmp {'s' if row.is_signed else 'u'}gt {type_} {x}, 0")
            found = b.do(f"zext i1 {positive} to {type_}")
            if not row.is_signed:
                return found
            negative = b.do(f"icmp slt {type_} {x}, 0")
            return b.do(f"select i1 {negative}, {type_} -1, {type_} {found}")
    raise Unsupported(f"no generated code for {op} of {dtype}")


def _float_unary(b: Lines, op: str, x: str, dtype: str) -> str:
    type_ = REGISTER[dtype]
    suffix = "f64" if type_ == "double" else "f32"

    def intrinsic(name: str, *args: str) -> str:
        return b.call(type_, f"llvm.{name}.{suffix}", *((type_, a) for a in args))

    if op in MATH:
        function = b.helpers.math(op, "float64" if type_ == "double" else "float32")
        return rounded(b, b.call(type_, function, (type_, x)), dtype)
    if op in _ROUNDING:
        return whole(b, op, x, type_)
    match op:
        case "neg":
            return b.do(f"fneg {type_} {x}")
        case "abs":
            return intrinsic("fabs", x)
        case "sqrt":
            return rounded(b, intrinsic("sqrt", x), dtype)
        case "round":
            # The largest value below 1/2, so that what lies just below a half is not rounded up.
            half = 0.5 - 2.0**-54 if type_ == "double" else 0.5 - 2.0**-25
            moved = b.do(f"fadd {type_} {x}, {intrinsic('copysign', literal(half, type_), x)}")
            return whole(b, "trunc", moved, type_)
        case "sign":
            zero = literal(0.0, type_)
            positive = b.do(f"fcmp ogt {type_} {x}, {zero}")
            negative = b.do(f"fcmp olt {type_} {x}, {zero}")
            nan = b.do(f"fcmp uno {type_} {x}, {x}")
            found = b.do(f"select i1 {nan}, {type_} {x}, {type_} {zero}")
            found = b.do(f"select i1 {negative}, {type_} {literal(-1.0, type_)}, {type_} {found}")
            return b.do(f"select i1 {positive}, {type_} {literal(1.0, type_)}, {type_} {found}")
        case "isnan":
            return b.do(f"fcmp uno {type_} {x}, {x}")
        case "isinf":
            return b.do(f"fcmp oeq {type_} {intrinsic('fabs', x)}, {literal(float('inf'), type_)}")
        case "isfinite":
            return b.do(f"fcmp olt {type_} {intrinsic('fabs', x)}, {literal(float('inf'), type_)}")
    raise Unsupported(f"no generated code for {op} of {dtype}")


def whole(b: Lines, op: str, x: str, type_: str) -> str:
    """floor, ceil or trunc."""
    suffix, integer, limit = (
        ("f64", "i64", 2.0**52) if type_ == "double" else ("f32", "i32", 2.0**23)
    )
    if b.helpers.rounds:
        return b.call(type_, f"llvm.{op}.{suffix}", (type_, x))
    magnitude = b.call(type_, f"llvm.fabs.{suffix}", (type_, x))
    small = b.do(f"fcmp olt {type_} {magnitude}, {literal(limit, type_)}")
    inside = b.do(f"select i1 {small}, {type_} {x}, {type_} {literal(0.0, type_)}")
    number = b.do(f"fptosi {type_} {inside} to {integer}")
    back = b.do(f"sitofp {integer} {number} to {type_}")
    if op != "trunc":
        past = b.do(f"fcmp {'ogt' if op == 'floor' else 'olt'} {type_} {back}, {inside}")
        step = literal(-1.0 if op == "floor" else 1.0, type_)
        back = b.do(
            f"select i1 {past}, {type_} {b.do(f'fadd {type_} {back}, {step}')}, {type_} {back}"
        )
    signed = b.call(type_, f"llvm.copysign.{suffix}", (type_, back), (type_, x))
    return b.do(f"select i1 {small}, {type_} {signed}, {type_} {x}")


def binary(b: Lines, op: str, x: str, y: str, dtype: str, contract: bool = False) -> str:
    """An operation that can't fail; integer divisions have had their divisor checked.

    contract: a float product may be fused into the addition that uses it.
    """
    row = dtypes.dtype(dtype)
    type_ = REGISTER[dtype]
    if row.is_float:
        return _float_binary(b, op, x, y, dtype, contract)
    sign = "s" if row.is_signed else "u"
    match op:
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return b.do(f"{op} {type_} {x}, {y}")
        case "min" | "max":
            if row.is_bool:
                return b.do(f"{'and' if op == 'min' else 'or'} i1 {x}, {y}")
            return b.call(type_, f"llvm.{sign}{op}.{type_}", (type_, x), (type_, y))
        case "div" | "mod" | "floordiv" | "floormod":
            return _divide(b, op, x, y, type_, row.is_signed)
        case "shl" | "shr":
            count = b.do(f"and {type_} {y}, {row.bits - 1}")
            shift = "shl" if op == "shl" else ("ashr" if row.is_signed else "lshr")
            return b.do(f"{shift} {type_} {x}, {count}")
    raise Unsupported(f"no generated code for {op} of {dtype}")


def _divide(b: Lines, op: str, x: str, y: str, type_: str, signed: bool) -> str:
    if not signed:
        return b.do(f"{'udiv' if op in ('div', 'floordiv') else 'urem'} {type_} {x}, {y}")
    positive = y.isdigit()
    divisor = y
    if not positive:
        # MIN / -1 traps on x86: divide by 1 instead and negate.
        minus_one = b.do(f"icmp eq {type_} {y}, -1")
        divisor = b.do(f"select i1 {minus_one}, {type_} 1, {type_} {y}")
    quotient = b.do(f"sdiv {type_} {x}, {divisor}")
    if not positive:
        negated = b.do(f"sub {type_} 0, {x}")
        quotient = b.do(f"select i1 {minus_one}, {type_} {negated}, {type_} {quotient}")
    if op == "div":
        return quotient
    product = b.do(f"mul {type_} {quotient}, {y}")
    rest = b.do(f"sub {type_} {x}, {product}")
    if op == "mod":
        return rest
    signs = b.do(f"xor {type_} {rest}, {y}")
    differ = b.do(f"icmp slt {type_} {signs}, 0")
    inexact = b.do(f"icmp ne {type_} {rest}, 0")
    down = b.do(f"and i1 {differ}, {inexact}")
    if op == "floordiv":
        lower = b.do(f"add {type_} {quotient}, -1")
        return b.do(f"select i1 {down}, {type_} {lower}, {type_} {quotient}")
    higher = b.do(f"add {type_} {rest}, {y}")
    return b.do(f"select i1 {down}, {type_} {higher}, {type_} {rest}")


def _float_binary(b: Lines, op: str, x: str, y: str, dtype: str, contract: bool) -> str:
    type_ = REGISTER[dtype]
    suffix = "f64" if type_ == "double" else "f32"
    flags = " contract" if contract else ""
    match op:
        case "add" | "sub" | "mul" | "div":
            return rounded(b, b.do(f"f{op}{flags} {type_} {x}, {y}"), dtype)
        case "min" | "max" if "ptx" in b.helpers.features:
            return _extreme_number(b, op, x, y, type_)
        case "min" | "max":
            return b.call(type_, f"llvm.{op}imum.{suffix}", (type_, x), (type_, y))
        case "mod" | "floormod":
            found = _fmod(b, x, y, type_)
            return found if op == "mod" else rounded(b, _floored(b, found, y, type_), dtype)
        case "floordiv":
            quotient = b.do(f"fdiv {type_} {x}, {y}")
            return rounded(b, whole(b, "floor", quotient, type_), dtype)
        case "pow":
            function = b.helpers.math("pow", "float64" if type_ == "double" else "float32")
            return rounded(b, b.call(type_, function, (type_, x), (type_, y)), dtype)
    raise Unsupported(f"no generated code for {op} of {dtype}")


def extreme(b: Lines, op: str, x: str, y: str, type_: str) -> str:
    """min or max of floats, NaN if either is, as selects: a row of them becomes vectors, while LLVM unrolls a row of
    llvm.maximum into scalars. A loop over one such local has to use llvm.maximum, whose reduction LLVM knows.
    """
    wins = b.do(f"fcmp {'ogt' if op == 'max' else 'olt'} {type_} {x}, {y}")
    found = b.do(f"select i1 {wins}, {type_} {x}, {type_} {y}")
    nan = b.do(f"fcmp uno {type_} {x}, {x}")
    return b.do(f"select i1 {nan}, {type_} {x}, {type_} {found}")


def _extreme_number(b: Lines, op: str, x: str, y: str, type_: str) -> str:
    """min or max by an instruction that prefers a number to NaN: GPUs before sm_80 have no other."""
    suffix = "f64" if type_ == "double" else "f32"
    found = b.call(type_, f"llvm.{op}num.{suffix}", (type_, x), (type_, y))
    nan = b.do(f"fcmp uno {type_} {x}, {y}")
    return b.do(f"select i1 {nan}, {type_} {literal(float('nan'), type_)}, {type_} {found}")


def _fmod(b: Lines, x: str, y: str, type_: str) -> str:
    """The exact remainder; that of two floats, computed in double, is a float."""
    function = b.helpers.fmod()
    if type_ == "double":
        return b.call("double", function, ("double", x), ("double", y))
    wide_x, wide_y = b.do(f"fpext float {x} to double"), b.do(f"fpext float {y} to double")
    wide = b.call("double", function, ("double", wide_x), ("double", wide_y))
    return b.do(f"fptrunc double {wide} to float")


def _floored(b: Lines, rest: str, y: str, type_: str) -> str:
    """A truncated remainder moved to the sign of the divisor."""
    zero = literal(0.0, type_)
    inexact = b.do(f"fcmp one {type_} {rest}, {zero}")
    negative = b.do(f"fcmp olt {type_} {rest}, {zero}")
    divisor_negative = b.do(f"fcmp olt {type_} {y}, {zero}")
    differ = b.do(f"xor i1 {negative}, {divisor_negative}")
    down = b.do(f"and i1 {inexact}, {differ}")
    moved = b.do(f"fadd {type_} {rest}, {y}")
    found = b.do(f"select i1 {down}, {type_} {moved}, {type_} {rest}")
    suffix = "f64" if type_ == "double" else "f32"
    signed_zero = b.call(type_, f"llvm.copysign.{suffix}", (type_, zero), (type_, y))
    exact = b.do(f"fcmp oeq {type_} {rest}, {zero}")
    return b.do(f"select i1 {exact}, {type_} {signed_zero}, {type_} {found}")


def compare(b: Lines, op: str, x: str, y: str, dtype: str) -> str:
    row = dtypes.dtype(dtype)
    type_ = REGISTER[dtype]
    if row.is_float:
        return b.do(f"fcmp {_FLOAT_COMPARE[op]} {type_} {x}, {y}")
    if op not in ("eq", "ne"):
        op = ("s" if row.is_signed else "u") + op
    return b.do(f"icmp {op} {type_} {x}, {y}")


def cast(b: Lines, x: str, source: str, target: str) -> str:
    """x of dtype `source` in dtype `target`."""
    old, new = dtypes.dtype(source), dtypes.dtype(target)
    old_type, new_type = REGISTER[source], REGISTER[target]
    if source == target:
        return x
    if new.is_bool:
        if old.is_float:
            return b.do(f"fcmp une {old_type} {x}, {literal(0.0, old_type)}")
        return b.do(f"icmp ne {old_type} {x}, 0")
    if old.is_float and new.is_float:
        if old_type != new_type:
            x = b.do(
                f"{'fpext' if new_type == 'double' else 'fptrunc'} {old_type} {x} to {new_type}"
            )
        return rounded(b, x, target)
    if old.is_float:
        sign = "s" if new.is_signed else "u"
        float_suffix = "f64" if old_type == "double" else "f32"
        return b.call(new_type, f"llvm.fpto{sign}i.sat.{new_type}.{float_suffix}", (old_type, x))
    if new.is_float:
        convert = "sitofp" if old.is_signed else "uitofp"
        return rounded(b, b.do(f"{convert} {old_type} {x} to {new_type}"), target)
    if old.bits == new.bits and not old.is_bool:
        return x
    if new.bits < old.bits and not old.is_bool:
        return b.do(f"trunc {old_type} {x} to {new_type}")
    return b.do(f"{'sext' if old.is_signed else 'zext'} {old_type} {x} to {new_type}")


FMOD = """define internal double @nvm_fmod(double %x, double %y) #2 {
entry:
  %bx = bitcast double %x to i64
  %by = bitcast double %y to i64
  %ax = and i64 %bx, 9223372036854775807
  %ay = and i64 %by, 9223372036854775807
  %sign = and i64 %bx, -9223372036854775808
  %xbad = icmp uge i64 %ax, 9218868437227405312
  %ynan = icmp ugt i64 %ay, 9218868437227405312
  %yzero = icmp eq i64 %ay, 0
  %bad0 = or i1 %xbad, %ynan
  %bad = or i1 %bad0, %yzero
  br i1 %bad, label %invalid, label %valid
invalid:
  %product = fmul double %x, %y
  %nan = fdiv double %product, %product
  ret double %nan
valid:
  %less = icmp ult i64 %ax, %ay
  br i1 %less, label %same, label %work
same:
  ret double %x
work:
  %ex0 = lshr i64 %ax, 52
  %ey0 = lshr i64 %ay, 52
  %mx0 = and i64 %ax, 4503599627370495
  %my0 = and i64 %ay, 4503599627370495
  %xsub = icmp eq i64 %ex0, 0
  %ysub = icmp eq i64 %ey0, 0
  %ex1 = select i1 %xsub, i64 1, i64 %ex0
  %ey1 = select i1 %ysub, i64 1, i64 %ey0
  %mx1 = or i64 %mx0, 4503599627370496
  %my1 = or i64 %my0, 4503599627370496
  %mx2 = select i1 %xsub, i64 %mx0, i64 %mx1
  %my2 = select i1 %ysub, i64 %my0, i64 %my1
  %zx = call i64 @llvm.ctlz.i64(i64 %mx2, i1 false)
  %zy = call i64 @llvm.ctlz.i64(i64 %my2, i1 false)
  %sx = sub i64 %zx, 11
  %sy = sub i64 %zy, 11
  %mx = shl i64 %mx2, %sx
  %my = shl i64 %my2, %sy
  %ex = sub i64 %ex1, %sx
  %ey = sub i64 %ey1, %sy
  br label %loop
loop:
  %m = phi i64 [ %mx, %work ], [ %next, %step ]
  %e = phi i64 [ %ex, %work ], [ %enext, %step ]
  %fits = icmp uge i64 %m, %my
  %rest = sub i64 %m, %my
  %r = select i1 %fits, i64 %rest, i64 %m
  %done = icmp sle i64 %e, %ey
  br i1 %done, label %finish, label %step
step:
  %next = shl i64 %r, 1
  %enext = add i64 %e, -1
  br label %loop
finish:
  %exact = icmp eq i64 %r, 0
  br i1 %exact, label %zero, label %pack
zero:
  %z = bitcast i64 %sign to double
  ret double %z
pack:
  %zeros = call i64 @llvm.ctlz.i64(i64 %r, i1 false)
  %want = sub i64 %zeros, 11
  %room = sub i64 %ey, 1
  %shift = call i64 @llvm.smin.i64(i64 %want, i64 %room)
  %up = call i64 @llvm.smax.i64(i64 %shift, i64 0)
  %down0 = sub i64 0, %shift
  %down = call i64 @llvm.smax.i64(i64 %down0, i64 0)
  %raised = shl i64 %r, %up
  %mant = lshr i64 %raised, %down
  %exp = sub i64 %ey, %shift
  %implicit = lshr i64 %mant, 52
  %normal = icmp ne i64 %implicit, 0
  %frac = and i64 %mant, 4503599627370495
  %field = select i1 %normal, i64 %exp, i64 0
  %high = shl i64 %field, 52
  %bits0 = or i64 %high, %frac
  %bits = or i64 %bits0, %sign
  %out = bitcast i64 %bits to double
  ret double %out
}
"""


__all__ = [
    "MEMORY", "REGISTER", "SCHEDULED", "Helpers", "Lines", "binary", "cast", "compare", "float_to_half",
    "half_to_float", "literal",
    "rounded", "unary", "whole",
]  # fmt: skip
