"""Relay types, hash-consed: two structurally equal types are the same object (compare with `is` or `==`).

TypeVar and IncompleteType are compared by identity. A shape is a tuple of dims (see dims.py): Python ints
and DimExpr objects. Types never refer to expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from nimblevm import dtypes
from nimblevm.relay.dims import Dim, DimExpr, DimVar


class Type:
    """Base of all types. Subclasses list their parts in `_fields`; construction interns the object."""

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]] = ()
    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Type]] = WeakValueDictionary()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, f)) for f in self._fields)})"


def _intern(cls: type[Type], *parts: object) -> Any:
    key = (cls, *parts)
    found = Type._table.get(key)
    if found is None:
        found = object.__new__(cls)
        for name, part in zip(cls._fields, parts, strict=True):
            object.__setattr__(found, name, part)
        Type._table[key] = found
    return found


class TensorType(Type):
    """A tensor: `shape` (dims; () is a scalar) and `dtype` (a name of nimblevm.dtypes)."""

    __slots__ = ("shape", "dtype")
    _fields = ("shape", "dtype")
    shape: tuple[Dim, ...]
    dtype: str

    def __new__(cls, shape: Iterable[Dim], dtype: str = "float32") -> TensorType:
        dims = tuple(d if isinstance(d, DimExpr) else _static_dim(d) for d in shape)
        dtypes.dtype(dtype)
        found: TensorType = _intern(cls, dims, dtype)
        return found

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as ints; ValueError if a dim is unknown (as TVM's `concrete_shape`)."""
        if any(isinstance(d, DimExpr) for d in self.shape):
            raise ValueError(f"{self!r} has unknown dims")
        return tuple(d for d in self.shape if isinstance(d, int))


def _static_dim(value: Any) -> int:
    size = int(value)
    if size < 0 or size != value:
        raise ValueError(f"a static dim must be an integer >= 0, not {value!r}")
    if size > 2**63 - 1:
        raise ValueError(f"dim {size} does not fit int64")
    return size


class TupleType(Type):
    """A tuple of types; () is unit."""

    __slots__ = ("fields",)
    _fields = ("fields",)
    fields: tuple[Type, ...]

    def __new__(cls, fields: Iterable[Type]) -> TupleType:
        found: TupleType = _intern(cls, tuple(fields))
        return found


class FuncType(Type):
    """A function: argument types, result type, type parameters it is generic in."""

    __slots__ = ("arg_types", "ret_type", "type_params")
    _fields = ("arg_types", "ret_type", "type_params")
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...]

    def __new__(
        cls, arg_types: Iterable[Type], ret_type: Type, type_params: Iterable[TypeVar] = ()
    ) -> FuncType:
        found: FuncType = _intern(cls, tuple(arg_types), ret_type, tuple(type_params))
        return found


class RefType(Type):
    """A mutable cell that holds `value`."""

    __slots__ = ("value",)
    _fields = ("value",)
    value: Type

    def __new__(cls, value: Type) -> RefType:
        found: RefType = _intern(cls, value)
        return found


class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    __slots__ = ("name_hint",)
    _fields = ("name_hint",)
    name_hint: str

    def __new__(cls, name_hint: str) -> GlobalTypeVar:
        found: GlobalTypeVar = _intern(cls, name_hint)
        return found

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


class TypeCall(Type):
    """An algebraic data type applied to types; also `args == ()` for a type without parameters."""

    __slots__ = ("func", "args")
    _fields = ("func", "args")
    func: GlobalTypeVar
    args: tuple[Type, ...]

    def __new__(cls, func: GlobalTypeVar, args: Iterable[Type] = ()) -> TypeCall:
        found: TypeCall = _intern(cls, func, tuple(args))
        return found


class TypeVar(Type):
    """A type parameter; identity is the object."""

    __slots__ = ("name_hint",)
    _fields = ("name_hint",)
    name_hint: str

    def __new__(cls, name_hint: str) -> TypeVar:
        found = object.__new__(cls)
        object.__setattr__(found, "name_hint", name_hint)
        return found


class IncompleteType(Type):
    """A hole that inference fills; identity is the object. None left after inference."""

    __slots__ = ()


def scalar_type(dtype: str) -> TensorType:
    """A rank-0 tensor type."""
    return TensorType((), dtype)


UNIT = TupleType(())

__all__ = [
    "UNIT", "Dim", "DimExpr", "DimVar", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType",
    "TensorType", "TupleType", "Type", "TypeCall", "TypeVar", "scalar_type",
]  # fmt: skip
