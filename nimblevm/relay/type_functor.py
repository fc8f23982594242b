"""Walks over types with TVM's method names; nothing recurses, and every distinct type is visited once.

As in visitor.py, the parts of a type are visited before its own method is called, so that `self.visit(part)` there
finds the result at once.
"""

from __future__ import annotations

from typing import Any

from nimblevm.relay.ir import Constructor, TypeData
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    with_parts,
)

Visited = Type | TypeData


def components(typ: Visited) -> tuple[Type, ...]:
    """What a walk goes into, binders first: type parameters of functions and data types, the name of a data type."""
    match typ:
        case FuncType(arg_types=args, ret_type=ret, type_params=params):
            return (*params, *args, ret)
        case TypeCall(func=func, args=args):
            return (func, *args)
        case TypeData(header=header, type_vars=variables, constructors=constructors):
            return (header, *variables, *(i for c in constructors for i in c.inputs))
        case TupleType(fields=fields):
            return fields
        case RefType(value=value):
            return (value,)
    return ()


class TypeFunctor:
    """Dispatch of `visit(typ)` to visit_tensor_type, visit_func_type, ...; results are memoised."""

    def __init__(self) -> None:
        self.memo_map: dict[Visited, Any] = {}

    def visit(self, typ: Visited) -> Any:
        """The result for a type or a TypeData."""
        memo = self.memo_map
        if typ in memo:
            return memo[typ]
        stack: list[tuple[Visited, bool]] = [(typ, False)]
        while stack:
            current, finished = stack.pop()
            if current in memo:
                continue
            if finished:
                memo[current] = self.dispatch(current)
            else:
                stack.append((current, True))
                stack.extend((p, False) for p in reversed(components(current)) if p not in memo)
        return memo[typ]

    def dispatch(self, typ: Visited) -> Any:
        """Call the method for the kind of `typ`, without looking into the memo."""
        method = _METHODS.get(type(typ))
        if method is None:
            raise TypeError(f"unknown type {type(typ).__name__}")
        return getattr(self, method)(typ)

    def _unhandled(self, typ: Visited) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no {_METHODS[type(typ)]}")

    def visit_type_var(self, tv: TypeVar) -> Any:
        return self._unhandled(tv)

    def visit_incomplete_type(self, it: IncompleteType) -> Any:
        return self._unhandled(it)

    def visit_tensor_type(self, tt: TensorType) -> Any:
        return self._unhandled(tt)

    def visit_func_type(self, ft: FuncType) -> Any:
        return self._unhandled(ft)

    def visit_tuple_type(self, tt: TupleType) -> Any:
        return self._unhandled(tt)

    def visit_ref_type(self, rt: RefType) -> Any:
        return self._unhandled(rt)

    def visit_global_type_var(self, gtv: GlobalTypeVar) -> Any:
        return self._unhandled(gtv)

    def visit_type_call(self, tc: TypeCall) -> Any:
        return self._unhandled(tc)

    def visit_type_data(self, td: TypeData) -> Any:
        return self._unhandled(td)


_METHODS: dict[type, str] = {
    TypeVar: "visit_type_var", IncompleteType: "visit_incomplete_type", TensorType: "visit_tensor_type",
    FuncType: "visit_func_type", TupleType: "visit_tuple_type", RefType: "visit_ref_type",
    GlobalTypeVar: "visit_global_type_var", TypeCall: "visit_type_call", TypeData: "visit_type_data",
}  # fmt: skip


class TypeVisitor(TypeFunctor):
    """Visits every part of a type; override the methods of the kinds that matter."""

    def _unhandled(self, typ: Visited) -> Any:
        return None


class TypeMutator(TypeFunctor):
    """Rebuilds a type from what its parts become; a type whose parts stay is kept."""

    def _unhandled(self, typ: Visited) -> Any:
        match typ:
            case FuncType(arg_types=args, ret_type=ret, type_params=params):
                new = tuple([self.visit(a) for a in args])
                return FuncType(new, self.visit(ret), tuple([self.visit(p) for p in params]))
            case TypeCall(func=func, args=args):
                return TypeCall(self.visit(func), tuple([self.visit(a) for a in args]))
            case TypeData():
                return self._type_data(typ)
            case TupleType(fields=fields):
                return with_parts(typ, tuple([self.visit(f) for f in fields]))
            case RefType(value=value):
                return with_parts(typ, (self.visit(value),))
        return typ

    def _type_data(self, td: TypeData) -> TypeData:
        header = self.visit(td.header)
        variables = tuple([self.visit(v) for v in td.type_vars])
        inputs = [tuple([self.visit(i) for i in c.inputs]) for c in td.constructors]
        same = all(new == c.inputs for new, c in zip(inputs, td.constructors, strict=True))
        if same and header is td.header and variables == td.type_vars:
            return td
        constructors = tuple(
            [
                Constructor(c.name_hint, new, header, c.tag, span=c.span)
                for new, c in zip(inputs, td.constructors, strict=True)
            ]
        )
        return TypeData(header, variables, constructors, span=td.span)


__all__ = ["TypeFunctor", "TypeMutator", "TypeVisitor"]
