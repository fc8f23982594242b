"""Weights without a type: what data and attributes say of them, and what stays an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay.module import IRModule

N, C = relay.DimVar("n"), relay.DimVar("c")
CASES: list[tuple[Callable[..., relay.Expr], tuple[relay.Dim, ...], list[str]]] = [
    (lambda x, w: relay.nn.dense(x, w, units=8), (N, 4), ["(8, 4)"]),
    (lambda x, w: relay.nn.dense(x, w, units=8), (4,), ["(8, 4)"]),
    (lambda x, w: relay.nn.dense(x, w, units=8), (2, C), ["(8, ?)"]),
    (lambda x, w: relay.nn.matmul(x, w, units=8), (N, 4), ["(4, 8)"]),
    (lambda x, w: relay.nn.matmul(x, w, units=8, transpose_a=True, transpose_b=True), (4, 2), ["(8, 4)"]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 5)), (N, 6, 9, 9), ["(8, 6, 3, 5)"]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=3, groups=2), (N, 6, 9, 9), ["(8, 3, 3, 3)"]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=6, kernel_size=3, groups=6), (N, 6, 9, 9), ["(6, 1, 3, 3)"]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=3, data_layout="NHWC", kernel_layout="HWIO"),
     (N, 9, 9, 6), ["(3, 3, 6, 8)"]),
    (lambda x, w: relay.nn.conv1d(x, w, channels=8, kernel_size=3), (1, 6, 9), ["(8, 6, 3)"]),
    (lambda x, w: relay.nn.conv3d(x, w, channels=8, kernel_size=3), (1, 6, 9, 9, 9), ["(8, 6, 3, 3, 3)"]),
    (lambda x, w: relay.nn.conv2d_transpose(x, w, channels=8, kernel_size=(3, 3), groups=2), (1, 6, 9, 9),
     ["(6, 4, 3, 3)"]),
    (lambda x, w: relay.nn.bias_add(x, w), (N, 5), ["(5)"]),
    (lambda x, w: relay.nn.bias_add(x, w, axis=-1), (N, 5, 7), ["(7)"]),
    (lambda x, w: relay.nn.prelu(x, w), (N, 5, 7), ["(5)"]),
    (lambda x, g, b: relay.nn.layer_norm(x, g, b), (N, 5), ["(5)", "(5)"]),
    (lambda x, g, b: relay.nn.group_norm(x, g, b, 2), (1, 4, 3), ["(4)", "(4)"]),
    (lambda x, o, w: relay.nn.deformable_conv2d(x, o, w, kernel_size=(3, 2), padding=(1, 1), channels=8, groups=2,
     deformable_groups=4), (2, 4, 16, 15), ["(2, 48, 16, 16)", "(8, 2, 3, 2)"]),
    (lambda x, o, w: relay.nn.deformable_conv2d(x, o, w, kernel_size=3, strides=2, channels=8, data_layout="NHWC",
     kernel_layout="HWIO"), (2, 9, 7, 4), ["(2, 4, 3, 18)", "(3, 3, 4, 8)"]),
    (lambda x, g, b, m, v: relay.nn.batch_norm(x, g, b, m, v)[0], (N, 5, 2, 2), ["(5)"] * 4),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_weight_follows_from_the_others(number: int) -> None:
    make, shape, weights = CASES[number]
    x = relay.var("x", shape=shape)
    names = [relay.var(f"w{i}") for i in range(len(weights))]
    mod = relay.infer_type(IRModule.from_expr(relay.Function([x, *names], make(x, *names))))
    found = [str(p.checked_type) for p in mod.function("main").params[1:]]
    assert found == [f"Tensor[{w}, float32]" for w in weights]


def test_a_hole_as_annotation_is_none() -> None:
    """As TVM's own builders write it, and as text can."""
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", relay.IncompleteType())
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 4), float32], %w: _) { nn.dense(%x, %w, units=3) }"""
    made = IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w, units=3)))
    for mod in (made, relay.parse(text)):
        found = relay.infer_type(mod).function("main").params[1].checked_type
        assert str(found) == "Tensor[(3, 4), float32]"
    # One hole in two places is one type.
    y = relay.var("y", w.type_annotation)
    both = relay.Tuple([relay.nn.dense(x, w, units=3), y])
    mod = relay.infer_type(IRModule.from_expr(relay.Function([x, w, y], both)))
    assert str(mod.function("main").params[2].checked_type) == "Tensor[(3, 4), float32]"


def test_a_network_without_weight_types_runs() -> None:
    """Weights are bound by name, and text may leave them open as well."""
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w, %b) { nn.relu(nn.bias_add(nn.dense(%x, %w, units=3), %b)) }"""
    weights = {"w": np.ones((3, 4), np.float32), "b": np.arange(3, dtype=np.float32)}
    exe = nvm.compile(relay.infer_type(relay.parse(text)), params=weights, native=False)
    with nvm.VirtualMachine(exe) as vm:
        out = vm.run(np.ones((2, 4), np.float32)).numpy()
    assert out.tolist() == [[4, 5, 6]] * 2


def test_dtype_is_that_of_the_data() -> None:
    x, w = relay.var("x", shape=(2, 4), dtype="float16"), relay.var("w")
    mod = relay.infer_type(IRModule.from_expr(relay.nn.dense(x, w, units=3)))
    assert str(mod.function("main").params[1].checked_type) == "Tensor[(3, 4), float16]"


@pytest.mark.parametrize(
    "make",
    [
        lambda x, w: relay.nn.dense(x, w),
        lambda x, w: relay.nn.conv2d(x, w, channels=8),
        lambda x, w: relay.nn.conv2d(x, w, kernel_size=3),
        lambda x, w: relay.nn.deformable_conv2d(x, x, w, channels=8),
        lambda x, w: relay.nn.deformable_conv2d(x, w, x, channels=8),
        lambda x, w: relay.nn.deformable_conv2d(x, w, x, channels=8, kernel_size=(3, 3, 3)),
        lambda x, w: relay.add(x, w),
        lambda x, w: relay.nn.dense(w, x, units=3),
    ],
)
def test_what_does_not_follow_is_said(make: Callable[..., relay.Expr]) -> None:
    x, w = relay.var("x", shape=(1, 4, 9, 9)), relay.var("w")
    with pytest.raises(RelayTypeError, match="can't infer the type of %w; annotate it"):
        relay.infer_type(IRModule.from_expr(make(x, w)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x, w: relay.nn.dense(x, w, units=-3), "integer >= 0, not -3"),
        (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=3, groups=3), "3 groups"),
        (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=3, groups=0), "groups|can't infer"),
        (lambda x, w: relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 3, 3)), "kernel_size"),
        (lambda x, w: relay.nn.bias_add(x, w, axis=7), "axis 7|can't infer"),
    ],
)  # fmt: skip
def test_wrong_attributes_are_located_errors(make: Callable[..., relay.Expr], text: str) -> None:
    x, w = relay.var("x", shape=(1, 4, 9, 9)), relay.var("w")
    with pytest.raises(RelayTypeError, match=text):
        relay.infer_type(IRModule.from_expr(make(x, w)))


def test_a_weight_shared_by_two_layers_must_fit_both() -> None:
    x, y, w = relay.var("x", shape=(2, 4)), relay.var("y", shape=(2, 5)), relay.var("w")
    both = relay.Tuple([relay.nn.dense(x, w, units=3), relay.nn.dense(y, w, units=3)])
    with pytest.raises(RelayTypeError, match=r"5.*4|4.*5"):
        relay.infer_type(IRModule.from_expr(both))
