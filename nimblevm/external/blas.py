"""The backend "blas": nn.dense of float32 by a BLAS library, with bias and activation (runtime: native/devices/blas.c).

    relu(nn.dense(%x, %w) + %b)  becomes  cblas_sgemm and one pass over the result

Activations: relu, tanh, sigmoid, and gelu: x * 0.5 * (1 + erf(x * 0.70710678)), also with the factors in
other places. Rows may be unknown; weights are operands as they are, not packed, constant or not. A blob is 8 bytes:
"NVBL", 1, activation, whether there is a bias, 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from nimblevm.compiler.external import Blob, External, Region, register
from nimblevm.relay import dims
from nimblevm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from nimblevm.relay.ir import Call, Constant, Expr, Function, is_known
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType

ACTIVATIONS = ("", "relu", "tanh", "sigmoid", "gelu")
"""By number in a blob."""


def _dense() -> DFPattern:
    return is_op("nn.dense")(wildcard(), wildcard())


def _biased() -> DFPattern:
    dense = _dense()
    return is_op("add")(dense, wildcard()) | is_op("nn.bias_add")(dense, wildcard())


def _gelu(x: DFPattern) -> DFPattern:
    erf = is_op("erf")(is_op("multiply")(x, is_constant()))
    grown = is_op("add")(is_constant(), erf)
    halves = is_op("add")(is_constant(), is_op("multiply")(erf, is_constant()))
    half = is_op("multiply")(x, is_constant())
    return (
        is_op("multiply")(half, grown)
        | is_op("multiply")(x, is_op("multiply")(grown, is_constant()))
        | is_op("multiply")(x, halves)
    )


def _patterns() -> Iterator[tuple[str, DFPattern, Callable[[Expr], bool]]]:
    """Longest first, so that no part of a match is taken before the whole."""
    shapes: dict[str, Callable[[DFPattern], DFPattern]] = {
        "gelu": _gelu,
        "relu": lambda x: is_op("nn.relu")(x),
        "tanh": lambda x: is_op("tanh")(x),
        "sigmoid": lambda x: is_op("sigmoid")(x),
    }
    for name, shape in shapes.items():
        yield f"blas.dense_bias_{name}", shape(_biased()), _fits
        yield f"blas.dense_{name}", shape(_dense()), _fits
    yield "blas.dense_bias", _biased(), _fits
    yield "blas.dense", _dense(), _fits


def _fits(match: Expr) -> bool:
    """Whether all of it is float32, the bias is one row, and gelu's constants are gelu's."""
    shape = match.checked_type.shape if isinstance(match.checked_type, TensorType) else ()
    seen: set[tuple[Expr, bool]] = set()
    stack: list[tuple[Expr, bool]] = [(match, False)]  # whether it is what erf is of
    while stack:
        item = stack.pop()
        node, in_erf = item
        if item in seen:
            continue
        seen.add(item)
        if not isinstance(node, Call) or not isinstance(node.op, Op) or not _is_float(node):
            return False
        if node.op.name == "nn.dense":
            if not _is_product(node, shape):
                return False
            continue
        above = [a for a in node.args if _leads_to_dense(a)]
        others = [a for a in node.args if a not in above]
        if node.op.name in ("add", "nn.bias_add") and not others:
            return False  # the sum of two products
        stack += [(a, node.op.name == "erf") for a in above]
        for arg in others:
            if is_known(arg) and arg.data.size == 1:
                if not _is_gelus(arg.data.flat[0], node.op.name, above, in_erf):
                    return False
            elif not _is_row(arg, shape[-1:]):
                return False
    return True


def _is_float(node: Expr) -> bool:
    type_ = node.checked_type
    return isinstance(type_, TensorType) and type_.dtype == "float32"


def _leads_to_dense(node: Expr) -> bool:
    """Inside of a match only operators of the pattern lie above the product."""
    while isinstance(node, Call) and isinstance(node.op, Op):
        if node.op.name == "nn.dense":
            return True
        if not node.args or node.op.name not in ("add", "nn.bias_add", "multiply", "erf"):
            return False
        calls = [a for a in node.args if isinstance(a, Call)]
        if not calls:
            return False
        node = calls[0]
    return False


def _is_product(dense: Call, shape: tuple[dims.Dim, ...]) -> bool:
    weight, own = dense.args[1].checked_type, dense.checked_type
    if not all(map(_is_float, dense.args)) or not isinstance(own, TensorType):
        return False
    if any(isinstance(a, Constant) and a.data.size == 1 for a in dense.args):
        return False  # it would stand in the body
    return own.shape == shape and isinstance(weight, TensorType) and len(weight.shape) == 2


def _is_row(node: Expr, last: tuple[dims.Dim, ...]) -> bool:
    """Whether it is a bias: as many elements as the result has columns."""
    type_ = node.checked_type
    if not isinstance(type_, TensorType) or not _is_float(node) or not type_.shape:
        return False
    return type_.shape[-1:] == last and all(d == 1 for d in type_.shape[:-1])


def _is_gelus(number: float, name: str, operands: list[Expr], in_erf: bool) -> bool:
    """Whether a number that is added to `operands`, or that multiplies them, is gelu's at its place."""
    (other,) = (a.op.name for a in operands if isinstance(a, Call) and isinstance(a.op, Op))
    if name == "multiply":
        wanted = math.sqrt(0.5) if in_erf else 0.5
    elif other == "erf":
        wanted = 1.0
    elif other == "multiply":
        wanted = 0.5  # 0.5 + 0.5 * erf(..)
    else:
        return False  # a bias of one element, which would stand in the body
    return math.isclose(number, wanted, rel_tol=1e-6)


def _codegen(region: Region) -> Blob | None:
    call = region.function.body
    if not isinstance(call, Call) or not isinstance(call.op, Function):
        return None
    words = str(call.op.attrs["Composite"]).removeprefix("blas.dense").split("_")[1:]
    biased = words[:1] == ["bias"]
    activation = words[-1] if words[biased:] else ""
    if len(region.inputs) != 2 + biased:
        return None  # one value in two places
    return Blob(bytes((*b"NVBL", 1, ACTIVATIONS.index(activation), biased, 0)))


BLAS = register(External("blas", tuple(_patterns()), _codegen))
