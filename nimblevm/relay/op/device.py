"""on_device(body, device), device_copy(data, src_device, dst_device): where a value is computed, where it lives.

    out = the operand

any dtype, any rank; result: the operand's type. Attrs of on_device: device, the name of a backend ("opencl", "cpu");
constrain_body: the operand is computed there; constrain_result: the result lives there. Of device_copy: src_device and
dst_device. A program that is not compiled for that backend keeps the value where it is. Source: Relay's on_device and
device_copy.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from nimblevm.relay.op.common import ALL, Array, Attrs, tensor_of
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import Type

ANNOTATIONS = frozenset({"on_device", "device_copy"})
"""The names of both."""


@dataclass(frozen=True, slots=True)
class OnDeviceAttrs(Attrs):
    """device: a backend. constrain_result, constrain_body: what is to be there."""

    device: str
    constrain_result: bool = False
    constrain_body: bool = True


@dataclass(frozen=True, slots=True)
class DeviceCopyAttrs(Attrs):
    """src_device, dst_device: backends."""

    src_device: str
    dst_device: str


def _relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    for field in fields(attrs):
        value = getattr(attrs, field.name)
        if field.name.startswith("constrain_"):
            # Text may say 0 or 1, as TVM's does.
            if not isinstance(value, int) or value not in (0, 1):
                raise ctx.fail(f"{field.name} must be True or False, not {value!r}")
        elif not isinstance(value, str) or not value:
            raise ctx.fail(
                f'{field.name} must be the name of a backend, such as "cpu", not {value!r}'
            )
    return tensor_of(ctx, arg_types, 0)


def _reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Array:
    return inputs[0]


for _name, _arg, _attrs, _python in (
    ("on_device", "body", OnDeviceAttrs, ("annotation.on_device",)),
    ("device_copy", "data", DeviceCopyAttrs, ("device_copy",)),
):
    register(
        Op(
            name=_name,
            args=(_arg,),
            attrs=_attrs,
            relation=_relation,
            reference=_reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=(ALL,),
            doc=__doc__ or "",
        )
    )
