"""BERT-like encoders and ResNet as ONNX models."""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.peers.onnx_graph import FLOAT, INT32, Graph
from nimblevm.bench.workloads import bert, resnet

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]


def encoder(weights: Weights, config: bert.Config, pooled: bool, fused: bool) -> Any:
    """tokens (b, n) int32, mask (b, n) -> (b, n, hidden); pooled: ids (n) int32 -> (hidden), of length 1.

    fused: com.microsoft.Attention, which ONNX Runtime documents for such models, instead of its parts.
    """
    graph = Graph()
    if pooled:
        tokens = graph.input("ids", INT32, ["n"])
        tokens = graph.node("Unsqueeze", tokens, graph.constant([0]))
        mask = None
    else:
        tokens = graph.input("tokens", INT32, ["b", "n"])
        mask = graph.input("mask", FLOAT, ["b", "n"])
    x = _embedded(graph, weights, config, tokens)
    attend = _fused_attention if fused else _attention
    masked = None if mask is None else (_fused_mask(graph, mask) if fused else _mask(graph, mask))
    for i in range(config.layers):
        mixed = attend(graph, weights, config, i, x, masked)
        y = _norm(
            graph,
            weights,
            config,
            f"l{i}_norm1",
            graph.node("Add", x, _dense(graph, weights, f"l{i}_o", mixed)),
        )
        inner = graph.node("Gelu", _dense(graph, weights, f"l{i}_in", y))
        x = _norm(
            graph,
            weights,
            config,
            f"l{i}_norm2",
            graph.node("Add", y, _dense(graph, weights, f"l{i}_out", inner)),
        )
    if not pooled:
        graph.output(x, FLOAT, ["b", "n", config.hidden])
        return graph.model()
    mean = graph.node("ReduceMean", x, graph.constant([0, 1]), keepdims=0)
    length = graph.node("ReduceL2", mean, graph.constant([0]), keepdims=1)
    graph.output(graph.node("Div", mean, length), FLOAT, [config.hidden])
    return graph.model()


def _embedded(graph: Graph, weights: Weights, config: bert.Config, tokens: str) -> str:
    x = graph.node("Gather", graph.constant(weights["words"]), tokens, axis=0)
    length = graph.node("Shape", tokens, start=1, end=2)
    first = weights["positions"] + weights["kinds"][0]
    at = graph.node(
        "Slice", graph.constant(first), graph.constant([0]), length, graph.constant([0])
    )
    return _norm(graph, weights, config, "norm", graph.node("Add", x, at))


def _norm(graph: Graph, weights: Weights, config: bert.Config, name: str, x: str) -> str:
    gain, bias = (graph.constant(weights[f"{name}_{part}"]) for part in "gb")
    return graph.node("LayerNormalization", x, gain, bias, axis=-1, epsilon=config.epsilon)


def _dense(graph: Graph, weights: Weights, name: str, x: str) -> str:
    matrix = graph.constant(np.ascontiguousarray(weights[f"{name}_w"].T))
    return graph.node("Add", graph.node("MatMul", x, matrix), graph.constant(weights[f"{name}_b"]))


def _mask(graph: Graph, mask: str) -> str:
    bias = graph.node("Mul", graph.node("Sub", mask, graph.constant(1.0)), graph.constant(10000.0))
    return graph.node("Unsqueeze", bias, graph.constant([1, 2]))


def _attention(
    graph: Graph, weights: Weights, config: bert.Config, i: int, x: str, mask: str | None
) -> str:
    size = config.hidden // config.heads
    split = graph.constant([0, 0, config.heads, size])
    q, k, v = (
        graph.node("Reshape", _dense(graph, weights, f"l{i}_{name}", x), split) for name in "qkv"
    )
    q, v = (graph.node("Transpose", value, perm=[0, 2, 1, 3]) for value in (q, v))
    k = graph.node("Transpose", k, perm=[0, 2, 3, 1])
    scores = graph.node("Mul", graph.node("MatMul", q, k), graph.constant(float(size**-0.5)))
    if mask is not None:
        scores = graph.node("Add", scores, mask)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), v)
    mixed = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.node("Reshape", mixed, graph.constant([0, 0, config.hidden]))


def _fused_mask(graph: Graph, mask: str) -> str:
    return graph.node("Cast", mask, to=INT32)


def _fused_attention(
    graph: Graph, weights: Weights, config: bert.Config, i: int, x: str, mask: str | None
) -> str:
    stacked = np.concatenate([weights[f"l{i}_{name}_w"] for name in "qkv"])
    bias = np.concatenate([weights[f"l{i}_{name}_b"] for name in "qkv"])
    operands = [
        x,
        graph.constant(np.ascontiguousarray(stacked.T)),
        graph.constant(bias),
        mask or "",
    ]
    attributes: dict[str, Any] = {"num_heads": config.heads}
    return graph.nodes_of("Attention", operands, 1, domain="com.microsoft", **attributes)[0]


def resnet18(weights: Weights) -> Any:
    """x (n, 3, h, w) -> logits (n, classes). Batch norms are folded by the runtimes."""
    graph = Graph()
    x = graph.input("x", FLOAT, ["n", 3, "h", "w"])

    def convolution(value: str, name: str, stride: int) -> str:
        kernel = weights[f"{name}_w"]
        side = kernel.shape[2]
        value = graph.node(
            "Conv", value, graph.constant(kernel), kernel_shape=[side, side],
            strides=[stride, stride], pads=[side // 2] * 4,
        )  # fmt: skip
        norm = [graph.constant(weights[f"{name}_{part}"]) for part in "gbmv"]
        return graph.node("BatchNormalization", value, *norm, epsilon=resnet.EPSILON)

    value = graph.node("Relu", convolution(x, "stem", 2))
    value = graph.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for name in sorted({key[:4] for key in weights if key.startswith("s") and key[1].isdigit()}):
        shortcut, stride = value, 1
        if f"{name}d_w" in weights:
            stride = 1 if name == "s0b0" else 2
            shortcut = convolution(value, f"{name}d", stride)
        inner = graph.node("Relu", convolution(value, f"{name}c0", stride))
        inner = convolution(inner, f"{name}c1", 1)
        value = graph.node("Relu", graph.node("Add", inner, shortcut))
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", value))
    fc, bias = graph.constant(weights["fc_w"]), graph.constant(weights["fc_b"])
    graph.output(graph.node("Gemm", mean, fc, bias, transB=1), FLOAT, ["n", len(weights["fc_b"])])
    return graph.model()


__all__ = ["encoder", "resnet18"]
