"""argwhere: a C kernel on the flat tensor and its axes."""

from __future__ import annotations

from nimblevm.abi import MAX_RANK
from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand
from nimblevm.relay.ir import Call
from nimblevm.relay.op.common import product


def _rule(call: Call) -> CCall:
    condition = operand(call, 0)
    size, rank = product(condition.shape), len(condition.shape)
    axes = (*condition.shape, *(1 for _ in range(MAX_RANK - rank)))
    return CCall(f"argwhere_{condition.dtype}", (size, rank, *axes), (), ((size,), (size, rank)))


register_c_call("argwhere", _rule, only=True)
