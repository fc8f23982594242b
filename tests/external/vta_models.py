"""Int8 layers for tests of VTA: expressions with random constants, regions of one or more of them, what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm import relay
from nimblevm.compiler.external import Region
from nimblevm.relay.dims import Dim
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Expr, Function, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType


def int8(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return generator.integers(-128, 128, shape).astype(np.int8)


def dense(data: Expr, weight: np.ndarray) -> Expr:
    return relay.nn.dense(data, relay.const(weight), out_dtype="int32")


def conv2d(data: Expr, weight: np.ndarray, **attrs: Any) -> Expr:
    return relay.nn.conv2d(data, relay.const(weight), out_dtype="int32", **attrs)


def requantized(
    product: Expr, bias: np.ndarray, axis: int, shift: int = 7, relu: bool = False
) -> Expr:
    """int8 from an int32 product, as quantised networks have it."""
    wide = relay.nn.bias_add(product, relay.const(bias.astype(np.int32)), axis=axis)
    wide = relay.right_shift(wide, relay.const(np.int32(shift)))
    wide = relay.nn.relu(wide) if relu else wide
    return relay.cast(relay.clip(wide, -128, 127), "int8")


Build = Callable[[Expr], Expr]


def region(shape: tuple[Dim, ...], *layers: Build) -> Region:
    """One region of layers in a chain, each a composite, as the partitioner makes it."""
    type_: TensorType = TensorType(shape, "int8")
    param = Var("p0", type_)
    body: Expr = param
    for build in layers:
        inner = Var("q0", body.checked_type or type_)
        function = infer_expr(Function((inner,), build(inner), attrs={"Composite": "vta.layer"}))
        assert isinstance(function, Function)
        body = infer_expr(Call(function, (body,)))
    function = infer_expr(
        Function(
            (param,), body, attrs={"Compiler": "vta", "Primitive": 1, "global_symbol": "vta_0"}
        )
    )
    assert isinstance(function, Function)
    result = function.body.checked_type
    assert isinstance(result, TensorType)
    dims = tuple(dim for dim in shape if not isinstance(dim, int))
    return Region(function, (type_,), (result,), dims)


def expected(value: np.ndarray, *layers: Build) -> np.ndarray:
    """What the layers compute, by each operator's reference."""
    x = relay.var("x", TensorType(value.shape, "int8"))
    body: Expr = x
    for build in layers:
        body = build(body)
    module = IRModule.from_expr(Function((x,), body))
    result: np.ndarray = np.asarray(evaluate(module, [value]))
    return result
