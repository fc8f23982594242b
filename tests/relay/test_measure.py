"""Layers, products, parts of programs, and who calls whom."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.measure import (
    CallGraph,
    count_layers,
    extract_fused_functions,
    extract_intermdeiate_expr,
    get_total_mac_number,
)
from nimblevm.tvm.relay import transform


def test_layers() -> None:
    x, w = relay.var("x", shape=(4, 4)), relay.var("w", shape=(4, 4))
    left = relay.nn.dense(relay.nn.dense(x, w), w)
    both = left + relay.nn.dense(x, w)
    assert count_layers(both, ["nn.dense"]) == 2
    assert count_layers(both, ["nn.dense", "add"]) == 3
    assert count_layers(both, ["nn.conv2d"]) == 0
    assert count_layers(relay.IRModule.from_expr(both), ["nn.dense"]) == 2


MACS = {
    "nn.dense(%a, %b)": ((2, 3), (5, 3), 2 * 5 * 3),
    "nn.matmul(%a, %b, transpose_a=True)": ((3, 2), (3, 5), 2 * 5 * 3),
    "nn.batch_matmul(%a, %b, transpose_b=True)": ((7, 2, 3), (7, 5, 3), 7 * 2 * 5 * 3),
    "nn.conv2d(%a, %b)": ((1, 3, 8, 8), (4, 3, 3, 3), 4 * 6 * 6 * 27),
    "nn.conv2d(%a, %b, groups=3, channels=3, kernel_size=[3, 3])": ((1, 3, 8, 8), (3, 1, 3, 3), 3 * 6 * 6 * 9),
    'nn.conv2d(%a, %b, data_layout="NHWC", kernel_layout="HWIO")': ((1, 8, 8, 3), (3, 3, 3, 4), 4 * 6 * 6 * 27),
    "nn.conv2d_transpose(%a, %b)": ((1, 3, 4, 4), (3, 5, 2, 2), 3 * 16 * 5 * 4),
    "add(%a, %b)": ((2,), (2,), 0),
}  # fmt: skip


@pytest.mark.parametrize("call", MACS)
def test_products(call: str) -> None:
    left, right, expected = MACS[call]
    types = [f"Tensor[{s}, float32]".replace(",)", ")") for s in (left, right)]
    text = f'#[version = "0.0.5"]\ndef @main(%a: {types[0]}, %b: {types[1]}) {{ {call} }}'
    assert get_total_mac_number(relay.parse(text).function("main")) == expected


def test_products_need_sizes() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    dense = relay.nn.dense(x, relay.const(np.ones((2, 3), "float32")))
    with pytest.raises(RelayTypeError, match="all sizes must be known"):
        get_total_mac_number(dense)


def test_parts() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.IRModule.from_expr(relay.Function([x], relay.exp(relay.negative(relay.tanh(x)))))
    data = np.array([1, 2], np.float32)
    for number, expected in enumerate([np.tanh(data), -np.tanh(data), np.exp(-np.tanh(data))]):
        part = relay.infer_type(extract_intermdeiate_expr(mod, number))
        assert np.allclose(evaluate(part, [data]), expected)
    with pytest.raises(ValueError, match="has the expressions 0 to 2"):
        extract_intermdeiate_expr(mod, 3)


def test_groups() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.IRModule.from_expr(relay.Function([x], relay.exp(relay.negative(x))))
    assert extract_fused_functions(mod) == {}
    (group,) = extract_fused_functions(transform.FuseOps()(mod)).values()
    assert group.attrs["Primitive"]


def test_call_graph() -> None:
    mod = nvm.relay.parse(
        '#[version = "0.0.5"]\n'
        "def @f(%n: int32) -> int32 { if (%n == 0) { 0 } else { @f(%n - 1) } }\n"
        "def @main(%n: int32) { @f(%n) + @f(%n) }\n"
    )
    graph = CallGraph(mod)
    assert graph.module is mod
    assert (graph.ref_count("f"), graph.global_call_count("main")) == (3, 2)
    assert graph.is_recursive("f")
    assert not graph.is_recursive(mod.get_global_var("main"))
    assert [v.name_hint for v in graph.callees("main")] == ["f"]
    assert graph.print_var("main") == "@main: referenced 0 times\n  @f 2"
    assert str(graph).startswith("@f: referenced 3 times")
    assert "g" not in graph
