"""Small external backends that the tests of partitioning use."""

from __future__ import annotations

from typing import Any

from nimblevm.compiler.external import Blob, External, Region
from nimblevm.relay.dataflow_pattern import DFPattern, is_op, wildcard
from nimblevm.relay.ir import Expr
from nimblevm.relay.types import TensorType


def is_float32(match: Expr) -> bool:
    """A check: the result's dtype."""
    type_ = match.checked_type
    return isinstance(type_, TensorType) and type_.dtype == "float32"


def unary(name: str) -> DFPattern:
    """A call of an operator of one operand."""
    return is_op(name)(wildcard())


def codegen(region: Region) -> Blob | None:
    """Takes everything but one output of 3 columns."""
    if [t.shape[-1:] for t in region.outputs] == [(3,)] and len(region.inputs) == 1:
        return None
    return Blob(region.name.encode())


def _external(name: str, *patterns: Any, **options: Any) -> External:
    return External(name, patterns, codegen, **options)


_DENSE = is_op("nn.dense")(wildcard(), wildcard())
_DENSE_RELU = is_op("nn.relu")(is_op("add")(_DENSE, wildcard()))
_DENSE_BIAS = is_op("add")(_DENSE, wildcard())
_SPLIT = is_op("split")(wildcard())

EXTERNALS = {
    "acc": _external("acc", ("acc.dense_relu", _DENSE_RELU, is_float32), ("acc.dense", _DENSE)),
    "greedy": _external("greedy", ("greedy.bias", _DENSE_BIAS), ("greedy.dense", _DENSE)),
    "merging": _external(
        "merging", ("m.dense", _DENSE), ("m.tanh", unary("tanh"), is_float32), merge=True
    ),
    "late": _external(
        "late",
        ("l.exp", unary("exp")),
        ("l.max", is_op("maximum")(wildcard(), wildcard())),
        merge=True,
    ),
    "joining": _external(
        "joining",
        ("j.tanh", unary("tanh")),
        ("j.split", _SPLIT),
        ("j.concatenate", is_op("concatenate")(wildcard())),
        merge=True,
    ),
    "dividing": _external(
        "dividing", ("d.divide", is_op("divide")(wildcard(), wildcard())), merge=True
    ),
    "chain": _external(
        "chain",
        (
            "c.dense_chain",
            is_op("nn.relu")(wildcard()).dominates(_DENSE, is_op("tanh")(wildcard())),
        ),
    ),
    "owning": _external("owning", ("o.dense", _DENSE), constants="owned"),
}
