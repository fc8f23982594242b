"""Relay types, hash-consed: two structurally equal types are the same object (compare with `is`
or `==`).

TypeVar and IncompleteType are compared by identity. A shape is a tuple of dims (see dims.py):
Python ints and DimExpr objects. Types never refer to expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, SupportsInt
from weakref import WeakValueDictionary

from nimblevm import dtypes
from nimblevm.arguments import shown
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.relay import dims
from nimblevm.relay.dims import AnyDim, Dim, DimExpr, DimVar
from nimblevm.relay.immutable import Immutable

# What occurs anywhere in a type; computed once, so that traversals can skip whole subtrees.
HAS_HOLE, HAS_DIM, HAS_TYPE_VAR = 1, 2, 4
MAX_WRITTEN_OUT = 1_000_000


# relay/text.py registers its writer here, so that str(type) is Relay text without an import cycle.
_TEXT_WRITERS: list[Callable[[Type], str]] = []


def register_type_writer(writer: Callable[[Type], str]) -> None:
    """Install the function behind str() and repr() of types (called once, by relay/text.py)."""
    _TEXT_WRITERS[:] = [writer]


class Type(Immutable):
    """Base of all types. Subclasses list their parts in `_fields`; construction interns the
    object. str() is Relay text, as in TVM: "Tensor[(?n, 4), float32]"; cut where it gets long.
    """

    __slots__ = ("__weakref__", "flags")
    flags: int
    _fields: ClassVar[tuple[str, ...]] = ()
    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Type]] = WeakValueDictionary()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __repr__(self) -> str:
        if _TEXT_WRITERS:
            return _TEXT_WRITERS[0](self)
        return f"<{type(self).__name__} at {id(self):#x}>"


def _intern(cls: type[Type], *parts: object) -> Any:
    key = (cls, *parts)
    try:
        found = Type._table.get(key)
    except TypeError:  # a part that has no hash is no type, no name and no dim
        raise _no_part(cls, parts) from None
    if found is None:
        found = object.__new__(cls)
        for name, part in zip(cls._fields, parts, strict=True):
            object.__setattr__(found, name, part)
        object.__setattr__(found, "flags", _flags(found))
        Type._table[key] = found
    return found


def _flags(made: Type) -> int:
    if isinstance(made, TensorType):
        return HAS_DIM if any(isinstance(d, DimExpr) for d in made.shape) else 0
    flags = 0
    for part in parts(made):
        if not isinstance(part, Type):
            raise _no_part(type(made), (part,))
        flags |= part.flags
    return flags


def _no_part(cls: type[Type], parts: Iterable[object]) -> InvalidInputType:
    """What is wrong where a type was asked for."""
    flat = [q for p in parts for q in (p if isinstance(p, tuple) else (p,))]
    wrong = next((p for p in flat if not isinstance(p, Type)), None)
    known = isinstance(wrong, str) and wrong in dtypes.BY_NAME
    advice = f"; a scalar's is relay.scalar_type({wrong!r})" if known else ""
    return InvalidInputType(f"{cls.__name__}: expected relay types, got {shown(wrong)}{advice}")


def _sequence(cls: type[Type], name: str, values: Any, example: str) -> tuple[Any, ...]:
    """Parts of a type that come in a list or tuple."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputType(
            f"{cls.__name__}: {name} must be a list or tuple, not {shown(values)}; {example}"
        )
    return tuple(values)


class TensorType(Type):
    """A tensor: `shape` (dims; () is a scalar; an unknown of its own for each relay.Any()) and `dtype` (a name of
    nimblevm.dtypes)."""

    __slots__ = ("dtype", "shape")
    _fields = ("shape", "dtype")
    shape: tuple[Dim, ...]
    dtype: str

    def __new__(cls, shape: Iterable[Dim], dtype: str = "float32") -> TensorType:
        if isinstance(shape, str) or not isinstance(shape, Iterable):
            _sequence(cls, "shape", shape, "a vector's is (n,), a scalar's ()")
        dims = tuple(
            (d if type(d) is not AnyDim else DimVar()) if isinstance(d, DimExpr) else _static_dim(d)
            for d in shape
        )
        if not isinstance(dtype, str):
            raise InvalidInputType(
                f'TensorType: dtype must be a name such as "float32", not {shown(dtype)}'
            )
        dtype = dtypes.SHORT.get(dtype, dtype)
        dtypes.dtype(dtype)
        found: TensorType = _intern(cls, dims, dtype)
        return found

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as ints; ValueError if a dim is unknown (as TVM's `concrete_shape`)."""
        if any(isinstance(d, DimExpr) for d in self.shape):
            raise ValueError(f"{self} has unknown dims")
        return tuple(d for d in self.shape if isinstance(d, int))


def _static_dim(value: Any) -> int:
    if not isinstance(value, SupportsInt) or isinstance(value, str | bytes):
        raise InvalidInputType(
            "a dim is an integer >= 0, relay.Any() for an unknown one or relay.DimVar(name) for a named one, "
            f"not {value!r}"
        )
    size = int(value)
    if size < 0 or size != value:
        raise InvalidInput(f"a static dim must be an integer >= 0, not {value!r}")
    if size > 2**63 - 1:
        raise InvalidInput(f"dim {size} does not fit int64")
    return size


class TupleType(Type):
    """A tuple of types; () is unit."""

    __slots__ = ("fields",)
    _fields = ("fields",)
    fields: tuple[Type, ...]

    def __new__(cls, fields: Iterable[Type]) -> TupleType:
        found: TupleType = _intern(cls, _sequence(cls, "fields", fields, "relay.TupleType([a, b])"))
        return found


class FuncType(Type):
    """A function: argument types, result type, type parameters it is generic in."""

    __slots__ = ("arg_types", "ret_type", "type_params")
    _fields = ("arg_types", "ret_type", "type_params")
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...]

    def __new__(
        cls,
        arg_types: Iterable[Type],
        ret_type: Type,
        type_params: Iterable[TypeVar] = (),
        type_constraints: Iterable[object] = (),
    ) -> FuncType:
        """type_constraints: TVM's, of which there are none here. ValueError for any."""
        if tuple(type_constraints or ()):
            raise ValueError("FuncType: there are no type constraints")
        inputs = _sequence(cls, "arg_types", arg_types, "relay.FuncType([a, b], result)")
        generic = _sequence(cls, "type_params", type_params, "relay.FuncType([t], t, [t])")
        found: FuncType = _intern(cls, inputs, ret_type, generic)
        return found


class RefType(Type):
    """A mutable cell that holds `value`."""

    __slots__ = ("value",)
    _fields = ("value",)
    value: Type

    def __new__(cls, value: Type) -> RefType:
        found: RefType = _intern(cls, value)
        return found


def _check_kind(cls: type[Type], kind: int, only: int) -> None:
    """TVM's constructors take a relay.TypeKind; what stands for other kinds than `only` is no type here."""
    if kind != only:
        raise InvalidInputType(
            f"{cls.__name__}: kind must be {only} ({'AdtHandle' if only else 'Type'}), not {shown(kind)}; "
            "a size that is not known is relay.DimVar(name)"
        )


class GlobalTypeVar(Type):
    """The name of an algebraic data type."""

    __slots__ = ("name_hint",)
    _fields = ("name_hint",)
    name_hint: str

    def __new__(cls, name_hint: str, kind: int = 5) -> GlobalTypeVar:
        _check_kind(cls, kind, 5)
        if not isinstance(name_hint, str):
            raise InvalidInputType(
                f"GlobalTypeVar: name_hint must be a name, not {shown(name_hint)}"
            )
        found: GlobalTypeVar = _intern(cls, name_hint)
        return found

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


class TypeCall(Type):
    """An algebraic data type applied to types; also `args == ()` for a type without parameters."""

    __slots__ = ("args", "func")
    _fields = ("func", "args")
    func: GlobalTypeVar
    args: tuple[Type, ...]

    def __new__(cls, func: GlobalTypeVar, args: Iterable[Type] = ()) -> TypeCall:
        given = _sequence(cls, "args", args, "relay.TypeCall(list_type, [element])")
        found: TypeCall = _intern(cls, func, given)
        return found


class TypeVar(Type):
    """A type parameter; identity is the object."""

    __slots__ = ("name_hint",)
    _fields = ("name_hint",)
    name_hint: str

    def __new__(cls, name_hint: str, kind: int = 0) -> TypeVar:
        _check_kind(cls, kind, 0)
        found = object.__new__(cls)
        object.__setattr__(found, "name_hint", name_hint)
        object.__setattr__(found, "flags", HAS_TYPE_VAR)
        return found


class IncompleteType(Type):
    """A hole that inference fills; identity is the object. None left after inference."""

    __slots__ = ()

    def __new__(cls, kind: int = 0) -> IncompleteType:
        _check_kind(cls, kind, 0)
        found = object.__new__(cls)
        object.__setattr__(found, "flags", HAS_HOLE)
        return found


def scalar_type(dtype: str) -> TensorType:
    """A rank-0 tensor type."""
    return TensorType((), dtype)


def parts(type_: Type) -> tuple[Type, ...]:
    """The direct component types (type parameters of a function are binders and not among them)."""
    match type_:
        case TupleType(fields=fields):
            return fields
        case FuncType(arg_types=args, ret_type=ret):
            return (*args, ret)
        case TypeCall(args=args):
            return args
        case RefType(value=value):
            return (value,)
    return ()


def with_parts(type_: Type, new: tuple[Type, ...]) -> Type:
    """`type_` with other components, in the order of `parts`."""
    match type_:
        case TupleType():
            return TupleType(new)
        case FuncType(type_params=params):
            return FuncType(new[:-1], new[-1], params)
        case TypeCall(func=func):
            return TypeCall(func, new)
        case RefType():
            return RefType(new[0])
    return type_


def transform(root: Type, leaf: Callable[[Type], Type], mask: int) -> Type:
    """`root` with every leaf (tensor, type variable, hole) that has a flag of `mask` replaced by
    leaf(it).

    Each distinct component is visited once; iterative, because types nest as deep as programs do.
    """
    if not root.flags & mask:
        return root
    done: dict[Type, Type] = {}
    stack = [root]
    while stack:
        current = stack[-1]
        components = parts(current)
        if current in done or not current.flags & mask:
            done.setdefault(current, current)
            stack.pop()
        elif not components:
            done[current] = leaf(current)
            stack.pop()
        else:
            waiting = [p for p in components if p not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            new = tuple(done[p] for p in components)
            done[current] = current if new == components else with_parts(current, new)
            stack.pop()
    return done[root]


def transform_each(root: Type, leaf: Callable[[Type], Type], mask: int | None = None) -> Type:
    """As `transform`, but `leaf` is called for every occurrence: for leaves that become fresh
    unknowns.

    mask None visits all leaves. Cost: the size of the type written out as a tree; ValueError if that
    passes MAX_WRITTEN_OUT, as ((x, x), (x, x)) soon does.
    """
    out: list[Type] = []
    stack: list[tuple[Type, bool]] = [(root, False)]
    steps = 0
    while stack:
        steps += 1
        if steps > MAX_WRITTEN_OUT:
            raise ValueError(f"the type has more than {MAX_WRITTEN_OUT} parts")
        current, ready = stack.pop()
        components = parts(current)
        if ready:
            new = tuple(out[-len(components) :])
            del out[-len(components) :]
            out.append(current if new == components else with_parts(current, new))
        elif mask is not None and not current.flags & mask:
            out.append(current)
        elif components:
            stack.append((current, True))
            stack.extend((p, False) for p in reversed(components))
        else:
            out.append(leaf(current))
    return out[0]


def substitute(
    type_: Type,
    type_vars: Mapping[Any, Type] | None = None,
    dim_vars: Mapping[DimVar, Dim] | None = None,
) -> Type:
    """`type_` with type variables (or holes) and dim variables replaced, all at once."""
    mask = (HAS_TYPE_VAR | HAS_HOLE if type_vars else 0) | (HAS_DIM if dim_vars else 0)

    def leaf(found: Type) -> Type:
        if isinstance(found, TensorType):
            if dim_vars is None:
                return found
            return TensorType((dims.substitute(d, dim_vars) for d in found.shape), found.dtype)
        return found if type_vars is None else type_vars.get(found, found)

    return transform(type_, leaf, mask) if mask else type_


def free_dims(type_: Type) -> tuple[DimVar, ...]:
    """All dim variables that occur in a type, in order of first occurrence."""
    found: dict[DimVar, None] = {}
    for tensor in _leaves(type_, HAS_DIM):
        if isinstance(tensor, TensorType):
            for dim in tensor.shape:
                found.update(dict.fromkeys(dims.free_vars(dim)))
    return tuple(found)


def free_type_vars(type_: Type) -> tuple[TypeVar, ...]:
    """All type variables that occur in a type outside the function type that binds them."""
    bound: set[Type] = set()
    found: dict[TypeVar, None] = {}
    seen: set[Type] = set()
    stack = [type_]
    while stack:
        current = stack.pop()
        if current in seen or not current.flags & HAS_TYPE_VAR:
            continue
        seen.add(current)
        if isinstance(current, TypeVar):
            found[current] = None
        elif isinstance(current, FuncType):
            bound.update(current.type_params)
        stack.extend(reversed(parts(current)))
    return tuple(v for v in found if v not in bound)


def holes(type_: Type) -> tuple[IncompleteType, ...]:
    """The holes of a type, in order of first occurrence."""
    return tuple(t for t in _leaves(type_, HAS_HOLE) if isinstance(t, IncompleteType))


def value_tensors(type_: Type) -> tuple[TensorType, ...]:
    """The tensor types of a value that are there for certain: itself, or through the fields of
    tuples.
    """
    if isinstance(type_, TensorType):
        return (type_,)
    found: list[TensorType] = []
    seen: set[Type] = set()
    stack = [type_]
    while stack:
        current = stack.pop()
        if isinstance(current, TensorType):
            found.append(current)
        elif isinstance(current, TupleType) and current not in seen:
            seen.add(current)
            stack.extend(reversed(current.fields))
    return tuple(found)


def paired_tensors(
    first: Type, second: Type
) -> Iterator[tuple[TensorType, TensorType, tuple[int, ...]]]:
    """The tensors of two values of one structure side by side, with the fields of tuples that lead to them."""
    stack: list[tuple[Type, Type, tuple[int, ...]]] = [(first, second, ())]
    while stack:
        a, b, path = stack.pop()
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            yield a, b, path
        elif isinstance(a, TupleType) and isinstance(b, TupleType):
            pairs = enumerate(zip(a.fields, b.fields, strict=True))
            stack.extend([(x, y, (*path, i)) for i, (x, y) in pairs][::-1])


def _leaves(type_: Type, mask: int) -> list[Type]:
    """Distinct components without parts that have a flag of `mask`, from left to right."""
    found: list[Type] = []
    seen: set[Type] = set()
    stack = [type_]
    while stack:
        current = stack.pop()
        if current in seen or not current.flags & mask:
            continue
        seen.add(current)
        below = parts(current)
        if below:
            stack.extend(reversed(below))
        else:
            found.append(current)
    return found


UNIT = TupleType(())

__all__ = [
    "HAS_DIM", "HAS_HOLE", "HAS_TYPE_VAR", "UNIT", "Dim", "DimExpr", "DimVar", "FuncType",
    "GlobalTypeVar", "IncompleteType", "RefType", "TensorType", "TupleType", "Type", "TypeCall",
    "TypeVar", "free_dims", "free_type_vars", "holes", "parts", "register_type_writer",
    "scalar_type", "substitute", "transform", "transform_each", "value_tensors", "with_parts",
]  # fmt: skip
