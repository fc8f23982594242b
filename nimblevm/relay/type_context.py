"""The TypeContext that operators' relations run in, and what the compiler asks about types after
inference.

InferContext       proved and undecided demands pass, refuted ones are located errors
RecordingContext   the same, and keeps the undecided demands: insert_checks makes run-time checks
of them

demands(call, arg_types)            undecided demands of one operator call
narrowing(actual, expected, facts)  where a value that flows somewhere must be checked or binds a
dim instantiate(signature, arg_types)   the dims and type arguments of one call of a function
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import RelayTypeError, ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dim_facts import DimFacts
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.instantiate import Instantiation
from nimblevm.relay.ir import Call, Expr, Tuple, is_known
from nimblevm.relay.op.registry import Op
from nimblevm.relay.text import dim_text
from nimblevm.relay.type_errors import Note, name_of, show, type_error
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, TypeVar, paired_tensors
from nimblevm.relay.unify import Solver, TypeMismatch

Arg = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """Something that must hold at run time for an operator call to be well typed.

    arg    the operand: a position, or (position, field) for a field of a tuple operand
    axis   and dim: axis `axis` of the operand must equal `dim`
    shape  instead of these: each axis of the operand, aligned right with `shape`, must be 1 or
    equal
    """

    arg: Arg
    axis: int | None = None
    dim: Dim | None = None
    shape: tuple[Dim, ...] | None = None


@dataclass(frozen=True, slots=True)
class Narrowing:
    """An axis whose actual dim is not known to be the expected one.

    path      field numbers from the value to the tensor (through tuples)
    binds     True: `expected` is a variable without a number so far; this value gives it one (DimOf).
              False: compare at run time (CheckDim).
    """

    path: tuple[int, ...]
    axis: int
    actual: Dim
    expected: Dim
    binds: bool


def must_check_broadcast(dim: Dim, out: Dim) -> bool:
    """Whether an axis of an operand may be neither 1 nor the result's `out`. Parts of a bcast are
    checked where it is computed.
    """
    if dim is out or (isinstance(dim, int) and dim == 1) or dims.compare(dim, out):
        return False
    return not (isinstance(out, DimExpr) and dims.bcast(dim, out) is out) or (
        dims.compare(out, 1) is False
    )


class InferContext:
    """Implements op.registry.TypeContext. One object serves many calls: `enter` points it at the
    next.
    """

    def __init__(self, solver: Solver | None = None) -> None:
        self._solver = solver if solver is not None else Solver()
        self._call: Call | None = None
        self._args: tuple[Type, ...] = ()

    def enter(self, call: Call, arg_types: tuple[Type, ...]) -> None:
        """The relation that runs next is that of `call`."""
        self._call = call
        self._args = arg_types

    def undecided(self, demand: Demand) -> None:
        """A demand that only run time can decide."""

    # --- what relations call ----------------------------------------------------------------------

    def fail(self, message: str, arg: Arg | None = None) -> RelayTypeError:
        """A located RelayTypeError to raise."""
        call = self._call
        if call is None:
            return type_error(message, None)
        name = name_of(call.op)
        notes: list[Note] = []
        shown = (
            range(len(self._args)) if arg is None else (arg[0] if isinstance(arg, tuple) else arg,)
        )
        for position in shown:
            if 0 <= position < len(self._args):
                notes.append(self._argument_note(position))
        return type_error(f"{name}: {message}", call.span, notes)

    def require_dim(self, arg: Arg, axis: int, dim: Dim) -> Dim:
        """Demand that an axis of an argument equals `dim`; returns the more precise of the two."""
        found = self._tensor(arg)
        actual = found.shape[axis]
        if actual is dim:
            return dim
        verdict = dims.compare(actual, dim)
        if verdict is False:
            axis_number = axis if axis >= 0 else axis + len(found.shape)
            raise self._refuted(
                f"dim mismatch on axis {axis_number} of {self.argument_name(arg)} of "
                f"{self._name()}: "
                f"expected {dim_text(dim)}, got {dim_text(actual)}",
                arg,
                dim,
            )
        if verdict is None:
            self.undecided(Demand(arg, axis % len(found.shape), dim))
        return actual if isinstance(actual, int) else dim

    def broadcast(self, shapes: Sequence[tuple[Arg, tuple[Dim, ...]]]) -> tuple[Dim, ...]:
        """numpy's broadcast, aligned right; see the module dims for the rules of unknown sizes."""
        first = shapes[0][1]
        if all(shape is first or shape == first for _, shape in shapes):
            return first
        rank = max(len(shape) for _, shape in shapes)
        result: list[Dim] = []
        for axis in range(-rank, 0):
            current: Dim = 1
            origin: Arg = shapes[0][0]
            for arg, shape in shapes:
                if -axis > len(shape):
                    continue
                try:
                    joined = dims.bcast(current, shape[axis])
                except ShapeMismatch:
                    raise self._refuted(
                        f"can't broadcast: axis {axis} of {self.argument_name(arg)} of "
                        f"{self._name()} is {dim_text(shape[axis])}, but that of "
                        f"{self.argument_name(origin)} is {dim_text(current)}",
                        arg,
                        None,
                        also=origin,
                    ) from None
                if joined is not current:
                    current, origin = joined, arg
            result.append(current)
        shape_out = tuple(result)
        for arg, shape in shapes:
            if any(must_check_broadcast(d, shape_out[i - len(shape)]) for i, d in enumerate(shape)):
                self.undecided(Demand(arg, shape=shape_out[rank - len(shape) :]))
        return shape_out

    def fresh_dim(self, name: str | None = None) -> Dim:
        """A new unknown, for a result whose size depends on data."""
        return self._solver.fresh_dim(name)

    def constant(self, arg: int) -> np.ndarray[Any, Any] | None:
        """The value of an argument that is a Constant."""
        found = self._call.args[arg] if self._call is not None else None
        return found.data if is_known(found) else None

    # --- messages ---------------------------------------------------------------------------------

    def _name(self) -> str:
        return name_of(self._call.op) if self._call is not None else "the operator"

    def _tensor(self, arg: Arg) -> TensorType:
        found: Type = self._args[arg[0] if isinstance(arg, tuple) else arg]
        if isinstance(arg, tuple) and isinstance(found, TupleType):
            found = found.fields[arg[1]]
        if not isinstance(found, TensorType):
            raise self.fail(f"{self.argument_name(arg)} must be a tensor", arg)
        return found

    def _tensors(self) -> list[Arg]:
        """The operands that are tensors, fields of tuples among them."""
        found: list[Arg] = []
        for position, type_ in enumerate(self._args):
            if isinstance(type_, TensorType):
                found.append(position)
            elif isinstance(type_, TupleType):
                found.extend(
                    (position, i) for i, f in enumerate(type_.fields) if isinstance(f, TensorType)
                )
        return found

    def _expr(self, arg: Arg) -> Expr | None:
        if self._call is None:
            return None
        if isinstance(arg, int):
            return self._call.args[arg]
        whole = self._call.args[arg[0]]
        return whole.fields[arg[1]] if isinstance(whole, Tuple) else whole

    def argument_name(self, arg: Arg) -> str:
        """`argument %w`, or by position and the operator's name for it."""
        expr = self._expr(arg)
        op = self._call.op if self._call is not None else None
        if isinstance(arg, tuple):
            prefix = f"field {arg[1]} of argument {arg[0]}"
        else:
            names = op.args if isinstance(op, Op) else ()
            prefix = f"argument {names[arg] if arg < len(names) else arg}"
        if expr is None or isinstance(expr, Tuple):
            return prefix
        return f"{prefix} ({name_of(expr)})"

    def _argument_note(self, arg: Arg) -> Note:
        expr = self._expr(arg)
        found: Type = self._args[arg[0] if isinstance(arg, tuple) else arg]
        if isinstance(arg, tuple) and isinstance(found, TupleType):
            found = found.fields[arg[1]]
        return (expr.span if expr is not None else None), (
            f"{self.argument_name(arg)} has type {show(found)}"
        )

    def _refuted(
        self, message: str, arg: Arg, dim: Dim | None, also: Arg | None = None
    ) -> RelayTypeError:
        """An error about `arg`, with the other operand that `dim` came from where one can be
        found.
        """
        notes = [self._argument_note(arg)]
        if also is not None and also != arg:
            notes.append(self._argument_note(also))
        elif dim is not None:
            for other in self._tensors():
                if other != arg and dim in self._tensor(other).shape:
                    notes.append(self._argument_note(other))
                    break
        return type_error(message, self._call.span if self._call is not None else None, notes)


class RecordingContext(InferContext):
    """Keeps the demands that inference lets pass undecided, in the order the relation made them."""

    def __init__(self, solver: Solver | None = None, facts: DimFacts | None = None) -> None:
        super().__init__(solver)
        self.demands: list[Demand] = []
        self._facts = facts

    def undecided(self, demand: Demand) -> None:
        facts = self._facts
        if facts is not None:
            shape = self._tensor(demand.arg).shape
            if demand.dim is not None and demand.axis is not None:
                if facts.compare(shape[demand.axis], demand.dim):
                    return
            elif demand.shape is not None and all(
                facts.compare(d, out) or facts.compare(d, 1)
                for d, out in zip(shape, demand.shape, strict=True)
            ):
                return
        if demand not in self.demands:
            self.demands.append(demand)


def demands(
    call: Call, arg_types: tuple[Type, ...], facts: DimFacts | None = None
) -> tuple[list[Demand], Type]:
    """Re-run the relation of an operator call: its undecided demands and its result type.

    `arg_types` are the types of the arguments as they stand now. RelayTypeError if one is refuted.
    """
    op = call.op
    if not isinstance(op, Op):
        raise TypeError(f"demands() is for operator calls, not {name_of(op)}")
    context = RecordingContext(facts=facts)
    context.enter(call, arg_types)
    result = op.relation(context, arg_types, call.attrs)
    return context.demands, result


def result_over_axes(call: Call, arg_types: tuple[Type, ...]) -> tuple[Type, dict[DimVar, Dim]]:
    """The result type of an operator call over one variable per unknown operand axis.

    Returns (type, variable -> the axis's own dim). Sizes stay small even where the operands' own
    expressions are large: for computing a result's shape from the operands at hand.
    """
    mapping: dict[DimVar, Dim] = {}
    back: dict[DimExpr, DimVar] = {}

    def rename(dim: Dim) -> Dim:
        if not isinstance(dim, DimExpr) or isinstance(dim, DimVar):
            return dim
        if dim not in back:
            back[dim] = DimVar()
            mapping[back[dim]] = dim
        return back[dim]

    def renamed(type_: Type) -> Type:
        if isinstance(type_, TensorType):
            return TensorType((rename(d) for d in type_.shape), type_.dtype)
        if isinstance(type_, TupleType):
            return TupleType(
                TensorType((rename(d) for d in f.shape), f.dtype)
                if isinstance(f, TensorType)
                else f
                for f in type_.fields
            )
        return type_

    return demands(call, tuple(renamed(t) for t in arg_types))[1], mapping


def narrowing(actual: Type, expected: Type, facts: DimFacts | None = None) -> list[Narrowing]:
    """Where a value of type `actual` that flows to `expected` must be checked or binds a dim.

    Only tensors of the value itself count, through tuples; what lies in ADTs, refs and closures
    is checked when it comes out. `facts.bound` are the variables that have a number already; a
    variable of `expected` outside of it is bound by its first axis in the result and checked on
    the others. Both types have one structure.
    """
    facts = facts if facts is not None else DimFacts()
    found: list[Narrowing] = []
    newly: set[DimVar] = set()
    for have, want, path in paired_tensors(actual, expected):
        for axis, (p, q) in enumerate(zip(have.shape, want.shape, strict=True)):
            if isinstance(q, DimVar) and q not in facts.bound and q not in newly:
                newly.add(q)
                found.append(Narrowing(path, axis, p, q, binds=True))
            elif not facts.compare(p, q):
                found.append(Narrowing(path, axis, p, q, binds=False))
    return found


@dataclass(frozen=True, slots=True)
class Instance:
    """What one call of a function means for its signature.

    dims    variable of the parameters -> dim of the arguments; types: type parameter -> type
    params  the parameter types so instantiated; result likewise, existential dims fresh
    """

    dims: dict[DimVar, Dim]
    types: dict[TypeVar, Type]
    params: tuple[Type, ...]
    result: Type


def instantiate(signature: FuncType, arg_types: Sequence[Type]) -> Instance:
    """Instantiate a global function's signature at argument types. TypeMismatch if they can't
    fit.
    """
    solver = Solver()
    if len(arg_types) != len(signature.arg_types):
        raise TypeMismatch(f"expected {len(signature.arg_types)} arguments, got {len(arg_types)}")
    made = Instantiation(solver, signature, 0)
    made.bind(arg_types)
    type_map = dict(zip(signature.type_params, made.type_args(), strict=True))
    params = tuple(made.expand(p) for p in signature.arg_types)
    return Instance(dict(made.dims), type_map, params, made.result(claimed=False))


__all__ = [
    "Arg", "Demand", "DimFacts", "InferContext", "Instance", "Narrowing", "RecordingContext",
    "demands", "instantiate", "must_check_broadcast", "narrowing", "result_over_axes",
]  # fmt: skip
