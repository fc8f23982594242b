"""searchsorted: a C kernel on rows; one row where the sequence has rank 1."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call
from nimblevm.relay.op.common import product


def _rule(call: Call) -> CCall:
    rows, values = operand(call, 0), operand(call, 1)
    axis = rows.shape[-1]
    outer: Dim = 1
    count = product(values.shape)
    if len(rows.shape) > 1:
        outer, count = product(rows.shape[:-1]), values.shape[-1]
    name = "searchsorted64" if call.attrs.dtype == "int64" else "searchsorted"
    shapes = ((outer, axis), (outer, count), (outer, count))
    return CCall(f"{name}_{rows.dtype}", (outer, axis, count), (int(call.attrs.right),), shapes)


register_c_call("searchsorted", _rule, only=True)
