"""IR -> Relay text that parses back to a structurally equal program.

As TVM prints: types, then functions, by name; every call on a line of its own (`%0 = ...;`), shared nodes once;
scalars as literals, other constants in the `#[metadata]` section. Dims: see print_names.py. Importing this module
makes `str(node)` and `node.astext()` work (node.register_text_writer).
"""

from __future__ import annotations

from typing import Any

from nimblevm.errors import Unsupported
from nimblevm.relay import metadata
from nimblevm.relay.gc_pause import gc_paused
from nimblevm.relay.ir import Clause, Expr, Function, Leaf, Node, Pattern, TypeData, free_vars
from nimblevm.relay.lexer import VERSION
from nimblevm.relay.module import IRModule
from nimblevm.relay.node import register_text_writer
from nimblevm.relay.print_expr import ExprPrinter, MetaWriter, render
from nimblevm.relay.print_names import DefinitionNames, global_name
from nimblevm.relay.print_scope import Block
from nimblevm.relay.text import type_text

_HEADER = f'#[version = "{VERSION}"]\n'
_NO_METADATA = "/* The metadata is left out; astext(show_meta_data=True) writes it. */\n"


class Printer:
    """One text with its options; definitions share the metadata table."""

    def __init__(self, show_types: bool = False, tvm: bool = False) -> None:
        self.meta = MetaWriter()
        self.show_types = show_types
        self.tvm = tvm

    def text(self, node: Any) -> str:
        """A module, expression, type definition, pattern or clause, without header and metadata."""
        match node:
            case IRModule():
                return self._module(node)
            case Expr():
                return self._expr(node)
            case TypeData():
                return self._type_data(node)
            case Pattern():
                return self._printer().pattern(node)
            case Clause(lhs=lhs, rhs=rhs):
                printer = self._printer()
                pattern, block = printer.pattern(lhs), Block()
                printer.write(rhs, block)
                return f"{pattern} => {{\n{render(block, 1)}}}"
        raise TypeError(f"{type(node).__name__} has no Relay text")

    def _printer(self) -> ExprPrinter:
        return ExprPrinter(self.meta, self.show_types, self.tvm)

    def _module(self, module: IRModule) -> str:
        types = sorted(module.type_definitions.values(), key=lambda t: t.header.name_hint)
        parts = [self._type_data(definition) for definition in types]
        for var in sorted(module, key=lambda v: v.name_hint):
            parts.append(
                self._definition(f"def @{global_name(var.name_hint)}", module.function(var))
            )
        return "\n".join(parts)

    def _definition(self, start: str, function: Function) -> str:
        """`def @name(...) { ... }`: the function literal with another beginning."""
        printer, block = self._printer(), Block()
        printer.write(function, block)
        return start + render(block).removeprefix("fn ")

    def _expr(self, expr: Expr) -> str:
        printer, block = self._printer(), Block()
        free = free_vars(expr)
        for var in free:
            printer.names.note_type(var.type_annotation)
        block.lines.extend([f"free_var {printer.binder(var)};"] for var in free)
        printer.write(expr, block)
        return render(block).removesuffix("\n")

    def _type_data(self, definition: TypeData) -> str:
        names = DefinitionNames()
        params = ", ".join(names.type_var(v) for v in definition.type_vars)
        head = f"type {definition.header.name_hint}{f'[{params}]' if params else ''}"
        if not definition.constructors:
            return f"extern {head}\n"
        lines = []
        for constructor in definition.constructors:
            fields = ", ".join(type_text(t, names) for t in constructor.inputs)
            lines.append(f"  {constructor.name_hint}{f'({fields})' if fields else ''},\n")
        return f"{head} {{\n{''.join(lines)}}}\n"


def astext(
    node: IRModule | Expr | TypeData,
    show_meta_data: bool = True,
    annotate: Any = None,
    *,
    show_types: bool = False,
    tvm: bool = False,
) -> str:
    """`node` as Relay text with header and metadata section.

    show_types  adds the checked types as comments `/* ty=... */`
    tvm         every dim that is no number becomes `?`, so that TVM's own parser reads the text
    annotate    TVM's parameter: a function from expression to comment; not supported, must be None
    """
    if annotate is not None:
        raise Unsupported(
            "astext(annotate=...) is not supported; show_types=True comments the types"
        )
    printer = Printer(show_types, tvm)
    with gc_paused():
        text = f"{_HEADER}{printer.text(node).rstrip()}\n"
    if not printer.meta.table:
        return text
    if not show_meta_data:
        return text + _NO_METADATA
    return f"{text}\n#[metadata]\n{metadata.encode(printer.meta.table)}\n"


def node_text(node: Node | IRModule) -> str:
    """`node` without header and metadata: what `str` gives."""
    if isinstance(node, Leaf):
        return ExprPrinter(MetaWriter()).leaf(node)
    with gc_paused():
        return Printer().text(node).rstrip("\n")


register_text_writer(node_text, astext)
