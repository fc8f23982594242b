"""annotation.stop_fusion(data), annotation.checkpoint(data): marks for TVM's fusion and for its gradients.

    out = the operand

data: any shape and dtype; result: the same type. Which operators become one kernel is decided here by what they read
and cost, and there are no gradients that would compute a value anew: a program is compiled as if the marks were not
there. Source: Relay's annotation.stop_fusion and checkpoint.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from typing import Any

from nimblevm.relay.op.common import ALL, Array, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

MARKS = ("annotation.stop_fusion", "annotation.checkpoint")


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    return tensor_of(ctx, arg_types, 0)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    return inputs[0]


for _name in MARKS:
    register(
        Op(
            name=_name,
            args=("data",),
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.ELEMWISE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__ or "",
        )
    )
