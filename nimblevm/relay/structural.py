"""Structural equality: the same program up to the names of variables, type variables and dims.

Spans, checked types and the type arguments that inference writes on calls don't count. Sharing does, as in TVM: a
node used twice differs from two equal nodes (it is computed once; a ref is one cell). It does not for leaves, `()`,
projections and constructors without fields. Constants are compared by dtype, shape and bytes. Iterative and linear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from nimblevm.errors import NimbleError
from nimblevm.relay import types
from nimblevm.relay.dim_match import is_renamed, renamed
from nimblevm.relay.dims import DimExpr, DimVar
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Leaf,
    Let,
    Match,
    Node,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
    late_array,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.print_scope import is_nullary, is_unit
from nimblevm.relay.text import dim_text, shape_text, type_text
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    Type,
    TypeCall,
    TypeVar,
)

# A path is a linked list, so that it costs one cell a step: (path of the parent, label).
Path = tuple[Any, str] | None
Pair = tuple[str, Any, Any]
_TEXT_LIMIT = 40_000
# So many expressions over variables that occur nowhere else are matched together.
_JOINT_DIMS = 32


class StructuralMismatch(NimbleError, ValueError, AssertionError):
    """assert_structural_equal found a difference; the message has its path and both sides."""


class _Different(Exception):
    """Unwinds to `_Comparison.run`."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


class _Bijection:
    """Pairs of objects of which each has one partner."""

    def __init__(self) -> None:
        self.forward: dict[Any, Any] = {}
        self._backward: dict[Any, Any] = {}

    def add(self, a: Any, b: Any) -> bool:
        """Pair a with b; False if one of them has another partner."""
        if a in self.forward or b in self._backward:
            return self.forward.get(a) is b and self._backward.get(b) is a
        self.forward[a] = b
        self._backward[b] = a
        return True

    def paired(self, a: Any, b: Any) -> bool | None:
        """Whether a and b are partners; None if neither has one."""
        if a not in self.forward and b not in self._backward:
            return None
        return self.forward.get(a) is b and self._backward.get(b) is a


class _Comparison:
    """State of one comparison. `step` takes one pair apart; `run` does so until nothing is left."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.vars = _Bijection()
        self.type_vars = _Bijection()
        self.nodes = _Bijection()
        self.dims = _Bijection()
        self.done: set[tuple[Expr, Expr]] = set()
        self.done_types: set[tuple[Type, Type]] = set()
        self.deferred: list[tuple[DimExpr, DimExpr, Path]] = []

    def run(self, a: Any, b: Any, path: Path = None) -> None:
        """Raise _Different at the first difference. Dims are renamed consistently within one run."""
        self.dims, self.deferred, self.done_types = _Bijection(), [], set()
        stack: list[tuple[Any, Any, Path]] = [(a, b, path)]
        while stack:
            left, right, where = stack.pop()
            try:
                pairs = self.step(left, right, where)
            except _Different as difference:
                difference.path = where if difference.path is None else difference.path
                raise
            for label, x, y in reversed(pairs):
                stack.append((x, y, (where, label)))
        self._deferred_dims()

    def step(self, a: Any, b: Any, path: Path) -> list[Pair]:
        """The pairs of parts that must be equal, in order; raises _Different if a and b already differ."""
        if isinstance(a, Type) and isinstance(b, Type):
            return self._types(a, b)
        if isinstance(a, DimExpr) and isinstance(b, DimExpr):
            self._dims(a, b, path)
            return []
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return self._mappings(a, b)
        if type(a) is not type(b):
            raise _Different(f"{_kind(a)} against {_kind(b)}", path)
        if isinstance(a, Leaf):
            return self._leaves(a, b)
        if isinstance(a, Expr):
            return self._expressions(a, b)
        if isinstance(a, Node):
            return self._others(a, b)
        return self._values(a, b)

    def _require(self, condition: bool, reason: str) -> None:
        if not condition:
            raise _Different(reason, None)

    # --- expressions --------------------------------------------------------------------------------

    def _leaves(self, a: Any, b: Any) -> list[Pair]:
        match a:
            case Var():
                known = self.vars.paired(a, b)
                if known is None:
                    known = a is b or (self.map_free_vars and self.vars.add(a, b))
                    self._require(known, f"free variables %{a.name_hint} and %{b.name_hint}")
                    return [("type_annotation", _hole(a.type_annotation), _hole(b.type_annotation))]
                self._require(known, f"different variables %{a.name_hint} and %{b.name_hint}")
            case Constant(data=data):
                other, late = b.data, late_array(a)
                if late is not None or late_array(b) is not None:
                    self._require(late == late_array(b), "different weights that are bound late")
                    return []
                self._require(
                    data.dtype == other.dtype and data.shape == other.shape,
                    f"{data.dtype.name}{list(data.shape)} against {other.dtype.name}{list(other.shape)}",
                )
                self._require(data.tobytes() == other.tobytes(), "constants of different values")
            case GlobalVar(name_hint=name):
                self._require(name == b.name_hint, f"@{name} against @{b.name_hint}")
            case Op(name=name):
                self._require(a is b, f"operator {name} against {b.name}")
            case Constructor(name_hint=name, belong_to=owner, tag=tag):
                same = (name, owner, tag) == (b.name_hint, b.belong_to, b.tag)
                self._require(same, f"constructor {name} against {b.name_hint}")
            case _:
                self._require(a is b, f"different {type(a).__name__}")
        return []

    def _expressions(self, a: Expr, b: Any) -> list[Pair]:
        if (a, b) in self.done:
            return []
        self.done.add((a, b))
        by_value = isinstance(a, TupleGetItem) or is_unit(a) or is_nullary(a)
        if not by_value:
            self._require(self.nodes.add(a, b), "shared on one side only")
        match a:
            case Call(op=op, args=args):
                return [
                    ("op", op, b.op),
                    ("args", args, b.args),
                    ("attrs", attrs_of(a), attrs_of(b)),
                ]
            case Let(var=var, value=value, body=body):
                return [
                    *self._bind("var", var, b.var),
                    ("value", value, b.value),
                    ("body", body, b.body),
                ]
            case Function():
                return self._functions(a, b)
            case If(cond=cond, true_branch=true, false_branch=false):
                branches = [
                    ("true_branch", true, b.true_branch),
                    ("false_branch", false, b.false_branch),
                ]
                return [("cond", cond, b.cond), *branches]
            case Tuple(fields=fields):
                return [("fields", fields, b.fields)]
            case TupleGetItem(tuple_value=value, index=index):
                self._require(index == b.index, f"index {index} against {b.index}")
                return [("tuple_value", value, b.tuple_value)]
            case Match(data=data, clauses=clauses, complete=complete):
                self._require(complete == b.complete, "match against match?")
                return [("data", data, b.data), ("clauses", clauses, b.clauses)]
            case RefCreate(value=value):
                return [("value", value, b.value)]
            case RefRead(ref=ref):
                return [("ref", ref, b.ref)]
            case RefWrite(ref=ref, value=value):
                return [("ref", ref, b.ref), ("value", value, b.value)]
        raise TypeError(f"unknown expression {type(a).__name__}")

    def _functions(self, a: Function, b: Function) -> list[Pair]:
        self._bind_type_vars(a.type_params, b.type_params)
        self._require(
            len(a.params) == len(b.params), f"{len(a.params)} parameters against {len(b.params)}"
        )
        pairs: list[Pair] = []
        for index, (x, y) in enumerate(zip(a.params, b.params, strict=True)):
            pairs.extend(self._bind(f"params[{index}]", x, y))
        pairs.append(("ret_type", _hole(a.ret_type), _hole(b.ret_type)))
        return [*pairs, ("attrs", a.attrs, b.attrs), ("body", a.body, b.body)]

    def _bind(self, label: str, a: Var, b: Var) -> list[Pair]:
        self._require(
            self.vars.add(a, b), f"%{a.name_hint} and %{b.name_hint} are bound differently"
        )
        return [(f"{label}.type_annotation", _hole(a.type_annotation), _hole(b.type_annotation))]

    def _others(self, a: Node, b: Any) -> list[Pair]:
        match a:
            case Clause(lhs=lhs, rhs=rhs):
                return [("lhs", lhs, b.lhs), ("rhs", rhs, b.rhs)]
            case PatternWildcard():
                return []
            case PatternVar(var=var):
                return self._bind("var", var, b.var)
            case PatternConstructor(constructor=constructor, patterns=parts):
                return [
                    ("constructor", constructor, b.constructor),
                    ("patterns", parts, b.patterns),
                ]
            case PatternTuple(patterns=parts):
                return [("patterns", parts, b.patterns)]
            case TypeData(header=header, type_vars=params, constructors=constructors):
                self._require(
                    header is b.header, f"type {header.name_hint} against {b.header.name_hint}"
                )
                self._bind_type_vars(params, b.type_vars)
                inputs, others = (
                    [c.inputs for c in constructors],
                    [c.inputs for c in b.constructors],
                )
                return [("constructors", constructors, b.constructors), ("inputs", inputs, others)]
        raise TypeError(f"unknown node {type(a).__name__}")

    # --- attributes and other values ------------------------------------------------------------------

    def _mappings(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Pair]:
        differing = sorted(a.keys() ^ b.keys())
        self._require(not differing, f"only one side has {', '.join(differing)}")
        return [(key, a[key], b[key]) for key in a]

    def _values(self, a: Any, b: Any) -> list[Pair]:
        if isinstance(a, tuple | list):
            self._require(len(a) == len(b), f"{len(a)} items against {len(b)}")
            return [(f"[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
        if dataclasses.is_dataclass(a):
            return [(f.name, getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)]
        if isinstance(a, np.ndarray):
            return [("data", Constant(a), Constant(b))]
        # By text: a NaN equals itself and -0.0 is not 0.0, as with constants.
        self._require(
            (bool(a == b) and not isinstance(a, float)) or repr(a) == repr(b),
            f"{a!r} against {b!r}",
        )
        return []

    # --- types and dims -------------------------------------------------------------------------------

    def _types(self, a: Type, b: Type) -> list[Pair]:
        if (a is b and not a.flags) or (a, b) in self.done_types:
            return []
        self.done_types.add((a, b))
        if not self._heads_agree(a, b):
            raise _Different(f"{type_text(a)} against {type_text(b)}", None)
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return [("shape", a.shape, b.shape)]
        pairs = zip(types.parts(a), types.parts(b), strict=True)
        return [(f"type[{i}]", x, y) for i, (x, y) in enumerate(pairs)]

    def _heads_agree(self, a: Type, b: Type) -> bool:
        """Whether two types agree in all but their parts."""
        match a, b:
            case TensorType(), TensorType():
                return a.dtype == b.dtype and len(a.shape) == len(b.shape)
            case TypeVar(), TypeVar():
                known = self.type_vars.paired(a, b)
                return a is b if known is None else known
            case FuncType(), FuncType():
                self._bind_type_vars(a.type_params, b.type_params)
            case TypeCall(), TypeCall() if a.func is not b.func:
                return False
            case GlobalTypeVar(), GlobalTypeVar():
                return a is b
        return type(a) is type(b) and len(types.parts(a)) == len(types.parts(b))

    def _bind_type_vars(self, a: tuple[TypeVar, ...], b: tuple[TypeVar, ...]) -> None:
        self._require(len(a) == len(b), f"{len(a)} type parameters against {len(b)}")
        for x, y in zip(a, b, strict=True):
            self._require(
                self.type_vars.add(x, y), f"type variables {x.name_hint} and {y.name_hint}"
            )

    def _dims(self, a: DimExpr, b: DimExpr, path: Path) -> None:
        if isinstance(a, DimVar) and isinstance(b, DimVar):
            self._require(self.dims.add(a, b), f"dim {dim_text(a)} against {dim_text(b)}")
            return
        self._require(type(a) is type(b), f"dim {dim_text(a)} against {dim_text(b)}")
        # The order of arguments depends on the variables, so wait until their partners are known.
        self.deferred.append((a, b, path))

    def _deferred_dims(self) -> None:
        """Compare expressions of dims: those of known variables by substitution, the others by search."""
        unknown: list[tuple[DimExpr, DimExpr, Path]] = []
        for a, b, path in self.deferred:
            fits = is_renamed(a, b, self.dims.forward)
            if fits is None:
                unknown.append((a, b, path))
            elif not fits:
                raise _Different(f"dim {dim_text(a)} against {dim_text(b)}", path)
        for start in range(0, len(unknown), _JOINT_DIMS):
            left, right, paths = zip(*unknown[start : start + _JOINT_DIMS], strict=True)
            renaming = renamed(left, right, self.dims.forward)
            if renaming is None or not all(self.dims.add(x, y) for x, y in renaming.items()):
                raise _Different(f"dims {shape_text(left)} against {shape_text(right)}", paths[0])


def attrs_of(call: Call) -> Any:
    """The attributes of a call; those of an operator that were left out are the defaults."""
    if call.attrs is not None or not isinstance(call.op, Op) or call.op.attrs is None:
        return call.attrs
    missing = dataclasses.MISSING
    if any(
        f.default is missing and f.default_factory is missing
        for f in dataclasses.fields(call.op.attrs)
    ):
        return None
    return call.op.attrs()


def _hole(type_: Type | None) -> Type:
    """A missing annotation and a written `_` mean the same."""
    return _HOLE if type_ is None else type_


_HOLE = IncompleteType()


def _kind(value: Any) -> str:
    if isinstance(value, Type):
        return type_text(value)
    return (
        repr(value)
        if isinstance(value, int | float | str | None | DimExpr)
        else type(value).__name__
    )


def _compare(a: Any, b: Any, map_free_vars: bool) -> None:
    comparison = _Comparison(map_free_vars)
    if not (isinstance(a, IRModule) and isinstance(b, IRModule)):
        comparison.run(a, b)
        return
    for kind, left, right in (
        ("type ", _by_name(a.type_definitions), _by_name(b.type_definitions)),
        ("function @", _by_name(a.functions), _by_name(b.functions)),
    ):
        for name in sorted(left.keys() ^ right.keys()):
            raise _Different(
                f"only the {'left' if name in left else 'right'} module has {kind}{name}", None
            )
        for name in sorted(left):
            comparison.run(left[name], right[name], (None, f"{kind}{name}"))


def _by_name(table: Mapping[Any, Any]) -> dict[str, Any]:
    return {key.name_hint: value for key, value in table.items()}


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Whether two expressions, modules, types, patterns or type definitions are the same up to renaming.

    `map_free_vars`: variables that neither side binds may be renamed too; otherwise they must be the same objects.
    Dims may always be renamed.
    """
    try:
        _compare(a, b, map_free_vars)
    except _Different:
        return False
    return True


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise StructuralMismatch with the path of the first difference, unless structurally equal."""
    try:
        _compare(a, b, map_free_vars)
    except _Different as difference:
        where = _path_text(difference.path)
        raise StructuralMismatch(
            f"not structurally equal at {where}: {difference.reason}\n--- left\n{_clip(a)}\n--- right\n{_clip(b)}"
        ) from None


def _path_text(path: Path) -> str:
    labels: list[str] = []
    while path is not None:
        path, label = path
        labels.append(label if label.startswith("[") else f".{label}")
    if len(labels) > 40:
        labels[20:-20] = [" ... "]
    return "".join(reversed(labels)).removeprefix(".") or "the root"


def _clip(value: Any) -> str:
    text = type_text(value) if isinstance(value, Type) else str(value)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}\n..."


__all__ = ["Pattern", "StructuralMismatch", "assert_structural_equal", "structural_equal"]
