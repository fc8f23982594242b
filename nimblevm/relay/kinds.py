"""What kind a type is, and which features and operators a program uses: TVM's check_kind, detect_feature,
list_op_freqs and list_fake_quantized_op_freqs.
"""

from __future__ import annotations

import enum

from nimblevm.arguments import explain_arguments
from nimblevm.errors import WellFormedError
from nimblevm.relay import ir
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
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
from nimblevm.relay.visitor import post_order


class TypeKind(enum.IntEnum):
    """The kinds of types, numbered as in TVM."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class Feature(enum.IntEnum):
    """What a program may use, numbered as in TVM."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15


_FEATURES: dict[type, Feature] = {
    ir.Var: Feature.fVar, ir.GlobalVar: Feature.fGlobalVar, ir.Constant: Feature.fConstant,
    ir.Tuple: Feature.fTuple, ir.TupleGetItem: Feature.fTupleGetItem, ir.Function: Feature.fFunction,
    Op: Feature.fOp, ir.Call: Feature.fCall, ir.Let: Feature.fLet, ir.If: Feature.fIf,
    ir.RefCreate: Feature.fRefCreate, ir.RefRead: Feature.fRefRead, ir.RefWrite: Feature.fRefWrite,
    ir.Constructor: Feature.fConstructor, ir.Match: Feature.fMatch,
}  # fmt: skip


def check_kind(t: Type, mod: IRModule | None = None) -> TypeKind:
    """The kind of a type. WellFormedError for a data type that `mod` lacks or that is given other arguments."""
    stack: list[Type] = list(parts(t))
    if isinstance(t, TypeCall):
        stack.append(t)
    while stack:
        found = stack.pop()
        if isinstance(found, GlobalTypeVar):
            raise WellFormedError(
                f"{found.name_hint} is the name of a data type: call it, {found}[...]"
            )
        if isinstance(found, TypeCall) and mod is not None:
            definition = mod.type_definitions.get(found.func)
            if definition is None:
                raise WellFormedError(f"the module has no type {found.func.name_hint}")
            if len(definition.type_vars) != len(found.args):
                raise WellFormedError(
                    f"{found.func.name_hint} takes {len(definition.type_vars)} types, got {len(found.args)}"
                )
        stack.extend(parts(found))
    match t:
        case GlobalTypeVar():
            return TypeKind.AdtHandle
        case TensorType() | TupleType() | FuncType() | RefType() | TypeCall() | TypeVar():
            return TypeKind.Type
    raise WellFormedError(f"{t!r} has no kind")


def detect_feature(a: ir.Expr | IRModule, b: IRModule | None = None) -> set[Feature]:
    """The features that an expression (and the functions of a module) use.

    fGraph: a node that is no leaf has several parents.
    """
    module = a if isinstance(a, IRModule) else b
    roots: list[ir.Expr] = [] if isinstance(a, IRModule) else [a]
    roots += module.functions.values() if module is not None else ()
    found: set[Feature] = set()
    for root in roots:
        seen: set[ir.Expr] = set()
        for node in post_order(root):
            found.add(_FEATURES[type(node)])
            for child in ir.children(node):
                if child in seen and not isinstance(child, ir.Leaf):
                    found.add(Feature.fGraph)
                seen.add(child)
            if isinstance(node, ir.Function | ir.Let | ir.Match):
                found.add(Feature.fVar)
    return found


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """How many calls there are of each operator."""
    found: dict[str, int] = {}
    for function in mod.functions.values():
        for node in post_order(function):
            if isinstance(node, ir.Call) and isinstance(node.op, Op):
                found[node.op.name] = found.get(node.op.name, 0) + 1
    return found


def list_fake_quantized_op_freqs(mod: IRModule) -> dict[str, int]:
    """How many calls there are of each operator between qnn.dequantize and a qnn.quantize; for each of these anew."""
    found: dict[str, int] = {}
    for function in mod.functions.values():
        for close in post_order(function):
            if not _calls(close, "qnn.quantize"):
                continue
            assert isinstance(close, ir.Call)
            for node in post_order(close.args[0], lambda n: _calls(n, "qnn.dequantize")):
                if (
                    isinstance(node, ir.Call)
                    and isinstance(node.op, Op)
                    and node.op.name not in _ENDS
                ):
                    found[node.op.name] = found.get(node.op.name, 0) + 1
    return found


_ENDS = ("qnn.dequantize", "qnn.quantize")


def _calls(node: ir.Expr, name: str) -> bool:
    return isinstance(node, ir.Call) and isinstance(node.op, Op) and node.op.name == name


__all__ = [
    "Feature", "TypeKind", "check_kind", "detect_feature", "list_fake_quantized_op_freqs", "list_op_freqs",
]  # fmt: skip

explain_arguments(globals(), __all__)
