"""Types of the language -> type records of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nimblevm.bytecode.serialize import UNKNOWN_DIM, ProgramBuilder, dim_slot
from nimblevm.errors import CompileError
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Constructor
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.vm import STORAGE
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    parts,
)


class TypeTable:
    """Numbers types, ADTs and constructors of one program."""

    def __init__(self, mod: IRModule, builder: ProgramBuilder) -> None:
        self.builder = builder
        self.adts: dict[GlobalTypeVar, int] = {}
        self.constructors: dict[Constructor, int] = {}
        self.counts: dict[GlobalTypeVar, int] = {}
        self.first: dict[GlobalTypeVar, int] = {}
        definitions = [d for d in mod.type_definitions.values() if d.header is not STORAGE.func]
        for definition in definitions:
            names = [c.name_hint for c in definition.constructors]
            adt, first = builder.declare_adt(
                definition.header.name_hint, len(definition.type_vars), names
            )
            self.adts[definition.header] = adt
            self.first[definition.header] = first
            self.counts[definition.header] = len(names)
            for tag, constructor in enumerate(definition.constructors):
                self.constructors[constructor] = first + tag
        for definition in definitions:
            for constructor in definition.constructors:
                fields = [self.index(t, definition.type_vars) for t in constructor.inputs]
                builder.define_constructor(self.constructors[constructor], fields)

    def constructor(self, constructor: Constructor) -> int:
        """Index of a constructor. CompileError if the module does not define its type."""
        found = self.constructors.get(constructor)
        if found is None:
            raise CompileError(
                f"constructor {constructor.name_hint}: the module has no type {constructor.belong_to.name_hint}"
            )
        return found

    def first_constructor(self, type_: Type) -> int:
        """Index of the first constructor of an ADT. CompileError for other types."""
        found = self.first.get(type_.func) if isinstance(type_, TypeCall) else None
        if found is None:
            raise CompileError(f"{type_!r} is no type of the module")
        return found

    def index(
        self,
        root: Type,
        type_vars: Iterable[TypeVar] = (),
        slots: Mapping[DimVar, int] | None = None,
    ) -> int:
        """Index of a type; `slots` numbers the dims of the signature that it stands in. Iterative."""
        numbers = {v: i for i, v in enumerate(type_vars)}
        done: dict[Type, int] = {}
        stack: list[tuple[Type, bool]] = [(root, False)]
        while stack:
            current, ready = stack.pop()
            if current in done:
                continue
            below = parts(current)
            if below and not ready:
                stack.append((current, True))
                stack.extend((p, False) for p in below)
                continue
            done[current] = self._index_of(current, [done[p] for p in below], numbers, slots or {})
        return done[root]

    def _index_of(
        self,
        type_: Type,
        below: list[int],
        numbers: Mapping[TypeVar, int],
        slots: Mapping[DimVar, int],
    ) -> int:
        builder = self.builder
        match type_:
            case TensorType():
                return builder.tensor_type(type_.dtype, [_dim_word(d, slots) for d in type_.shape])
            case TupleType():
                return builder.tuple_type(below)
            case TypeCall() if type_.func in self.adts:
                return builder.adt_type(self.adts[type_.func], below)
            case FuncType():
                return builder.func_type(below[-1], below[:-1])
            case RefType():
                return builder.ref_type(below[0])
            case TypeVar():
                # A function's own type parameter nested in a function type: erased like the others.
                return builder.type_var(numbers.get(type_, 0))
            case TypeCall():
                raise CompileError(f"the module has no type {type_.func.name_hint}")
        raise CompileError(f"type {type_!r} has no place in a file")


def _dim_word(dim: Dim, slots: Mapping[DimVar, int]) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, DimVar) and dim in slots:
        return dim_slot(slots[dim])
    return UNKNOWN_DIM
