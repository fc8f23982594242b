"""Every operator and dtype through the whole pipeline, with unknown dims, against the record's numpy reference.

The cases of one operator and dtype are the functions of one module. Folded: the same calls on constants, once
computed by the compiler and once by the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import NimbleError, RelayTypeError
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import Op, all_ops, get
from nimblevm.relay.op.concrete import ConcreteContext
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.kernels.native import agree, flat
from tests.relay.op.cases import cases
from tests.relay.op.draw import Case, type_of

OPS = tuple(op.name for op in all_ops() if not op.name.startswith(("vm.", "memory.")))
# Fast runs take these; slow ones every dtype of the record.
SOME = ("float32", "int8", "bool")


@dataclass(frozen=True)
class Sample:
    """One call as a function of a module. expected: the reference's tensors, or the error that it raises."""

    name: str
    case: Case
    function: Function
    expected: tuple[np.ndarray, ...] | type[NimbleError]


def dtypes_of(op: str) -> tuple[str, ...]:
    rows = get(op).dtypes
    return rows[0] if rows else ("float32",)


def reference(op: Op, case: Case) -> tuple[np.ndarray, ...] | type[NimbleError]:
    types = tuple(type_of(v) for v in case.inputs)
    try:
        result = op.relation(ConcreteContext(op, types), types, case.attrs)
        return tuple(flat(op.reference(case.inputs, case.attrs, result)))
    except NimbleError as error:
        return type(error)


def unknown(type_: Type) -> Type:
    """The type with a fresh unknown for every dim."""
    if isinstance(type_, TupleType):
        return TupleType([unknown(f) for f in type_.fields])
    assert isinstance(type_, TensorType)
    return TensorType([DimVar() for _ in type_.shape], type_.dtype)


def constant(value: Any) -> Expr:
    return Tuple([constant(v) for v in value]) if isinstance(value, tuple) else Constant(value)


def of_parameters(
    op: Op, case: Case, symbolic: bool, known: frozenset[int] = frozenset()
) -> Function:
    """The call on parameters, with unknown sizes (but for the operands in `known`) or with the case's."""
    types = [type_of(v) for v in case.inputs]
    params = [
        Var(f"p{i}", unknown(t) if symbolic and i not in known else t) for i, t in enumerate(types)
    ]
    return Function(params, Call(op, params, case.attrs))


def with_unknowns(op: Op, case: Case) -> Function | None:
    """The call with as many unknown sizes as inference can do with: all, or all but the lengths of vectors that stand
    for shapes and axes, since the rank of a result must be known. None if it needs the sizes.
    """
    vectors = {
        i for i, v in enumerate(case.inputs)
        if i and isinstance(v, np.ndarray) and v.ndim == 1 and v.dtype.kind == "i"
    }  # fmt: skip
    for known in (frozenset[int](), frozenset({*op.shape_values, *vectors})):
        if known and len(known) == len(case.inputs):
            break
        function = of_parameters(op, case, symbolic=True, known=known)
        if infers(function):
            return function
    return None


def infers(function: Function) -> bool:
    try:
        infer_type(IRModule.from_expr(function))
    except RelayTypeError:
        return False
    return True


def samples(op: Op, dtype: str, count: int) -> list[Sample]:
    """Calls with unknown dims where inference can do without the sizes, else with the sizes."""
    made = []
    for i, case in enumerate(cases(op.name, dtype, count)):
        function = with_unknowns(op, case) or of_parameters(op, case, symbolic=False)
        made.append(Sample(f"case{i}", case, function, reference(op, case)))
    return made


def module(functions: dict[str, Function]) -> IRModule:
    mod = IRModule()
    for name, function in functions.items():
        mod[name] = function
    return mod


def check(op: str, dtype: str, count: int, **options: Any) -> None:
    made = samples(get(op), dtype, count)
    mod = module({s.name: s.function for s in made})
    with nvm.compile(mod, **options) as exe, nvm.VirtualMachine(exe) as vm:
        for sample in made:
            what = (op, dtype, sample.case)
            if isinstance(sample.expected, type):
                with pytest.raises(sample.expected):
                    vm.invoke(sample.name, *sample.case.inputs)
                continue
            found = [np.asarray(v) for v in flat(vm.invoke(sample.name, *sample.case.inputs))]
            compare(op, dtype, found, sample.expected, what)


def compare(op: str, dtype: str, found: Any, expected: Any, what: object) -> None:
    assert len(found) == len(expected), what
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape, (what, a.shape, b.shape)
        assert a.dtype == b.dtype, (what, a.dtype, b.dtype)
        assert agree(a, b, *get(op).tolerance_of(dtype)), (what, a, b)


def pairs(some: bool) -> list[tuple[str, str]]:
    return [(op, dtype) for op in OPS for dtype in dtypes_of(op) if not some or dtype in SOME]


@pytest.mark.parametrize(("op", "dtype"), pairs(some=True))
def test_kernel_ir(op: str, dtype: str) -> None:
    check(op, dtype, 3, native=False)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), pairs(some=False))
def test_kernel_ir_of_every_dtype(op: str, dtype: str) -> None:
    check(op, dtype, 6, native=False)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), pairs(some=True))
def test_kernel_ir_boxed_and_plain(op: str, dtype: str) -> None:
    check(op, dtype, 5, native=False, unbox=False, passes_off=("simplify", "cse", "inline"))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_machine_code(op: str) -> None:
    for dtype in dtypes_of(op):
        check(op, dtype, 3)


def check_folded(op: str, dtype: str, count: int) -> None:
    """Constants: what the compiler computes is bit for bit what a run without native code computes."""
    record = get(op)
    chosen = [c for c in cases(op, dtype, count) if not isinstance(reference(record, c), type)]
    functions = {
        f"case{i}": Function((), Call(record, [constant(v) for v in case.inputs], case.attrs))
        for i, case in enumerate(chosen)
    }
    mod = module(functions)
    off = ("simplify", "fold_constant", "cse", "dead_code")
    with (
        nvm.compile(mod, native=False) as folded,
        nvm.compile(mod, native=False, passes_off=off) as run,
    ):
        with nvm.VirtualMachine(folded) as first, nvm.VirtualMachine(run) as second:
            for name, case in zip(functions, chosen, strict=True):
                a = [np.asarray(v) for v in flat(first.invoke(name))]
                b = [np.asarray(v) for v in flat(second.invoke(name))]
                for x, y in zip(a, b, strict=True):
                    assert (x.dtype, x.shape) == (y.dtype, y.shape), (op, case)
                    assert x.tobytes() == y.tobytes(), (op, dtype, case, x, y)
                compare(op, dtype, a, reference(record, case), (op, dtype, case))


@pytest.mark.parametrize("op", OPS)
def test_folded(op: str) -> None:
    check_folded(op, dtypes_of(op)[-1], 4)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), pairs(some=False))
def test_folded_of_every_dtype(op: str, dtype: str) -> None:
    check_folded(op, dtype, 3)


def test_most_calls_have_unknown_dims() -> None:
    """Else the tests above would test little."""
    known = total = 0
    for op in OPS:
        for sample in samples(get(op), dtypes_of(op)[-1], 6):
            shapes = [t.shape for t in _tensors(sample.function)]
            known += any(isinstance(d, int) for s in shapes for d in s)
            total += 1
    assert known < total / 10, f"{known} of {total} calls need sizes"


def _tensors(function: Function) -> list[TensorType]:
    found: list[TensorType] = []
    stack = [p.type_annotation for p in function.params]
    while stack:
        type_ = stack.pop()
        if isinstance(type_, TupleType):
            stack.extend(type_.fields)
        elif isinstance(type_, TensorType):
            found.append(type_)
    return found
