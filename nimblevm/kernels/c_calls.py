"""Which C kernel computes a fused function, and in which shapes it wants the operands."""

from __future__ import annotations

from nimblevm import dtypes
from nimblevm.kernels.c_kernels import BY_VARIANT
from nimblevm.kernels.c_rules import CCall, find_c_rule
from nimblevm.kernels.compute.common import reduced_axes
from nimblevm.relay.ir import Call, Function
from nimblevm.relay.op.common import product
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType


def c_calls(fn: Function) -> tuple[CCall, ...]:
    """The C kernels for a fused function that is one operator on its own parameters."""
    call = fn.body
    if not (isinstance(call, Call) and isinstance(call.op, Op) and call.args == fn.params):
        return ()
    rule = find_c_rule(call.op.name)
    if rule is not None:
        found = rule(call)
        return () if found is None else (found,)
    if call.op.name not in ("argmax", "argmin"):
        return ()
    data = fn.params[0].checked_type
    if not isinstance(data, TensorType) or f"{call.op.name}_{data.dtype}" not in BY_VARIANT:
        return ()
    if not data.shape:
        return ()  # A scalar may be passed in an int register, which no view can reshape.
    if call.attrs.select_last_index and dtypes.dtype(data.dtype).is_float:
        return ()  # The C kernel takes the first NaN, the operator then takes the last.
    axes = reduced_axes(call.attrs, len(data.shape))
    first, end = (axes[0], axes[-1] + 1) if axes else (0, 0)
    if axes != tuple(range(first, end)):
        return ()
    outer, inner = product(data.shape[:first]), product(data.shape[end:])
    axis = product(data.shape[first:end])
    return (
        CCall(
            f"{call.op.name}_{data.dtype}",
            (outer, axis, inner),
            (int(call.attrs.select_last_index),),
            ((outer, axis, inner), (outer, inner)),
        ),
    )


__all__ = ["CCall", "c_calls"]
