"""structural_hash: equal for structurally equal programs, and the same in every process.

Digests are built from the leaves up. A bound variable counts as the number of its binder in a walk from the root, a
dim as "some dim": dims may be renamed, and a coarser hash is still right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from nimblevm.relay import types
from nimblevm.relay.dims import DimExpr, DimOp
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TupleGetItem,
    TypeData,
    Var,
    children,
    late_array,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.structural import attrs_of
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    Type,
    TypeCall,
    TypeVar,
)
from nimblevm.relay.visitor import post_order

Digest = bytes


def _mix(tag: str, *parts: Digest) -> Digest:
    hasher = blake2b(f"{tag}/{len(parts)}".encode(), digest_size=16)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


class _Hasher:
    """Digests of one root; binders are numbered in the order in which they are met."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self._numbers: dict[Var | TypeVar, int] = {}
        self._free: dict[Var, int] = {}
        self._types: dict[Type, Digest] = {}
        self._exprs: dict[Expr, Digest] = {}

    def expr(self, root: Expr) -> Digest:
        self._number_binders(root)
        for node in post_order(root):
            self._exprs[node] = self._node(node)
        return self._exprs[root]

    def _bind(self, var: Var | TypeVar) -> None:
        self._numbers.setdefault(var, len(self._numbers))

    def _number_binders(self, root: Expr) -> None:
        seen: set[Expr] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            match node:
                case Let(var=var):
                    self._bind(var)
                case Function(params=params, type_params=type_params):
                    for type_param in type_params:
                        self._bind(type_param)
                    for param in params:
                        self._bind(param)
                case Match(clauses=clauses):
                    for clause in clauses:
                        for var in pattern_vars(clause.lhs):
                            self._bind(var)
            stack.extend(reversed(children(node)))

    def _node(self, node: Expr) -> Digest:
        below = [self._exprs[child] for child in children(node)]
        name = type(node).__name__
        match node:
            case Var():
                return self._var(node)
            case Constant(data=data):
                late = late_array(node)
                return self.value(data) if late is None else _mix(f"late {late.key}")
            case GlobalVar(name_hint=hint) | Constructor(name_hint=hint) | Op(name=hint):
                return _mix(f"{name} {hint}")
            case Let(var=var):
                return _mix(name, *below, self.type(var.type_annotation))
            case Function(params=params, ret_type=ret, attrs=attrs):
                annotations = [self.type(param.type_annotation) for param in params]
                return _mix(name, *below, self.type(ret), self.value(attrs), *annotations)
            case Call():
                return _mix(name, *below, self.value(attrs_of(node)))
            case Match(clauses=clauses, complete=complete):
                return _mix(f"{name} {complete}", *below, *(self.pattern(c.lhs) for c in clauses))
            case TupleGetItem(index=index):
                return _mix(f"{name} {index}", *below)
        return _mix(name, *below)

    def _var(self, var: Var) -> Digest:
        number = self._numbers.get(var)
        if number is not None:
            return _mix(f"bound {number}")
        if self.map_free_vars:
            return _mix(
                f"free {self._free.setdefault(var, len(self._free))}",
                self.type(var.type_annotation),
            )
        return _mix(f"free {var.name_hint}", self.type(var.type_annotation))

    def pattern(self, root: Pattern) -> Digest:
        words: list[str] = []
        found: list[Digest] = []
        stack = [root]
        while stack:
            pattern = stack.pop()
            words.append(type(pattern).__name__)
            match pattern:
                case PatternVar(var=var):
                    found.append(self.type(var.type_annotation))
                case PatternConstructor(constructor=constructor, patterns=parts):
                    words.append(f"{constructor.name_hint} {len(parts)}")
                    stack.extend(reversed(parts))
                case PatternTuple(patterns=parts):
                    words.append(str(len(parts)))
                    stack.extend(reversed(parts))
        return _mix(" ".join(words), *found)

    def type(self, root: Type | None) -> Digest:
        if root is None:
            return _mix("hole")
        stack = [root]
        while stack:
            current = stack[-1]
            waiting = [part for part in types.parts(current) if part not in self._types]
            if current in self._types or not waiting:
                stack.pop()
                if current not in self._types:
                    self._types[current] = self._type(current)
            else:
                if isinstance(current, FuncType):
                    for var in current.type_params:
                        self._bind(var)
                stack.extend(waiting)
        return self._types[root]

    def _type(self, type_: Type) -> Digest:
        below = [self._types[part] for part in types.parts(type_)]
        match type_:
            case TensorType(shape=shape, dtype=dtype):
                return _mix(dtype, *(self.dim(d) for d in shape))
            case TypeVar(name_hint=name):
                return _mix(f"type variable {self._numbers.get(type_, name)}")
            case IncompleteType():
                return _mix("hole")
            case GlobalTypeVar(name_hint=name):
                return _mix(f"ADT {name}")
            case TypeCall(func=func):
                return _mix(f"ADT {func.name_hint}", *below)
        return _mix(type(type_).__name__, *below)

    def dim(self, dim: int | DimExpr) -> Digest:
        """Depth is bounded by dims.MAX_DEPTH."""
        if isinstance(dim, DimOp):
            return _mix(dim.op, *sorted(self.dim(arg) for arg in dim.args))
        return _mix(str(dim) if isinstance(dim, int) else "?")

    def value(self, value: Any) -> Digest:
        """An attribute value; nesting of lists is as written by hand, so this may recurse."""
        match value:
            case Type():
                return self.type(value)
            case DimExpr():
                return self.dim(value)
            case np.ndarray():
                return _mix(f"{value.dtype.name}{value.shape}", blake2b(value.tobytes()).digest())
            case Constant(data=data):
                return self.value(data)
            case tuple() | list():
                return _mix("list", *(self.value(v) for v in value))
            case Mapping():
                return _mix(
                    f"map {sorted(value)}", *(self.value(value[key]) for key in sorted(value))
                )
        if dataclasses.is_dataclass(value):
            fields = [self.value(getattr(value, f.name)) for f in dataclasses.fields(value)]
            return _mix(type(value).__name__, *fields)
        return _mix(f"value {value!r}")

    def type_data(self, definition: TypeData) -> Digest:
        for var in definition.type_vars:
            self._bind(var)
        parts = [
            _mix(c.name_hint, *(self.type(t) for t in c.inputs)) for c in definition.constructors
        ]
        return _mix(f"type {definition.header.name_hint} {len(definition.type_vars)}", *parts)


def structural_digest(node: Any, map_free_vars: bool = False) -> bytes:
    """16 bytes: equal for structurally equal expressions, modules, types, patterns and type definitions."""
    hasher = _Hasher(map_free_vars)
    match node:
        case IRModule():
            parts = []
            for var in sorted(node, key=lambda v: v.name_hint):
                parts.append(_mix(var.name_hint, _Hasher(map_free_vars).expr(node.function(var))))
            for header in sorted(node.type_definitions, key=lambda t: t.name_hint):
                parts.append(_Hasher(map_free_vars).type_data(node.type_definitions[header]))
            return _mix("module", *parts)
        case Expr():
            return hasher.expr(node)
        case TypeData():
            return hasher.type_data(node)
        case Pattern():
            return hasher.pattern(node)
        case Clause(lhs=lhs, rhs=rhs):
            return _mix("clause", hasher.pattern(lhs), hasher.expr(rhs))
    return hasher.value(node)


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A 64-bit hash; see structural_digest."""
    return int.from_bytes(structural_digest(node, map_free_vars)[:8], "little")


__all__ = ["structural_digest", "structural_hash"]
