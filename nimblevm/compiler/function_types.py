"""What types become when every function is a value of a data type: the types' part of defunctionalization.

A function type becomes a data type with a constructor a function, `Defunc`, `Defunc_1`, ... Two function types that
differ in sizes alone are one: values flow between them, and the run compares sizes where a call's result is used. A
data type whose definition mentions functions gets a copy for its type arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nimblevm.errors import CompileError, InternalError
from nimblevm.relay.dims import AnyDim, DimExpr, DimVar
from nimblevm.relay.ir import Constructor, TypeData
from nimblevm.relay.module import IRModule
from nimblevm.relay.type_functor import TypeMutator
from nimblevm.relay.types import (
    HAS_DIM,
    FuncType,
    GlobalTypeVar,
    TensorType,
    Type,
    TypeCall,
    TypeVar,
    parts,
    substitute,
    transform,
    transform_each,
)

MAX_COPIES = 100
"""Copies of one function or data type, by type arguments: more means that the arguments grow from call to call."""

_ANY = DimVar()


class _WithoutSizes(TypeMutator):
    def visit_tensor_type(self, tt: TensorType) -> Type:
        return TensorType([_ANY] * len(tt.shape), tt.dtype)


def without_sizes(type_: Type) -> Type:
    """A type with all sizes unknown: those of its like are this very object."""
    found: Type = _WithoutSizes().visit(type_)
    return found


def without_dims(type_: Type) -> Type:
    """A type with the sizes that are not numbers unknown."""

    def leaf(found: Type) -> Type:
        if not isinstance(found, TensorType):
            return found
        return TensorType([_ANY if isinstance(d, DimExpr) else d for d in found.shape], found.dtype)

    return transform(type_, leaf, HAS_DIM)


def with_own_sizes(type_: Type) -> Type:
    """A type where every unknown size is one of its own."""

    def leaf(found: Type) -> Type:
        if not isinstance(found, TensorType):
            return found
        return TensorType([AnyDim() if d is _ANY else d for d in found.shape], found.dtype)

    return transform_each(type_, leaf, HAS_DIM)


def solve(params: Iterable[TypeVar], have: Type, want: Type) -> tuple[Type, ...] | None:
    """The type arguments with which a generic type is another one; None if those do not decide them."""
    found: dict[Type, Type | None] = dict.fromkeys(params)
    stack = [(have, want)]
    seen: set[tuple[Type, Type]] = set()
    while stack:
        pair = one, other = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        if one in found:
            if found[one] is None:
                found[one] = other
        elif type(one) is type(other):
            stack.extend(zip(parts(one), parts(other), strict=True))
    decided = tuple([t for t in found.values() if t is not None])
    return decided if len(decided) == len(found) else None


class Names:
    """Names that are not taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def fresh(self, wish: str) -> str:
        name, n = wish, 0
        while name in self.taken:
            n += 1
            name = f"{wish}_{n}"
        self.taken.add(name)
        return name


@dataclass(eq=False, slots=True)
class Encoding:
    """The data type of a function type. made: what a function value is of -> its constructor."""

    signature: FuncType  # without sizes, not encoded
    header: GlobalTypeVar
    made: dict[tuple[object, ...], Constructor] = field(default_factory=dict)


class TypeEncoder(TypeMutator):
    """Encodes types without type variables.

    encodings  function type without sizes -> its encoding
    copies     (data type, type arguments) -> the copy's definition
    """

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.type_names = Names(t.name_hint for t in mod.type_definitions)
        self.constructor_names = Names(
            c.name_hint for d in mod.type_definitions.values() for c in d.constructors
        )
        self.encodings: dict[Type, Encoding] = {}
        self.copies: dict[tuple[GlobalTypeVar, tuple[Type, ...]], TypeData] = {}
        self.holding = _types_with_functions(mod)

    def has_functions(self, type_: Type) -> bool:
        """Whether functions are values of a type or of its parts."""
        seen: set[Type] = set()
        stack = [type_]
        while stack:
            current = stack.pop()
            if isinstance(current, FuncType):
                return True
            if isinstance(current, TypeCall) and current.func in self.holding:
                return True
            if current not in seen:
                seen.add(current)
                stack.extend(parts(current))
        return False

    def encode(self, type_: Type) -> Type:
        """The type of the values that stand for those of `type_`."""
        if not self.has_functions(type_):
            return type_
        found: Type = self.visit(type_)
        return found

    def encoding(self, type_: Type) -> Encoding:
        """What stands for the functions of a type."""
        key = without_sizes(type_)
        if not isinstance(key, FuncType) or key.type_params:
            raise InternalError(f"{type_} is no type of functions of one type")
        if key not in self.encodings:
            header = GlobalTypeVar(self.type_names.fresh("Defunc"))
            self.encodings[key] = Encoding(key, header)
        return self.encodings[key]

    def visit_func_type(self, ft: FuncType) -> Type:
        return TypeCall(self.encoding(ft).header, ())

    def visit_type_call(self, tc: TypeCall) -> Type:
        if tc.func in self.holding and isinstance(tc.func, GlobalTypeVar):
            return TypeCall(self.copy(tc).header, ())
        return TypeCall(tc.func, [self.visit(a) for a in tc.args])

    def copy(self, tc: TypeCall) -> TypeData:
        """The copy of a data type that holds functions, for its type arguments."""
        assert isinstance(tc.func, GlobalTypeVar)
        key = (tc.func, tuple([without_sizes(a) for a in tc.args]))
        if key in self.copies:
            return self.copies[key]
        check_copies(f"type {tc.func.name_hint}", sum(k[0] is tc.func for k in self.copies))
        old = self.mod.type_definitions[tc.func]
        header = GlobalTypeVar(self.type_names.fresh(old.header.name_hint))
        self.copies[key] = TypeData(header, (), ())  # for its own fields
        given = dict(zip(old.type_vars, key[1], strict=True))
        made = []
        for constructor in old.constructors:
            inputs = [with_own_sizes(self.encode(substitute(i, given))) for i in constructor.inputs]
            name = self.constructor_names.fresh(constructor.name_hint)
            made.append(Constructor(name, tuple(inputs), header, span=constructor.span))
        self.copies[key] = TypeData(header, (), tuple(made), span=old.span)
        return self.copies[key]

    def constructor(self, old: Constructor, type_: Type) -> Constructor:
        """The constructor that stands for one of values of `type_` (not encoded)."""
        if isinstance(type_, TypeCall) and type_.func in self.holding:
            return self.copy(type_).constructors[old.tag]
        return old

    def inputs(self, old: Constructor, type_: Type) -> tuple[Type, ...]:
        """The types of a constructor's fields (not encoded) where it makes values of `type_`."""
        if not isinstance(type_, TypeCall):
            raise InternalError(f"{old.name_hint} makes no {type_}")
        definition = self.mod.type_definitions[old.belong_to]
        given: Mapping[TypeVar, Type] = dict(zip(definition.type_vars, type_.args, strict=True))
        return tuple([substitute(i, given) for i in old.inputs])


def check_copies(what: str, count: int) -> None:
    """CompileError where copies do not come to an end."""
    if count >= MAX_COPIES:
        raise CompileError(
            f"Defunctionalization: {what} is needed for more than {MAX_COPIES} type arguments: they "
            "grow from call to call; give it a type of its own"
        )


def _types_with_functions(mod: IRModule) -> frozenset[Type]:
    """The data types whose definitions mention functions, directly or through others."""
    mentioned: dict[Type, set[Type]] = {}
    found: set[Type] = set()
    for header, definition in mod.type_definitions.items():
        stack: list[Type] = [i for c in definition.constructors for i in c.inputs]
        seen: set[Type] = set()
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if isinstance(current, FuncType):
                found.add(header)
            stack.extend(parts(current))
        mentioned[header] = {t.func for t in seen if isinstance(t, TypeCall)}
    size = -1
    while size != len(found):
        size = len(found)
        found.update(h for h, others in mentioned.items() if others & found)
    return frozenset(found)


__all__ = [
    "Encoding", "Names", "TypeEncoder", "check_copies", "solve", "with_own_sizes", "without_dims", "without_sizes",
]  # fmt: skip
