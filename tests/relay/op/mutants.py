"""Calls made wrong without knowing the operator: attributes of other types and out of range, operands of other shapes.

A mutant may be right by chance. What a relation never may do is raise anything but a located RelayTypeError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from nimblevm.errors import RelayTypeError
from nimblevm.relay import ir
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import Op
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.relay.op.cases import cases
from tests.relay.op.draw import Case

PLACE = ir.Span("wrong.rly", 7, 3)
VALUES: tuple[Any, ...] = ("x", None, -99, 99, (99,), (0, 0), 2**70, ((1, 2), (3, 4)))


def program(op: Op, types: tuple[Type, ...], attrs: Any) -> IRModule:
    params = [ir.Var(f"p{i}", t) for i, t in enumerate(types)]
    return IRModule.from_expr(ir.Function(params, ir.Call(op, params, attrs, span=PLACE)))


def is_refused(op: Op, types: tuple[Type, ...], attrs: Any) -> bool:
    """Whether inference refuses the call, with an error that names its place; every other error is let through."""
    try:
        infer_type(program(op, types, attrs))
    except RelayTypeError as error:
        if str(PLACE) not in str(error):
            raise
        return True
    return False


def largest_case(op: Op, count: int = 12) -> Case:
    """A case whose operands have axes, where there is one."""
    made = list(cases(op.name, op.dtypes[0][-1], count))
    return max(made, key=lambda case: sum(getattr(v, "ndim", 0) for v in case.inputs))


def other_attributes(attrs: Any) -> Iterator[tuple[str, Any]]:
    """(field, attributes with another value in it); values that the class itself refuses are left out."""
    for field in dataclasses.fields(attrs) if attrs is not None else ():
        for value in VALUES:
            try:
                changed = dataclasses.replace(attrs, **{field.name: value})
            except (TypeError, ValueError):
                continue
            yield field.name, changed


def class_refuses(attrs: Any) -> bool:
    """Whether a string for some field is refused where the attributes are made."""
    for field in dataclasses.fields(attrs):
        try:
            dataclasses.replace(attrs, **{field.name: "x"})
        except (TypeError, ValueError):
            return True
    return False


def other_shapes(type_: Type) -> Iterator[Type]:
    """Ranks and sizes changed, one at a time."""
    if isinstance(type_, TupleType):
        yield TupleType(())
        for place, field in enumerate(type_.fields):
            for new in other_shapes(field):
                yield TupleType((*type_.fields[:place], new, *type_.fields[place + 1 :]))
        return
    assert isinstance(type_, TensorType)
    shape, dtype = type_.shape, type_.dtype
    yield TensorType((7, *shape), dtype)
    if shape:
        yield TensorType(shape[1:], dtype)
    for axis, size in enumerate(shape):
        for other in (size + 3, 0, DimVar(None)):
            yield TensorType((*shape[:axis], other, *shape[axis + 1 :]), dtype)


def other_operands(types: tuple[Type, ...]) -> Iterator[tuple[Type, ...]]:
    for place, type_ in enumerate(types):
        for new in other_shapes(type_):
            yield (*types[:place], new, *types[place + 1 :])
