"""The values that the interpreter computes with, and what comes in from outside.

tensor          np.ndarray, rank 0 included; never changed in place
tuple           Python tuple
data type       ADTValue
function        Closure (Constructor and Op nodes stand for themselves)
reference       RefValue
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.arguments import refuse_mask
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.relay.dim_scope import DimScope
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import Constructor, Expr, Function, is_complete
from nimblevm.relay.op.common import dtype_name
from nimblevm.relay.sharing import Sharing
from nimblevm.relay.types import (
    HAS_DIM,
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    free_dims,
)

Value = Any


@dataclass(eq=False, repr=False, slots=True)
class ADTValue:
    """A value built by a constructor. Compared by identity."""

    constructor: Constructor
    fields: tuple[Value, ...] = ()

    @property
    def tag(self) -> int:
        """The position of the constructor in its type."""
        return self.constructor.tag

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Value:
        return self.fields[index]

    def __bool__(self) -> bool:
        return True  # also without fields

    def __repr__(self) -> str:
        return text_of(self)


class Frame:
    """One activation: values of variables and shared nodes, numbers of dims, the activation around it."""

    __slots__ = ("dims", "function", "parent", "sharing", "values")

    def __init__(
        self,
        function: Function,
        parent: Frame | None,
        sharing: Sharing,
        own: tuple[DimVar, ...] = (),
    ) -> None:
        self.function = function
        self.parent = parent
        self.sharing = sharing
        self.values: dict[Expr, Value] = {}
        self.dims: DimScope = DimScope(None if parent is None else parent.dims, own)


@dataclass(eq=False, repr=False, slots=True)
class Closure:
    """A function and the activation it was made in (None for a global function, then with its name).

    own     dims of its parameters that had no number when it was made: they get one at each call
    """

    function: Function
    frame: Frame | None
    name: str = ""
    own: tuple[DimVar, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if self.frame is not None:
            types = (
                p.type_annotation if is_complete(p.type_annotation) else p.checked_type
                for p in self.function.params
            )
            found = (v for t in types if t is not None and t.flags & HAS_DIM for v in free_dims(t))
            self.own = tuple(v for v in found if self.frame.dims.find(v) is None)

    def __repr__(self) -> str:
        return f"<function {self.name or 'literal'}>"


@dataclass(eq=False, repr=False, slots=True)
class RefValue:
    """A mutable cell."""

    content: Value

    def __repr__(self) -> str:
        return "<ref>"


def leaves(value: Value) -> Iterator[Value]:
    """A value in prefix order: tensors as they are, an ADTValue as its constructor's name and then its fields,
    a tuple as its length and then its fields; everything else as it is. Iterative."""
    stack = [value]
    while stack:
        match stack.pop():
            case ADTValue(constructor=constructor, fields=fields):
                yield constructor.name_hint
                stack.extend(reversed(fields))
            case tuple() as fields:
                yield len(fields)
                stack.extend(reversed(fields))
            case other:
                yield other


def text_of(value: Value, limit: int = 200) -> str:
    """A value as readable text, cut after `limit` pieces. Iterative."""
    pieces: list[str] = []
    stack: list[Value | str] = [value]
    while stack:
        if len(pieces) >= limit:
            return "".join(pieces) + "..."
        match stack.pop():
            case str() as text:
                pieces.append(text)
            case ADTValue(constructor=constructor, fields=fields):
                pieces.append(constructor.name_hint)
                if fields:
                    stack.append(")")
                    stack.extend(_separated(fields))
                    stack.append("(")
            case tuple() as fields:
                stack.append(")")
                stack.extend(_separated(fields))
                stack.append("(")
            case np.ndarray() as array:
                pieces.append(str(array) if array.ndim == 0 else f"{array.dtype}{array.shape}")
            case other:
                pieces.append(repr(other))
    return "".join(pieces)


def _separated(fields: tuple[Value, ...]) -> list[Value | str]:
    """Fields for a stack: last one first, commas between."""
    out: list[Value | str] = []
    for position, part in enumerate(reversed(fields)):
        if position:
            out.append(", ")
        out.append(part)
    return out


def describe(value: Value) -> str:
    """What a value is, for messages: dtype and shape, or its kind."""
    match value:
        case np.ndarray():
            return f"{value.dtype} tensor of shape {value.shape}"
        case tuple():
            return f"tuple of {len(value)} fields"
        case ADTValue(constructor=constructor):
            return f"{constructor.belong_to.name_hint} value {constructor.name_hint}"
        case Closure():
            return "function"
        case RefValue():
            return "reference"
    return type(value).__name__


Resolve = Callable[[Any], Constructor]


@dataclass(slots=True)
class _Assemble:
    """Take `count` finished values for a tuple, or for a data type value made by `constructor`."""

    count: int
    constructor: Constructor | None = None
    source: Any = None


def from_python(
    value: Any, type_: Type | None, where: str, resolve: Resolve | None = None
) -> Value:
    """A value from outside for a parameter of a type (None: unknown).

    Arrays keep dtype and rank; Python scalars take the parameter's dtype (int32, float32 and bool if unknown) and must
    be in its range; lists and tuples are tuples. Data type values of another class (a VM's) have `constructor` and
    `fields`; `resolve` finds the constructor node for them. Raises InvalidInputType, InvalidInput. Iterative.
    """
    done: list[Value] = []
    known: dict[int, Value] = {}
    stack: list[tuple[Any, Type | None]] = [(value, type_)]
    while stack:
        item, expected = stack.pop()
        if isinstance(item, _Assemble):
            fields = tuple(done[len(done) - item.count :])
            del done[len(done) - item.count :]
            if item.constructor is None:
                done.append(fields)
            else:
                known[id(item.source)] = made = ADTValue(item.constructor, fields)
                done.append(made)
        elif isinstance(item, list | tuple):
            types = expected.fields if isinstance(expected, TupleType) else (None,) * len(item)
            if len(types) != len(item):
                raise InvalidInput(
                    f"{where}: expected a tuple of {len(types)} fields, got {len(item)}"
                )
            stack.append((_Assemble(len(item)), None))
            stack.extend(reversed(list(zip(item, types, strict=True))))
        elif isinstance(item, ADTValue | Closure | RefValue | Constructor):
            done.append(item)
        elif id(item) in known:
            done.append(known[id(item)])
        elif resolve is not None and hasattr(item, "constructor") and hasattr(item, "fields"):
            found = resolve(item.constructor)
            if len(found.inputs) != len(item.fields):
                raise InvalidInput(f"{where}: {found.name_hint} takes {len(found.inputs)} fields")
            stack.append((_Assemble(len(item.fields), found, item), None))
            stack.extend(reversed(list(zip(item.fields, found.inputs, strict=True))))
        else:
            done.append(_tensor(item, expected, where))
    return done[0]


def _tensor(item: Any, expected: Type | None, where: str) -> np.ndarray[Any, Any]:
    wanted = expected.dtype if isinstance(expected, TensorType) else None
    if isinstance(item, bool | int | float) and not isinstance(item, np.generic):
        return _scalar(item, wanted, where)
    refuse_mask(item, lambda: where)
    array = np.asarray(item, order="C")
    if array.dtype.name not in dtypes.BY_NAME:
        raise InvalidInputType(f"{where}: {type(item).__name__} is no tensor (dtype {array.dtype})")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _scalar(item: bool | int | float, wanted: str | None, where: str) -> np.ndarray[Any, Any]:
    if wanted is None:
        wanted = (
            "bool" if isinstance(item, bool) else "int32" if isinstance(item, int) else "float32"
        )
    row = dtypes.dtype(wanted)
    if row.is_bool != isinstance(item, bool) or (row.is_integer and isinstance(item, float)):
        raise InvalidInputType(
            f"{where}: expected {wanted}, got the Python {type(item).__name__} {item}"
        )
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(np.array(item, dtype=wanted))
    except OverflowError:
        raise InvalidInputType(f"{where}: {item} does not fit {wanted}") from None
    if row.is_float and math.isfinite(item) and not np.isfinite(made):
        raise InvalidInputType(f"{where}: {item} does not fit {wanted}")
    return made


def fits_kind(value: Value, type_: Type) -> bool:
    """Whether a value is of the kind, dtype and rank (not the dims) that a type asks for at its top level."""
    match type_:
        case TensorType(shape=shape, dtype=dtype):
            return (
                isinstance(value, np.ndarray)
                and dtype_name(value) == dtype
                and value.ndim == len(shape)
            )
        case TupleType(fields=fields):
            return isinstance(value, tuple) and len(value) == len(fields)
        case TypeCall(func=func):
            # A storage (op/vm.py) is a block of bytes.
            if isinstance(value, np.ndarray):
                return func.name_hint == "Storage"
            return isinstance(value, ADTValue) and value.constructor.belong_to is func
        case RefType():
            return isinstance(value, RefValue)
        case FuncType():
            return not isinstance(value, np.ndarray | tuple | ADTValue | RefValue)
    return True
