"""Expressions as Relay text: lines of blocks, written children first without recursion."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nimblevm.relay import metadata
from nimblevm.relay.analysis import pattern_text
from nimblevm.relay.dims import DimExpr
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Leaf,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    children,
    late_array,
    pattern_vars,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.print_names import DefinitionNames, OpaqueNames, Unique, global_name, local_name
from nimblevm.relay.print_scope import Block, Placement, is_nullary, is_unit, place
from nimblevm.relay.text import dim_text, type_text
from nimblevm.relay.types import Type
from nimblevm.relay.visitor import post_order

Pieces = list[str | Block]

# Deeper blocks are not indented further, or the text of a deep program would be quadratic in its size.
_DEEPEST_INDENT = 40
_LITERALS = {
    "bool": "", "int8": "i8", "int16": "i16", "int32": "", "int64": "i64",
    "float16": "f16", "float32": "f", "float64": "f64",
}  # fmt: skip


def joined(parts: list[Pieces], separator: str = ", ") -> Pieces:
    out: Pieces = []
    for part in parts:
        if out:
            out.append(separator)
        out.extend(part)
    return out


def render(block: Block, level: int = 0) -> str:
    """The lines of a block as text, each ended by a newline."""
    out: list[str] = []
    stack: list[tuple[str | Block, int]] = [(block, level - 1)]
    outermost = True
    while stack:
        piece, depth = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
            continue
        indent = "  " * min(depth + 1, _DEEPEST_INDENT)
        todo: list[tuple[str | Block, int]] = [] if outermost else [("{\n", 0)]
        for line in piece.lines:
            todo.append((indent, 0))
            todo.extend((part, depth + 1) for part in line)
            todo.append(("\n", 0))
        if not outermost:
            todo.append((f"{indent[:-2] if depth + 1 <= _DEEPEST_INDENT else indent}}}", 0))
        outermost = False
        stack.extend(reversed(todo))
    return "".join(out)


def float_text(value: Any) -> str:
    """The shortest decimal that reads back as the same float, without the suffix."""
    number = float(value)
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    text = str(value)
    if isinstance(value, np.generic) and np.array(float(text)).astype(value.dtype) != value:
        text = repr(number)
    return text.removesuffix(".0").replace(".0e", "e")


class MetaWriter:
    """Objects that the text refers to as meta[key][index]; one table for all definitions of a module."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {}
        self._index: dict[Any, int] = {}

    def reference(self, key: str, value: Any) -> str:
        if value not in self._index:
            values = self.table.setdefault(key, [])
            self._index[value] = len(values)
            values.append(value)
        return f"meta[{key}][{self._index[value]}]"


class ExprPrinter:
    """The printer of one definition. Names and %N start afresh for every definition."""

    def __init__(self, meta: MetaWriter, show_types: bool = False, tvm: bool = False) -> None:
        self.meta = meta
        self.show_types = show_types
        self.names: DefinitionNames = OpaqueNames() if tvm else DefinitionNames()
        self._vars: dict[Var, str] = {}
        self._unique_vars = Unique()
        self._written: dict[Expr, Pieces] = {}
        self._temporaries = 0

    def write(self, root: Expr, block: Block) -> None:
        """Append the lines of `root` to `block`; the last line is its value."""
        self._note_dims(root)
        placement = place(root, block)
        seen: set[Expr] = set()
        stack: list[tuple[str, Expr]] = [("enter", root)]
        while stack:
            step, node = stack.pop()
            if step == "declare":
                self._declare(node)
            elif step == "bind":
                self._write_let(node, placement)
            elif step == "leave":
                self._finish(node, placement)
            elif not isinstance(node, Leaf) and node not in seen:
                seen.add(node)
                stack.extend(reversed(_steps(node)))
        block.lines.append(self.pieces(root))

    def pieces(self, expr: Expr) -> Pieces:
        """How a finished expression stands inside a line."""
        return [self.leaf(expr)] if isinstance(expr, Leaf) else self._written[expr]

    def _note_dims(self, root: Expr) -> None:
        note = self.names.note_type
        for node in post_order(root):
            match node:
                case Let(var=var):
                    note(var.type_annotation)
                case Function(params=params, ret_type=ret, attrs=attrs):
                    self._note_value(tuple(attrs.values()))
                    for param in params:
                        note(param.type_annotation)
                    note(ret)
                case Match(clauses=clauses):
                    for clause in clauses:
                        self._note_pattern(clause.lhs)
                case Call(attrs=attrs) if attrs is not None:
                    self._note_value(tuple(value for _, value in _attr_items(attrs)))
            if self.show_types and not isinstance(node, Leaf):
                note(node.checked_type)

    def _note_pattern(self, pattern: Pattern) -> None:
        stack = [pattern]
        while stack:
            match stack.pop():
                case PatternVar(var=var):
                    self.names.note_type(var.type_annotation)
                case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts):
                    stack.extend(parts)

    def _note_value(self, root: Any) -> None:
        stack = [root]
        while stack:
            match stack.pop():
                case Type() as found:
                    self.names.note_type(found)
                case DimExpr() as dim:
                    self.names.note_dims((dim,))
                case tuple() as values:
                    stack.extend(values)

    # --- lines --------------------------------------------------------------------------------------

    def _declare(self, node: Expr) -> None:
        """Name what `node` binds before what it contains: outer variables keep their names."""
        match node:
            case Let(var=var):
                self.var(var)
            case Function(params=params):
                for param in params:
                    self.var(param)
            case Match(clauses=clauses):
                for clause in clauses:
                    for var in pattern_vars(clause.lhs):
                        self.var(var)

    def _write_let(self, node: Expr, placement: Placement) -> None:
        if isinstance(node, Let):
            line: Pieces = [f"let {self.binder(node.var)} = ", *self.pieces(node.value), ";"]
            placement.inner[node][0].lines.append(line)

    def _finish(self, node: Expr, placement: Placement) -> None:
        if isinstance(node, Let) and node in placement.tail:
            self._written[node] = self.pieces(node.body)
            return
        pieces = self._node(node, placement.inner.get(node, ()))
        if self.show_types and node.checked_type is not None and not is_unit(node):
            pieces.append(f" /* ty={type_text(node.checked_type, self.names)} */")
        if node in placement.inline:
            self._written[node] = pieces
            return
        name = f"%{self._temporaries}"
        self._temporaries += 1
        placement.block[node].lines.append([f"{name} = ", *pieces, ";"])
        self._written[node] = [name]

    def _node(self, node: Expr, blocks: tuple[Block, ...]) -> Pieces:
        match node:
            case Call():
                return self._call(node)
            case Function(body=body):
                blocks[0].lines.append(self.pieces(body))
                return [f"fn {self.signature(node)} ", blocks[0]]
            case Let(body=body):
                blocks[0].lines.append(self.pieces(body))
                return [blocks[0]]
            case If(cond=cond, true_branch=true, false_branch=false):
                blocks[0].lines.append(self.pieces(true))
                blocks[1].lines.append(self.pieces(false))
                return ["if (", *self.pieces(cond), ") ", blocks[0], " else ", blocks[1]]
            case Match():
                return self._match(node, blocks)
            case Tuple(fields=(field,)):
                return ["(", *self.pieces(field), ",)"]
            case Tuple(fields=fields):
                return ["(", *joined([self.pieces(f) for f in fields]), ")"]
            case TupleGetItem(tuple_value=Constant() as value, index=index):
                return ["(", *self.pieces(value), f").{index}"]  # 1.0 would be a number
            case TupleGetItem(tuple_value=value, index=index):
                return [*self.pieces(value), f".{index}"]
            case RefCreate(value=value):
                return ["ref(", *self.pieces(value), ")"]
            case RefRead(ref=ref):
                return ["ref_read(", *self.pieces(ref), ")"]
            case RefWrite(ref=ref, value=value):
                return ["ref_write(", *self.pieces(ref), ", ", *self.pieces(value), ")"]
        raise TypeError(f"unknown expression {type(node).__name__}")

    def _call(self, call: Call) -> Pieces:
        if is_nullary(call):
            return self.pieces(call.op)
        parts = [self.pieces(arg) for arg in call.args]
        parts.extend([f"{name}={self.value(value)}"] for name, value in _attr_items(call.attrs))
        return [*self.pieces(call.op), "(", *joined(parts), ")"]

    def _match(self, node: Match, blocks: tuple[Block, ...]) -> Pieces:
        clauses = Block()
        for clause, block in zip(node.clauses, blocks, strict=True):
            block.lines.append(self.pieces(clause.rhs))
            clauses.lines.append([f"{self.pattern(clause.lhs)} => ", block, ","])
        return [f"match{'' if node.complete else '?'} (", *self.pieces(node.data), ") ", clauses]

    # --- parts of lines -----------------------------------------------------------------------------

    def signature(self, function: Function) -> str:
        """Type parameters, parameters, attributes and result type of a function."""
        generic = ", ".join(self.names.type_var(v) for v in function.type_params)
        parts = [self.binder(param) for param in function.params]
        parts.extend(f"{name}={self.value(value)}" for name, value in function.attrs.items())
        result = (
            f" -> {type_text(function.ret_type, self.names)}"
            if function.ret_type is not None
            else ""
        )
        return f"{f'[{generic}]' if generic else ''}({', '.join(parts)}){result}"

    def binder(self, var: Var) -> str:
        """A variable where it is bound, with its annotation."""
        annotation = var.type_annotation
        return (
            self.var(var)
            if annotation is None
            else f"{self.var(var)}: {type_text(annotation, self.names)}"
        )

    def var(self, var: Var) -> str:
        if var not in self._vars:
            self._vars[var] = f"%{self._unique_vars.take(local_name(var.name_hint))}"
        return self._vars[var]

    def pattern(self, root: Pattern) -> str:
        return pattern_text(root, self.binder)

    def leaf(self, expr: Leaf) -> str:
        match expr:
            case Var():
                return self.var(expr)
            case GlobalVar(name_hint=name):
                return f"@{global_name(name)}"
            case Constant():
                return self.constant(expr)
            case Op(name=name) | Constructor(name_hint=name):
                return name
        raise TypeError(f"unknown expression {type(expr).__name__}")

    def constant(self, constant: Constant) -> str:
        """A literal for a scalar that has one, else a reference into the metadata."""
        late = late_array(constant)
        if late is not None:  # for people: this text can't be read back
            return f"late({late.name})"
        array = constant.data
        suffix = _LITERALS.get(array.dtype.name)
        if array.shape or suffix is None or array != array:
            return self.meta.reference(metadata.CONSTANT, constant)
        if array.dtype.kind == "f":
            return f"{float_text(array[()])}{suffix}"
        return f"{array.item()}{suffix}"

    def value(self, value: Any) -> str:
        """An attribute's value."""
        match value:
            case bool() | None:
                return str(value)
            case int() | np.integer():
                return str(int(value))
            case float() | np.floating():
                return f"{float_text(float(value))}f"
            case str() if '"' in value or "\n" in value or "\r" in value:
                return self.meta.reference(metadata.STRING, value)
            case str():
                return f'"{value}"'
            case tuple() | list():
                return f"[{', '.join(self.value(v) for v in value)}]"
            case Type():
                return type_text(value, self.names)
            case DimExpr():
                return dim_text(value, self.names)
            case Constant():
                return self.constant(value)
        raise TypeError(f"an attribute of type {type(value).__name__} has no Relay text: {value!r}")


def _steps(node: Expr) -> list[tuple[str, Expr]]:
    """What to do for a node, in order: its names, its children, a let's line between value and body, itself."""
    if isinstance(node, Let):
        value, body = ("enter", node.value), ("enter", node.body)
        return [("declare", node), value, ("bind", node), body, ("leave", node)]
    return [("declare", node), *(("enter", child) for child in children(node)), ("leave", node)]


def _attr_items(attrs: Any) -> list[tuple[str, Any]]:
    """Names and values of attributes that differ from their defaults."""
    if attrs is None:
        return []
    if isinstance(attrs, Mapping):
        return list(attrs.items())
    found: list[tuple[str, Any]] = []
    for entry in dataclasses.fields(attrs):
        value = getattr(attrs, entry.name)
        default = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        if type(value) is not type(default) or value != default:
            found.append((entry.name, value))
    return found
