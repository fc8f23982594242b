"""Runs a loop-IR kernel in Python, one element at a time: the oracle of the C interpreter and of generated code. Slow.

Also the numpy back end of the math programs, whose bits C and LLVM must match.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nimblevm.dtypes import BY_NAME
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_form import postorder, roots
from nimblevm.kernels.math_program import Definition, MathOp
from nimblevm.kernels.math_table import NAMES, definition

Scalar = Any  # a numpy scalar; numpy's stubs make no use of anything narrower
Array = NDArray[Any]
_MATH_DTYPE = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "b": np.bool_,
}


class KernelFault(Exception):
    """A fault as ctx->fail reports it: `code` is a name of errors.STATUSES."""

    def __init__(self, code: str, operand: int = -1, index: int = 0, bound: int = 0) -> None:
        super().__init__(f"{code}: operand {operand}, index {index}, bound {bound}")
        self.code, self.operand, self.index, self.bound = code, operand, index, bound


# --- math programs ----------------------------------------------------------------------------------


def _math_op(op: MathOp, values: list[Array], params: Sequence[Array]) -> Array:
    args = [values[k] for k in op.args]
    kind = _MATH_DTYPE[op.type]
    match op.op:
        case "param":
            return np.asarray(params[int(op.value)])
        case "const":
            return np.asarray(op.value, kind)
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "mul":
            return args[0] * args[1]
        case "div":
            return args[0] / args[1]
        case "sqrt":
            return np.asarray(np.sqrt(args[0]))
        case "and":
            return args[0] & args[1]
        case "or":
            return args[0] | args[1]
        case "xor":
            return args[0] ^ args[1]
        case "not":
            return ~args[0]
        case "shl":
            return args[0] << args[1]
        case "ashr":
            return args[0] >> args[1]
        case "lshr":
            unsigned = np.uint32 if op.type == "i32" else np.uint64
            return np.asarray((args[0].view(unsigned) >> args[1].astype(unsigned)).view(kind))
        case "lt":
            return np.asarray(args[0] < args[1])
        case "le":
            return np.asarray(args[0] <= args[1])
        case "eq":
            return np.asarray(args[0] == args[1])
        case "select":
            return np.where(args[0], args[1], args[2])
        case "bits":
            return np.ascontiguousarray(args[0]).view(kind).reshape(args[0].shape)
        case "convert":
            return np.asarray(args[0], kind)
        case _:
            raise ValueError(f"math program: unknown operation {op.op!r}")


def evaluate_math(program: Definition, *params: Array) -> Array:
    """The program on arrays of one shape and its dtype, element by element; bits equal to the C function's."""
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for op in program.ops:
            values.append(_math_op(op, values, params))
    return values[-1]


# --- operations -------------------------------------------------------------------------------------


def _round_half_away(x: Scalar) -> Scalar:
    """Half away from zero, exactly."""
    whole = np.trunc(x)
    return whole if abs(x - whole) < 0.5 else whole + np.copysign(type(x)(1), x)


def _float_unary(op: str, x: Scalar) -> Scalar:
    kind = type(x)
    if op in NAMES:
        return kind(evaluate_math(definition(op, kind.__name__), np.asarray(x))[()])
    table: dict[str, Callable[[Scalar], Scalar]] = {
        "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
        "sign": np.sign, "round": _round_half_away, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    }  # fmt: skip
    return table[op](x)


def _float_binary(op: str, x: Scalar, y: Scalar) -> Scalar:
    kind = type(x)
    match op:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "div":
            return x / y
        case "min":
            return x if x < y or x != x else y
        case "max":
            return x if x > y or x != x else y
        case "mod":
            return np.fmod(x, y)
        case "floordiv":
            return np.floor(x / y)
        case "floormod":
            rest = np.fmod(x, y)
            if rest == 0:
                return np.copysign(rest, y)
            return rest + y if (rest < 0) != (y < 0) else rest
        case "pow":
            program = definition("pow", kind.__name__)
            return kind(evaluate_math(program, np.asarray(x), np.asarray(y))[()])
        case _:
            raise ValueError(f"loop IR: {op!r} is not defined for floats")


def _wrap(value: int, dtype: str) -> Scalar:
    row = BY_NAME[dtype]
    value &= (1 << row.bits) - 1
    if row.is_signed and value >> (row.bits - 1):
        value -= 1 << row.bits
    return np.dtype(row.numpy).type(value)


def _int_binary(op: str, x: int, y: int, bits: int) -> int:
    if op in ("div", "mod", "floordiv", "floormod") and y == 0:
        raise KernelFault("DIVISION_BY_ZERO")
    truncated = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0
    table: dict[str, Callable[[], int]] = {
        "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "min": lambda: min(x, y),
        "max": lambda: max(x, y), "and": lambda: x & y, "or": lambda: x | y, "xor": lambda: x ^ y,
        "shl": lambda: x << (y % bits), "shr": lambda: x >> (y % bits), "div": lambda: truncated,
        "mod": lambda: x - truncated * y, "floordiv": lambda: x // y, "floormod": lambda: x % y,
    }  # fmt: skip
    return table[op]()


def _binary(op: str, x: Scalar, y: Scalar, dtype: str) -> Scalar:
    row = BY_NAME[dtype]
    if row.is_bool:
        logical = {
            "and": x & y,
            "or": x | y,
            "xor": x ^ y,
            "add": x | y,
            "mul": x & y,
            "min": x & y,
            "max": x | y,
        }
        return logical[op]
    if row.is_float:
        return _float_binary(op, x, y)
    return _wrap(_int_binary(op, int(x), int(y), row.bits), dtype)


def _unary(op: str, x: Scalar, dtype: str) -> Scalar:
    row = BY_NAME[dtype]
    if row.is_float:
        return _float_unary(op, x)
    if row.is_bool:
        return np.bool_(not x)
    value = int(x)
    results = {
        "neg": -value,
        "abs": abs(value),
        "sign": (value > 0) - (value < 0),
        "bitnot": ~value,
    }
    return _wrap(results[op], dtype)


def cast(x: Scalar, dtype: str) -> Scalar:
    """x as `dtype`: saturating from float (NaN gives 0), wrapping between integers, != 0 to bool."""
    row = BY_NAME[dtype]
    kind = np.dtype(row.numpy).type
    if row.is_bool:
        return np.bool_(x != 0)
    if row.is_float:
        return kind(x)
    if isinstance(x, np.floating):
        info = np.iinfo(kind)
        number = float(x)
        if math.isnan(number):
            return kind(0)
        if math.isinf(number):
            return kind(info.max if number > 0 else info.min)
        return kind(min(max(int(number), int(info.min)), int(info.max)))
    return _wrap(int(x), dtype)


_COMPARE: dict[str, Callable[[Scalar, Scalar], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}  # fmt: skip


def _widen(x: Scalar) -> Scalar:
    """float16 is computed in float32."""
    return np.float32(x) if isinstance(x, np.float16) else x


class Run:
    """The state of one run: `vars` by id of the LoopVar."""

    def __init__(self, kernel: ir.Kernel, arrays: Sequence[Array], dims: Sequence[int]) -> None:
        self.kernel, self.arrays = kernel, arrays
        self.dims = [int(dim) for dim in dims]
        self.out_dims = [0] * kernel.out_dims
        self.vars: dict[int, int] = {}
        self.locals: dict[int, Scalar] = {}
        self.orders: dict[int, list[ir.Value]] = {}

    def values(self, statement: ir.Statement) -> dict[int, Scalar]:
        """Values of the statement's expressions by id, each computed once."""
        order = self.orders.get(id(statement))
        if order is None:
            order = self.orders[id(statement)] = list(postorder(roots(statement), set()))
        done: dict[int, Scalar] = {}
        for value in order:
            result = self.value(value, done)
            done[id(value)] = np.float16(result) if value.dtype == "float16" else result
        return done

    def place(self, buffer: int, indices: Sequence[Scalar]) -> tuple[int, ...]:
        place = []
        for axis, index in enumerate(int(index) for index in indices):
            size = self.arrays[buffer].shape[axis]
            spread = self.kernel.buffers[buffer].axes[axis].broadcast and size == 1
            if not spread and not 0 <= index < size:
                raise KernelFault("INDEX_OUT_OF_RANGE", buffer, index, size)
            place.append(0 if spread else index)
        return tuple(place)

    def value(self, value: ir.Value, done: dict[int, Scalar]) -> Scalar:
        match value:
            case ir.Const(value=literal):
                return np.dtype(BY_NAME[value.dtype].numpy).type(literal)
            case ir.LoopVar():
                return np.int64(self.vars[id(value)])
            case ir.Local():
                return self.locals.get(id(value), np.dtype(BY_NAME[value.dtype].numpy).type(0))
            case ir.DimRef(index=index):
                return np.int64(self.dims[index])
            case ir.Load(buffer=buffer, indices=indices):
                return self.arrays[buffer][self.place(buffer, [done[id(k)] for k in indices])]
            case ir.Unary(op="bits", operand=operand):
                return done[id(operand)].view(np.dtype(BY_NAME[value.dtype].numpy))
            case ir.Unary(op=op, operand=operand):
                return _unary(op, _widen(done[id(operand)]), operand.dtype)
            case ir.Binary(op=op, lhs=lhs, rhs=rhs):
                return _binary(op, _widen(done[id(lhs)]), _widen(done[id(rhs)]), value.dtype)
            case ir.Compare(op=op, lhs=lhs, rhs=rhs):
                return np.bool_(_COMPARE[op](done[id(lhs)], done[id(rhs)]))
            case ir.Select(cond=cond, if_true=if_true, if_false=if_false):
                return done[id(if_true if done[id(cond)] else if_false)]
            case ir.Cast(operand=operand):
                return cast(done[id(operand)], value.dtype)
            case ir.CheckIndex(index=index, bound=bound, operand=number):
                if not 0 <= done[id(index)] < done[id(bound)]:
                    place = (int(done[id(index)]), int(done[id(bound)]))
                    raise KernelFault("INDEX_OUT_OF_RANGE", number, *place)
                return done[id(index)]
            case _:
                raise TypeError(f"loop IR: not an expression: {type(value).__name__}")

    def simple(self, statement: ir.Statement) -> None:
        done = self.values(statement)
        match statement:
            case ir.Store(buffer=buffer, indices=indices, value=value):
                place = self.place(buffer, [done[id(k)] for k in indices])
                self.arrays[buffer][place] = done[id(value)]
            case ir.SetLocal(local=local, value=value):
                self.locals[id(local)] = done[id(value)]
            case ir.Accumulate(local=local, op=op, value=value):
                old = self.locals.get(id(local), np.dtype(BY_NAME[local.dtype].numpy).type(0))
                new = _binary(op, _widen(old), _widen(done[id(value)]), local.dtype)
                self.locals[id(local)] = np.float16(new) if local.dtype == "float16" else new
            case ir.SetDim(index=index, value=value):
                self.out_dims[index] = int(done[id(value)])
            case _:
                raise TypeError(f"loop IR: not a statement: {type(statement).__name__}")

    def run(self) -> None:
        """The whole body; one thread alone waits at no barrier."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The body up to each barrier, then the rest. By an explicit stack of (statement, turn, turns)."""
        stack: list[tuple[ir.Statement, int, int]] = [
            (s, -1, 0) for s in reversed(self.kernel.body)
        ]
        while stack:
            statement, turn, turns = stack.pop()
            if isinstance(statement, ir.Barrier):
                yield
            elif isinstance(statement, ir.If):
                taken = self.values(statement)[id(statement.cond)]
                block = statement.then if taken else statement.otherwise
                stack.extend((inner, -1, 0) for inner in reversed(block))
            elif isinstance(statement, ir.For):
                if turn < 0:
                    turn, turns = 0, int(self.values(statement)[id(statement.extent)])
                if turn < turns:
                    self.vars[id(statement.var)] = turn
                    stack.append((statement, turn + 1, turns))
                    stack.extend((inner, -1, 0) for inner in reversed(statement.body))
            else:
                self.simple(statement)


def evaluate(kernel: ir.Kernel, arrays: Sequence[Array], dims: Sequence[int]) -> list[int]:
    """Run `kernel` on arrays in the order of its buffers (outputs and scratch are written); returns the out-dims.

    Shapes and dtypes must fit the kernel. Raises KernelFault where the kernel faults.
    """
    run = Run(kernel, arrays, dims)
    with np.errstate(all="ignore"):
        run.run()
    return run.out_dims
