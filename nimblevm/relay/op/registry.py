"""The record of an operator, and the registry of all of them.

An operator's file under relay/op/ ends in `register(Op(...))`. Everything that the system knows about an
operator's meaning hangs on its record; how it is computed stands in kernels/compute/<same stem>.py.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from nimblevm.errors import UnknownOperator
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Leaf
from nimblevm.relay.node import Span
from nimblevm.relay.types import TensorType, Type


class OpPattern(enum.IntEnum):
    """How an operator may fuse (TVM's scale)."""

    ELEMWISE = 0  # out[i] from in[i]
    BROADCAST = 1  # out[i] from in[i with axes stretched]
    INJECTIVE = 2  # out[i] from in[f(i)]
    COMM_REDUCE = 3  # reduction
    OUT_ELEMWISE_FUSABLE = 4  # dense, conv: elementwise consumers fuse into its output
    TUPLE = 7
    OPAQUE = 8  # never fused


class Effect(enum.Enum):
    """`TOTAL`: never fails on well-typed operands. `MAY_FAIL`: can raise; is not moved across control flow."""

    TOTAL = "total"
    MAY_FAIL = "may_fail"


NOT_YET = "not yet"


class TypeContext(Protocol):
    """What a type relation may ask of inference. `arg` counts flat tensor operands' positions in `arg_types`.

    The require_* calls return when the demand is proved, raise a located RelayTypeError when it is refuted, and
    otherwise record a run-time check (insert_checks turns it into vm.match_type or vm.check_broadcast).
    `arg` is an int, or (int, int) for field j of tuple argument i.
    """

    def fail(self, message: str, arg: int | None = None) -> Exception:
        """A located RelayTypeError to raise: `raise ctx.fail("...")`."""
        ...

    def require_dim(self, arg: int | tuple[int, int], axis: int, dim: Dim) -> Dim:
        """Demand that axis `axis` of an argument equals `dim`; returns the more precise of the two dims."""
        ...

    def broadcast(
        self, shapes: Sequence[tuple[int | tuple[int, int], tuple[Dim, ...]]]
    ) -> tuple[Dim, ...]:
        """The broadcast shape of arguments (numpy's rule, aligned right; docs/dims.md, "Broadcasting")."""
        ...

    def fresh_dim(self, name: str | None = None) -> Dim:
        """A new unknown, for a result whose size depends on data."""
        ...

    def constant(self, arg: int) -> np.ndarray[Any, Any] | None:
        """The value of argument `arg` if it is a Constant, else None."""
        ...


TypeRelation = Callable[[TypeContext, tuple[Type, ...], Any], Type]
Reference = Callable[..., Any]
Bound = Callable[[tuple[Type, ...], Any], tuple[TensorType, ...]]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Op(Leaf):
    """One operator.

    name            dotted text name, as TVM's ("nn.dense")
    args            names of the tensor arguments; a variadic operator has one tuple argument, as in TVM
    attrs           frozen dataclass of attributes with TVM's names and defaults, or None
    relation        (ctx, argument types, attrs) -> result type. Called when every argument type is known. Its dim
                    expressions are the shape function
    reference       (inputs: numpy arrays or tuples of them, attrs, result type) -> array or tuple of arrays. The
                    meaning. Result type may hold DimExprs; reference looks at the inputs' shapes instead
    pattern, effect see above. effect may be a callable (arg_types, attrs) -> Effect
    doc             what docs/operators.md says of it
    dtypes          dtype names each tensor argument may have -> documented and enumerated by tests; one entry per
                    argument, or one for all
    shape_values    positions of arguments whose *values* the result size depends on (arange, dyn.*), else ()
    views           True if the result can be a view of argument 0 (reshape)
    bound           (argument types, attrs) -> the tensors to allocate for the flat results, where the kernel finds
                    their first axes' sizes; None: the result type says all. A result whose type differs from its
                    bound is cut to the size that the kernel returns
    tolerance       dtype name -> (rtol, atol) against `reference` for float results; missing: registry.TOLERANCE
    variadic        True if its one argument is a tuple of any number of tensors
    grad            NOT_YET: there are no gradients
    """

    name: str
    args: tuple[str, ...]
    relation: TypeRelation
    reference: Reference
    pattern: OpPattern
    effect: Effect | Callable[[tuple[Type, ...], Any], Effect]
    dtypes: tuple[tuple[str, ...], ...]
    doc: str
    attrs: type | None = None
    shape_values: tuple[int, ...] = ()
    views: bool = False
    bound: Bound | None = None
    variadic: bool = False
    tolerance: dict[str, tuple[float, float]] = field(default_factory=dict)
    grad: str = NOT_YET
    span: Span | None = field(default=None, kw_only=True)

    def effect_of(self, arg_types: tuple[Type, ...], attrs: Any) -> Effect:
        return self.effect if isinstance(self.effect, Effect) else self.effect(arg_types, attrs)

    def tolerance_of(self, dtype: str) -> tuple[float, float]:
        return self.tolerance.get(dtype, TOLERANCE.get(dtype, (0.0, 0.0)))


TOLERANCE: dict[str, tuple[float, float]] = {
    "float16": (4e-3, 4e-3),
    "float32": (1e-5, 1e-6),
    "float64": (1e-12, 1e-14),
}

_OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Enter a record; a name twice is a ValueError."""
    if op.name in _OPS:
        raise ValueError(f"operator {op.name} is registered twice")
    _OPS[op.name] = op
    return op


def get(name: str) -> Op:
    """The record of an operator; UnknownOperator names close matches."""
    found = _OPS.get(name)
    if found is None:
        close = ", ".join(difflib.get_close_matches(name, _OPS, 3))
        raise UnknownOperator(
            f"unknown operator {name!r}" + (f"; did you mean {close}?" if close else "")
        )
    return found


def find(name: str) -> Op | None:
    """The record, or None."""
    return _OPS.get(name)


def all_ops() -> tuple[Op, ...]:
    """All records, by name."""
    return tuple(_OPS[name] for name in sorted(_OPS))


def tensor(ctx: TypeContext, arg_types: tuple[Type, ...], index: int) -> TensorType:
    """Argument `index` as a tensor type; a located error if it is something else."""
    found = arg_types[index]
    if not isinstance(found, TensorType):
        raise ctx.fail(f"argument {index} must be a tensor, not {found!r}", index)
    return found
