"""unique: a C kernel, whose outputs are allocated at data's size and cut."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand
from nimblevm.relay.ir import Call


def _rule(call: Call) -> CCall:
    data = operand(call, 0)
    vector = data.shape
    name = "unique_counts" if call.attrs.return_counts else "unique"
    counts = (vector,) if call.attrs.return_counts else ()
    shapes = (vector, vector, vector, vector, (1,), *counts)
    return CCall(f"{name}_{data.dtype}", vector, (int(call.attrs.sorted),), shapes)


register_c_call("unique", _rule, only=True)
