"""Attributes from Relay text: values, an operator's attribute class, references into the metadata."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from nimblevm import dtypes
from nimblevm.relay import metadata
from nimblevm.relay.dims import DimExpr
from nimblevm.relay.ir import Constant
from nimblevm.relay.lexer import Number, Token, number
from nimblevm.relay.op.registry import Op
from nimblevm.relay.parse_cursor import Rule, did_you_mean
from nimblevm.relay.parse_types import DIM_FUNCTIONS, TypeParser
from nimblevm.relay.source import SourceText
from nimblevm.relay.types import Type


@functools.cache
def _hints(attrs_class: type) -> dict[str, Any]:
    """Field name -> type hint of an attribute class."""
    return typing.get_type_hints(attrs_class)


def _mentions(hint: Any, wanted: type) -> bool:
    """Whether a hint is `wanted` or has it somewhere inside (`tuple[Dim, ...]`, `Type | None`)."""
    stack = [hint]
    while stack:
        part = stack.pop()
        if (
            isinstance(part, type)
            and not isinstance(part, types.GenericAlias)
            and issubclass(part, wanted)
        ):
            return True
        stack.extend(typing.get_args(part))
    return False


class ValueParser(TypeParser):
    """Rules for attribute values; `meta_table` is what `meta[key][index]` refers to."""

    def __init__(self, source: SourceText) -> None:
        super().__init__(source)
        self.meta_table: metadata.MetaTable = {}

    def read_metadata(self, extra: Mapping[str, Sequence[Any]] | None) -> None:
        """Fill the table from the section at the end of the text, if there is one, and from `extra` behind it."""
        token = self.tokens[-2] if len(self.tokens) > 1 else self.token
        if token.kind == "metadata":
            try:
                self.meta_table = metadata.decode(token.text[token.text.index("]") + 1 :])
            except metadata.MetadataError as error:
                self.fail(str(error), token._replace(text="#[metadata]"))
        for key, values in (extra or {}).items():
            self.meta_table.setdefault(key, []).extend(values)

    def meta_reference(self) -> Any:
        """meta[type.key][index]; the current token is `meta`."""
        start = self.advance()
        self.expect("[", "behind meta")
        key = self.expect("name", "as the type key of a metadata reference").text
        self.expect("]", "behind the type key")
        self.expect("[", "before the index of a metadata reference")
        token = self.expect("number", "as the index of a metadata reference")
        self.expect("]", "behind the index")
        values = self.meta_table.get(key)
        if values is None:
            known = f"; it has {', '.join(self.meta_table)}" if self.meta_table else ""
            self.fail(f"the metadata has no {key}{known}", start)
        found = number(self.source, token)
        if found.is_float or found.dtype:
            self.fail(
                f"the index of a metadata reference is a whole number, not {token.text}", token
            )
        index = int(found.digits)
        if index >= len(values):
            self.fail(f"the metadata has {len(values)} of {key}, index {index} is beyond", token)
        return values[index]

    def at_attribute(self) -> bool:
        """Whether `name =` starts here (a keyword such as `type` may be an attribute's name)."""
        return (
            self.peek() == "="
            and self.kind[0].isalpha()
            and self.kind not in ("local", "graph", "global")
        )

    def signed_number(self) -> tuple[Token, bool, Number] | None:
        """A number with minus signs before it: first token, whether negative, the number. None: something else."""
        ahead = 0
        while self.peek(ahead) == "-":
            ahead += 1
        if self.peek(ahead) != "number":
            return None
        start = self.token
        self.seek(self.position + ahead)
        return start, ahead % 2 == 1, number(self.source, self.advance())

    # --- values -----------------------------------------------------------------------------------

    def attribute_rule(self, hints: Mapping[str, Any]) -> Rule[tuple[Token, Any]]:
        """name = value; the hint of the name decides where text alone can't: types and dims."""
        name = self.advance()
        self.expect("=")
        hint = hints.get(name.text)
        if _mentions(hint, Type) and not (self.kind == "name" and self.token.text == "None"):
            return name, (yield self.type_rule())
        with_dims = _mentions(hint, DimExpr)
        if with_dims and self.kind == "(" and typing.get_origin(hint) is not tuple:
            return name, (yield self.dim_rule())  # (?n + 1) * 2
        value = yield self.value_rule(with_dims)
        if type(value) is int and _mentions(hint, float) and not _mentions(hint, int):
            value = float(value)
        return name, value

    def value_rule(self, with_dims: bool = False) -> Rule[Any]:
        """value := number | True | False | string | None | [values] | (value) | dim | meta reference"""
        token = self.token
        match self.kind:
            case "True" | "False":
                return self.advance().kind == "True"
            case "string":
                return self.advance().text[1:-1]
            case "[" | "(":
                return (yield self._sequence(with_dims))
            case "name" if token.text in ("None", "nullptr"):
                self.advance()
                return None
            case "name" if token.text == "meta":
                value = self.meta_reference()
                return (
                    value.data.item()
                    if isinstance(value, Constant) and not value.data.shape
                    else value
                )
            case "name" if token.text in dtypes.BY_NAME or token.text in dtypes.SHORT:
                return self.advance().text
            case "dim":
                return (yield self.dim_rule())
            case "name" if token.text in DIM_FUNCTIONS:
                return (yield self.dim_rule())
        if with_dims:
            return (yield self.dim_rule())
        found = self.signed_number()
        if found is None:
            self.fail_expected(
                "an attribute's value (a number, True, False, a string, None, a list)"
            )
        _, negative, parts = found
        value = float(parts.digits) if parts.is_float else int(parts.digits)
        return -value if negative else value

    def _sequence(self, with_dims: bool) -> Rule[Any]:
        opening = self.advance().kind
        close = "]" if opening == "[" else ")"
        values = yield self.items(close, lambda: self.value_rule(with_dims), "in a list")
        bare = opening == "(" and len(values) == 1 and self.tokens[self.position - 2].kind != ","
        return values[0] if bare else tuple(values)

    # --- an operator's attributes -----------------------------------------------------------------

    def attributes_rule(
        self, close: str, attrs_class: type | None
    ) -> Rule[dict[str, tuple[Token, Any]]]:
        """Attributes separated by commas up to (not with) the closing bracket."""
        hints = _hints(attrs_class) if attrs_class is not None else {}
        found: dict[str, tuple[Token, Any]] = {}
        while self.kind != close:
            if not self.at_attribute():
                self.fail_expected("an attribute (name=value); arguments come before attributes")
            name, value = yield self.attribute_rule(hints)
            if name.text in found:
                self.fail(f"the attribute {name.text} occurs twice", name)
            found[name.text] = (name, value)
            if not self.accept(",") and self.kind != close:
                self.fail_expected(f"',' or '{close}'", "behind an attribute")
        return found

    def build_attrs(self, op: Op, given: Mapping[str, tuple[Token, Any]], start: Token) -> Any:
        """An instance of the operator's attribute class; located errors for unknown, missing and bad ones."""
        if op.attrs is None:
            for name, _ in given.values():
                self.fail(f"operator {op.name} has no attributes", name)
            return None
        known = [entry.name for entry in dataclasses.fields(op.attrs)]
        for name, _ in given.values():
            if name.text not in known:
                hint = did_you_mean(name.text, known) or f"; it has {', '.join(known)}"
                self.fail(f"operator {op.name} has no attribute {name.text}{hint}", name)
        for entry in dataclasses.fields(op.attrs):
            required = (
                entry.default is dataclasses.MISSING
                and entry.default_factory is dataclasses.MISSING
            )
            if required and entry.name not in given:
                self.fail(f"operator {op.name} needs the attribute {entry.name}", start)
        try:
            return op.attrs(**{name: value for name, (_, value) in given.items()})
        except (TypeError, ValueError) as error:
            self.fail(f"operator {op.name}: {error}", start)
