"""annotation.compiler_begin(data, compiler), annotation.compiler_end(data, compiler): borders of external code.

    out = the operand

any type; result: the operand's type. Attrs: compiler, the name of an external backend. What stands between the
compiler_ends of a name and the compiler_begins behind them belongs to that backend once PartitionGraph has made a
function of it; a program that is compiled with these marks in it is compiled as if they were not there. Source:
Relay's annotation.compiler_begin and compiler_end.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nimblevm.relay.op.common import ALL, Attrs
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"
MARKS = frozenset({BEGIN, END})
"""The names of both."""


@dataclass(frozen=True, slots=True)
class CompilerAttrs(Attrs):
    """compiler: an external backend."""

    compiler: str


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    if not isinstance(attrs.compiler, str) or not attrs.compiler:
        raise ctx.fail(f"compiler must be the name of an external backend, not {attrs.compiler!r}")
    return arg_types[0]


def _reference(inputs: tuple[Any, ...], attrs: Any, result: Type) -> Any:
    return inputs[0]


for _name in (BEGIN, END):
    register(
        Op(
            name=_name,
            args=("data",),
            attrs=CompilerAttrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__ or "",
        )
    )
