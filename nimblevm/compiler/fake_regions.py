"""What qnn.quantize reads down to qnn.dequantize, and its integer form.

A region is made of operators, tuples and constants; one with anything else, such as a variable, a branch or a call of a
function between, is none. What its operators read that is no float (indices, conditions) is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar as PyTypeVar

from nimblevm.compiler.affine import (
    AffineType,
    Form,
    Known,
    Other,
    Refused,
    Site,
    affine_type,
    dequantized_form,
    quantized,
)
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.integer_rules import Rule
from nimblevm.compiler.rewrite import type_of
from nimblevm.errors import RelayTypeError
from nimblevm.relay.ir import Call, Expr, Tuple, TupleGetItem, is_known
from nimblevm.relay.op.registry import Op
from nimblevm.relay.type_errors import name_of, place
from nimblevm.relay.types import TensorType, TupleType

T = PyTypeVar("T")
REALS = ("float16", "float32")


def holds_reals(expr: Expr) -> bool:
    type_ = type_of(expr)
    return isinstance(type_, TupleType) or (isinstance(type_, TensorType) and type_.dtype in REALS)


def _parts(node: Expr) -> list[Expr] | None:
    """What a node of a region reads of it; None for a node that no region has."""
    if is_op(node, "qnn.dequantize") or is_known(node):
        return []
    if isinstance(node, Call) and isinstance(node.op, Op):
        return [arg for arg in node.args if holds_reals(arg)]
    if isinstance(node, Tuple):
        return list(node.fields)
    return [node.tuple_value] if isinstance(node, TupleGetItem) else None


def region_of(close: Call) -> list[Expr] | None:
    """The nodes that a qnn.quantize reads, operands first; None if they are no region."""
    order: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(close.args[0], False)]
    while stack:
        node, done = stack.pop()
        if done or node in order:
            order.setdefault(node)
            continue
        parts = _parts(node)
        if parts is None:
            return None
        stack.append((node, True))
        stack.extend((part, False) for part in reversed(parts))
    found = list(order)
    return found if any(is_op(node, "qnn.dequantize") for node in found) else None


class Integers:
    """Forms of nodes. They are made once for a node and the type that is wanted of it."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.forms: dict[tuple[Expr, AffineType | None], Form] = {}

    def close(self, call: Call, region: Sequence[Expr]) -> Expr:
        """The integers that a qnn.quantize gives. Refused if there are none."""
        data, scale, zero_point = call.args
        attrs = call.attrs
        site = Site(call, (), None)
        to = _located(
            call,
            lambda: affine_type(
                site, scale, zero_point, attrs.out_dtype, attrs.axis, len(site.shape)
            ),
        )
        wanted = self._wanted(data, region, to if to.is_scalar else None)
        made: dict[Expr, Form] = {}
        for node in region:
            key = (node, wanted[node] if self._depends(node) else None)
            if key not in self.forms:
                self.forms[key] = self._form(node, made, key[1])
            made[node] = self.forms[key]
        return _located(call, lambda: site.moved(quantized(made[data]), to)).value

    def _wanted(
        self, root: Expr, region: Sequence[Expr], to: AffineType | None
    ) -> dict[Expr, AffineType | None]:
        """The type that all readers of a node want it in."""
        wanted: dict[Expr, AffineType | None] = {root: to}
        for node in reversed(region):
            passed = wanted[node] if self._passes(node) else None
            for part in _parts(node) or ():
                both = wanted.get(part, passed)
                wanted[part] = passed if both is passed else None
        return wanted

    def _passes(self, node: Expr) -> bool:
        rule = self._rule(node)
        return rule is None or rule.passes

    def _depends(self, node: Expr) -> bool:
        rule = self._rule(node)
        return rule is None or rule.passes or rule.asks

    def _rule(self, node: Expr) -> Rule | None:
        op = node.op if isinstance(node, Call) else None
        return self.rules.get(op.name) if isinstance(op, Op) else None

    def _form(self, node: Expr, made: Mapping[Expr, Form], wanted: AffineType | None) -> Form:
        if isinstance(node, Tuple):
            return tuple([made[field] for field in node.fields])
        if isinstance(node, TupleGetItem):
            fields = made[node.tuple_value]
            assert isinstance(fields, tuple)
            return fields[node.index]
        if is_known(node):
            return Known(node) if holds_reals(node) else Other(node)
        assert isinstance(node, Call)
        if is_op(node, "qnn.dequantize"):
            return _located(node, lambda: dequantized_form(node))
        forms = [made[arg] if arg in made else Other(arg) for arg in node.args]
        return self.apply(node, forms, wanted)

    def apply(self, call: Call, forms: Sequence[Form], wanted: AffineType | None) -> Form:
        """The form of a call. Refused, with its place, if it has none."""
        rule = self._rule(call)
        if rule is None:
            raise Refused(_message(call, "there is no rule for it"))
        return _located(call, lambda: rule.form(Site(call, forms, wanted)))


def _located(call: Call, make: Callable[[], T]) -> T:
    """make(), whose refusal names the call."""
    try:
        return make()
    except (Refused, RelayTypeError) as error:
        raise Refused(_message(call, str(error))) from None


def _message(call: Call, reason: str) -> str:
    return f"{place(call.span)}{name_of(call.op)} has no integer form here: {reason}"


__all__ = ["Integers", "holds_reals", "region_of"]
