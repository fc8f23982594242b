"""Relay text -> IR: modules, single expressions, single types.

The grammar is TVM 0.18's with dim expressions, `ref(T)` types, generic function types, blocks and
`match` wherever an expression may stand, and repeated projections. Nothing here infers types: relay.parse does.
lexer.py makes tokens; parse_cursor.py has the trampoline; parse_types, parse_values and parse_exprs the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nimblevm.relay.gc_pause import gc_paused
from nimblevm.relay.ir import Constructor, Expr, Function, TypeData
from nimblevm.relay.metadata import MetaNode
from nimblevm.relay.module import IRModule
from nimblevm.relay.parse_cursor import Rule, where_defined
from nimblevm.relay.parse_exprs import ExprParser
from nimblevm.relay.source import SourceText
from nimblevm.relay.types import GlobalTypeVar, Type

MetaInput = Mapping[str, Sequence[Any]]


class SemVer:
    """The version in the header of a text, as TVM's parser has it."""

    def __init__(self, major: int, minor: int, patch: int) -> None:
        self.major, self.minor, self.patch = major, minor, patch

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


LANGUAGE_VERSION = SemVer(0, 0, 5)


class ModuleParser(ExprParser):
    """Rules for definitions, over what an existing module has."""

    def __init__(self, source: SourceText, init_module: IRModule | None = None) -> None:
        super().__init__(source)
        self.module = IRModule() if init_module is None else init_module.shallow_copy()
        self.globals = {var.name_hint: var for var in self.module.get_global_vars()}
        self.type_names = {header.name_hint for header in self.module.type_definitions}
        for definition in self.module.type_definitions.values():
            self._add_constructors(definition)

    def parse_module(self, meta_table: MetaInput | None) -> IRModule:
        if self.kind != "version":
            self.fail('expected the header #[version = "0.0.5"] at the start of a module')
        self.advance()
        self.read_metadata(meta_table)
        starts = self._definition_starts()
        # Types first: a function may use a type that stands below it.
        for position in starts:
            self.seek(position)
            if self.kind != "def":
                self._type_definition()
        for position in starts:
            self.seek(position)
            if self.kind == "def":
                self._function_definition()
        self._check_mentions()
        return self.module

    def parse_expr(self, meta_table: MetaInput | None) -> Expr:
        self.accept("version")
        self.read_metadata(meta_table)
        expr: Expr = self.run(self.expr_rule())
        if self.kind != "metadata":
            self.expect("end", "behind the expression")
        return expr

    def parse_type(self) -> Type:
        found: Type = self.run(self.type_rule())
        self.expect("end", "behind the type")
        return found

    # --- definitions ----------------------------------------------------------------------------------

    def _definition_starts(self) -> list[int]:
        """Token positions at which definitions start: keywords outside all brackets."""
        starts: list[int] = []
        depth, expecting = 0, True
        for position in range(self.position, len(self.tokens)):
            kind = self.tokens[position].kind
            if depth == 0 and kind in ("def", "type", "extern"):
                if not (kind == "type" and starts and position == starts[-1] + 1):  # extern type
                    starts.append(position)
                expecting = False
            elif kind in ("{", "(", "["):
                depth += 1
            elif kind in ("}", ")", "]"):
                depth -= 1
            if kind in ("end", "metadata"):
                break
            if expecting:
                self.seek(position)
                self.fail_expected("a definition (def, type or extern type)")
        return starts

    def _end_of_definition(self) -> None:
        if self.kind not in ("def", "type", "extern", "end", "metadata"):
            self.fail_expected("a definition (def, type or extern type)")

    def _function_definition(self) -> None:
        start = self.advance()
        name = self.expect("global", "behind def")
        if name.text[1:] in self.module:
            self.fail(f"the function {name.text} is defined twice", name)
        self.dim_vars = {}
        var = self.global_var(name)
        function: Function = self.run(self.function_rule(start))
        self._end_of_definition()
        self.module[var] = function

    def _type_definition(self) -> None:
        start = self.token
        external = self.accept("extern")
        self.expect("type", "behind extern")
        name = self.expect("name", "as the name of a type")
        if name.text in self.type_names:
            self.fail(f"the type {name.text} is defined twice", name)
        self.type_names.add(name.text)
        self.dim_vars = None
        mark = self.type_vars.mark()
        params = self.type_params()
        header = GlobalTypeVar(name.text)
        constructors: list[Constructor] = []
        if not external and self.accept("{"):
            while not self.accept("}"):
                constructors.append(self.run(self._constructor(header, len(constructors))))
                if not self.accept(",") and self.kind != "}":
                    self.fail_expected("',' or '}'", "behind a constructor")
        self.type_vars.leave(mark)
        self._end_of_definition()
        definition = TypeData(header, params, tuple(constructors), span=self.span_from(start))
        self.module.add_type(definition)
        self._add_constructors(definition)

    def _constructor(self, header: GlobalTypeVar, tag: int) -> Rule[Constructor]:
        name = self.expect("name", "as the name of a constructor")
        if name.text in self.constructors:
            other = self.constructors[name.text].belong_to.name_hint
            self.fail(f"the constructor {name.text} already belongs to the type {other}", name)
        inputs: list[Type] = []
        if self.accept("("):
            inputs = yield self.items(")", self.type_rule, "in the fields of a constructor")
        made = Constructor(name.text, tuple(inputs), header, tag, span=self.span_from(name))
        self.constructors[name.text] = made
        return made

    def _add_constructors(self, definition: TypeData) -> None:
        self.constructors.update({c.name_hint: c for c in definition.constructors})

    def _check_mentions(self) -> None:
        """Functions and types that are used must be defined, here or in the initial module."""
        for name, token in self.global_mentions.items():
            if name not in self.module:
                known = [f"@{var.name_hint}" for var in self.module]
                self.fail(f"undefined function @{name}{where_defined(f'@{name}', known)}", token)
        for name, token in self.type_mentions.items():
            if name not in self.type_names:
                known = [*self.type_names, "Tensor"]
                hint = "; write ref(type)" if name == "Ref" else where_defined(name, known)
                self.fail(f"undefined type {name}{hint}", token)


def parse_module(
    text: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: MetaInput | None = None,
) -> IRModule:
    """The module of a text, without inference; RelaySyntaxError for anything that does not follow the grammar.

    The result has the functions and types of `init_module` too (which is not changed); `init_meta_table` appends
    objects to the metadata of the text: type key -> objects.
    """
    with gc_paused():
        return ModuleParser(SourceText(source_name, text), init_module).parse_module(
            init_meta_table
        )


def parse_expr(
    text: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: MetaInput | None = None,
) -> Expr:
    """One expression, without inference; the version header is optional. Globals and types may be undefined."""
    with gc_paused():
        return ModuleParser(SourceText(source_name, text), init_module).parse_expr(init_meta_table)


def parse_type(text: str, source_name: str = "from_string") -> Type:
    """One type, as it stands in Relay text; names are taken as those of ADTs."""
    return ModuleParser(SourceText(source_name, text)).parse_type()


__all__ = ["LANGUAGE_VERSION", "MetaNode", "SemVer", "parse_expr", "parse_module", "parse_type"]
