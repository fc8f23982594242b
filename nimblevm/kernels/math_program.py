"""Straight-line programs: how the functions of math_table are written down once for C, loop IR, LLVM and numpy.

A Definition is a list of typed operations without branches, calls or memory; operation k's result is value k. Types are
f32, f64, i32, i64 (two's complement, wrapping) and b (truth). Every operation is exact or correctly rounded in IEEE 754
and nothing is contracted, so all back ends give equal bits (payload and sign of a NaN excepted). Standard library only.

| op | arguments -> result | meaning |
|---|---|---|
| param | value = index | the function's argument |
| const | value | literal of the type |
| add sub mul | f, f or i, i | |
| div, sqrt | f | |
| and or xor | i, i or b, b | |
| not | b | |
| shl lshr ashr | i, i | logical left, logical right, arithmetic right; the count is below the width |
| lt le eq | f, f or i, i -> b | false for NaN |
| select | b, t, t -> t | first argument ? second : third |
| bits | f -> i, i -> f | the same bits as the other type of that width |
| convert | f -> f, i -> f, i -> i | rounded to nearest; i32 -> i64 extends the sign, i64 -> i32 truncates |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

FLOAT_TYPE = {"float32": "f32", "float64": "f64"}
C_TYPE = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "b": "int"}
INT_OF = {"f32": "i32", "f64": "i64"}
FLOAT_OF = {"i32": "f32", "i64": "f64"}


@dataclass(frozen=True, slots=True)
class MathOp:
    """One operation; `args` are numbers of earlier ones, `value` the literal of const, the index of param."""

    op: str
    type: str
    args: tuple[int, ...] = ()
    value: int | float = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """The function `name` for `dtype` (float32, float64): `params` arguments of the dtype, the last op the result."""

    name: str
    dtype: str
    params: int
    ops: tuple[MathOp, ...]

    @property
    def c_name(self) -> str:
        return f"nvm_{self.name}_{FLOAT_TYPE[self.dtype]}"


class Term:
    """A value of a program under construction; operators append operations to its Program."""

    __slots__ = ("number", "program", "type")

    def __init__(self, program: Program, number: int, kind: str) -> None:
        self.program, self.number, self.type = program, number, kind

    def _lift(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.program.const(other, self.type)

    def _binary(self, op: str, other: Term | float, kind: str | None = None) -> Term:
        return self.program.emit(op, kind or self.type, self, self._lift(other))

    def __add__(self, other: Term | float) -> Term:
        return self._binary("add", other)

    def __radd__(self, other: float) -> Term:
        return self._lift(other) + self

    def __sub__(self, other: Term | float) -> Term:
        return self._binary("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self._lift(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self._binary("mul", other)

    def __rmul__(self, other: float) -> Term:
        return self._lift(other) * self

    def __truediv__(self, other: Term | float) -> Term:
        return self._binary("div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self._lift(other) / self

    def __and__(self, other: Term | int) -> Term:
        return self._binary("and", other)

    def __or__(self, other: Term | int) -> Term:
        return self._binary("or", other)

    def __xor__(self, other: Term | int) -> Term:
        return self._binary("xor", other)

    def __lshift__(self, count: Term | int) -> Term:
        return self._binary("shl", count)

    def __rshift__(self, count: Term | int) -> Term:
        return self._binary("ashr", count)

    def lshr(self, count: Term | int) -> Term:
        return self._binary("lshr", count)

    def __lt__(self, other: Term | float) -> Term:
        return self._binary("lt", other, "b")

    def __le__(self, other: Term | float) -> Term:
        return self._binary("le", other, "b")

    def __gt__(self, other: Term | float) -> Term:
        return self._lift(other)._binary("lt", self, "b")

    def __ge__(self, other: Term | float) -> Term:
        return self._lift(other)._binary("le", self, "b")

    def eq(self, other: Term | float) -> Term:
        return self._binary("eq", other, "b")

    def __invert__(self) -> Term:
        return self.program.emit("not", "b", self)

    def select(self, if_true: Term | float, if_false: Term | float) -> Term:
        """self (b) ? if_true : if_false; one of them may be a literal of the other's type."""
        known = if_true if isinstance(if_true, Term) else if_false
        if not isinstance(known, Term):
            raise TypeError("select: one branch must be a Term")
        return self.program.emit(
            "select", known.type, self, known._lift(if_true), known._lift(if_false)
        )

    def bits(self) -> Term:
        return self.program.emit("bits", {**INT_OF, **FLOAT_OF}[self.type], self)

    def sqrt(self) -> Term:
        return self.program.emit("sqrt", self.type, self)

    def convert(self, kind: str) -> Term:
        return self if kind == self.type else self.program.emit("convert", kind, self)


class Program:
    """Collects operations; equal ones once."""

    def __init__(self, dtype: str, params: int) -> None:
        self.dtype, self.float, self.int = dtype, FLOAT_TYPE[dtype], INT_OF[FLOAT_TYPE[dtype]]
        self.ops: list[MathOp] = []
        self._known: dict[tuple[object, ...], int] = {}
        self.params = tuple(self._append(MathOp("param", self.float, (), k)) for k in range(params))

    def _append(self, op: MathOp) -> Term:
        key = (op.op, op.type, op.args, repr(op.value))
        number = self._known.setdefault(key, len(self.ops))
        if number == len(self.ops):
            self.ops.append(op)
        return Term(self, number, op.type)

    def const(self, value: float, kind: str | None = None) -> Term:
        kind = kind or self.float
        return self._append(MathOp("const", kind, (), value if kind in INT_OF else int(value)))

    def emit(self, op: str, kind: str, *args: Term) -> Term:
        return self._append(MathOp(op, kind, tuple(arg.number for arg in args)))

    def finish(self, name: str, result: Term) -> Definition:
        """The definition with what `result` does not need left out."""
        needed = [False] * len(self.ops)
        needed[result.number] = True
        for number in range(result.number, -1, -1):
            if needed[number]:
                for arg in self.ops[number].args:
                    needed[arg] = True
        for number in range(len(self.params)):
            needed[number] = True
        place: dict[int, int] = {}
        ops: list[MathOp] = []
        for number, op in enumerate(self.ops[: result.number + 1]):
            if needed[number]:
                place[number] = len(ops)
                ops.append(MathOp(op.op, op.type, tuple(place[k] for k in op.args), op.value))
        return Definition(name, self.dtype, len(self.params), tuple(ops))


def poly(x: Term, coefficients: Iterable[float]) -> Term:
    """Horner's scheme, lowest power first."""
    *rest, last = coefficients
    result = x.program.const(last, x.type)
    for coefficient in reversed(rest):
        result = result * x + coefficient
    return result


# --- C ----------------------------------------------------------------------------------------------


def _c_literal(op: MathOp) -> str:
    value = op.value
    if op.type == "i32":
        return f"(int32_t){int(value) & 0xFFFFFFFF:#x}u" if value < 0 else f"{int(value):#x}"
    if op.type == "i64":
        text = f"{int(value) & (1 << 64) - 1:#x}"
        return f"(int64_t){text}ull" if value < 0 else f"INT64_C({text})"
    if op.type == "b":
        return str(int(value))
    if value != value or value in (float("inf"), -float("inf")):
        bits = "NAN" if value != value else "INFINITY"
        return ("-" if value < 0 else "") + (f"(double){bits}" if op.type == "f64" else bits)
    return float(value).hex() + ("f" if op.type == "f32" else "")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a kind of C writes what it does not share with others.

    types, unsigned   a program's type -> its C type, and the unsigned one in which i32 and i64 wrap
    literal           the text of a const operation
    wrapped, bits     (source type, target type, text) -> a value of `unsigned` as the signed type; the same bits
    sqrt              (type, text) -> its square root
    """

    types: Mapping[str, str]
    unsigned: Mapping[str, str]
    literal: Callable[[MathOp], str]
    wrapped: Callable[[str, str], str]
    bits: Callable[[str, str, str], str]
    sqrt: Callable[[str, str], str]


_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=",
           "eq": "==", "shl": "<<", "lshr": ">>", "ashr": ">>"}  # fmt: skip


def _c_expression(definition: Definition, op: MathOp, dialect: Dialect) -> str:
    args = [f"v{k}" for k in op.args]
    unsigned = dialect.unsigned.get(op.type, "")
    match op.op:
        case "param":
            return f"x{op.value}"
        case "const":
            return dialect.literal(op)
        case "add" | "sub" | "mul" if unsigned:
            both = f"({unsigned}){args[0]} {_SYMBOL[op.op]} ({unsigned}){args[1]}"
            return dialect.wrapped(op.type, both)
        case "shl" | "lshr":
            return dialect.wrapped(op.type, f"({unsigned}){args[0]} {_SYMBOL[op.op]} {args[1]}")
        case "add" | "sub" | "mul" | "div" | "and" | "or" | "xor" | "lt" | "le" | "eq" | "ashr":
            return f"{args[0]} {_SYMBOL[op.op]} {args[1]}"
        case "not":
            return f"!{args[0]}"
        case "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "bits":
            return dialect.bits(definition.ops[op.args[0]].type, op.type, args[0])
        case "sqrt":
            return dialect.sqrt(op.type, args[0])
        case "convert":
            return f"({dialect.types[op.type]}){args[0]}"
        case _:
            raise ValueError(f"math program: unknown operation {op.op!r}")


C11 = Dialect(
    C_TYPE,
    {"i32": "uint32_t", "i64": "uint64_t"},
    _c_literal,
    wrapped=lambda type_, x: f"({C_TYPE[type_]})({x})",
    bits=lambda source, target, x: f"nvm_bits_{source}_{target}({x})",
    sqrt=lambda type_, x: f"{'sqrtf' if type_ == 'f32' else 'sqrt'}({x})",
)


def c_function(
    definition: Definition, name: str, dialect: Dialect = C11, linkage: str = "static inline"
) -> list[str]:
    """The definition as lines of a C function."""
    kind = dialect.types[FLOAT_TYPE[definition.dtype]]
    parameters = ", ".join(f"{kind} x{k}" for k in range(definition.params))
    lines = [f"{linkage} {kind} {name}({parameters}) {{"]
    for number, op in enumerate(definition.ops):
        text = _c_expression(definition, op, dialect)
        lines.append(f"  const {dialect.types[op.type]} v{number} = {text};")
    return [*lines, f"  return v{len(definition.ops) - 1};", "}"]
