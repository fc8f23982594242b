"""Random valid loop-IR kernels with operands to run them on, and calls of them for grids."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nimblevm.dtypes import BY_NAME, DTYPES
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.facts import pitches
from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from tests.kernels.native import status_number

NAMES = [row.name for row in DTYPES]
FLOATS = [row.name for row in DTYPES if row.is_float]
EXACT_UNARY = (
    "neg",
    "abs",
    "sqrt",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "exp",
    "log",
    "tanh",
    "sigmoid",
)


class Generator:
    """One kernel: 2-d operands over dims (m, n), nested loops, stores that may overlap, locals, branches."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        pick = self.random.choice
        self.m, self.n = pick([1, 2, 3]), pick([1, 5, 17, 40, 300])
        axes = (ir.Axis(ir.DimRef("int64", 0)), ir.Axis(ir.DimRef("int64", 1)))
        spread = (
            ir.Axis(ir.DimRef("int64", 0), broadcast=True),
            ir.Axis(ir.DimRef("int64", 1), broadcast=True),
        )
        self.buffers = [ir.Buffer(f"in{k}", pick(NAMES), "in", axes) for k in range(2)]
        self.buffers.append(ir.Buffer("spread", pick(NAMES), "in", spread))
        self.buffers.append(ir.Buffer("index", "int64", "in", axes))
        self.buffers += [
            ir.Buffer(f"out{k}", pick(NAMES), "out" if k == 0 else pick(["out", "scratch"]), axes)
            for k in range(2)
        ]
        self.outputs = [len(self.buffers) - 2, len(self.buffers) - 1]
        self.locals = [ir.Local(pick(NAMES), f"t{k}") for k in range(3)]
        self.vars: list[ir.LoopVar] = []
        self.pool: list[ir.Value] = []

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        result = []
        for buffer in self.buffers:
            shape = (self.m, self.n)
            if buffer.name == "spread":
                shape = (self.random.choice([1, self.m]), self.random.choice([1, self.n]))
            row = BY_NAME[buffer.dtype]
            array: np.ndarray
            if buffer.name == "index":
                array = self.rng.integers(0, min(shape), shape)
            elif row.is_float:
                array = self.rng.normal(0, 3, shape).round(2)
            elif row.is_bool:
                array = self.rng.integers(0, 2, shape)
            else:
                array = self.rng.integers(0 if not row.is_signed else -5, 6, shape)
            result.append(np.ascontiguousarray(array.astype(row.numpy)))
        return result

    def index(self, axis: int) -> ir.Value:
        """In range or, now and then, not."""
        pick = self.random.random()
        limit = ir.DimRef("int64", axis)
        inner = self.vars[-1] if axis == 1 or len(self.vars) < 2 else self.vars[0]
        if pick < 0.6:
            return inner
        if pick < 0.7:
            return ir.Binary(
                "int64", "sub", ir.Binary("int64", "sub", limit, ir.Const("int64", 1)), inner
            )
        if pick < 0.75:
            return ir.Const("int64", 0)
        if pick < 0.8:
            return ir.CheckIndex("int64", inner, limit, 0)
        if pick < 0.85:
            return ir.Load("int64", 3, (self.vars[0], self.vars[-1]))
        if pick < 0.9:
            return ir.Binary("int64", "min", ir.Binary("int64", "mul", inner, ir.Const("int64", 2)),
                             ir.Binary("int64", "sub", limit, ir.Const("int64", 1)))  # fmt: skip
        if pick < 0.98:
            return ir.Binary(
                "int64", "floormod", ir.Binary("int64", "add", inner, ir.Const("int64", 1)), limit
            )
        return ir.Binary("int64", "add", inner, ir.Const("int64", self.random.choice([0, 0, 1])))

    def value(self, dtype: str, depth: int) -> ir.Value:
        shared = [value for value in self.pool if value.dtype == dtype]
        if shared and self.random.random() < 0.2:
            return self.random.choice(shared)
        value = self.fresh(dtype, depth)
        self.pool.append(value)
        return value

    def leaf(self, dtype: str) -> ir.Value:
        row = BY_NAME[dtype]
        choices: list[ir.Value] = [local for local in self.locals if local.dtype == dtype]
        if self.vars:
            choices += [
                ir.Load(dtype, k, (self.index(0), self.index(1)))
                for k, buffer in enumerate(self.buffers)
                if buffer.dtype == dtype
            ]
        if dtype == "int64":
            choices += [*self.vars, ir.DimRef("int64", 1)]
        literal = self.random.randint(0, 3)
        choices.append(
            ir.Const(
                dtype,
                literal / 2 if row.is_float else bool(literal & 1) if row.is_bool else literal,
            )
        )
        return self.random.choice(choices)

    def fresh(self, dtype: str, depth: int) -> ir.Value:
        row, pick = BY_NAME[dtype], self.random.random()
        if depth == 0 or pick < 0.2:
            return self.leaf(dtype)
        if pick < 0.35:
            return ir.Cast(dtype, self.value(self.random.choice(NAMES), depth - 1))
        if pick < 0.45:
            branches = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            return ir.Select(dtype, self.value("bool", depth - 1), *branches)
        if row.is_bool:
            return self.truth(depth)
        if pick < 0.6:
            unary = EXACT_UNARY if row.is_float else ir.UNARY_INT
            return ir.Unary(dtype, self.random.choice(unary), self.value(dtype, depth - 1))
        names: tuple[str, ...] = (
            "add",
            "sub",
            "mul",
            "min",
            "max",
            "div",
            "floordiv",
            "floormod",
            "mod",
        )
        if not row.is_float:
            names = (*names[:5], *names[:5], *names, "and", "or", "xor", "shl", "shr")
        op = self.random.choice(names)
        return ir.Binary(dtype, op, self.value(dtype, depth - 1), self.value(dtype, depth - 1))

    def truth(self, depth: int) -> ir.Value:
        pick = self.random.random()
        if pick < 0.6:
            dtype = self.random.choice(NAMES)
            operands = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            return ir.Compare("bool", self.random.choice(ir.COMPARE), *operands)
        if pick < 0.8:
            operands = self.value("bool", depth - 1), self.value("bool", depth - 1)
            return ir.Binary("bool", self.random.choice(("and", "or", "xor")), *operands)
        if pick < 0.9:
            return ir.Unary("bool", "not", self.value("bool", depth - 1))
        operand = self.value(self.random.choice(FLOATS), depth - 1)
        return ir.Unary("bool", self.random.choice(ir.UNARY_TEST), operand)

    def statement(self, depth: int) -> ir.Statement:
        self.pool.clear()
        pick = self.random.random()
        if depth and pick < 0.15:
            then = tuple(self.statement(depth - 1) for _ in range(self.random.randint(0, 2)))
            otherwise = tuple(self.statement(depth - 1) for _ in range(self.random.randint(0, 1)))
            return ir.If(self.value("bool", 2), then, otherwise)
        if pick < 0.3:
            local = self.random.choice(self.locals)
            return ir.SetLocal(local, self.value(local.dtype, 2))
        if pick < 0.5:
            # exact in any order: no float sums
            local = self.random.choice(self.locals)
            ops = ("min", "max") if BY_NAME[local.dtype].is_float else ir.ACCUMULATE
            return ir.Accumulate(local, self.random.choice(ops), self.value(local.dtype, 2))
        if pick < 0.55:
            return ir.SetDim(0, self.value("int64", 1))
        buffer = self.random.choice(self.outputs)
        value = self.value(self.buffers[buffer].dtype, 3)
        return ir.Store(buffer, (self.index(0), self.index(1)), value)

    def store(self) -> ir.Statement:
        buffer = self.random.choice(self.outputs)
        value = self.value(self.buffers[buffer].dtype, 3)
        return ir.Store(buffer, (self.index(0), self.index(1)), value)

    def inner(self) -> tuple[ir.Statement, ...]:
        count = self.random.randint(1, 3)
        if self.random.random() < 0.6:  # likely a row
            return tuple(self.store() for _ in range(count))
        return tuple(self.statement(1) for _ in range(count))

    def kernel(self) -> ir.Kernel:
        i, j = ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
        self.vars = [i]
        before = self.random.choice(
            [(), (ir.SetLocal(self.locals[0], self.value(self.locals[0].dtype, 1)),)]
        )
        self.vars = [i, j]
        loop = ir.For(j, ir.DimRef("int64", 1), self.inner())
        self.vars = [i]
        after = self.random.choice([(), (self.statement(0),)])
        body = (ir.For(i, ir.DimRef("int64", 0), (*before, loop, *after)),)
        return ir.Kernel("random", tuple(self.buffers), ("m", "n"), body, 1)


@dataclass(frozen=True, slots=True)
class GridCase:
    """A call of a kernel without out-dims, and what the evaluator gives.

    numbers   the call's dims, then the sizes of broadcast axes
    expected  the arrays after a call that returns 0
    """

    seed: int
    kernel: ir.Kernel
    arrays: list[np.ndarray[Any, Any]]
    numbers: list[int]
    expected: list[np.ndarray[Any, Any]]
    status: int


def grid_cases(seeds: Iterable[int], locals_set: bool) -> list[GridCase]:
    """Random kernels that grids run. Left out are those with an index out of range, which no code of theirs checks.

    locals_set: all locals are set to 0 first, which makes fewer launches of a kernel; else they start as 0.
    """
    found: list[GridCase] = []
    for seed in seeds:
        generator = Generator(seed)
        whole = generator.kernel()
        body = _without_out_dims(whole.body)
        if locals_set:
            zeros = (ir.SetLocal(t, ir.Const(t.dtype, 0)) for t in generator.locals)
            body = (*zeros, *body)
        kernel = replace(whole, body=body, out_dims=0)
        arrays, dims = generator.arrays(), [generator.m, generator.n]
        expected = [array.copy() for array in arrays]
        status = 0
        try:
            evaluate(kernel, expected, dims)
        except KernelFault as fault:
            if fault.code == "INDEX_OUT_OF_RANGE":
                continue
            status = status_number(fault.code)
        sizes = [arrays[buffer].shape[axis] for buffer, axis in pitches(kernel)]
        found.append(GridCase(seed, kernel, arrays, [*dims, *sizes], expected, status))
    return found


def check_grid(
    cases: Sequence[GridCase], run: Callable[[int, list[np.ndarray[Any, Any]], list[int]], int]
) -> None:
    """Run every case, bit for bit but for the sign of zeros. run: (number of the case, arrays, numbers) -> status."""
    for number, case in enumerate(cases):
        assert run(number, case.arrays, case.numbers) == case.status, case.seed
        if case.status == 0:
            for found, wanted in zip(case.arrays, case.expected, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=str(case.seed))


def _without_out_dims(body: Sequence[ir.Statement]) -> tuple[ir.Statement, ...]:
    found: list[ir.Statement] = []
    for statement in body:
        match statement:
            case ir.SetDim():
                continue
            case ir.For(body=inner):
                statement = replace(statement, body=_without_out_dims(inner))
            case ir.If(then=then, otherwise=otherwise):
                both = _without_out_dims(then), _without_out_dims(otherwise)
                statement = replace(statement, then=both[0], otherwise=both[1])
        found.append(statement)
    return tuple(found)
