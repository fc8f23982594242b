"""Checks that a loop-IR kernel is well formed: what C checks in a file, plus use before set. Errors name the place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from nimblevm.abi import MAX_OPERANDS, MAX_RANK
from nimblevm.dtypes import BY_NAME
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_form import (
    MAX_LOCALS,
    MAX_NESTING,
    MAX_STATEMENTS,
    postorder,
    roots,
)

_Stack = list[tuple[ir.Statement | Callable[[], None], int]]
"""Statements and what to do behind them, with depth."""
_SIZE_OPS = frozenset(("add", "sub", "mul", "floordiv", "floormod", "min", "max"))
_INTEGER_ONLY = frozenset(("and", "or", "xor", "shl", "shr"))
_BOOL_BINARY = frozenset(("add", "mul", "min", "max", "and", "or", "xor"))
_FLOAT_ACCUMULATE = frozenset(("add", "mul", "min", "max"))


def binary_defined(op: str, dtype: str) -> bool:
    """Is `op` of BINARY defined on `dtype`?"""
    row = BY_NAME[dtype]
    if row.is_bool:
        return op in _BOOL_BINARY
    if row.is_float:
        return op not in _INTEGER_ONLY
    return op != "pow"


class _Checker:
    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.place = "signature"
        self.open: set[int] = set()
        self.set: set[int] = set()
        self.locals: set[int] = set()
        self.typed: set[int] = set()
        self.keep: list[ir.Value] = []
        self.branches: list[set[int]] = []

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f"loop IR kernel {self.kernel.name!r}, {self.place}: {message}")

    def need(self, value: ir.Value, dtype: str, what: str) -> None:
        if value.dtype != dtype:
            self.fail(f"{what}: expected {dtype}, got {value.dtype} ({type(value).__name__})")

    # --- signature ---

    def size(self, value: ir.Value) -> None:
        for node in postorder((value,), set()):
            self.need(node, "int64", "axis size")
            match node:
                case ir.Const():
                    pass
                case ir.DimRef(index=index):
                    self.dim(index)
                case ir.Binary(op=op) if op in _SIZE_OPS:
                    pass
                case _:
                    self.fail(f"an axis size can't be computed by {type(node).__name__}")

    def dim(self, index: int) -> None:
        if not 0 <= index < len(self.kernel.dims):
            self.fail(f"dims has {len(self.kernel.dims)} entries, no number {index}")

    def signature(self) -> None:
        kernel = self.kernel
        order = [ir.OPERAND_ROLES.index(buffer.role) for buffer in kernel.buffers]
        if order != sorted(order) or len(order) > MAX_OPERANDS:
            self.fail(f"expected inputs, outputs, scratch in this order, at most {MAX_OPERANDS}")
        for number, buffer in enumerate(kernel.buffers):
            self.place = f"operand {number} ({buffer.name})"
            if buffer.dtype not in BY_NAME or len(buffer.axes) > MAX_RANK:
                self.fail(f"unknown dtype {buffer.dtype!r} or more than {MAX_RANK} axes")
            for axis in buffer.axes:
                self.size(axis.size)
                if axis.broadcast and buffer.role != "in":
                    self.fail("only inputs have broadcast axes")
        self.place = "alias"
        for target, source in kernel.alias:
            roles = [kernel.buffers[k].role for k in (target, source)]
            if roles != ["out", "in"]:
                self.fail(f"expected (output, input), got operands ({target}, {source})")

    # --- expressions ---

    def indices(self, buffer: int, indices: tuple[ir.Value, ...]) -> ir.Buffer:
        if not 0 <= buffer < len(self.kernel.buffers):
            self.fail(f"no operand {buffer}")
        row = self.kernel.buffers[buffer]
        if len(indices) != len(row.axes):
            self.fail(f"{row.name} has {len(row.axes)} axes, got {len(indices)} indices")
        for index in indices:
            self.need(index, "int64", f"index of {row.name}")
        return row

    def const(self, value: ir.Const) -> None:
        row, literal = BY_NAME[value.dtype], value.value
        if row.is_float:
            fits = isinstance(literal, (int, float))
        elif row.is_bool:
            fits = literal in (0, 1)
        else:
            low = -(1 << (row.bits - 1)) if row.is_signed else 0
            fits = isinstance(literal, int) and low <= literal < low + (1 << row.bits)
        if not fits:
            self.fail(f"literal {literal!r} does not fit {value.dtype}")

    def unary(self, value: ir.Unary) -> None:
        operand = BY_NAME[value.operand.dtype]
        if value.op in ir.UNARY_TEST:
            self.need(value, "bool", value.op)
            defined = operand.is_float
        elif value.op in ir.UNARY_BITS:
            row = BY_NAME[value.dtype]
            defined = row.bits == operand.bits >= 32 and row.is_float != operand.is_float
        else:
            self.need(value.operand, value.dtype, value.op)
            allowed = (
                ir.UNARY_FLOAT
                if operand.is_float
                else ir.UNARY_BOOL
                if operand.is_bool
                else ir.UNARY_INT
            )
            defined = value.op in allowed
        if not defined:
            self.fail(f"{value.op!r} is not defined for {operand.name}")

    def expression(self, value: ir.Value) -> None:
        match value:
            case ir.Const():
                self.const(value)
            case ir.LoopVar():
                self.need(value, "int64", "loop variable")
            case ir.Local():
                pass
            case ir.DimRef(index=index):
                self.need(value, "int64", "dim")
                self.dim(index)
            case ir.Load(buffer=buffer, indices=indices):
                self.need(value, self.indices(buffer, indices).dtype, "load")
            case ir.Unary():
                self.unary(value)
            case ir.Binary(op=op, lhs=lhs, rhs=rhs):
                self.need(lhs, value.dtype, op)
                self.need(rhs, value.dtype, op)
                if op not in ir.BINARY or not binary_defined(op, value.dtype):
                    self.fail(f"{op!r} is not defined for {value.dtype}")
            case ir.Compare(op=op, lhs=lhs, rhs=rhs):
                self.need(value, "bool", op)
                self.need(rhs, lhs.dtype, op)
                if op not in ir.COMPARE:
                    self.fail(f"unknown comparison {op!r}")
            case ir.Select(cond=cond, if_true=if_true, if_false=if_false):
                self.need(cond, "bool", "condition of select")
                self.need(if_true, value.dtype, "select")
                self.need(if_false, value.dtype, "select")
            case ir.Cast():
                pass
            case ir.CheckIndex(index=index, bound=bound, operand=operand):
                for part in (value, index, bound):
                    self.need(part, "int64", "check")
                if not 0 <= operand < len(self.kernel.buffers):
                    self.fail(f"check names operand {operand}")
            case _:
                self.fail(f"not an expression: {type(value).__name__}")

    def values(self, statement: ir.Statement) -> None:
        """Types of new expressions; scopes of all, for they change from use to use."""
        for value in postorder(roots(statement), set()):
            if id(value) not in self.typed:
                if value.dtype not in BY_NAME:
                    self.fail(f"unknown dtype {value.dtype!r}")
                self.expression(value)
                self.typed.add(id(value))
                self.keep.append(value)
            if isinstance(value, ir.LoopVar) and id(value) not in self.open:
                self.fail(f"loop variable {value.name} is used outside its loop")
            if isinstance(value, ir.Local) and id(value) not in self.set:
                self.fail(f"local {value.name} is read before it is set")

    # --- statements ---

    def simple(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Store(buffer=buffer, indices=indices, value=value):
                row = self.indices(buffer, indices)
                if row.role == "in":
                    self.fail(f"store to input {row.name}")
                self.need(value, row.dtype, f"store to {row.name}")
            case ir.SetLocal(local=local, value=value):
                self.need(value, local.dtype, f"local {local.name}")
                self.set.add(id(local))
                self.locals.add(id(local))
            case ir.Accumulate(local=local, op=op, value=value):
                self.need(value, local.dtype, f"local {local.name}")
                is_float = BY_NAME[local.dtype].is_float
                if op not in ir.ACCUMULATE or (is_float and op not in _FLOAT_ACCUMULATE):
                    self.fail(f"{op!r} is not defined for {local.dtype}")
                if id(local) not in self.set:
                    self.fail(f"local {local.name} is accumulated before it is set")
            case ir.SetDim(index=index, value=value):
                self.need(value, "int64", "out-dim")
                if not 0 <= index < self.kernel.out_dims:
                    self.fail(f"no out-dim {index}")
            case _:
                self.fail(f"not a statement: {type(statement).__name__}")

    def close_loop(self, loop: ir.For, before: set[int]) -> None:
        """A loop may have had no turn: what it sets does not count behind it."""
        self.set = before
        self.open.discard(id(loop.var))

    def turn_branch(self, before: set[int]) -> None:
        """From the first branch to the second."""
        self.branches.append(self.set)
        self.set = before

    def close_branch(self) -> None:
        """Behind both, what both set is set."""
        self.set &= self.branches.pop()

    def statements(self) -> None:
        stack: _Stack = [(statement, 0) for statement in reversed(self.kernel.body)]
        count = 0
        while stack:
            statement, depth = stack.pop()
            if not isinstance(statement, ir.Statement) and callable(statement):
                statement()
                continue
            self.place = f"statement {count} ({type(statement).__name__})"
            count += 1
            if count > MAX_STATEMENTS:
                self.fail(f"more than {MAX_STATEMENTS} statements")
            if not isinstance(statement, ir.Statement):
                self.fail(f"not a statement: {type(statement).__name__}")
            self.values(statement)
            if not isinstance(statement, (ir.For, ir.If)):
                self.simple(statement)
                continue
            if depth == MAX_NESTING:
                self.fail(f"loops and branches nest deeper than {MAX_NESTING}")
            self.enter(statement, depth, stack)
        if len(self.locals) > MAX_LOCALS:
            self.fail(f"more than {MAX_LOCALS} locals")

    def enter(self, statement: ir.For | ir.If, depth: int, stack: _Stack) -> None:
        before = set(self.set)
        if isinstance(statement, ir.For):
            self.need(statement.var, "int64", "loop variable")
            self.need(statement.extent, "int64", "extent")
            if id(statement.var) in self.open:
                self.fail(f"loop variable {statement.var.name} is bound already")
            self.open.add(id(statement.var))
            stack.append((partial(self.close_loop, statement, before), depth))
            stack.extend((inner, depth + 1) for inner in reversed(statement.body))
            return
        self.need(statement.cond, "bool", "condition")
        stack.append((self.close_branch, depth))
        stack.extend((inner, depth + 1) for inner in reversed(statement.otherwise))
        stack.append((partial(self.turn_branch, before), depth))
        stack.extend((inner, depth + 1) for inner in reversed(statement.then))


def validate(kernel: ir.Kernel) -> None:
    """Raise ValueError with the place unless `kernel` is typed, scoped and within the limits of the file format."""
    checker = _Checker(kernel)
    checker.signature()
    checker.statements()
