"""What makes two fused functions one kernel: they are equal up to the names of variables and dims."""

from __future__ import annotations

import dataclasses
import hashlib

from nimblevm.compiler.rewrite import Rewriter, postorder, type_of
from nimblevm.errors import CompileError
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.ir import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from nimblevm.relay.levels import LevelLoop
from nimblevm.relay.op.registry import Op
from nimblevm.relay.steps import StepLoop
from nimblevm.relay.types import TensorType, Type

LONG = 1 << 10
"""Bytes of a constant from which its digest stands for it."""


class _Numbering:
    """Numbers of DimVars and of other interned things, by first occurrence."""

    def __init__(self) -> None:
        self.dims: dict[DimVar, int] = {}

    def dim(self, dim: Dim) -> object:
        if isinstance(dim, int):
            return dim
        if isinstance(dim, DimVar):
            return ("d", self.dims.setdefault(dim, len(self.dims)))
        parts = [self.dim(a) for a in getattr(dim, "args", ())]
        if getattr(dim, "op", "") in ("add", "mul", "min", "max", "bcast"):
            # The stored order depends on when variables were made, which is no part of what the
            # kernel does.
            parts.sort(key=repr)
        return (getattr(dim, "op", ""), *parts)

    def type(self, type_: Type) -> object:
        """Kernels see tensors and tuples of them; types are shallow here."""
        if isinstance(type_, TensorType):
            return (type_.dtype, *(self.dim(d) for d in type_.shape))
        return ("tuple", *(self.type(t) for t in getattr(type_, "fields", ())))

    def attrs(self, attrs: object) -> object:
        if attrs is None or not dataclasses.is_dataclass(attrs):
            return repr(attrs)
        return (
            type(attrs).__name__,
            *(self._attr(getattr(attrs, f.name)) for f in dataclasses.fields(attrs)),
        )

    def _attr(self, value: object) -> object:
        if isinstance(value, DimExpr):
            return self.dim(value)
        if isinstance(value, Type):
            return self.type(value)
        if isinstance(value, tuple):
            return tuple(self._attr(v) for v in value)
        return repr(value)


def structural_key(function: Function) -> tuple[object, tuple[DimVar, ...]]:
    """A key equal for equal fused functions, and their dim variables in the key's order."""
    numbers = _Numbering()
    index: dict[Expr, int] = {}
    rows: list[object] = [StepLoop.of(function), LevelLoop.of(function)]
    for param in function.params:
        index[param] = len(index)
        rows.append(numbers.type(type_of(param)))
    # Sizes that no operand has are given as numbers.
    rows += [(at, numbers.dim(dim)) for at, dim in function.attrs.get("dim_params", ())]
    for node in postorder(function.body):
        if isinstance(node, Op) or node in index:
            continue
        rows.append(_row(node, index, numbers))
        index[node] = len(index)
        if isinstance(node, Let):
            index[node] = index[node.body]
    return tuple(rows), tuple(numbers.dims)


def _row(node: Expr, index: dict[Expr, int], numbers: _Numbering) -> object:
    match node:
        case Call(op=Op() as op):
            operands = tuple(index[a] for a in node.args)
            return (op.name, operands, numbers.attrs(node.attrs), numbers.type(type_of(node)))
        case Constant():
            return ("const", node.data.dtype.name, node.data.shape, _elements(node))
        case Tuple():
            return ("tuple", tuple(index[f] for f in node.fields))
        case TupleGetItem():
            return ("get", index[node.tuple_value], node.index)
        case Let():
            return ("let", index[node.value])
        case Var():
            return ("var", node.name_hint)
    raise CompileError(f"{type(node).__name__} can't be part of a kernel")


def _elements(node: Constant) -> bytes:
    data = node.data.tobytes()
    return data if len(data) < LONG else hashlib.sha256(data).digest()


def is_region(node: Expr) -> bool:
    """A function that belongs to an external backend."""
    return isinstance(node, Function) and "Compiler" in node.attrs


def composites(function: Function) -> list[Call]:
    """The calls of composites in a region, operands first."""
    calls: list[Call] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(function.body, False)]
    while stack:
        node, ready = stack.pop()
        if ready and isinstance(node, Call):
            calls.append(node)
            continue
        if node in seen or not isinstance(node, Call | Tuple | TupleGetItem):
            continue
        seen.add(node)
        parts: tuple[Expr, ...] = ()
        match node:
            case Call(op=op, args=parts):
                if isinstance(op, Function):
                    stack.append((node, True))
            case Tuple(fields=parts):
                pass
            case TupleGetItem(tuple_value=value):
                parts = (value,)
        stack.extend((part, False) for part in reversed(parts))
    return calls


def plain_function(function: Function) -> Function:
    """A region with the bodies of its composites in the place of their calls."""
    outer = Rewriter()
    for call in composites(function):
        inner = call.op
        if isinstance(inner, Function):
            args: dict[Expr, Expr] = dict(
                zip(inner.params, map(outer.rewrite, call.args), strict=True)
            )
            outer.memo[call] = Rewriter(args).rewrite(inner.body)
    body = outer.rewrite(function.body)
    return dataclasses.replace(function, body=body, attrs={"Primitive": 1})


def region_key(function: Function) -> tuple[object, tuple[DimVar, ...]]:
    """As structural_key, of a region: its composites count too."""
    key, variables = structural_key(plain_function(function))
    marks = tuple(
        (str(call.op.attrs.get("Composite")), len(postorder(call.op.body)))
        for call in composites(function)
        if isinstance(call.op, Function)
    )
    return (function.attrs["Compiler"], marks, key), variables
