"""Runs generated machine code on numpy arrays, as the VM would: used by the tests of kernels."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nimblevm.errors import STATUSES, status_row
from nimblevm.kernels.llvm import NativeCode
from nimblevm.kernels.loop_ir import Binary, Const, DimRef, Value
from nimblevm.kernels.loop_ir_eval import KernelFault, evaluate
from nimblevm.kernels.lower import IntParam, LoweredKernel, lower_primitive
from nimblevm.relay import dims
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_expr, infer_type
from nimblevm.relay.interpreter import Interpreter
from nimblevm.relay.ir import Call, Function, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import get
from nimblevm.relay.parser import parse_module
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.kernels.ir_harness import Loaded

FAIL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64
)
POLL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
RANGE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, RANGE, ctypes.c_void_p
)


class Context(ctypes.Structure):
    """nvm_kernel_ctx."""

    _fields_ = (
        ("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("fail", FAIL), ("poll", POLL),
        ("parallel_for", PARALLEL_FOR),
    )  # fmt: skip


KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(Context), ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
)  # fmt: skip


def _report(ctx: Any, code: int, operand: int, index: int, bound: int) -> int:
    return code


_FAIL = FAIL(_report)
STOP = 19
polls: list[int] = []
"""Status numbers that the next polls give; empty: go on. Polls are counted by `polled`."""
polled = [0]


def _answer(ctx: Any) -> int:
    polled[0] += 1
    return polls.pop() if polls else 0


_POLL = POLL(_answer)
cuts: list[float] = []
"""Where the next parallel loops are cut, as parts of their length; the pieces run from the last to the first."""
regions: list[tuple[int, int]] = []
"""Turns, and the estimate of work in ns, of the parallel loops that ran."""


def _parallel_for(ctx: Any, count: int, work: int, fn: Any, closure: Any) -> int:
    regions.append((count, work))
    places = [0, *sorted(int(cut * count) for cut in cuts), count]
    for begin, end in reversed(list(pairwise(places))):
        if begin < end and (status := fn(ctx, closure, begin, end)):
            return int(status)
    return 0


_PARALLEL_FOR = PARALLEL_FOR(_parallel_for)


def status_number(name: str) -> int:
    """The number of a status."""
    return next(row.number for row in STATUSES if row.name == name)


class Library:
    """A native section, opened."""

    def __init__(self, code: NativeCode) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            Path(file.name).write_bytes(code.elf)
            self._library = ctypes.CDLL(file.name)
        table = ctypes.c_uint32.in_dll(self._library, "nvm_kernel_table")
        address = ctypes.addressof(table)
        assert ctypes.c_uint32.from_address(address).value == 1
        assert ctypes.c_uint32.from_address(address + 4).value == code.count
        pointers = (ctypes.c_void_p * code.count).from_address(address + 8)
        self.functions = [KERNEL(p or 0) for p in pointers]

    def call(self, index: int, buffers: Sequence[np.ndarray], numbers: Sequence[int]) -> int:
        """Run a kernel; returns its status."""
        context = Context(1, ctypes.sizeof(Context), _FAIL, _POLL, _PARALLEL_FOR)
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(b.ctypes.data for b in buffers))
        values = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
        return self.functions[index](ctypes.byref(context), pointers, values)


class Evaluated:
    """The same face as Library over the Python evaluator of loop IR."""

    def __init__(self, lowered: LoweredKernel) -> None:
        self.kernel = lowered.kernel

    def call(self, index: int, buffers: Sequence[np.ndarray], numbers: Sequence[int]) -> int:
        try:
            evaluate(self.kernel, buffers, numbers[: len(self.kernel.dims)])
        except KernelFault as fault:
            return status_number(fault.code)
        return 0


class Interpreted:
    """The same face over the C interpreter of loop IR."""

    def __init__(self, library: ctypes.CDLL, lowered: LoweredKernel) -> None:
        self.loaded = Loaded(library, lowered.kernel)
        self.dims = len(lowered.kernel.dims)

    def call(self, index: int, buffers: Sequence[np.ndarray], numbers: Sequence[int]) -> int:
        return status_number(self.loaded.run(buffers, numbers[: self.dims]).status)


class Runner(Protocol):
    """What runs kernels on arrays: Library and others with its face."""

    def call(self, index: int, buffers: Sequence[np.ndarray], numbers: Sequence[int]) -> int: ...


def size_of(value: Value, numbers: Sequence[int]) -> int:
    """The value of a size expression."""
    match value:
        case Const(value=number):
            return int(number)
        case DimRef(index=index):
            return numbers[index]
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = size_of(lhs, numbers), size_of(rhs, numbers)
            if op in ("floordiv", "floormod"):
                return a // b if op == "floordiv" else a % b
            return {"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}[
                op
            ]
    raise TypeError(type(value).__name__)


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [array for part in value for array in flat(part)]
    return [np.asarray(value)]


@dataclass
class Program:
    """A lowered function and concrete arguments."""

    lowered: LoweredKernel
    arrays: list[np.ndarray]
    env: dict[DimVar, int] = field(default_factory=dict)

    def numbers(self) -> list[int]:
        """The in-dims' values."""
        found = []
        for dim in self.lowered.in_dims:
            if isinstance(dim, IntParam):
                found.append(int(self.arrays[dim.index]))
            else:
                found.append(dims.evaluate(dim, self.env))
        return found

    def run(self, library: Runner, index: int = 0, guard: int = 64) -> list[np.ndarray]:
        """The outputs. Raises the exception of the status.

        Checks the operands as call.c does, and that nothing around the outputs is written.
        """
        numbers = self.numbers()
        kernel = self.lowered.kernel
        ints = {d.index for d in self.lowered.in_dims if isinstance(d, IntParam)}
        given = iter([a for i, a in enumerate(self.arrays) if i not in ints])
        pitches: list[int] = []
        buffers: list[np.ndarray] = []
        whole: list[np.ndarray] = []
        for buffer in kernel.buffers:
            sizes = [size_of(axis.size, numbers) for axis in buffer.axes]
            if buffer.role == "in":
                array = np.array(next(given), order="C")
                assert array.dtype.name == buffer.dtype, (array.dtype, buffer)
                assert array.ndim == len(sizes)
                for axis, size, real in zip(buffer.axes, sizes, array.shape, strict=True):
                    assert real == size or (axis.broadcast and real == 1), (
                        buffer,
                        sizes,
                        array.shape,
                    )
                    if axis.broadcast:
                        pitches.append(real)
            else:
                count = int(np.prod(sizes, dtype=np.int64))
                raw = np.full(count * np.dtype(buffer.dtype).itemsize + 2 * guard, 0xA5, "uint8")
                whole.append(raw)
                array = raw[guard : len(raw) - guard].view(buffer.dtype).reshape(sizes)
            buffers.append(array)
        status = library.call(index, buffers, [*numbers, *pitches])
        if status:
            error = status_row(status).exception
            assert error is not None
            raise error(f"status {status}")
        for raw in whole:
            assert (raw[:guard] == 0xA5).all(), "written before an output"
            assert (raw[-guard:] == 0xA5).all(), "written behind an output"
        return [b for b, k in zip(buffers, kernel.buffers, strict=True) if k.role == "out"]


def type_of(value: Any, symbolic: bool, env: dict[DimVar, int], named: dict[int, DimVar]) -> Type:
    """The type of an argument; symbolic: sizes become unknowns, equal sizes one unknown."""
    if isinstance(value, tuple):
        return TupleType([type_of(part, symbolic, env, named) for part in value])
    if not symbolic:
        return TensorType(value.shape, value.dtype.name)
    shape = []
    for size in value.shape:
        if size not in named:
            named[size] = DimVar(f"n{size}")
            env[named[size]] = size
        shape.append(named[size])
    return TensorType(shape, value.dtype.name)


def primitive(
    op: str, inputs: Sequence[Any], attrs: Any, symbolic: bool
) -> tuple[Function, dict[DimVar, int]]:
    """The fused function of one operator call."""
    env: dict[DimVar, int] = {}
    named: dict[int, DimVar] = {}
    params = tuple(Var(f"x{i}", type_of(v, symbolic, env, named)) for i, v in enumerate(inputs))
    function = Function(params, Call(get(op), params, attrs), attrs={"Primitive": 1})
    found = infer_expr(function)
    assert isinstance(found, Function)
    return found, env


def bind(
    lowered: LoweredKernel, arrays: Sequence[np.ndarray], out: Sequence[np.ndarray]
) -> dict[DimVar, int]:
    """DimVars of the function's types from actual arrays; the outputs tell sizes that depend on data."""
    env: dict[DimVar, int] = {}
    for type_, array in zip(
        (*lowered.param_types, *lowered.out_types), (*arrays, *out), strict=True
    ):
        for dim, size in zip(type_.shape, array.shape, strict=True):
            if isinstance(dim, DimVar):
                env.setdefault(dim, size)
    return env


def parsed(text: str) -> tuple[IRModule, Function]:
    """A typed module of Relay text, and its function main."""
    module = infer_type(parse_module('#[version = "0.0.5"]\n' + text))
    return module, module.function("main")


def oracle(module: IRModule, *args: Any) -> list[np.ndarray]:
    """What the interpreter gives, flat."""
    return [np.asarray(x) for x in flat(Interpreter(module).run("main", *args))]


def program(text: str, *args: Any) -> tuple[Program, list[np.ndarray]]:
    """Function main, lowered, with its arguments, and the oracle's outputs."""
    module, function = parsed(text)
    lowered = lower_primitive(function)
    expected = oracle(module, *args)
    arrays = flat(args)
    return Program(lowered, arrays, bind(lowered, arrays, expected)), expected


def agree(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> bool:
    """Equal dtype and shape; floats within the tolerance, everything else bit for bit."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if found.dtype.kind != "f":
        return bool((found == expected).all())
    with np.errstate(all="ignore"):
        wide, right = found.astype("float64"), expected.astype("float64")
        return bool(np.allclose(wide, right, rtol, atol, equal_nan=True))


__all__ = [
    "Evaluated",
    "Interpreted",
    "Library",
    "Program",
    "Runner",
    "agree",
    "bind",
    "flat",
    "oracle",
    "parsed",
    "primitive",
    "program",
    "size_of",
    "status_number",
    "type_of",
]
