"""sort, argsort, topk: C kernels on (outer, axis, inner). dyn.topk has become topk by then (shape functions)."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, Rule, register_c_call
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call
from nimblevm.relay.op.common import product
from nimblevm.relay.types import TensorType, value_tensors


def axes_around(data: TensorType, axis: int) -> tuple[Dim, Dim, Dim]:
    """(outer, axis, inner) sizes of a shape."""
    at = axis % len(data.shape)
    return product(data.shape[:at]), data.shape[at], product(data.shape[at + 1 :])


def operand(call: Call, index: int) -> TensorType:
    """The type of an argument that is a tensor."""
    found = call.args[index].checked_type
    if not isinstance(found, TensorType):
        raise TypeError(f"argument {index} is {found!r}, not a tensor")
    return found


def results(call: Call) -> tuple[TensorType, ...]:
    """The flat results of a call whose types are inferred."""
    if call.checked_type is None:
        raise TypeError("the call's type is not inferred")
    return tuple(value_tensors(call.checked_type))


def _ordered(kernel: str) -> Rule:
    """The rule for `kernel` (its name for int64 positions ends in 64)."""

    def rule(call: Call) -> CCall:
        data, outs = operand(call, 0), results(call)
        outer, axis, inner = axes_around(data, call.attrs.axis)
        name = kernel
        if kernel == "topk" and call.attrs.ret_type != "both":
            name = f"topk_{call.attrs.ret_type}"
        if name != "topk_values" and outs[-1].dtype == "int64":
            name += "64"
        k = axes_around(outs[0], call.attrs.axis)[1]
        shapes = ((outer, axis, inner), *((outer, k, inner) for _ in outs))
        ascend = int(call.attrs.is_ascend)
        return CCall(f"{name}_{data.dtype}", (outer, axis, inner, k), (ascend,), shapes)

    return rule


register_c_call("sort", _ordered("topk_values"), only=True)
register_c_call("argsort", _ordered("topk_indices"), only=True)
register_c_call("topk", _ordered("topk"), only=True)
register_c_call("dyn.topk", _ordered("topk"), only=True)
